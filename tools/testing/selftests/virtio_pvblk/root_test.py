#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A guest with one CPU, which runs from a disk of ours since its initramfs."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from pvblk import TOP, Disk, GuestCase
from pvlab import ktap
from pvlab import modules as kmod
from pvlab.guest import kernel_here

# In the order that pvblk.conf asks for by its softdep: ours by its name,
# and only then what the devices ask for.
INIT = """#!/bin/sh
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mkdir /root-disk
insmod /virtio_poll.ko
insmod /virtio_pvblk.ko $(sed -n 's/^options virtio_pvblk //p' /etc/modprobe.d/pvblk.conf)
modprobe virtio_blk
modprobe ext4
mount -t ext4 /dev/vda /root-disk
umount /proc /dev
exec switch_root /root-disk /init
"""
# How many requests at least are done beside the neighbour; how long that takes, in
# ticks of USER_HZ (100 a second).
REQUESTS = 100
TICKS = 600
# Prints the CPU time of the neighbour, that of the guest (without what was stolen)
# and the reads done, at the beginning and at the end.  Only the two of them are to
# want the CPU: so not fio, which wakes a hundred times a second for nothing, and
# no looking but by what the shell can do itself.
NEIGHBOUR = f"""
read_all() {{
    while dd if=/dev/vdb of=/dev/null bs=4k iflag=direct 2>/dev/null; do :; done
}}
read_all >/dev/null 2>&1 </dev/null &
reader=$!
sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &
burner=$!
look() {{
    read -r _ a b c d e f g _ </proc/stat
    total=$((a + b + c + d + e + f + g))
    read -r _ _ _ _ _ _ _ _ _ _ _ _ _ own _ </proc/$burner/stat
    read -r reads _ </sys/block/vdb/stat
}}
look
echo $own $total $reads
end=$((total + {TICKS}))
while [ $total -lt $end ]; do sleep 6; look; done
echo $own $total $reads
kill -9 $burner $reader
killall dd
"""


class Root(GuestCase):
    vcpus = 1
    modules = ()

    @classmethod
    def disks(cls):
        kernel = kernel_here()
        names = ("virtio_poll", "virtio_pvblk")
        cls.overlay = {
            "init": INIT.encode(),
            **{f"{name}.ko": kmod.ours(kernel, name).read_bytes() for name in names},
            "etc/modprobe.d/pvblk.conf": (TOP / "tools/pvblk/pvblk.conf").read_bytes(),
        }
        cls.root = cls.file("root", "160M")
        return [Disk.qemu(cls.root, serial="root"), Disk.qemu(cls.file("d1"), serial="other")]

    @classmethod
    def prepare(cls, guest):
        """The root disk: what else would be the initramfs."""
        tree = tempfile.mkdtemp(dir="/dev/shm")
        cls.addClassCleanup(shutil.rmtree, tree)
        with open(guest.initramfs(), "rb") as archive:
            subprocess.run(
                ["busybox", "cpio", "-idm"],
                stdin=archive,
                cwd=tree,
                check=True,
                capture_output=True,
            )
        Path(tree, "on-disk").touch()
        subprocess.run(["mkfs.ext4", "-qF", "-d", tree, cls.root], check=True)

    @classmethod
    def load(cls):
        """The initramfs did."""

    @classmethod
    def unload(cls):
        """Not from under the root file system."""

    def tearDown(self):
        pass

    def test_root_disk(self):
        self.assertEqual(self.sh("ls /sys/block | grep vd").split(), ["vda", "vdb"])
        self.assertRegex(self.sh("grep ' / ext4' /proc/mounts"), "^/dev/vda ")
        self.sh("test -e /on-disk")
        self.assertEqual(
            self.sh("pvblkctl list | awk '{ print $3 }'").split(),
            ["DRIVER", "virtio_pvblk", "virtio_pvblk"],
        )
        self.sh("echo kept >/kept; sync; echo 3 >/proc/sys/vm/drop_caches; grep -q kept /kept")
        # It is in use.
        self.assertNotEqual(self.status("pvblkctl give vda"), 0)

    def test_pollers_run_when_nobody_else_wants_to(self):
        """Their class is SCHED_IDLE."""
        policies = self.sh(
            "for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in "
            "virtio-poll/*) awk '{ print $41 }' $p/stat;; esac; done"
        )
        self.assertEqual(policies.split(), ["5"])

    def share(self, mode):
        """What the neighbour has of the CPU beside I/O of depth 1, which gets on too."""
        self.mode("vdb", mode)
        numbers = [int(n) for n in self.sh(NEIGHBOUR).split()]
        own, total, reads = (b - a for a, b in zip(numbers[:3], numbers[3:], strict=True))
        print(f"# {mode}: the neighbour had {100 * own / total:.0f}%, beside {reads} reads")
        self.assertGreater(reads, REQUESTS)
        return own / total

    def test_neighbour_that_burns_cpu(self):
        """It is not starved: polling leaves it five sixths at least of what interrupts do.

        A poller of the normal class, and IOPOLL, leave it three quarters, and fail here.
        """
        unpolled = self.share("irq")
        for mode in ("busy", "adaptive"):
            with self.subTest(mode):
                self.assertGreater(self.share(mode), unpolled * 5 / 6)


if __name__ == "__main__":
    ktap.main()
