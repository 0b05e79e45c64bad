# SPDX-License-Identifier: GPL-2.0
"""Finds the reports of a kernel in its log.

A report is what a kernel prints when something is wrong with it.  Any of them
fails the run in which it appears.
"""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from .paths import LabError

# In this order: the first that matches a line names it.
PATTERNS = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("panic", r"Kernel panic - not syncing|^PANIC: "),
        ("kasan", r"BUG: KASAN|BUG: KFENCE|BUG: KMSAN"),
        ("ubsan", r"^UBSAN: "),
        (
            "kmemleak",
            r"kmemleak: \d+ new suspected memory leaks|kmemleak: Kernel memory leak detector disabled"
            r"|kmemleak: Memory pool empty",
        ),
        ("hung task", r"INFO: task .* blocked for more than"),
        (
            "rcu stall",
            r"rcu.*: INFO: .*(detected.* stalls?|self-detected stall)|rcu.*: INFO: .* stalls on tasks"
            r"|rcu.* kthread (starved|timer wakeup didn't happen)|INFO: rcu_tasks detected stalls",
        ),
        ("lockup", r"BUG: soft lockup|Watchdog detected hard LOCKUP|BUG: workqueue lockup"),
        (
            "atomic sleep",
            r"BUG: sleeping function called|BUG: scheduling while atomic|BUG: Invalid wait context"
            r"|\[ BUG: Invalid wait context \]",
        ),
        (
            "lockdep",
            r"WARNING: (possible |inconsistent |suspicious RCU|bad unlock|held lock|lock held|.* lock order|nested lock)"
            r"|WARNING: .*(deadlock|lock inversion|locking dependency|unsafe lock)"
            r"|INFO: (possible|trying to register non-static key)|BUG: (MAX_|looking up|key .* not|.*lock held)"
            r"|\[ BUG: |INFO: lockdep is turned off|turning off the locking correctness validator"
            r"|BUG: .*(spinlock|rwlock|mutex)",
        ),
        (
            "oops",
            r"BUG: unable to handle|BUG: kernel NULL pointer|\bOops: |general protection fault|kernel BUG at"
            r"|Unable to handle kernel|^stack segment: |^int3: |^double fault|^invalid opcode: "
            r"|kernel stack overflow|stack guard page was hit",
        ),
        (
            "slab",
            r"^BUG [\w-]+( \(|:)|Slab corruption|list_(add|del) corruption|cache .*still has objects"
            r"|Objects remaining (in|on) ",
        ),
        ("debugobjects", r"^ODEBUG: "),
        ("warn", r"WARNING: CPU: |^WARNING: |------------\[ cut here \]------------"),
        ("bug", r"\bBUG: |BUG: Bad "),
        ("oom", r"invoked oom-killer|Out of memory: Killed"),
        ("trace", r"^Call Trace:"),
    )
]

# A trace after one of these was asked for.
ASKED_FOR = re.compile(r"FAULT_INJECTION: forcing a failure|sysrq: ")

_PREFIX = re.compile(r"^(?:<\d+>)?(?:\[ *(?P<stamp>\d+\.\d+)\](?:\[ *[TC]\d+\])? ?)?")
_JUNK = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\0]")
_MARK = "lab: mark "
MAX_LINES = 150
GAP_SECONDS = 2.0
# CPUs may print out of order, but not by this much.
BACK_SECONDS = 5.0


@dataclass
class Report:
    kind: str
    title: str
    lines: list = field(default_factory=list)
    kinds: set = field(default_factory=set)
    clock_went_back: bool = False

    def __str__(self):
        return "\n".join(self.lines)


class KernelReports(LabError):
    """A kernel printed reports; the run fails."""

    def __init__(self, where, reports):
        self.reports = reports
        self.status = None  # of the command after which they were seen, if it ended
        body = "\n".join(f"--- {where}: {r.kind}: {r.title}\n{r}\n---" for r in reports)
        super().__init__(f"{len(reports)} kernel report(s) in the log of {where}\n{body}")


def kind_of(text):
    for kind, pattern in PATTERNS:
        if pattern.search(text):
            return kind
    return None


class Scanner:
    """Takes a log line by line, gives the reports in it."""

    def __init__(self):
        self.open = None
        self.done = []
        self._before = []
        self._asked = 0.0
        self._last = 0.0

    def line(self, raw):
        raw = _JUNK.sub("", raw).rstrip("\n")
        prefix = _PREFIX.match(raw)
        text = raw[prefix.end() :].strip()
        stamp = float(prefix["stamp"]) if prefix["stamp"] else self._last
        if self.open and (
            stamp - self._last > GAP_SECONDS
            or text.startswith(_MARK)
            or len(self.open.lines) >= MAX_LINES
        ):
            self.close()
        back = self._last - stamp > BACK_SECONDS
        self._last = stamp
        if ASKED_FOR.search(text):
            self._asked = stamp
        kind = kind_of(text)
        if kind == "trace" and not self.open and stamp - self._asked <= GAP_SECONDS and self._asked:
            kind = None
        if self.open:
            self._continue(raw, text, kind)
        elif kind:
            self.open = Report(kind, text, [*self._before, raw], {kind}, back)
        self._before = [*self._before[-1:], raw]

    def _continue(self, raw, text, kind):
        self.open.lines.append(raw)
        if not kind:
            return
        self.open.kinds.add(kind)
        # a cut-here line has no news, the line after it names the report
        if self.open.title.startswith("------------["):
            self.open.kind, self.open.title = kind, text

    def close(self):
        """The report that is open, if any, has ended."""
        if self.open:
            self.done.append(self.open)
            self.open = None

    def take(self):
        done, self.done = self.done, []
        return done


def scan_text(text):
    scanner = Scanner()
    for line in text.splitlines():
        scanner.line(line)
    scanner.close()
    return scanner.take()


class LogWatch:
    """Follows a log file; .check() raises what is new in it."""

    def __init__(self, path, where, offset=0):
        self.path = Path(path)
        self.where = where
        self.offset = offset
        self._scanner = Scanner()
        self._partial = b""

    def _read(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read()
        except FileNotFoundError:
            return False
        self.offset += len(data)
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        for line in lines:
            self._scanner.line(line.decode(errors="replace"))
        return bool(data)

    def reports(self, settle=0.5):
        """New reports.  One that is being printed is waited for."""
        self._read()
        quiet = 0.0
        limit = time.monotonic() + 10
        while (self._scanner.open or self._partial) and quiet < settle and time.monotonic() < limit:
            time.sleep(0.1)
            quiet = 0.0 if self._read() else quiet + 0.1
        self._scanner.close()
        return self._scanner.take()

    def ahead(self, pattern):
        """Whether PATTERN (of bytes) is in what has not been read yet."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                return pattern.search(f.read()) is not None
        except FileNotFoundError:
            return False

    def check(self):
        reports = self.reports()
        if reports:
            raise KernelReports(self.where, reports)

    def tail(self, lines=30):
        try:
            with open(self.path, "rb") as f:
                f.seek(max(0, self.path.stat().st_size - 16384))
                data = f.read()
        except OSError:
            return ""
        return "\n".join(
            _JUNK.sub("", d)
            for d in data.decode(errors="replace").replace("\r", "").splitlines()[-lines:]
        )
