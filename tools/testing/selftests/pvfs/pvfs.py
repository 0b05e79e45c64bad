# SPDX-License-Identifier: GPL-2.0
"""What the tests of pvfs share: a directory served by virtiofsd, and a guest that mounts it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(TOP / "tools/lab"), str(TOP / "tools/testing/selftests")]

from pvlab import modules  # noqa: E402
from pvlab.guest import Guest, Share  # noqa: E402
from pvlab.pvio import Pvio, need_pvio, run  # noqa: E402
from server import Liar  # noqa: E402

DEBUG = os.environ.get("LAB_LANE") == "debug"
# How long a guest's command may take; in the debug lane everything is slower.
PATIENCE = 240 if DEBUG else 120
# Under emulation a round trip takes milliseconds, so polling pays only with this.
POLL_MAX_US = 100000
TAG = "share"
MIB = 1 << 20
TOOL = Path(__file__).with_name("sharetool")
HELPER = TOP / "tools/pvfs/mount.pvfs"
IN_C = Path("/usr/lib/qemu/virtiofsd")
IN_RUST = Path("/usr/libexec/virtiofsd")
FIO = "fio --name=t --group_reporting"


def wait_for(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"time limit reached: {what}")
        time.sleep(0.05)


class Virtiofsd:
    """It ends when its QEMU does."""

    def __init__(self, directory, share, writeback=False):
        self.socket = directory / "fs.sock"
        self.log = directory / "virtiofsd.log"
        if IN_C.exists():
            # A pool of threads is killed by its own seccomp rules at times.
            words = [IN_C, "-f", "--thread-pool-size=0"]
            words += ["-o", f"source={share},cache=none,sandbox=chroot,xattr"]
            words += ["-o", "writeback"] if writeback else []
        elif IN_RUST.exists():
            words = [IN_RUST, f"--shared-dir={share}", "--cache=never", "--sandbox=chroot"]
            words += ["--writeback"] if writeback else []
        else:
            raise unittest.SkipTest("virtiofsd is not installed")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*words, f"--socket-path={self.socket}"], stdout=log, stderr=log
            )
        wait_for(self.socket.exists, "virtiofsd listens")

    def send(self, number):
        """To all its processes: the one that we have started has a child which serves."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in [*map(int, children.read_text().split()), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
        self.process.wait()


def serve(case, name, *words, cache="never"):
    """Our host side for the share of CASE, a PvfsCase, until it ends; returns its socket."""
    need_pvio()
    modules.load("vhost_fs")
    directory = case.directory / name
    directory.mkdir()
    socket = directory / "fs.sock"
    args = ["--socket", socket, "--shared-dir", case.share, "--xattr", "--cache", cache]
    pvio = Pvio(*args, *words, directory=directory, command="fs")
    case.addClassCleanup(pvio.stop)
    pvio.start(socket)
    return socket


