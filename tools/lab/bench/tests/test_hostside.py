# SPDX-License-Identifier: GPL-2.0
"""How runs of the host side become rows and ratios."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from pvbench import hostside, profile, quiet  # noqa: E402


def round_of(ours, daemon, uring):
    iops = {hostside.VHOST_BLK: ours, hostside.DAEMON: daemon, hostside.URING: uring}
    return {path: {"path": path, "iops": value} for path, value in iops.items()}


class HostSide(unittest.TestCase):
    def test_the_middle_run_is_reported(self):
        rows = [{"iops": 3}, {"iops": 1}, {"iops": 2}]
        self.assertEqual(hostside.middle(rows)["iops"], 2)

    def test_ratios_are_of_one_round_and_their_median(self):
        rounds = [round_of(200, 100, 100), round_of(40, 10, 20), round_of(100, 100, 10)]
        found = hostside.ratios_of(rounds, 128)
        self.assertEqual(found[f"{hostside.VHOST_BLK} / {hostside.DAEMON}, depth 128"], 2.0)
        self.assertEqual(found[f"{hostside.VHOST_BLK} / {hostside.URING}, depth 128"], 2.0)

    def test_without_vhost_blk_there_is_no_ratio(self):
        only = [{hostside.DAEMON: {"iops": 5}}]
        self.assertEqual(hostside.ratios_of(only, 1), {})

    def test_a_load_that_takes_too_long_is_a_failure_of_that_load(self):
        with self.assertRaisesRegex(RuntimeError, "sleep took more than 0 s"):
            hostside.output_of(["sleep", 9], 0.1)


class Quiet(unittest.TestCase):
    def test_slices_with_few_passes_are_disturbed(self):
        self.assertEqual(quiet.undisturbed([100] * 9 + [3]), 0.9)
        self.assertEqual(quiet.undisturbed([0] * 10), 0.0)

    def test_stolen_time_is_a_share_of_all(self):
        before = [0] * 10
        self.assertEqual(quiet.stolen(before, [60, 0, 10, 20, 0, 0, 0, 10, 5, 0]), 0.1)

    def test_a_disturbed_run_counts_for_no_ratio(self):
        ours = {"iops": 4, "quiet": True}
        rival = {"iops": 1, "quiet": False}
        found = hostside.ratios_of([{hostside.VHOST_BLK: ours, hostside.URING: rival}], 1)
        self.assertEqual(list(found.values()), [None])


PERF = """
    50.00%  swapper          [kernel.vmlinux]  [k] pv_native_safe_halt
    30.00%  vpoll:demo/1     [kernel.vmlinux]  [k] vring_poll
     5.00%  IO iothread      [kernel.vmlinux]  [k] fget
     5.00%  IO iothread      libc.so.6         [.] malloc
    10.00%  perf             perf              [.] 0x000000000009ad9a
"""
KALLSYMS = "0 t vring_poll\t[vhost_blk]\n0 T fget\n"


class Profile(unittest.TestCase):
    def setUp(self):
        self.rows = profile.parse(PERF, profile.kernel_modules(KALLSYMS))

    def test_idle_and_perf_itself_do_not_count(self):
        self.assertEqual(
            self.rows,
            [
                (0.75, "vhost_blk", "vring_poll"),
                (0.125, "libc.so.6", "malloc"),
                (0.125, "kernel", "fget"),
            ],
        )

    def test_shares_become_nanoseconds(self):
        found = profile.of(self.rows, 800)
        self.assertEqual(found["modules"], {"vhost_blk": 600, "libc.so.6": 100, "kernel": 100})
        self.assertEqual(
            found["functions"][0], {"function": "vring_poll", "module": "vhost_blk", "ns": 600}
        )


if __name__ == "__main__":
    unittest.main()
