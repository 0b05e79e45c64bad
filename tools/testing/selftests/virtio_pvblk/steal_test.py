#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""On an overcommitted host adaptive mode leaves polling, and comes back to it.

The vCPUs, QEMU's other threads and a task that computes share one CPU of the host.
"""

import contextlib
import os
import subprocess
from pathlib import Path

from pvblk import GuestCase
from pvlab import ktap

READS = 64
# So many batches at most, which is far more than it takes.
BATCHES = 100
STOLEN_TICKS = 100
# Longer than any wait of an emulated guest, so that the time stolen alone decides.
MAX_US = 1000000


def confine(pid, cpus):
    """All threads of a process; one may end meanwhile."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cpus)


class Steal(GuestCase):
    def setUp(self):
        self.disk = self.take("vda")
        self.sh(f"echo {MAX_US} >/sys/block/{self.disk}/pvblk/poll_max_us")

    @contextlib.contextmanager
    def overcommitted(self):
        cpus = os.sched_getaffinity(0)
        one = {min(cpus)}
        confine(self.guest.pid, one)
        with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as other:
            os.sched_setaffinity(other.pid, one)
            try:
                yield
            finally:
                other.kill()
                confine(self.guest.pid, cpus)

    def stolen(self):
        """Ticks of CPU 0, as the guest knows them."""
        return int(self.sh("awk '$1 == \"cpu0\" { print $9 }' /proc/stat"))

    def until(self, grown_enough, message):
        """Read until what the counters grew by in one batch is enough."""
        for _ in range(BATCHES):
            with self.counting(self.disk) as grown:
                self.reads(self.disk, 1, READS, 0)
            if grown_enough(grown):
                return grown
        return self.fail(f"{message}: {grown}")

    def test_adaptive_leaves_polling_while_time_is_stolen(self):
        self.mode(self.disk, "adaptive")
        before = self.stolen()
        with self.overcommitted():
            grown = self.until(lambda g: g["stolen"] > READS / 2, "it went on polling")
        print(f"# {self.stolen() - before} ticks were stolen, {grown}")
        self.assertGreater(grown["interrupts"], 0)
        grown = self.until(lambda g: not g["stolen"] and g["found"], "it did not come back")
        print(f"# alone again: {grown}")

    def test_busy_goes_on_polling(self):
        self.mode(self.disk, "busy")
        before = self.stolen()
        with self.overcommitted(), self.counting(self.disk) as grown:
            for _ in range(BATCHES):
                self.reads(self.disk, 1, READS, 0)
                ticks = self.stolen() - before
                if ticks >= STOLEN_TICKS:
                    break
        print(f"# {ticks} ticks were stolen, {grown}")
        self.assertGreaterEqual(ticks, STOLEN_TICKS)
        self.assertEqual(grown["stolen"], 0)
        # Where QEMU has the CPU, the answers may be there before the poller comes to look.
        self.assertGreater(grown["polls"], 0)


if __name__ == "__main__":
    ktap.main()
