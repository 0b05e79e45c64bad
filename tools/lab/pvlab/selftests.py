# SPDX-License-Identifier: GPL-2.0
"""Runs tools/testing/selftests on a host VM of a lane.

    python3 -m pvlab.selftests --lane stock|debug [DIR[.TEST]]...

Run it outside: it boots the host VM, loads our modules that are built, runs
each program under a limit, and looks at the kernel's log after each.  Prints
KTAP; the output of what passed is left out (V=1 shows it), and all is in
out/lab/check-LANE/tests/.  Its last line is `N passed, N failed, N skipped`,
counting the cases that the programs report.

A directory says by a file `lanes` in which it runs, by timeout= in `settings` how
long each of its programs may take, and by long_in_debug= and long_in_stock= there which
have their turn by date (turns.py); one that is named runs at once.  crates= there names
programs from crates.io that a directory wants (crates.py).  guest_only= names programs
that need nothing but guests: without KVM they run on this machine (here.py), before the
host VM boots.
LAB_DEADLINE (seconds since 1970): what would start later has failed.  FULL=1 is
handed to the tests, which may take three times as long then, and so is
PVIO_TEST_NVME, an NVMe disk of the host VM that they may overwrite; PVIO_TEST_SUSPEND
says that they may suspend it.  --full runs one of the lane's programs with FULL=1, that of
the day, if there is time, and no other.
"""

import argparse
import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from . import accel, crates, excuses, here, paths, traces, turns
from .agent import Gone, Silent, Timeout
from .detect import KernelReports
from .host import Host, NoBoot
from .paths import LabError
from .verdict import End, judge

SELFTESTS = paths.TOP / "tools/testing/selftests"
OURS = ("vhost_poll", "vhost_serve", "vhost_blk", "vhost_fs")
TIMEOUT = 300
# For a closing check of a host VM: kmemleak reads all of its memory.
CLOSING_SECONDS = 300
# A program that began before the deadline may run on for so long after it.
GRACE_SECONDS = 240
FULL_TAKES = 3
# So many loops fit into a program's limit of time.
LOOPS_IN_LIMIT = 20
# The part of its limit that a program may need, where it is not known how long it took.
HOST_VM_TAKES, HERE_TAKES = 2, 4
# The host VM's own, for PVIO_TEST_NVME.
NVME = "/dev/nvme0n1"
NVME_BYTES = 96 << 20
NVME_QUEUES = 4
# After one of these the kernel's checks are off, or worse.
SPOILS = {"panic", "oops", "kasan", "lockdep", "rcu stall", "lockup", "atomic sleep", "slab"}
CASE = re.compile(r"^(not ok|ok)\b(?: \d+)?(.*)$", re.M)


@dataclass(frozen=True)
class Program:
    directory: Path
    path: Path
    timeout: float
    long: bool = False  # in this lane, so that it has its turn by date
    full: bool = False  # in its long form, whatever the others are run in
    here: bool = False  # on this machine, without a host VM

    @property
    def name(self):
        return f"{self.directory.name}: {self.path.name}{' (FULL=1)' if self.full else ''}"

    @property
    def timed_as(self):
        """Its name for turns.expected(): the time depends on the place."""
        return f"{self.name} here" if self.here else self.name

    @property
    def env(self):
        if self.full:
            return {"FULL": "1"}
        # On this machine no part of a program takes so long that it would wait for a turn.
        return {"LAB_TURN": "1"} if self.long or self.here else {}


def emulated():
    return accel.accel() == "tcg"


def directories(lane):
    for directory in turns.by_worth(p.parent for p in SELFTESTS.glob("*/Makefile")):
        lanes = directory / "lanes"
        if lane in (lanes.read_text() if lanes.exists() else "stock debug").split():
            yield directory


def _setting(directory, name, otherwise=""):
    settings = directory / "settings"
    text = settings.read_text() if settings.exists() else ""
    found = re.search(rf"^{name}=(.*)$", text, re.M)
    return found[1].strip() if found else otherwise


def _timeout(directory):
    limit = float(_setting(directory, "timeout", TIMEOUT))
    longer = FULL_TAKES if os.environ.get("FULL") else 1
    return limit * max(longer, int(os.environ.get("LAB_LOOPS") or 0) / LOOPS_IN_LIMIT)


