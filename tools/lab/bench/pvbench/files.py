# SPDX-License-Identifier: GPL-2.0
"""Servers of files compared on the host alone: one core each, one directory for all.

fsload plays the guest on CPU 0, so a server has CPU 1 for all of its threads.  The peer is
the crate virtiofsd; each size of its thread pool is a server of its own, and vhost_fs is
compared with the best of them.  As in hostside.py servers alternate, a ratio is of the runs
of one round, and a run that was disturbed counts for none.
"""

import json
import os
import shutil
import statistics
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from pvlab import crates

from pvbench import hostside, quiet
from pvbench import run as guestside
from pvbench.paths import SYSTEMS, Medium

FSLOAD = Path(__file__).resolve().parents[4] / "tools/testing/selftests/vhost_fs/fsload"
CORE = hostside.CORE
# The first have as many requests in flight as the depth says; the others one.
DEEP = ("getattr", "lookup", "read", "write", "create")
OPS = (*DEEP, "readdirplus")
MAX_DEPTH = 32
POOLS = (0, 1, 16)
VHOST_FS = "ring/vhost_fs"
WORDS = (
    "--sandbox=none",
    "--seccomp=none",
    "--inode-file-handles=never",
    "--cache=auto",
    "--log-level=error",
)
# Seconds: for a server to start or end, and for fsload to begin.
START, BEGIN = 60, 90


def say(text):
    hostside.say(text)


class Ours:
    """vhost_fs: a busy poller on the core."""

    name = VHOST_FS
    configured = "one busy poller, mode of rights opener, all else by default"

    @staticmethod
    def missing():
        return "" if Path("/dev/vhost-fs").exists() else "no vhost_fs here, only its rivals"

    @contextmanager
    def serving(self, share):
        """Words for an fsload that speaks to it."""
        del share
        yield []


class Virtiofsd:
    """The crate, with a pool of POOL threads, all of them on the core."""

    def __init__(self, pool):
        self.pool = pool
        self.name = f"ring/virtiofsd, pool {pool}"
        version = crates.VERSIONS["virtiofsd"]
        self.configured = f"virtiofsd {version}: --thread-pool-size={pool} {' '.join(WORDS)}"

    @staticmethod
    def missing():
        return "" if crates.path("virtiofsd").exists() else "virtiofsd was not built"

    @contextmanager
    def serving(self, share):
        """It ends with the connection, so each fsload has one of its own."""
        socket = share.parents[1] / "virtiofsd.sock"
        # It leaves both behind.
        for old in (socket, Path(f"{socket}.pid")):
            old.unlink(missing_ok=True)
        argv = ["taskset", "-c", CORE, crates.path("virtiofsd"), f"--shared-dir={share}"]
        argv += [f"--socket-path={socket}", f"--thread-pool-size={self.pool}", *WORDS]
        process = subprocess.Popen([str(a) for a in argv])
        try:
            self._wait(process, socket)
            yield ["--socket", socket]
        finally:
            process.terminate()
            process.wait(START)

    def _wait(self, process, socket):
        end = time.monotonic() + START
        while not socket.exists():
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended")
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} made no socket within {START} s")
            time.sleep(0.05)


SERVERS = (Ours(), *(Virtiofsd(pool) for pool in POOLS))


def fsload(op, share, secs, *more):
    """The command line of an fsload."""
    return [FSLOAD, op, share, secs, *more]


def measure(server, op, depth, secs, share):
    with server.serving(share) as words:
        argv = fsload(op, share, secs, "--depth", depth, *words)
        row = json.loads(hostside.output_of(argv, secs + BEGIN))
    del row["fs"]
    return {"path": server.name, **row, "csw_per_op": row["csw"] / row["turns"]}


def middle(rows):
    """The run whose speed is the median, of the quiet ones if there are any."""
    rows = [r for r in rows if r.get("quiet", True)] or rows
    return sorted(rows, key=lambda r: r["ops_per_s"])[len(rows) // 2]


def ratio_of(rounds):
    """The median over rounds of {path: row} of what vhost_fs does by the best of the others.

    None where in no round all of them were undisturbed, or there is none to compare.
    """
    ratios = []
    for found in rounds:
        peers = [row["ops_per_s"] for path, row in found.items() if path != VHOST_FS]
        if VHOST_FS in found and peers and all(row.get("quiet", True) for row in found.values()):
            ratios.append(found[VHOST_FS]["ops_per_s"] / max(peers))
    return round(statistics.median(ratios), 3) if ratios else None


def loads(ops, depths):
    """(operation, depth) of each load."""
    return [(op, d) for op in ops for d in (depths if op in DEEP else [1])]


def measure_load(servers, op, depth, secs, rounds, share):
    """All servers in turn, and again: the rounds, each {path: row}."""
    found = []
    for _ in range(rounds):
        found.append({})
        for server in servers:
            with quiet.Watch() as watch:
                row = measure(server, op, depth, secs, share)
            row |= watch.row()
            found[-1][server.name] = row
            note = "" if watch.quiet else " (disturbed)"
            say(
                f"{server.name} {op} depth {depth}: {row['ops_per_s']:,.0f} a second, "
                f"{row['csw_per_op']:.4f} context switches each{note}"
            )
    return found


def document(commit):
    return {
        "machine": guestside.machine(commit),
        "configured": {s.name: s.configured for s in SERVERS},
        "rows": [],
        "ratios": {},
    }


@contextmanager
def shared(fs, workdir):
    """A directory on a new file system of that kind."""
    medium = Medium(fs, Path(workdir) / fs)
    try:
        medium.mount()
        share = medium.where / "share"
        share.mkdir()
        yield share
    finally:
        medium.remove()


def available():
    found = []
    for server in SERVERS:
        why = server.missing()
        if why:
            say(f"{server.name}: {why}")
        else:
            found.append(server)
    return found


def run(ops, systems, depths, secs, rounds, out, commit):
    """Measure, keeping OUT up to date; the exit status."""
    if os.cpu_count() < 2:
        say("needs two CPUs: one plays the guest, the other serves it")
        return 1
    doc = document(commit)
    with hostside.workdir_with_modules() as workdir:
        servers = available()
        for fs in systems:
            with shared(fs, workdir) as share:
                for op, depth in loads(ops, depths):
                    found = measure_load(servers, op, depth, secs, rounds, share)
                    rows = [middle([r[s.name] for r in found]) for s in servers]
                    doc["rows"] += [{**row, "fs": fs} for row in rows]
                    doc["ratios"][f"{op} on {fs}, depth {depth}"] = ratio_of(found)
                    guestside.write_json(out, doc)
    for name, ratio in doc["ratios"].items():
        said = f"{ratio:.2f} times the best virtiofsd" if ratio else "no ratio, others had the CPUs"
        say(f"{name}: {said}")
    return 0


def parse(ops, systems, depths):
    """The three lists; ValueError says which word is none of them."""
    ops = ops.split() or list(OPS)
    systems = systems.split() or ["tmpfs"]
    for word in ops:
        if word not in OPS:
            raise ValueError(f"OPS: there is no {word}, only {', '.join(OPS)}")
    for word in systems:
        if word not in SYSTEMS or (SYSTEMS[word] and not shutil.which(SYSTEMS[word][0])):
            raise ValueError(f"FS: {word} cannot be made here")
    return ops, systems, [d for d in depths if d <= MAX_DEPTH]