class PvfsCase(unittest.TestCase):
    """One guest for the tests of a class, with the share at /mnt."""

    vcpus = 1
    memory = None  # as QEMU has it, if less than usual
    options = ""  # of the mount
    queue_size = 1024
    share_bus = {}
    qemu_args = ()
    overlay = None
    tools = ()  # programs for the guest
    share_size = None  # of a file system of its own, which a test can fill
    lies = False  # the server is server.Liar, and the host has no files

    @classmethod
    def start_server(cls):
        server = Liar(cls.directory) if cls.lies else Virtiofsd(cls.directory, cls.share)
        cls.addClassCleanup(server.stop)
        return server

    @classmethod
    def setUpClass(cls):
        cls.directory = Path("/dev/shm") / f"pvfs-{os.getpid()}-{cls.__name__.lower()}"
        cls.share = cls.directory / "share"
        cls.share.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        if cls.share_size:
            run("mount", "-t", "tmpfs", "-o", f"size={cls.share_size}", "pvfs-test", cls.share)
            cls.addClassCleanup(run, "umount", "-l", cls.share)
        cls.server = cls.start_server()
        device = {"queue_size": cls.queue_size, **cls.share_bus}
        guest = Guest(
            name=cls.__name__.lower(),
            vcpus=cls.vcpus,
            mem=cls.memory,
            shares=[Share.virtiofs(cls.server.socket, TAG, **device)],
            qemu_args=list(cls.qemu_args),
            overlay=cls.overlay,
        )
        cls.guest = cls.enterClassContext(guest)
        cls.guest.put("/sbin/mount.pvfs", HELPER)
        cls.sh("chmod 755 /sbin/mount.pvfs")
        for tool in cls.tools:
            cls.guest.put(f"/usr/bin/{tool.name}", tool)
            cls.sh(f"chmod 755 /usr/bin/{tool.name}")
        cls.guest.leaks_clear()
        cls.guest.modprobe("pvfs", f"poll_max_us={POLL_MAX_US}")
        cls.mount()

    @classmethod
    def tearDownClass(cls):
        cls.sh("umount /mnt 2>/dev/null; rmmod pvfs virtio_poll")
        leaks = cls.guest.leaks()
        if leaks:
            raise AssertionError(f"memory leaked:\n{leaks}")

    @classmethod
    def sh(cls, command, timeout=PATIENCE):
        """Its output; a command that fails fails the test."""
        return cls.guest.run(command, timeout=timeout, check=True).out.strip()

    def status(self, command):
        return self.guest.run(command, timeout=PATIENCE).status

    @classmethod
    def has_iopoll(cls):
        """Whether the kernel's FUSE has ->iopoll.  The debug lane's kernel has all patches."""
        found = cls.guest.run("grep -q ' fuse_file_iopoll' /proc/kallsyms").status == 0
        if DEBUG and not found:
            raise AssertionError("the debug lane's kernel has no fuse_file_iopoll()")
        return found

    @classmethod
    def mount(cls):
        options = f"-o {cls.options}" if cls.options else ""
        cls.sh(f"mount.pvfs {TAG} /mnt {options}")

    def poll_max(self, microseconds):
        parameter = "/sys/module/pvfs/parameters/poll_max_us"
        self.sh(f"echo {microseconds} >{parameter}")
        self.addCleanup(self.sh, f"echo {POLL_MAX_US} >{parameter}")

    def counters(self):
        """{counter: sum over the queues}"""
        lines = self.sh("cd /sys/bus/virtio/drivers/pvfs/virtio*/pvfs && grep . *").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return {
            name: sum(map(int, value.split()))
            for name, value in found.items()
            if name not in ("tag", "cache", "writeback", "timeout")
        }

    @contextlib.contextmanager
    def counting(self):
        """What the counters grew by, once the block has ended."""
        grown = {}
        before = self.counters()
        yield grown
        after = self.counters()
        grown.update({n: after[n] - before[n] for n in after})

    def say(self, what, grown):
        """A line of counters in the test's output."""
        shown = " ".join(f"{name} {grown[name]}" for name in sorted(grown) if grown[name])
        print(f"# {type(self).__name__}, {what}: {shown}", flush=True)

    def start(self, command):
        """A process in the guest that goes on, and its number; its status goes to /tmp/status."""
        return self.sh(
            f"rm -f /tmp/status; (sh -c 'echo $$ >/tmp/pid; exec {command}' "
            ">/tmp/said 2>&1 </dev/null; echo $? >/tmp/status) >/dev/null 2>&1 </dev/null & "
            "until [ -s /tmp/pid ]; do sleep 0.05; done; cat /tmp/pid; rm /tmp/pid"
        )

    def ended(self):
        """The status of what start() has started, once it is there."""
        wait_for(lambda: self.status("test -s /tmp/status") == 0, "a process ends")
        return int(self.sh("cat /tmp/status"))