def programs(directory, lane="stock"):
    """What the directory's Makefile lists."""
    listing = "pvlab-list: ; @echo $(TEST_PROGS) $(TEST_GEN_PROGS)"
    command = [
        "make",
        "-s",
        "-C",
        directory,
        "--no-print-directory",
        f"--eval={listing}",
        "pvlab-list",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=_make_environment()
    )
    limit = _timeout(directory)
    long = _setting(directory, f"long_in_{lane}").split(",") if turns.rotate(lane) else []
    alone = _setting(directory, "guest_only").split(",")
    found = [directory / word for word in done.stdout.split()]
    return [Program(directory, p, limit, p.stem in long, here=p.stem in alone) for p in found]


def _make_environment():
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "OUTPUT")
    }


def chosen(lane, names):
    """The lane's programs that NAMES (DIR or DIR.TEST) ask for; all without names."""
    wanted = [n.partition(".") for n in names]
    result = []
    for directory in directories(lane):
        tests = [t for d, _, t in wanted if d == directory.name]
        if wanted and not tests:
            continue
        found = programs(directory, lane)
        for test in filter(None, tests):
            if not any(test in (p.path.name, p.path.stem) for p in found):
                has = ", ".join(p.path.stem for p in found)
                raise LabError(f"there is no test {test} in {directory.name}; it has {has}")
        whole = not wanted or "" in tests
        result += [p for p in found if whole or p.path.name in tests or p.path.stem in tests]
    return result


def placed(programs_):
    """PROGRAMS in the order in which they run, with those first that need no host VM.

    Both at once would share the CPUs, so the host VM boots only after them.
    """
    direct = any(p.here for p in programs_) and here.possible()
    programs_ = [replace(p, here=direct) if p.here else p for p in programs_]
    return sorted(programs_, key=lambda p: not p.here)


def nvme_disk(directory):
    """QEMU's arguments for an NVMe disk that tests may overwrite, fresh with each boot."""
    directory.mkdir(parents=True, exist_ok=True)
    image = directory / "nvme.img"
    image.unlink(missing_ok=True)
    image.touch()
    os.truncate(image, NVME_BYTES)
    quoted = str(image).replace(",", ",,")
    return [
        "-drive",
        f"file={quoted},if=none,id=nvme,format=raw,cache=unsafe,discard=unmap",
        "-device",
        f"nvme,drive=nvme,serial=pvio-test,max_ioqpairs={NVME_QUEUES}",
    ]


