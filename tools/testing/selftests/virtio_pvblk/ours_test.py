#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Both ends ours: this driver on vhost_blk, by way of pvio."""

import errno
import shutil
import tempfile
from pathlib import Path

from pvblk import DRIVER, UNCROWDED_DEPTHS, GuestCase
from pvlab import ktap
from pvlab.guest import Disk
from pvlab.pvio import Nullb, Pvio, need_pvio


class Ours(GuestCase):
    long_in_debug = False

    @classmethod
    def disks(cls):
        """A block device with hardware queues, and a file: two engines of vhost_blk."""
        need_pvio()
        directory = Path(tempfile.mkdtemp(prefix="pvblk-", dir="/run"))
        cls.addClassCleanup(shutil.rmtree, directory)
        nullb = Nullb("pvblk", submit_queues=2)
        cls.addClassCleanup(nullb.remove)
        sockets = [directory / "mq.sock", directory / "file.sock"]
        backends = [nullb.path, cls.file("fs", "400M")]
        words = []
        for socket, backend in zip(sockets, backends, strict=True):
            words += ["--device", f"socket={socket},path={backend}"]
        cls.pvio = Pvio(*words, directory=directory)
        cls.addClassCleanup(cls.pvio.stop)
        cls.pvio.start(*sockets)
        return [Disk.vhost_user(s, num_queues=q) for s, q in zip(sockets, (2, 1), strict=True)]

    def test_data_in_every_mode(self):
        for theirs in ("vda", "vdb"):
            disk = self.take(theirs)
            for mode in ("busy", "adaptive", "irq"):
                with self.subTest(f"{theirs}, {mode}"):
                    self.mode(disk, mode)
                    for depth in (1, 32):
                        self.verify(disk, f"--iodepth={depth}", "2M")

    def test_busy_takes_no_interrupt(self):
        disk = self.take("vda")
        for depth in UNCROWDED_DEPTHS:
            with self.subTest(f"depth {depth}"):
                self.no_interrupts(disk, depth, cpu=0)

    def test_host_side_dies_for_good(self):
        """What it had will never be answered; the disk can be removed all the same.

        By its name the last test: nobody serves the disks from here on.
        """
        disk = self.take("vda")
        dev = self.sh(f"basename $(readlink -f /sys/block/{disk}/device)")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        with self.io_beside(disk) as io:
            self.pvio.kill9()
            self.wait_unanswered(disk)
            self.sh(f"echo {dev} >{DRIVER}/unbind")
            io.wait_end()
        self.gone(disk, io, [errno.EIO])

    def test_file_system(self):
        disk = self.take("vdb")
        self.mode(disk, "busy")
        self.file_system(disk, "ext4")


if __name__ == "__main__":
    ktap.main()
