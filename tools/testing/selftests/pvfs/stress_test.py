#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""stress-ng's file system set in a guest on pvfs, over vhost_fs on tmpfs, ext4 or xfs.

Each takes minutes, so it is one of them a day; FULL=1 runs all.
"""

import os
import unittest

from ondisk import Ext4, Xfs
from pvfs import PvfsCase, serve
from pvlab import image, ktap, turns
from stress import Stress

KINDS = ("tmpfs", "ext4", "xfs")
CHOSEN = KINDS if os.environ.get("FULL") else turns.rotated(KINDS, turns.today(), 1)[:1]


class OnTmpfs(Stress, PvfsCase):
    kind = "tmpfs"

    @classmethod
    def setUpClass(cls):
        if cls.kind not in CHOSEN:
            raise unittest.SkipTest(f"{cls.kind} has its turn on another day; FULL=1 runs it now")
        super().setUpClass()

    @classmethod
    def start_server(cls):
        cls.overlay = image.overlay("stress-ng")
        cls.make_file_system(cls.share)
        cls.socket = serve(cls, "pvio")
        return cls

    @classmethod
    def make_file_system(cls, where):
        """Make nothing, because the share is on tmpfs already."""


class OnExt4(Ext4, OnTmpfs):
    pass


class OnXfs(Xfs, OnTmpfs):
    pass


if __name__ == "__main__":
    ktap.main()
