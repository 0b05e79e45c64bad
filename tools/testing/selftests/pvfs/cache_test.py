#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The cache modes: what stays in the guest, what it costs, and that no write is lost.

The server lets names and attributes hold for no time, so what holds longer is pvfs's doing.
"""

import hashlib
import os
import unittest

from pvfs import DEBUG, TAG, PvfsCase, Virtiofsd, serve
from pvlab import image, ktap

MIB = 1 << 20
PAGE = 4096
READ = "dd if=/mnt/data of=/dev/null bs=64k 2>/dev/null"
READS = 16
# Less than a page each.
WRITES = 1024
WRITE = f"dd if=/dev/urandom of=/mnt/written bs=512 count={WRITES} 2>/dev/null"
NAMES = 60
# Opening and closing, attributes, and the like.
FEW = 8
OLD = 1000000000


def sha1(data):
    return hashlib.sha1(data).hexdigest()


class Cached(PvfsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Nothing is written back before it is asked for (0 would mean at once).
        cls.sh("echo 1000000 >/proc/sys/vm/dirty_writeback_centisecs")

    def remount(self, cache, writeback=0):
        self.sh(
            "umount /mnt 2>/dev/null; "
            f"mount.pvfs {TAG} /mnt -o cache={cache} && ls /mnt >/dev/null"
        )
        # FUSE's own limit of dirty pages is near zero for a new mount.
        self.sh("cd /sys/class/bdi/$(mountpoint -d /mnt) && echo 0 >strict_limit")
        shown = self.sh("cd /sys/bus/virtio/drivers/pvfs/virtio*/pvfs && cat cache writeback")
        self.assertEqual(shown.split(), [cache, str(writeback)])

    def cost(self, what, command):
        """The requests of COMMAND."""
        with self.counting() as grown:
            self.sh(command)
        self.say(what, grown)
        return grown["requests"]

    def seen(self, name):
        return self.sh(f"sha1sum </mnt/{name}").split()[0]

    def data(self, name="data", size=MIB):
        """A new file's contents, written by the host."""
        data = os.urandom(size)
        (self.share / name).write_bytes(data)
        return data

    def hold(self, name, data):
        """A process of the guest has written DATA to a file, and keeps it open."""
        self.guest.put("/tmp/first", data)
        self.start(
            f'sh -c "(cat /tmp/first; exec sleep 1000) | dd of=/mnt/{name} bs={PAGE} conv=notrunc"'
        )
        self.addCleanup(self.sh, "killall sleep 2>/dev/null; true")
        self.sh(
            f'until [ "$(stat -c %s /mnt/{name} 2>/dev/null)" = {len(data)} ]; do sleep 0.1; done'
        )

    def let_go(self):
        self.sh("killall sleep")
        self.ended()

    def on_the_host(self, name):
        return (self.share / name).read_bytes()


class Late:
    """What is written late is not lost."""

    # busybox's looks for no holes.
    overlay = image.overlay(**{"coreutils-cp": "cp"})

    def test_written_back_when_asked(self):
        data = os.urandom(PAGE)
        for name, command in (("sync", "sync"), ("fsync", "dd of=/mnt/fsync conv=notrunc,fsync")):
            with self.subTest(name):
                self.remount("always", 1)
                self.hold(name, data)
                self.assertEqual(self.on_the_host(name), b"")
                self.sh(f"{command} </dev/null 2>/dev/null")
                self.assertEqual(self.on_the_host(name), data)
                self.let_go()

    def test_appended_behind_what_is_not_written_yet(self):
        """Without a cache, and so before the first part."""
        self.remount("always", 1)
        first, second = os.urandom(PAGE), os.urandom(PAGE)
        self.hold("log", first)
        self.guest.put("/tmp/second", second)
        self.assertEqual(self.on_the_host("log"), b"")
        self.sh(
            f"dd if=/tmp/second of=/mnt/log bs={PAGE} oflag=append,direct conv=notrunc 2>/dev/null"
        )
        self.let_go()
        self.sh("sync")
        self.assertEqual(self.on_the_host("log"), first + second)

    def test_two_append(self):
        self.remount("always", 1)
        self.sh("exec 3>>/mnt/two 4>>/mnt/two; for i in 1 2 3; do echo a$i >&3; echo b$i >&4; done")
        self.assertEqual(self.on_the_host("two"), b"a1\nb1\na2\nb2\na3\nb3\n")

    def test_part_of_a_page_by_a_descriptor_that_only_writes(self):
        (self.share / "part").write_bytes(b"0123456789")
        self.remount("always", 1)
        self.sh("printf xx | dd of=/mnt/part bs=1 seek=4 conv=notrunc 2>/dev/null")
        self.assertEqual(self.on_the_host("part"), b"0123xx6789")

    def test_what_is_not_written_yet_is_no_hole(self):
        """cp(1) copies what SEEK_DATA finds."""
        self.remount("always", 1)
        data = os.urandom(PAGE)
        self.hold("sparse", data)
        self.assertEqual(self.on_the_host("sparse"), b"")
        self.sh("coreutils-cp /mnt/sparse /tmp/copy")
        self.assertEqual(self.guest.get("/tmp/copy"), data)
        self.let_go()


