#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""`pvio upgrade`, or SIGUSR2: `pvio fs` makes way for the pvio that is installed in its place.

The guest that has the directory mounted notices a pause.

Nothing of its session may be lost: a file that it has open and has removed, its locks, what
it writes meanwhile.
"""

import fcntl
import os
import shutil
import signal
from pathlib import Path

from pviotest import PvioTest
from pvlab import ktap, modules, turns
from pvlab.guest import Guest, Share
from pvlab.pvio import PVIO, run, wait_for

TIMES = turns.loops(5, 20)
FIO = (
    "fio --name=u --filename=/mnt/fio --size=2M --rw=randwrite --bsrange=4k-128k --ioengine=libaio "
    "--iodepth=8 --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1"
)
LAST_CPU = max(os.sched_getaffinity(0))
OTHER_VERSION = "#!/bin/sh\necho 999\n"


class Upgrade(PvioTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.load("vhost_fs")

    def setUp(self):
        super().setUp()
        self.dir = self.tmp / "dir"
        self.dir.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=64M", "pvio-test", self.dir)
        self.addCleanup(run, "umount", "-l", self.dir, check=False)
        self.program = self.tmp / "pvio"
        shutil.copy(PVIO, self.program)
        self.daemon = self.pvio_of_our_own()
        share = Share.virtiofs(self.socket(), "up", num_request_queues=2, queue_size=1024)
        self.guest = Guest(name="pvio-upgrade", vcpus=2, shares=[share])
        self.guest.start()
        self.addCleanup(self.guest.stop)
        self.guest.run("mkdir -p /mnt && mount -t virtiofs up /mnt", check=True)
        self.times = 0

    def pvio_of_our_own(self):
        """One whose file can be replaced."""
        words = ["--socket", self.socket(), "--shared-dir", self.dir, "--poll-cpu", LAST_CPU]
        return self.pvio(*words, command="fs", program=self.program, sockets=[self.socket()])

    def install(self, text=None):
        """As install(1): a new file in the place of the one that runs."""
        self.program.unlink()
        if text is None:
            shutil.copy(PVIO, self.program)
        else:
            self.program.write_text(text)
            self.program.chmod(0o755)
        return self.program.stat().st_ino

    def ask(self):
        """As systemctl reload does: the exit status, and what is said."""
        done = run(PVIO, "upgrade", "--socket", self.socket(), check=False)
        return done.returncode, done.stderr

    def upgrade(self):
        installed = self.install()
        self.times += 1
        self.assertEqual(self.ask(), (0, ""), self.daemon.log)
        wait_for(
            lambda: self.daemon.log.count("going on with the guest") == self.times,
            f"the successor goes on\n{self.daemon.log}",
        )
        self.assertEqual(os.stat(f"/proc/{self.daemon.process.pid}/exe").st_ino, installed)

    def background(self, command):
        self.guest.run(f"{{ {command}; }} </dev/null >/dev/null 2>&1 &", check=True)

    def test_the_session_goes_on_under_load(self):
        (self.dir / "gone").write_text("still here\n")
        (self.dir / "load").touch()
        self.background(
            "exec 3</mnt/gone; rm /mnt/gone; touch /mnt/lock; "
            "flock /mnt/lock sh -c 'touch /mnt/held; while [ -e /mnt/held ]; do sleep 0.1; done'; "
            "cat <&3 >/mnt/told"
        )
        wait_for((self.dir / "held").exists, "the guest has the lock")
        self.background(
            f"bad=0; while [ -e /mnt/load ]; do {FIO} || {{ bad=1; break; }}; done; "
            "echo $bad >/mnt/failed"
        )
        wait_for((self.dir / "fio").exists, "fio writes")
        before = self.daemon.process.pid
        for i in range(TIMES):
            self.upgrade()
            with open(self.dir / "lock") as lock, self.assertRaises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.guest.run(f"echo {i} >/mnt/new-{i}", check=True)
            self.assertEqual((self.dir / f"new-{i}").read_text(), f"{i}\n")
        self.assertEqual(self.daemon.process.pid, before)
        (self.dir / "load").unlink()
        failed = self.dir / "failed"
        wait_for(lambda: failed.exists() and failed.read_text(), "fio ends", 180)
        self.assertEqual(failed.read_text(), "0\n")
        (self.dir / "held").unlink()
        told = self.dir / "told"
        wait_for(lambda: told.exists() and told.read_text(), "the guest reads what it removed")
        self.assertEqual(told.read_text(), "still here\n")
        self.daemon.stop()
        self.assertFalse(self.socket().exists())
        status, said = self.ask()
        self.assertEqual(status, 1)
        self.assertIn("no pvio listens", said)

    def test_the_poller_stays(self):
        """Its CPU has gone offline, so the successor would get no other one there."""
        cpu = Path(f"/sys/devices/system/cpu/cpu{LAST_CPU}/online")
        if not cpu.exists():
            self.skipTest(f"CPU {LAST_CPU} cannot go offline")
        self.addCleanup(cpu.write_text, "1")
        cpu.write_text("0")
        self.upgrade()
        self.guest.run("echo 1 >/mnt/one", check=True)
        self.assertEqual((self.dir / "one").read_text(), "1\n")

    def test_a_program_that_cannot_go_on_is_refused(self):
        """And without a guest, the directory is served to the guest that comes next."""
        self.install(OTHER_VERSION)
        status, said = self.ask()
        self.assertEqual(status, 1)
        self.assertIn("not handed over", said)
        self.assertIn("in another form", said)
        self.assertIn("not handed over", self.daemon.log)
        self.guest.run("echo 1 >/mnt/one", check=True)
        self.assertEqual((self.dir / "one").read_text(), "1\n")

        self.guest.stop()
        wait_for(lambda: "disconnected" in self.daemon.log, "the guest has left")
        installed = self.install()
        self.daemon.signal(signal.SIGUSR2)
        exe = f"/proc/{self.daemon.process.pid}/exe"
        wait_for(lambda: os.stat(exe).st_ino == installed, "the successor runs")
        with Guest(name="pvio-next", shares=[Share.virtiofs(self.socket(), "up")]) as guest:
            guest.run("mkdir -p /mnt && mount -t virtiofs up /mnt && echo 2 >/mnt/two", check=True)
        self.assertEqual((self.dir / "two").read_text(), "2\n")


if __name__ == "__main__":
    ktap.main()
