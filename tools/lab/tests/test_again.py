# SPDX-License-Identifier: GPL-2.0
"""Which failures count after one run, and what a second run makes of the others."""

import contextlib
import io
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import accel, again, detect, selftests  # noqa: E402


def reported(log):
    """What a test prints of a guest whose kernel's log that is."""
    error = detect.KernelReports("guest 'g'", detect.scan_text(log))
    return "".join(f"# {line}\n" for line in str(error).splitlines())


FRAME = "[ 1.0] WARNING: CPU: 0 PID: 1 at x.c:1\n[ 1.0]  {}pvblk_probe+0x1/0x20 [virtio_pvblk]\n"


class Stands(unittest.TestCase):
    def test_what_slowness_can_do_does_not(self):
        for text in (
            "# pvlab.agent.Timeout: time limit reached: fio\n",
            "# AssertionError: 1 != 0\nnot ok 1 a\n",
            reported("[ 1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"),
            reported(FRAME.format("? ")),
        ):
            self.assertEqual(again.stands(text), "", text)

    def test_bugs_do(self):
        for text in (
            reported("[ 1.0] BUG: KASAN: slab-use-after-free in f+0x1/0x2\n"),
            reported("[ 1.0] WARNING: possible recursive locking detected\n"),
            reported(FRAME.format("")),
        ):
            self.assertNotEqual(again.stands(text), "", text)

    def test_lost_data_does(self):
        for text in (
            "verify: bad magic header 0, wanted acca at file /dev/vdaa offset 0\n",
            "# engine_test.c:38: rig_pattern_ok(g.data, 65536, i)\n",
            "# AssertionError: b'\\x00\\x00' != b'aa'\n",
            "READ BAD DATA: offset = 0x0\n",
        ):
            self.assertNotEqual(again.stands(text), "", text)


LOST = "not ok 1 lost"


class Twice(unittest.TestCase):
    def run_one(self, *ends, where="tcg"):
        """(how often it ran, the tally, what was printed)."""
        ends = [
            selftests.End(status=int("not ok" in x), text=x, lost="aborted" if LOST in x else "")
            for x in ends
        ]
        program = SimpleNamespace(name="a: b")
        with (
            mock.patch.object(selftests, "chosen", return_value=[]),
            mock.patch.object(accel, "accel", return_value=where),
            mock.patch.object(selftests.Run, "_attempt", side_effect=ends) as attempt,
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            run = selftests.Run("stock", [])
            run.one(program)
        return attempt.call_count, run.tally, out.getvalue()

    def test_what_passes_runs_once(self):
        runs, tally, _ = self.run_one("ok 1 a\n")
        self.assertEqual((runs, tally.passed, tally.failed, tally.flaky), (1, 1, 0, []))

    def test_what_fails_once_is_flaky(self):
        runs, tally, said = self.run_one("not ok 1 a\n", "ok 1 a\n")
        self.assertEqual((runs, tally.passed, tally.failed, tally.flaky), (2, 1, 0, ["a: b"]))
        self.assertIn("# not ok 1 a\n", said)
        self.assertIn("ok 1 selftests: a: b # flaky, 1 passed", said)

    def test_what_fails_twice_has_failed(self):
        runs, tally, said = self.run_one("not ok 1 a\n", "not ok 1 a\n")
        self.assertEqual((runs, tally.passed, tally.failed, tally.flaky), (2, 0, 1, []))
        self.assertIn("not ok 1 selftests: a: b # 0 passed, 1 failed", said)

    def test_a_run_that_the_emulator_lost_does_not_count(self):
        runs, tally, _ = self.run_one("not ok 1 a\n", LOST, "ok 1 a\n")
        self.assertEqual((runs, tally.passed, tally.failed, tally.flaky), (3, 1, 0, ["a: b"]))
        runs, tally, _ = self.run_one(LOST, LOST, LOST)
        self.assertEqual((runs, tally.failed), (3, 1))
        runs, tally, _ = self.run_one(LOST, "not ok 1 a\n")
        self.assertEqual((runs, tally.failed), (2, 1))

    def test_lost_data_and_real_machines_have_one_run(self):
        for runs, tally, _ in (
            self.run_one("# x: rig_pattern_ok(a)\nnot ok 1 a\n"),
            self.run_one("not ok 1 a\n", where="kvm"),
        ):
            self.assertEqual((runs, tally.failed), (1, 1))


if __name__ == "__main__":
    unittest.main()
