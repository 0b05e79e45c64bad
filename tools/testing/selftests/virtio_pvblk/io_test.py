#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Data arrives, in every mode, at every depth, with every kind of ring."""

import contextlib
import itertools
import os
import re
import time
import unittest
from pathlib import Path

from pvblk import (
    BATCHES,
    CROWDED_FORGET,
    CROWDED_MAX,
    FILE_SYSTEMS,
    FIO,
    UNCROWDED_DEPTHS,
    Disk,
    GuestCase,
)
from pvlab import ktap
from pvlab.pvio import Nullb

MIB = 1 << 20
SLOW_NS = 20_000_000
SLOW_READS = 48
THROTTLED_IOPS = 200


class Io(GuestCase):
    # One disk of each kind of ring; the first is the one for everything else.
    KINDS = {
        "plain": {},
        "no event index": {"event_idx": False},
        "neither": {"event_idx": False, "indirect_desc": False, "queue_size": 16},
        "packed": {"packed": True},
        "legacy": {"disable_modern": True, "disable_legacy": False, "indirect_desc": False},
    }

    @classmethod
    def disks(cls):
        cls.backing = cls.file("fs", "400M")
        return [
            Disk.qemu(cls.file(f"r{i}", "32M"), num_queues=3 - i % 3, serial=f"r{i}", **kind)
            for i, kind in enumerate(cls.KINDS.values())
        ] + [
            Disk.qemu(cls.backing, num_queues=2, serial="fs"),
            Disk.qemu(cls.slow(), serial="slow"),
        ]

    @classmethod
    def slow(cls):
        """A disk that takes its time for each request."""
        null = Nullb("slow", size_mb=16, irqmode=2, completion_nsec=SLOW_NS)
        cls.addClassCleanup(null.remove)
        return null.path

    def setUp(self):
        self.disk = self.take("vda")

    def test_every_ring(self):
        for name, kind in zip(("vdb", "vdc", "vdd", "vde"), list(self.KINDS)[1:], strict=True):
            disk = self.take(name)
            for mode in ("busy", "irq"):
                with self.subTest(f"{kind}, {mode}"):
                    self.mode(disk, mode)
                    self.verify(disk, "--iodepth=32", "1M")

    def test_iopoll(self):
        parameter = "/sys/module/virtio_pvblk/parameters/poll_queues"
        self.give_all()
        self.sh(f"echo 1 >{parameter}")
        self.addCleanup(self.sh, f"echo 0 >{parameter}")
        disk = self.take("vda")
        queues = self.sh(f"ls /sys/block/{disk}/mq").split()
        self.assertEqual(len(queues), self.vcpus + 1)
        # Of what fio does, all reads and writes of blocks are the polled queue's, the last.
        before = self.of_queues(disk)
        self.verify(disk, "--hipri=1 --iodepth=8", "1M")
        polled = [b - a for a, b in zip(before, self.of_queues(disk), strict=True)]
        self.assertGreater(polled[0], 8)
        self.assertEqual(polled[0], polled[1])
        self.assertGreater(polled[2], 0)

    def of_queues(self, disk):
        """What the last queue has submitted and completed, and its polls that found something."""
        names = ("submitted", "completed", "found")
        files = " ".join(f"/sys/block/{disk}/pvblk/{n}" for n in names)
        return [int(line.split()[-1]) for line in self.sh(f"cat {files}").splitlines()]

    def test_verify_in_every_mode(self):
        for mode in ("irq", "adaptive", "busy"):
            for depth in (1, 32):
                with self.subTest(f"{mode}, depth {depth}"):
                    self.mode(self.disk, mode)
                    self.verify(self.disk, f"--iodepth={depth}", "2M")

    def test_modes_change_under_io(self):
        flip = (
            "for i in 1 2 3; do for m in busy irq adaptive; do "
            f"echo $m >/sys/block/{self.disk}/pvblk/mode; sleep 0.1; done; done"
        )
        with self.io_beside(self.disk, "--rw=randwrite --verify=crc32c") as io:
            self.sh(flip)
        self.assertEqual(io.err, 0)
        counted = self.counters(self.disk)
        self.assertEqual(counted["submitted"], counted["completed"])

    def test_busy_takes_no_interrupt(self):
        for depth, cpu in itertools.product(UNCROWDED_DEPTHS, range(self.vcpus)):
            with self.subTest(f"depth {depth}, CPU {cpu}"):
                self.no_interrupts(self.disk, depth, cpu)

    def test_who_computes_between_reads_is_polled_for(self):
        """It keeps the CPU for many ticks, but nobody waits for that."""
        self.mode(self.disk, "busy")
        self.sh(
            f"yes | dd of=/dev/{self.disk} bs=64k count=4 iflag=fullblock oflag=direct 2>/dev/null; "
            f"echo 0 >/sys/block/{self.disk}/queue/read_ahead_kb; echo 3 >/proc/sys/vm/drop_caches"
        )
        # One page of lines after the other, and a line takes its time.
        lines = f'while (n < 131072 && (getline line < "/dev/{self.disk}") > 0) n++'
        with self.counting(self.disk) as grown:
            self.sh(f"taskset -c 0 awk 'BEGIN {{ {lines} }}'")
        self.assertGreaterEqual(grown["completed"], 64)
        self.assertLess(grown["interrupts"], grown["completed"] / 2)

    def test_bursts_of_another_task_leave_the_queue_to_interrupts(self):
        """Each is so short that the poller runs in each tick; a read waits for several."""
        disk = self.take("vdg")
        self.mode(disk, "busy")
        burst = "fio --name=b --thread --ioengine=cpuio --cpuload=30 --cpuchunks=3000"
        ticks = "awk '{ exit $14 < 50 }' /proc/$pid/stat"
        self.sh(
            f"{burst} --cpus_allowed=0 --time_based --runtime=600 >/dev/null 2>&1 </dev/null & "
            f"pid=$!; until {ticks}; do sleep .1; done"
        )
        interrupts = 0
        try:
            for depth in UNCROWDED_DEPTHS:
                time.sleep(CROWDED_MAX)
                with self.subTest(f"depth {depth}"):
                    with self.counting(disk) as grown:
                        self.reads(disk, depth, SLOW_READS, 0)
                    # Where a burst took two ticks, all reads that follow are left to interrupts.
                    left = max(grown["starved"], grown["interrupts"])
                    self.assertGreaterEqual(left, SLOW_READS / depth / 2)
                    interrupts += grown["interrupts"]
        finally:
            self.sh("while killall -9 fio 2>/dev/null; do sleep .1; done")
        self.assertGreater(interrupts, 0)

    def test_the_poller_follows_the_task_that_submits(self):
        """Some requests are always in flight, so no poller drops the queue by itself."""
        # It has one queue, which both CPUs share.
        disk = self.take("vdc")
        self.mode(disk, "busy")
        # A move takes 64 submissions, and the polling of the new CPU has to begin.
        moved = 150
        with self.throttled(2), self.io_beside(disk, "--rw=randread --cpus_allowed=0", 4) as io:
            # While fio crowds out the poller of its CPU, the other one may have the queue.
            self.await_poller(io, 0)
            self.sh("for p in $(pidof fio); do taskset -apc 1 $p; done >/dev/null")
            io.wait_for(io.done() + moved)
            ran = self.await_poller(io, 1)
            self.assertEqual(ran.index(max(ran)), 1)

    @contextlib.contextmanager
    def throttled(self, index):
        """QEMU answers requests of a disk one by one, and lets the others wait."""
        (disk,) = [d for d in self.qdevs() if f"disk{index}" in d]
        limits = dict.fromkeys("bps bps_rd bps_wr iops_rd iops_wr".split(), 0)
        self.guest.qmp("block_set_io_throttle", id=disk, iops=THROTTLED_IOPS, **limits)
        try:
            yield
        finally:
            self.guest.qmp("block_set_io_throttle", id=disk, iops=0, **limits)

    def qdevs(self):
        """{path of a disk in QEMU's tree: its statistics}"""
        return {d["qdev"]: d["stats"] for d in self.guest.qmp("query-blockstats") if "qdev" in d}

    def await_poller(self, io, cpu):
        """How long each CPU's poller ran while some I/O went on, the first time that CPU's did."""
        for _ in range(BATCHES):
            before = self.ran()
            io.goes_on()
            ran = [b - a for a, b in zip(before, self.ran(), strict=True)]
            if ran[cpu]:
                return ran
        return self.fail(f"the poller of CPU {cpu} did not run in {BATCHES} looks: {ran}")

    def ran(self):
        """How long the poller of each CPU has run, in nanoseconds."""
        each = "for c in $(grep -lx virtio-poll/$cpu /proc/[0-9]*/comm 2>/dev/null)"
        cpus = " ".join(map(str, range(self.vcpus)))
        lines = self.sh(
            f"for cpu in {cpus}; do {each}; do cat ${{c%comm}}schedstat; done; done"
        ).splitlines()
        self.assertEqual(len(lines), self.vcpus)
        return [int(line.split()[0]) for line in lines]

    def test_irq_does_not_poll(self):
        self.mode(self.disk, "irq")
        with self.counting(self.disk) as grown:
            self.sh(
                f"{FIO} --filename=/dev/{self.disk} --rw=randread --bs=4k --iodepth=4 --size=2M"
            )
        self.assertGreater(grown["interrupts"], 0)
        # what was attached when the mode changed may look once more
        self.assertLessEqual(grown["polls"], 2)

    def test_adaptive_without_time_to_poll_sleeps(self):
        self.mode(self.disk, "adaptive")
        self.sh(f"echo 0 >/sys/block/{self.disk}/pvblk/poll_max_us")
        # what was attached before may look once more
        self.sh(f"dd if=/dev/{self.disk} of=/dev/null bs=4k count=1 iflag=direct; sleep 0.1")
        with self.counting(self.disk) as grown:
            self.sh(
                f"{FIO} --filename=/dev/{self.disk} --rw=randread --bs=4k --iodepth=4 --size=2M"
            )
        self.assertGreater(grown["interrupts"], 0)
        self.assertEqual((grown["polls"], grown["irq_fallbacks"]), (0, 0))

    def test_adaptive_tries_polling_again_more_and_more_rarely(self):
        self.mode(self.disk, "adaptive")
        # No device is so fast, so every try is in vain.
        self.sh(f"echo 1 >/sys/block/{self.disk}/pvblk/poll_max_us")
        fio = (
            f"{FIO} --filename=/dev/{self.disk} --rw=randread --bs=4k --iodepth=1 "
            "--cpus_allowed=0 --size="
        )
        self.sh(f"{fio}64k")
        # Being crowded out lasts the longer, the less it is forgotten, and no try is made then.
        time.sleep(CROWDED_FORGET)
        with self.counting(self.disk) as grown:
            self.sh(f"{fio}4M")
        # Of 16 waits, then of 32, 64, ...: six.  One that is crowded out is a try, too, and so
        # is one whose answer is there when the thread comes to poll: QEMU may take the CPU
        # from the vCPU that kicked it.  On a busy host steal time forbids some.
        tries = grown["irq_fallbacks"] + grown["found"]
        self.assertEqual(grown["completed"], 1024)
        self.assertGreaterEqual(tries + grown["stolen"], 3, grown)
        self.assertLess(tries - grown["starved"], 12, grown)
        self.assertGreater(grown["interrupts"], 900)

    def test_idle_does_nothing(self):
        for mode in ("adaptive", "busy"):
            with self.subTest(mode):
                self.mode(self.disk, mode)
                self.verify(self.disk, "--iodepth=4", "1M")
                self.sh("sleep 0.5")
                with self.counting(self.disk) as grown:
                    self.sh("sleep 1")
                self.assertEqual(set(grown.values()), {0}, grown)

    def test_kicks_add_up(self):
        with self.counting(self.disk) as grown:
            self.verify(self.disk, "--iodepth=16", "2M")
        kicks = grown["kicks_sent"] + grown["kicks_saved"]
        self.assertGreater(grown["kicks_sent"], 0)
        self.assertLessEqual(kicks, grown["submitted"] + 1)

    def test_bad_words_are_refused(self):
        where = f"/sys/block/{self.disk}/pvblk"
        self.assertNotEqual(self.status(f"echo fast >{where}/mode"), 0)
        self.assertNotEqual(self.status(f"echo 9999999 >{where}/poll_max_us"), 0)

    def on_the_big_disk(self):
        # busybox has one that cannot write zeroes
        self.guest.put("/bin/ul-blkdiscard", Path("/usr/sbin/blkdiscard"))
        self.sh("chmod 755 /bin/ul-blkdiscard")
        self.fs = self.take("vdf")
        self.mode(self.fs, "busy")

    def used(self):
        return self.backing.stat().st_blocks * 512

    @unittest.skipUnless(os.environ.get("FULL"), "FULL=1 runs it: it takes minutes")
    def test_file_systems(self):
        self.on_the_big_disk()
        for fs in FILE_SYSTEMS:
            with self.subTest(fs):
                self.file_system(self.fs, fs)

    def test_discard(self):
        self.on_the_big_disk()
        self.sh(f"dd if=/dev/urandom of=/dev/{self.fs} bs=1M count=16 oflag=direct 2>/dev/null")
        full = self.used()
        self.sh(f"ul-blkdiscard -o {4 * MIB} -l {8 * MIB} /dev/{self.fs}")
        self.assertEqual(full - self.used(), 8 * MIB)
        with open(self.backing, "rb") as f:
            f.seek(4 * MIB)
            self.assertEqual(f.read(8 * MIB), bytes(8 * MIB))
            self.assertNotEqual(f.read(4096), bytes(4096))

    def test_write_zeroes(self):
        self.on_the_big_disk()
        self.sh(f"dd if=/dev/urandom of=/dev/{self.fs} bs=1M count=8 oflag=direct 2>/dev/null")
        self.sh(f"ul-blkdiscard -z -o {MIB} -l {2 * MIB} /dev/{self.fs}")
        with open(self.backing, "rb") as f:
            self.assertNotEqual(f.read(4096), bytes(4096))
            f.seek(MIB)
            self.assertEqual(f.read(2 * MIB), bytes(2 * MIB))
            self.assertNotEqual(f.read(4096), bytes(4096))

    def test_flush_reaches_the_device(self):
        write = f"{FIO} --filename=/dev/{self.disk} --rw=write --bs=4k --size=8k"
        before = self.flushes()
        self.sh(write)
        self.assertEqual(self.flushes(), before)
        self.sh(f"{write} --end_fsync=1")
        self.assertEqual(self.flushes(), before + 1)

    def flushes(self):
        """How many the first disk was asked for, as QEMU counts them."""
        (stats,) = [s for qdev, s in self.qdevs().items() if "disk0" in qdev]
        return stats["flush_operations"]

    def test_trace(self):
        """Each request that goes comes back under the same tag."""
        tracing = "/sys/kernel/tracing"
        # So that the poller has the queue: it does not in each mode, nor beside what ran before.
        self.mode(self.disk, "busy")
        time.sleep(CROWDED_MAX)
        self.sh(
            f"[ -e {tracing}/trace ] || mount -t tracefs tracefs {tracing}; cd {tracing}; "
            "echo >trace; echo 1 >events/virtio_pvblk/enable; echo 1 >events/virtio_poll/enable"
        )
        self.sh(f"dd if=/dev/{self.disk} of=/dev/null bs=4k count=16 iflag=direct 2>/dev/null")
        self.sh(f"cd {tracing}/events; echo 0 >virtio_pvblk/enable; echo 0 >virtio_poll/enable")
        lines = self.sh(f"cat {tracing}/trace").splitlines()
        seen = {}
        for event in ("submit", "complete"):
            found = [line for line in lines if f" virtio_pvblk_{event}: " in line]
            seen[event] = [re.search(r"(\d+:\d+ queue=\d+ tag=\d+)", line)[1] for line in found]
        self.assertGreaterEqual(len(seen["submit"]), 16)
        self.assertEqual(sorted(seen["submit"]), sorted(seen["complete"]))
        self.assertTrue(any("virtio_poll_attach: " in line for line in lines), lines)


if __name__ == "__main__":
    ktap.main()
