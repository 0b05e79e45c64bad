#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ends: signals, unmounting, a server that stands still or dies, a device that is pulled out."""

import hashlib
import signal
from pathlib import Path

from pvfs import FIO, PATIENCE, TAG, PvfsCase, wait_for
from pvlab import image, ktap, turns
from server import (
    BATCH_FORGET,
    DATA,
    FILE,
    FLUSH,
    FORGET,
    GETATTR,
    LOOKUP,
    OPEN,
    OPENDIR,
    READ,
    READDIR,
    RELEASE,
    SETATTR,
    STATFS,
)
from underload import UNBIND, UnderLoad

# Seconds that a server may be silent.
LIMIT = 5
LOOPS = turns.loops(5, 50)


class Signals(PvfsCase):
    vcpus = 2

    def test_killed_while_the_server_stands_still(self):
        """The process goes, and its request waits on."""
        self.sh("echo >/mnt/x")
        self.server.send(signal.SIGSTOP)
        try:
            pid = self.start("cat /mnt/x")
            self.sh("sleep 0.5")
            self.sh(f"kill -9 {pid}")
            self.assertNotEqual(self.ended(), 0)
            self.assertEqual(self.counters()["inflight"], 1)
        finally:
            self.server.send(signal.SIGCONT)
        self.assertEqual(self.sh("cat /mnt/x"), "")

    def test_killed_with_an_open_file(self):
        """Nobody else has it, and closing it takes an answer."""
        self.sh("echo >/mnt/open")
        pid = self.start('sh -c "exec sleep 1000 </mnt/open"')
        self.sh(f"until readlink /proc/{pid}/fd/0 | grep -q /mnt/open; do sleep 0.1; done")
        self.server.send(signal.SIGSTOP)
        try:
            self.sh(f"kill -9 {pid}")
            self.assertNotEqual(self.ended(), 0)
            self.assertEqual(self.counters()["inflight"], 2)
        finally:
            self.server.send(signal.SIGCONT)
        self.assertEqual(self.sh("cat /mnt/open"), "")

    def test_killed_while_it_works(self):
        for _ in range(LOOPS):
            pid = self.start(
                f"{FIO} --filename=/mnt/kill --size=1M --rw=randrw --bs=16k --time_based "
                "--runtime=100 --ioengine=libaio --direct=1 --iodepth=8"
            )
            self.sh(f"sleep 0.3; kill -9 {pid}; killall -9 fio 2>/dev/null; true")
            self.ended()
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
        self.sh("echo works >/mnt/after")
        self.assertEqual((self.share / "after").read_text(), "works\n")


class Locks(PvfsCase):
    """A lock of the host that is never free, at a server that asks once to be told again."""

    lies = True

    def test_a_signal_ends_the_wait_for_a_lock(self):
        for number in ("TERM", "KILL"):
            with self.subTest(number):
                self.server.interrupts = 0
                pid = self.start("flock /mnt/file true")
                wait_for(lambda: self.server.waiting, "the lock is waited for")
                self.sh("sleep 0.5")
                self.assertEqual(self.counters()["inflight"], 1)
                with self.counting() as grown:
                    self.sh(f"kill -{number} {pid}")
                    self.assertNotEqual(self.ended(), 0)
                self.say(f"SIG{number} to a lock's waiter", grown)
                self.assertEqual(grown["interrupts_sent"], 2)
                self.assertEqual(self.counters()["inflight"], 0)
        self.assertIsNone(self.server.failed)

    def test_a_wait_for_a_lock_is_not_silence(self):
        self.sh(f"umount /mnt; mount.pvfs {TAG} /mnt -o timeout={LIMIT}")
        pid = self.start("flock /mnt/file true")
        wait_for(lambda: self.server.waiting, "the lock is waited for")
        # Looks come each second; with the lock's request alone there is nothing to fail.
        self.sh(f"sleep {2 * LIMIT}")
        self.assertEqual(self.counters()["inflight"], 1)
        self.sh(f"kill {pid}")
        self.assertNotEqual(self.ended(), 0)
        self.sh("umount /mnt")
        self.mount()


