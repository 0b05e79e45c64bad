#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Every report of a guest's kernel fails what is run in it, and is printed.

One guest does them all, in an order in which an earlier one does not switch
off what a later one needs; the panic ends it.
"""

import os
import time
import unittest

from pvlab import ktap, paths
from pvlab.guest import Gone, Guest, KernelReports

DEBUG = os.environ.get("LAB_LANE") == "debug"
TRIGGER = paths.OUT / "build" / f"{os.environ['LAB_KERNEL_RELEASE']}-lab/lab_trigger.ko"


# So that what takes minutes takes seconds; put back, for a busy machine stalls by itself.
HUNG = "/proc/sys/kernel/hung_task_timeout_secs"
STALL = "/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout"


def trigger(name):
    return f"echo {name} >/sys/kernel/debug/lab_trigger"


class Detectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guest = Guest("detectors", vcpus=2, append="kasan_multi_shot")
        cls.guest.start()
        cls.addClassCleanup(cls.guest.kill)
        cls.guest.modprobe(str(TRIGGER))

    def fails_with(self, kind, words, action):
        """ACTION raises the kernel's report, and the text holds WORDS and where it came from."""
        with self.assertRaises(KernelReports) as caught:
            action()
        kinds = {k for r in caught.exception.reports for k in r.kinds}
        self.assertIn(kind, kinds)
        text = str(caught.exception)
        self.assertIn("guest 'detectors'", text)
        for word in words:
            self.assertIn(word, text)

    def run_and_wait(self, name, background=False):
        """Trigger, and look at the log until something is there."""
        self.guest.run(trigger(name) + (" &" if background else ""), timeout=120)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            time.sleep(1)
            self.guest.check()
        self.fail(f"nothing was found after {name}")

    def test_1_warn(self):
        self.fails_with(
            "warn", ["WARNING: CPU: ", "do_warn", "Call Trace"], lambda: self.run_and_wait("warn")
        )

    def test_1a_nothing_is_found_where_nothing_is_wrong(self):
        self.guest.run("true", check=True)
        self.guest.check()

    @unittest.skipUnless(DEBUG, "needs the debug kernel")
    def test_2_lockdep(self):
        self.fails_with(
            "lockdep",
            ["possible circular locking dependency", "do_lockdep"],
            lambda: self.run_and_wait("lockdep"),
        )

    @unittest.skipUnless(DEBUG, "needs the debug kernel")
    def test_2_sleep_in_atomic_context(self):
        self.fails_with(
            "atomic sleep",
            ["scheduling while atomic", "do_atomic_sleep"],
            lambda: self.run_and_wait("atomic_sleep"),
        )

    @unittest.skipUnless(DEBUG, "needs the debug kernel")
    def test_3_kmemleak(self):
        self.guest.leaks_clear()
        self.guest.run(trigger("kmemleak"), check=True)
        self.assertIn("do_kmemleak", self.guest.leaks())
        self.fails_with("kmemleak", ["new suspected memory leaks"], self.guest.check)

    def short(self, setting):
        before = self.guest.run(f"cat {setting}; echo 3 >{setting}", check=True).out.strip()
        self.addCleanup(self.guest.run, f"echo {before} >{setting}")

    def test_4_hung_task(self):
        self.guest.run("echo 1 >/proc/sys/kernel/hung_task_check_interval_secs", check=True)
        self.short(HUNG)
        self.fails_with(
            "hung task",
            ["blocked for more than 3 seconds", "do_hung_task"],
            lambda: self.run_and_wait("hung_task", True),
        )
        with self.guest.expecting():
            self.guest.run(trigger("end_hang"))

    @unittest.skipUnless(DEBUG, "needs the debug kernel")
    def test_5_kasan_use_after_free(self):
        self.fails_with(
            "kasan",
            ["BUG: KASAN: slab-use-after-free", "do_kasan"],
            lambda: self.run_and_wait("kasan"),
        )

    @unittest.skipUnless(DEBUG, "needs the debug kernel")
    def test_5_kasan_double_free(self):
        self.fails_with(
            "kasan",
            ["BUG: KASAN: double-free", "do_double_free"],
            lambda: self.run_and_wait("double_free"),
        )

    def test_6_rcu_stall(self):
        self.short(STALL)
        self.fails_with(
            "rcu stall", ["stall", "do_rcu_stall"], lambda: self.run_and_wait("rcu_stall")
        )

    def test_7_oops(self):
        self.fails_with("oops", ["do_oops", "Call Trace"], lambda: self.run_and_wait("oops"))

    def test_8_panic(self):
        self.fails_with(
            "panic",
            ["Kernel panic - not syncing: lab_trigger: as requested"],
            lambda: self.run_and_wait("panic"),
        )
        with self.assertRaises(Gone):
            self.guest.run("true")


if __name__ == "__main__":
    ktap.main()