class Modes(Late, Cached):
    @classmethod
    def start_server(cls):
        words = ("--writeback", "--entry-timeout", "0", "--attr-timeout", "0")
        cls.socket = serve(cls, "pvio", *words, cache="auto")
        return cls

    def test_fsx(self):
        for cache, writeback in (("none", 0), ("auto", 1), ("always", 1)):
            with self.subTest(cache):
                self.remount(cache, writeback)
                self.sh(
                    "fsx -q -S 11 -N 400 -P /tmp /mnt/fsx >/tmp/said 2>&1 || "
                    "{ tail -n 30 /tmp/said; false; }"
                )
                seen = self.seen("fsx")
                self.sh("umount /mnt")
                self.assertEqual(sha1(self.on_the_host("fsx")), seen)
                self.mount()

    def test_none_keeps_nothing(self):
        self.data()
        self.remount("none")
        for _ in range(2):
            self.assertGreaterEqual(self.cost("1 MiB read, none", READ), READS)
        self.assertGreaterEqual(self.cost("writes, none", WRITE), WRITES)

    def test_auto_reads_again_when_opened_again(self):
        self.data()
        self.remount("auto", 1)
        for _ in range(2):
            self.assertGreater(self.cost("1 MiB read, auto", READ), FEW)
        data = self.data()
        self.assertEqual(self.seen("data"), sha1(data))

    def test_always_keeps_data(self):
        data = self.data()
        self.remount("always", 1)
        self.assertGreater(self.cost("1 MiB read, always", READ), 0)
        self.assertLess(self.cost("1 MiB read again, always", READ), FEW)
        self.assertEqual(self.seen("data"), sha1(data))
        # Which is why the host must not change it.
        other = self.data()
        self.assertEqual(self.seen("data"), sha1(data))
        self.sh("echo 3 >/proc/sys/vm/drop_caches")
        self.assertEqual(self.seen("data"), sha1(other))

    def test_always_believes_names(self):
        (self.share / "names").mkdir()
        for i in range(NAMES):
            (self.share / "names" / str(i)).touch()
        self.remount("none")
        self.sh("ls -l /mnt/names >/dev/null")
        self.assertGreater(self.cost("ls -l again, none", "ls -l /mnt/names >/dev/null"), NAMES)
        self.remount("always", 1)
        self.sh("ls -l /mnt/names >/dev/null")
        self.assertLess(self.cost("ls -l again, always", "ls -l /mnt/names >/dev/null"), FEW)
        # This guest's own changes are seen.
        self.sh("cd /mnt/names && rm 1 && mv 2 two && : >new && chmod 600 3")
        self.assertEqual(
            self.sh("cd /mnt/names; echo [12] two new; stat -c %a 3; ls | wc -l").split(),
            ["[12]", "two", "new", "600", str(NAMES)],
        )

    def test_always_gathers_writes(self):
        self.remount("always", 1)
        self.assertLess(self.cost("writes, always", WRITE), WRITES / 8)
        self.assertEqual(sha1(self.on_the_host("written")), self.seen("written"))
        self.sh(f"{WRITE}; umount /mnt")
        host = sha1(self.on_the_host("written"))
        self.mount()
        self.assertEqual(self.seen("written"), host)

    def test_times_and_set_id_bits(self):
        self.remount("always", 1)
        self.sh(f"echo one >/mnt/old; touch -d @{OLD} /mnt/old")
        self.sh(
            "echo x >/mnt/suid; chmod 6777 /mnt/suid; "
            "su -s /bin/sh -c 'echo more >>/mnt/suid' nobody; umount /mnt"
        )
        self.assertEqual((self.share / "old").stat().st_mtime, OLD)
        self.assertEqual((self.share / "suid").stat().st_mode & 0o7777, 0o777)
        self.assertEqual(self.on_the_host("suid"), b"x\nmore\n")
        self.mount()


@unittest.skipIf(
    DEBUG and not os.environ.get("FULL"),
    "in the debug lane FULL=1 runs it: its limit of time is short",
)
class Elsewhere(Late, Cached):
    """A server of others that offers to have data written back, and takes holes for holes."""

    @classmethod
    def start_server(cls):
        server = Virtiofsd(cls.directory, cls.share, writeback=True)
        cls.addClassCleanup(server.stop)
        return server


class Through(Cached):
    """A server that does not offer to have data written back: virtiofsd."""

    def test_always_writes_through(self):
        self.data()
        self.remount("always", 0)
        self.sh(READ)
        self.assertLess(self.cost("1 MiB read again, always, virtiofsd", READ), FEW)
        self.assertGreaterEqual(self.cost("writes, always, virtiofsd", WRITE), WRITES)
        data = os.urandom(PAGE)
        self.hold("at-once", data)
        self.assertEqual(self.on_the_host("at-once"), data)
        self.let_go()
        self.sh("fsx -q -S 12 -N 300 -P /tmp /mnt/fsx >/tmp/said 2>&1 || { cat /tmp/said; false; }")


if __name__ == "__main__":
    ktap.main()
