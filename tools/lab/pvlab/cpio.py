# SPDX-License-Identifier: GPL-2.0
"""Writes the newc archives a kernel takes as initramfs."""

import stat


class Archive:
    def __init__(self):
        self._parts = []
        self._names = set()
        self._inode = 0

    def _entry(self, name, mode, data=b"", rdev=(0, 0)):
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(encoded), 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + encoded
        self._parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]
        self._names.add(name)

    def _parents(self, name):
        parts = name.split("/")[:-1]
        for i in range(len(parts)):
            self.directory("/".join(parts[: i + 1]))

    def directory(self, name, mode=0o755):
        if name in self._names:
            return
        self._parents(name)
        self._entry(name, stat.S_IFDIR | mode)

    def file(self, name, data, mode=0o644):
        if name in self._names:
            return
        self._parents(name)
        self._entry(name, stat.S_IFREG | mode, data)

    def symlink(self, name, target):
        if name in self._names:
            return
        self._parents(name)
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name, major, minor, mode=0o600):
        self._parents(name)
        self._entry(name, stat.S_IFCHR | mode, rdev=(major, minor))

    def __contains__(self, name):
        return name in self._names

    def bytes(self):
        data = b"".join(self._parts)
        end = (
            b"070701"
            + b"0" * 8 * 4
            + b"00000001"
            + b"0" * 8 * 6
            + b"0000000b"
            + b"0" * 8
            + b"TRAILER!!!\0"
        )
        data += end
        return data + bytes(-len(data) % 512)
