# SPDX-License-Identifier: GPL-2.0
"""Runs the steps of a check under limits and keeps count."""

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pvlab import excuses

TOP = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pvio-lab"
LOGS = TOP / "out/check"
SKIP = 4
# How often a step that takes long is heard of.
BEAT = 60
OUT_OF_TIME = "out of time"


def say(text):
    """A line for the user; who closed the pipe (`| head`) only stops reading."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass
class Done:
    """How a command ended."""

    status: int
    text: str
    seconds: float
    log: Path

    @property
    def tail(self):
        return "\n".join(self.text.rstrip().splitlines()[-60:])


@dataclass
class Runner:
    """The count, and what of it has to be told at the end."""

    deadline: float = 0.0
    only: str = ""
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    excused: list = field(default_factory=list)
    lanes: collections.Counter = field(default_factory=collections.Counter)  # what ran of each

    def out_of_time(self):
        return bool(self.deadline) and time.time() >= self.deadline

    def seconds_left(self):
        return max(self.deadline - time.time(), 0) if self.deadline else 0

    def ok(self, name, seconds, note=""):
        self.passed += 1
        say(f"ok       {name} ({seconds:.0f} s){note and ' ' + note}")

    def fail(self, name, text, seconds=0.0):
        self.failed.append(name)
        say(f"FAILED   {name} ({seconds:.0f} s)")
        for line in text.splitlines():
            say(f"    {line}")

    def skip(self, name, why):
        self.skipped.append(f"{name}: {why}")
        say(f"skipped  {name}: {why}")

    def step(self, name, command, limit=300, verdict=None, **kwargs):
        """One command, one test.  verdict(Done) may return a complaint or None."""
        if self.out_of_time():
            self.fail(name, OUT_OF_TIME)
            return None
        done = execute(name, command, limit, **kwargs)
        complaint = verdict(done) if verdict else None
        if complaint:
            self.fail(name, complaint, done.seconds)
        elif done.status == SKIP:
            self.skip(name, (done.text.strip().splitlines() or ["no reason given"])[-1])
        elif done.status:
            self.fail(name, done.tail or f"exit status {done.status}", done.seconds)
        else:
            self.ok(name, done.seconds)
        return done

    def add(self, name, passed, failed, skipped, bad=(), excused=()):
        """The counts of something that counts by itself; BAD says what failed of it and
        why, EXCUSED which runs of it the emulator spoiled."""
        names = [f"{name}: {one}" for one in bad] or [f"{name}: see above"]
        self.passed += passed
        self.failed += [*names, *[names[-1]] * failed][: max(failed, len(bad))]
        self.skipped += [f"{name}: see above"] * skipped
        self.excused += [f"{name}: {one}" for one in excused]

    def summary(self):
        lists = {
            "skipped": self.skipped,
            "excused (a trace of the emulator's explains it; it ran again)": self.excused,
            "failed": self.failed,
        }
        for title, names in lists.items():
            if names:
                say(f"\n{title}:")
            for name in dict.fromkeys(names):
                say(f"    {name}")
        say("\n".join(["", *excuses.history()]))
        say(f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped")
        return 1 if self.failed or not self.passed else 0


def start(name, command, cwd=TOP, env=None):
    """Start COMMAND in a session of its own, output to a log."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (re.sub(r"[^\w.-]+", "-", name) + ".log")
    with open(log, "wb") as out:
        proc = subprocess.Popen(
            [str(c) for c in command],
            cwd=cwd,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    proc.log = log
    return proc


def environment(more=None):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    env["PYTHONPATH"] = f"{TOP / 'tools/lab'}:{TOP / 'tools'}"
    env.update(more or {})
    return env


def stop(proc):
    """End a process and everything it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(proc.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            proc.wait(10)
            return


def execute(name, command, limit, cwd=TOP, env=None, live=False):
    """Run COMMAND under LIMIT seconds; LIVE passes its lines on as they come."""
    started = time.monotonic()
    proc = start(name, command, cwd, env)
    follow = Follower(proc.log) if live else None
    told = 0
    try:
        while proc.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                proc.wait(1)
            taken = time.monotonic() - started
            if follow:
                follow.pass_on()
            elif taken - told >= BEAT:
                told = taken
                say(f"...      {name}: {taken:.0f} s")
            if taken > limit:
                stop(proc)
                with open(proc.log, "a") as out:
                    out.write(f"\n{name}: ended after {taken:.0f} s, the limit is {limit} s\n")
    finally:
        if proc.poll() is None:
            stop(proc)
    if follow:
        follow.pass_on()
    text = proc.log.read_text(errors="replace")
    return Done(proc.returncode, text, time.monotonic() - started, proc.log)


class Follower:
    """Passes on what is added to a log."""

    def __init__(self, log):
        self.log = log
        self.seen = 0

    def pass_on(self):
        with open(self.log, "rb") as f:
            f.seek(self.seen)
            data = f.read()
        self.seen += len(data)
        for line in data.decode(errors="replace").splitlines():
            say(f"    {line}")
