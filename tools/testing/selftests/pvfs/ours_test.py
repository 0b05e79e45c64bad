#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Both ends ours: pvfs on vhost_fs, by way of pvio, with a poller that never sleeps."""

import os

from pvfs import FIO, TOOL, Files, PvfsCase, serve
from pvlab import ktap
from pvlab.pvio import run

NAMES = 40
READS = 256
MIB = 1 << 20
ROOM = 64 * MIB


class Ours(Files, PvfsCase):
    @classmethod
    def start_server(cls):
        cls.overlay = {"usr/bin/sharetool": TOOL.read_bytes()}
        # Of its own, so that a test can fill it.
        run("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "pvfs-test", cls.share)
        cls.addClassCleanup(run, "umount", "-l", cls.share)
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

    def test_a_file_without_a_name_gets_one(self):
        self.sh("mkdir /mnt/d && sharetool unnamed /mnt/d late text")
        self.assertEqual((self.share / "d/late").read_text(), "text")
        self.assertEqual((self.share / "d/late").stat().st_nlink, 1)

    def test_a_mapping_does_not_fit_on_the_host(self):
        """A WRITE that is cut short in the middle has to fail, or the rest is lost in silence."""
        self.sh(f"sharetool map /mnt/mapped x {MIB}")
        (self.share / "mapped").unlink()
        rest = os.statvfs(self.share)
        with open(self.share / "full", "wb") as full:
            os.posix_fallocate(full.fileno(), 0, rest.f_bavail * rest.f_bsize - MIB // 2)
        failed = self.guest.run(f"sharetool map /mnt/mapped x {MIB}")
        (self.share / "full").unlink()
        self.assertIn("msync: No space left", failed.err)


if __name__ == "__main__":
    ktap.main()
