# SPDX-License-Identifier: GPL-2.0
"""Runs programs many times with no second chance, for what fails seldom.

    python3 -m pvlab.soak --lane stock|debug [--times N] [--minutes M] DIR[.TEST]...

Each failure is printed as it comes, and its log is kept in out/lab/soak-LANE/tests/.
A run that the emulator spoiled (verdict.py) is neither a pass nor a failure; it is
counted apart.  At the end there is for each program how many of its runs failed, and
the rate that this bounds with a confidence of 95%: none of N means less than 3/N.
"""

import argparse
import itertools
import math
import shutil
import signal
import sys
import time
from dataclasses import dataclass

from . import paths, traces
from .paths import LabError
from .selftests import Run
from .verdict import judge

CONFIDENCE = 0.95


@dataclass
class Count:
    """The runs of one program."""

    passed: int = 0
    failed: int = 0
    spoiled: int = 0

    @property
    def runs(self):
        return self.passed + self.failed


def at_most(failed, runs):
    """The highest rate of failure of which FAILED or fewer in RUNS are no surprise."""
    if failed >= runs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        if _chance(failed, runs, rate) > 1 - CONFIDENCE:
            low = rate
        else:
            high = rate
    return high


def _chance(failed, runs, rate):
    """Of FAILED or fewer failures in RUNS."""
    if rate in (0.0, 1.0):
        return 1.0 - rate
    return sum(
        math.exp(
            math.lgamma(runs + 1)
            - math.lgamma(k + 1)
            - math.lgamma(runs - k + 1)
            + k * math.log(rate)
            + (runs - k) * math.log1p(-rate)
        )
        for k in range(failed + 1)
    )


def in_words(count):
    """What is known after so many runs."""
    words = f"{count.failed} of {count.runs} runs failed"
    if count.runs:
        rate = at_most(count.failed, count.runs)
        words += f"; at most {rate:.2%} do, or 1 in {1 / rate:.0f} (95%)"
    if count.spoiled:
        words += f"; {count.spoiled} more were spoiled by the emulator"
    return words


class Soak(Run):
    def __init__(self, lane, names, times=0, minutes=0.0):
        super().__init__(lane, names)
        self.vm = f"soak-{lane}"
        self.logs = paths.OUT / "lab" / self.vm / "tests"
        self.times = times
        self.end = time.time() + minutes * 60 if minutes else math.inf
        self.counts = {}

    def late(self):
        return time.time() >= self.end

    def each(self):
        programs, self.queue = self.queue, []
        self.counts = {p.name: Count() for p in programs}
        rounds = range(1, self.times + 1) if self.times else itertools.count(1)
        runs = ((n, i) for n in rounds for i in range(len(programs)))
        program = None
        for number, i in runs:
            if self.late():
                break
            if program:
                self.between(program, programs[i])
            program = programs[i]
            self.one(program, number)
        if program:
            self.between(program, None)

    def one(self, program, number=1):
        self.ready(program)
        end, usable = self._attempt(program)
        verdict = judge(end, self.traced())
        count = self.counts[program.name]
        spoiled = verdict.excused and not verdict.stands
        for guest in verdict.started_again:
            verdict.excused.append(f"{traces.SILENT_GUEST} ({guest})")
        for trace in verdict.excused:
            self.excuse(program.name, trace)
        name = f"{program.name}: run {number}"
        if verdict.stands:
            count.failed += 1
            log = self.logs / f"{program.directory.name}.{program.path.name}.log"
            kept = log.with_suffix(f".{number}.log")
            shutil.copyfile(log, kept)
            self.tally.comment(f"{end.text}\n{end.why}")
            self.tally.result(name, False, end.seconds, f"see {kept}", why=verdict.stands)
        elif spoiled:
            count.spoiled += 1
            self.tally.comment(f"{name}: spoiled by the emulator: {'; '.join(verdict.excused)}")
        else:
            count.passed += 1
            self.tally.result(name, True, end.seconds)
        self._after(program, usable, spoiled)

    def most_excused(self):
        return math.inf

    def _owe(self, excused):
        del excused
        self.tally.comment(
            f"the host VM is lost, and with it the leak and unload checks of {len(self.unproven)} runs"
        )

    def closing_words(self):
        """For the end: each program's count, which is what this was for."""
        lines = [f"{name}: {in_words(count)}" for name, count in self.counts.items()]
        total = Count(
            *(sum(getattr(c, x) for c in self.counts.values()) for x in ("passed", "failed"))
        )
        if not total.runs:
            self.tally.result("soak", False, 0, "no run had a result")
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        prog="pvlab.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lane", choices=("stock", "debug"), default="stock")
    parser.add_argument("--times", type=int, default=0, metavar="N")
    parser.add_argument("--minutes", type=float, default=0, metavar="M")
    parser.add_argument("names", nargs="*", metavar="DIR[.TEST]")
    args = parser.parse_args()
    if args.times < 1 and args.minutes <= 0:
        parser.error("say how often: --times or --minutes")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return Soak(args.lane, args.names, args.times, args.minutes).all()
    except LabError as e:
        paths.say(str(e))
        return 1


if __name__ == "__main__":
    sys.exit(main())
