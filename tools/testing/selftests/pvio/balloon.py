#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A stock guest on pinned memory that gives pages away and gets others: by a balloon,
by free-page reporting, and by virtio-mem.

Each time the host punches pages out of the guest's memory.  The test looks at the host's
count of pinned pages to see that it happened, and that they are not held; fio then
verifies what is on the disk with buffers in the new pages.
"""

from pathlib import Path

from pviotest import PvioTest, long_in_debug
from pvlab import ktap
from pvlab.guest import Disk, Guest
from pvlab.pvio import wait_for

MIB = 1 << 20
PAGES = MIB >> 12
MEMORY = 768
SMALL = 400
MORE = 256
DISK = 96
# A buffer for each: they fill what the guest has left, and what it gets back.
FIO = (
    "fio --name=v --filename=/dev/vda --size={size}M --bs=1M --ioengine=libaio --direct=1 "
    "--iodepth={size} --verify=crc32c --verify_fatal=1 --rw={rw} {more}"
).format
WRITE = FIO(size=DISK - 1, rw="write", more="--do_verify=0")
VERIFY = FIO(size=DISK - 1, rw="read", more="--do_verify=1")


class OnMemfd(Guest):
    """Its memory is a memfd of small pages, which a balloon frees one by one."""

    def _memory(self):
        return f"memory-backend-memfd,id=mem,size={self.mem},share=on"


def pinned():
    """How many pages are pinned in the host, by anyone."""
    count = {}
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, value = line.split()
        count[name] = int(value)
    return count["nr_foll_pin_acquired"] - count["nr_foll_pin_released"]


@long_in_debug
class Balloon(PvioTest):
    def start(self, *qemu_args):
        null = self.nullb("balloon", size_mb=DISK, submit_queues=2)
        sock = self.socket()
        self.daemon = self.pvio("--socket", sock, "--pinned", null.path, sockets=[sock])
        self.guest = OnMemfd(
            name="balloon",
            vcpus=2,
            mem=f"{MEMORY}M",
            disks=[Disk.vhost_user(sock, num_queues=2)],
            qemu_args=qemu_args,
        )
        self.guest.start()
        self.addCleanup(self.guest.stop)
        self.sh(WRITE)
        self.verify()
        self.assertGreater(pinned(), MEMORY * PAGES * 0.9, "the guest's memory is pinned")

    def sh(self, command):
        return self.guest.run(command, timeout=240, check=True).out

    def verify(self):
        self.sh(VERIFY)

    def driver(self, name):
        self.guest.run(f"modprobe {name}")
        if not self.guest.run(f"test -e /sys/bus/virtio/drivers/{name}").ok:
            self.skipTest(f"the guest's kernel has no {name}")

    def falls_to(self, megabytes):
        wait_for(
            lambda: pinned() < megabytes * PAGES,
            f"fewer than {megabytes} MiB are pinned",
            seconds=120,
        )

    def actual(self):
        return self.guest.qmp("query-balloon")["actual"] // MIB

    def inflate_and_deflate(self):
        self.guest.qmp("balloon", value=SMALL * MIB)
        wait_for(lambda: self.actual() <= SMALL + 8, "the balloon is inflated", seconds=120)
        self.falls_to((MEMORY + SMALL) // 2)
        self.low = pinned()
        self.guest.qmp("balloon", value=MEMORY * MIB)
        wait_for(lambda: self.actual() >= MEMORY - 8, "the balloon is deflated", seconds=120)

    def test_balloon(self):
        self.start("-device", "virtio-balloon-pci,id=balloon0")
        self.driver("virtio_balloon")
        for _ in range(2):
            self.inflate_and_deflate()
            self.verify()
        wait_for(lambda: pinned() > self.low, "what the guest uses again is pinned again")
        self.sh(WRITE)
        self.verify()

    def test_free_page_reporting(self):
        self.start("-device", "virtio-balloon-pci,id=balloon0,free-page-reporting=on")
        self.driver("virtio_balloon")
        for _ in range(2):
            self.sh(
                "mount -t tmpfs -o size=300m none /mnt && "
                "dd if=/dev/zero of=/mnt/filled bs=1M count=250 && umount /mnt"
            )
            # Reported a couple of seconds later, in blocks of 2 MiB and more.
            self.falls_to(MEMORY - 150)
            self.verify()
        self.sh(WRITE)
        self.verify()

    def test_virtio_mem(self):
        self.start(
            "-m",
            f"{MEMORY}M,maxmem={MEMORY + 2 * MORE}M",
            "-object",
            f"memory-backend-memfd,id=more,size={MORE}M,share=on,reserve=off",
            "-device",
            "virtio-mem-pci,id=vm0,memdev=more,requested-size=0",
        )
        self.sh("echo online_movable >/sys/devices/system/memory/auto_online_blocks")
        self.driver("virtio_mem")
        for _ in range(2):
            self.resize(MORE)
            self.verify()
            self.resize(0)
            self.falls_to(MEMORY + MORE // 4)
            self.verify()

    def resize(self, megabytes):
        self.guest.qmp(
            "qom-set",
            path="/machine/peripheral/vm0",
            property="requested-size",
            value=megabytes * MIB,
        )
        wait_for(
            lambda: self.guest.qmp("qom-get", path="/machine/peripheral/vm0", property="size")
            == megabytes * MIB,
            f"{megabytes} MiB are plugged",
            seconds=120,
        )


if __name__ == "__main__":
    ktap.main()
