#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A stock guest on three disks that one pvio serves."""

import json
import os
import signal

from pviotest import PvioTest
from pvlab import ktap
from pvlab.guest import Disk, Guest
from pvlab.pvio import wait_for

MIB = 1 << 20
SIZE = 64
FIO = (
    "fio --name=v --filename={disk} --size=8M --rw=randwrite --bsrange=4k-128k "
    "--ioengine=libaio --direct=1 --iodepth={depth} --numjobs=1 --verify=crc32c "
    "--verify_fatal=1 --do_verify=1"
)


def reboot(guest):
    """A reset by the monitor, as a user's; the guest comes up anew."""
    with guest._lock:
        while guest._free:
            guest._free.pop().close()
    guest.qmp("set-action", reboot="reset")
    guest.qmp("system_reset")
    guest._free.append(guest.connect(guest.boot_timeout))
    guest.modprobe("virtio_blk")


class Serve(PvioTest):
    def start(self):
        self.disks = [
            self.nullb("serve", size_mb=SIZE, submit_queues=2).path,
            self.image("raw.img", SIZE * MIB),
            self.image("ro.img", SIZE * MIB),
        ]
        self.disks[2].write_bytes(b"golden" + bytes(SIZE * MIB - 6))
        sockets = [self.socket(n) for n in ("mq", "file", "ro")]
        words = []
        for disk, where, more in zip(
            self.disks, sockets, ("", ",serial=second", ",read-only"), strict=True
        ):
            words += ["--device", f"socket={where},path={disk}{more}"]
        self.daemon = self.pvio(*words, sockets=sockets)
        guest = Guest(
            name="pvio",
            vcpus=2,
            disks=[
                Disk.vhost_user(s, num_queues=q, reconnect=1)
                for s, q in zip(sockets, (2, 1, 1), strict=True)
            ],
        )
        guest.start()
        self.addCleanup(guest.stop)
        return guest

    def test_serve(self):
        guest = self.start()
        for step in (
            self.sees_what_was_said,
            self.verifies,
            self.counts,
            self.reads_only,
            self.reboots,
            self.grows,
        ):
            with self.subTest(step.__name__):
                step(guest)

    def sees_what_was_said(self, guest):
        sizes = guest.run("cat /sys/block/vd[abc]/size", check=True).out.split()
        self.assertEqual(sizes, [str(SIZE * 2048)] * 3)
        self.assertEqual(guest.run("cat /sys/block/vdb/serial", check=True).out.strip(), "second")
        self.assertEqual(guest.run("ls /sys/block/vda/mq | wc -l", check=True).out.strip(), "2")

    def verifies(self, guest):
        for disk, depth in (("/dev/vda", 32), ("/dev/vdb", 8)):
            guest.run(FIO.format(disk=disk, depth=depth), timeout=240, check=True)
        guest.run(
            "echo from-the-guest | dd of=/dev/vdb bs=512 conv=sync,fsync oflag=direct", check=True
        )
        with open(self.disks[1], "rb") as image:
            self.assertTrue(
                image.read(14) == b"from-the-guest", "what the guest wrote is in the image"
            )

    def counts(self, _guest):
        self.daemon.signal(signal.SIGUSR1)
        said = wait_for(self.counters, "pvio prints its counters")
        self.assertGreater(said[0]["poller"]["work"], 0)
        self.assertEqual([line["disk"] for line in said[1:]], ["mq", "file", "ro"])
        mq, file, _ = ([v for v in line["vrings"] if v["writes"]] for line in said[1:])
        # fio has written 8 MiB of each, and has read of them.
        for vrings in (mq, file):
            self.assertGreaterEqual(sum(v["write_bytes"] for v in vrings), 8 * MIB)
            self.assertGreater(sum(v["read_bytes"] for v in vrings), 0)
            self.assertEqual(sum(v["errors"] for v in vrings), 0)

    def counters(self):
        """A line for the poller and three for the disks, once all of them are there."""
        lines = [line for line in self.daemon.log.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines] if len(lines) == 4 else None

    def reads_only(self, guest):
        self.assertEqual(guest.run("head -c 6 /dev/vdc", check=True).out, "golden")
        self.assertFalse(guest.run("dd if=/dev/zero of=/dev/vdc bs=512 count=1").ok)
        with open(self.disks[2], "rb") as image:
            self.assertEqual(image.read(6), b"golden")

    def reboots(self, guest):
        reboot(guest)
        self.assertEqual(guest.run("head -c 14 /dev/vdb", check=True).out, "from-the-guest")
        guest.run(FIO.format(disk="/dev/vda", depth=4), timeout=240, check=True)

    def grows(self, guest):
        os.truncate(self.disks[1], 2 * SIZE * MIB)
        self.daemon.signal(signal.SIGHUP)
        size = str(2 * SIZE * 2048)
        wait_for(
            lambda: guest.run("cat /sys/block/vdb/size").out.strip() == size,
            "the guest sees the new size",
        )
        where = f"seek={2 * SIZE - 1}"
        guest.run(f"dd if=/dev/zero of=/dev/vdb bs=1M count=1 oflag=direct {where}", check=True)


if __name__ == "__main__":
    ktap.main()
