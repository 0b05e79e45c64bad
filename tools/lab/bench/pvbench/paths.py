# SPDX-License-Identifier: GPL-2.0
"""The ways an I/O can go from a guest to the same memory-backed end.

A path says what it needs, brings its backend up on the host, says what the
guest is given, and where in the guest the I/O goes.  A new way is a new class
in ALL; nothing else changes.
"""

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

from pvbench.counters import find_kthreads

POLL_CPU = 1  # the backend's; vCPUs have the others
FILE_SIZE = 64 << 20
# File systems for a file; mkfs leaves nothing to initialise while the bench counts I/Os.
SYSTEMS = {
    "tmpfs": (),
    "ext4": ("mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-qf"),
}
TOP = Path(__file__).resolve().parents[4]


class Unavailable(Exception):
    """Why a path cannot be measured here, in a sentence."""


def sh(*argv):
    return subprocess.run(
        [str(a) for a in argv], check=True, text=True, capture_output=True, timeout=60
    ).stdout


class NullBlk:
    """One null_blk device with a poll queue, the same for every block path."""

    CONFIGS = Path("/sys/kernel/config/nullb")
    SETTINGS = {
        "size": 1024,
        "blocksize": 512,
        "queue_mode": 2,
        "irqmode": 1,
        "submit_queues": 1,
        "poll_queues": 1,
        "memory_backed": 0,
    }

    def __init__(self, settings=None, name="pvbench"):
        self.settings = {**self.SETTINGS, **(settings or {}), "power": 1}
        self.config = self.CONFIGS / name

    def __enter__(self):
        sh("modprobe", "null_blk", "nr_devices=0")
        if not self.CONFIGS.exists():
            sh("mount", "-t", "configfs", "none", "/sys/kernel/config")
        self.__exit__()
        self.config.mkdir()
        for name, value in self.settings.items():
            (self.config / name).write_text(str(value))
        index = (self.config / "index").read_text().strip()
        # 6.12 names a device of configfs after its directory, others nullbN.
        self.path = next(
            p for p in (Path("/dev") / self.config.name, Path(f"/dev/nullb{index}")) if p.exists()
        )
        return self

    def __exit__(self, *exc):
        if self.config.exists():
            (self.config / "power").write_text("0")
            self.config.rmdir()


def that_takes(us):
    """Settings of a NullBlk that ends an I/O by a timer after so many US.  It has no poll queue,
    because null_blk ends polled I/Os without the timer."""
    return {"irqmode": 2, "completion_nsec": us * 1000, "poll_queues": 0} if us else {}


class Medium:
    """A new file system at WHERE, with one file.  ext4 and xfs are on a null_blk that differs
    from the other paths' one in size and in that it stores what is written."""

    def __init__(self, fs, where):
        self.fs, self.where = fs, where
        self.null = NullBlk({"memory_backed": 1, "size": 512}, "pvbench-fs")

    def mount(self):
        """Without the file."""
        self.where.mkdir(exist_ok=True)
        if self.fs == "tmpfs":
            sh("mount", "-t", "tmpfs", "-o", "size=128m", "pvbench", self.where)
        else:
            self.null.__enter__()
            sh(*SYSTEMS[self.fs], self.null.path)
            sh("mount", self.null.path, self.where)

    def make(self):
        self.mount()
        with open(self.where / "file", "wb") as f:
            for _ in range(FILE_SIZE >> 20):
                f.write(b"\xa5" * (1 << 20))

    def unmount(self):
        subprocess.run(["umount", "-l", self.where], check=False, timeout=30)

    def remove(self):
        self.unmount()
        self.null.__exit__()


class IoPath:
    """A way for an I/O: what the subclasses override is what differs."""

    name = ""
    engine = "io_uring"
    modules = ("virtio_blk",)
    backend_cpu = POLL_CPU
    spin = False  # the baseline is a guest that spins, not one that sleeps
    needs = ()

    def __init__(self, env):
        self.env = env
        self.dir = Path(env.workdir)
        self.processes = []

    def check(self):
        """Raise Unavailable with the reason when it cannot be run here."""
        for program in self.needs:
            if not (shutil.which(program) or Path(program).exists()):
                raise Unavailable(f"{program} is not installed")

    def check_ours(self, *modules):
        """The same for a host side of ours."""
        for module in modules:
            if not self.env.module(module):
                raise Unavailable(f"module {module} is not built")
        if not self.env.pvio:
            raise Unavailable("pvio is not built")

    @property
    def disk(self):
        """The block device of the host that I/Os end in."""
        return self.env.device

    def start(self):
        """Bring the backend up."""

    def guest_args(self):
        """Keyword arguments for pvlab's Guest."""
        return {}

    def engine_at(self, depth):
        """fio's engine for one I/O at a time, or for several."""
        return self.engine

    def target(self, guest):
        """Where fio's I/O goes in the guest."""
        wait = "for i in $(seq 100); do [ -b /dev/vda ] && exit; sleep .1; done; exit 1"
        guest.run(wait, timeout=30, check=True)
        return "/dev/vda"

    def backend_pids(self):
        return [p.pid for p in self.processes]

    def poller_pids(self):
        return []

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()
        self.processes = []

    def spawn(self, *argv, socket):
        """Run a backend and wait until its socket is there."""
        socket.unlink(missing_ok=True)
        log = self.dir / "backend.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [str(a) for a in argv], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        self.processes.append(process)
        deadline = time.monotonic() + 30
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{argv[0]} did not come up: " + log.read_text()[-500:])
            time.sleep(0.1)


