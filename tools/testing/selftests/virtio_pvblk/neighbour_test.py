#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Beside another task of the CPU, which runs before the poller, requests are left to interrupts.

A read is stranded if the layer's timer has to notice that it waits, two ticks later.
"""

import contextlib
import itertools
import re
import time

from pvblk import BATCH, CROWDED_FORGET, CROWDED_MAX, DEBUG, GuestCase
from pvlab import ktap

FIRSTS = 4 if DEBUG else 8
SELDOM_READS = 512 if DEBUG else 2048
# Six back-offs end within so many seconds.  The first ones may be too short to find the task.
BACK_OFFS_SECS = 5
RETRIES = 2
EVENT = re.compile(r"^\s*(.+)-\d+\s+\[\d+\] (\S+)\s+[\d.]+: virtio_poll_(\w+): .*callbacks=(\d)")


class Neighbour(GuestCase):
    def setUp(self):
        self.disk = self.take("vda")
        self.mode(self.disk, "busy")

    @contextlib.contextmanager
    def beside(self, command):
        """A task of CPU 0, which has had some of it when the block begins."""
        ticks = "awk '{ exit $14 < 10 }' /proc/$pid/stat"
        pid = self.sh(
            f"taskset 1 {command} >/dev/null 2>&1 </dev/null & "
            f"pid=$!; until {ticks}; do sleep .1; done; echo $pid"
        )
        try:
            yield
        finally:
            self.sh(f"while kill -9 {pid} 2>/dev/null; do sleep .1; done")

    def computing(self):
        return self.beside("sh -c 'while :; do :; done'")

    @contextlib.contextmanager
    def traced(self):
        """(task, whether in a softirq, event, whether callbacks were on), as the block left them."""
        events = []
        self.sh(
            "cd /sys/kernel/tracing; [ -e trace ] || mount -t tracefs tracefs .; "
            "cd /sys/kernel/tracing; echo >trace; echo 1 >events/virtio_poll/enable"
        )
        try:
            yield events
        finally:
            self.sh("echo 0 >/sys/kernel/tracing/events/virtio_poll/enable")
        for line in self.sh("cat /sys/kernel/tracing/trace").splitlines():
            found = EVENT.match(line)
            if found:
                events.append((found[1], found[2][2] != ".", found[3], found[4] == "1"))

    def test_first_read_beside_a_task_that_computes(self):
        """The poller has had the CPU before, so nothing is known of the task."""
        stranded = 0
        for _ in range(FIRSTS):
            self.reads(self.disk, 1, 8, 0)
            time.sleep(CROWDED_MAX)
            with self.computing(), self.traced() as events:
                self.reads(self.disk, 1, 1, 0)
            self.assertTrue(events)
            stranded += count_stranded(events)
        print(f"# {stranded} of {FIRSTS} first reads were stranded")
        self.assertLessEqual(stranded, FIRSTS // 4)

    def test_reads_beside_a_task_that_comes_seldom(self):
        """The read that it interrupts is covered, and so are those that follow it."""
        burst = "fio --name=b --thread --ioengine=cpuio --cpuload=9 --cpuchunks=3000"
        with (
            self.beside(f"{burst} --time_based --runtime=600"),
            self.traced() as events,
            self.counting(self.disk) as grown,
        ):
            self.reads(self.disk, 1, SELDOM_READS, 0)
        taken = sum(e[:3] == ("virtio-poll/0", False, "starved") for e in events)
        # A queue that is attached beside another task is another rule's.
        pairs = zip([("", False, "", False), *events], events, strict=False)
        own = sum(e[:3] == ("dd", False, "starved") and b[2] != "attach" for b, e in pairs)
        print(f"# the CPU was taken {taken} times, {own} reads were covered then, {grown}")
        self.assertGreater(taken, 0)
        self.assertGreater(own, taken / 4)

    def test_tries_no_more_beside_a_task_that_computes(self):
        """A retry could strand a read.  When the task has ended, the poller is back."""
        # Another test may have had the poller back off.
        time.sleep(CROWDED_FORGET)
        with self.computing(), self.traced() as events:
            self.sh(
                f"taskset -c 0 timeout {BACK_OFFS_SECS} dd if=/dev/{self.disk} of=/dev/null bs=4k "
                "iflag=direct 2>/dev/null || true"
            )
        # A back-off begins where the timer finds the poller starved, and ends with an attachment.
        kinds = ["back-off" if e[1:3] == (True, "starved") else e[2] for e in events]
        retries = sum(pair == ("back-off", "attach") for pair in itertools.pairwise(kinds))
        print(f"# {retries} retries, {count_stranded(events)} reads were stranded")
        self.assertIn("back-off", kinds)
        self.assertLessEqual(retries, RETRIES)
        time.sleep(CROWDED_MAX)
        with self.counting(self.disk) as grown:
            self.reads(self.disk, 1, BATCH, 0)
        self.assertGreater(grown["found"], 0)


def count_stranded(events):
    """The timer, a softirq, found callbacks off."""
    return sum(softirq and name == "starved" and not on for _, softirq, name, on in events)


if __name__ == "__main__":
    ktap.main()
