# SPDX-License-Identifier: GPL-2.0
"""The driver of `make check`: counts, limits, the end of the pipe."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

LAB = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(LAB))

from checks import lanes, runner, static, unit  # noqa: E402
from pvlab import turns  # noqa: E402


class Quiet(unittest.TestCase):
    """Logs in a directory of the test, lines in self.out."""

    def setUp(self):
        logs = tempfile.TemporaryDirectory()
        self.addCleanup(logs.cleanup)
        patch = mock.patch.object(runner, "LOGS", Path(logs.name))
        patch.start()
        self.addCleanup(patch.stop)
        self.out = io.StringIO()
        redirect = contextlib.redirect_stdout(self.out)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)


class Steps(Quiet):
    def test_statuses_are_counted(self):
        r = runner.Runner()
        r.step("good", ["true"])
        r.step("bad", ["sh", "-c", "echo because; exit 1"])
        r.step("left out", ["sh", "-c", "echo no need; exit 4"])
        self.assertEqual(r.summary(), 1)
        lines = self.out.getvalue().splitlines()
        self.assertEqual(lines[-1], "1 passed, 1 failed, 1 skipped")
        self.assertIn("    because", lines)
        self.assertIn("    left out: no need", lines)

    def test_all_passed_is_success_and_nothing_at_all_is_not(self):
        r = runner.Runner()
        self.assertEqual(r.summary(), 1)
        r.step("good", ["true"])
        self.assertEqual(r.summary(), 0)

    def test_limit_ends_the_whole_family(self):
        r = runner.Runner()
        started = time.monotonic()
        done = r.step("slow", ["sh", "-c", "sleep 300 & echo $!; wait"], limit=1)
        self.assertLess(time.monotonic() - started, 60)
        self.assertEqual(len(r.failed), 1)
        child = int(done.text.split()[0])
        for _ in range(100):
            if not Path(f"/proc/{child}").exists():
                break
            time.sleep(0.1)
        state = Path(f"/proc/{child}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z")

    def test_after_the_deadline_nothing_starts(self):
        r = runner.Runner(deadline=time.time() - 1)
        r.step("late", ["sh", "-c", "exit 1"])
        self.assertEqual((r.failed, r.skipped, r.summary()), (["late"], [], 1))

    def test_others_counts_are_added_and_their_failures_named(self):
        r = runner.Runner()
        r.add("stock: selftests", 5, 3, 1, ["vhost_poll: api", "lab: guest"])
        self.assertEqual((r.passed, len(r.failed), len(r.skipped)), (5, 3, 1))
        r.summary()
        self.assertIn("    stock: selftests: lab: guest\n", self.out.getvalue())

    def test_verdict_may_fail_what_succeeded(self):
        r = runner.Runner()
        r.step("warns", ["echo", "warning"], verdict=lambda done: done.text)
        self.assertEqual(r.failed, ["warns"])


class Lanes(Quiet):
    def setUp(self):
        super().setUp()
        file = mock.patch.object(runner.excuses, "FILE", runner.LOGS / "excused.jsonl")
        file.start()
        self.addCleanup(file.stop)

    def selftests(self, text, status=0):
        """The Runner after a lane that printed TEXT."""
        r = runner.Runner()
        done = runner.Done(status, text, 1, Path("log"))
        with mock.patch.object(lanes, "execute", return_value=done):
            lanes.selftests(r, "stock", [], {})
        return r

    def test_reasons_and_excuses_are_in_the_last_lines(self):
        r = self.selftests(
            "not ok 1 selftests: a: b # 0 passed, 1 failed, 3 s\n"
            "# excused: a: c: a trace\n# failed: a: b: because\n2 passed, 1 failed, 0 skipped\n",
            1,
        )
        self.assertEqual(r.summary(), 1)
        said = self.out.getvalue()
        self.assertIn("    stock: selftests: a: c: a trace\n", said)
        self.assertIn("    stock: selftests: a: b: because\n", said)

    def test_one_that_is_cut_short_or_empty_fails(self):
        for text, status in (
            ("ok 1 selftests: a: b\n", 0),
            ("ok 1 selftests: a: b\n", 143),
            ("0 passed, 0 failed, 3 skipped\n", 0),
            ("3 passed, 0 failed, 0 skipped\n", 1),
        ):
            with self.subTest(text):
                self.assertEqual(len(self.selftests(text, status).failed), 1)

    def test_one_without_its_kernel_fails(self):
        r = runner.Runner()
        lanes.run(r, "debug", [], mock.Mock(wait=lambda: None))
        self.assertEqual(r.failed, ["debug: selftests"])

    def steps_of(self, lane, tests, deadline=0.0):
        """What lanes.run() does, one step behind the other; and the Runner."""
        steps = []
        r = runner.Runner(deadline=deadline)
        r.step = lambda name, *_: steps.append(name) or mock.Mock(status=0)
        with mock.patch.object(lanes, "selftests", lambda *_: steps.append("selftests")):
            lanes.run(r, lane, tests)
        return steps, r

    def test_instructions_are_counted_behind_the_whole_stock_lane(self):
        whole = ["stock: build", "selftests", "stock: instructions"]
        self.assertEqual(self.steps_of("stock", [])[0], whole)
        self.assertEqual(self.steps_of("stock", ["vhost_blk"])[0], whole[:2])

    def test_instructions_leave_the_last_lane_its_time(self):
        enough = turns.LAST_LANE_SECONDS + turns.INSNS_SECONDS
        for more, counted in ((60, True), (-60, False)):
            steps, r = self.steps_of("stock", [], time.time() + enough + more)
            self.assertEqual("stock: instructions" in steps, counted)
            self.assertEqual(len(r.skipped), not counted)
            self.assertFalse(r.failed)

    def test_one_that_has_no_time_fails(self):
        r = runner.Runner(deadline=time.time() - 1)
        lanes.run(r, "stock", [])
        lanes.run(r, "debug", [])
        self.assertEqual(r.failed, ["stock: selftests", "debug: selftests"])

    def test_one_that_is_missing_fails(self):
        check = load_check()
        r = runner.Runner()
        with mock.patch.object(check, "run_lanes"):
            check.check(r, ("static", "unit", "stock", "debug"), [])
        self.assertEqual(r.failed, ["static", "unit", "stock", "debug"])


def load_check():
    """tools/lab/check as a module."""
    loader = importlib.machinery.SourceFileLoader("lab_check", str(LAB / "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lab_check", loader))
    loader.exec_module(module)
    return module


class Pipe(unittest.TestCase):
    def test_closed_pipe_neither_ends_it_nor_shows_a_traceback(self):
        code = (
            "from checks.runner import say\nimport sys\n"
            "for n in range(100000): say('x' * 80)\n"
            "sys.exit(7)\n"
        )
        read, write = os.pipe()
        proc = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=write,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(LAB)},
        )
        os.close(write)
        os.read(read, 10)
        os.close(read)
        err = proc.communicate(timeout=60)[1]
        self.assertEqual((proc.returncode, err), (7, b""))


class Counts(unittest.TestCase):
    def test_unittest(self):
        self.assertEqual(unit.python_counts("Ran 5 tests in 1s\n\nOK\n"), (5, 0, 0))
        text = "Ran 9 tests in 1s\n\nFAILED (failures=2, errors=1, skipped=3)\n"
        self.assertEqual(unit.python_counts(text), (3, 3, 3))
        self.assertIsNone(unit.python_counts("Traceback"))

    def test_cargo(self):
        one = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured\n"
        two = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n"
        self.assertEqual(unit.cargo_counts(one + two), (13, 2, 1))
        self.assertIsNone(unit.cargo_counts("error: could not compile"))


class Files(unittest.TestCase):
    SPDX = "// SPDX-License-Identifier: GPL-2.0\n"

    def test_good_file(self):
        self.assertEqual(static.one_file("a.c", self.SPDX + "int a;\n"), [])

    def test_each_mistake_is_found(self):
        home = "/ro" "ot/x"
        for text in (
            "int a;\n",
            self.SPDX + "int a; \n",
            self.SPDX + "int a;",
            self.SPDX + "\n" * 900,
            self.SPDX + f'char *a = "{home}";\n',
        ):
            self.assertEqual(len(static.one_file("a.c", text)), 1, text[:80])

    def test_sparse_warnings_about_ours_fail(self):
        done = runner.Done(0, "", 0, Path())
        done.text = "a/usr/src/x.h:1: warning: theirs\n"
        self.assertIsNone(static.sparse_verdict(done))
        done.text += "/x/out/build/6/drivers/a.c:1:2: warning: ours\n"
        self.assertIn("ours", static.sparse_verdict(done))


if __name__ == "__main__":
    unittest.main()