class QemuIothread(IoPath):
    name = "virtio_blk/qemu-iothread"

    def guest_args(self):
        disk = self.env.Disk.qemu(str(self.disk), iothread=True, aio="io_uring")
        return {"disks": [disk]}


class StorageDaemon(IoPath):
    name = "virtio_blk/qemu-storage-daemon"
    needs = ("qemu-storage-daemon",)

    def start(self):
        self.socket = self.dir / "qsd.sock"
        self.spawn(
            "qemu-storage-daemon",
            "--object",
            "iothread,id=io",
            "--blockdev",
            f"host_device,node-name=d,filename={self.disk}," "cache.direct=on,aio=io_uring",
            "--export",
            "vhost-user-blk,id=e,node-name=d,writable=on,iothread=io,"
            f"addr.type=unix,addr.path={self.socket}",
            socket=self.socket,
        )

    def guest_args(self):
        return {"disks": [self.env.Disk.vhost_user(str(self.socket), num_queues=1)]}


def virtiofs(env, socket):
    """A virtio-fs device with the ring that its users set."""
    return env.Share.virtiofs(socket, "bench", queue_size=1024)


class OneFile(IoPath):
    """The I/O goes to a file."""

    def engine_at(self, depth):
        """A program with one I/O at a time calls pread(2)."""
        return "psync" if depth == 1 else self.engine


class SharedFile(OneFile):
    """It is in a file system of the host's."""

    fs = "tmpfs"

    @classmethod
    def on(cls, fs):
        """The same path, with another file system on the host."""
        if fs == cls.fs:
            return cls
        return type(cls.__name__, (cls,), {"fs": fs, "name": f"{cls.name} ({fs})"})

    def start(self):
        self.share = self.dir / "share"
        self.medium = Medium(self.fs, self.share)
        self.medium.make()

    def device(self):
        """What the guest mounts, a pvlab Share."""
        raise NotImplementedError

    def guest_args(self):
        return {"shares": [self.device()]}

    def target(self, guest):
        guest.run(self.device().mount("/mnt"), timeout=60, check=True)
        return "/mnt/file"

    def stop(self):
        super().stop()
        self.medium.remove()


class Virtiofsd(SharedFile):
    """Debian 12 has the daemon in C, with QEMU; later ones the one in Rust."""

    name = "virtiofs/virtiofsd"
    modules = ()
    engine = "libaio"
    in_c = Path("/usr/lib/qemu/virtiofsd")
    in_rust = Path("/usr/libexec/virtiofsd")

    def check(self):
        if not (self.in_c.exists() or self.in_rust.exists()):
            raise Unavailable("virtiofsd is not installed")

    def start(self):
        super().start()
        self.socket = self.dir / "fs.sock"
        options = [f"--socket-path={self.socket}"]
        if self.in_c.exists():
            daemon = self.in_c
            options += ["-o", f"source={self.share},cache=none,sandbox=chroot", "-f"]
        else:
            daemon = self.in_rust
            options += [f"--shared-dir={self.share}", "--cache=never", "--sandbox=chroot"]
        self.spawn(daemon, *options, socket=self.socket)

    def device(self):
        return virtiofs(self.env, self.socket)


class NineP(SharedFile):
    name = "9p/qemu"
    modules = ("9pnet_virtio", "9p")
    # 9p has no asynchronous I/O of its own: io_uring's workers give it depth.

    def device(self):
        return self.env.Share.p9(self.share, "bench")


class VhostBlk(IoPath):
    """Our host side behind the stock guest driver; the poller is busy."""

    name = "virtio_blk/vhost_blk"
    backend_cpu = 0  # the poller has its own to itself

    def check(self):
        super().check()
        self.check_ours("vhost_poll", "vhost_serve", "vhost_blk")

    def start(self):
        for module in ("vhost", "vhost_poll", "vhost_serve", "vhost_blk"):
            self.env.load(module)
        self.socket = self.dir / "pvio.sock"
        self.spawn(
            self.env.pvio,
            "blk",
            "--socket",
            self.socket,
            "--poll-cpu",
            POLL_CPU,
            "--poll-mode",
            "busy",
            self.disk,
            socket=self.socket,
        )

    def guest_args(self):
        return {"disks": [self.env.Disk.vhost_user(str(self.socket), num_queues=1)]}

    def poller_pids(self):
        return find_kthreads("vhost-poll")


