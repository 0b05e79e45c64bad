# SPDX-License-Identifier: GPL-2.0
"""Which failures stand: each planted bug alone, and beside each trace of the emulator's."""

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import (  # noqa: E402
    accel,
    detect,
    excuses,
    guest,
    ktap,
    selftests,
    traces,
    turns,
    verdict,
)
from pvlab.agent import Gone, Silent, Timeout  # noqa: E402
from pvlab.detect import KernelReports  # noqa: E402
from pvlab.host import NoBoot  # noqa: E402
from pvlab.verdict import End, judge  # noqa: E402


def comments(text):
    return "".join(f"# {line}\n" for line in str(text).splitlines())


def reported(log, where="guest 'g'"):
    """What a test prints of a guest whose kernel's log that is."""
    error = detect.KernelReports(where, detect.scan_text(log))
    return comments(f"Traceback (most recent call last):\npvlab.detect.KernelReports: {error}")


def case(name, said=""):
    """A case that failed."""
    return f"{said}not ok 1 {name}\n"


ABORT = "ERROR:../../accel/tcg/x.c:81:f: assertion failed: (y)"
STALL = "[ 9.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"
MASKED = """\
[ 152.5] WARNING: possible circular locking dependency detected
[ 152.6]  asm_sysvec_call_function_single+0x16/0x20
[ 152.6]  lock_acquire+0x1fd/0x510
[ 152.6]  _raw_spin_lock_irqsave+0x3b/0x60
"""
FLAGS = """\
[ 311.2] WARNING: CPU: 0 PID: 998 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca/0x160
[ 311.3] RSP: 0000:fffffe0000010f28 EFLAGS: {}
[ 311.4]  <#DB>
[ 311.4]  asm_exc_debug+0x1e/0x40
[ 311.5] RSP: 0018:ffffc90000f4fb60 EFLAGS: 03c4a382
"""
LOST_GUEST = comments(
    "Traceback (most recent call last):\npvlab.agent.Gone: the virtual machine has ended\n"
    "--- last lines of guest 'g'\n[ 3.1] fine\nQEMU ended with status 0\n---"
)
LATE = "Traceback (most recent call last):\npvlab.agent.Timeout: time limit reached: fio\n"

