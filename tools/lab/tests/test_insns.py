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


class Plugin(unittest.TestCase):
    @classmethod
    @mock.patch.dict(os.environ, LAB_QEMU="installed")
    def setUpClass(cls):
        """With the installed emulator: the other one takes minutes to build."""
        cls.work = tempfile.TemporaryDirectory(prefix="insns")
        cls.addClassCleanup(cls.work.cleanup)
        directory = Path(cls.work.name)
        program = directory / "program"
        argv = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x100000"]
        argv += ["-Wl,--build-id=none", "-o", program, HERE / "insns.S"]
        subprocess.run([str(a) for a in argv], check=True)
        symbols = symbols_of(program)
        lines = [f"round {symbols['round']:#x}", f"work {symbols['found']:#x}"]
        (directory / "marks").write_text("\n".join([*lines, f"io {symbols['found']:#x}", ""]))
        argv = [insns.program(), "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "16"]
        argv += ["-nodefaults", "-display", "none", "-device", "isa-debug-exit,iobase=0xf4"]
        argv += ["-plugin", f"{insns.build()},dir={directory}", "-kernel", program]
        subprocess.run([str(a) for a in argv], check=False, timeout=60)
        cls.doc = json.loads((directory / "1.json").read_text())
        cls.totals = Counter()
        for _, count, _, kind, times in cls.doc["blocks"]:
            cls.totals[kind] += count * times

    def test_a_round_at_work_is_counted_to_the_instruction(self):
        # Of the round: 5, what follows found: 12, and dec, jnz, call of the next.
        self.assertEqual(self.totals["work"], 4 + 12 + 3)

    def test_a_round_without_work_is_counted_apart(self):
        # 5 and the same three; the last one ends with the window.
        self.assertEqual(self.totals["idle"], 5 + 3)

    def test_rounds_and_what_they_did(self):
        cpu = self.doc["cpus"][0]
        self.assertEqual(cpu["work"], {"rounds": 1, "ios": 1})
        self.assertEqual(cpu["idle"], {"rounds": 1, "ios": 0})
        self.assertEqual(cpu["by_ios"], [[1, 1, self.totals["work"]]])

    def test_the_rest_before_the_first_round(self):
        # The first jump is in the marker's block, which began before the window.
        self.assertEqual(self.totals["other"], 2)


if __name__ == "__main__":
    unittest.main()
