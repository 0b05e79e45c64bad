#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What a guest of the lab can do: commands, files, disks, limits, its end."""

import os
import shutil
import signal
import tempfile
import threading
import unittest
from pathlib import Path

from pvlab import ktap, paths
from pvlab.guest import CommandFailed, Disk, Gone, Guest, LabError, Share, Timeout
from pvlab.pvio import Nullb, Pvio, need_pvio

SIZE = 64 << 20
IRQS = paths.OUT / "build" / f"{os.environ['LAB_KERNEL_RELEASE']}-lab/lab_irqs.ko"


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = Path("/tmp/lab-guests.img")
        cls.image.touch()
        os.truncate(cls.image, SIZE)
        cls.shared = Path("/tmp/lab-guests.share")
        cls.shared.mkdir(exist_ok=True)
        (cls.shared / "from-host").write_text("seen\n")
        cls.share = Share.p9(cls.shared, "share")
        cls.guest = Guest("commands", vcpus=2, disks=[Disk.qemu(cls.image)], shares=[cls.share])
        cls.guest.start()
        cls.addClassCleanup(cls.guest.kill)

    def test_output_errors_and_status_arrive_apart(self):
        r = self.guest.run("echo out; echo err >&2; exit 7")
        self.assertEqual((r.out, r.err, r.status), ("out\n", "err\n", 7))

    def test_a_list_is_not_for_the_shell(self):
        self.assertEqual(self.guest.run(["echo", "$HOME *"]).out, "$HOME *\n")

    def test_a_killed_command_has_a_status_above_128(self):
        self.assertEqual(self.guest.run("kill -9 $$").status, 128 + signal.SIGKILL)

    def test_check_raises(self):
        with self.assertRaises(CommandFailed):
            self.guest.run("false", check=True)

    def test_files_come_back_as_they_went(self):
        data = os.urandom(1 << 20)
        self.guest.put("/tmp/dir/file", data)
        self.assertEqual(self.guest.get("/tmp/dir/file"), data)

    def test_a_file_that_is_not_there_is_an_error(self):
        with self.assertRaises(LabError):
            self.guest.get("/nowhere")

    def test_a_command_ends_at_its_limit_and_the_next_one_runs(self):
        with self.assertRaises(Timeout) as caught:
            self.guest.run("echo begun; trap '' TERM; while :; do sleep 1; done", timeout=2)
        self.assertIn("time limit", str(caught.exception))
        self.assertIn("last lines of guest", "".join(caught.exception.__notes__))
        self.assertTrue(self.guest.run("true").ok)

    def test_commands_run_side_by_side(self):
        results = []
        threads = [
            threading.Thread(
                target=lambda i=i: results.append(self.guest.run(f"sleep 2; echo {i}").out)
            )
            for i in range(2)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(results), ["0\n", "1\n"])

    def test_what_outlives_its_command_does_not_hold_it_up(self):
        self.assertEqual(self.guest.run("sleep 1000 & echo there", timeout=20).out, "there\n")

    def test_the_disk_is_the_file(self):
        self.image.write_bytes(b"on the host" + bytes(SIZE - 11))
        self.assertEqual(self.guest.run("head -c 11 /dev/vda", check=True).out, "on the host")
        self.guest.run(
            "echo -n in the guest | dd of=/dev/vda bs=512 conv=sync,fsync 2>/dev/null", check=True
        )
        self.assertTrue(self.image.read_bytes().startswith(b"in the guest"))

    def test_a_share_is_seen(self):
        self.guest.run(self.share.mount("/mnt/share"), check=True)
        self.assertEqual(self.guest.get("/mnt/share/from-host"), b"seen\n")

    def test_its_tools_run(self):
        for tool in (
            "fio --version",
            "fsx --version",
            "mkfs.xfs -V",
            "mkfs.ext4 -V",
            "e2fsck -V",
            "xfs_repair -V",
        ):
            with self.subTest(tool):
                self.guest.run(tool, check=True)

    def test_a_shell_finds_its_files(self):
        for name in ("fd", "stdin", "stdout", "stderr"):
            with self.subTest(name):
                self.guest.run(f"[ -e /dev/{name} ]", check=True)
        self.assertEqual(self.guest.run("echo a | cat /dev/stdin", check=True).out, "a\n")
        self.guest.run("mountpoint -q /proc && ! mountpoint -q /root", check=True)

    def test_it_has_the_vcpus_it_was_given(self):
        self.assertEqual(self.guest.run("nproc", check=True).out, "2\n")

    def test_its_monitor_answers(self):
        self.assertTrue(self.guest.qmp("query-status")["running"])

    def test_its_exits_are_real(self):
        exits = Path("/sys/kernel/debug/kvm/exits")
        before = int(exits.read_text())
        self.guest.run("true")
        self.assertGreater(int(exits.read_text()), before)

    def test_zz_it_is_gone_when_it_is_killed(self):
        os.kill(self.guest.pid, signal.SIGKILL)
        with self.assertRaises(Gone):
            self.guest.run("sleep 10")


