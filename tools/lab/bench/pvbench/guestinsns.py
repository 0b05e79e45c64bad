# SPDX-License-Identifier: GPL-2.0
"""Instructions that a guest's vCPU executes for each operation on a file, or on a disk.

Runs on the machine itself, with one emulated guest that is not nested (pvlab/here.py), whose
QEMU has the plugin.  pvfs and virtiofs have the same device, one after the other, and
virtiofsd behind it.  The disk is guestdisks.py's.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pvlab import insns as plugin
from pvlab.guest import Guest, Share

from pvbench import counting, guestdisks, insns

TOP = Path(__file__).resolve().parents[4]
LOAD = Path(__file__).resolve().parents[1] / "guestload.c"
HELPER = TOP / "tools/pvfs/mount.pvfs"
TAG = "insns"
# Under emulation a round trip takes longer than the 200 us that polling is limited to, also that
# of a disk.
PARAMETERS = "poll_max_us=100000"
# A sample has so many operations; the window is a little longer than all samples.
SAMPLE, WARM = counting.SAMPLE_IOS, 200
TIMES = SAMPLE * (counting.SKIPPED + counting.SAMPLES + 3)
LIMIT = 300
# The last system call of a turn.
OPS = {
    "read": "pread64",
    "write": "pwrite64",
    "stat": "newfstatat",
    "create": "unlinkat",
}
FILE_SYSTEMS = ("virtiofs", "pvfs")
MARKS = {
    "entry_SYSCALL_64": ("round", "work"),
    # A caller of pvfs that polls asks once in each look, and so does the CPU's thread.  It
    # takes a reply, or the question came before a request was sent.
    "virtio_poll_cpu_wanted": ("spin",),
    "vpoll_should_run": ("spin",),
    "pvfs_request_reply": ("found",),
    "virtqueue_kick_prepare": ("found",),
    # The same of virtio_pvblk's disk, and of a task that polls it for IOPOLL.
    "pvblk_iopoll": ("spin",),
    "blk_mq_complete_request_remote": ("found",),
    "do_idle": ("rest",),
    "schedule_idle": ("go",),
    "__schedule": ("switch",),
    "asm_exc_nmi": ("break",),
    # A device's interrupt is part of an operation's cost.
    "asm_common_interrupt": ("exception",),
}
# How the names of the scheduler's functions begin, and those of an interrupt's.
SCHEDULER = (
    *("schedule", "sched", "io_schedule", "prepare_task", "finish_task", "switch_", "activate"),
    *("try_to_wake", "ttwu_", "wake_up", "wakeup", "resched", "select_", "check_preempt"),
    *("pick_", "set_next", "put_prev", "enqueue", "dequeue", "place_entity", "avg_vruntime"),
    *("vruntime", "calc_delta", "psi_", "rb_", "native_sched", "local_clock", "block_task"),
    *("update_(load|curr|cfs|rq|dl|deadline|min_vr|entity|se)", "dl_", "cpuacct", "smpboot"),
    *("kthread_should", "preempt", "raw_spin_rq", "nohz", "account_", "accumulate_sum"),
)
INTERRUPT = (
    *("asm_", "common_interrupt", "handle_", "irq", "note_interrupt", "add_interrupt"),
    *("fast_mix", "error_", "apic", "ct_", "tick_irq", "xas", "xa_find"),
)


def _begins(names):
    return re.compile(rf"kernel:_*({'|'.join(names)})")


# part_of() looks for the first of these that fits a function's module and name.
PARTS = (
    ("pvfs", re.compile(r"pvfs:")),
    ("virtio_pvblk", re.compile(r"virtio_pvblk:")),
    ("virtio_poll", re.compile(r"virtio_poll:")),
    ("virtio_blk", re.compile(r"virtio_blk:")),
    ("virtio_fs", re.compile(r"\w+:_*(virtio_fs|copy_args|sg_init_fuse|sg_count_fuse)")),
    ("FUSE core", re.compile(r"\w+:(_*fuse_|request_wait_answer|queue_interrupt|flush_bg_queue)")),
    ("virtio", re.compile(r"\w+:(_*virtqueue_|vring_|vp_|detach_buf|vm_)")),
    ("block layer", re.compile(r"\w+:_*(blk_|bio_|blkdev_|submit_bio|rq_|sbitmap_|dma_|bvec_)")),
    ("scheduler", _begins(SCHEDULER)),
    ("interrupts", _begins(INTERRUPT)),
    ("io_uring", re.compile(r"\w+:_*io_")),
)
# Entered once for each kick, and for each interrupt of a device.
CALLS = {
    "kicks": ("vp_notify", "vp_notify_with_data"),
    "irqs": ("asm_common_interrupt",),
}


def kinds_of(name, io):
    """The plugin's marks of a function, if IO is entered once for each operation."""
    kinds = MARKS.get(name, ())
    if name == io:
        kinds += ("io",)
    if kinds:
        return kinds
    if insns.INTERRUPT.fullmatch(name):
        return ("interrupt",)
    return ("exception",) if insns.EXCEPTION.fullmatch(name) else ()