class Killed(PvfsCase):
    """SIGKILL, while the server answers others."""

    vcpus = 2
    overlay = {
        "usr/bin/sharetool": Path(__file__).with_name("sharetool").read_bytes(),
        # busybox's tries without force first.
        **image.overlay(**{"umount-now": "umount"}),
    }

    lies = True

    def tearDown(self):
        self.let_go()
        self.server.locks = None
        self.assertIsNone(self.server.failed)

    def mounts(self):
        return int(self.sh("grep -c pvfs /proc/mounts || true"))

    def let_go(self):
        self.server.hold = ()
        self.assertEqual(self.sh("cat /mnt/file") + "\n", DATA.decode())

    def kill(self, command, *hold):
        """COMMAND gets SIGKILL while the server holds its requests."""
        self.server.hold = hold
        pid = self.start(command)
        wait_for(lambda: self.server.held, f"the server has the request of {command}")
        self.sh(f"kill -9 {pid}")

    def assert_given_back(self):
        """What late replies gave to processes that had gone."""
        self.let_go()
        self.sh("echo 2 >/proc/sys/vm/drop_caches")
        wait_for(lambda: not self.server.handles, "all handles are released")
        wait_for(lambda: not any(self.server.lookups.values()), "all nodes are forgotten")
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")

    def test_it_ends_what_changes_nothing(self):
        # Through the page cache, whose pages a killed task does not wait for.
        in_the_background = ("sendfile", "a fault")
        for what, command, *hold in (
            ("attributes", "stat /mnt", GETATTR),
            ("a name", "stat /mnt/file", LOOKUP),
            ("opening", "cat /mnt/file", OPEN),
            ("reading", "sharetool read /mnt/file private", READ),
            ("sendfile", "cat /mnt/file", READ),
            ("a fault", "sharetool map /mnt/file read", READ),
            ("closing", "cat /mnt/file", FLUSH),
            ("closing at exit", "sharetool read /mnt/file private", READ, FLUSH),
            ("a directory", "ls /mnt", OPENDIR),
            ("its names", "ls /mnt", READDIR),
            ("the file system", "stat -f /mnt", STATFS),
        ):
            with self.subTest(what), self.counting() as grown:
                self.kill(command, *hold)
                self.assertNotEqual(self.ended(), 0)
                self.assert_given_back()
            # A task whose wait at its exit ran out does not wait for RELEASE at all.
            waited = what == "closing at exit"
            expected = len(hold) - (what in in_the_background)
            self.assertIn(grown["abandoned"], (expected, expected + waited), what)
            self.assertEqual(grown["bad_replies"], 0)

    def test_it_waits_at_its_exit_once(self):
        """Not for each of its files in turn, although programs have locked files."""
        self.server.locks = {}
        self.sh("flock /mnt/file true")
        files = " ".join(f"{fd}</mnt/file" for fd in range(3, 10))
        with self.counting() as grown:
            pid = self.start(f'sh -c "exec {files}; exec sleep 1000"')
            wait_for(lambda: self.server.handles == 7, "the files are open")
            self.server.hold = (FLUSH, RELEASE)
            self.sh(f"kill -9 {pid}")
            # The wait is one of 10 seconds; 14 of them are more than this.
            wait_for(lambda: self.status("test -s /tmp/status") == 0, "it ends", PATIENCE / 2)
            self.assert_given_back()
        self.assertEqual(grown["abandoned"], 14)

    def close_late(self):
        """A process has died in close(2), and one with the same table of files locks the file."""
        self.server.locks = {}
        self.server.askers.clear()
        self.server.hold = (FLUSH,)
        self.start("sharetool shared /mnt/file x")
        wait_for(lambda: self.server.held, "the server is asked to close the file")
        self.sh("kill -9 $(sed -n 's/^child //p' /tmp/said)")
        self.said("alone")

    def said(self, what):
        wait_for(lambda: self.status(f"grep -q '{what}' /tmp/said") == 0, f"it says: {what}")

    def test_a_lock_waits_for_late_closes(self):
        """One that the server granted before it closed the file would be lost."""
        self.close_late()
        self.sh("sleep 1")
        self.assertFalse(self.server.askers)
        # It takes no locks.
        self.sh("timeout 20 stat -f /mnt")
        self.let_go()
        self.said("holds")
        self.assertEqual(set(self.server.locks), {FILE})
        self.sh("killall -USR2 sharetool")
        self.assertEqual(self.ended(), 0)
        self.assertFalse(self.server.locks)

    def test_a_signal_ends_the_wait_for_late_closes(self):
        self.close_late()
        self.sh("sleep 0.5; killall -USR1 sharetool")
        self.said("interrupted")
        self.assertFalse(self.server.askers)
        self.sh("killall -USR2 sharetool")
        self.let_go()
        self.assertEqual(self.ended(), 0)

    def test_the_wait_for_late_closes_ends_with_the_device(self):
        self.close_late()
        self.server.silent = True
        self.sh("umount-now -f /mnt 2>/dev/null || true")
        self.assertNotEqual(self.ended(), 0)
        self.said("not connected")
        self.sh("umount-now -f /mnt 2>/dev/null || true")
        self.assertEqual(self.mounts(), 0)
        self.server.held.clear()
        self.server.hold = ()
        self.server.handles = 0
        self.server.lookups.clear()
        self.server.silent = False
        self.mount()
        self.sh("flock /mnt/file true")

    def test_no_forget_comes_after_the_end_of_the_mount(self):
        """The next mount's files may have the same numbers."""
        self.server.valid = 60
        try:
            self.sh("stat /mnt/file; stat /mnt/file; umount /mnt; sleep 0.5")
        finally:
            self.server.valid = 0
        self.assertFalse(self.server.mounted)
        self.mount()
        self.let_go()
        self.assertEqual(self.server.late, 0)

    def test_interrupts_for_replies_that_were_polled_do_not_count_as_stray(self):
        """This server interrupts for each reply, and the kernel bears 100,000 stray ones."""
        before = self.interrupted()
        self.sh("for i in $(seq 64); do stat /mnt/file >/dev/null; done")
        self.assertGreater(self.interrupted(), before)
        counts = self.sh(
            "for n in $(sed -n 's/:.*-requests.*//p' /proc/interrupts); do "
            "sed -n 's/^count //p' /proc/irq/$n/spurious; done"
        ).split()
        self.assertGreater(len(counts), 0)
        self.assertEqual(set(counts), {"0"})

    def interrupted(self):
        return int(
            self.sh("awk '/-requests/ { n += $2 + $3 } END { print n + 0 }' /proc/interrupts")
        )

    def test_a_late_release_does_not_outlive_its_mount(self):
        """The next mount's files may have the same numbers."""
        pid = self.start('sh -c "exec sleep 1000 </mnt/file"')
        wait_for(lambda: self.server.handles, "the file is open")
        self.server.hold = (RELEASE,)
        self.sh(f"kill -9 {pid}")
        self.assertNotEqual(self.ended(), 0)
        self.sh("umount /mnt")
        self.assertIn("did not answer RELEASE", self.sh("dmesg"))
        self.assertEqual(self.counters()["inflight"], 0)
        self.server.held.clear()
        self.server.hold = ()
        self.server.handles = 0
        self.mount()

    def test_it_waits_for_changes_and_for_memory_of_others(self):
        for command, hold in (
            ("chmod 600 /mnt/file", SETATTR),
            ("sharetool read /mnt/file shared", READ),
        ):
            with self.subTest(command), self.counting() as grown:
                self.kill(command, hold)
                self.sh("sleep 1")
                self.assertNotEqual(self.status("test -s /tmp/status"), 0)
                self.let_go()
                self.assertNotEqual(self.ended(), 0)
            self.assertEqual(grown["abandoned"], 0)

    def with_names_by_readdirplus(self, yes):
        self.server.plus = yes
        self.sh("umount /mnt")
        self.mount()

    def test_forgetting_an_entry_is_not_waited_for(self):
        self.with_names_by_readdirplus(True)
        self.addCleanup(self.with_names_by_readdirplus, False)
        self.server.hold = (FORGET, BATCH_FORGET)
        self.start("ls /mnt")
        self.said("odd")
        wait_for(lambda: self.server.held, "the name is forgotten")
        # It says that it cannot stat() the name.
        self.assertEqual(self.ended(), 1)
        self.assert_given_back()

    def test_the_kernel_does_not_wait_to_close_files(self):
        """It has one work for all of them, so the second would wait for the first."""
        self.server.hold = (READ,)
        for n in range(2):
            self.start("sharetool aio /mnt/file x")
            self.said("closed")
            wait_for(lambda n=n: len(self.server.held) == n + 1, "the file is read")
        self.server.hold = (RELEASE,)
        self.server.poke()
        wait_for(lambda: len(self.server.held) == 2, "both files are to be closed")
        self.sh("killall -9 sharetool")
        self.assert_given_back()

    def test_late_replies_of_an_earlier_mount(self):
        """The next mount has nodes and handles of its own."""
        self.kill("cat /mnt/file", OPEN)
        self.assertNotEqual(self.ended(), 0)
        self.sh("umount /mnt")
        self.mount()
        self.let_go()
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
        # The one that the earlier mount would have released.
        self.assertEqual(self.server.handles, 1)
        self.server.handles = 0

    def test_it_is_the_end_of_umount_f(self):
        """And of the device, before the time in which the server may answer others only."""
        self.sh("(while stat /mnt; do sleep 1; done) >/dev/null 2>&1 </dev/null &")
        self.kill("umount-now -f /mnt", STATFS)
        self.ended()
        wait_for(lambda: self.status("stat /mnt") or not self.mounts(), "the device is given up")
        self.sh("umount-now -f /mnt 2>/dev/null || true")
        self.assertEqual(self.mounts(), 0)
        self.server.held.clear()
        self.server.hold = ()
        self.mount()


