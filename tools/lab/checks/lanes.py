# SPDX-License-Identifier: GPL-2.0
"""The kselftests of a lane, and what they need built first."""

import contextlib
import os
import re
import subprocess

from pvlab import accel, emulator, turns

from .runner import OUT_OF_TIME, TOP, environment, execute, say, start, stop

# The debug kernel's build says so when it stopped for the time.
GAVE_UP = 75
# The selftests print failures, with reasons, and excuses in their last lines.
FAILED = re.compile(r"^# failed: (.*)$", re.M)
LATER = re.compile(rf"^ok \d+ selftests: (.*) # SKIP {turns.LATER}$", re.M)
EXCUSED = re.compile(r"^# excused: (.*)$", re.M)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


class Product:
    """What a script builds for a lane, beside checks that leave a CPU idle."""

    NAME = WHAT = SCRIPT = ""

    def __init__(self, runner):
        self.runner = runner
        self.proc = None
        self.waited = False
        self.path = None

    def begin(self):
        """Start the build if it is needed; others' work goes first."""
        ready = subprocess.run([self.SCRIPT, "--path"], cwd=TOP, capture_output=True, check=False)
        if ready.returncode == 0:
            return
        say(f"...      {self.WHAT} is being built beside the first checks")
        limit = ["--limit", f"{self.runner.seconds_left() + 1:.0f}"] if self.runner.deadline else []
        self.proc = start(self.NAME, ["nice", self.SCRIPT, *limit])

    def wait(self):
        """Its path, or None; reports itself as a test, the first time."""
        if not self.waited:
            self.path = self._wait()
            self.waited = True
        return self.path

    def _wait(self):
        if self.proc is None:
            done = execute(self.NAME, [self.SCRIPT], 7200)
            return self.verdict(done.status, done.text, done.seconds, done.tail)
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PGRP, self.proc.pid, 0)
        shown = ""
        while self.proc.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.proc.wait(30)
            last = (self.proc.log.read_text(errors="replace").splitlines() or [""])[-1]
            if last != shown and self.proc.poll() is None:
                say(f"...      {last}")
            shown = last
        text = self.proc.log.read_text(errors="replace")
        return self.verdict(self.proc.returncode, text, 0, "\n".join(text.splitlines()[-60:]))

    def verdict(self, status, text, seconds, tail):
        if status == GAVE_UP:
            self.runner.fail(self.NAME, f"{OUT_OF_TIME}, it was not built by then")
            return None
        if status:
            self.runner.fail(self.NAME, tail, seconds)
            return None
        self.runner.ok(self.NAME, seconds)
        return text.strip().splitlines()[-1]

    def end(self):
        if self.proc and self.proc.poll() is None:
            stop(self.proc)


class DebugKernel(Product):
    NAME, WHAT, SCRIPT = "debug: kernel", "the debug kernel", "tools/lab/kernel/build"


class Emulator(Product):
    NAME, WHAT, SCRIPT = "emulator: build", "the host VM's emulator", "tools/lab/qemu/build"

    @staticmethod
    def needed():
        kind = accel.accel()
        return kind != "native" and emulator.choice(kind) == "built"


def selftests(runner, lane, tests, env, name=""):
    """pvlab runs them and counts; its lines are passed on as they come."""
    name = name or f"{lane}: selftests"
    command = ["python3", "-u", "-m", "pvlab.selftests", "--lane", lane, *tests]
    # They stop by themselves at the deadline; the limit is for when they do not.
    limit = runner.seconds_left() + 900 if runner.deadline else 7200
    done = execute(name, command, limit, env=env, live=True)
    found = COUNTS.findall(done.text)
    if not found:
        runner.fail(name, f"it ended with {done.status} and no count, see {done.log}")
        return
    passed, failed, skipped = map(int, found[-1])
    if done.status and not failed:
        runner.fail(name, f"every test passed, but it ended with {done.status}, see {done.log}")
    if not passed and not failed and "--full" not in tests:
        runner.fail(name, f"nothing ran, see {done.log}")
    runner.lanes[lane] += passed + failed
    later = LATER.findall(done.text)
    runner.skipped += [f"{name}: {one}: {turns.LATER}" for one in later]
    skipped -= len(later)
    runner.add(name, passed, failed, skipped, FAILED.findall(done.text), EXCUSED.findall(done.text))


def build(runner, lane, kernel=None):
    """What programs of LANE need; their environment, or None if something failed."""
    path = ""
    if lane == "debug":
        path = (kernel or DebugKernel(runner)).wait()
        if not path:
            return None
    kdir = [f"KDIR={path}/build"] if path else []
    done = runner.step(f"{lane}: build", ["make", "modules", *kdir], 600)
    if done is None or done.status:
        return None
    return {"LAB_DEBUG_KERNEL": path} if path else {}


def run(runner, lane, tests, kernel=None):
    if runner.out_of_time():
        runner.fail(f"{lane}: selftests", OUT_OF_TIME)
        return
    env = build(runner, lane, kernel)
    if env is None:
        runner.fail(f"{lane}: selftests", "they did not run")
        return
    selftests(runner, lane, tests, env)
    if lane == "stock" and not tests:
        instructions(runner)


def instructions(runner):
    """The instructions of an I/O must not grow by more than 5% over the table in the tree.

    They are counted in a host VM of its own, and only if the last lane can wait for that.
    """
    name = "stock: instructions"
    if runner.deadline and runner.seconds_left() < turns.LAST_LANE_SECONDS + turns.INSNS_SECONDS:
        runner.skip(name, "the debug lane needs the time")
        return
    runner.step(name, ["tools/lab/bench/insns", "--check"], turns.INSNS_SECONDS)


def full_of_the_day(runner):
    """One long form a day, if there is time after all else."""
    if not runner.out_of_time():
        selftests(runner, "stock", ["--full"], {}, "stock: long form of the day")


def soak(lane, tests, times, minutes, env):
    """Programs many times; what pvlab.soak prints is for the user as it is."""
    command = ["python3", "-u", "-m", "pvlab.soak", "--lane", lane]
    command += ["--times", str(times)] if times else []
    command += ["--minutes", str(minutes)] if minutes else []
    return subprocess.run([*command, *tests], cwd=TOP, env=environment(env), check=False).returncode
