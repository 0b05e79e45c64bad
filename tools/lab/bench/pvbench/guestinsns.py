# SPDX-License-Identifier: GPL-2.0
"""Instructions that a guest's vCPU executes for each operation on a file.

Runs on the machine itself, with one emulated guest that is not nested (pvlab/here.py), whose
QEMU has the plugin.  pvfs and virtiofs have the same device, one after the other, and
virtiofsd behind it.
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

from pvbench import counting, insns

TOP = Path(__file__).resolve().parents[4]
LOAD = Path(__file__).resolve().parents[1] / "guestload.c"
HELPER = TOP / "tools/pvfs/mount.pvfs"
TAG = "insns"
# Under emulation a round trip takes longer than the 200 us that polling is limited to.
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
    "do_idle": ("rest",),
    "schedule_idle": ("go",),
    "__schedule": ("switch",),
    "asm_exc_nmi": ("break",),
    # A device's interrupt is part of an operation's cost.
    "asm_common_interrupt": ("exception",),
}
# part_of() looks for the first of these that fits a function's module and name.
PARTS = (
    ("pvfs", re.compile(r"(pvfs|virtio_poll):")),
    ("virtio_fs", re.compile(r"\w+:_*(virtio_fs|copy_args|sg_init_fuse|sg_count_fuse)")),
    ("FUSE core", re.compile(r"\w+:(_*fuse_|request_wait_answer|queue_interrupt|flush_bg_queue)")),
    ("virtio", re.compile(r"\w+:(_*virtqueue_|vring_|vp_|detach_buf|vm_)")),
)


def kinds_of(name, call):
    """The plugin's marks of a function, if CALL ends an operation."""
    kinds = MARKS.get(name, ())
    if name == f"__x64_sys_{call}":
        kinds += ("io",)
    if kinds:
        return kinds
    if insns.INTERRUPT.fullmatch(name):
        return ("interrupt",)
    return ("exception",) if insns.EXCEPTION.fullmatch(name) else ()


def marks(symbols, call):
    """All of them, as lines of text."""
    yield f"user {insns.USER_END:#x}"
    for start, (_, name) in zip(symbols.starts, symbols.names, strict=True):
        for kind in kinds_of(name, call):
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


def row_of(window, path):
    row = window.sampled(0)
    functions = window.functions[0]["work"]
    return {"path": path, "depth": 1, **row, "parts": parts(functions, row["ios"])}


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
        words = ["-plugin", f"{plugin.build()},dir={self.counts}"]
        self.guest = Guest(name="insns", shares=[device], qemu_args=words).start()
        built = self.dir / "guestload"
        argv = ["gcc", "-static", "-O2", "-D_GNU_SOURCE", "-o", built, LOAD]
        subprocess.run([str(a) for a in argv], check=True)
        self.guest.put("/bin/guestload", built)
        self.guest.put("/sbin/mount.pvfs", HELPER)
        self.sh("chmod 755 /bin/guestload /sbin/mount.pvfs; echo 0 >/proc/sys/kernel/kptr_restrict")
        self.guest.modprobe("pvfs", PARAMETERS)
        self.symbols = insns.Symbols(self.sh("cat /proc/kallsyms"))

    def sh(self, command, timeout=LIMIT):
        return self.guest.run(command, timeout=timeout, check=True).out.strip()

    def counted(self, op):
        """The window of an operation on what is mounted."""
        lines = marks(self.symbols, OPS[op])
        (self.counts / "marks").write_text("\n".join(lines) + "\n")
        self.sh(f"guestload {op} /mnt {WARM} {TIMES}")
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


def rows(machine, fs, ops, runs):
    """A row of each operation on one file system."""
    machine.sh(f"mount -t {fs} {TAG} /mnt")
    for op in ops:
        began = time.monotonic()
        path = f"guest {fs} {op}"
        found = [row_of(machine.counted(op), path) for _ in range(runs)]
        row = counting.middle(found)
        took = time.monotonic() - began
        counting.say(f"{path}: {row['insns']:,.1f} instructions of each ({took:.0f} s)")
        yield row
    machine.sh("umount /mnt")


def count(ops, runs, commit):
    """What `make insns GUEST=1` writes."""
    with Machine() as machine:
        about = {
            "commit": commit,
            "kernel": machine.sh("uname -r"),
            "kernel_build": machine.sh("uname -v"),
        }
        found = [row for fs in FILE_SYSTEMS for row in rows(machine, fs, ops, runs)]
    return {"machine": about, "rows": found}
