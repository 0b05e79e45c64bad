#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""pjdfstest in a guest, on pvfs and on virtiofs, beside the same on the host's own directory.

The host side is vhost_fs.

Each case has to end in the guest as it ends on the host.  DIFFERS names those that do not,
with the reason; one that is named and does not differ any more fails, too.
"""

import os
import re
import subprocess
import unittest
from pathlib import Path

from ondisk import Ext4, Xfs
from pvfs import DEBUG, TAG, PvfsCase, serve
from pvlab import crates, ktap

# naptime: longer than a tick of the guest, which is the grain of its time stamps.
CONFIG = """
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
USERS = {
    "etc/passwd": b"root:x:0:0::/:/bin/sh\ndaemon:x:1:1::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "etc/group": b"root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n",
}
CASE = re.compile(r"^(\S+)\s+(ok|FAILED|skipped)$", re.M)
# By file system, {case: why its end is another in a guest}.
DIFFERS = {
    "ext4": {
        "link::link_count_max": "pathconf(3) knows LINK_MAX by the file system's magic, and a "
        "guest sees that of FUSE",
    },
}
# Fewer that pass on the host mean that they did not run.
CASES_MIN = 300


def words(where, elsewhere, config):
    return f"-c {config} -p {where} --secondary-fs {elsewhere}"


def cases(output):
    """{case: how it ended}"""
    return dict(CASE.findall(output))


class Posix:
    """A directory of some file system, served by vhost_fs."""

    vcpus = 2

    @classmethod
    def setUpClass(cls):
        if DEBUG and not os.environ.get("FULL"):
            raise unittest.SkipTest("in the debug lane FULL=1 runs it: its limit of time is short")
        super().setUpClass()

    @classmethod
    def start_server(cls):
        cls.overlay = USERS | {
            "usr/bin/pjdfstest": crates.program("pjdfstest").read_bytes(),
            "etc/pjdfstest.toml": CONFIG.encode(),
            # It runs a copy of sleep under another name, which busybox's would not take.
            "usr/bin/sleep": Path("/usr/bin/sleep").read_bytes(),
        }
        cls.make_file_system(cls.share)
        for name in ("host", "guest", "elsewhere"):
            (cls.share / name).mkdir(mode=0o755)
        cls.socket = serve(cls, "pvio")
        return cls

    @classmethod
    def make_file_system(cls, where):
        """Make nothing, because the share is on tmpfs already."""

    def on_the_host(self):
        config = self.directory / "config"
        config.write_text(CONFIG)
        command = f"{crates.program('pjdfstest')} {words(self.share / 'host', '/run', config)}"
        env = {**os.environ, "NO_COLOR": "1"}
        done = subprocess.run(command, shell=True, capture_output=True, text=True, env=env)
        return done.stdout

    def in_the_guest(self):
        args = words("/mnt/guest", "/tmp", "/etc/pjdfstest.toml")
        return self.guest.run(f"NO_COLOR=1 pjdfstest {args}", timeout=300).out

    def compare(self, what):
        here, there = self.on_the_host(), self.in_the_guest()
        host, guest = cases(here), cases(there)
        self.assertGreater(list(host.values()).count("ok"), CASES_MIN)
        ends = [list(guest.values()).count(end) for end in ("ok", "FAILED", "skipped")]
        print(f"# {what}: {ends[0]} cases ok, {ends[1]} failed, {ends[2]} skipped", flush=True)
        differ = {name for name in host | guest if host.get(name) != guest.get(name)}
        for name in sorted(differ):
            print(f"# {name}: host {host.get(name)}, guest {guest.get(name)}", flush=True)
            print("# " + "\n# ".join(said_of(name, there)), flush=True)
        self.assertEqual(differ, set(DIFFERS.get(self.kind, {})))

    def test_pvfs(self):
        self.compare(f"pvfs, {self.kind}")


def said_of(name, output):
    """What pjdfstest said about a case that failed: some lines."""
    lines = output.splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith(f"{name} ")]
    return lines[at[0] : at[0] + 3] if at else ["nothing"]


class Tmpfs(Posix, PvfsCase):
    kind = "tmpfs"

    def test_virtiofs(self):
        self.sh(
            "umount /mnt; cd /sys/bus/virtio/drivers/pvfs; for d in virtio*; do "
            "echo $d >unbind; echo $d >../virtiofs/bind; done"
        )
        self.sh(f"mount -t virtiofs {TAG} /mnt")
        try:
            self.compare(f"virtiofs, {self.kind}")
        finally:
            self.sh("umount /mnt")
            self.mount()


class OnExt4(Ext4, Posix, PvfsCase):
    pass


class OnXfs(Xfs, Posix, PvfsCase):
    pass


if __name__ == "__main__":
    ktap.main()
