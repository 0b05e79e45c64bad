#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A kernel module is built in a guest whose compiler, headers and work lie on pvfs.

The host side is vhost_fs, with the host's own /usr as a submount.  The same is built on the
host beside it, and has to come out byte for byte the same.
"""

import hashlib
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from pvfs import PATIENCE, PvfsCase, serve
from pvlab import ktap

SOURCE = """
#include <linux/module.h>
#include <linux/fs.h>
static int __init hello(void) { pr_info("%zu\\n", sizeof(struct inode)); return 0; }
module_init(hello);
MODULE_DESCRIPTION("built in a guest");
MODULE_LICENSE("GPL");
"""
HEADERS = f"/lib/modules/{os.uname().release}/build"
# In a root of /usr alone: what a build wants of the rest.
BUILD = f"""
for d in dev proc; do mkdir -p {{root}}/$d; done
mount -t devtmpfs none {{root}}/dev && mount -t proc none {{root}}/proc
chroot {{root}} /usr/bin/env PATH=/usr/sbin:/usr/bin HOME=/ LC_ALL=C \\
	make -C {HEADERS} M=/work KBUILD_BUILD_TIMESTAMP=0 CONFIG_DEBUG_INFO_BTF_MODULES= modules 2>&1
status=$?
umount {{root}}/dev {{root}}/proc
exit $status
"""


class Build(PvfsCase):
    vcpus = 2
    memory = "1G"

    @classmethod
    def setUpClass(cls):
        if not Path(HEADERS).exists():
            raise unittest.SkipTest(f"{HEADERS} is not there: the kernel's headers")
        super().setUpClass()

    @classmethod
    def start_server(cls):
        for name in ("bin", "sbin", "lib", "lib64"):
            (cls.share / name).symlink_to(f"usr/{name}")
        (cls.share / "usr").mkdir()
        subprocess.run(["mount", "--bind", "/usr", cls.share / "usr"], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", "-l", cls.share / "usr"], check=True)
        cls.socket = serve(cls, "pvio", "--announce-submounts")
        return cls

    def start_of(self, work):
        work.mkdir()
        (work / "hello.c").write_text(SOURCE)
        (work / "Makefile").write_text("obj-m := hello.o\n")

    def test_module(self):
        work = self.share / "work"
        self.start_of(work)
        done = subprocess.run(
            BUILD.format(root=self.share), shell=True, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        expected = sums(work)
        self.assertIn("hello.ko", expected)
        shutil.rmtree(work)
        self.start_of(work)
        said = self.guest.run(BUILD.format(root="/mnt"), timeout=5 * PATIENCE)
        self.assertTrue(said.ok, said.out)
        self.assertEqual(sums(work), expected)


def sums(top):
    """{name: hash} of all files below TOP."""
    files = (p for p in sorted(top.rglob("*")) if p.is_file())
    return {str(p.relative_to(top)): hashlib.sha1(p.read_bytes()).hexdigest() for p in files}


if __name__ == "__main__":
    ktap.main()