class Tally:
    """Prints KTAP and counts."""

    def __init__(self):
        self.number = self.passed = self.failed = self.skipped = 0
        self.reasons = []  # of failures, for the last lines
        self.excused = []

    def say(self, text):
        print(text, flush=True)

    def comment(self, text):
        for line in text.rstrip().splitlines():
            self.say(f"# {line}")

    def result(self, name, good, seconds, note="", cases=None, why=()):
        """One line; WHY says of what failed what the last lines are to say."""
        self.number += 1
        passed, failed, skipped = cases or (int(good), int(not good), 0)
        if not good:
            failed = max(failed, 1)
            self.reasons += [f"{name}: {one}" for one in why or [note or "see above"]]
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.say(
            f"{'ok' if good else 'not ok'} {self.number} selftests: {name} # {note + ', ' if note else ''}{seconds:.0f} s"
        )

    def later(self, names):
        """Programs that have their turn on another day."""
        for name in names:
            self.number += 1
            self.skipped += 1
            self.say(f"ok {self.number} selftests: {name} # SKIP {turns.LATER}")

    def excuse(self, program, trace):
        self.excused.append(f"{program}: {trace}")

    def summary(self):
        for one in self.excused:
            self.comment(f"excused: {one}")
        self.comment("\n".join(excuses.history()))
        for one in self.reasons:
            self.comment(f"failed: {one}")
        self.say(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")


def count_cases(text, status):
    """(passed, failed, skipped) of a program's KTAP and its exit status."""
    passed = failed = skipped = 0
    for verdict, rest in CASE.findall(text):
        if verdict == "not ok" and "# TODO" not in rest:
            failed += 1
        elif re.search(r"# *SKIP", rest, re.I):
            skipped += 1
        else:
            passed += 1
    if status == 4 and not (passed or failed):
        return 0, 0, max(skipped, 1)
    if status and not failed:
        failed = 1
    if not (passed or failed or skipped):
        passed = 1
    return passed, failed, skipped


class Run:
    """The programs of a lane, on host VMs."""

    def __init__(self, lane, names):
        self.lane = lane
        self.vm = f"check-{lane}"
        self.queue = placed(chosen(lane, names))
        self.turns = []  # the programs that come last, beginning with those of the day
        if not names:
            for place in (False, True):
                long = [p for p in self.queue if p.long and p.here == place]
                self.turns += turns.rotated(long, turns.today(), turns.PER_DAY)
            self.queue = [p for p in self.queue if not p.long]
        self.tally = Tally()
        self.host = None  # where the programs run
        self.proven = True  # that the host VM's log is watched
        self.unproven = []  # ran since the host VM's last closing checks
        self.again = set()  # run for the second time, for lost closing checks
        self.env = {}
        self.deadline = float(os.environ.get("LAB_DEADLINE") or 0)
        self.logs = paths.OUT / "lab" / self.vm / "tests"

    def late(self):
        return bool(self.deadline) and time.time() >= self.deadline

    # what the tests need

    def build(self):
        """Make each directory; leave out those that do not build."""
        kernel = paths.kernel(self.lane)
        for directory in sorted({p.directory for p in (*self.queue, *self.turns)}):
            for name in filter(None, _setting(directory, "crates").split(",")):
                crates.program(name)
            command = [
                "make",
                "-s",
                "-C",
                directory,
                f"KDIR={kernel.build}",
                f"RELEASE={kernel.release}",
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=_make_environment()
            )
            if done.returncode:
                self.tally.comment(done.stdout + done.stderr)
                self.tally.result(f"{directory.name}: build", False, 0)
                self.queue = [p for p in self.queue if p.directory != directory]
                self.turns = [p for p in self.turns if p.directory != directory]

    def ready(self, program):
        """Have a place for PROGRAM to run in.  A host VM is booted anew after one that was
        given up."""
        if self.host and self.host.guests_only != program.here:
            self.drop_host()
        if self.host:
            return
        if program.here:
            self.host = here.Here(self.lane, self.vm).start()
            return
        disk = nvme_disk(paths.OUT / "lab" / self.vm)
        host = Host(lane=self.lane, name=self.vm, qemu_args=disk)
        if host.up():
            host.stop()
        self._boot(host)
        self.host = host
        if accel.accel() != "native":
            host.run(f"modprobe nvme; until [ -b {NVME} ]; do sleep 0.1; done", timeout=60)
            self.env = {"PVIO_TEST_NVME": NVME, "PVIO_TEST_SUSPEND": "1"}
        self.load()
        host.run(["python3", "-m", "pvlab.leaks", "clear"], check=True)
        if not self.proven:
            self.prove_host_is_watched()

    def _boot(self, host):
        """Boot it, and once more if it does not come up: none of our modules is in it yet.

        A report stands where the kernel has patches of ours.
        """
        try:
            host.start()
        except (NoBoot, KernelReports) as e:
            ours = self.lane != "stock" and isinstance(e, KernelReports)
            if ours or not emulated():
                raise
            self.tally.comment(_words_of(e))
            self.excuse("host VM", traces.NO_BOOT)
            host.start()

    def ours(self):
        return [m for m in OURS if (self.host.kernel.ours / f"{m}.ko").exists()]

    def load(self):
        if self.ours():
            self.host.run(["python3", "-m", "pvlab.modules", "load", *self.ours()], check=True)

    def drop_host(self):
        if self.host:
            self.host.stop()
            self.host = None

    # one program

    def one(self, program):
        """Run it until a run has a result of its own: one that the emulator explains whole
        is none, and counts as excused.  The same trace in two runs in a row is the program's
        own, not chance."""
        before = set()
        while True:
            self.ready(program)
            end, usable = self._attempt(program)
            verdict = judge(end, self.traced())
            for trace in verdict.excused:
                self.excuse(program.name, trace)
            for guest in verdict.started_again:
                self.excuse(f"{program.name}: guest '{guest}'", traces.SILENT_GUEST)
            if verdict.good or verdict.stands:
                break
            self.tally.comment(f"{end.text}\n{end.why}")
            again = before.intersection(verdict.excused)
            why = "so it was in the run before" if again else self._no_more_runs()
            if why:
                stands = sorted(again) or verdict.excused
                verdict.stands = [f"{trace}, and {why}" for trace in stands]
                break
            before = set(verdict.excused)
            self.tally.comment(f"{program.name}: {'; '.join(verdict.excused)}: once more")
            self._after(program, usable, True)
        self._report(program, end, verdict)
        self._after(program, usable, False)

    def traced(self):
        """Whether a trace of the emulator's may explain a failure: all traces are of host VMs
        and of their guests."""
        return emulated() and not self.host.guests_only

    def excuse(self, program, trace):
        self.tally.excuse(program, trace)
        excuses.keep(self.lane, program, trace)

    def most_excused(self):
        return excuses.MOST

    def closing_words(self):
        """For the last lines."""
        return ""

    def _no_more_runs(self):
        if len(self.tally.excused) > self.most_excused():
            return f"more than {self.most_excused()} runs of this lane were excused"
        return "there is no time for another run" if self.late() else ""

    def _attempt(self, program):
        """(its End, whether the host VM can go on)."""
        begin = time.monotonic()
        text = bytearray()
        end = End()
        usable = self._guarded(end, lambda: self._stream(program, text, end))
        end.text = text.decode(errors="replace")
        usable = usable and self._guarded(end, self._end_guests)
        if self.traced() and not judge(end).good and self.host.up():
            seen, end.deaf = self.host.look_at_cpus()
            end.why = f"{end.why}\n{seen}".lstrip()
        end.seconds = time.monotonic() - begin
        log = self.logs / f"{program.directory.name}.{program.path.name}.log"
        log.write_text(f"{end.text}\n{end.why}\n")
        self._keep_console(program, end)
        return end, usable and not end.deaf

    def _keep_console(self, program, end):
        """All that a host VM said which did not survive PROGRAM: the next one's begins anew."""
        if end.reports or not self.host.up():
            with contextlib.suppress(OSError):
                name = f"{program.directory.name}.{program.path.name}.console"
                shutil.copyfile(self.host.console, self.logs / name)

    def limit(self, program):
        """How long it may take; one that began just before the deadline is not waited for."""
        if not self.deadline:
            return program.timeout
        return max(min(program.timeout, self.deadline + GRACE_SECONDS - time.time()), 1)

    def _stream(self, program, text, end):
        end.status = self.host.stream(
            [program.path],
            cwd=program.directory,
            timeout=self.limit(program),
            env={**self.env, **program.env},
            out=text.extend,
            err=text.extend,
        )

    def _guarded(self, end, function):
        """Whether the host VM can go on after FUNCTION; END takes what came between."""
        try:
            function()
        except KernelReports as e:
            end.reports += e.reports
            end.status = e.status if end.status is None else end.status
            end.why += f"{_words_of(e)}\n"
            # The error that it was raised from counts as well.  But host.py gives up a host
            # VM at once if its kernel cannot go on, and then that is not another failure.
            cause = e.__cause__
            if isinstance(cause, Timeout):
                end.cut = end.cut or "limit"
            elif isinstance(cause, Silent):
                end.cut = "silent"
            elif isinstance(cause, Gone) and not self.host.up():
                end.cut = "gone"
            return not isinstance(cause, Gone) and not any(r.kinds & SPOILS for r in e.reports)
        except Timeout as e:
            end.why += f"{_words_of(e)}\n"
            end.cut = end.cut or "limit"
        except Gone as e:
            end.why += f"{_words_of(e)}\n"
            end.cut = "silent" if isinstance(e, Silent) else "gone"
            end.aborted = traces.aborted(end.why)
            return False
        except LabError as e:
            end.why += f"{_words_of(e)}\n"
            end.cut = end.cut or "lab"
        return True

    def _end_guests(self):
        """No guest outlives its test; on this machine the kernel has seen to it."""
        if self.host.guests_only:
            return
        self.host.run(
            "for p in $(pgrep -f '^[^ ]*qemu-system-[^ ]* -name lab-'); do kill -9 $p; done; rm -rf /run/pvlab/guests",
            timeout=60,
        )

    def _report(self, program, end, verdict):
        good = not verdict.stands
        passed, failed, skipped = cases = count_cases(
            end.text, end.status if good else end.status or 1
        )
        if not good or os.environ.get("V"):
            self.tally.comment(f"{end.text}\n{end.why}")
        counts = {"passed": passed, "skipped": skipped, "failed": failed}
        words = [f"{n} {what}" for what, n in counts.items() if n or what == "passed"]
        words.append(self.host.place)
        if good and skipped:
            self.tally.comment(
                "\n".join(x for x in end.text.splitlines() if re.search(r"# *SKIP", x, re.I))
            )
        if good:
            turns.remember(self.lane, program.timed_as, end.seconds)
        again = " (again)" if program.name in self.again else ""
        self.tally.result(
            program.name + again, good, end.seconds, ", ".join(words), cases, verdict.stands
        )

    # what is true of a host VM as a whole

    def _after(self, program, usable, excused):
        """The program has run.  A host VM that cannot go on is given up, but first its
        closing checks are done; where that cannot be they are owed."""
        if program.here:
            return
        if not excused and program not in self.unproven:
            self.unproven.append(program)
        if usable:
            return
        if self.host.up() and self._answers():
            self.close()
        elif self.unproven:
            self._owe(excused)
        self.drop_host()
        self.unproven = []

    def _answers(self):
        try:
            self._end_guests()
        except KernelReports as e:
            self.tally.comment(_words_of(e))
            self.tally.result("host VM", False, 0, "its kernel reports more")
        except LabError:
            return False
        return True

    def _owe(self, excused):
        """The closing checks of these programs are lost with their host VM."""
        names = ", ".join(p.name for p in self.unproven)
        if excused and not any(p.name in self.again for p in self.unproven):
            self.tally.comment(
                f"the host VM is lost, and with it the leak and unload checks of {names}: again"
            )
            self.again |= {p.name for p in self.unproven}
            self.queue[:0] = self.unproven
            return
        why = f"undone, the host VM is lost: those of {names}"
        self.tally.result("leak and unload checks", False, 0, why)

    def close(self):
        """The closing checks: our modules go, and nothing of them stays."""
        good = self._closing("unload", self._unload)
        if self.lane == "debug":
            good &= self._closing("kmemleak", self._leaks)
        self.unproven = []
        return good

    def _unload(self):
        command = ["python3", "-m", "pvlab.modules", "unload", *reversed(self.ours())]
        self.host.run(command, timeout=CLOSING_SECONDS, check=True)

    def _leaks(self):
        try:
            found = self.host.run(
                ["python3", "-m", "pvlab.leaks"], timeout=CLOSING_SECONDS, check=True
            ).out
        except KernelReports as e:
            if any(r.kinds != {"kmemleak"} for r in e.reports):
                raise
            # It says what the first scan found; what stays is in the file.
            file = "/sys/kernel/debug/kmemleak"
            found = self.host.run(["cat", file], timeout=CLOSING_SECONDS).out
        if found.strip():
            raise LabError(f"kmemleak found what the tests leaked:\n{found}")

    def _closing(self, name, function):
        begin = time.monotonic()
        of = f"{name} after {', '.join(p.name for p in self.unproven) or 'nothing'}"
        try:
            function()
        except LabError as e:
            words = _words_of(e)
            self.tally.comment(words)
            self.tally.result(
                of, False, time.monotonic() - begin, why=[words.partition("\n")[0][:200]]
            )
            return False
        self.tally.result(of, True, time.monotonic() - begin)
        return True

    def between(self, program, following):
        """At the end of a directory its closing checks; then the next has fresh modules."""
        if not self.host or program.here:
            return
        stays = following and not following.here
        if stays and following.directory == program.directory:
            return
        if not self.close():
            self.drop_host()
        elif stays:
            try:
                self.load()
            except LabError as e:
                self.tally.comment(_words_of(e))
                self.tally.result("load", False, 0)
                self.drop_host()

    def prove_host_is_watched(self):
        """A report of the host VM's own kernel must fail what runs there."""
        self.proven = True
        begin = time.monotonic()
        trigger = paths.OUT / "build" / f"{self.host.kernel.release}-lab/lab_trigger.ko"
        self.host.run(["insmod", trigger], check=True)
        try:
            self.host.run("echo warn >/sys/kernel/debug/lab_trigger")
            good = False
        except KernelReports as e:
            good = "do_warn" in str(e)
        self.host.run("rmmod lab_trigger", check=True)
        if not good:
            self.tally.comment("a WARN of the host VM's kernel was not noticed")
        self.tally.result("lab: the host VM's log is watched", good, time.monotonic() - begin)

    # all of them

    def time_for_turns(self):
        """How many seconds the programs with turns may take in all."""
        if not self.deadline:
            return math.inf
        left = self.deadline - time.time() - CLOSING_SECONDS
        if self.lane == "debug":
            return left
        return left - turns.LAST_LANE_SECONDS - turns.counts_insns() * turns.INSNS_SECONDS

    def take_turns(self, programs_, seconds):
        """(those of PROGRAMS that run in so many SECONDS, the others)."""
        taken, later = [], []
        for program in programs_:
            guess = program.timeout / (HERE_TAKES if program.here else HOST_VM_TAKES)
            takes = turns.expected(self.lane, program.timed_as, guess)
            fits = takes <= seconds and (self.deadline or len(taken) < turns.PER_DAY)
            seconds -= takes if fits else 0
            (taken if fits else later).append(program)
        return taken, later

    def each(self):
        self.run_queue()
        if self.turns and not self.queue:
            self.run_turns()

    def run_turns(self):
        """Those of the host VM first, because it is up; they leave half of the time."""
        alone = [p for p in self.turns if p.here]
        others = [p for p in self.turns if not p.here]
        taken, left = self.take_turns(others, self.time_for_turns() / (2 if alone else 1))
        # Those of a directory behind each other, for its closing checks.
        self.queue = sorted(taken, key=lambda p: p.directory)
        self.tally.later(p.name for p in left)
        self.run_queue()
        self.run_turns_here(alone)
        if self.late():
            # They were not promised for today.
            self.tally.later(p.name for p in self.queue)
            self.queue = []

    def run_turns_here(self, programs_):
        """One by one, because only the clock knows what the one before has left."""
        programs_, later = programs_.copy(), []
        if not self.deadline:
            programs_, later = self.take_turns(programs_, math.inf)
        while programs_ and not self.queue:
            self.queue, left = self.take_turns(programs_[:1], self.time_for_turns())
            programs_, later = programs_[1:], later + left
            self.run_queue()
        self.tally.later(p.name for p in (*programs_, *later))

    def run_queue(self):
        lost = 0
        while self.queue and not self.late():
            program = self.queue.pop(0)
            try:
                self.one(program)
                lost = 0
            except LabError as e:
                # There is no host VM to run it on.
                self.queue.insert(0, program)
                lost += 1
                if lost > 1:
                    raise
                self.no_host(e)
                continue
            self.between(program, self.queue[0] if self.queue and not self.late() else None)

    def no_host(self, error):
        self.tally.comment(_words_of(error))
        self.tally.result("host VM", False, 0, why=[str(error).partition("\n")[0]])
        self.drop_host()

    def all(self):
        self.logs.mkdir(parents=True, exist_ok=True)
        self.tally.say("KTAP version 1")
        try:
            if not self.queue:
                self.tally.result("programs", False, 0, "the lane has none")
            self.build()
            self.proven = not any(p.directory.name == "lab" for p in self.queue)
            self.each()
        except LabError as e:
            self.no_host(e)
        finally:
            self.drop_host()
        why = "out of time" if self.late() else "there is no host VM"
        for program in self.queue:
            self.tally.result(program.name, False, 0, f"did not run: {why}")
        if len(self.tally.excused) > self.most_excused():
            why = (
                f"{len(self.tally.excused)} runs, and {self.most_excused()} are the most in a lane"
            )
            self.tally.result("excused", False, 0, why)
        closing = self.closing_words()
        self.tally.say(f"1..{self.tally.number}")
        self.tally.comment(closing)
        self.tally.summary()
        return 1 if self.tally.failed else 0


def _words_of(error):
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


class FullOfTheDay(Run):
    """One program of the lane in its long form."""

    def __init__(self, lane):
        super().__init__(lane, [])
        able = [p for p in (*self.queue, *self.turns) if _has_long_form(p)]
        self.queue, self.turns = [], []
        if not able:
            return
        program = turns.rotated(sorted(able, key=lambda p: p.name), turns.today(), 1)[0]
        full = replace(program, full=True, timeout=program.timeout * FULL_TAKES)
        need = turns.expected(lane, full.timed_as, program.timeout)
        if self.deadline and self.deadline - time.time() < need + CLOSING_SECONDS:
            self.later = [full.name]
        else:
            self.queue = [full]

    def all(self):
        if self.queue:
            return super().all()
        self.tally.later(self.later)
        self.tally.summary()
        return 0

    later = ()


def _has_long_form(program):
    source = program.path if program.path.suffix else program.path.with_suffix(".c")
    return source.exists() and re.search(r"\bFULL\b|ktap_full", source.read_text()) is not None


def main():
    parser = argparse.ArgumentParser(
        prog="pvlab.selftests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lane", choices=("stock", "debug"), default="stock")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("names", nargs="*", metavar="DIR[.TEST]")
    args = parser.parse_args()
    # So that the host VM goes with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return (FullOfTheDay(args.lane) if args.full else Run(args.lane, args.names)).all()
    except LabError as e:
        paths.say(str(e))
        return 1


if __name__ == "__main__":
    sys.exit(main())
