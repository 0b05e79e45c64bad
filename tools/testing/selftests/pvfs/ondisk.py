# SPDX-License-Identifier: GPL-2.0
"""A share on a disk's file system: an image that the host mounts."""

import subprocess


class OnDisk:
    """A mix-in for a PvfsCase that calls make_file_system()."""

    @classmethod
    def make_file_system(cls, where):
        image = cls.directory / "image"
        with open(image, "wb") as f:
            f.truncate(cls.size)
        for command in (f"{cls.mkfs} {image}", f"modprobe loop; mount -o loop {image} {where}"):
            subprocess.run(command, shell=True, check=True, capture_output=True)
        cls.addClassCleanup(subprocess.run, ["umount", "-l", where], check=False)


class Ext4(OnDisk):
    kind, mkfs, size = "ext4", "mkfs.ext4 -qF", 128 << 20


class Xfs(OnDisk):
    kind, mkfs, size = "xfs", "mkfs.xfs -qf", 320 << 20
