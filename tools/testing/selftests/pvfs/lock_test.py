#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Rings that are full of requests which wait, for locks or for a slow server."""

from pvfs import PATIENCE, TOOL, PvfsCase, wait_for
from pvlab import ktap
from server import FILE, FLUSH, GETATTR, READ, SUB_FILE, SYNCFS

RING = 128  # QEMU's default
SLOTS = RING // 2
WAITS = SLOTS // 2
LIMIT = 5  # seconds that the server may be silent
# The holder lets go once there is such a file in /tmp.
HOLD = "sh -c 'until [ -e /tmp/{} ]; do sleep 0.1; done'"


class Rings(PvfsCase):
    vcpus = 2
    queue_size = RING
    lies = True

    def goes_on(self):
        """Others are answered."""
        self.assertEqual(self.status("timeout 20 stat -f /mnt"), 0)


class Waiters(Rings):
    """More tasks wait for a lock than a ring has slots."""

    overlay = {"usr/bin/sharetool": TOOL.read_bytes()}

    def setUp(self):
        self.sh("rm -f /tmp/go /tmp/got /tmp/second /tmp/both; echo 0 >/tmp/got")
        self.server.locks = {}
        self.server.askers.clear()

    def tearDown(self):
        self.sh("touch /tmp/go /tmp/second")
        wait_for(lambda: not self.server.locks, "all locks are free")
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
        self.assertIsNone(self.server.failed)

    def run_beside(self, command):
        self.sh(f"({command}) >/dev/null 2>&1 </dev/null &")

    def hold(self, name, until):
        before = len(self.server.locks)
        self.run_beside(f"flock /mnt/{name} " + HOLD.format(until))
        wait_for(lambda: len(self.server.locks) > before, "the lock is held")

    def crowd(self, n):
        """As many tasks wait for the lock of the file, and each of them says when it has it."""
        before = len(self.server.askers)
        count = "sh -c 'echo $(($(cat /tmp/got) + 1)) >/tmp/got'"
        self.run_beside(f"for i in $(seq {n}); do flock /mnt/file {count} & done; wait")
        wait_for(
            lambda: len(self.server.waiting) >= min(n, WAITS)
            and len(self.server.askers) >= before + min(n, SLOTS),
            "the lock is waited for",
        )

    def got(self, n):
        wait_for(lambda: self.sh("cat /tmp/got") == str(n), "each waiter has had the lock")

    def test_the_unlock_is_sent(self):
        self.hold("file", "go")
        self.crowd(SLOTS + 20)
        self.goes_on()
        wait_for(lambda: len(self.server.askers) == 1 + SLOTS + 20, "each waiter has asked")
        self.assertEqual(len(self.server.waiting), WAITS)
        self.sh("touch /tmp/go")
        self.got(SLOTS + 20)

    def test_two_locks(self):
        """The holder of the first waits for a second one, when there is no room to wait."""
        self.hold("sub/file", "second")
        self.run_beside(
            "flock /mnt/file sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; "
            "flock /mnt/sub/file touch /tmp/both'"
        )
        wait_for(lambda: FILE in self.server.locks, "the first lock is held")
        self.crowd(WAITS + 1)
        self.sh("touch /tmp/go")
        wait_for(
            lambda: len([1 for node, _ in self.server.askers if node == SUB_FILE]) == 2,
            "the second lock is asked for",
        )
        self.assertEqual(self.status("test -e /tmp/both"), 1)
        self.sh("touch /tmp/second")
        self.got(WAITS + 1)
        self.sh("test -e /tmp/both")

    def test_signals(self):
        """They end the wait of a task whose request the server does not have."""
        self.hold("file", "go")
        self.crowd(WAITS)
        for number, said in (("USR1", "interrupted"), ("KILL", "Killed")):
            with self.subTest(number):
                before = len(self.server.askers)
                pid = self.start("sharetool lock flock /mnt/file")
                wait_for(lambda n=before: len(self.server.askers) > n, "the lock is asked for")
                self.assertEqual(len(self.server.waiting), WAITS)
                self.sh(f"kill -{number} {pid}")
                self.ended()
                self.assertEqual(self.sh("cat /tmp/said"), said)
        self.sh("touch /tmp/go")
        self.got(WAITS)


