# SPDX-License-Identifier: GPL-2.0
"""What the tests of virtio_pvblk share: a guest with disks, and looking into it."""

import contextlib
import errno
import os
import re
import sys
import time
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(TOP / "tools/lab"), str(TOP / "tools/testing/selftests")]

from pvlab import turns  # noqa: E402
from pvlab.guest import Disk, Guest  # noqa: E402

DEBUG = os.environ.get("LAB_LANE") == "debug"
# How long a guest's command may take; in the debug lane everything is slower.
PATIENCE = 240 if DEBUG else 120
# Busy mode is shown in batches of so many reads of 4 KiB.  A batch counts if no other task
# took the CPU from the poller meanwhile (`starved`).  If it was for two ticks, the queue is
# left to interrupts for CROWDED_MAX seconds at most.  In the debug lane fio alone takes whole
# ticks between an I/O's submission and its sleep, so several at once are not tried there.
BATCH = 32 if DEBUG else 128
BATCHES = 40
CROWDED_MAX = 1.6
CROWDED_FORGET = 5
UNCROWDED_READS = 64 if DEBUG else 512
UNCROWDED_DEPTHS = (1,) if DEBUG else (1, 8)
COUNTERS = (
    "submitted completed polls found irq_fallbacks starved stolen interrupts "
    "kicks_sent kicks_saved timeouts restarted"
).split()
DRIVER = "/sys/bus/virtio/drivers/virtio_pvblk"
FIO = "fio --name=t --direct=1 --ioengine=io_uring --group_reporting"


FILE_SYSTEMS = {
    "ext4": ("mkfs.ext4 -qF", "e2fsck -fn"),
    "xfs": ("mkfs.xfs -qf", "xfs_repair -n"),
}


def image(name, size="64M"):
    """A backing file in memory."""
    path = Path("/dev/shm") / f"pvblk-{os.getpid()}-{name}"
    mib = int(size.removesuffix("M"))
    with open(path, "wb") as f:
        f.truncate(mib << 20)
    return path


class Beside:
    """A fio in the guest that runs until it is stopped, or meets an error.

    Once it has ended, .err is the error number it met, 0 for none.
    """

    def __init__(self, case, disk):
        self.sh = case.sh
        self.count = f"awk '{{ print $1 + $5 }}' /sys/block/{disk}/stat"
        self.err = None

    def start(self, options):
        before = self.done()
        self.sh(
            "rm -f /tmp/io.status; "
            f"({FIO} {options} --time_based --runtime=600 >/tmp/io.log 2>&1; "
            "echo $? >/tmp/io.status) >/dev/null 2>&1 </dev/null & "
        )
        self.wait_for(before + 20)

    def done(self):
        """How many requests were completed."""
        return int(self.sh(self.count))

    def wait_for(self, requests):
        """Wait until as many have completed; an I/O that has ended makes none."""
        self.sh(
            f"until [ $({self.count}) -gt {requests} ]; do "
            "[ ! -e /tmp/io.status ] || { cat /tmp/io.log; exit 1; }; sleep 0.1; done"
        )

    def goes_on(self):
        self.wait_for(self.done() + 50)

    def wait_end(self):
        """It ends by itself, as it does when it meets an error."""
        self.sh("until [ -e /tmp/io.status ]; do sleep 0.1; done")

    def stop(self):
        self.sh("[ -e /tmp/io.status ] || killall -INT fio")
        self.wait_end()
        log = self.sh("cat /tmp/io.log")
        found = re.findall(r"\berr= *(\d+)", log)
        if not found:
            raise AssertionError(f"fio gave no account of itself:\n{log}")
        self.err = max(map(int, found))