# The emulator's traces, as what they add to an End.
TRACES = {
    "a lost guest": {"text": case("other", LOST_GUEST)},
    "a deaf CPU and its stall": {"deaf": [1], "reports": detect.scan_text(STALL)},
    "an interrupt that was off": {"reports": detect.scan_text(MASKED)},
    "flags that no CPU has": {"reports": detect.scan_text(FLAGS.format("03c0a002"))},
    "a guest's clock": {
        "reports": detect.scan_text("[ 944.4] fine\n[ 14.7] WARNING: CPU: 0 PID: 1 at x.c:1\n")
    },
    "an abort": {"cut": "gone", "aborted": True, "why": ABORT},
    "a guest that started again": {"text": f"lab: guest 'g' {traces.STARTED_AGAIN}\n"},
}
# Bugs of ours leave these, and a check has to be red for each.
FRAME = "[ 1.0] WARNING: CPU: 0 PID: 1 at x.c:1\n[ 1.0]  {}pvblk_probe+0x1/0x20 [virtio_pvblk]\n"
PLANTED = {
    "corruption, by fio": {"text": case("a", "# verify: bad magic header 0, wanted acca\n")},
    "corruption, by our C": {"text": case("a", "# e.c:38: expected rig_pattern_ok(g, 1, i)\n")},
    "corruption, by SHA-1": {
        "text": case("a", comments("AssertionError: 'da39a3' != 'ffffff' : sha1sum"))
    },
    "an image not as it was left": {
        "text": case("a", comments("AssertionError: 1 != 0 : not as the guest left them"))
    },
    "e2fsck": {"text": case("a", comments("AssertionError: 4 != 0 : UNEXPECTED INCONSISTENCY"))},
    "fio's status": {"text": case("a", comments("AssertionError: 1 != 0"))},
    "a lost wake-up in a guest": {"text": case("a", comments(LATE)), "late": True},
    "a lost wake-up on the host": {
        "text": case("a", "# a: took longer than its limit\n"),
        "late": True,
    },
    "a hang of the program": {"text": "ok 1 a\n", "cut": "limit", "late": True},
    "a hang of the host VM": {"text": "ok 1 a\n", "cut": "silent", "late": True},
    "a hang at boot": {
        "text": case("a", f"lab: guest 'a' {traces.STARTED_AGAIN}\n" + comments(LATE)),
        "late": True,
    },
    "a host VM that is gone": {"text": "ok 1 a\n", "cut": "gone"},
    "a leak in a guest": {
        "text": case("a", reported("[ 1.0] kmemleak: 3 new suspected memory leaks (see x)\n"))
    },
    "a panic of a guest": {"text": case("a", reported("[ 1.0] Kernel panic - not syncing: x\n"))},
    "an oops without a frame of ours": {
        "text": case("a", reported("[ 1.0] BUG: kernel NULL pointer dereference, address: 0\n"))
    },
    "a warning of a guest whose clock went back": {
        "text": case(
            "a",
            reported(
                "[ 9.0] WARNING: CPU: 0 PID: 1 at x.c\n[ 1.0] WARNING: CPU: 0 PID: 1 at y.c\n"
            ),
        )
    },
    "a slab report": {"text": case("a", reported("[ 1.0] list_del corruption. x\n"))},
    "a hung task in io_schedule": {
        "text": case("a", reported("[ 1.0] INFO: task fio:8 blocked for more than 120 seconds.\n"))
    },
    "a stall of a guest": {"text": case("a", reported(STALL))},
    "a report of ours in a guest": {"text": case("a", reported(FRAME.format("")))},
    "one with a guess": {"text": case("a", reported(FRAME.format("? ")))},
    "KASAN on the host": {
        "reports": detect.scan_text("[ 1.0] BUG: KASAN: slab-use-after-free in f+0x1/0x2\n")
    },
    "a warning of the host": {
        "reports": detect.scan_text("[ 1.0] WARNING: CPU: 0 PID: 1 at y.c:1\n")
    },
    "a stall with our poller": {
        "reports": detect.scan_text(STALL + "[ 9.0] CPU: 1 PID: 7 Comm: vhost-poll/1-a x\n")
    },
    "a status without a case": {"text": "ok 1 a\n", "status": 139},
    "a traceback beside a lost guest": {
        "text": case("a", LOST_GUEST + comments("AssertionError: 1 != 2"))
    },
    "data beside a lost guest": {
        "text": case("a", comments("verify: bad magic header") + LOST_GUEST)
    },
    "a guest that QEMU gave up": {"text": case("a", LOST_GUEST.replace("status 0", "signal 11"))},
}


def end(*parts):
    """An End with all of the parts in it; what ended the program is the first one's."""
    made = End()
    for part in parts:
        made.text += part.get("text", "")
        made.reports += part.get("reports", [])
        made.deaf += part.get("deaf", [])
        made.status = made.status or part.get("status")
        if not made.cut:
            made.cut = part.get("cut", "")
            made.aborted = part.get("aborted", False)
        made.why += part.get("why", "")
    if made.status is None and not made.cut:
        made.status = int("not ok" in made.text)
    return made