class Files:
    """What works with each number of CPUs and each size of ring."""

    fsx_operations = 300
    share_size = 64 * MIB
    tools = (TOOL,)

    def test_files_both_ways(self):
        self.sh(
            "cd /mnt && mkdir -p a/b && for n in 0 1 4095 4096 65537 1048577; do "
            "head -c $n /dev/urandom >a/$n; done; cp -r a c; "
            "ln -s b/x a/link; ln a/1 a/b/hard; mv a/4095 a/b/moved; rm a/0; "
            "chmod 640 a/1; truncate -s 9999 a/4096; mkfifo a/pipe; touch -d @1000000000 a/65537"
        )
        seen = self.sh("cd /mnt && find a c -type f -exec sha1sum {} + | sort")
        here = subprocess.run(
            "find a c -type f -exec sha1sum {} + | sort",
            shell=True,
            cwd=self.share,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self.assertEqual(seen, here)
        a = self.share / "a"
        self.assertEqual(
            sorted(os.listdir(a)), ["1", "1048577", "4096", "65537", "b", "link", "pipe"]
        )
        self.assertEqual(os.readlink(a / "link"), "b/x")
        stat = (a / "1").stat()
        self.assertEqual((stat.st_nlink, stat.st_mode & 0o777), (2, 0o640))
        self.assertEqual((a / "4096").stat().st_size, 9999)
        self.assertEqual((a / "65537").stat().st_mtime, 1000000000)
        self.assertTrue((a / "pipe").is_fifo())

    def test_what_the_host_changes_is_seen_at_once(self):
        for text in ("one", "a second one", "3"):
            (self.share / "news").write_text(text)
            self.assertEqual(self.sh("cat /mnt/news"), text)

    def test_errors(self):
        self.assertIn("No such file", self.guest.run("cat /mnt/none").err)
        self.sh("mkdir -p /mnt/full/x")
        self.assertIn("not empty", self.guest.run("rmdir /mnt/full").err)
        name = "n" * 255
        self.sh(f"echo long >/mnt/{name} && mv /mnt/{name} /mnt/{'m' * 255}")
        self.assertEqual((self.share / ("m" * 255)).read_text(), "long\n")
        self.assertIn("too long", self.guest.run(f"cat /mnt/{name}x").err)

    def test_long_symlink(self):
        """Its target does not fit into a slot's buffer."""
        target = "/".join(["x" * 200] * 15)
        self.sh(f"ln -s {target} /mnt/far")
        self.assertEqual(os.readlink(self.share / "far"), target)
        self.assertEqual(self.sh("readlink /mnt/far"), target)

    def test_many_names(self):
        self.sh("mkdir /mnt/many && cd /mnt/many && for i in $(seq 400); do : >$i; done")
        self.assertEqual(int(self.sh("ls /mnt/many | wc -l")), 400)
        self.assertEqual(len(os.listdir(self.share / "many")), 400)
        with self.counting() as grown:
            self.sh("rm -r /mnt/many; echo 2 >/proc/sys/vm/drop_caches; sleep 0.3")
        self.say("400 files removed", grown)
        self.assertGreaterEqual(grown["forgets"], 400)
        self.assertLess(grown["forget_messages"], grown["forgets"])

    def test_fio_verifies(self):
        for engine, direct in (("libaio", 1), ("psync", 1), ("psync", 0), ("mmap", 0)):
            with self.subTest(f"{engine}, direct={direct}"):
                with self.counting() as grown:
                    self.sh(
                        f"{FIO} --filename=/mnt/fio --size=2M --rw=randwrite --bsrange=4k-128k "
                        f"--ioengine={engine} --direct={direct} --iodepth=16 --verify=crc32c "
                        "--verify_fatal=1 --do_verify=1"
                    )
                self.say(f"fio {engine} direct={direct}", grown)
                self.assertEqual(grown["bad_replies"], 0)

    def test_fsx(self):
        self.sh(
            f"fsx -q -S 7 -N {self.fsx_operations} -P /tmp /mnt/fsx "
            ">/tmp/said 2>&1 || { tail -n 30 /tmp/said; false; }"
        )

    def test_mapping_and_exec(self):
        self.sh("cp /bin/busybox /mnt && chmod 755 /mnt/busybox")
        self.assertEqual(self.sh("/mnt/busybox echo works"), "works")
        # An engine that maps the file shared, as seen by the host.
        self.sh(
            f"{FIO} --filename=/mnt/map --size=256k --rw=write --bs=4k --ioengine=mmap "
            "--buffer_pattern=0x5a --end_fsync=1"
        )
        self.assertEqual((self.share / "map").read_bytes(), b"\x5a" * (256 << 10))

    def map_too_much(self):
        """Write a file by a mapping.  The host's disk has room for its first half."""
        name = self.share / "much"
        before = os.statvfs(self.share)
        with open(self.share / "full", "wb") as full:
            os.posix_fallocate(full.fileno(), 0, before.f_bavail * before.f_bsize - MIB // 2)
        try:
            return self.guest.run(f"sharetool fill /mnt/{name.name} x {MIB}")
        finally:
            (self.share / "full").unlink()
            name.unlink()
            # The server has the file until the guest forgets it.
            self.sh("echo 3 >/proc/sys/vm/drop_caches")
            wait_for(
                lambda: os.statvfs(self.share).f_bavail >= before.f_bavail,
                "the host has its room again",
            )

    def test_a_mapping_that_does_not_fit_on_the_host(self):
        """virtiofsd answers that a part was written, and the core does not look at that."""
        self.sh(f"sharetool fill /mnt/mapped x {MIB}")
        self.assertEqual((self.share / "mapped").read_bytes(), b"x" * MIB)
        self.assertIn("msync: ", self.map_too_much().err)

    def test_all_is_answered(self):
        self.sh("sync; sleep 0.2")
        counted = self.counters()
        self.assertEqual((counted["inflight"], counted["bad_replies"]), (0, 0))
