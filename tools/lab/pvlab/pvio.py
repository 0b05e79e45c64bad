# SPDX-License-Identifier: GPL-2.0
"""Our host side, on the host: its modules, a null_blk to serve, and pvio."""

import signal
import subprocess
import time
import unittest
from pathlib import Path

from . import modules, paths
from .paths import LabError

PVIO = paths.TOP / "out/bin/pvio"
NULLB = Path("/sys/kernel/config/nullb")
DEADLINE = 60


def wait_for(condition, what, seconds=DEADLINE):
    """Poll until CONDITION is true and return what it returned."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def run(*command, check=True):
    return subprocess.run([str(c) for c in command], check=check, capture_output=True, text=True)


def need_pvio():
    if not PVIO.exists():
        raise unittest.SkipTest("out/bin/pvio is not built: make pvio")
    for name in ("vhost_poll", "vhost_serve", "vhost_blk"):
        modules.load(name)


class Nullb:
    """A null_blk that remembers what is written."""

    def __init__(self, name, size_mb=64, **attributes):
        if not NULLB.exists():
            run("modprobe", "null_blk", "nr_devices=0")
        if not NULLB.exists():
            run("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
        self.dir = NULLB / name
        self.dir.mkdir()
        try:
            for key, value in {"size": size_mb, "memory_backed": 1, **attributes}.items():
                self._set(key, value)
            self._power_on()
        except BaseException:
            # The caller has no object by which to remove it.
            self.dir.rmdir()
            raise

    def _set(self, key, value):
        if not (self.dir / key).exists():
            raise LabError(f"this kernel's null_blk has no {key}")
        (self.dir / key).write_text(f"{value}\n")

    def _power_on(self):
        (self.dir / "power").write_text("1\n")
        self.path = Path("/dev") / self._node()
        wait_for(self.path.exists, f"{self.path} appears")

    def power_cycle(self):
        """It keeps what it stored, and loses what was in its cache (cache_size=)."""
        (self.dir / "power").write_text("0\n")
        self._power_on()

    def _node(self):
        """Its name in /dev: its own with newer kernels, else nullb and an index."""
        if Path(f"/sys/block/{self.dir.name}").exists():
            return self.dir.name
        return f"nullb{(self.dir / 'index').read_text().strip()}"

    def remove(self):
        (self.dir / "power").write_text("0\n")
        self.dir.rmdir()


class Pvio:
    """`pvio blk` (or another COMMAND) with ARGS; its messages are gathered in .log.
    BEFORE are words that run it, as setpriv(1) has them; PROGRAM is a copy of pvio."""

    def __init__(self, *args, directory, pass_fds=(), command="blk", before=(), program=PVIO):
        self.words = [str(word) for word in (*before, program, command, *args)]
        self.log_path = Path(directory) / "pvio.log"
        self.pass_fds = pass_fds
        self.process = None

    def start(self, *sockets):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self.pass_fds,
            )
        for path in sockets:
            wait_for(lambda path=path: self._listens(path), f"{path} is listened at\n{self.log}")
        return self

    def _listens(self, path):
        if self.process.poll() is not None:
            raise AssertionError(f"pvio ended with {self.process.returncode}:\n{self.log}")
        # Connecting would make it serve us; the kernel's table tells as well.
        listening = "00010000"
        for line in Path("/proc/net/unix").read_text().splitlines():
            if line.endswith(f" {path}") and line.split()[3] == listening:
                return True
        return False

    @property
    def log(self):
        return self.log_path.read_text()

    def signal(self, number):
        self.process.send_signal(number)

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill9()
                raise AssertionError(f"SIGTERM did not end pvio:\n{self.log}") from None