class Planted(unittest.TestCase):
    def test_each_alone_stands(self):
        for name, bug in PLANTED.items():
            with self.subTest(name):
                found = judge(end(bug))
                self.assertEqual(len(found.stands), 1, found)

    def test_a_trace_beside_it_changes_nothing(self):
        for name, bug in PLANTED.items():
            for trace, left in TRACES.items():
                if bug.get("late") and "deaf" in left:
                    continue
                with self.subTest(f"{name}, {trace}"):
                    first = judge(end(bug)).stands
                    self.assertEqual(judge(end(bug, left)).stands, first)

    def test_lateness_beside_a_deaf_cpu_is_no_result(self):
        # Which of the two it was cannot be told: so the run does not pass, it is repeated.
        for name, bug in PLANTED.items():
            if bug.get("late"):
                with self.subTest(name):
                    found = judge(end(bug, {"deaf": [1]}))
                    self.assertFalse(found.good)
                    self.assertEqual((found.stands, found.excused), ([], [traces.DEAF]))

    def test_a_report_of_ours_that_bears_a_trace_stands(self):
        ours = "[ 152.6]  vhost_poller_run+0x3b/0x60 [vhost_poll]\n"
        log = "[ 944.4] fine\n[ 14.7] WARNING: CPU: 0 PID: 1 at x.c:1\n"
        for text in (MASKED + ours, log + ours.replace("152.6", "14.7")):
            reports = detect.scan_text(text)
            self.assertNotEqual(traces.of_report(reports[0]), "")
            self.assertEqual(len(judge(end({"reports": reports})).stands), 1)

    def test_flags_that_a_cpu_can_have_excuse_nothing(self):
        for flags in ("00000286", "00210382", "003f7fd7"):
            reports = detect.scan_text(FLAGS.format(flags))
            self.assertEqual(len(judge(end({"reports": reports})).stands), 1)

    def test_an_oops_that_bears_a_trace_stands(self):
        log = "[ 944.4] fine\n[ 14.7] BUG: TASK stack guard page was hit at 0\n"
        self.assertEqual(len(judge(end({"reports": detect.scan_text(log)})).stands), 1)

    def test_a_real_machine_has_no_excuse(self):
        for name, left in TRACES.items():
            with self.subTest(name):
                self.assertEqual(judge(end(left), emulated=False).excused, [])


class Excused(unittest.TestCase):
    def test_a_lost_guest_as_our_runner_prints_it(self):
        def printed(error, *notes):
            class Sample(unittest.TestCase):
                def test_guest(self):
                    for note in notes:
                        error.add_note(note)
                    raise error

            out = io.StringIO()
            status = ktap.run(unittest.TestSuite([Sample("test_guest")]), out)
            return End(status, out.getvalue())

        tail = f"{guest.TAIL} 'g'\n[    3.1] fine\nQEMU ended with status 0\n---"
        found = judge(printed(Gone("the virtual machine has ended"), tail))
        self.assertEqual((found.stands, found.excused), ([], [traces.LOST_GUEST]))
        for error in (Timeout("time limit reached: fio"), AssertionError("1 != 0")):
            self.assertEqual(len(judge(printed(error, tail)).stands), 1)
        self.assertEqual(len(judge(printed(Gone("the virtual machine has ended"))).stands), 1)

    def test_each_trace_alone_is_no_result(self):
        for name, left in TRACES.items():
            with self.subTest(name):
                found = judge(end(left))
                self.assertEqual(found.stands, [])
                if "text" not in left or "not ok" in left["text"]:
                    self.assertEqual(len(found.excused), 1)
                else:
                    self.assertEqual((found.good, found.started_again), (True, ["g"]))

    def test_what_passes_is_good(self):
        self.assertTrue(judge(end({"text": "ok 1 a\nok 2 b # SKIP\n"})).good)
        self.assertTrue(judge(End(0, "# TODO\nnot ok 1 a # TODO later\n")).good)

    def test_cases_are_told_apart(self):
        text = f"# one\nok 1 a\n{case('b', comments(LATE))}{case('c', LOST_GUEST)}"
        cases = verdict.failed_cases(text)
        self.assertEqual([name for name, _ in cases], ["b", "c"])
        self.assertNotIn("one", cases[0][1])
        found = judge(end({"text": text}))
        self.assertEqual(found.stands, ["b: pvlab.agent.Timeout: time limit reached: fio"])
        self.assertEqual(found.excused, [traces.LOST_GUEST])


