#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""io_uring with IORING_SETUP_IOPOLL, where FUSE's core has ->iopoll (a patch, see patches/).

Kernels without the patch refuse such I/O, and the first class shows that they do.
"""

import errno
import unittest
from pathlib import Path

from pvfs import FIO, TAG, PvfsCase, wait_for
from pvlab import image, ktap
from server import DATA, READ, WRITE, wrote
from underload import UNBIND, UnderLoad

RINGTOOL = Path(__file__).with_name("ringtool")
SHARETOOL = Path(__file__).with_name("sharetool")
REFUSED = 3
IOPOLL = "--ioengine=io_uring --hipri=1 --direct=1"
VERIFY = "--size=1M --rw=randrw --bs=4k --verify=crc32c --verify_fatal=1"


class IopollCase(PvfsCase):
    vcpus = 2
    tools = (RINGTOOL,)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.patched = cls.has_iopoll()

    def need_patch(self):
        if not self.patched:
            raise unittest.SkipTest("this kernel's FUSE has no ->iopoll (patches/0013)")

    def all_answered(self):
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")


class Refused(IopollCase):
    def poll_status(self):
        return self.status("timeout 60 ringtool poll /mnt/x 4 1")

    def test_pvfs_is_polled_only_with_the_patch(self):
        self.sh("echo pvfs >/mnt/x")
        self.assertEqual(self.poll_status(), 0 if self.patched else REFUSED)
        self.assertEqual(self.counters()["inflight"], 0)

    def test_virtiofs_is_not_polled(self):
        """Its transport has no ->iopoll, so the kernel refuses as it did before."""
        dev = self.sh("cd /sys/bus/virtio/drivers/pvfs && echo virtio*")
        self.sh(
            f"umount /mnt; cd /sys/bus/virtio/drivers; echo {dev} >pvfs/unbind; "
            f"echo {dev} >virtiofs/bind; mount -t virtiofs {TAG} /mnt; echo virtiofs >/mnt/x"
        )
        try:
            self.assertEqual(self.poll_status(), REFUSED)
        finally:
            self.sh("umount /mnt")
            self.mount()

    def test_buffered_io_is_not_polled(self):
        said = self.guest.run(
            f"{FIO} --filename=/mnt/x --size=64k --rw=write --bs=4k {IOPOLL} --direct=0"
        )
        self.assertNotEqual(said.status, 0)
        self.assertIn("not supported", said.out + said.err)


class Verified(IopollCase):
    """Over virtiofsd, which lets FUSE's core have 12 requests in the background."""

    def fio(self, words, name="fio"):
        return f"{FIO} --filename=/mnt/{name} {IOPOLL} {words}"

    def verified(self, what, command):
        self.need_patch()
        with self.counting() as grown:
            self.sh(command)
        self.say(what, grown)
        self.assertEqual(grown["bad_replies"], 0)
        self.all_answered()
        return grown

    def polled(self, what, command):
        self.assertGreater(self.verified(what, command)["iopolled"], 0)

    def test_depths(self):
        for depth in (1, 8, 32):
            with self.subTest(f"depth {depth}"):
                self.polled(f"depth {depth}", self.fio(f"{VERIFY} --iodepth={depth}"))

    def test_large_and_split(self):
        """Each I/O of 3 MiB takes several requests."""
        words = "--size=6M --rw=write --bs=3M --verify=crc32c --verify_fatal=1 --iodepth=4"
        self.polled("3 MiB", self.fio(words, "large"))
        self.polled("3 MiB again", self.fio(words, "large"))

    def test_two_tasks_on_two_cpus(self):
        self.polled(
            "a task on each CPU",
            f"{self.fio(VERIFY, 'one')} --iodepth=8 --cpus_allowed=0 >/tmp/one 2>&1 & one=$!; "
            f"{self.fio(VERIFY, 'two')} --iodepth=8 --cpus_allowed=1 >/tmp/two 2>&1 & two=$!; "
            "s=0; wait $one || s=1; wait $two || s=1; cat /tmp/one /tmp/two; exit $s",
        )

    def test_a_task_that_migrates(self):
        self.polled(
            "a task that migrates",
            f"{self.fio(VERIFY, 'moves')} --iodepth=8 --loops=2 >/tmp/moves 2>&1 & pid=$!; "
            "while kill -0 $pid 2>/dev/null; do for cpu in 1 2; do "
            "for p in $(pidof fio); do taskset -p $cpu $p; done; "
            "sleep 0.1; done; done >/dev/null 2>&1; wait $pid || { cat /tmp/moves; false; }",
        )

    def test_beside_other_io(self):
        """Other requests end the lease again and again, so it may be that no reply is polled for."""
        self.verified(
            "beside stat and libaio",
            f"{FIO} --filename=/mnt/aio --ioengine=libaio --direct=1 --iodepth=8 {VERIFY} "
            ">/tmp/aio 2>&1 & aio=$!; "
            "(while :; do stat /mnt; done) >/dev/null & stat=$!; "
            f"s=0; {self.fio(VERIFY)} --iodepth=16 >/tmp/fio 2>&1 || s=1; "
            "kill $stat; wait $aio || s=1; cat /tmp/aio /tmp/fio; exit $s",
        )

    def test_killed_in_the_middle(self):
        self.need_patch()
        words = "--size=1M --rw=randrw --bs=16k --iodepth=8 --time_based --runtime=1000"
        for _ in range(5):
            some = self.counters()["iopolled"] + 16
            self.start(self.fio(words))
            wait_for(lambda some=some: self.counters()["iopolled"] > some, "it polls")
            # Until none is left, because fio may be about to fork.
            self.sh("while killall -9 fio 2>/dev/null; do sleep 0.1; done")
            self.ended()
            self.all_answered()
        self.sh("echo works >/mnt/after")
        self.assertEqual((self.share / "after").read_text(), "works\n")