class Owners(Rings):
    def test_each_process_reads_as_its_own_lock_owner(self):
        """A shell and its children read from one open file in turn."""
        own, child = "read -n 1 x <&3", "dd bs=1 count=1 <&3 >/dev/null 2>&1"
        self.sh(f"exec 3</mnt/file; {own}; {child}; {own}; {child}; {own}")
        owners = self.server.owners
        reads = [i for i, (opcode, _) in enumerate(owners) if opcode == READ]
        self.assertEqual(len(reads), 5, owners)
        shell = owners[reads[0]][1]
        self.assertEqual([owners[i][1] == shell for i in reads], [True, False, True, False, True])
        # The process closes the file, or a copy of its descriptor, after it has read.
        for i in reads:
            self.assertEqual(owners[i + 1], (FLUSH, owners[i][1]), owners)


class OtherRings(Rings):
    """The ring of a CPU is full of requests that the server does not answer."""

    share_bus = {"num-request-queues": 2}

    def test_another_ring_takes_the_request(self):
        """From the CPU whose ring is full; which that is does not matter, so both are tried."""
        for cpu in ("1", "2"):
            with self.subTest(f"mask {cpu}"):
                self.server.hold = (GETATTR,)
                self.sh(
                    f"for i in $(seq {SLOTS}); do taskset {cpu} stat /mnt >/dev/null 2>&1 "
                    "</dev/null & done"
                )
                wait_for(lambda: len(self.server.held) == SLOTS, "the ring is full")
                self.assertEqual(self.status(f"timeout 20 taskset {cpu} stat -f /mnt"), 0)
                self.server.hold = ()
                self.goes_on()
                wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
                # A task that the server has just answered keeps the mount busy for a moment.
                wait_for(lambda: self.status("pidof stat"), "all tasks have ended")
        self.assertIsNone(self.server.failed)


class OneRing(Rings):
    """It is full of requests that the server does not answer."""

    overlay = {"usr/bin/sharetool": TOOL.read_bytes()}

    def tearDown(self):
        self.server.hold = ()
        self.server.poke()
        self.goes_on()
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
        wait_for(lambda: self.status("pidof stat"), "all tasks have ended")
        self.assertEqual(self.server.handles, 0)
        self.assertIsNone(self.server.failed)

    def fill(self, command="stat /mnt", opcode=GETATTR):
        self.server.hold = (opcode,)
        self.sh(f"for i in $(seq {SLOTS}); do {command} >/dev/null 2>&1 </dev/null & done")
        wait_for(lambda: len(self.server.held) == SLOTS, "the ring is full")


class NoRoom(OneRing):
    """A task whose request waits for room."""

    def close_in_vain(self):
        """Its FLUSH waits for room."""
        pid = self.start("sharetool closes /mnt/file x")
        wait_for(lambda: self.status("grep -q open /tmp/said") == 0, "the file is open")
        self.fill()
        before = self.counters()["queued"]
        self.sh(f"kill -USR2 {pid}")
        wait_for(lambda: self.counters()["queued"] > before, "the request waits for room")
        return pid

    def killed(self, pid):
        self.sh(f"kill -9 {pid}")
        wait_for(lambda: self.status("test -s /tmp/status") == 0, "it ends", PATIENCE / 2)

    def test_a_killed_task_does_not_wait_for_room(self):
        self.killed(self.close_in_vain())

    def test_another_signal_came_while_it_waited_for_room(self):
        pid = self.close_in_vain()
        self.sh(f"kill -USR1 {pid}; sleep 0.5")
        self.server.hold = (FLUSH,)
        self.server.poke()
        wait_for(lambda: len(self.server.held) == 1, "the server has the request")
        self.killed(pid)


class Patient(OneRing):
    """The requests may take long, and the mount has timeout=."""

    options = f"timeout={LIMIT}"

    def setUp(self):
        self.fill("sync -f /mnt", SYNCFS)
        before = self.counters()["queued"]
        self.start("stat -f /mnt")
        wait_for(lambda: self.counters()["queued"] > before, "a request waits for room")

    def test_1_a_server_that_takes_messages_is_not_silent(self):
        self.sh(f"sleep {3 * LIMIT}")
        self.assertEqual(self.counters()["inflight"], SLOTS)
        self.server.hold = ()
        self.server.poke()
        self.assertEqual(self.ended(), 0)

    def test_2_a_silent_one_is_given_up(self):
        self.server.silent = True
        self.assertNotEqual(self.ended(), 0)
        self.assertIn("has not answered", self.sh("dmesg | grep 'timeout='"))
        self.sh("until umount /mnt; do sleep 0.2; done")
        self.server.held.clear()
        self.server.handles = 0
        self.server.silent = False
        self.mount()
        # mount(8) does not wait for the server, which may not have the new rings yet.
        self.goes_on()


if __name__ == "__main__":
    ktap.main()
