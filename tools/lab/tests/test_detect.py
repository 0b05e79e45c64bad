# SPDX-License-Identifier: GPL-2.0
"""What is a report in a kernel's log, and what is not."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import detect  # noqa: E402

# One of each sort, as a kernel words it; addresses are made up.
REPORTS = {
    "panic": "[   12.1] Kernel panic - not syncing: VFS: Unable to mount root fs",
    "oops": "[   12.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "warn": "[   12.1] WARNING: CPU: 1 PID: 77 at drivers/x/y.c:12 fun+0x1/0x2 [x]",
    "kasan": "[   12.1] BUG: KASAN: slab-use-after-free in fun+0x1/0x2 [x]",
    "ubsan": "[   12.1] UBSAN: shift-out-of-bounds in drivers/x/y.c:3:4",
    "kmemleak": "[   12.1] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "hung task": "[   12.1] INFO: task kworker/1:2:88 blocked for more than 120 seconds.",
    "rcu stall": "[   12.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
    "lockup": "[   12.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [fun:99]",
    "atomic sleep": "[   12.1] BUG: sleeping function called from invalid context at mm/x.c:3",
    "lockdep": "[   12.1] WARNING: possible circular locking dependency detected",
    "slab": "[   12.1] list_del corruption. prev->next should be 1, but was 2.",
    "debugobjects": "[   12.1] ODEBUG: free active (active state 0) object: 1 object type: timer_list",
    "oom": "[   12.1] fio invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0",
    "trace": "[   12.1] Call Trace:",
    "bug": "[   12.1] BUG: using something new in a wrong way",
}

MORE = {
    "kasan": ["BUG: KFENCE: out-of-bounds read in fun+0x1/0x2"],
    "lockdep": [
        "WARNING: possible recursive locking detected",
        "WARNING: inconsistent lock state",
        "WARNING: suspicious RCU usage",
        "WARNING: bad unlock balance detected!",
        "INFO: trying to register non-static key.",
        "BUG: MAX_LOCKDEP_CHAINS too low!",
        "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
        "BUG: spinlock bad magic on CPU#0, x/1",
    ],
    "atomic sleep": [
        "BUG: scheduling while atomic: sh/77/0x00000002",
        "[ BUG: Invalid wait context ]",
    ],
    "oops": [
        "Oops: general protection fault, 0000 [#1] PREEMPT SMP",
        "BUG: unable to handle page fault for address: ffff",
        "kernel BUG at mm/x.c:3!",
        "int3: 0000 [#1] SMP",
    ],
    "rcu stall": [
        "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... }",
        "rcu: rcu_preempt kthread starved for 100 jiffies!",
    ],
    "hung task": ["INFO: task sh:1 blocked for more than 3 seconds."],
    "kmemleak": ["kmemleak: Kernel memory leak detector disabled"],
    "slab": ["BUG kmalloc-64 (Not tainted): Object already free"],
    "bug": [
        "BUG: Bad page state in process sh  pfn:1",
        "BUG: using smp_processor_id() in preemptible [00000000] code: sh/1",
    ],
}

CLEAN = """\
[    0.000000] Linux version 6.12 (x) #1 SMP
[    0.999717] PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug
[    1.000000] [Firmware Bug]: TSC frequency mismatch
[    1.100000] RCU CPU stall warnings timeout set to 100 (rcu_cpu_stall_timeout).
[    1.200000] RCU Tasks Trace: Setting shift to 1
[    1.300000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)
[    1.400000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    1.500000] debug: ignoring loglevel setting.
[    1.600000] KASAN: KernelAddressSanitizer initialized
[    1.700000] x: loading out-of-tree module taints kernel.
"""


class Patterns(unittest.TestCase):
    def test_each_sort_is_found_and_named(self):
        for kind, line in REPORTS.items():
            with self.subTest(kind):
                self.assertEqual([r.kind for r in detect.scan_text(line)], [kind])

    def test_each_wording_is_found(self):
        for kind, lines in MORE.items():
            for line in lines:
                with self.subTest(line):
                    self.assertEqual(
                        [r.kind for r in detect.scan_text(f"[    1.0] {line}")], [kind]
                    )

    def test_a_clean_log_has_none(self):
        self.assertEqual(detect.scan_text(CLEAN), [])

    def test_prefixes_and_terminal_codes_do_not_hide_one(self):
        for prefix in (
            "",
            "<4>",
            "<4>[    1.0]",
            "[    1.0][   T12] ",
            "\x1b[1m[    1.0] ",
            "[    1.0] rcu: ",
        ):
            with self.subTest(prefix):
                line = (
                    "INFO: rcu_preempt self-detected stall on CPU"
                    if "rcu" in prefix
                    else "WARNING: CPU: 0 PID: 1 at x.c"
                )
                self.assertEqual(len(detect.scan_text(f"{prefix}{line}\r")), 1)


class Extent(unittest.TestCase):
    def test_it_holds_what_follows_and_a_line_before(self):
        text = "[ 1.0] ====\n[ 1.0] BUG: KASAN: x in y\n[ 1.1] Call Trace:\n[ 1.1]  fun\n[ 9.0] later\n"
        (report,) = detect.scan_text(text)
        self.assertIn("====", str(report))
        self.assertIn("fun", str(report))
        self.assertNotIn("later", str(report))

    def test_a_cut_here_line_takes_the_name_of_what_follows(self):
        (report,) = detect.scan_text(
            "[ 1.0] ------------[ cut here ]------------\n[ 1.0] WARNING: CPU: 0 PID: 1 at x.c\n"
        )
        self.assertEqual(report.title, "WARNING: CPU: 0 PID: 1 at x.c")

    def test_two_apart_are_two(self):
        self.assertEqual(
            len(detect.scan_text("[ 1.0] WARNING: CPU: 0 PID: 1\n[ 5.0] WARNING: CPU: 0 PID: 1\n")),
            2,
        )

    def test_one_in_another_is_remembered(self):
        (report,) = detect.scan_text(
            "[ 1.0] WARNING: CPU: 0 PID: 1\n[ 1.1] Kernel panic - not syncing: x\n"
        )
        self.assertEqual((report.kind, report.kinds), ("warn", {"warn", "panic"}))

    def test_a_clock_that_goes_back_is_told(self):
        late, early = "[ 944.4] fine\n", "[ 140.7] BUG: TASK stack guard page was hit at 0\n"
        (report,) = detect.scan_text(late + early)
        self.assertTrue(report.clock_went_back)
        (report,) = detect.scan_text(early.replace("140.7", "945.0"))
        self.assertFalse(report.clock_went_back)
        (report,) = detect.scan_text(late + early.replace("140.7", "943.9"))
        self.assertFalse(report.clock_went_back)

    def test_a_trace_that_was_asked_for_is_none(self):
        self.assertEqual(
            detect.scan_text("[ 1.0] FAULT_INJECTION: forcing a failure.\n[ 1.0] Call Trace:\n"), []
        )


class Watching(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile("a")
        self.addCleanup(self.file.close)
        self.watch = detect.LogWatch(self.file.name, "host")

    def write(self, text):
        self.file.write(text)
        self.file.flush()

    def test_each_is_reported_once(self):
        self.write("[ 1.0] WARNING: CPU: 0 PID: 1\n")
        self.assertEqual(len(self.watch.reports()), 1)
        self.assertEqual(self.watch.reports(), [])
        self.write("[ 2.0] fine\n[ 9.0] WARNING: CPU: 0 PID: 1\n")
        self.assertEqual(len(self.watch.reports()), 1)

    def test_check_raises_with_the_text_and_the_place(self):
        self.write("[ 1.0] BUG: KASAN: x in y\n[ 1.0]  fun\n")
        with self.assertRaises(detect.KernelReports) as caught:
            self.watch.check()
        for words in ("host", "BUG: KASAN: x in y", "fun"):
            self.assertIn(words, str(caught.exception))

    def test_a_line_in_two_pieces_is_one(self):
        self.write("[ 1.0] WARN")
        self.watch.reports(settle=0.1)
        self.write("ING: CPU: 0 PID: 1\n")
        self.assertEqual(len(self.watch.reports()), 1)


if __name__ == "__main__":
    unittest.main()
