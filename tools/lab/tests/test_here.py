# SPDX-License-Identifier: GPL-2.0
"""Programs that run on this machine, without a host VM."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import accel, emulator, guest, here, image, paths, selftests  # noqa: E402
from pvlab.agent import Timeout  # noqa: E402
from pvlab.devices import Disk  # noqa: E402
from pvlab.paths import Kernel  # noqa: E402

KERNEL = Kernel("stock", "r", Path("/k"), Path("/m"))
# In the names of what a program makes or starts.
MARK = f"pvlab-test-{os.getpid()}"


def emulated():
    return mock.patch.object(accel, "accel", return_value="tcg")


class Apart(unittest.TestCase):
    """What a program can do here, and what is left of it."""

    @classmethod
    def setUpClass(cls):
        with emulated():
            if not here.possible():
                raise unittest.SkipTest("no program can run here")

    def setUp(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.object(paths, "kernel", return_value=KERNEL))
        self.enterContext(mock.patch.object(paths, "OUT", Path(directory)))
        self.enterContext(mock.patch.object(image, "build", return_value="/image"))
        self.enterContext(mock.patch.object(emulator, "path", return_value="/built/qemu"))
        self.host = here.Here("stock", "t").start()

    def said(self, command):
        return self.host.run(command, check=True).out.strip()

    def test_it_has_its_status_and_its_environment(self):
        self.assertEqual(self.host.run("exit 7").status, 7)
        self.assertEqual(self.host.run("kill -9 $$").status, 137)
        said = self.said("echo $LAB_EMULATOR $LAB_IMAGE $LAB_LANE")
        self.assertEqual(said, "/built/qemu /image stock")

    def test_its_files_and_mounts_are_its_own(self):
        mounts = Path("/proc/self/mounts").read_text()
        self.said(f"mount -t tmpfs {MARK} /mnt; mkdir /run/{MARK}; echo >/dev/shm/{MARK}")
        self.assertEqual(Path("/proc/self/mounts").read_text(), mounts)
        for directory in here.PRIVATE:
            self.assertFalse(Path(directory, MARK).exists())
        # Nor does the next program find them.
        self.assertNotIn(MARK, self.said(["ls", *here.PRIVATE]))

    def test_it_loads_no_module(self):
        needs = 1 << 16
        able = int(re.search(r"^CapEff:\s*(\S+)", self.said("cat /proc/self/status"), re.M)[1], 16)
        self.assertEqual(able & needs, 0)

    def assert_all_end(self):
        """At the latest a moment after the program."""
        end = time.monotonic() + 10
        while self.left() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.left(), [])

    def left(self):
        """The processes that bear our mark."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if MARK.encode() in path.read_bytes():
                    found.append(path)
        return found

    def test_nothing_outlives_it(self):
        # A session of its own, as a guest's QEMU has.
        started = f"setsid sh -c 'sleep 1000; : {MARK}' >/dev/null 2>&1 </dev/null &"
        self.said(f"{started} sleep 0.2")
        self.assertEqual(self.left(), [])
        with self.assertRaises(Timeout):
            self.host.run(f"{started} sleep 1000", timeout=0.5)
        self.assert_all_end()

    def test_it_ends_with_a_runner_that_is_killed(self):
        run = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        words = here._apart(["sh", "-c", f"setsid sleep 1000 & sleep 1000; : {MARK}"])
        with subprocess.Popen([sys.executable, "-c", run, *words]) as runner:
            time.sleep(1)
            self.assertGreater(len(self.left()), 1)
            runner.kill()
        self.assert_all_end()

    def test_an_interrupted_runner_ends_it(self):
        wait = mock.patch("subprocess.Popen.wait", side_effect=[KeyboardInterrupt, 0])
        with wait, self.assertRaises(KeyboardInterrupt):
            self.host.run(f"sleep 1000; : {MARK}")
        self.assert_all_end()


class Possible(unittest.TestCase):
    def test_only_without_kvm(self):
        for kind in ("kvm", "native"):
            with mock.patch.object(accel, "accel", return_value=kind):
                self.assertFalse(here.possible())

    def test_not_from_a_directory_that_would_be_hidden(self):
        with emulated(), mock.patch.object(paths, "CACHE", Path("/dev/shm/cache")):
            self.assertFalse(here.possible())

    def test_not_in_the_machines_own_mounts(self):
        with emulated(), mock.patch.object(here, "APART", ("env",)):
            self.assertFalse(here.possible())

    def test_not_without_the_right_to(self):
        with emulated(), mock.patch.object(here, "APART", ("false",)):
            self.assertFalse(here.possible())
        with emulated(), mock.patch.object(here, "APART", ("/nonexistent",)):
            self.assertFalse(here.possible())