class Silence(PvfsCase):
    """A server that takes requests and says nothing, and umount -f."""

    vcpus = 2
    # busybox's tries without force first.
    overlay = image.overlay(**{"umount-now": "umount"})
    force = "umount-now -f /mnt"

    lies = True

    def tearDown(self):
        self.server.silent = False
        self.assertIsNone(self.server.failed)

    def answers(self):
        self.server.silent = False
        self.assertEqual(self.sh("cat /mnt/file") + "\n", DATA.decode())

    def again(self):
        """The server speaks, and the next mount works."""
        self.server.silent = False
        self.mount()
        self.answers()

    def assert_unmounted(self):
        self.assertEqual(self.sh("grep -c pvfs /proc/mounts || true"), "0")

    def test_requests_in_flight_end(self):
        self.answers()
        self.server.silent = True
        self.start("cat /mnt/file")
        wait_for(lambda: self.counters()["inflight"], "the server is asked")
        # Busy until the process has gone.
        self.sh(f"until {self.force}; do sleep 0.2; done")
        self.assert_unmounted()
        self.assertNotEqual(self.ended(), 0)
        self.assertEqual(self.counters()["inflight"], 0)
        self.again()

    def test_nothing_in_flight(self):
        """Nor an answer to INIT, which mount does not wait for."""
        self.answers()
        self.server.silent = True
        for _ in range(2):
            self.sh(self.force)
            self.assert_unmounted()
            self.mount()
        self.sh(self.force)
        self.again()

    def test_a_server_that_answers_is_not_given_up(self):
        self.answers()
        pid = self.start('sh -c "exec sleep 1000 </mnt/file"')
        self.sh(f"until readlink /proc/{pid}/fd/0 | grep -q /mnt/file; do sleep 0.1; done")
        self.assertIn("busy", self.guest.run(self.force).err)
        self.answers()
        self.sh(f"kill {pid}")
        self.ended()
        self.sh(self.force)
        self.assert_unmounted()
        self.mount()

    def pci_command(self, bits):
        """The low byte of the COMMAND register: 1 and 2 are access, 4 is bus mastering."""
        config = "$(readlink -f /sys/bus/virtio/drivers/pvfs/virtio*)/../config"
        self.sh(f"printf '\\00{bits}' | dd of={config} bs=1 seek=4 conv=notrunc 2>/dev/null")

    def test_a_device_that_was_gone_for_a_moment_may_write_again(self):
        """While it reads as all ones it loses bus mastering."""
        self.answers()
        self.server.silent = True
        self.pci_command(4)
        self.sh(self.force)
        self.assert_unmounted()
        self.pci_command(3)
        self.again()

    def test_a_device_given_up_for_its_timeout_is_mounted_again(self):
        self.sh(f"umount /mnt; mount.pvfs {TAG} /mnt -o timeout={LIMIT}; ls /mnt")
        self.server.silent = True
        self.assertNotEqual(self.status("cat /mnt/file"), 0)
        refused = self.guest.run(f"mkdir -p /mnt2; mount.pvfs {TAG} /mnt2; dmesg")
        self.assertIn("still mounted", refused.out + refused.err)
        self.sh("umount /mnt")
        self.again()


