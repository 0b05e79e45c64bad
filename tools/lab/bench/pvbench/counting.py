# SPDX-License-Identifier: GPL-2.0
"""Loads, and the instructions of CPU 1 for each of their I/Os.

Runs in the host VM.  Block rows are the back ends of hostside.py; file rows are
fsload's requests to vhost_fs, and the system calls that do the same.
"""

import os
import subprocess
import time
from pathlib import Path

from pvbench import hostside, insns
from pvbench import run as guestside

FSLOAD = Path(__file__).resolve().parents[4] / "tools/testing/selftests/vhost_fs/fsload"
CORE = hostside.CORE
# A sample is whole bursts, this many I/Os at least; a window is so many samples, behind
# some in which caches are filled and threads started.
SAMPLE_IOS, SKIPPED, SAMPLES = 16, 10, 41
# Seconds: for a load to start, and for the samples at most.
SETTLE, LIMIT = 3, 60
FILE_OPS = {
    "read": "pread64",
    "write": "pwrite64",
    "getattr": "newfstat",
    "lookup": "newfstatat",
}


def say(text):
    print(f"insns: {text}", flush=True)


class Block:
    """Reads of a back end's null_blk."""

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


class File:
    """One operation on a file of tmpfs, by requests (`ring`) or system calls (`host`)."""

    depth = 1

    def __init__(self, op, host):
        self.op, self.host = op, host
        self.path = f"{'host' if host else 'ring/vhost_fs'} {op}"
        self.loop = insns.system_call(FILE_OPS[op]) if host else insns.Loop(io="vserve_take")

    def command(self, secs):
        return [FSLOAD, self.op, "tmpfs", secs, *["--host"] * self.host]


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
    sample = max(load.depth, SAMPLE_IOS)
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


def loads_of(backends, depths, ops):
    loads = [Block(backend, depth) for backend in backends for depth in depths]
    return loads + [File(op, host) for op in ops for host in (False, True)]


def row_of(load, args, symbols):
    """The median of RUNS windows, or None; says which."""
    began = time.monotonic()
    try:
        row = middle([counted(load, args.secs, symbols) for _ in range(args.runs)])
    except RuntimeError as e:
        say(f"{load.path} depth {load.depth}: not counted: {e}")
        return None
    say(
        f"{load.path} depth {load.depth}: {row['insns']:,.1f} instructions of each I/O "
        f"(spread {row['spread']:.2%} of {args.runs} windows, {time.monotonic() - began:.0f} s)"
    )
    return row


def count(args, kinds):
    """Rows into insns.json; the exit status, 1 if one of them could not be counted."""
    doc = hostside.document(args.commit)
    depths = [int(d) for d in args.depths.split()]
    # The program leaves the CPU that it counts to the poller alone.
    os.sched_setaffinity(0, {cpu for cpu in range(os.cpu_count()) if cpu != CORE})
    failed = False
    with hostside.backends_open(kinds) as (backends, _):
        symbols = insns.symbols()
        for load in loads_of(backends, depths, args.ops.split()):
            row = row_of(load, args, symbols)
            failed |= not row
            doc["rows"] += [row] if row else []
            guestside.write_json(args.out / "insns.json", doc)
    return int(failed)
