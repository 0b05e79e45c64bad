# SPDX-License-Identifier: GPL-2.0
"""Keeps one host VM: its slot, its terminal, its end.

Runs in the background for as long as the VM does: python3 -m pvlab.hostd SPEC,
where SPEC is the JSON that pvlab.host wrote.  Ends the VM when SPEC's pid file
is removed, on SIGTERM, or when no command ran for `idle` seconds (a minute if
somebody waits for a slot, and nothing held a connection meanwhile).
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

from .paths import CACHE

SLOTS = CACHE / "slots"
# Touched by who waits for a slot; older than this it says nothing.
WANTED = SLOTS / "wanted"
WANTED_SECONDS = 10
YIELD_SECONDS = 60


def take_slot(count, limit, client):
    """One of the machine's COUNT slots for host VMs, held while we live; None
    after LIMIT seconds, or when CLIENT, who wants it, is gone."""
    SLOTS.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and Path(f"/proc/{client}").exists():
        for i in range(count):
            fd = os.open(SLOTS / str(i), os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            os.set_inheritable(fd, True)
            return fd
        WANTED.touch()
        time.sleep(1)
    return None


def somebody_waits():
    try:
        return time.time() - WANTED.stat().st_mtime < WANTED_SECONDS
    except OSError:
        return False


def unused(spec):
    """Whether the VM has had no command for so long that it should go."""
    limit = min(spec["idle"], YIELD_SECONDS) if somebody_waits() else spec["idle"]
    return time.time() - idle_since(spec) > limit


def idle_since(spec):
    """When the last command ran: each takes its port's lock file anew."""
    newest = spec["started"]
    for path in spec["ports"]:
        lock = Path(f"{path}.lock")
        try:
            with open(lock) as f:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            newest = max(newest, lock.stat().st_mtime)
        except BlockingIOError:
            return time.time()
        except OSError:
            continue
    return newest


def end(pid):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, sig)
        for _ in range(30):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
            time.sleep(0.1)


def serve(spec):
    state = Path(spec["state"])
    slot = take_slot(spec["slots"], spec["slot_limit"], spec["client"])
    if slot is None:
        (state / "ended").write_text("no slot for a host VM became free\n")
        return
    (state / "slot").touch()
    spec["started"] = time.time()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir("/")
        os.execv(spec["command"][0], spec["command"])
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    with open(state / "console.log", "ab", buffering=0) as log:
        while not stopping and (state / "pid").exists():
            if select.select([terminal], [], [], 1.0)[0]:
                try:
                    data = os.read(terminal, 65536)
                except OSError:
                    break
                if not data:
                    break
                log.write(data)
            if unused(spec):
                log.write(b"lab: unused for long, ending\n")
                break
    end(pid)
    (state / "ended").write_text("ended\n")


def main():
    spec = json.loads(Path(sys.argv[1]).read_text())
    if os.fork():
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    state = Path(spec["state"])
    err = os.open(state / "hostd.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(err, 2)
    (state / "pid").write_text(str(os.getpid()))
    try:
        serve(spec)
    finally:
        with contextlib.suppress(FileNotFoundError):
            (state / "pid").unlink()
        if not (state / "ended").exists():
            (state / "ended").write_text("hostd failed, see hostd.log\n")


if __name__ == "__main__":
    main()
