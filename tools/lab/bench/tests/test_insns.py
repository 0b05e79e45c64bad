# SPDX-License-Identifier: GPL-2.0
"""How blocks become functions, and when an I/O takes too many instructions."""

import json
import sys
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from pvbench import hostside, insns, insnstable  # noqa: E402

KALLSYMS = """
ffffffff81000100 T kthread_should_stop
ffffffff81000200 T asm_sysvec_reschedule_ipi
ffffffff81000300 D some_data
ffffffffc0000000 t null_queue_rq\t[null_blk]
ffffffffc0001000 t vring_poll\t[vhost_blk]
ffffffffc0001100 T vhost_poll_policy_work\t[vhost_poll]
""".strip()


def rounds(work, ios, idle):
    return {
        "all_ios": ios + 7,
        "work": {"rounds": work, "ios": ios},
        "idle": {"rounds": idle, "ios": 0},
        "broken": {"rounds": 1, "ios": 7},
        "by_ios": [],
    }


WINDOW = {
    "cpus": [rounds(0, 0, 0), rounds(5, 10, 2)],
    "blocks": [
        [0xFFFFFFFFC0001010, 4, 1, "work", 10],
        [0xFFFFFFFF81000100, 2, 1, "work", 5],
        [0xFFFFFFFF81000100, 2, 1, "idle", 2],
        [0xFFFFFFFFC0001010, 4, 1, "broken", 7],
        [0xFFFFFFFFC0001010, 6, 0, "guest", 3],
        [0x401000, 3, 0, "other", 2],
    ],
}


class Counted(unittest.TestCase):
    def setUp(self):
        self.symbols = insns.Symbols(KALLSYMS)
        self.window = insns.Window(WINDOW, self.symbols)

    def test_marks_are_what_begins_a_round_what_is_work_and_what_breaks_in(self):
        self.assertEqual(
            self.symbols.marks,
            [
                "round 0xffffffff81000100",
                "break 0xffffffff81000200",
                "io 0xffffffffc0000000",
                "work 0xffffffffc0001100",
            ],
        )

    def test_an_io_costs_the_rounds_at_work_and_none_else(self):
        row = self.window.served(1, True)
        self.assertEqual(row["ios"], 10)
        self.assertEqual(row["insns"], 5.0)
        self.assertEqual(row["idle_round"], 2)
        self.assertEqual(row["ios_per_round"], 2)
        self.assertEqual(row["modules"], {"vhost_blk": 4.0, "kernel": 1.0})

    def test_without_rounds_all_that_was_executed_counts(self):
        row = self.window.served(1, False)
        self.assertEqual((row["ios"], row["insns"]), (17, (40 + 10 + 4 + 28) / 17))

    def test_a_guest_and_user_space_have_no_functions(self):
        self.assertEqual(self.window.functions[0]["guest"], {("guest", ""): 18})
        self.assertEqual(self.window.functions[0]["other"], {("user", ""): 6})

    def test_no_io_is_an_error(self):
        with self.assertRaises(RuntimeError):
            self.window.served(0, True)


class Load:
    """A back end whose load says when it begins."""

    name, device, rounds = "load", "/dev/null0", True

    def __init__(self, happened):
        self.happened = happened

    def load(self, depth, secs):
        del depth, secs
        self.happened.append("load")


class Begins(unittest.TestCase):
    """A window must not begin before its load has, nor outlast it."""

    def setUp(self):
        self.happened = []
        patches = [
            mock.patch.object(hostside, "SETTLE", 0),
            mock.patch.object(hostside.insns, "Counting", self.window),
        ]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def window(self, symbols):
        self.happened.append("window")
        return mock.MagicMock()

    def test_a_load_that_brings_no_io_is_an_error_and_no_window(self):
        with (
            mock.patch.object(hostside, "reads_of", return_value=5),
            self.assertRaisesRegex(RuntimeError, "no I/O"),
        ):
            hostside.counted(Load(self.happened), 1, 0, None)
        self.assertEqual(self.happened, ["load"])

    def test_a_load_that_ends_within_the_window_is_an_error(self):
        with (
            mock.patch.object(hostside, "reads_of", side_effect=[5, 6]),
            self.assertRaisesRegex(RuntimeError, "within the window"),
        ):
            hostside.counted(Load(self.happened), 1, 0.1, None)
        self.assertEqual(self.happened, ["load", "window"])


def doc_of(count, path=hostside.VHOST_BLK, kernel="6.12"):
    row = {"path": path, "depth": 1, "insns": count}
    return {"machine": {"kernel": kernel}, "rows": [row]}


class Kept(unittest.TestCase):
    def setUp(self):
        self.kept = json.loads(insnstable.kept(doc_of(1000.0), {"rows": []}))

    def test_five_percent_more_is_too_many(self):
        self.assertEqual(insnstable.worse(doc_of(1050), self.kept), [])
        self.assertEqual(len(insnstable.worse(doc_of(1051), self.kept)), 1)

    def test_a_row_that_is_not_kept_is_found(self):
        self.assertEqual(len(insnstable.worse(doc_of(1), {"kernel": "6.12", "rows": []})), 1)

    def test_others_may_take_what_they_like(self):
        self.assertEqual(insnstable.worse(doc_of(9999, hostside.URING), self.kept), [])

    def test_another_kernel_does_not_compare(self):
        self.assertTrue(insnstable.incomparable(doc_of(1000, kernel="7.0"), self.kept))
        self.assertFalse(insnstable.incomparable(doc_of(1000), self.kept))


if __name__ == "__main__":
    unittest.main()
