#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A host side that lies gets an error for each lie, and never more than that."""

from errno import EIO
from pathlib import Path

from pvfs import TAG, TOOL, PvfsCase, wait_for
from pvlab import ktap
from server import DATA, SYNCFS
from vhostuser import lie_of

RINGTOOL = Path(__file__).with_name("ringtool")
BAD_REPLIES = {
    "another request's number": {"unique": 2},
    "number zero": {"unique": 0},
    "longer than written": {"said": 0xFFFFFFFF},
    "one more than written": {"said": 16 + 128 + 1},
    "shorter than a header": {"said": 8},
    "no length": {"said": 0},
    "shorter than the answer": {"said": 16 + 64},
    "more written than there is room": {"written": 0xFFFFFFFF},
    "nothing written": {"written": 0},
    "half a header written": {"written": 8},
    "a positive error": {"error": 5, "body": b""},
    "an error of the kernel's own": {"error": -512, "body": b""},
    "an error out of range": {"error": -(1 << 31), "body": b""},
    "an error with an answer": {"error": -2},
    "no header": {"header": bytes(16)},
}
BROKEN_RINGS = {
    "an entry out of range": {"head": 0xFFFF},
    "an entry that is not in flight": {"head": 77},
    "each entry twice": {"times": 2},
    "the ring's whole index": {"times": 5000},
}


class Hostile(PvfsCase):
    lies = True
    tools = (RINGTOOL, TOOL)

    def tearDown(self):
        self.server.lie = None
        self.server.says = {}
        self.assertIsNone(self.server.failed)

    def truth(self):
        self.server.lie = None
        self.assertEqual(self.sh("cat /mnt/file") + "\n", DATA.decode())

    def test_files_are_ready_whatever_the_server_says(self):
        """The ring has no place for a message that a file has become ready."""
        self.assertEqual(self.sh("ringtool ready /mnt/file"), "ready")
        self.assertEqual(self.server.polls, 0)

    def test_bad_replies_are_errors(self):
        self.truth()
        for name, changes in BAD_REPLIES.items():
            with self.subTest(name):
                told = self.server.told
                self.server.lie = lie_of(changes)
                with self.counting() as grown:
                    result = self.guest.run("cat /mnt/file")
                    self.server.lie = None
                self.assertNotEqual(result.status, 0)
                self.assertIn("Input/output error", result.err)
                self.assertGreater(self.server.told, told)
                self.assertGreaterEqual(grown["bad_replies"], 1)
                self.truth()

    def test_broken_rings_end_all(self):
        for name, changes in BROKEN_RINGS.items():
            with self.subTest(name):
                self.truth()
                self.server.lie = lie_of(changes)
                # The first may have its answer before the ring is found broken.
                self.guest.run("cat /mnt/file; cat /mnt/file; sleep 0.5")
                self.server.lie = None
                self.assertNotEqual(self.status("cat /mnt/file"), 0)
                self.assertEqual(self.counters()["inflight"], 0)
                self.again()

    def reported_once(self):
        """By files that are opened after the sync has failed, and the server has forgotten it."""
        self.server.says = {}
        self.assertNotEqual(self.status("sharetool syncfs /mnt x"), 0)
        self.assertEqual(self.status("sharetool syncfs /mnt x"), 0)

    def test_sync_ignores_an_error(self):
        self.server.says = {SYNCFS: EIO}
        self.sh("sync")
        self.reported_once()

    def test_syncfs_reports_an_error_once(self):
        self.server.says = {SYNCFS: EIO}
        self.assertNotEqual(self.status("sharetool syncfs /mnt x"), 0)
        self.server.says = {}
        self.assertEqual(self.status("sharetool syncfs /mnt x"), 0)

    def test_a_killed_task_does_not_get_an_error(self):
        self.server.says = {SYNCFS: EIO}
        self.server.hold = (SYNCFS,)
        pid = self.start("sharetool syncfs /mnt x")
        wait_for(lambda: len(self.server.held) == 1, "the server has the request")
        self.sh(f"kill -9 {pid}")
        self.ended()
        self.server.hold = ()
        self.server.poke()
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")
        self.reported_once()

    def again(self):
        """Bound anew it works."""
        self.sh(
            "umount /mnt; cd /sys/bus/virtio/drivers/pvfs; d=$(echo virtio*); "
            "echo $d >unbind; echo $d >bind"
        )
        self.sh(f"mount -i -t pvfs {TAG} /mnt")


if __name__ == "__main__":
    ktap.main()
