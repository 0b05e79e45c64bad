#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A device that lies: the guest has an I/O error or the right data, and can remove the driver."""

import hashlib
import os

from pvblk import DEBUG, DRIVER, PATIENCE, Disk, GuestCase
from pvlab import ktap
from server import DISK_BYTES, S_IOERR, S_UNSUPP, SERIAL, Liar
from vhostuser import lie_of

LIMIT_MS = 500  # what a request may take before the driver looks after it
NEVER_MS = 3600000  # a driver that sees a broken ring does not wait for that look
BLOCK = 4096
MODES = ("busy",) if DEBUG else ("busy", "irq")  # each lie reloads the driver, which takes long
DD = "taskset -c 0 dd"  # all by the same queue
EIO = "Input/output error"
# The driver makes no use of the length, so a wrong one cannot mislead it.
LENGTHS = {
    "nothing written": 0,
    "the status alone": 1,
    "one byte less": BLOCK,
    "one byte more": BLOCK + 2,
    "more than there is room": 0xFFFFFFFF,
}
BAD_STATUSES = {
    "never written": (None, EIO),
    "an error": (S_IOERR, EIO),
    "not supported": (S_UNSUPP, "Operation not supported"),
    "out of range": (3, EIO),
    "all ones": (0xFF, EIO),
}
# Where the head is wrong, the request itself has no answer.  Otherwise it has, and the device
# claims to have answered more than it was asked.
BROKEN_RINGS = {
    "a head just out of range": {"head": 128},
    "a head far out of range": {"head": 0xFFFFFFFF},
    "a head that is not in flight": {"head": 77},
    "each head twice": {"times": 2},
    "one head in the whole ring": {"times": 128},
    "an index that went round": {"times": 5000},
    "an index that jumps by one": {"jump": 1},
    "an index that jumps by the ring": {"jump": 128},
    "an index that jumps far": {"jump": 5000},
    "an index that goes back": {"jump": -2},
}