class VhostFs(SharedFile):
    """Our host side behind the stock guest's virtiofs; the poller is busy."""

    name = "virtiofs/vhost_fs"
    modules = ()
    engine = "libaio"
    backend_cpu = 0  # the poller has its own to itself

    def check(self):
        super().check()
        self.check_ours("vhost_poll", "vhost_serve", "vhost_fs")

    def start(self):
        super().start()
        for module in ("vhost", "vhost_poll", "vhost_serve", "vhost_fs"):
            self.env.load(module)
        self.socket = self.dir / "pvio.sock"
        self.spawn(
            self.env.pvio,
            "fs",
            *("--socket", self.socket, "--shared-dir", self.share),
            *("--cache", "never", "--poll-cpu", POLL_CPU, "--poll-mode", "busy"),
            socket=self.socket,
        )

    def device(self):
        return virtiofs(self.env, self.socket)

    def poller_pids(self):
        return find_kthreads("vhost-poll")


class Pvfs(SharedFile):
    """Our guest file system, whose callers poll; mixed into a host side."""

    spin = True
    helper = TOP / "tools/pvfs/mount.pvfs"
    # Under emulation a round trip takes longer than the 200 us that polling is limited to.
    parameters = "poll_max_us=100000"

    def check(self):
        super().check()
        if not self.env.module("pvfs"):
            raise Unavailable("module pvfs is not built")

    def target(self, guest):
        guest.put("/sbin/mount.pvfs", self.helper)
        guest.modprobe("pvfs", self.parameters)
        guest.run("mkdir -p /mnt && sh /sbin/mount.pvfs bench /mnt", timeout=60, check=True)
        return "/mnt/file"


class PvfsVirtiofsd(Pvfs, Virtiofsd):
    name = "pvfs/virtiofsd"


class PvfsVhostFs(Pvfs, VhostFs):
    name = "pvfs/vhost_fs"


class Pvblk(IoPath):
    """Our guest driver, set to poll; mixed into a host side."""

    modules = ()
    spin = True

    def check(self):
        super().check()
        if not self.env.module("virtio_pvblk"):
            raise Unavailable("module virtio_pvblk is not built")

    def target(self, guest):
        guest.modprobe("virtio_pvblk", "claim=all mode=busy first_index=0")
        return super().target(guest)


class PvblkIothread(Pvblk, QemuIothread):
    name = "virtio_pvblk/qemu-iothread"


class PvblkStorageDaemon(Pvblk, StorageDaemon):
    name = "virtio_pvblk/qemu-storage-daemon"


class PvblkVhostBlk(Pvblk, VhostBlk):
    name = "virtio_pvblk/vhost_blk"


class Ext4InGuest(OneFile):
    """The file system is the guest's, on a disk; mixed into a path to a disk."""

    engine = "libaio"

    @property
    def disk(self):
        return self.medium.null.path

    def start(self):
        """The host makes the file, because writing it in the guest takes long."""
        self.medium = Medium("ext4", self.dir / "medium")
        self.medium.make()
        self.medium.unmount()
        super().start()

    def target(self, guest):
        device = super().target(guest)
        guest.run(f"modprobe ext4; mount -t ext4 {device} /mnt", timeout=60, check=True)
        return "/mnt/file"

    def stop(self):
        super().stop()
        self.medium.remove()


class Ext4Iothread(Ext4InGuest, QemuIothread):
    name = "virtio_blk+ext4/qemu-iothread"


class Ext4PvblkVhostBlk(Ext4InGuest, PvblkVhostBlk):
    name = "virtio_pvblk+ext4/vhost_blk"


ALL = (
    QemuIothread,
    StorageDaemon,
    Virtiofsd,
    NineP,
    VhostFs,
    PvfsVirtiofsd,
    PvfsVhostFs,
    Ext4Iothread,
    Ext4PvblkVhostBlk,
    VhostBlk,
    PvblkIothread,
    PvblkStorageDaemon,
    PvblkVhostBlk,
)


def choose(patterns, systems=()):
    """The paths whose names contain one of the words; all when there is none.  Those to
    files of the host once for each of SYSTEMS, or on tmpfs."""
    chosen = [p for p in ALL if not patterns or any(word in p.name for word in patterns)]
    if not chosen:
        names = ", ".join(p.name for p in ALL)
        raise ValueError(f"no path matches {' '.join(patterns)}; there are {names}")
    unknown = [fs for fs in systems if fs not in SYSTEMS]
    if unknown:
        raise ValueError(f"no file system {unknown[0]} here; there are {', '.join(SYSTEMS)}")
    systems = systems or ("tmpfs",)
    per_path = ([p.on(fs) for fs in systems] if issubclass(p, SharedFile) else [p] for p in chosen)
    return [p for ps in per_path for p in ps]
