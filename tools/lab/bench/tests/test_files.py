# SPDX-License-Identifier: GPL-2.0
"""How runs of servers of files become rows, ratios, and text."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from pvbench import counting, files, insns, insnstable, page  # noqa: E402
from pvlab import crates  # noqa: E402

KALLSYMS = """
ffffffff81000100 T do_idle
ffffffff81000200 T schedule_idle
ffffffff81000300 T asm_sysvec_reschedule_ipi
ffffffff81000400 T asm_sysvec_apic_timer_interrupt
ffffffff81000500 T asm_exc_page_fault
ffffffff81000600 T __x64_sys_unlinkat
ffffffff81000700 T entry_SYSCALL_64
ffffffff81000800 T fget
ffffffff81000900 t native_queued_spin_lock_slowpath
""".strip()
POOLS = [f"ring/virtiofsd, pool {pool}" for pool in files.POOLS]


def round_of(ours, *peers, **words):
    speeds = dict(zip([files.VHOST_FS, *POOLS], [ours, *peers], strict=False))
    return {path: {"path": path, "ops_per_s": speed, **words} for path, speed in speeds.items()}


class Ratios(unittest.TestCase):
    def test_the_best_peer_of_a_round_is_the_one_to_beat(self):
        rounds = [round_of(60, 10, 20, 5), round_of(30, 10, 5, 1), round_of(100, 1, 2, 50)]
        self.assertEqual(files.ratio_of(rounds), 3)

    def test_a_disturbed_peer_could_have_been_the_best(self):
        disturbed = round_of(60, 10, 20, 5)
        disturbed[POOLS[2]]["quiet"] = False
        self.assertIsNone(files.ratio_of([disturbed]))
        self.assertEqual(files.ratio_of([disturbed, round_of(40, 10, 10, 10)]), 4)

    def test_nothing_to_compare_is_no_ratio(self):
        self.assertIsNone(files.ratio_of([round_of(60)]))
        only = round_of(60, 10)
        del only[files.VHOST_FS]
        self.assertIsNone(files.ratio_of([only]))

    def test_the_middle_of_the_quiet_runs_is_reported(self):
        rows = [{"ops_per_s": speed} for speed in (3, 1, 2)]
        self.assertEqual(files.middle(rows)["ops_per_s"], 2)
        rows += [{"ops_per_s": 9, "quiet": True}] + [{"ops_per_s": 0, "quiet": False}] * 5
        self.assertEqual(files.middle(rows)["ops_per_s"], 3)


class Servers(unittest.TestCase):
    def test_a_server_says_whether_it_can_run(self):
        built = crates.path("virtiofsd").exists()
        for server in files.SERVERS[1:]:
            self.assertEqual(server.missing(), "" if built else "virtiofsd was not built")


class Loads(unittest.TestCase):
    def test_a_directory_with_one_position_is_not_deep(self):
        found = files.loads(["read", "readdirplus"], [1, 32])
        self.assertEqual(found, [("read", 1), ("read", 32), ("readdirplus", 1)])

    def test_words_that_are_none(self):
        ops, systems, depths = files.parse("", "", [1, 32, 128])
        self.assertEqual((ops, systems, depths), (list(files.OPS), ["tmpfs"], [1, 32]))
        for words in (("stat", ""), ("", "vfat")):
            with self.assertRaises(ValueError):
                files.parse(*words, [1])

    def test_a_burst_of_ours_and_a_system_call(self):
        ours, call = counting.File("read", False, 32), counting.File("read", True)
        self.assertEqual(ours.command(2)[1:], ["read", "tmpfs", 2, "--depth", 32, "--burst"])
        self.assertEqual(call.command(2)[1:], ["read", "tmpfs", 2, "--depth", 1, "--host"])
        # A long operation in as many as it takes for a read would take minutes.
        self.assertLess(counting.File("create", False).sample, ours.sample)


class Counted(unittest.TestCase):
    def setUp(self):
        self.symbols = insns.Symbols(KALLSYMS)

    def test_waiting_and_the_timer_are_no_work_of_a_server_that_sleeps(self):
        self.assertEqual(
            list(self.symbols.sleeper_marks()),
            [
                "user 0x800000000000",
                "rest 0xffffffff81000100",
                "go 0xffffffff81000200",
                "exception 0xffffffff81000300",
                "interrupt 0xffffffff81000400",
                "exception 0xffffffff81000500",
            ],
        )

    def test_all_calls_of_an_operation_belong_to_it(self):
        marks = set(self.symbols.marks(counting.File("create", True).loop))
        here = {"round 0xffffffff81000700", "work 0xffffffff81000700", "io 0xffffffff81000600"}
        self.assertLessEqual(here, marks)

    def test_user_space_counts_and_waiting_does_not(self):
        nothing = {"all_ios": 0}
        blocks = [
            [0x401000, 10, 1, "other", 4],
            [0xFFFFFFFF81000800, 5, 1, "other", 4],
            [0xFFFFFFFF81000100, 100, 1, "idle", 4],
            [0xFFFFFFFF81000400, 100, 1, "interrupt", 4],
            [0xFFFFFFFF81000900, 50, 1, "other", 4],
            [0xFFFFFFFF81000800, 7, 0, "other", 4],
        ]
        window = insns.Window({"cpus": [nothing, nothing], "blocks": blocks}, self.symbols)
        row = window.executed(1, 4)
        self.assertEqual((row["ios"], row["insns"], row["spun"]), (4, 15, 50))
        self.assertEqual(row["modules"], {"user": 10, "kernel": 5})

    def test_the_cheapest_pool_is_compared(self):
        rows = [
            {"path": path, "depth": 1, "insns": count}
            for path, count in (
                ("ring/vhost_fs read", 4000),
                ("host read", 1000),
                ("ring/virtiofsd, pool 0 read", 12000),
                ("ring/virtiofsd, pool 16 read", 20000),
            )
        ]
        found = list(insnstable.peer_ratios(rows))
        self.assertEqual(found, [("read", 1, 4000, 12000, "virtiofsd, pool 0", 3)])


class Page(unittest.TestCase):
    def test_a_file_system_has_a_table_and_a_refused_ratio_says_so(self):
        row = {"depth": 1, "op": "read", "fs": "ext4", "cpu_ns_per_op": 1, "csw_per_op": 2}
        rows = [{**r, **row} for r in round_of(60, 10).values()]
        doc = {"machine": {}, "rows": rows, "ratios": {"read on ext4, depth 1": None}}
        text = page.render(files=doc)
        self.assertIn("<h3>ext4</h3>", text)
        self.assertIn("read on ext4, depth 1: refused", text)


if __name__ == "__main__":
    unittest.main()
