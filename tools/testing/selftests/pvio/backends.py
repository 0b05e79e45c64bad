#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One stock guest, and a disk of each kind that one pvio serves to it.

Each is served by the engine that Documentation/admin-guide/vhost-blk.rst promises,
as the kernel itself says; what the guest writes comes back, at several depths and on
several queues; and what it discards and zeroes is gone from the disk, no more and no
less, as the host reads it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import vhostblk
from pviotest import PvioTest, long_in_debug
from pvlab import ktap
from pvlab.guest import Disk, Guest
from pvlab.pvio import run

MIB = 1 << 20
FULL = bool(os.environ.get("FULL"))
# More than the host VM has CPUs: slow, and often lost by the emulator as it boots.
VCPUS = 4 if FULL else 2
DEPTHS = (1, 16, 128)
# Each job has a CPU and a part of the disk to itself, so that each queue has its jobs.
FIO = (
    f"fio --name=v --filename=/dev/{{disk}} --numjobs={VCPUS} --size=512k --offset_increment=512k "
    f"--cpus_allowed=0-{VCPUS - 1} --cpus_allowed_policy=split --thread --group_reporting "
    "--rw=randwrite --bsrange=512-128k --ioengine=libaio --direct=1 "
    "--iodepth={depth} --verify=crc32c --verify_fatal=1 --do_verify=1"
)
PART = 256 << 10
PARTS = 5


@dataclass
class Backend:
    name: str
    path: Path
    engine: str
    queues: int
    depths: tuple


@long_in_debug
class Backends(PvioTest):
    def backends(self):
        """What this host has, each with the depths it is tried with."""
        # by default it has a poll queue, and then that is what is used
        memory = {"submit_queues": 2, "poll_queues": 0, "discard": 1}
        null = self.nullb("be-null", size_mb=64, **memory).path
        below = self.nullb("be-below", size_mb=48, **memory).path
        found = [
            Backend("null_blk", null, "mq", VCPUS, (1, 128)),
            Backend("loop", self.loop(), "mq", 2, (16,)),
            Backend("dm-linear", self.dm_linear(below), "bio", 2, (128,)),
            Backend("brd", self.brd(), "bio", 1, (16,)),
            Backend("file", self.image("raw.img", 56 * MIB), "file", 1, (1, 16)),
        ]
        if os.environ.get("PVIO_TEST_NVME"):
            nvme = Path(os.environ["PVIO_TEST_NVME"])
            found.append(Backend("nvme", nvme, "mq", VCPUS, (16, 128)))
        return found

    def loop(self):
        run("modprobe", "loop")
        path = run("losetup", "--find", "--show", self.image("loop.img", 44 * MIB)).stdout.strip()
        self.addCleanup(run, "losetup", "--detach", path)
        return Path(path)

    def dm_linear(self, below):
        run("modprobe", "dm_mod")
        sectors = 40 * MIB // 512
        words = ("--noudevrules", "--noudevsync", "pvio-be")
        run("dmsetup", "create", *words, "--table", f"0 {sectors} linear {below} 2048")
        self.addCleanup(run, "dmsetup", "remove", *words)
        # no udev here to make it, or one that is late
        run("dmsetup", "mknodes", "pvio-be")
        return Path("/dev/mapper/pvio-be")

    def brd(self):
        self.assertFalse(Path("/sys/module/brd").exists(), "somebody else uses brd")
        run("modprobe", "brd", "rd_nr=1", f"rd_size={32 * MIB // 1024}")
        self.addCleanup(run, "rmmod", "brd")
        return Path("/dev/ram0")

    def start(self):
        words, disks, sockets = [], [], []
        for one in self.all:
            sock = self.socket(one.name)
            sockets.append(sock)
            words += ["--device", f"socket={sock},path={one.path}"]
            disks.append(Disk.vhost_user(sock, num_queues=one.queues))
        cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2])
        self.daemon = self.pvio("--poll-cpu", cpus, *words, sockets=sockets)
        self.guest = Guest(name="pvio-backends", vcpus=VCPUS, disks=disks)
        self.guest.start()
        self.addCleanup(self.guest.stop)

    def test_backends(self):
        self.all = self.backends()
        self.start()
        for index, one in enumerate(self.all):
            disk = f"vd{chr(ord('a') + index)}"
            for step in (self.engine, self.verifies, self.on_every_queue, self.discards_and_zeroes):
                with self.subTest(f"{one.name}: {step.__name__}"):
                    step(one, disk)

    def kernel(self, one):
        """What the kernel says of the device that serves ONE; their sizes differ."""
        sectors = int(run("blockdev", "--getsz", one.path).stdout) if one.engine != "file" else 0
        sectors = sectors or one.path.stat().st_size // 512
        found = vhostblk.devices(self.daemon.process.pid, one.queues)
        matching = [device for device in found if device.sectors == sectors]
        self.assertEqual(len(matching), 1, f"{sectors} sectors: {found}")
        return matching[0]

    def engine(self, one, disk):
        device = self.kernel(one)
        self.assertEqual(device.engine, one.engine)
        seen = int(self.guest.run(f"cat /sys/block/{disk}/size", check=True).out)
        self.assertEqual(seen, device.sectors)

    def verifies(self, one, disk):
        for depth in DEPTHS if FULL else one.depths:
            self.guest.run(FIO.format(disk=disk, depth=depth), timeout=240, check=True)

    def on_every_queue(self, one, disk):
        del disk
        device = self.kernel(one)
        for vring in device.vrings:
            self.assertGreater(vring["writes"], 0, vring)
            self.assertGreater(vring["reads"], 0, vring)
        contexts = {vring["hctx"] for vring in device.vrings}
        if one.engine != "mq":
            self.assertEqual(contexts, {vhostblk.HCTX_AUTO})
        else:
            # Two pollers, so two contexts even where a poller cannot choose.
            self.assertEqual(len(contexts), min(2, one.queues, device.nr_hctx), device)

    def discards_and_zeroes(self, one, disk):
        """One part is discarded and one is zeroed, each with data on both sides."""
        parts = [os.urandom(PART) for _ in range(PARTS)]
        self.guest.put("/tmp/pattern", b"".join(parts))
        self.guest.run(f"dd if=/tmp/pattern of=/dev/{disk} bs={PART} oflag=direct", check=True)
        self.assert_host_reads(one, parts)
        # as a list, or the shell takes busybox's, which cannot write zeroes
        blkdiscard = ["blkdiscard", "--length", str(PART), f"/dev/{disk}"]
        self.guest.run([*blkdiscard, "--offset", str(PART)], check=True)
        self.guest.run([*blkdiscard, "--offset", str(3 * PART), "--zeroout"], check=True)
        parts[1] = parts[3] = bytes(PART)
        self.assert_host_reads(one, parts)
        device = self.kernel(one)
        self.assertGreater(device.total("discards"), 0)
        self.assertGreater(device.total("write_zeroes"), 0)
        for counter in ("errors", "unsupp", "malformed"):
            self.assertEqual(device.total(counter), 0, counter)

    def assert_host_reads(self, one, parts):
        """The disk itself holds PARTS; the host's page cache of it may be stale."""
        copy = self.tmp / "copy"
        flag = [] if one.engine == "file" else ["iflag=direct"]
        run("dd", f"if={one.path}", f"of={copy}", f"bs={PART}", f"count={PARTS}", *flag)
        held = copy.read_bytes()
        wrong = [i for i, part in enumerate(parts) if held[i * PART : (i + 1) * PART] != part]
        self.assertEqual(wrong, [], "these parts are not as the guest left them")


if __name__ == "__main__":
    ktap.main()
