#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A stock guest mounts two directories of the host, on tmpfs and on ext4, and finds in
them what the host finds.

The same steps pass over virtiofsd (FULL=1 runs them there, too): a step that fails over
both is the guest's or the test's.
"""

import fcntl
import hashlib
import os
import subprocess
import unittest
from pathlib import Path

from pviotest import FSX_CONFIG, PvioTest
from pvlab import ktap, modules
from pvlab.guest import Guest, Share
from pvlab.pvio import run, wait_for

FULL = bool(os.environ.get("FULL"))
VIRTIOFSD = Path("/usr/lib/qemu/virtiofsd")
FSX_OPERATIONS = 1000 if FULL else 300
QUEUE_SIZE = 1024
FILES = 300
MIB = 1 << 20
# Of both: as users have it, and with a queue for each vCPU.
SHARES = {"tmpfs": 1, "ext4": 2}
FIO = (
    "fio --name=v --filename={dir}/fio --size=4M --rw=randwrite --bsrange=4k-512k "
    "--ioengine={engine} --direct={direct} --iodepth=16 --verify=crc32c --verify_fatal=1 "
    "--do_verify=1 --invalidate=1"
)


def sums(directory):
    """{name: hash} of the regular files below DIRECTORY, as the host has them."""
    files = (p for p in Path(directory).rglob("*") if p.is_file() and not p.is_symlink())
    return {str(p.relative_to(directory)): hashlib.sha1(p.read_bytes()).hexdigest() for p in files}


class Steps:
    """The steps; a subclass has serve(), which returns the server's process."""

    def setUp(self):
        super().setUp()
        self.dirs = {name: self.tmp / name for name in SHARES}
        for name, where in self.dirs.items():
            where.mkdir()
            self.mount_on_host(name, where)
        self.servers = {name: self.serve(name, where) for name, where in self.dirs.items()}
        self.guest = Guest(
            name="pvio-share",
            vcpus=2,
            shares=[
                Share.virtiofs(
                    self.socket(name),
                    name,
                    num_request_queues=self.queues(count),
                    queue_size=QUEUE_SIZE,
                )
                for name, count in SHARES.items()
            ],
        )
        self.guest.start()
        self.addCleanup(self.guest.stop)

    def mount_on_host(self, fs, where):
        if fs == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", "size=128M", "pvio-test", where)
        else:
            self.null = self.nullb("share", size_mb=256)
            run("mkfs.ext4", "-q", self.null.path)
            run("mount", self.null.path, where)
        self.addCleanup(run, "umount", "-l", where, check=False)

    def sh(self, command, timeout=120):
        """In the guest, in the directory."""
        return self.guest.run(f"cd /mnt/{self.name} && {command}", timeout=timeout, check=True).out

    def background(self, command):
        self.guest.run(
            f"{{ cd /mnt/{self.name} && {command}; }} </dev/null >/dev/null 2>&1 &", check=True
        )

    def fails(self, command):
        return self.guest.run(f"cd /mnt/{self.name} && {command}").err

    def mount(self):
        self.guest.run(
            f"mkdir -p /mnt/{self.name} && mount -t virtiofs {self.name} /mnt/{self.name}",
            check=True,
        )

    def umount(self):
        self.guest.run(f"umount /mnt/{self.name}", check=True)

    def test_shared(self):
        for name in SHARES:
            self.name = name
            self.dir = self.dirs[name]
            self.mount()
            for step in (
                self.reads_what_the_host_wrote,
                self.writes_what_the_host_reads,
                self.appends_and_cuts,
                self.makes_room,
                self.moves_and_links,
                self.removes,
                self.names_of_all_kinds,
                self.lists_many,
                self.attributes,
                self.extended_attributes,
                self.locks,
                self.runs_programs,
                self.data_by_all_ways,
                self.exercised,
                self.a_tree,
                self.mounted_again,
            ):
                with self.subTest(f"{step.__name__} on {self.name}"):
                    step()
        self.killed()

    def reads_what_the_host_wrote(self):
        data = os.urandom(3 * MIB + 5)
        (self.dir / "host").write_bytes(data)
        said = self.sh("sha1sum host").split()[0]
        self.assertEqual(said, hashlib.sha1(data).hexdigest())
        self.assertIn("No such file", self.fails("cat nothing"))

    def writes_what_the_host_reads(self):
        self.sh("head -c 2500000 /dev/urandom >guest && sync")
        self.assertEqual(self.sh("sha1sum guest").split()[0], sums(self.dir)["guest"])

    def appends_and_cuts(self):
        self.sh("echo one >log && echo two >>log && echo three >>log")
        self.assertEqual((self.dir / "log").read_text(), "one\ntwo\nthree\n")
        self.sh("truncate -s 5 log && truncate -s 8 log")
        self.assertEqual((self.dir / "log").read_bytes(), b"one\nt\0\0\0")

    def makes_room(self):
        """The guest's busybox cannot punch holes: fsx does, in another step."""
        self.sh("fallocate -l 1048576 room")
        self.assertEqual((self.dir / "room").stat().st_size, MIB)

    def moves_and_links(self):
        self.sh("mkdir -p a/b && echo x >a/b/c && mv a/b/c d && mv a e && ln d hard")
        self.sh("ln -s /etc/passwd outside && ln -s nowhere dangling")
        self.assertEqual((self.dir / "d").read_text(), "x\n")
        self.assertEqual((self.dir / "d").stat().st_nlink, 2)
        self.assertTrue((self.dir / "e/b").is_dir())
        self.assertEqual(os.readlink(self.dir / "outside"), "/etc/passwd")
        self.assertEqual(self.sh("readlink dangling").strip(), "nowhere")
        self.sh("echo 1 >one && echo 2 >two && mv -f one two")
        self.assertEqual((self.dir / "two").read_text(), "1\n")
        # The host moves, too, and the guest finds it where it is.
        (self.dir / "two").rename(self.dir / "three")
        wait_for(lambda: self.guest.run(f"cat /mnt/{self.name}/three").ok, "the guest finds it")

    def removes(self):
        self.sh("exec 3>gone && rm gone && echo lives >&3 && [ ! -e gone ] && mkdir f && rmdir f")
        self.assertFalse((self.dir / "gone").exists())
        self.sh("mkdir -p full && touch full/x")
        self.assertIn("not empty", self.fails("rmdir full"))

    def names_of_all_kinds(self):
        long = "n" * 255
        self.sh(f"mkdir names && cd names && touch 'a b' größe '*' -- -x {long}")
        self.assertEqual(
            sorted(os.listdir(self.dir / "names")), sorted(["a b", "größe", "*", "-x", long])
        )
        self.assertIn("too long", self.fails(f"touch {long}n"))

    def lists_many(self):
        (self.dir / "many").mkdir()
        for i in range(FILES):
            (self.dir / "many" / f"file-{i}-{'x' * (i % 50)}").touch()
        found = self.sh("ls many").split()
        self.assertEqual(sorted(found), sorted(os.listdir(self.dir / "many")))
        self.sh("rm -r many")
        self.assertFalse((self.dir / "many").exists())

    def attributes(self):
        self.sh("echo x >owned && chmod 2750 owned && chown 1000:1001 owned")
        self.sh("touch -d '2001-02-03 04:05:06' owned")
        there = (self.dir / "owned").stat()
        self.assertEqual((there.st_mode & 0o7777, there.st_uid, there.st_gid), (0o750, 1000, 1001))
        here = self.sh("stat -c '%i %Y %u %g %s' owned").split()
        inode = str(there.st_ino)
        self.assertEqual(here, [inode, str(int(there.st_mtime)), "1000", "1001", "2"])
        blocks = int(self.sh("stat -f -c %b .").strip())
        self.assertGreater(blocks, 0)

    def extended_attributes(self):
        if not self.guest.run("command -v setfattr").ok:
            self.skipTest("no setfattr: the package attr is not installed")
        self.sh("touch x && setfattr -n user.word -v 'a value' x")
        self.assertEqual(os.getxattr(self.dir / "x", "user.word"), b"a value")
        os.setxattr(self.dir / "x", "user.back", b"again")
        self.assertIn("again", self.sh("getfattr --only-values -n user.back x"))
        self.sh("setfattr -x user.word x")
        self.assertEqual(os.listxattr(self.dir / "x"), ["user.back"])

    def locks(self):
        """The host sees the guest's lock, and the guest the host's."""
        with open(self.dir / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertFalse(self.guest.run(f"flock -n /mnt/{self.name}/lock true").ok)
            fcntl.flock(lock, fcntl.LOCK_UN)
            self.background(
                "flock -n lock sh -c 'touch held; while [ -e held ]; do sleep 0.1; done'"
            )
            wait_for((self.dir / "held").exists, "the guest has the lock")
            with self.assertRaises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.dir / "held").unlink()
            wait_for(lambda: self.can_lock(lock), "the guest gave it back")

    @staticmethod
    def can_lock(lock):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def runs_programs(self):
        self.assertEqual(self.sh("cp /bin/busybox . && ./busybox echo it runs"), "it runs\n")
        self.sh("rm busybox")

    def data_by_all_ways(self):
        for engine, direct in (("psync", 0), ("libaio", 1), ("mmap", 0)):
            self.sh(FIO.format(dir=".", engine=engine, direct=direct), timeout=240)
            self.sh("sync")
            self.assertEqual(self.sh("sha1sum fio").split()[0], sums(self.dir)["fio"])

    def exercised(self):
        self.guest.put("/tmp/fsx.toml", FSX_CONFIG)
        self.sh(
            f"fsx -q -S 7 -N {FSX_OPERATIONS} -f /tmp/fsx.toml -P /tmp ./fsx "
            ">/tmp/said 2>&1 || { tail -n 30 /tmp/said; false; }",
            timeout=240,
        )

    def a_tree(self):
        self.sh("cp -r /usr/lib/modules tree && sync", timeout=240)
        lines = self.sh("cd tree && find . -type f -exec sha1sum {} +", timeout=240).splitlines()
        said = {line.split("  ./")[1]: line.split()[0] for line in lines}
        self.assertGreater(len(said), 5)
        self.assertEqual(said, sums(self.dir / "tree"))

    def mounted_again(self):
        before = self.sh("find . -type f | sort")
        self.umount()
        self.mount()
        self.assertEqual(self.sh("find . -type f | sort"), before)
        self.assertEqual(self.sh("sha1sum guest").split()[0], sums(self.dir)["guest"])

    def killed(self):
        """With kill -9 while the guest has files open and a lock, nothing is left on the
        host: the file system can be unmounted and the lock taken."""
        self.name, self.dir = "ext4", self.dirs["ext4"]
        self.background("flock lock sh -c 'exec 4>open; echo x >&4; touch held; exec sleep 600'")
        wait_for((self.dir / "held").exists, "the guest has the lock")
        server = self.servers["ext4"]
        server.kill()
        server.wait()
        with self.subTest("killed"):
            with open(self.dir / "lock") as lock:
                wait_for(lambda: self.can_lock(lock), "the lock is free")
            run("umount", self.dir)
            run("e2fsck", "-fn", self.null.path)


class OverPvio(Steps, PvioTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.load("vhost_fs")

    @staticmethod
    def queues(count):
        return count

    def serve(self, name, where):
        words = ["--socket", self.socket(name), "--shared-dir", where, "--xattr"]
        return self.pvio(*words, command="fs", sockets=[self.socket(name)]).process


@unittest.skipUnless(FULL and VIRTIOFSD.exists(), "FULL=1 runs it over virtiofsd")
class OverVirtiofsd(Steps, PvioTest):
    @staticmethod
    def queues(_count):
        return 1

    def serve(self, name, where):
        with open(self.tmp / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                [
                    VIRTIOFSD,
                    f"--socket-path={self.socket(name)}",
                    *("-o", f"source={where},sandbox=chroot,xattr,flock,cache=auto"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(self.socket(name).exists, "virtiofsd listens")
        return process


if __name__ == "__main__":
    ktap.main()
