# SPDX-License-Identifier: GPL-2.0
"""stress-ng's file system set in a directory of the share, in a guest and on the host beside it.

Each stressor works a number of rounds, not a time, and looks whether what it did is there
(``verify``).  A stressor has to end in the guest as it ends on the host.  DIFFERS names those
that do not, with the reason; one that is named and does not differ any more fails, too.
"""

import os
import re
import subprocess

from pvfs import PATIENCE

# {stressor: what its job file says of it}.  Left out are those of the class that never touch
# the directory (binderfs, dup, eventfd, ioprio, procfs), that mount (bind-mount), that want
# fanotify or verity, which FUSE does not have, whose least file has 128 MiB (copy-file), that end
# with their time only (fpunch, inode-flags), and that drop the machine's caches (iomix).
STRESSORS = {
    "access": "access-ops 1",
    "chattr": "chattr-ops 2",
    "chdir": "chdir-dirs 64\nchdir-ops 1",
    "chmod": "chmod-ops 2",
    "chown": "chown-ops 20",
    "dentry": "dentries 16\ndentry-ops 32",
    "dir": "dir-dirs 64\ndir-ops 16",
    "dirdeep": "dirdeep-dirs 1\ndirdeep-inodes 100\ndirdeep-ops 20",
    "dirmany": "dirmany-ops 16",
    "dnotify": "dnotify-ops 4",
    "fallocate": "fallocate-bytes 1m\nfallocate-ops 4",
    "fcntl": "fcntl-ops 20",
    "fiemap": "fiemap-bytes 1m\nfiemap-ops 10",
    "file-ioctl": "file-ioctl-ops 20",
    "filename": "filename-ops 2",
    "flock": "flock-ops 100",
    "fsize": "fsize-ops 2",
    "fstat": "fstat-ops 8",
    "getdent": "getdent-ops 20",
    "handle": "handle-ops 20",
    "hdd": "hdd-bytes 1m\nhdd-write-size 16k\nhdd-opts rd-rnd,wr-rnd,fsync\nhdd-ops 64",
    "inotify": "inotify-ops 1",
    "io": "io-ops 2",
    "lease": "lease-ops 20",
    "link": "link-ops 1",
    "locka": "locka-ops 50",
    "lockf": "lockf-ops 50",
    "lockofd": "lockofd-ops 50",
    "mknod": "mknod-ops 16",
    "open": "open-max 64\nopen-ops 64",
    "readahead": "readahead-bytes 1m\nreadahead-ops 20",
    "rename": "rename-ops 20",
    "seek": "seek-size 1m\nseek-ops 20",
    "sendfile": "sendfile-size 64k\nsendfile-ops 8",
    "symlink": "symlink-ops 1",
    "sync-file": "sync-file-bytes 1m\nsync-file-ops 2",
    "touch": "touch-ops 8",
    "utime": "utime-ops 4",
    "xattr": "xattr-ops 2",
}
# They make 8,192 links, or set as many attributes, in one round: with FULL=1 only.
HEAVY = ("link", "symlink", "xattr")
SHORT = [name for name in STRESSORS if name not in HEAVY]
CHOSEN = list(STRESSORS) if os.environ.get("FULL") else SHORT
# A stressor that hangs ends by this, in seconds, and then has too few rounds.
LIMIT = 600
ROUNDS = re.compile(r"metrc: \[\d+\] (\S+) +(\d+) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", re.M)


def job(names, where):
    """A job file for the stressors NAMES in the directory WHERE."""
    head = f"run sequential\nverify\ntimeout {LIMIT}\ntemp-path {where}\n"
    return head + "".join(f"{name} 1\n{STRESSORS[name]}\n" for name in names)


def wanted_rounds(name):
    return int(STRESSORS[name].split()[-1])


def ends(output):
    """{stressor: whether it did all its rounds}"""
    did = {name: int(rounds) for name, rounds in ROUNDS.findall(output)}
    return {name: rounds >= wanted_rounds(name) for name, rounds in did.items()}


class Stress:
    """A mix-in for a PvfsCase whose guest has stress-ng."""

    differs = {}  # {stressor: why its end is another in the guest}

    def test_stressors(self):
        names = CHOSEN
        here, there = self.share / "stress-host", self.share / "stress-guest"
        for where in (here, there):
            where.mkdir()
        mine = self.directory / "job"
        mine.write_text(job(names, here))
        done = subprocess.run(
            ["stress-ng", "--job", mine, "--metrics-brief"], capture_output=True, text=True
        )
        self.guest.put("/tmp/job", job(names, f"/mnt/{there.name}").encode())
        said = self.guest.run("stress-ng --job /tmp/job --metrics-brief 2>&1", timeout=PATIENCE * 5)
        self.compare(names, done.stdout + done.stderr, said.out)
        for where in (here, there):
            self.assertEqual(list(where.iterdir()), [])

    def compare(self, names, here, there):
        host, guest = ends(here), ends(there)
        print(f"# {sum(guest.values())} of {len(names)} stressors did their rounds", flush=True)
        self.assertGreater(sum(host.values()), len(names) * 2 // 3, here)
        failures = [line for line in there.splitlines() if " fail: " in line]
        differ = {name for name in names if host.get(name) != guest.get(name)}
        for name in sorted(differ):
            print(f"# {name}: host {host.get(name)}, guest {guest.get(name)}", flush=True)
        self.assertEqual(failures, [])
        self.assertEqual(differ, set(self.differs) & set(names), there)
