# SPDX-License-Identifier: GPL-2.0
"""The kselftests of a lane, and what they need built first."""

import contextlib
import os
import re
import subprocess

from .runner import OUT_OF_TIME, TOP, execute, say, start, stop

# The debug kernel's build says so when it stopped for the time.
GAVE_UP = 75
BAD = re.compile(r"^not ok \d+ (?:selftests: )?(.*?)(?: #.*)?$", re.M)
FLAKY = re.compile(r"^ok \d+ selftests: (.*?) # flaky", re.M)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


class DebugKernel:
    """The debug lane's kernel, built beside checks that leave a CPU idle."""

    def __init__(self, runner):
        self.runner = runner
        self.proc = None
        self.path = ""

    def begin(self):
        """Start the build if it is needed; others' work goes first."""
        ready = subprocess.run(
            ["tools/lab/kernel/build", "--path"], cwd=TOP, capture_output=True, check=False
        )
        if ready.returncode == 0:
            return
        say("...      the debug kernel is being built beside the first checks")
        limit = ["--limit", f"{self.runner.seconds_left() + 1:.0f}"] if self.runner.deadline else []
        self.proc = start("debug: kernel", ["nice", "tools/lab/kernel/build", *limit])

    def wait(self):
        """Its path, or None; reports itself as a test."""
        if self.proc is None:
            done = execute("debug: kernel", ["tools/lab/kernel/build"], 7200)
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
            self.runner.skip("debug: kernel", f"{OUT_OF_TIME}, it was not built by then")
            return None
        if status:
            self.runner.fail("debug: kernel", tail, seconds)
            return None
        self.runner.ok("debug: kernel", seconds)
        return text.strip().splitlines()[-1]

    def end(self):
        if self.proc and self.proc.poll() is None:
            stop(self.proc)


def selftests(runner, lane, tests, env):
    """pvlab runs them and counts; its lines are passed on as they come."""
    name = f"{lane}: selftests"
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
    runner.add(name, passed, failed, skipped, BAD.findall(done.text), FLAKY.findall(done.text))


def run_stock(runner, tests):
    done = runner.step("stock: build", ["make", "modules"], 600)
    if done is None or done.status:
        return
    selftests(runner, "stock", tests, {})


def run_debug(runner, kernel, tests):
    if runner.out_of_time():
        runner.skip("debug: selftests", OUT_OF_TIME)
        return
    path = kernel.wait()
    if not path:
        runner.skip("debug: selftests", "there is no debug kernel")
        return
    done = runner.step("debug: build", ["make", "modules", f"KDIR={path}/build"], 600)
    if done is None or done.status:
        return
    selftests(runner, "debug", tests, {"LAB_DEBUG_KERNEL": path})
