# SPDX-License-Identifier: GPL-2.0
"""Which QEMU runs the host VM."""

import os
import subprocess
import unittest
from unittest import mock

from pvlab import emulator
from pvlab.paths import LabError


def chosen(value, kind="tcg", status=0):
    """The program for LAB_QEMU=VALUE, with a build that ends with STATUS."""
    done = subprocess.CompletedProcess([], status, stdout="/cache/qemu\n")
    with (
        mock.patch.dict(os.environ, {"LAB_QEMU": value}),
        mock.patch.object(subprocess, "run", return_value=done),
    ):
        return emulator.path(kind)


class Choice(unittest.TestCase):
    def test_the_installed_one(self):
        self.assertEqual(chosen("installed"), "")

    def test_the_built_one(self):
        self.assertEqual(chosen("built"), "/cache/qemu")

    def test_a_path(self):
        self.assertEqual(chosen("/bin/sh"), "/bin/sh")

    def test_a_path_to_nothing_is_refused(self):
        with self.assertRaisesRegex(LabError, "LAB_QEMU=/nowhere"):
            chosen("/nowhere")

    def test_a_build_that_fails_is_not_replaced_in_silence(self):
        with self.assertRaisesRegex(LabError, "was not built"):
            chosen("built", status=1)

    def test_kvm_takes_the_installed_one(self):
        with mock.patch.object(emulator, "DEFAULT", "built"):
            self.assertEqual(chosen("", "kvm"), "")
            self.assertEqual(chosen("", "tcg"), "/cache/qemu")


if __name__ == "__main__":
    unittest.main()
