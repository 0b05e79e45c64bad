#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""stress-ng's file system set in a guest on pvfs, over virtiofsd."""

from pvfs import PvfsCase, Virtiofsd
from pvlab import image, ktap
from stress import Stress


class OverVirtiofsd(Stress, PvfsCase):
    @classmethod
    def start_server(cls):
        cls.overlay = image.overlay("stress-ng")
        server = Virtiofsd(cls.directory, cls.share)
        cls.addClassCleanup(server.stop)
        return server


if __name__ == "__main__":
    ktap.main()
