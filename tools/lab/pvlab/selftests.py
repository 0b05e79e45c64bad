# SPDX-License-Identifier: GPL-2.0
"""Runs tools/testing/selftests on a host VM of a lane.

    python3 -m pvlab.selftests --lane stock|debug [DIR[.TEST]]...

Run it outside: it boots the host VM, loads our modules that are built, runs
each program under a limit, and looks at the kernel's log after each.  Prints
KTAP; the output of what passed is left out (V=1 shows it), and all is in
out/lab/check-LANE/tests/.  Its last line is `N passed, N failed, N skipped`,
counting the cases that the programs report.

A directory says by a file `lanes` in which it runs, and by timeout= in
`settings` how long each of its programs may take.  LAB_DEADLINE (seconds since
1970): what would start later is skipped.  FULL=1 is handed to the tests, which
may take three times as long then, and so is PVIO_TEST_NVME, an NVMe disk of the
host VM that they may overwrite.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import accel, again, autopsy, paths
from .agent import Silent, Timeout
from .detect import KernelReports
from .host import Host
from .paths import LabError

SELFTESTS = paths.TOP / "tools/testing/selftests"
OURS = ("vhost_poll", "vhost_blk", "vhost_fs")
TIMEOUT = 300
FULL_TAKES = 3
# The host VM's own, for PVIO_TEST_NVME.
NVME = "/dev/nvme0n1"
NVME_BYTES = 96 << 20
NVME_QUEUES = 4
# After one of these the kernel's checks are off, or worse.
SPOILS = {"panic", "oops", "kasan", "lockdep", "rcu stall", "lockup", "atomic sleep", "slab"}
CASE = re.compile(r"^(not ok|ok)\b(?: \d+)?(.*)$", re.M)


@dataclass
class Program:
    directory: Path
    path: Path
    timeout: float

    @property
    def name(self):
        return f"{self.directory.name}: {self.path.name}"


def directories(lane):
    for makefile in sorted(SELFTESTS.glob("*/Makefile")):
        lanes = makefile.with_name("lanes")
        if lane in (lanes.read_text() if lanes.exists() else "stock debug").split():
            yield makefile.parent


def _timeout(directory):
    settings = directory / "settings"
    found = re.search(r"^timeout=(\d+)", settings.read_text(), re.M) if settings.exists() else None
    limit = float(found[1]) if found else TIMEOUT
    return limit * FULL_TAKES if os.environ.get("FULL") else limit


def programs(directory):
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
    return [Program(directory, directory / word, limit) for word in done.stdout.split()]


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
        found = programs(directory)
        for test in filter(None, tests):
            if not any(test in (p.path.name, p.path.stem) for p in found):
                has = ", ".join(p.path.stem for p in found)
                raise LabError(f"there is no test {test} in {directory.name}; it has {has}")
        whole = not wanted or "" in tests
        result += [p for p in found if whole or p.path.name in tests or p.path.stem in tests]
    return result


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
        self.flaky = []

    def say(self, text):
        print(text, flush=True)

    def comment(self, text):
        for line in text.rstrip().splitlines():
            self.say(f"# {line}")

    def result(self, name, good, seconds, note="", cases=None):
        self.number += 1
        passed, failed, skipped = cases or (int(good), int(not good), 0)
        if not good:
            failed = max(failed, 1)
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.say(
            f"{'ok' if good else 'not ok'} {self.number} selftests: {name} # {note + ', ' if note else ''}{seconds:.0f} s"
        )

    def skip(self, name, why):
        self.number += 1
        self.skipped += 1
        self.say(f"ok {self.number} selftests: {name} # SKIP {why}")

    def summary(self):
        if self.flaky:
            self.comment(f"flaky, passed by a later run only: {', '.join(self.flaky)}")
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


@dataclass
class End:
    """How a run of a program ended."""

    status: int = 1
    text: str = ""  # what it printed
    why: str = ""  # what came between, such as a kernel's report
    lost: str = ""  # what the emulator did to the host VM, if that is known
    spoiled: bool = False  # nothing else can run on that host VM
    seconds: float = 0.0

    def cases(self):
        return count_cases(self.text, 1 if self.why else self.status)

    @property
    def good(self):
        return not self.why and not self.cases()[1] and self.status in (0, 4)


class Run:
    def __init__(self, lane, names):
        self.lane = lane
        self.programs = chosen(lane, names)
        self.tally = Tally()
        self.host = None
        self.env = {}
        self.deadline = float(os.environ.get("LAB_DEADLINE") or 0)
        self.logs = paths.OUT / "lab" / f"check-{lane}" / "tests"

    def late(self):
        return bool(self.deadline) and time.time() >= self.deadline

    # what the tests need

    def build(self):
        """Make each directory; leave out those that do not build."""
        kernel = paths.kernel(self.lane)
        for directory in sorted({p.directory for p in self.programs}):
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
                self.programs = [p for p in self.programs if p.directory != directory]

    def boot(self):
        name = f"check-{self.lane}"
        self.host = Host(lane=self.lane, name=name, qemu_args=nvme_disk(paths.OUT / "lab" / name))
        if self.host.up():
            self.host.stop()
        self.host.start()
        if accel.accel() != "native":
            self.host.run(f"modprobe nvme; until [ -b {NVME} ]; do sleep 0.1; done", timeout=60)
            self.env = {"PVIO_TEST_NVME": NVME}
        present = [m for m in OURS if (self.host.kernel.ours / f"{m}.ko").exists()]
        if present:
            self.host.run(["python3", "-m", "pvlab.modules", "load", *present], check=True)
        self.host.run(["python3", "-m", "pvlab.leaks", "clear"], check=True)

    def ready(self):
        """Whether a host VM is there to run on; it is booted anew after one that broke."""
        if self.host is None:
            self.boot()

    def drop_host(self):
        if self.host:
            self.host.stop()
            self.host = None

    # one program

    def one(self, program):
        """Run it, and once more where the emulator may be why it failed (see again.py); a
        third time if the emulator is known to have lost the second."""
        end, runs = self._attempt(program), 1
        while not end.good and runs < (3 if end.lost else 2):
            why = self._another(end)
            if not why:
                break
            self.tally.comment(f"{end.text}\n{end.why}")
            self.tally.comment(f"{program.name}: {why}: once more, in a new host VM")
            self.drop_host()
            end, runs = self._attempt(program), runs + 1
        flaky = end.good and runs > 1
        if flaky:
            self.tally.flaky.append(program.name)
        self._verdict(program, end, "flaky" if flaky else "")

    def _another(self, end):
        """Why a program that failed is to have another run, if it is."""
        if accel.accel() != "tcg" or self.late():
            return ""
        if end.lost:
            return f"the emulator {end.lost} (see autopsy.py)"
        said = f"{end.text}\n{end.why}"
        stands = again.stands(said)
        if stands:
            self.tally.comment(f"fails after one run: {stands}")
            return ""
        return "it failed under emulation"

    def _attempt(self, program):
        log = self.logs / f"{program.directory.name}.{program.path.name}.log"
        begin = time.monotonic()
        text = bytearray()
        end = End()
        try:
            self.ready()
            end.status = self.host.stream(
                [program.path],
                cwd=program.directory,
                timeout=program.timeout,
                env=self.env,
                out=text.extend,
                err=text.extend,
            )
        except LabError as e:
            self._explain(e, end)
        end.text = text.decode(errors="replace")
        if not end.lost and autopsy.half_in_host(end.text):
            end.lost = "left a CPU of a guest half in the host VM"
        end.seconds = time.monotonic() - begin
        log.write_text(f"{end.text}\n{end.why}\n")
        if end.spoiled:
            self.drop_host()
        else:
            self.clean_up()
        return end

    def _explain(self, e, end):
        """What came between."""
        end.why = "\n".join([str(e), *getattr(e, "__notes__", ())])
        if isinstance(e, KernelReports):
            end.spoiled = any(r.kinds & SPOILS for r in e.reports)
            if autopsy.half_in_guest(e.reports):
                end.lost = "left a CPU of the host VM half in its guest"
            elif autopsy.stale_code(e.reports):
                end.lost = "had a CPU of the host VM run code that was patched"
            elif autopsy.interrupted_masked(e.reports):
                end.lost = "interrupted a CPU of the host VM that had interrupts off"
            elif any("lockup" in r.kinds for r in e.reports):
                self._look_for_deaf(end)
        elif isinstance(e, Silent):
            self._look_for_deaf(end)
            end.spoiled = True
        elif isinstance(e, Timeout):
            end.spoiled = self._look_for_deaf(end)
        else:
            end.spoiled = True
            if autopsy.aborted(end.why):
                end.lost = "aborted"

    def _look_for_deaf(self, end):
        """Whether there are CPUs that take no interrupts."""
        seen, deaf = self.host.autopsy()
        end.why = f"{seen}\n{end.why}"
        if deaf:
            end.lost = f"gives CPU {deaf} of the host VM no interrupts"
        return bool(deaf)

    def _verdict(self, program, end, note):
        passed, failed, skipped = cases = end.cases()
        if not end.good or os.environ.get("V"):
            self.tally.comment(end.text)
        if end.why:
            self.tally.comment(end.why)
        counts = {"passed": passed, "skipped": skipped, "failed": failed}
        words = [f"{n} {what}" for what, n in counts.items() if n or what == "passed"]
        if end.good and skipped:
            self.tally.comment(
                "\n".join(x for x in end.text.splitlines() if re.search(r"# *SKIP", x, re.I))
            )
        words = [note, *words] if note else words
        self.tally.result(program.name, end.good, end.seconds, ", ".join(words), cases)

    def prove_host_is_watched(self):
        """A report of the host VM's own kernel must fail what runs there."""
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

    def clean_up(self):
        """No guest outlives its test."""
        try:
            self.host.run(
                "for p in $(pgrep -f '^qemu-system-x86_64 -name lab-'); do kill -9 $p; done; rm -rf /run/pvlab/guests",
                timeout=60,
            )
        except (LabError, Timeout):
            self.drop_host()

    # what is true of the run as a whole

    def finish(self):
        """Our modules go, and nothing of them stays."""
        if self.host is None:
            return
        begin = time.monotonic()
        loaded = [m for m in reversed(OURS) if (self.host.kernel.ours / f"{m}.ko").exists()]
        self._closing(
            "unload",
            lambda: self.host.run(
                ["python3", "-m", "pvlab.modules", "unload", *loaded], check=True
            ),
            begin,
        )
        if self.host and self.lane == "debug":
            self._closing("kmemleak", self._leaks, time.monotonic())

    def _leaks(self):
        try:
            found = self.host.run(["python3", "-m", "pvlab.leaks"], timeout=300, check=True).out
        except KernelReports:
            found = self.host.run(["cat", "/sys/kernel/debug/kmemleak"], timeout=300).out
        if found.strip():
            raise LabError(f"kmemleak found what the tests leaked:\n{found}")

    def _closing(self, name, function, begin):
        try:
            function()
        except LabError as e:
            self.tally.comment(str(e))
            self.tally.result(name, False, time.monotonic() - begin)
            self.drop_host()
            return
        self.tally.result(name, True, time.monotonic() - begin)

    def all(self):
        self.logs.mkdir(parents=True, exist_ok=True)
        self.tally.say("KTAP version 1")
        try:
            self.build()
            if any(p.directory.name == "lab" for p in self.programs) and not self.late():
                self.ready()
                self.prove_host_is_watched()
            for program in self.programs:
                if self.late():
                    self.tally.skip(program.name, "out of time")
                else:
                    self.one(program)
            if self.programs and not self.late():
                self.finish()
        except LabError as e:
            self.tally.comment("\n".join([str(e), *getattr(e, "__notes__", ())]))
            self.tally.result("host VM", False, 0)
        finally:
            self.drop_host()
        self.tally.say(f"1..{self.tally.number}")
        self.tally.summary()
        return 1 if self.tally.failed else 0


def main():
    parser = argparse.ArgumentParser(
        prog="pvlab.selftests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lane", choices=("stock", "debug"), default="stock")
    parser.add_argument("names", nargs="*", metavar="DIR[.TEST]")
    args = parser.parse_args()
    # So that the host VM goes with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return Run(args.lane, args.names).all()
    except LabError as e:
        paths.say(str(e))
        return 1


if __name__ == "__main__":
    sys.exit(main())
