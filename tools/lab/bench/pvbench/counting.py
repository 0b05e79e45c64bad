# SPDX-License-Identifier: GPL-2.0
"""Loads, and the instructions of CPU 1 for each of their I/Os.

Runs in the host VM.  Block rows are the back ends of hostside.py; file rows are
fsload's requests to vhost_fs, and the system calls that do the same.
"""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from pvbench import files, hostside, insns
from pvbench import run as guestside

CORE = hostside.CORE
# A sample is whole bursts, this many I/Os at least (or long operations); a window is so many samples, behind
# some in which caches are filled and threads started.
SAMPLE_IOS, SAMPLE_LONG, SKIPPED, SAMPLES = 16, 4, 10, 41
# Seconds: for a load to start, and for the samples at most.
SETTLE, LIMIT = 3, 60
# fsload has no more requests in flight.
FILE_DEPTH = 32
FILE_OPS = {
    "read": "pread64",
    "write": "pwrite64",
    "getattr": "newfstat",
    "lookup": "newfstatat",
    "create": "unlinkat",
    "readdirplus": "getdents64",
}
# Of these it is one of several system calls that do the same.
SEVERAL = ("create", "readdirplus")
# The server enters it once for each request.
TAKEN = "vserve_take"
# An emulator with the plugin is so slow that vhost_poll takes a request for one that lasts too
# long, and leaves the next ones to workers.
MAX_RUN = Path("/sys/module/vhost_poll/parameters/max_run_us"), "100000"
# The poller's thread does these after its round, and other threads may run before the reply, so a
# window with one request at a time has no whole samples.  Nor has one of operations that take
# several requests each.
AFTER_ROUND = ("write", "create", "readdirplus")
# A window without samples ends after so many operations, or long ones.
TIMES, TIMES_LONG = 2048, 256


def say(text):
    print(f"insns: {text}", flush=True)


class Block:
    """Reads of a back end's null_blk."""

    whole = False
    sample = SAMPLE_IOS

    def __init__(self, backend, depth):
        self.backend, self.depth = backend, depth
        self.path = backend.name
        self.loop = backend.loop

    def command(self, secs):
        return self.backend.command(self.depth, secs)

    def reads(self):
        """How many the device has completed."""
        stat = Path(f"/sys/block/{Path(self.backend.device).name}/stat")
        return int(stat.read_text().split()[0])


def times_of(op):
    return TIMES_LONG if op in SEVERAL else TIMES


class File:
    """One operation on a file of tmpfs by requests, DEPTH at a time, or by the system calls.

    Where `whole` is set, a window is so many operations, and has no samples.
    """

    def __init__(self, op, host, depth=1):
        self.op, self.host, self.depth = op, host, depth
        self.path = f"{'host' if host else files.VHOST_FS} {op}"
        self.whole = op in AFTER_ROUND and (depth == 1 or op in SEVERAL)
        self.sample = SAMPLE_LONG if op in SEVERAL else SAMPLE_IOS
        self.loop = insns.Loop(io=TAKEN)
        if host:
            self.loop = insns.system_call(FILE_OPS[op], op not in SEVERAL)

    def command(self, secs):
        words = ["--host"] if self.host else ["--burst"]
        return files.fsload(self.op, "tmpfs", secs, "--depth", self.depth, *words)

    def counted(self, symbols):
        """A row of all that CPU 1 executes for so many operations."""
        times = times_of(self.op)
        argv = [*self.command(0), "--times", times]
        with insns.OwnWindow(symbols, symbols.marks(self.loop)) as counting:
            said = json.loads(hostside.output_of(argv, LIMIT + files.BEGIN))
        row = counting.window.executed(CORE, times, user=not self.host)
        found = {key: said[key] for key in ("hot", "punted", "handoffs")}
        return {"path": self.path, "depth": self.depth, **row, **found}


class Peer:
    """The same by another server, which sleeps between requests."""

    def __init__(self, server, op, depth, share):
        self.server, self.op, self.depth, self.share = server, op, depth, share
        self.path = f"{server.name} {op}"

    def counted(self, symbols):
        """A row of all that its CPU executes for so many operations."""
        times = times_of(self.op)
        words = ["--depth", self.depth, "--burst", "--times", times]
        with self.server.serving(self.share) as where:
            argv = files.fsload(self.op, self.share, 0, *words, *where)
            with insns.OwnWindow(symbols, symbols.sleeper_marks()) as counting:
                hostside.output_of(argv, LIMIT + files.BEGIN)
        return {
            "path": self.path,
            "depth": self.depth,
            **counting.window.executed(CORE, times),
        }


