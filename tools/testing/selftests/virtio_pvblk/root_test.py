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
# How many requests at least are done beside the neighbour in each mode.
REQUESTS = 100
# The modes take turns, because the machine that emulates this one may get slower or
# faster.  A turn takes at least so many ticks of USER_HZ (100 a second).  One turn tells
# little: shares of 14 to 40 percent were seen where the mean is 25.
TURNS = 10
TICKS = 150
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
while [ $total -lt $end ]; do sleep 1; look; done
echo $own $total $reads
kill -9 $burner $reader
killall dd || :
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

    def turn(self, mode):
        """The neighbour's ticks beside I/O of depth 1, all ticks, and how many reads."""
        self.mode("vdb", mode)
        numbers = [int(n) for n in self.sh(NEIGHBOUR).split()]
        return [b - a for a, b in zip(numbers[:3], numbers[3:], strict=True)]

    def shares(self, *modes):
        """The neighbour's share of the CPU in each mode; the I/O gets on, too."""
        turns = [[self.turn(mode) for mode in modes] for _ in range(TURNS)]
        shares = {}
        for mode, of_mode in zip(modes, zip(*turns, strict=True), strict=True):
            own, total, reads = map(sum, zip(*of_mode, strict=True))
            each = ", ".join(f"{100 * a / b:.0f}" for a, b, _ in of_mode)
            print(f"# {mode}: the neighbour had {100 * own / total:.1f}% ({each}), {reads} reads")
            self.assertGreater(reads, REQUESTS)
            shares[mode] = own / total
        return shares

    def test_neighbour_that_burns_cpu(self):
        """It is not starved: polling leaves it five sixths at least of what interrupts do.

        A poller of the normal class, and IOPOLL, leave it three quarters, and fail here.
        """
        shares = self.shares("irq", "busy", "adaptive")
        for mode in ("busy", "adaptive"):
            with self.subTest(mode):
                self.assertGreater(shares[mode], shares["irq"] * 5 / 6)


if __name__ == "__main__":
    ktap.main()