class Mounts(PvfsCase):
    vcpus = 2

    def test_mounted_again_and_again(self):
        for i in range(LOOPS):
            self.sh(
                f"cp -r /etc /mnt/{i}; find /mnt/{i} >/dev/null; "
                "umount /mnt && ! grep -q pvfs /proc/mounts"
            )
            self.mount()
            self.assertEqual(self.sh(f"cat /mnt/{i}/group"), self.sh("cat /etc/group"))

    def test_mounted_twice(self):
        self.sh(f"mkdir -p /mnt2; mount.pvfs {TAG} /mnt2; echo both >/mnt/one")
        self.assertEqual(self.sh("cat /mnt2/one; umount /mnt2; cat /mnt/one"), "both\nboth")
        self.assertIn("busy", self.guest.run(f"mount.pvfs {TAG} /mnt2 -o cache=auto").err.lower())

    def test_cache_auto(self):
        self.sh("umount /mnt")
        self.sh(f"mount.pvfs {TAG} /mnt -o cache=auto")
        try:
            self.assertEqual(self.sh("cat /sys/bus/virtio/drivers/pvfs/virtio*/pvfs/cache"), "auto")
            self.sh("head -c 100000 /dev/urandom >/mnt/auto")
            seen = self.sh("sha1sum </mnt/auto").split()[0]
            self.assertEqual(seen, hashlib.sha1((self.share / "auto").read_bytes()).hexdigest())
        finally:
            self.sh("umount /mnt")
            self.mount()


