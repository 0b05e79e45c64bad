#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Submounts: the guest mounts what the server announces, and all of it goes with the main mount."""

import subprocess
import unittest

from pvfs import TAG, PvfsCase, serve
from pvlab import image, ktap, turns
from server import DATA

BLOCKS = 7168  # of 1 KiB


@unittest.skipUnless(turns.has_come(), turns.WHY)
class Submounts(PvfsCase):
    """A tmpfs beneath the share, by vhost_fs."""

    vcpus = 2

    @classmethod
    def mount_sub(cls):
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={BLOCKS}k", "sub", cls.share / "sub"], check=True
        )
        (cls.share / "sub/inside").write_text("inside\n")

    @classmethod
    def start_server(cls):
        (cls.share / "sub").mkdir()
        (cls.share / "outside").write_text("outside\n")
        cls.mount_sub()
        cls.addClassCleanup(subprocess.run, ["umount", "-l", cls.share / "sub"], check=True)
        cls.socket = serve(cls, "pvio", "--announce-submounts")
        return cls

    def device(self, path):
        return self.sh(f"stat -c %d {path}")

    def test_it_is_a_file_system_of_its_own(self):
        self.assertEqual(self.sh("cat /mnt/sub/inside"), "inside")
        self.assertNotEqual(self.device("/mnt/sub/inside"), self.device("/mnt/outside"))
        self.assertEqual(self.device("/mnt/sub"), self.device("/mnt/sub/inside"))
        found = self.sh("find /mnt -xdev").splitlines()
        self.assertIn("/mnt/outside", found)
        self.assertNotIn("/mnt/sub/inside", found)
        self.assertEqual(int(self.sh("df -k /mnt/sub | tail -n 1").split()[1]), BLOCKS)
        self.assertNotEqual(int(self.sh("df -k /mnt/outside | tail -n 1").split()[1]), BLOCKS)

    def test_files_are_written_and_moved_by_copying(self):
        self.sh("cp -r /etc /mnt/sub/etc; sync; mv /mnt/sub/etc /mnt/etc")
        self.assertEqual((self.share / "etc/group").read_text().strip(), self.sh("cat /etc/group"))
        self.assertFalse((self.share / "sub/etc").exists())
        self.assertNotEqual(self.status("ln /mnt/outside /mnt/sub/link"), 0)
        self.assertIn("busy", self.guest.run("rmdir /mnt/sub").err)
        self.assertTrue((self.share / "sub/inside").exists())

    def test_umount_takes_it_along_and_the_host_has_it_back(self):
        sub = self.share / "sub"
        self.sh("cat /mnt/sub/inside")
        self.assertEqual(self.sh("grep -c pvfs /proc/mounts"), "2")
        self.assertNotEqual(subprocess.run(["umount", sub], check=False).returncode, 0)
        self.sh("umount /mnt && ! grep -q pvfs /proc/mounts")
        subprocess.run(["umount", sub], check=True)
        self.mount()
        self.assertEqual(self.sh("ls /mnt/sub"), "")
        self.mount_sub()
        self.assertEqual(self.sh("cat /mnt/sub/inside"), "inside")

    def test_mounted_twice_it_is_the_same_root(self):
        """The superblock of the submount is the newest, and of the same device."""
        self.sh("cat /mnt/sub/inside")
        self.sh(f"mkdir -p /mnt2; mount.pvfs {TAG} /mnt2")
        self.assertEqual(self.sh("cat /mnt2/outside; cat /mnt2/sub/inside"), "outside\ninside")
        self.sh("umount /mnt2; cat /mnt/sub/inside")

    def test_a_file_of_it_that_stays_open_keeps_the_main_mount(self):
        pid = self.start('sh -c "exec sleep 1000 </mnt/sub/inside"')
        self.sh(f"until readlink /proc/{pid}/fd/0 | grep -q inside; do sleep 0.1; done")
        before = self.sh("stat -c %d /mnt")
        self.sh("umount -l /mnt")
        self.sh(f"mount.pvfs {TAG} /mnt")
        self.assertEqual(self.sh("stat -c %d /mnt"), before)
        self.assertEqual(self.sh(f"cat /proc/{pid}/fd/0"), "inside")
        self.sh("umount -l /mnt")
        self.assertEqual(self.sh(f"cat /proc/{pid}/fd/0"), "inside")
        self.sh(f"kill {pid}")
        self.ended()
        self.sh(f"mount.pvfs {TAG} /mnt")
        self.assertEqual(self.sh("cat /mnt/sub/inside"), "inside")


class Forced(PvfsCase):
    """umount -f at a server that says nothing any more."""

    vcpus = 2
    # busybox's tries without force first.
    overlay = image.overlay(**{"umount-now": "umount"})

    lies = True

    def forced(self, *paths):
        self.assertEqual(self.sh("cat /mnt/sub/file") + "\n", DATA.decode())
        self.server.silent = True
        for path in paths:
            self.sh(f"umount-now -f {path}")
        self.assertEqual(self.sh("grep -c pvfs /proc/mounts || true"), "0")
        self.server.silent = False
        self.assertIsNone(self.server.failed)
        self.mount()

    def test_the_submount_first(self):
        """While its name holds, or umount(8) would wait as it looks that up."""
        self.server.valid = 3600
        try:
            self.forced("/mnt/sub", "/mnt")
        finally:
            self.server.valid = 0

    def test_all_at_once(self):
        self.forced("/mnt")
        self.assertEqual(self.sh("cat /mnt/sub/file") + "\n", DATA.decode())


if __name__ == "__main__":
    ktap.main()
