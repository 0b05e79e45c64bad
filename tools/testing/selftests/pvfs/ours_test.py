#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Both ends ours: pvfs on vhost_fs, by way of pvio, with a poller that never sleeps."""

import os

from pvfs import FIO, Files, PvfsCase, serve
from pvlab import ktap

NAMES = 40
READS = 256


class Ours(Files, PvfsCase):
    @classmethod
    def start_server(cls):
        cpu = max(os.sched_getaffinity(0))
        cls.socket = serve(cls, "pvio", "--poll-cpu", cpu, "--poll-mode", "busy")
        return cls

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The vCPU keeps off the poller's CPU.
        for vcpu in cls.guest.qmp("query-cpus-fast"):
            os.sched_setaffinity(vcpu["thread-id"], {min(os.sched_getaffinity(0))})

    def polled(self, what, command, at_least):
        """COMMAND sends at least AT_LEAST requests, and none kicks the host.

        The share of replies that callers find by polling depends on the guest's load, so it
        is only reported.
        """
        with self.counting() as grown:
            self.sh(command)
        self.say(what, grown)
        self.assertGreaterEqual(grown["requests"], at_least)
        self.assertEqual(grown["kicks"], 0)
        self.assertGreater(grown["polled"], 0)

    def test_names_need_no_kick(self):
        self.polled(
            f"{NAMES} files made, moved and removed",
            f"cd /mnt && for i in $(seq {NAMES}); do : >n$i; mv n$i m; rm m; done",
            NAMES * 4,
        )

    def test_reads_and_writes_need_no_kick(self):
        self.sh("head -c 1048576 /dev/urandom >/mnt/data")
        for rw in ("randread", "randwrite"):
            self.polled(
                f"{READS} of {rw}",
                f"{FIO} --filename=/mnt/data --size=1M --rw={rw} --bs=4k --ioengine=psync "
                f"--direct=1 --number_ios={READS}",
                READS,
            )

    def test_io_uring_polls_without_a_kick(self):
        """vhost_fs lets FUSE's core have more requests in the background than a ring holds."""
        if not self.has_iopoll():
            self.skipTest("this kernel's FUSE has no ->iopoll (patches/0013)")
        for depth in (1, 32):
            with self.counting() as grown:
                self.sh(
                    f"{FIO} --filename=/mnt/uring --size=1M --rw=randrw --bs=4k --direct=1 "
                    f"--ioengine=io_uring --hipri=1 --iodepth={depth} "
                    "--verify=crc32c --verify_fatal=1"
                )
            self.say(f"io_uring that polls, depth {depth}", grown)
            self.assertGreaterEqual(grown["requests"], READS)
            self.assertEqual(grown["kicks"], 0)
            self.assertGreater(grown["iopolled"], 0)

    def test_a_file_without_a_name_gets_one(self):
        self.sh("mkdir /mnt/d && sharetool unnamed /mnt/d late text")
        self.assertEqual((self.share / "d/late").read_text(), "text")
        self.assertEqual((self.share / "d/late").stat().st_nlink, 1)

    def test_a_full_disk_is_reported_as_such(self):
        self.assertIn("msync: No space left", self.map_too_much().err)


if __name__ == "__main__":
    ktap.main()