class Ends(UnderLoad, PvfsCase):
    """Each test has a guest of its own, because each is the end of its device."""

    vcpus = 2

    def test_1_unbound_under_load(self):
        self.under_load()
        self.sh(UNBIND)
        self.over()

    def test_2_again_after_that(self):
        self.bind()
        self.mount()
        self.sh("echo again >/mnt/again")
        self.assertEqual((self.share / "again").read_text(), "again\n")

    def test_3_unplugged_under_load(self):
        self.sh(f"umount /mnt; {UNBIND}")
        server = self.plug("hot")
        self.addCleanup(server.stop)
        self.under_load()
        self.unplug("hot")
        self.over()
        self.sh("while [ -e /sys/bus/virtio/drivers/pvfs/virtio*/pvfs ]; do sleep 0.1; done")

    def test_4_server_dies_under_load(self):
        """Nothing is answered any more, until the device is unbound."""
        server = self.plug("dies")
        self.under_load()
        server.stop()
        self.sh(f"sleep 1; {UNBIND}")
        self.over()

    def test_5_server_dies_with_a_limit(self):
        """Requests in flight end by themselves."""
        self.bind()
        self.assertIn("timeout= is at most", self.mount_refused("timeout=86401"))
        self.sh(f"mount.pvfs {TAG} /mnt -o timeout={LIMIT}")
        self.assertIn(f"with timeout={LIMIT};", self.mount_refused(f"timeout={LIMIT + 1}"))
        shown = self.sh("cat /sys/bus/virtio/drivers/pvfs/virtio*/pvfs/timeout")
        self.assertEqual(int(shown), LIMIT)
        self.under_load()
        self.server.stop()
        self.over()
        self.assertIn("has not answered", self.sh("dmesg | grep 'timeout='"))

    def mount_refused(self, options):
        """What the kernel says about options that it does not take."""
        done = self.guest.run(
            f"dmesg -c >/dev/null; mkdir -p /mnt2; mount.pvfs {TAG} /mnt2 -o {options}"
        )
        self.assertNotEqual(done.status, 0)
        return done.err + self.sh("dmesg")


if __name__ == "__main__":
    ktap.main()
