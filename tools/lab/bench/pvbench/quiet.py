# SPDX-License-Identifier: GPL-2.0
"""Whether the two CPUs of a measurement are ours alone.

Two processes, one on each CPU, pass a byte to and fro.  In a slice of 2 ms they do
so hundreds of times; where something else took a CPU, the slice has few of them.
A virtual machine sees nothing else of it: its host need not account stolen time.
"""

import contextlib
import mmap
import os
import signal
import statistics
import time
from pathlib import Path

SLICE_NS = 2_000_000
# Of the slices must be undisturbed, and of the time may be stolen.
ENOUGH, STOLEN = 0.9, 0.01


def undisturbed(counts):
    """The share of slices with at least half of the passes that a good one has."""
    good = statistics.quantiles(counts, n=10)[-1] if len(counts) > 1 else 0
    return sum(c >= good / 2 for c in counts) / len(counts) if good else 0.0


def stolen(before, after):
    """The share of the CPUs' time between two first lines of /proc/stat that was stolen."""
    delta = [b - a for a, b in zip(before, after, strict=True)]
    return delta[7] / (sum(delta[:8]) or 1)


def _cpu_times():
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def _echo(page):
    seen = 0
    while True:
        if page[0] != seen:
            seen = page[0]
            page[1] = seen


def _slices(page, secs):
    counts, value = [], 0
    end = time.monotonic_ns() + int(secs * 1e9)
    edge = now = time.monotonic_ns()
    while now < end:
        edge += SLICE_NS
        passes = 0
        while now < edge:
            now = time.monotonic_ns()
            if page[1] == value:
                value ^= 1
                page[0] = value
                passes += 1
        counts.append(passes)
        # A CPU that was taken for long has missed whole slices.
        counts += [0] * ((now - edge) // SLICE_NS)
        edge += (now - edge) // SLICE_NS * SLICE_NS
    return counts


def pingpong(cpus=(0, 1), secs=0.5):
    """The share of undisturbed slices just now."""
    page = mmap.mmap(-1, 4096)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.sched_setaffinity(0, {cpus[1]})
            _echo(page)
        os._exit(1)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpus[0]})
        return undisturbed(_slices(page, secs))
    finally:
        os.sched_setaffinity(0, before)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Watch:
    """Around a measurement: `quiet` says whether to believe its clock."""

    def __enter__(self):
        self.shares = [pingpong()]
        self.times = _cpu_times()
        return self

    def __exit__(self, kind, *rest):
        self.stolen = stolen(self.times, _cpu_times())
        if not kind:
            self.shares.append(pingpong())

    @property
    def quiet(self):
        return min(self.shares) >= ENOUGH and self.stolen <= STOLEN

    def row(self):
        return {
            "quiet": self.quiet,
            "undisturbed": round(min(self.shares), 3),
            "stolen": round(self.stolen, 4),
        }
