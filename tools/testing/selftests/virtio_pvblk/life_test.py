#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Devices that come, go, grow, stop answering, all under I/O."""

import hashlib
import threading
import time

from pvblk import DRIVER, Disk, GuestCase
from pvlab import ktap, turns

MIB = 1 << 20
LOOPS = turns.loops(2, 20)
# Without a backlog fio would read only after the time that it is to run.
WRITE_AND_READ = "--rw=randwrite --verify=crc32c --verify_async=0 --verify_backlog=64"
POLL_QUEUES = "/sys/module/virtio_pvblk/parameters/poll_queues"
SUCCESSES = "/sys/power/suspend_stats/success"


class Life(GuestCase):
    qemu_args = ("-device", "pcie-root-port,id=rp0,chassis=1,slot=1")

    @classmethod
    def disks(cls):
        cls.files = [cls.file(f"d{i}") for i in range(2)]
        return [
            Disk.qemu(path, num_queues=2, serial=f"serial-{i}") for i, path in enumerate(cls.files)
        ]

    def throttle(self, disk, bps):
        """QEMU serves DISK (disk0) with so many bytes a second, 0 for no limit."""
        path = f"/machine/peripheral/{disk}/virtio-backend"
        line = f"block_set_io_throttle {path} {bps} 0 0 0 0 0"
        self.assertEqual(self.guest.qmp("human-monitor-command", command_line=line), "")

    def silence(self, disk):
        """What it has to say now takes it more than an hour."""
        self.throttle(disk, 1)
        self.addCleanup(self.throttle, disk, 0)

    def virtio(self, disk):
        """The name of its device, which has a driver again when the test has ended."""
        dev = self.sh(f"basename $(readlink -f /sys/block/{disk}/device)")
        self.addCleanup(self.status, f"echo {dev} >/sys/bus/virtio/drivers/virtio_blk/bind")
        return dev

    def test_unbind_under_io(self):
        disk = self.take("vda")
        dev = self.virtio(disk)
        for mode in ("busy", "adaptive", "irq"):
            for _ in range(LOOPS):
                self.mode(disk, mode)
                with self.io_beside(disk) as io:
                    self.sh(f"echo {dev} >{DRIVER}/unbind")
                    io.wait_end()
                self.gone(disk, io)
                self.sh(f"echo {dev} >{DRIVER}/take")
        self.verify(disk, "--iodepth=8", "1M")

    def test_silent_device_is_waited_for(self):
        disk = self.take("vda")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        for mode in ("busy", "irq"):
            with self.subTest(mode):
                self.mode(disk, mode)
                with self.counting(disk) as grown, self.io_beside(disk) as io:
                    self.silence("disk0")
                    self.wait_unanswered(disk)
                    self.throttle("disk0", 0)
                    io.goes_on()
                self.assertEqual(io.err, 0)
                self.assertGreater(grown["timeouts"], 3)

    def test_silent_device_is_removed(self):
        for mode in ("busy", "irq"):
            with self.subTest(mode):
                disk = self.take("vda")
                dev = self.virtio(disk)
                self.mode(disk, mode)
                self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
                with self.io_beside(disk) as io:
                    self.silence("disk0")
                    self.wait_unanswered(disk)
                    self.sh(f"echo {dev} >{DRIVER}/unbind")
                    io.wait_end()
                # QEMU answers what it holds back when it is reset.
                self.gone(disk, io)
                self.throttle("disk0", 0)
                self.sh(f"echo {dev} >{DRIVER}/take")
                self.verify(disk, "--iodepth=8", "1M")
                self.give_all()

    def test_slow_device_is_written_out(self):
        """What it is removed with takes longer than a request may, but it answers."""
        disk = self.take("vda")
        dev = self.virtio(disk)
        self.sh(
            f"cd /sys/block/{disk}/queue; echo 500 >io_timeout; echo 4 >max_sectors_kb; "
            "dd if=/dev/urandom of=/tmp/cached bs=64k count=64 2>/dev/null"
        )
        # More requests than the rings hold: those QEMU would answer when it is reset.
        self.throttle("disk0", MIB)
        self.addCleanup(self.throttle, "disk0", 0)
        # Held open: what closes a disk last writes out what is cached.
        self.sh(
            f"exec 5</dev/{disk}; dd if=/tmp/cached of=/dev/{disk} bs=64k conv=notrunc 2>/dev/null; "
            f"echo {dev} >{DRIVER}/unbind"
        )
        self.throttle("disk0", 0)
        with open(self.files[0], "rb") as f:
            written = hashlib.sha1(f.read(4 * MIB)).hexdigest()
        self.assertEqual(written, self.sh("sha1sum /tmp/cached").split()[0])

    def test_silent_device_is_not_suspended(self):
        """Nor does it keep the system from going on."""
        disk = self.take("vda")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        with self.io_beside(disk) as io:
            self.silence("disk0")
            self.wait_unanswered(disk)
            before = self.sh(f"cat {SUCCESSES}")
            self.assertNotEqual(self.suspend(), 0)
            self.assertEqual(self.sh(f"cat {SUCCESSES}"), before)
            self.throttle("disk0", 0)
            io.goes_on()
        self.assertEqual(io.err, 0)
        self.verify(disk, "--iodepth=8", "1M")

    def bus_master(self, disk, on):
        """Let its device reach memory, or not, as setpci does."""
        config = f"/sys/block/{disk}/device/../config"
        byte = int(
            self.sh(f"dd if={config} bs=1 skip=4 count=1 2>/dev/null | hexdump -ve '1/1 \"%u\"'")
        )
        byte = byte | 4 if on else byte & ~4
        self.sh(f"printf '\\{byte:03o}' | dd of={config} bs=1 seek=4 conv=notrunc 2>/dev/null")

    def test_a_device_that_stopped_starts_anew(self):
        """Without its bus mastering it forgets its rings, and gets them anew under I/O."""
        disk = self.take("vda")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        self.sh(f"echo 'write through' >/sys/block/{disk}/cache_type")
        for mode in ("busy", "irq"):
            for _ in range(LOOPS):
                with self.subTest(mode):
                    self.mode(disk, mode)
                    self.stopped_under_io(disk)
        self.assertEqual(self.sh(f"cat /sys/block/{disk}/cache_type"), "write through")
        self.verify(disk, "--iodepth=8", "1M")

    def test_who_waits_for_requests_does_not_hold_up_a_restart(self):
        """A CPU that goes offline, and new limits, wait for what only a restart answers."""
        disk = self.take("vda")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        cpu = "/sys/devices/system/cpu/cpu1/online"
        self.addCleanup(self.sh, f"echo 1 >{cpu}")
        for path, word in (
            (cpu, "0"),
            (f"/sys/block/{disk}/cache_type", "write through"),
            (f"/sys/block/{disk}/queue/max_sectors_kb", "128"),
        ):
            with self.subTest(path):
                self.stopped_under_io(disk, f"echo {word} >{path}")
                self.sh("until [ -s /tmp/waited ]; do sleep 0.1; done")
                self.assertEqual(self.sh("cat /tmp/waited"), "0")

    def stopped_under_io(self, disk, beside="true"):
        """All of it is written and read again, without an error."""
        before = self.counters(disk)["restarted"]
        with self.io_beside(disk, WRITE_AND_READ) as io:
            self.bus_master(disk, False)
            self.wait_unanswered(disk)
            self.sh(
                "rm -f /tmp/waited; "
                f"(sh -c '{beside}'; echo $? >/tmp/waited) >/dev/null 2>&1 </dev/null & sleep 0.5"
            )
            self.bus_master(disk, True)
            io.wait_for(io.done() + 200)
        self.assertEqual(io.err, 0)
        self.assertGreater(self.counters(disk)["restarted"], before)

    def test_reset_of_the_pci_function(self):
        """The PCI core does not tell the driver of the reset, so a late request reveals it."""
        disk = self.take(self.plug("reset", self.file("reset")))
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        for mode in ("busy", "irq"):
            for _ in range(LOOPS):
                with self.subTest(mode):
                    self.mode(disk, mode)
                    before = self.counters(disk)["restarted"]
                    with self.io_beside(disk, WRITE_AND_READ) as io:
                        self.sh(f"echo 1 >/sys/block/{disk}/device/../reset")
                        io.wait_for(io.done() + 200)
                    self.assertEqual(io.err, 0)
                    self.assertGreater(self.counters(disk)["restarted"], before)
        self.verify(disk, "--iodepth=8", "1M")
        self.unplug_hot()

    def test_suspend_of_a_device_that_has_stopped(self):
        """The driver restarts the device before the suspend, or after it has refused one."""
        disk = self.take("vda")
        self.sh(f"echo 500 >/sys/block/{disk}/queue/io_timeout")
        for _ in range(LOOPS):
            with self.io_beside(disk, WRITE_AND_READ) as io:
                self.bus_master(disk, False)
                self.wait_unanswered(disk)
                self.bus_master(disk, True)
                self.suspend()
                io.wait_for(io.done() + 200)
            self.assertEqual(io.err, 0)
        self.assertGreater(self.counters(disk)["restarted"], 0)
        self.verify(disk, "--iodepth=8", "1M")

    def plug(self, node, path):
        """A disk of the serial number `hot`; its name."""
        file = {"driver": "file", "filename": str(path)}
        self.guest.qmp("blockdev-add", **{"driver": "raw", "node-name": node, "file": file})
        self.guest.qmp(
            "device_add", driver="virtio-blk-pci", id="hot", drive=node, bus="rp0", serial="hot"
        )
        self.sh("until grep -qs hot /sys/block/vd*/serial; do sleep 0.1; done")
        return self.sh("grep -ls hot /sys/block/vd*/serial | cut -d/ -f4")

    def test_unplug_under_io(self):
        for mode in ("busy", "adaptive"):
            with self.subTest(mode):
                disk = self.take(self.plug(f"hot-{mode}", self.file(f"hot-{mode}")))
                self.mode(disk, mode)
                dev = self.virtio(disk)
                with self.io_beside(disk) as io:
                    self.guest.qmp("device_del", id="hot")
                    io.wait_end()
                    self.sh(f"while [ -e /sys/bus/virtio/devices/{dev} ]; do sleep 0.1; done")
                self.gone(disk, io)
                self.wait_gone("hot")

    def unplug_hot(self):
        self.guest.qmp("device_del", id="hot")
        self.wait_gone("hot")

    def wait_gone(self, device):
        for _ in range(300):
            here = self.guest.qmp("qom-list", path="/machine/peripheral")
            if not any(x["name"] == device for x in here):
                return
            time.sleep(0.1)
        self.fail(f"QEMU still has {device}")

    def test_resize(self):
        disk = self.take("vda")
        self.mode(disk, "busy")
        before = int(self.sh(f"cat /sys/block/{disk}/size"))
        self.guest.qmp("block_resize", **{"node-name": "disk0n", "size": (before * 512) * 2})
        self.sh(f"until [ $(cat /sys/block/{disk}/size) = {before * 2} ]; do sleep 0.1; done")
        self.sh(
            f"dd if=/dev/zero of=/dev/{disk} bs=4k count=1 seek={before * 2 // 8 - 1} oflag=direct"
        )

    def test_cpu_goes_away_under_io(self):
        disk = self.take("vda")
        self.mode(disk, "busy")
        with self.io_beside(disk) as io:
            self.sh(
                f"i=0; while [ $i -lt {LOOPS} ]; do echo 0 >/sys/devices/system/cpu/cpu1/online; "
                "sleep 0.2; echo 1 >/sys/devices/system/cpu/cpu1/online; sleep 0.2; "
                "i=$((i + 1)); done"
            )
            io.goes_on()
        self.assertEqual(io.err, 0)
        self.verify(disk, "--iodepth=8", "1M")

    def suspend(self):
        """Everything but the power off; how the write that asks for it ended."""
        if self.status("test -e /sys/power/pm_test"):
            self.skipTest("the kernel has no pm_test")
        self.sh("echo 1 >/sys/module/suspend/parameters/pm_test_delay")
        return self.status(
            "echo devices >/sys/power/pm_test; echo mem >/sys/power/state; s=$?; "
            "echo none >/sys/power/pm_test; exit $s"
        )

    def test_suspend(self):
        """Freeze and restore of the device, under I/O."""
        disk = self.take("vda")
        for mode in ("busy", "irq"):
            with self.subTest(mode):
                self.mode(disk, mode)
                with self.io_beside(disk) as io:
                    before = int(self.sh(f"cat {SUCCESSES}"))
                    self.assertEqual(self.suspend(), 0)
                    self.assertEqual(int(self.sh(f"cat {SUCCESSES}")), before + 1)
                    io.goes_on()
                self.assertEqual(io.err, 0)
        self.verify(disk, "--iodepth=8", "1M")

    def test_suspend_while_tasks_poll(self):
        """They are frozen first, and what they had in flight is found all the same."""
        self.sh(f"echo 1 >{POLL_QUEUES}")
        self.addCleanup(self.sh, f"echo 0 >{POLL_QUEUES}")
        disk = self.take("vda")
        self.sh(f"echo 5000 >/sys/block/{disk}/queue/io_timeout")
        with self.io_beside(disk, "--rw=randrw --hipri=1") as io:
            self.assertEqual(self.suspend(), 0)
            io.goes_on()
        self.assertEqual(io.err, 0)

    def test_suspend_keeps_the_cache_type(self):
        disk = self.take("vda")
        for kind in ("through", "back"):
            with self.subTest(kind):
                self.sh(f"echo write {kind} >/sys/block/{disk}/cache_type")
                self.assertEqual(self.suspend(), 0)
                for attribute in ("cache_type", "queue/write_cache"):
                    self.assertEqual(self.sh(f"cat /sys/block/{disk}/{attribute}"), f"write {kind}")

    def test_resize_while_suspending(self):
        """The other disk, suspended first, takes its time: meanwhile this one grows."""
        disk, slow = self.take("vda"), self.take("vdb")
        self.sh("echo 0 >/sys/power/pm_async")
        sectors = int(self.sh(f"cat /sys/block/{disk}/size"))
        ended = []
        with self.io_beside(slow) as io:
            self.throttle("disk1", 32 << 10)
            self.addCleanup(self.throttle, "disk1", 0)
            thread = threading.Thread(target=lambda: ended.append(self.suspend()))
            thread.start()
            sizes = 0
            while thread.is_alive():
                sizes += 1
                size = (sectors + 8 * sizes) * 512
                self.guest.qmp("block_resize", **{"node-name": "disk0n", "size": size})
                thread.join(0.1)
            self.assertEqual(ended, [0])
            self.throttle("disk1", 0)
            io.goes_on()
        self.assertEqual(io.err, 0)
        self.sh(
            f"until [ $(cat /sys/block/{disk}/size) = {sectors + 8 * sizes} ]; do sleep 0.1; done"
        )

    def test_module_comes_and_goes(self):
        for _ in range(LOOPS):
            self.give_all()
            self.sh("rmmod virtio_pvblk")
            self.guest.modprobe("virtio_pvblk", "mode=busy")
            disk = self.take("vda")
            self.assertEqual(self.sh(f"cat /sys/block/{disk}/pvblk/mode"), "busy")
            self.verify(disk, "--iodepth=4", "1M")

    def test_plugged_disk_is_claimed(self):
        self.give_all()
        self.sh("rmmod virtio_pvblk")
        self.guest.modprobe("virtio_pvblk", "claim=all")
        self.addCleanup(self.guest.modprobe, "virtio_pvblk")
        self.addCleanup(self.sh, "rmmod virtio_pvblk")
        # whoever was there first would have it
        self.sh("rmmod virtio_blk")
        self.addCleanup(self.guest.modprobe, "virtio_blk")
        disk = self.plug("claimed", self.file("claimed"))
        self.sh(f"test -d /sys/block/{disk}/pvblk")
        self.unplug_hot()


if __name__ == "__main__":
    ktap.main()
