# SPDX-License-Identifier: GPL-2.0
"""The same script in a directory of the share, in a guest on pvfs and on the host beside it.

Both have to print and leave behind the same.  The host side is vhost_fs.
"""

import hashlib
import stat
import subprocess

from pvfs import PATIENCE, PvfsCase


class SideBySide(PvfsCase):
    vcpus = 2

    def both(self, name, script):
        """What SCRIPT prints in a directory of its own, here and in the guest."""
        here, there = self.share / f"{name}-host", self.share / f"{name}-guest"
        for where in (here, there):
            where.mkdir()
        script = f"set -e\numask 22\n{script}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=here, capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.guest.run(script, cwd=f"/mnt/{there.name}", timeout=PATIENCE, check=True).out
        self.maxDiff = None
        self.assertEqual(out, done.stdout)
        return here, there, out

    def same(self, here, there):
        """Both directories hold the same."""
        self.assertEqual(contents(here), contents(there))


def contents(top):
    """{name: kind, mode, links, and data} of all below TOP."""
    found = {}
    for path in sorted(top.rglob("*")):
        s = path.lstat()
        data = ""
        if stat.S_ISLNK(s.st_mode):
            data = str(path.readlink())
        elif stat.S_ISREG(s.st_mode):
            data = hashlib.sha1(path.read_bytes()).hexdigest()
        found[str(path.relative_to(top))] = (stat.filemode(s.st_mode), s.st_nlink, data)
    return found
