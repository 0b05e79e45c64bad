# SPDX-License-Identifier: GPL-2.0
"""What a soak counts, and what follows from that."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import accel, excuses, selftests, soak, traces  # noqa: E402
from pvlab.verdict import End  # noqa: E402

GOOD = End(0, "ok 1 a\n")
BAD = End(1, "# a: took longer than its limit\nnot ok 1 a\n")
SPOILED = End(1, BAD.text, deaf=[1])


class Rates(unittest.TestCase):
    def test_none_of_many_is_the_rule_of_three(self):
        for runs in (30, 100, 1000):
            self.assertAlmostEqual(soak.at_most(0, runs) * runs, 3, delta=0.15)

    def test_some(self):
        self.assertAlmostEqual(soak.at_most(1, 1), 1)
        # Clopper and Pearson's, one-sided
        self.assertAlmostEqual(soak.at_most(1, 10), 0.3942, places=3)
        self.assertAlmostEqual(soak.at_most(5, 100), 0.1023, places=3)

    def test_in_words(self):
        said = soak.in_words(soak.Count(passed=100))
        self.assertEqual(said, "0 of 100 runs failed; at most 2.95% do, or 1 in 34 (95%)")
        self.assertIn("2 more were spoiled", soak.in_words(soak.Count(1, 0, 2)))


class Runs(unittest.TestCase):
    def soak(self, *ends, programs=1, **limits):
        """(its status, the Soak, what was printed)."""
        ends = iter(ends)
        names = [selftests.Program(Path("a"), Path(f"p{i}"), 1) for i in range(programs)]

        def attempt(run, program):
            (run.logs / f"a.{program.path.name}.log").write_text("all of it")
            return next(ends), True

        def ready(run, program):
            del program
            run.host = SimpleNamespace(
                guests_only=False,
                up=lambda: True,
                stop=lambda: None,
                run=lambda *a, **k: SimpleNamespace(out=""),
                kernel=SimpleNamespace(ours=Path("/nonexistent")),
            )

        with (
            tempfile.TemporaryDirectory() as directory,
            mock.patch.object(selftests, "chosen", return_value=names),
            mock.patch.object(accel, "accel", return_value="tcg"),
            mock.patch.object(excuses, "FILE", Path(directory) / "excused"),
            mock.patch.object(selftests.Run, "_attempt", attempt),
            mock.patch.object(selftests.Run, "ready", ready),
            mock.patch.object(selftests.Run, "build"),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            run = soak.Soak("stock", [], **limits)
            run.logs = Path(directory) / "logs"
            status = run.all()
            run.kept = sorted(p.name for p in run.logs.glob("*.[0-9].log"))
        return status, run, out.getvalue()

    def test_each_runs_so_often(self):
        status, run, said = self.soak(*[GOOD] * 6, programs=2, times=3)
        self.assertEqual((status, [c.passed for c in run.counts.values()]), (0, [3, 3]))
        self.assertIn("# a: p1: 0 of 3 runs failed; at most 63.16% do", said)

    def test_a_failure_has_no_second_chance(self):
        status, run, said = self.soak(GOOD, BAD, GOOD, times=3)
        self.assertEqual((status, run.counts["a: p0"].failed, run.kept), (1, 1, ["a.p0.2.log"]))
        self.assertIn("# failed: a: p0: run 2: a: a: took longer than its limit", said)
        self.assertIn("1 of 3 runs failed", said)

    def test_one_that_was_spoiled_is_neither(self):
        status, run, said = self.soak(GOOD, SPOILED, times=2)
        self.assertEqual((status, run.counts["a: p0"]), (0, soak.Count(1, 0, 1)))
        self.assertIn(traces.DEAF, said)

    def test_nothing_but_spoiled_ones_is_red(self):
        self.assertEqual(self.soak(SPOILED, times=1)[0], 1)

    def test_minutes_end_it(self):
        status, run, _ = self.soak(times=5, minutes=1e-9)
        self.assertEqual((status, run.counts["a: p0"].runs), (1, 0))


if __name__ == "__main__":
    unittest.main()