class Hostile(GuestCase):
    modules = ()
    module = "claim=all"
    disk = "vdaa"

    @classmethod
    def disks(cls):
        path = cls.file("liar")
        path.unlink()
        cls.server = Liar(path)
        cls.addClassCleanup(cls.server.stop)
        return [Disk.vhost_user(path, num_queues=2)]

    @classmethod
    def load(cls):
        super().load()
        cls.limit()

    @classmethod
    def limit(cls, milliseconds=LIMIT_MS):
        cls.sh(f"echo {milliseconds} >/sys/block/{cls.disk}/queue/io_timeout")

    def tearDown(self):
        self.server.lie = None
        self.server.silent = False
        self.assertIsNone(self.server.failed)

    # what the guest does

    def read(self, block=0):
        return self.guest.run(
            f"{DD} if=/dev/{self.disk} of=/tmp/block bs={BLOCK} count=1 skip={block} iflag=direct",
            timeout=PATIENCE / 4,
        )

    def write(self, block=0):
        return self.guest.run(
            f"{DD} if=/dev/zero of=/dev/{self.disk} bs={BLOCK} count=1 seek={block} "
            "oflag=direct conv=notrunc",
            timeout=PATIENCE / 4,
        )

    def assert_error(self, result, error=EIO):
        self.assertNotEqual(result.status, 0)
        self.assertIn(error, result.err)

    def assert_read(self):
        """A block of the disk, as it is."""
        self.assertEqual(self.read(block=5).status, 0)
        wanted = hashlib.sha1(self.server.data[5 * BLOCK : 6 * BLOCK]).hexdigest()
        self.assertEqual(self.sh("sha1sum /tmp/block").split()[0], wanted)

    def truth(self):
        """The device is honest again, and the guest reads all of the disk as it is."""
        self.server.lie = None
        wanted = hashlib.sha1(self.server.data).hexdigest()
        seen = self.sh(f"dd if=/dev/{self.disk} bs=64k iflag=direct 2>/dev/null | sha1sum")
        self.assertEqual(seen.split()[0], wanted)

    def again(self):
        """The driver can be removed, whatever it has in flight; loaded anew it works."""
        self.sh("rmmod virtio_pvblk")
        self.server.lie = None
        self.server.silent = False
        self.load()
        self.truth()

    def lies(self, changes):
        self.server.told = 0
        self.server.lie = lie_of(changes)

    def told(self):
        self.server.lie = None
        self.assertGreater(self.server.told, 0)

    # the tests

    def test_the_truth(self):
        self.truth()
        self.assertEqual(self.sh(f"cat /sys/block/{self.disk}/serial"), SERIAL.decode())
        self.assertEqual(int(self.sh(f"cat /sys/block/{self.disk}/size")) * 512, DISK_BYTES)

    def test_lengths_do_not_count(self):
        for name, length in LENGTHS.items():
            with self.subTest(name):
                self.lies({"length": length})
                self.assert_read()
                self.assertEqual(self.write().status, 0)
                self.told()
        self.truth()

    def test_bad_statuses_are_errors(self):
        for name, (status, error) in BAD_STATUSES.items():
            with self.subTest(name):
                self.lies({"status": status})
                self.assert_error(self.read(), error)
                self.assert_error(self.write(), error)
                self.told()
                self.truth()

    def test_bad_statuses_of_many_at_once(self):
        """The driver completes these as a batch, and finds the errors among them."""
        with self.io_beside(self.disk, "--rw=randread --size=1M") as io:
            self.lies({"status": None})
            io.wait_end()
            self.told()
        self.assertEqual(os.strerror(io.err), EIO)
        self.truth()

    def test_broken_rings_end_all(self):
        for mode in MODES:
            for name, changes in BROKEN_RINGS.items():
                with self.subTest(f"{name}, {mode}"):
                    self.mode(self.disk, mode)
                    self.broken(changes)

    def broken(self, changes):
        """A request whose head is right has its answer; the one after it fails."""
        self.limit(NEVER_MS)
        self.lies(changes)
        try:
            if "head" not in changes:
                self.assert_read()
            self.assert_error(self.read())
            self.told()
        finally:
            self.again()

    def test_broken_ring_while_much_is_in_flight(self):
        """The reset also ends requests of the other queue, even if the ring breaks after a good
        answer."""
        for mode in ("busy", "irq"):
            for changes in ({"head": 0xFFFF}, {"others": [0xFFFF]}):
                with self.subTest(f"{changes}, {mode}"):
                    self.mode(self.disk, mode)
                    self.broken_under_io("--rw=randread --size=1M", changes)

    def test_broken_ring_of_a_task_that_polls(self):
        self.sh("rmmod virtio_pvblk")
        self.guest.modprobe("virtio_pvblk", f"{self.module} poll_queues=1")
        self.assertEqual(self.sh(f"cat /sys/block/{self.disk}/queue/io_poll"), "1")
        self.broken_under_io("--rw=randread --hipri=1 --size=1M", {"head": 0xFFFF})

    def broken_under_io(self, options, changes):
        self.limit(NEVER_MS)
        with self.io_beside(self.disk, options) as io:
            self.lies(changes)
            io.wait_end()
            self.told()
        self.assertEqual(os.strerror(io.err), EIO)
        self.again()

    def test_lost_request_holds_up_nothing_else(self):
        """The driver waits for it and serves others meanwhile; once it is removed, it fails."""
        self.lies({"lost": True})
        self.sh(
            f"rm -f /tmp/status; (dd if=/dev/{self.disk} of=/dev/null bs=4k count=1 iflag=direct "
            "2>/tmp/said; echo $? >/tmp/status) >/dev/null 2>&1 </dev/null &"
        )
        self.sh(
            f"until [ $(awk '{{ print $1 + $2 }}' /sys/block/{self.disk}/pvblk/inflight) = 1 ]; "
            "do sleep 0.1; done"
        )
        self.wait_unanswered(self.disk)
        self.told()
        self.truth()
        self.assertNotEqual(self.status("test -e /tmp/status"), 0)
        dev = self.sh(f"basename $(readlink -f /sys/block/{self.disk}/device)")
        self.sh(f"echo {dev} >{DRIVER}/unbind")
        self.sh("until [ -s /tmp/status ]; do sleep 0.1; done")
        self.assertNotEqual(self.sh("cat /tmp/status"), "0")
        self.assertIn(EIO, self.sh("cat /tmp/said"))
        self.again()

    def test_driver_goes_while_nothing_is_answered(self):
        """What it has in flight fails, and the removal does not wait for the device."""
        for mode in ("busy", "irq"):
            with self.subTest(mode):
                self.mode(self.disk, mode)
                with self.io_beside(self.disk, "--rw=randread --size=1M") as io:
                    self.server.silent = True
                    self.wait_unanswered(self.disk)
                    dev = self.sh(f"basename $(readlink -f /sys/block/{self.disk}/device)")
                    self.sh(f"echo {dev} >{DRIVER}/unbind")
                    io.wait_end()
                self.again()


if __name__ == "__main__":
    ktap.main()
