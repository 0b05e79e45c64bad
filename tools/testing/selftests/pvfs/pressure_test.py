#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A guest writes until pages must be reclaimed, and each page waits for the server."""

import hashlib
import os

from pvfs import DEBUG, FIO, MIB, TAG, PvfsCase, serve
from pvlab import ktap

FULL = bool(os.environ.get("FULL"))


class Pressure(PvfsCase):
    memory = "640M" if DEBUG else "192M"
    # Bytes of tmpfs that take up memory, and the size of each of two files.
    hog = 160 * MIB if DEBUG else 64 * MIB
    size = 160 * MIB if FULL or DEBUG else 32 * MIB

    @classmethod
    def start_server(cls):
        words = ("--writeback", "--entry-timeout", "0", "--attr-timeout", "0")
        cls.socket = serve(cls, "pvio", *words, cache="auto")
        return cls

    def reclaimed(self):
        """Pages that the kernel has taken back for others, so far."""
        lines = self.sh("grep -E '^pgsteal_(kswapd|direct) ' /proc/vmstat").splitlines()
        return sum(int(line.split()[1]) for line in lines)

    def test_writing_while_memory_is_short(self):
        self.sh(f"umount /mnt; mount.pvfs {TAG} /mnt -o cache=always")
        self.sh(f"mount -t tmpfs none /tmp; head -c {self.hog} /dev/zero >/tmp/hog")
        before = self.reclaimed()
        with self.counting() as grown:
            self.sh(
                "status=0; jobs=; for engine in mmap psync; do "
                f"{FIO} --filename=/mnt/$engine --size={self.size} --rw=randwrite --bs=16k "
                "--ioengine=$engine --direct=0 --end_fsync=1 --verify=crc32c --verify_fatal=1 "
                '--do_verify=1 >/tmp/$engine 2>&1 & jobs="$jobs $!"; done; '
                "for job in $jobs; do wait $job || status=$?; done; "
                "cat /tmp/mmap /tmp/psync; exit $status"
            )
        self.say("written", grown)
        pages = self.reclaimed() - before
        print(f"# {pages} pages reclaimed", flush=True)
        self.assertGreater(pages * 4096, self.size // 2)
        for name in ("mmap", "psync"):
            seen = self.sh(f"echo 3 >/proc/sys/vm/drop_caches; sha1sum /mnt/{name}").split()[0]
            self.assertEqual(hashlib.sha1((self.share / name).read_bytes()).hexdigest(), seen)


if __name__ == "__main__":
    ktap.main()