class Kept(unittest.TestCase):
    def test_the_end_of_one_that_was_left_is_told_once(self):
        guest = Guest("kept", kept=True)
        guest.start()
        self.addCleanup(guest.kill)
        other = Guest.attach("kept")
        os.kill(other.pid, signal.SIGKILL)
        with self.assertRaises(Gone) as caught:
            other.run("sleep 10")
        (note,) = caught.exception.__notes__
        self.assertIn("QEMU ended with signal 9", note)


class Disks(unittest.TestCase):
    def test_a_null_blk_without_that_attribute_leaves_nothing(self):
        with self.assertRaisesRegex(LabError, "has no no_such"):
            Nullb("lab-missing", no_such=1)
        self.assertFalse(Path("/sys/kernel/config/nullb/lab-missing").exists())


class Boot(unittest.TestCase):
    def test_a_boot_that_fails_ends_at_its_limit_with_the_last_lines(self):
        # A shell that waits for input: with no init at all a fast machine's kernel panics
        # within the limit, and that is told instead.
        guest = Guest("no-boot", append="rdinit=/bin/sh", serial=True, boot_timeout=45)
        with self.assertRaises(LabError) as caught:
            guest.start()
        said = str(caught.exception) + "".join(getattr(caught.exception, "__notes__", ()))
        # However far the kernel came within the limit, the lines are its own.
        self.assertRegex(said, r"(?ms)last lines of guest 'no-boot'.*^\[ *[0-9.]+\] ")
        self.assertFalse(guest.alive())

    def test_one_that_stands_silent_is_given_up(self):
        guest = Guest("stands", qemu_args=["-S"], boot_timeout=10)
        with self.assertRaises(LabError):
            guest.start()
        self.assertFalse(guest.alive())

    def test_a_qemu_that_does_not_start_says_why(self):
        guest = Guest("no-qemu", qemu_args=["-device", "no-such-device"])
        with self.assertRaises(LabError) as caught:
            guest.start()
        self.assertIn("no-such-device", "".join(caught.exception.__notes__))


class Interrupts(unittest.TestCase):
    """Where lab_vmrun is not loaded, QEMU's emulator mostly fails this: a busy
    poller's answers interrupt a guest just as it is entered."""

    def setUp(self):
        need_pvio()
        self.directory = Path(tempfile.mkdtemp(dir="/run"))
        self.addCleanup(shutil.rmtree, self.directory)
        null = Nullb("lab", submit_queues=1, memory_backed=0)
        self.addCleanup(null.remove)
        self.socket = self.directory / "blk.sock"
        cpu = max(os.sched_getaffinity(0))
        words = ["--poll-cpu", cpu, "--poll-mode", "busy", "-s", self.socket, null.path]
        pvio = Pvio(*words, directory=self.directory)
        self.addCleanup(pvio.stop)
        pvio.start(self.socket)
        self.vcpus_on = min(os.sched_getaffinity(0))

    def counted(self, guest, name):
        return int(guest.run(f"cat /sys/module/lab_irqs/parameters/{name}", check=True).out)

    def test_they_come_only_while_they_are_on(self):
        with Guest("interrupts", disks=[Disk.vhost_user(self.socket)]) as guest:
            for vcpu in guest.qmp("query-cpus-fast"):
                os.sched_setaffinity(vcpu["thread-id"], {self.vcpus_on})
            guest.modprobe(str(IRQS))
            fio = (
                "fio --name=t --filename=/dev/vda --rw=randread --bs=4k --direct=1 "
                "--ioengine=io_uring --time_based --runtime=20 >/dev/null"
            )
            try:
                ended = guest.run(fio, timeout=90).ok
            except Timeout:
                ended = False
            self.assertEqual(self.counted(guest, "while_off"), 0)
            self.assertTrue(ended, "fio did not end")
            self.assertGreater(self.counted(guest, "devices"), 1000)


if __name__ == "__main__":
    ktap.main()
