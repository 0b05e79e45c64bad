# SPDX-License-Identifier: GPL-2.0
"""Whether a program's failures stand.

A failure stands, unless a trace that only the emulator can leave (traces.py)
explains that very failure.  Each is judged by itself: each report of a kernel, each
case that failed, and the way in which the program ended.  One that is explained does
not excuse the one beside it.

These stand whatever trace is beside them: data that is not what was written; panics,
oopses, hung tasks, leaks and what the kernel's sanitizers say; each report with a
function or a thread of ours in it.

A program whose failures are all explained has not passed.  It runs once more, from
its start, and the excuse is kept and counted (excuses.py); the same trace in two runs in a
row is a failure.
"""

import re
from dataclasses import dataclass, field

from . import detect, traces

# Reports of these kinds stand whatever else there is.
ALWAYS = {
    "panic",
    "kasan",
    "ubsan",
    "kmemleak",
    "hung task",
    "atomic sleep",
    "oops",
    "slab",
    "debugobjects",
    "bug",
    "oom",
}
# A CPU that takes no interrupts makes its kernel say these.
OF_A_DEAF_CPU = {"rcu stall", "lockup", "trace"}
MODULES = "vhost_poll|vhost_serve|vhost_blk|vhost_fs|virtio_poll|virtio_pvblk|pvfs"
# A frame of ours, a guessed one too, or a thread of ours.
OURS = re.compile(
    rf"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?:{MODULES})\]|\bComm: (?:vhost|pvio|pvblk|pvfs|virtio-poll)"
)
# Words of fio, of fsx, of file systems' checkers, and of our own tests.
DATA = re.compile(
    r"verify: bad |verify failed|bad magic header|(READ|WRITE|COPY) BAD DATA|miscompare"
    r"|sha1sum: WARNING|: FAILED$|Structure needs cleaning|UNEXPECTED INCONSISTENCY"
    r"|not as the guest left|rig_pattern_ok|memcmp\(|AssertionError: b'",
    re.M | re.I,
)
_RESULT = re.compile(r"^(not ok|ok)\b(?: \d+)?(?: - )?(.*)$")
# As KernelReports says them, in a test's output as comments.
_REPORT = re.compile(r"^[# ]*--- (.*?): [a-z ]+: .*\n((?:.*\n)*?)[# ]*---$", re.M)
_COMMENT = re.compile(r"^(?:# ?)+", re.M)
# The last line of a traceback, with what was raised.
_RAISED = re.compile(
    r"^(?:\w+\.)*(\w*(?:Error|Exception|Timeout|Failed|Reports|Silent|Gone|Interrupt|Exit))\b", re.M
)
_CASE_LIMIT = re.compile(r": took longer than its limit$", re.M)
_EXPECTED = re.compile(r"\.[ch]:\d+: (?:expected |.* is -?\d+, expected )")


@dataclass
class End:
    """How a run of a program ended."""

    status: int | None = None  # None: it is not known
    text: str = ""  # what it printed
    why: str = ""  # what came between, in words
    reports: list = field(default_factory=list)  # of the host VM's kernel
    cut: str = ""  # why it did not end by itself: "limit", "silent", "gone", "lab"
    deaf: list = field(default_factory=list)  # CPUs of the host VM that were found so
    aborted: bool = False  # the host VM's QEMU ended so
    seconds: float = 0.0


@dataclass
class Finding:
    """A failure, and the trace that explains it; without one it stands."""

    what: str
    trace: str = ""


@dataclass
class Verdict:
    stands: list = field(default_factory=list)  # in words, ours first
    excused: list = field(default_factory=list)  # the traces, one for each that explains
    started_again: list = field(default_factory=list)  # guests

    @property
    def good(self):
        return not (self.stands or self.excused)


def judge(end, emulated=True):
    """The Verdict on END; nothing is excused on a machine that is not EMULATED."""
    cases = [_case(name, said, end) for name, said in failed_cases(end.text)]
    findings = [_host_report(r, end) for r in end.reports] + cases + _the_end(end, bool(cases))
    verdict = Verdict(started_again=traces.silent_starts(end.text))
    for one in findings:
        if one.trace and emulated:
            verdict.excused.append(one.trace)
        else:
            verdict.stands.append(one.what)
    verdict.excused = list(dict.fromkeys(verdict.excused))
    return verdict


def failed_cases(text):
    """(name, what was said before its result) of each case that failed."""
    found, said = [], []
    for line in text.splitlines():
        result = _RESULT.match(line)
        if not result:
            said.append(line)
            continue
        if result[1] == "not ok" and "# TODO" not in result[2]:
            found.append((result[2].partition(" # ")[0].strip(), "\n".join(said)))
        said = []
    return found


def explain_report(report, of_host=True):
    """The emulator's trace that REPORT bears and that explains it."""
    text = str(report)
    if {report.kind, *report.kinds} & ALWAYS or OURS.search(text):
        return ""
    return traces.of_report(report, of_host)


def _host_report(report, end):
    trace = explain_report(report)
    kinds = {report.kind, *report.kinds}
    if not trace and end.deaf and kinds <= OF_A_DEAF_CPU and not OURS.search(str(report)):
        trace = traces.DEAF
    return Finding(f"the host's kernel: {report.kind}: {report.title}", trace)


def _case(name, said, end):
    """One case; SAID are its comments."""
    words = _COMMENT.sub("", said)
    raised = set(_RAISED.findall(words))
    guests = [
        report
        for of, body in _REPORT.findall(said + "\n")
        for report in detect.scan_text(_COMMENT.sub("", body))
        if of.startswith("guest ")
    ]
    bad = [r for r in guests if not explain_report(r, of_host=False)]
    if bad:
        return Finding(f"{name}: a guest's kernel: {bad[0].kind}: {bad[0].title}")
    if DATA.search(words):
        return Finding(f"{name}: data is not what was written")
    trace = ""
    if guests and raised <= {"KernelReports", "Gone"}:
        trace = explain_report(guests[0], of_host=False)
    elif raised == {"Gone"} and traces.lost_guest(said):
        trace = traces.LOST_GUEST
    elif end.deaf and _is_a_limit(words, raised):
        trace = traces.DEAF
    return Finding(f"{name}: {_last_words(words)}", trace)


def _is_a_limit(words, raised):
    """Whether a limit of time is all that failed."""
    if raised:
        return raised == {"Timeout"}
    return bool(_CASE_LIMIT.search(words)) and not _EXPECTED.search(words)


def _last_words(words):
    """Of a traceback what was raised, else the last line."""
    lines = [line for line in words.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised or lines or ["it says nothing"])[-1].strip()[:200]


def _the_end(end, cases):
    """How the program ended, as findings; CASES says that some failed, so that it ends with 1."""
    found = []
    if end.cut == "gone":
        found.append(Finding("the host VM ended", traces.ABORTED if end.aborted else ""))
    elif end.cut == "silent":
        found.append(Finding("the host VM fell silent", traces.DEAF if end.deaf else ""))
    elif end.cut == "limit":
        found.append(Finding("it reached its limit of time", traces.DEAF if end.deaf else ""))
    elif end.cut:
        found.append(Finding(end.why.partition("\n")[0]))
    if end.status is None and not (found or end.reports):
        found.append(Finding("how it ended is not known"))
    if end.status not in (None, 0, 1, 4) or (end.status == 1 and not cases):
        found.append(Finding(f"it ended with status {end.status}, and no case says why"))
    return found
