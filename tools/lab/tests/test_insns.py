# SPDX-License-Identifier: GPL-2.0
"""The plugin counts exactly, on a machine whose only program is known: insns.S."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pvlab import insns  # noqa: E402


def symbols_of(program):
    said = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return {name: int(address, 16) for address, _, name in map(str.split, said.splitlines())}


class Machine(unittest.TestCase):
    """The program's only window: `doc`, its only CPU, and the instructions of each class."""

    marks = {}
    settings = "sample 2\n"
    defines = ()

    @classmethod
    @mock.patch.dict(os.environ, LAB_QEMU="installed")
    def setUpClass(cls):
        """With the installed emulator: the other one takes minutes to build."""
        cls.work = tempfile.TemporaryDirectory(prefix="insns")
        cls.addClassCleanup(cls.work.cleanup)
        directory = Path(cls.work.name)
        program = directory / "program"
        argv = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x100000"]
        argv += ["-Wl,--build-id=none", *cls.defines, "-o", program, HERE / "insns.S"]
        subprocess.run([str(a) for a in argv], check=True)
        symbols = symbols_of(program)
        lines = [f"{kind} {symbols[name]:#x}\n" for kind, name in cls.marks.items()]
        (directory / "marks").write_text("".join([*lines, cls.settings]))
        argv = [insns.program(), "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "16"]
        argv += ["-nodefaults", "-display", "none", "-device", "isa-debug-exit,iobase=0xf4"]
        argv += ["-plugin", f"{insns.build()},dir={directory}", "-kernel", program]
        subprocess.run([str(a) for a in argv], check=False, timeout=60)
        cls.doc = json.loads((directory / "1.json").read_text())
        cls.cpu = cls.doc["cpus"][0]
        cls.totals = Counter()
        for _, count, _, kind, times in cls.doc["blocks"]:
            cls.totals[kind] += count * times


class Poller(Machine):
    marks = {
        "round": "round",
        "work": "found",
        "io": "found",
        "break": "schedule",
        "interrupt": "handler",
    }

    def test_a_sample_is_counted_to_the_instruction(self):
        # Rounds 6 and 5; found: 12, and behind each round dec, jnz, call of the next.
        count = (4 + 12 + 3) + (6 + 2 + 12 + 3)
        self.assertEqual(self.totals["work"], count)
        self.assertEqual(self.cpu["work"], {"rounds": 2, "ios": 2})
        self.assertEqual(self.cpu["samples"], [[2, 2, count]])

    def test_an_interrupt_is_counted_apart(self):
        self.assertEqual(self.totals["interrupt"], 2 + 50 + 2)
        self.assertEqual(self.cpu["interrupts"], 1)

    def test_a_round_without_work_is_counted_apart(self):
        # Rounds 7, 4 and 2; the last one ends with the window.
        self.assertEqual(self.totals["idle"], 3 * (9 + 3))
        self.assertEqual(self.cpu["idle"], {"rounds": 3, "ios": 0})

    def test_a_round_in_which_the_scheduler_ran_is_in_no_sample(self):
        self.assertEqual(self.cpu["broken"], {"rounds": 1, "ios": 1})

    def test_the_rest_before_the_first_round(self):
        # The first jump is in the marker's block, which began before the window.
        self.assertEqual(self.totals["other"], 2)


class Guest(Machine):
    """A caller that looks until it has a reply, sleeps, looks again, and sleeps."""

    defines = ("-DGUEST",)
    marks = {
        "round": "round",
        "work": "round",
        "io": "round",
        "spin": "look",
        "found": "found",
        "rest": "rest",
        "go": "go",
        "switch": "schedule",
        "exception": "handler",
    }
    settings = "sample 1\nany 1\n"

    # Beside the looks, the idle task and the handler.
    call = 2 + (12 + 3) + 1 + 13 + 2 + 13 + 1 + 1 + 1 + 1 + 3
    handler = 1 + 1 + 50 + 1 + 1

    def test_a_device_interrupt_and_sleep_are_part_of_a_sample(self):
        # The first round is in no sample, because it may have begun before the window.
        self.assertEqual(self.cpu["samples"], [[1, 1, self.call + self.handler]])
        self.assertEqual(self.cpu["broken"]["rounds"], 1)

    def test_looks_that_find_nothing_are_idle(self):
        self.assertEqual(self.cpu["idle"], {"rounds": 3 * 2, "ios": 0})
        self.assertEqual(self.totals["idle"], 3 * 2 * (12 + 3))

    def test_the_idle_task_is_counted_apart(self):
        self.assertEqual(self.totals["rest"], 3 * (42 + 1))


if __name__ == "__main__":
    unittest.main()