class Kept(unittest.TestCase):
    """The file of excuses in a directory of the test."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        file = Path(directory.name) / "cache/excused.jsonl"
        self.enterContext(mock.patch.object(excuses, "FILE", file))
        self.enterContext(mock.patch.object(excuses, "commit", lambda: "c0ffee"))
        durations = file.with_name("durations.json")
        self.enterContext(mock.patch.object(turns, "DURATIONS", durations))
        # `.ci/run` sets them for us, too.
        environment = {k: v for k, v in os.environ.items() if k not in ("LAB_DEADLINE", "V")}
        self.enterContext(mock.patch.dict("os.environ", environment, clear=True))


class Journal(Kept):
    def test_it_is_kept_and_told(self):
        self.assertEqual(excuses.history(), [])
        excuses.keep("stock", "a: b", traces.DEAF)
        excuses.keep("debug", "a: b", traces.DEAF)
        with open(excuses.FILE, "a") as f:
            f.write("broken\n")
        line = json.loads(excuses.FILE.read_text().splitlines()[0])
        self.assertEqual(set(line), {"date", "commit", "lane", "program", "trace"})
        told = "\n".join(excuses.history())
        self.assertIn(f"2 x {traces.DEAF}", told)
        self.assertIn("a: b (2)", told)

    def test_old_ones_are_forgotten(self):
        excuses.FILE.parent.mkdir(parents=True)
        old = {"date": "2001-01-01T00:00:00Z", "lane": "x", "program": "y", "trace": "z"}
        excuses.FILE.write_text(json.dumps(old) + "\n")
        self.assertEqual(excuses.history(), [])


GOOD = {"text": "ok 1 a\n"}
LOST = {"text": case("a", LOST_GUEST)}


class FakeHost:
    """A host VM that is there, and on which everything works."""

    place = "in the host VM"
    guests_only = False

    def __init__(self, answers=True):
        self.answers = answers
        self.kernel = SimpleNamespace(ours=Path("/nonexistent"))

    def up(self):
        return self.answers

    def stop(self):
        pass

    def run(self, *args, **kw):
        del args, kw
        return SimpleNamespace(out="", status=0)


class Runs(Kept):
    """How often a program runs, and what comes of it."""

    def program(self, name, directory="a"):
        return selftests.Program(Path(directory), Path(name), 1)

    def run_all(self, programs, ends, where="tcg", hosts=None, late=False, lane="stock"):
        """(the programs as they ran, the Run, what was printed); ENDS are (parts, usable)."""
        ran = []
        ends = iter(ends)
        hosts = iter(hosts or [])

        def attempt(run, program):
            ran.append(program.path.name)
            parts, usable = next(ends)
            if not usable:
                run.host.answers = False
            return end(*parts), usable

        def ready(run, program):
            del program
            run.host = run.host or next(hosts, None) or FakeHost()

        with (
            mock.patch.object(selftests, "chosen", return_value=list(programs)),
            mock.patch.object(accel, "accel", return_value=where),
            mock.patch.object(selftests.Run, "_attempt", attempt),
            mock.patch.object(selftests.Run, "ready", ready),
            mock.patch.object(selftests.Run, "build"),
            mock.patch.object(selftests.Run, "late", return_value=late),
            tempfile.TemporaryDirectory() as logs,
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            run = selftests.Run(lane, [])
            run.logs = Path(logs)
            status = run.all()
        return ran, SimpleNamespace(status=status, tally=run.tally, said=out.getvalue())

    def one(self, *ends, **kw):
        ran, run = self.run_all([self.program("b")], [([e], True) for e in ends], **kw)
        return len(ran), run

    def test_what_came_with_a_report_is_not_forgotten(self):
        run = object.__new__(selftests.Run)
        reports = detect.scan_text(MASKED)
        for cause, up, cut, usable in (
            (None, True, "", True),
            (Timeout("late"), True, "limit", True),
            (Silent("nothing"), True, "silent", False),
            (Gone("gone"), False, "gone", False),
            # given up because of the report
            (Gone("gone"), True, "", False),
        ):
            with self.subTest(f"{cause!r}, {up}"):
                run.host = FakeHost(up)
                error = detect.KernelReports("host VM", reports)
                error.__cause__ = cause
                error.status = None if cause else 0
                found = End()
                # A lockdep report spoils a host VM.
                with mock.patch.object(selftests, "SPOILS", set()):
                    went_on = run._guarded(found, mock.Mock(side_effect=error))
                self.assertEqual((found.cut, went_on), (cut, usable))
                self.assertEqual(found.reports, reports)

    def test_what_passes_runs_once(self):
        runs, run = self.one(GOOD)
        self.assertEqual((runs, run.status, run.tally.failed), (1, 0, 0))

    def test_each_planted_bug_is_red_at_once_with_the_reason_at_the_end(self):
        for name, bug in PLANTED.items():
            with self.subTest(name):
                runs, run = self.one(bug)
                self.assertEqual((runs, run.status), (1, 1))
                self.assertIn("# failed: a: b: ", "\n".join(run.said.splitlines()[-3:]))

    def test_each_is_red_with_a_trace_beside_it(self):
        for name, bug in PLANTED.items():
            for trace, left in TRACES.items():
                with self.subTest(f"{name}, {trace}"):
                    both = {
                        key: bug.get(key, type(left.get(key))())
                        + left.get(key, type(bug.get(key))())
                        for key in ("text", "reports", "deaf")
                        if key in bug or key in left
                    }
                    one = {**left, **bug, **both}
                    _, run = self.one(one, one, one, one, one)
                    self.assertEqual(run.status, 1)

    def test_a_lost_run_is_no_pass(self):
        runs, run = self.one(LOST, GOOD)
        self.assertEqual((runs, run.status, len(run.tally.excused)), (2, 0, 1))
        self.assertIn(f"# excused: a: b: {traces.LOST_GUEST}", run.said)
        self.assertEqual(len(excuses.kept()), 1)
        runs, run = self.one(LOST, {"text": case("a", comments(LATE))})
        self.assertEqual((runs, run.status), (2, 1))

    def test_the_same_trace_twice_on_end_stands(self):
        runs, run = self.one(LOST, LOST, GOOD)
        self.assertEqual((runs, run.status), (2, 1))
        self.assertIn(
            f"# failed: a: b: {traces.LOST_GUEST}, and so it was in the run before", run.said
        )

    def test_more_than_three_make_a_lane_red(self):
        programs = [self.program(name) for name in "bcde"]
        ends = [([end], True) for _ in programs for end in (LOST, GOOD)]
        ran, run = self.run_all(programs[:3], ends)
        self.assertEqual(("".join(ran), run.status), ("bbccdd", 0))
        ran, run = self.run_all(programs, ends)
        self.assertEqual(("".join(ran), run.status), ("bbccdde", 1))
        again = {"text": f"lab: guest 'g' {traces.STARTED_AGAIN}\n" * 4 + "ok 1 a\n"}
        runs, run = self.one(again)
        self.assertEqual((runs, run.status), (1, 1))
        self.assertIn("4 runs, and 3 are the most in a lane", run.said)

    def test_a_guest_that_started_again_is_named(self):
        _, run = self.one({"text": f"lab: guest 'g' {traces.STARTED_AGAIN}\nok 1 a\n"})
        self.assertEqual(run.status, 0)
        self.assertIn(f"# excused: a: b: guest 'g': {traces.SILENT_GUEST}", run.said)

    def test_an_empty_lane_is_red(self):
        _, run = self.run_all([], [])
        self.assertEqual(run.status, 1)

    def test_a_lane_that_is_cut_short_is_red(self):
        ran, run = self.run_all([self.program("b")], [], late=True)
        self.assertEqual((ran, run.status), ([], 1))
        self.assertIn("not ok 1 selftests: a: b # did not run: out of time", run.said)

    def turns(self, day, lane="stock", **env):
        """(the programs as they ran, what was printed) of a lane with four long ones."""
        long = [replace(self.program(f"l{n}", "z"), long=True, timeout=200) for n in range(4)]
        environment = mock.patch.dict("os.environ", {"LAB_DAY": str(day), **env})
        with environment, mock.patch.object(turns, "PER_DAY", 2):
            programs = [*long, self.program("b")]
            ran, run = self.run_all(programs, [([GOOD], True)] * 5, lane=lane)
            self.assertEqual(run.status, 0)
        return ran, run.said

    def test_one_that_begins_late_is_not_waited_for(self):
        run = object.__new__(selftests.Run)
        program = self.program("b")
        run.deadline = 0
        self.assertEqual(run.limit(program), program.timeout)
        run.deadline = time.time() - selftests.GRACE_SECONDS + 100
        self.assertEqual(run.limit(program), program.timeout)
        self.assertLess(run.limit(replace(program, timeout=900)), 101)

    def test_long_ones_have_their_turn_by_date(self):
        ran, said = self.turns(0)
        self.assertEqual(ran, ["b", "l0", "l1"])
        self.assertIn(f"selftests: z: l2 # SKIP {turns.LATER}", said)
        self.assertEqual(self.turns(1)[0], ["b", "l2", "l3"])

    def test_a_long_form_is_one_of_a_program_with_turns_too(self):
        for long in (False, True):
            program = replace(self.program("b"), long=long, full=True)
            self.assertEqual(program.env, {"FULL": "1"})

    def test_with_a_deadline_so_many_as_there_is_time_for(self):
        def at(seconds, day=0):
            others = selftests.CLOSING_SECONDS + turns.LAST_LANE_SECONDS
            deadline = str(time.time() + others + seconds)
            turns.DURATIONS.unlink(missing_ok=True)
            return self.turns(day, LAB_DEADLINE=deadline)[0]

        self.assertEqual(at(50), ["b"])
        self.assertEqual(at(150), ["b", "l0"])
        self.assertEqual(at(350), ["b", "l0", "l1", "l2"])
        # On every second day instructions are counted.
        self.assertEqual(at(350, 1), ["b"])
        self.assertEqual(at(turns.INSNS_SECONDS + 150, 1), ["b", "l2"])

    def test_one_that_does_not_fit_leaves_its_time_to_others(self):
        turns.DURATIONS.unlink(missing_ok=True)
        turns.remember("stock", "z: l0", 1000)
        run = object.__new__(selftests.Run)
        run.lane, run.deadline = "stock", 1
        long = [replace(self.program(f"l{n}", "z"), long=True, timeout=200) for n in range(3)]
        self.assertEqual(run.take_turns(long, 250), (long[1:], long[:1]))

    def test_the_last_lane_takes_all_the_time(self):
        def at(day, seconds):
            deadline = str(time.time() + selftests.CLOSING_SECONDS + seconds)
            turns.DURATIONS.unlink(missing_ok=True)
            return self.turns(day, "debug", LAB_DEADLINE=deadline)[0]

        self.assertEqual(at(0, 350), ["b", "l0", "l1", "l2"])
        self.assertEqual(at(1, 850), ["b", "l2", "l3", "l0", "l1"])

    def test_those_here_have_what_the_host_vms_leave(self):
        def at(seconds, lane="debug"):
            deadline = str(time.time() + selftests.CLOSING_SECONDS + seconds)
            turns.DURATIONS.unlink(missing_ok=True)
            long = [replace(self.program(f"l{n}", "z"), long=True, timeout=200) for n in range(4)]
            alone = [replace(p, path=Path(f"h{n}"), here=True) for n, p in enumerate(long[:2])]
            with (
                mock.patch.dict("os.environ", {"LAB_DAY": "0", "LAB_DEADLINE": deadline}),
                mock.patch.object(selftests.here, "possible", return_value=True),
            ):
                return self.run_all([*long, *alone], [([GOOD], True)] * 6, lane=lane)

        # They leave half of it, and a run of these tests takes no time.
        ran, _ = at(250)
        self.assertEqual(ran, ["l0", "h0", "h1"])
        ran, _ = at(60)
        self.assertEqual(ran, ["h0", "h1"])
        ran, run = at(40)
        self.assertEqual(ran, [])
        self.assertIn(f"selftests: z: h1 # SKIP {turns.LATER}", run.said)
        self.assertEqual(at(0, "stock")[0], [])
        self.assertEqual(at(turns.LAST_LANE_SECONDS + 60, "stock")[0], ["h0", "h1"])

    def test_lost_closing_checks_are_done_by_another_run(self):
        deaf = {"text": case("c", comments(LATE)), "deaf": [1]}
        ran, run = self.run_all(
            [self.program("b"), self.program("c")],
            [([GOOD], True), ([deaf], False), ([GOOD], True), ([GOOD], True)],
        )
        self.assertEqual((ran, run.status), (["b", "c", "c", "b"], 0))
        self.assertIn("selftests: a: b (again)", run.said)
        self.assertIn("unload after a: c, a: b", run.said)

    def test_or_are_said_to_be_undone(self):
        gone = {"text": "", "cut": "gone"}
        _, run = self.run_all(
            [self.program("b"), self.program("c")], [([GOOD], True), ([gone], False)]
        )
        self.assertEqual(run.status, 1)
        self.assertIn("undone, the host VM is lost: those of a: b, a: c", run.said)

    def test_they_come_at_the_end_of_each_directory(self):
        _, run = self.run_all(
            [self.program("b"), self.program("c", "d")], [([GOOD], True), ([GOOD], True)]
        )
        self.assertIn("unload after a: b #", run.said)
        self.assertIn("unload after d: c #", run.said)


class Starting(unittest.TestCase):
    """A guest that says nothing while it starts."""

    def start(self, *outcomes, console="", running=True, **kw):
        """(how often it was started, what was raised)."""
        kernel = SimpleNamespace(lane="stock", release="r", image=Path(), modules=Path())
        one = guest.Guest("g", kernel=kernel, **kw)
        outcomes = iter(outcomes)
        starts = []

        def connect(ports, timeout, alive, *, late):
            del ports, timeout, late
            alive()
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        def start(await_agent):
            starts.append(1)
            one.process = SimpleNamespace(returncode=0, poll=lambda: 0)
            return await_agent()

        with (
            mock.patch.object(guest, "emulated", return_value=True),
            mock.patch.object(guest, "keep_interrupts_single"),
            mock.patch.object(guest.agent, "Agent", connect),
            mock.patch.object(one, "_start", start),
            mock.patch.object(one, "log", return_value=console),
            mock.patch.object(one, "qmp", return_value={"running": running}),
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                one.start()
                raised = None
            except guest.LabError as e:
                raised = e
        return len(starts), raised, err.getvalue()

    def test_it_is_started_once_more_and_named(self):
        for first in (Timeout("late"), Gone("gone")):
            starts, raised, said = self.start(first, "agent")
            self.assertEqual((starts, raised), (2, None))
            self.assertEqual(traces.silent_starts(said), ["g"])

    def test_a_planted_hang_stays_one(self):
        starts, raised, _ = self.start(Timeout("late"), Timeout("late"))
        self.assertEqual((starts, type(raised)), (2, Timeout))

    def test_one_that_spoke_has_one_start(self):
        starts, raised, _ = self.start(Gone("gone"), console="[ 0.1] a word\n")
        self.assertEqual((starts, type(raised)), (1, Gone))
        starts, raised, _ = self.start(Timeout("late"), Timeout("late"), console="[ 0.1] a word\n")
        self.assertEqual((starts, type(raised)), (1, Timeout))

    def test_one_whose_devices_were_not_set_up_has_one(self):
        starts, raised, _ = self.start(Timeout("late"), Timeout("late"), running=False)
        self.assertEqual((starts, type(raised)), (1, Timeout))

    def test_one_that_boots_from_its_disk_has_one(self):
        starts, raised, _ = self.start(Timeout("late"), "agent", direct_kernel=False)
        self.assertEqual((starts, type(raised)), (1, Timeout))


class HostBoots(unittest.TestCase):
    """What comes of a host VM that does not boot, and then does."""

    def boot(self, error, lane="stock", emulated=True):
        run = object.__new__(selftests.Run)
        run.lane, run.tally, run.excuse = lane, mock.Mock(), mock.Mock()
        host = mock.Mock()
        host.start.side_effect = [error, None]
        with mock.patch.object(selftests, "emulated", lambda: emulated):
            run._boot(host)
        run.excuse.assert_called_once_with("host VM", traces.NO_BOOT)

    def test_without_a_word_it_boots_once_more(self):
        for lane in ("stock", "debug"):
            with self.subTest(lane):
                self.boot(NoBoot("late"), lane)

    def test_a_report_of_the_stock_kernel_is_not_ours(self):
        self.boot(KernelReports("host VM", []))

    def test_a_report_of_a_kernel_with_our_patches_stands(self):
        with self.assertRaises(KernelReports):
            self.boot(KernelReports("host VM", []), "debug")

    def test_a_real_machine_has_no_excuse(self):
        for error in (NoBoot("late"), KernelReports("host VM", [])):
            with self.subTest(str(error)), self.assertRaises(type(error)):
                self.boot(error, emulated=False)


if __name__ == "__main__":
    unittest.main()
