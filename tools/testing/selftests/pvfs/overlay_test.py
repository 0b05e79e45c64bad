#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""overlayfs with pvfs as its lower part, as its upper part, and as both."""

import stat
import subprocess

from pvfs import serve
from pvlab import ktap
from sidebyside import SideBySide

# In the merged directory of an overlay; TREE is its lower part.
TREE = """
mkdir -p lower/dir/sub lower/gone lower/again
for i in 1 2 3 4; do seq $((i * 500)) >lower/$i; seq $i >lower/dir/$i; done
echo x >lower/dir/sub/x; echo x >lower/gone/x; echo x >lower/again/x
ln -s dir/1 lower/link; ln lower/3 lower/hard; chmod 750 lower/4
"""
OVERLAID = """
echo more >>1; rm 2; mv 3 three; chmod 600 4; touch -d @1000000000 dir/1
rm -r gone again; mkdir again; echo y >again/y
echo new >dir/new; ln dir/new dir/linked; mv dir/2 dir/moved; ln -s nowhere dangling
cp /bin/busybox .; ./busybox true; rm busybox
exec 3<dir/3; echo z >dir/3; sed -n 1p <&3; exec 3<&-
rm dir/sub/x; rmdir dir/sub; mkdir dir/sub; echo w >dir/sub/w
"""
SEEN = """
find . | sort | xargs stat -c '%n %F %a %h'
find . -type f -exec sha1sum {} + | sort
"""


class Overlay(SideBySide):
    @classmethod
    def start_server(cls):
        cls.socket = serve(cls, "pvio", "--privileged-xattr", "map")
        return cls

    def overlaid(self, name, lower, upper):
        """An overlay of LOWER and UPPER, each "." or a directory of tmpfs."""
        here = self.share / f"{name}-host"
        self.addCleanup(subprocess.run, f"umount -l {here}/* 2>/dev/null", shell=True)
        here, there, said = self.both(
            name,
            f"mkdir m; for d in {lower} {upper}; do [ $d = . ] || {{ mkdir $d; "
            "mount -t tmpfs none $d; }; done; "
            f"( cd {lower}\n{TREE} ); mkdir {upper}/upper {upper}/work\n"
            f"mount -t overlay -o lowerdir={lower}/lower,upperdir={upper}/upper,"
            f"workdir={upper}/work none m\n"
            f"( cd m\n{OVERLAID}{SEEN} )\numount m\n"
            # Anew, so that it is not the cache that remembers.
            f"mount -t overlay -o lowerdir={lower}/lower,upperdir={upper}/upper,"
            f"workdir={upper}/work none m\n( cd m\n{SEEN} )\numount m\n"
            f"rm -r {upper}/work; for d in {lower} {upper}; do [ $d = . ] || umount $d; done",
        )
        self.assertGreater(len(said.splitlines()), 40)
        self.same(here, there)
        return there

    def test_overlay_with_pvfs_below(self):
        self.overlaid("lower", ".", "tmpfs")

    def test_overlay_with_pvfs_above(self):
        there = self.overlaid("upper", "tmpfs", ".")
        whiteout = (there / "upper/2").stat()
        self.assertTrue(stat.S_ISCHR(whiteout.st_mode))
        self.assertEqual(whiteout.st_rdev, 0)

    def test_overlay_of_pvfs_alone(self):
        self.overlaid("overlay", ".", ".")


if __name__ == "__main__":
    ktap.main()