class Running:
    """A load that goes on until the end of `with`."""

    def __init__(self, load):
        argv = [str(a) for a in load.command(3 * LIMIT)]
        self.name = load.path
        self.process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def wait(self, done, what):
        """Until done(); RuntimeError if the load ends, or nothing comes."""
        limit = time.monotonic() + LIMIT
        while not done():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name}: {self.process.stderr.read()[-400:]}")
            if time.monotonic() > limit:
                raise RuntimeError(f"{self.name}: {what} took more than {LIMIT} s")
            time.sleep(0.1)

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.wait(LIMIT)
        self.process.stderr.close()


def counted(load, secs, symbols):
    """A row; a load without a loop has a window of SECS."""
    if load.whole:
        return load.counted(symbols)
    sample = max(load.depth, load.sample)
    with Running(load) as running:
        time.sleep(SETTLE)
        if load.loop:
            with insns.Counting(symbols, load.loop, sample, SKIPPED, SAMPLES) as counting:
                running.wait(counting.enough, f"{SKIPPED + SAMPLES} samples of {sample} I/Os")
        else:
            before = load.reads()
            running.wait(lambda: load.reads() > before, "the first I/O")
            with insns.Counting(symbols) as counting:
                time.sleep(secs)
    row = counting.window.sampled(CORE) if load.loop else counting.window.served(CORE)
    return {"path": load.path, "depth": load.depth, **row}


def middle(rows):
    """The median of several windows, with the `spread` of all."""
    rows = sorted(rows, key=lambda r: r["insns"])
    found = rows[len(rows) // 2]
    spread = (rows[-1]["insns"] - rows[0]["insns"]) / found["insns"]
    return {**found, "windows": [r["insns"] for r in rows], "spread": spread}


def file_depths(op, depths):
    """Those of DEPTHS that fsload has for OP."""
    return [d for d in depths if d <= (FILE_DEPTH if op in files.DEEP else 1)]


def loads_of(backends, depths, ops):
    loads = [Block(backend, depth) for backend in backends for depth in depths]
    for op in ops:
        loads += [File(op, False, depth) for depth in file_depths(op, depths)]
        # Files that are made one after the other have the caches to themselves.
        calls = file_depths(op, depths) if op == "create" else [1]
        loads += [File(op, True, depth) for depth in calls]
    return loads


def row_of(load, runs, window):
    """The median of RUNS windows, or None; says which.  WINDOW() counts one."""
    began = time.monotonic()
    try:
        row = middle([window() for _ in range(runs)])
    except RuntimeError as e:
        say(f"{load.path} depth {load.depth}: not counted: {e}")
        return None
    say(
        f"{load.path} depth {load.depth}: {row['insns']:,.1f} instructions of each I/O "
        f"(spread {row['spread']:.2%} of {runs} windows, {time.monotonic() - began:.0f} s)"
    )
    return row


def allow_long_runs():
    path, value = MAX_RUN
    path.write_text(value)


def leave_core():
    """Every task that can leave the CPU that is counted does: it is the server's alone.

    A window takes long under emulation, and the host VM's daemons and RCU's thread wake by the
    clock, so what they execute would go by the speed of the machine.
    """
    others = {cpu for cpu in range(os.cpu_count()) if cpu != CORE}
    os.sched_setaffinity(0, others)
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        # Those of one CPU stay, and so do workers.  Others have ended.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), others)


def count(args, kinds):
    """Rows into insns.json; the exit status, 1 if one of them could not be counted."""
    doc = hostside.document(args.commit)
    depths = [int(d) for d in args.depths.split()]
    leave_core()
    failed = False
    with hostside.backends_open(kinds) as (backends, _):
        allow_long_runs()
        symbols = insns.symbols()
        for load in loads_of(backends, depths, args.ops.split()):
            row = row_of(load, args.runs, lambda load=load: counted(load, args.secs, symbols))
            failed |= not row
            doc["rows"] += [row] if row else []
            guestside.write_json(args.out / "insns.json", doc)
    return int(failed)


def count_files(args):
    """Rows of each operation by every server of files.py into file-insns.json; the status."""
    doc = {**hostside.document(args.commit), "configured": files.document("")["configured"]}
    depths = [int(d) for d in args.depths.split()]
    leave_core()
    failed = False
    with hostside.workdir_with_modules() as workdir, files.shared("tmpfs", workdir) as share:
        allow_long_runs()
        symbols = insns.symbols()
        peers = [s for s in files.available() if s.name != files.VHOST_FS]
        for op, depth in files.loads(args.ops.split(), depths):
            loads = [File(op, False, depth), *[File(op, True)] * (depth == 1)]
            windows = [(x, lambda x=x: counted(x, args.secs, symbols)) for x in loads]
            found = [Peer(peer, op, depth, share) for peer in peers]
            windows += [(x, lambda x=x: x.counted(symbols)) for x in found]
            for load, window in windows:
                row = row_of(load, args.runs, window)
                failed |= not row
                doc["rows"] += [row] if row else []
                guestside.write_json(args.out / "file-insns.json", doc)
    return int(failed)