class GuestCase(unittest.TestCase):
    """One guest for the tests of a class; they find it as self.guest."""

    vcpus = 2
    long_in_debug = True  # its turn in that lane comes by date (pvlab/turns.py)
    module = ""  # parameters of virtio_pvblk
    modules = ("virtio_blk",)
    qemu_args = ()
    overlay = None

    @classmethod
    def disks(cls):
        return [Disk.qemu(cls.file("d0"), num_queues=2, serial="serial-0")]

    @classmethod
    def file(cls, name, size="64M"):
        path = image(name, size)
        cls.addClassCleanup(path.unlink, missing_ok=True)
        return path

    @classmethod
    def setUpClass(cls):
        if cls.long_in_debug and not turns.has_come():
            raise unittest.SkipTest(turns.WHY)
        guest = Guest(
            name=cls.__name__.lower(),
            vcpus=cls.vcpus,
            disks=cls.disks(),
            modules=cls.modules,
            qemu_args=list(cls.qemu_args),
            overlay=cls.overlay,
        )
        cls.prepare(guest)
        cls.guest = cls.enterClassContext(guest)
        cls.guest.put("/bin/pvblkctl", TOP / "tools/pvblk/pvblkctl")
        cls.guest.run("chmod 755 /bin/pvblkctl", check=True)
        cls.guest.leaks_clear()
        cls.load()

    @classmethod
    def prepare(cls, guest):
        """What is to be done before the guest starts."""

    @classmethod
    def load(cls):
        cls.guest.modprobe("virtio_pvblk", cls.module)

    def tearDown(self):
        self.give_all()

    @classmethod
    def unload(cls):
        cls.sh("rmmod virtio_pvblk virtio_poll")

    @classmethod
    def tearDownClass(cls):
        cls.unload()
        leaks = cls.guest.leaks()
        if leaks:
            raise AssertionError(f"memory leaked:\n{leaks}")

    @classmethod
    def sh(cls, command, timeout=PATIENCE):
        """Its output; a command that fails fails the test."""
        return cls.guest.run(command, timeout=timeout, check=True).out.strip()

    def status(self, command):
        return self.guest.run(command, timeout=PATIENCE).status

    def take(self, disk):
        """Move a disk over; its new name."""
        return self.sh(
            f"d=$(readlink -f /sys/block/{disk}/device); echo ${{d##*/}} >{DRIVER}/take && "
            "for b in $d/block/*; do echo ${b##*/}; done"
        )

    def give_all(self):
        """Whoever looks into a new disk (it is scanned) may use it for a moment."""
        self.sh(
            f"for d in {DRIVER}/virtio*; do [ -e $d ] || continue; n=0; "
            f"until echo ${{d##*/}} >{DRIVER}/give; do n=$((n + 1)); [ $n -lt 50 ] || exit; "
            "sleep 0.1; done; done 2>/dev/null"
        )

    def mode(self, disk, mode):
        self.sh(f"echo {mode} >/sys/block/{disk}/pvblk/mode")

    def counters(self, disk):
        """{counter: sum over the queues}"""
        files = " ".join(f"/sys/block/{disk}/pvblk/{n}" for n in COUNTERS)
        lines = self.sh(f"cat {files}").splitlines()
        return {n: sum(map(int, x.split())) for n, x in zip(COUNTERS, lines, strict=True)}

    def irqs(self, disk):
        """All interrupts of its queues, as the CPUs have counted them; there are such lines."""
        dev = f"$(basename $(readlink -f /sys/block/{disk}/device))"
        count = "{ for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0; exit !NR }"
        return int(self.sh(f"grep {dev}-req /proc/interrupts | awk '{count}'"))

    @contextlib.contextmanager
    def counting(self, disk):
        """What the counters grew by, once the block has ended."""
        grown = {}
        before = self.counters(disk)
        yield grown
        after = self.counters(disk)
        grown.update({n: after[n] - before[n] for n in after})

    def reads(self, disk, depth, count, cpu):
        """COUNT of them, 4 KiB each."""
        if depth == 1:
            self.sh(
                f"taskset -c {cpu} dd if=/dev/{disk} of=/dev/null bs=4k count={count} "
                "iflag=direct 2>/dev/null"
            )
        else:
            self.sh(
                f"{FIO} --filename=/dev/{disk} --rw=randread --bs=4k --iodepth={depth} "
                f"--size={4 * count}k --cpus_allowed={cpu}"
            )

    def no_interrupts(self, disk, depth, cpu):
        """Reads from a CPU take none in busy mode, and all are found by looking.

        A queue that was left to interrupts may take one more before its poller turns
        them off, so a few reads come first.  While another task has the CPU there are
        some, too: such a batch of reads says nothing, and the next one counts.  Batches are short, so that a loaded machine leaves enough of them alone.
        """
        self.mode(disk, "busy")
        alone, crowded = 0, True
        for _ in range(BATCHES):
            if crowded:
                time.sleep(CROWDED_MAX)
            crowded = self.crowded_batch(disk, depth, cpu)
            alone += 0 if crowded else BATCH
            if alone >= UNCROWDED_READS:
                return
        self.fail(f"{alone} of {UNCROWDED_READS} reads were not crowded out, in {BATCHES} tries")

    def crowded_batch(self, disk, depth, cpu):
        """Whether others crowded the poller out; if not, no interrupt may have come."""
        crowded = self.counters(disk)["starved"]
        self.reads(disk, 1, 8, cpu)
        irqs = self.irqs(disk)
        with self.counting(disk) as grown:
            self.reads(disk, depth, BATCH, cpu)
        irqs = self.irqs(disk) - irqs
        if self.counters(disk)["starved"] != crowded:
            return True
        self.assertEqual(grown["interrupts"], 0)
        # a stale one in 65,536 completions, where there is an event index
        self.assertLessEqual(irqs, 1)
        self.assertGreaterEqual(grown["completed"], BATCH)
        self.assertEqual(grown["submitted"], grown["completed"])
        self.assertGreater(grown["found"], 0)
        return False

    @contextlib.contextmanager
    def io_beside(self, disk, extra="--rw=randrw", depth=16):
        """I/O that goes on while the block runs; see Beside."""
        io = Beside(self, disk)
        io.start(f"--filename=/dev/{disk} {extra} --bs=4k --iodepth={depth} --size=32M")
        try:
            yield io
        finally:
            io.stop()

    def wait_unanswered(self, disk):
        """Requests were late once more, and were looked at for that."""
        seen = self.counters(disk)["timeouts"]
        end = time.monotonic() + PATIENCE
        while self.counters(disk)["timeouts"] < seen + 4:
            self.assertLess(time.monotonic(), end, "no request was found late")

    def gone(self, disk, io, errors=(errno.EIO, errno.ENOSPC)):
        """The disk is, and what I/O there was met an error: of I/O, or that a
        disk which is going has no size any more."""
        self.assertIn(os.strerror(io.err), [os.strerror(e) for e in errors])
        self.assertNotEqual(self.status(f"test -e /sys/block/{disk}"), 0)
        self.assertNotEqual(self.status(f"test -e /dev/{disk}"), 0)

    def file_system(self, disk, fs):
        """One on the disk: files written come back, and it is found to be sound."""
        make, check = FILE_SYSTEMS[fs]
        self.sh(
            f"modprobe {fs}; {make} /dev/{disk}; mkdir -p /mnt/fs; mount /dev/{disk} /mnt/fs; "
            "cd /mnt/fs && dd if=/dev/urandom of=a bs=64k count=16 conv=fsync 2>/dev/null; "
            "cp -r /etc b; sync; sha1sum a b/* >/tmp/sums"
        )
        self.sh(
            "fsx -N 300 -P /tmp /mnt/fs/x >/tmp/fsx.log 2>&1 || { tail -20 /tmp/fsx.log; false; }"
        )
        self.sh(
            f"umount /mnt/fs; mount /dev/{disk} /mnt/fs; "
            "cd /mnt/fs && sha1sum -c -s /tmp/sums; s=$?; cd /; umount /mnt/fs; exit $s"
        )
        self.sh(f"{check} /dev/{disk} >/tmp/check.log 2>&1 || {{ cat /tmp/check.log; false; }}")

    def verify(self, disk, extra="", size="8M"):
        """Write all kinds of sizes, read them back by their checksums."""
        self.sh(
            f"{FIO} --filename=/dev/{disk} --rw=randwrite --bsrange=512-128k --bs_unaligned=0 "
            f"--size={size} --verify=crc32c --do_verify=1 --verify_fatal=1 {extra}"
        )