class VerifiedInTheCache(Verified):
    """Direct I/O on files that the page cache keeps goes another way in the core."""

    options = "cache=always"

    test_killed_in_the_middle = None
    test_a_task_that_migrates = None


class Held(UnderLoad, IopollCase):
    """A ring for each CPU, a server that holds requests back, and 8 in the background at most."""

    vcpus = 4
    lies = True
    share_bus = {"num-request-queues": 4}
    tools = (RINGTOOL, SHARETOOL)
    # busybox's tries without force first.
    overlay = image.overlay(**{"umount-now": "umount"})

    def setUp(self):
        self.need_patch()

    def tearDown(self):
        self.server.hold = ()
        self.server.says = {}
        self.server.silent = False
        self.sh("killall -9 ringtool sharetool 2>/dev/null || true")
        self.assertIsNone(self.server.failed)

    def said(self, what):
        wait_for(lambda: self.status(f"grep -q '{what}' /tmp/said") == 0, f"it says: {what}")

    def leave(self, depth):
        """A task that has sent reads, and does not poll for them."""
        self.start(f"ringtool leave /mnt/file {depth}")
        self.said("sent")

    def comes_back(self):
        self.sh("killall -USR2 ringtool")
        self.assertEqual(self.ended(), 0)
        self.said("all read")
        self.all_answered()

    def test_replies_do_not_wait_for_a_task_that_left(self):
        """Nothing else happens on the queue: the lease runs out."""
        self.leave(4)
        self.all_answered()
        self.comes_back()

    def test_others_do_not_wait_for_a_task_that_left(self):
        """It has taken all room for requests in the background, and wants more."""
        self.leave(32)
        self.sh("timeout 60 cat /mnt/file")
        aio = "sharetool aio /mnt/file x >/tmp/aio 2>&1 & "
        self.sh(aio + "until grep -q closed /tmp/aio; do sleep 0.1; done", timeout=60)
        self.comes_back()

    def fails(self, opcode, answer):
        """A task that reads or writes ends, because each such request is answered by this."""
        self.server.says = {opcode: answer}
        self.assertNotEqual(self.ended(), 0)
        self.server.says = {}
        what = "read" if opcode == READ else "write"
        self.assertIn(f"{what}: Input/output error", self.sh("cat /tmp/said"))
        self.all_answered()

    def test_eagain_of_the_server_is_no_success(self):
        """io_uring marks the I/O to be sent again, and then reports success without doing so."""
        for verb, opcode in (("poll", READ), ("write", WRITE)):
            with self.subTest(verb):
                self.under_iopoll(verb)
                self.fails(opcode, errno.EAGAIN)

    def test_nothing_is_tried_for_ever(self):
        """Without FUSE_ASYNC_DIO, FUSE's core waits for the reply, and io_uring has the result."""
        self.addCleanup(self.remount, async_dio=True)
        self.remount(async_dio=False)
        for verb, opcode, answer in (
            ("poll", READ, errno.EAGAIN),
            ("write", WRITE, errno.EAGAIN),
            ("write", WRITE, wrote(0)),
        ):
            with self.subTest(f"{verb}, {answer}"):
                some = self.counters()["requests"] + 64
                self.start(f"ringtool {verb} /mnt/file 4 1000000")
                wait_for(lambda some=some: self.counters()["requests"] > some, "it goes on")
                self.fails(opcode, answer)

    def test_the_rest_goes_behind_what_was_done(self):
        """The server ends a write early, and FUSE's core waits for the reply."""
        self.addCleanup(self.remount, async_dio=True)
        self.remount(async_dio=False)
        self.server.writes.clear()
        self.server.says = {WRITE: wrote(4)}
        self.start("ringtool write /mnt/file 1 1")
        self.ended()
        # The last 2 of 10 bytes fail, because no one can write 4 of them.
        self.assertEqual(self.server.writes[:3], [(0, 10), (4, 6), (8, 2)])

    def remount(self, async_dio):
        self.server.async_dio = async_dio
        self.sh("until umount /mnt; do sleep 0.1; done")
        self.mount()

    def test_writes(self):
        self.server.writes.clear()
        with self.counting() as grown:
            self.sh("ringtool write /mnt/file 8 20")
        self.say("20 rounds of 8 writes", grown)
        self.assertEqual(self.server.writes, [(0, len(DATA))] * 160)
        self.assertGreater(grown["iopolled"], 0)

    def test_many_rounds_on_all_cpus(self):
        with self.counting() as grown:
            self.sh(
                "for cpu in 1 2 4 8; do "
                "taskset $cpu ringtool poll /mnt/file 8 20 >/tmp/said.$cpu 2>&1 & done; wait; "
                "for cpu in 1 2 4 8; do grep -q 'all read' /tmp/said.$cpu || "
                "{ cat /tmp/said.$cpu; exit 1; }; done"
            )
        self.say("20 rounds of 8 on 4 CPUs", grown)
        self.assertGreater(grown["iopolled"], 0)
        # io_uring asks whether the file is ready before each read.
        self.assertEqual(self.server.polls, 0)

    def polls_on(self):
        some = self.counters()["iopolled"] + 8
        wait_for(lambda: self.counters()["iopolled"] > some, "it polls")

    def under_iopoll(self, verb="poll"):
        """A task polls for reads, or for writes."""
        self.start(f"taskset 1 ringtool {verb} /mnt/file 4 1000000")
        self.polls_on()

    def silent_under_iopoll(self):
        """... for replies that do not come."""
        self.under_iopoll()
        self.server.silent = True
        self.sh("sleep 1")
        self.assertGreater(self.counters()["inflight"], 0)

    def again(self):
        self.assertNotEqual(self.ended(), 0)
        self.sh("umount-now -f /mnt 2>/dev/null || true")
        self.server.held.clear()
        self.server.hold = ()
        self.server.silent = False
        self.server.handles = 0
        self.server.lookups.clear()
        self.assertEqual(self.counters()["inflight"], 0)
        self.mount()
        self.assertEqual(self.sh("cat /mnt/file") + "\n", DATA.decode())

    def test_umount_by_force(self):
        self.silent_under_iopoll()
        self.sh("umount-now -f /mnt 2>/dev/null || true")
        self.again()

    def test_the_device_goes(self):
        self.silent_under_iopoll()
        self.sh(UNBIND)
        self.assertNotEqual(self.ended(), 0)
        self.sh("umount /mnt")
        self.server.silent = False
        self.server.handles = 0
        self.server.lookups.clear()
        self.bind()
        self.mount()
        self.assertEqual(self.sh("cat /mnt/file") + "\n", DATA.decode())

    def hold_all(self):
        """The server holds what is left of the task's reads."""
        self.server.hold = (READ,)
        wait_for(
            lambda: self.server.held and self.counters()["inflight"] == len(self.server.held),
            "the server holds all reads",
        )

    def let_go(self):
        self.server.hold = ()
        self.server.poke()

    def test_it_polls_for_what_came_from_another_cpu(self):
        """Its requests are in the ring of the first CPU."""
        self.under_iopoll()
        for mask in (8, 2, 1):
            self.hold_all()
            self.sh(f"taskset -p {mask} $(pidof ringtool)")
            self.let_go()
            self.polls_on()
        self.sh("killall -9 ringtool")
        self.ended()
        self.all_answered()

    def test_killed_while_the_server_holds_reads(self):
        """The process ends, and a worker of io_uring polls on until the server answers."""
        self.under_iopoll()
        self.hold_all()
        self.sh("killall -9 ringtool")
        self.assertNotEqual(self.ended(), 0)
        self.assertEqual(self.counters()["inflight"], len(self.server.held))
        self.let_go()
        self.all_answered()


if __name__ == "__main__":
    ktap.main()