class Guests(unittest.TestCase):
    """A guest here is emulated by what runs the host VM; elsewhere KVM runs it."""

    def command(self, **env):
        with mock.patch.dict("os.environ", env), tempfile.NamedTemporaryFile() as f:
            return " ".join(guest.Guest("g", kernel=KERNEL, disks=[Disk.qemu(f.name)]).command())

    def test_here(self):
        with mock.patch.object(guest.Guest, "_kernel_words", return_value=[]):
            words = self.command(LAB_EMULATOR="/built/qemu")
        self.assertTrue(words.startswith("/built/qemu "))
        self.assertIn("-accel tcg,thread=multi -cpu max ", words)
        self.assertIn("aio=threads", words)

    def test_elsewhere(self):
        with mock.patch.object(guest.Guest, "_kernel_words", return_value=[]):
            words = self.command(LAB_EMULATOR="")
        self.assertTrue(words.startswith("qemu-system-x86_64 "))
        self.assertIn("-accel kvm -cpu host", words)
        self.assertIn("aio=io_uring", words)

    def test_another_qemu(self):
        with mock.patch.object(guest.Guest, "_kernel_words", return_value=[]):
            words = self.command(LAB_EMULATOR="", LAB_GUEST_QEMU="/bin/true")
            with self.assertRaisesRegex(guest.LabError, "LAB_GUEST_QEMU=/nowhere is not there"):
                self.command(LAB_EMULATOR="", LAB_GUEST_QEMU="/nowhere")
        self.assertTrue(words.startswith("/bin/true "))


class Placed(unittest.TestCase):
    """Where the programs of a lane run."""

    def placed(self, possible):
        programs = [
            selftests.Program(Path("a"), Path("vm"), 1),
            selftests.Program(Path("b"), Path("guests"), 1, long=True, here=True),
        ]
        with mock.patch.object(here, "possible", return_value=possible):
            return [(p.path.name, p.here, p.long, p.env) for p in selftests.placed(programs)]

    def test_those_here_come_first(self):
        env = {"LAB_TURN": "1"}
        vm = ("vm", False, False, {})
        self.assertEqual(self.placed(True), [("guests", True, True, env), vm])

    def test_where_none_can_run_here_all_are_the_host_vms(self):
        self.assertEqual(
            self.placed(False),
            [("vm", False, False, {}), ("guests", False, True, {"LAB_TURN": "1"})],
        )

    def test_each_name_in_the_settings_is_a_programs(self):
        for directory in selftests.SELFTESTS.glob("*/Makefile"):
            names = selftests._setting(directory.parent, "guest_only").split(",")
            has = [p.path.stem for p in selftests.programs(directory.parent)]
            self.assertLessEqual(set(filter(None, names)), set(has), directory)

    def test_no_trace_explains_a_failure_here(self):
        run = object.__new__(selftests.Run)
        with emulated():
            for only in (True, False):
                run.host = SimpleNamespace(guests_only=only)
                self.assertEqual(run.traced(), not only)

    def test_the_host_vm_is_never_beside_them(self):
        run = object.__new__(selftests.Run)
        run.lane, run.vm, run.proven = "stock", "t", True
        up = []

        def place(only):
            one = SimpleNamespace(guests_only=only, stop=lambda: up.remove(one), up=lambda: False)
            one.start = lambda: up.append(one) or one
            one.run = lambda *a, **k: None
            return one

        run.host = None
        with (
            emulated(),
            mock.patch.object(here, "Here", lambda lane, name: place(True)),
            mock.patch.object(selftests, "Host", lambda **kw: place(False)),
            mock.patch.object(selftests, "nvme_disk"),
            mock.patch.object(selftests.Run, "load"),
        ):
            for only in (True, True, False, False, True):
                run.ready(selftests.Program(Path("a"), Path("b"), 1, here=only))
                self.assertEqual([one.guests_only for one in up], [only])


if __name__ == "__main__":
    unittest.main()