# Every limit another than the default.
BLOCKS_OF_4K = {
    "logical_block_size": 4096,
    "physical_block_size": 16384,
    "min_io_size": 8192,
    "opt_io_size": 65536,
    "discard_granularity": 1048576,
}


class MoveCase(GuestCase):
    """Three disks that two drivers could have."""

    THEIRS = ("vda", "vdb", "vdc")

    @classmethod
    def disks(cls):
        return [
            Disk.qemu(cls.file("d0"), num_queues=2, serial="serial-0"),
            Disk.qemu(cls.file("d1"), serial="serial-1", readonly=True),
            Disk.qemu(cls.file("d2"), serial="a-serial-of-20-bytes", **BLOCKS_OF_4K),
        ]

    def setUp(self):
        """Each test finds all disks with virtio_blk, and our module loaded."""
        theirs = "[ $(ls -d /sys/bus/virtio/drivers/virtio_blk/virtio* | wc -l) = 3 ]"
        if self.names() != self.THEIRS or self.status(theirs):
            self.reload("")

    def tearDown(self):
        pass

    def attribute(self, disk, name):
        return self.sh(f"cat /sys/block/{disk}/{name}")

    def attributes(self, disk, names):
        """Many by one command: each process of a guest takes a while in the debug lane."""
        each = '[ -r "$n" ] || exit 1; v=; read -r v <"$n"; echo "$n $v"'
        lines = self.sh(f"cd /sys/block/{disk}; for n in {' '.join(names)}; do {each}; done")
        return dict(line.partition(" ")[::2] for line in lines.splitlines())

    def names(self):
        return tuple(self.sh("ls /sys/block | grep vd || true").split())

    def drivers(self):
        return sorted(line.split()[2] for line in self.sh("pvblkctl list").splitlines())

    def overridable(self, disk):
        """The name of the device of DISK.  Skip the test if the bus has no driver_override."""
        dev = self.sh(f"basename $(readlink /sys/block/{disk}/device)")
        if self.status(f"test -e /sys/bus/virtio/devices/{dev}/driver_override"):
            self.skipTest("the virtio bus has no driver_override")
        return dev

    def reload(self, parameters, ours_first=True):
        """Reload both drivers.  Return the disks of the one loaded first, then all disks."""
        self.sh("rmmod virtio_pvblk; rmmod virtio_blk")
        if not ours_first:
            self.guest.modprobe("virtio_blk")
        self.guest.modprobe("virtio_pvblk", parameters)
        ours = self.names()
        if ours_first:
            self.guest.modprobe("virtio_blk")
        return ours, self.names()