def marks(symbols, io):
    """All of them, as lines of text."""
    yield f"user {insns.USER_END:#x}"
    for start, (_, name) in zip(symbols.starts, symbols.names, strict=True):
        for kind in kinds_of(name, io):
            yield f"{kind} {start:#x}"
    yield f"sample {SAMPLE:#x}"
    yield f"skip {counting.SKIPPED:#x}"
    yield f"want {counting.SAMPLES:#x}"
    yield "any 0x1"


def part_of(module, function):
    found = (name for name, pattern in PARTS if pattern.match(f"{module}:{function}"))
    return next(found, "other")


def parts(functions, ios):
    """{part: instructions of each I/O} of (module, function): instructions."""
    sums = Counter()
    for (module, function), count in functions.items():
        sums[part_of(module, function)] += count / ios
    return dict(sums.most_common())


def row_of(window, path, depth=1):
    row = window.sampled(0)
    row["parts"] = parts(window.functions[0]["work"], row["ios"])
    row["calls"] = {what: window.calls(0, names) for what, names in CALLS.items()}
    return {"path": path, "depth": depth, **row}


class Machine:
    """The guest, its share, and the plugin's directory, until the end of `with`."""

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="insns", dir="/dev/shm"))
        self.counts = self.dir / "counts"
        share = self.dir / "share"
        share.mkdir()
        self.counts.mkdir()
        self.server = self._serve(share)
        try:
            self._boot()
        except BaseException:
            self._end()
            raise
        return self

    def _serve(self, share):
        sys.path[:0] = [str(TOP / f"tools/testing/selftests{d}") for d in ("", "/pvfs")]
        from pvfs import Virtiofsd  # noqa: PLC0415

        return Virtiofsd(self.dir, share)

    def _boot(self):
        device = Share.virtiofs(self.server.socket, TAG, queue_size=1024)
        words = ["-plugin", f"{plugin.build()},dir={self.counts}", *guestdisks.ARGUMENTS]
        guest = Guest(name="insns", shares=[device], modules=["virtio_blk"], qemu_args=words)
        self.guest = guest.start()
        built = self.dir / "guestload"
        argv = ["gcc", "-static", "-O2", "-D_GNU_SOURCE", "-o", built, LOAD]
        subprocess.run([str(a) for a in argv], check=True)
        self.guest.put("/bin/guestload", built)
        self.guest.put("/sbin/mount.pvfs", HELPER)
        self.sh("chmod 755 /bin/guestload /sbin/mount.pvfs; echo 0 >/proc/sys/kernel/kptr_restrict")
        self.guest.modprobe("pvfs", PARAMETERS)
        self.read_symbols()

    def read_symbols(self):
        """Again for each module that was loaded since."""
        self.symbols = insns.Symbols(self.sh("cat /proc/kallsyms"))

    def sh(self, command, timeout=LIMIT):
        return self.guest.run(command, timeout=timeout, check=True).out.strip()

    def counted(self, command, io):
        """The window of a load that enters the function IO once for each operation."""
        lines = marks(self.symbols, io)
        (self.counts / "marks").write_text("\n".join(lines) + "\n")
        self.sh(command)
        (path,) = self.counts.glob("*.json")
        window = insns.Window(json.loads(path.read_text()), self.symbols)
        path.unlink()
        return window

    def _end(self):
        self.server.stop()
        shutil.rmtree(self.dir)

    def __exit__(self, kind, *rest):
        try:
            self.guest.stop(check=kind is None)
        finally:
            self._end()


def row(machine, path, depth, command, io, runs):
    """The middle one of as many windows as RUNS says."""
    began = time.monotonic()
    found = [row_of(machine.counted(command, io), path, depth) for _ in range(runs)]
    middle = counting.middle(found)
    took = time.monotonic() - began
    counting.say(
        f"{path}, depth {depth}: {middle['insns']:,.1f} instructions of each ({took:.0f} s)"
    )
    return middle


def rows(machine, fs, ops, runs):
    """A row of each operation on one file system."""
    machine.sh(f"mount -t {fs} {TAG} /mnt")
    for op in ops:
        command = f"guestload {op} /mnt {WARM} {TIMES}"
        yield row(machine, f"guest {fs} {op}", 1, command, f"__x64_sys_{OPS[op]}", runs)
    machine.sh("umount /mnt")


def disk_rows(machine, ops, depths, runs):
    """Those of the disk, of one driver after the other."""
    disk = guestdisks.name(machine)
    for driver in guestdisks.DRIVERS:
        if driver == guestdisks.MODULE:
            guestdisks.take(machine, disk, PARAMETERS)
            disk = guestdisks.name(machine)
            machine.read_symbols()
        for load in guestdisks.loads(driver, ops, depths):
            command = load.command(disk, (WARM, TIMES))
            yield row(machine, load.path, load.depth, command, guestdisks.IO, runs)


def count(ops, depths, runs, commit):
    """What `make insns GUEST=1` writes."""
    with Machine() as machine:
        about = {
            "commit": commit,
            "kernel": machine.sh("uname -r"),
            "kernel_build": machine.sh("uname -v"),
        }
        found = [row for fs in FILE_SYSTEMS for row in rows(machine, fs, ops, runs)]
        found += disk_rows(machine, ops, depths, runs)
    return {"machine": about, "rows": found}
