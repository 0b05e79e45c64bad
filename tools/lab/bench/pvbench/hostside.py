# SPDX-License-Identifier: GPL-2.0
"""Back ends compared on the host alone: one core each, one null_blk for all.

The player sits on CPU 0, so what a back end does is all that CPU 1 does.  fio
plays and serves on CPU 1 alone, as an application on the host would.  Runs
alternate, and ratios are of the runs of one round, so that a machine that
becomes slower makes all slower; their medians are reported.  A run beside which
others had one of the two CPUs (quiet.py) counts for no ratio.

Another back end is a class here, in BACKENDS.
"""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from pvbench import insns, profile, quiet
from pvbench import run as guestside
from pvbench.paths import NullBlk

RINGLOAD = Path(__file__).resolve().parents[4] / "tools/testing/selftests/vhost_blk/ringload"
CORE = 1
BS = 4096
VHOST_BLK, DAEMON, URING = "ring/vhost_blk", "ring/qemu-storage-daemon", "io_uring/null_blk"
# None: completes at once; its poll queue, for those who can use it; a tag for each
# request, or io_uring would hand them to its worker threads.
NULL_BLK = {"irqmode": 0, "submit_queues": 1, "poll_queues": 1, "hw_queue_depth": 256}
# Of a load whose instructions are counted: seconds from its first I/O to the window,
# seconds that it goes on behind the window, and how long it may take to its first I/O.
SETTLE, TAIL, START_LIMIT = 1, 3, 60


def say(text):
    print(f"bench-host: {text}", flush=True)


def output_of(argv, limit):
    done = subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=limit, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {(done.stderr or done.stdout)[-400:]}")
    return done.stdout


def ringload(name, depth, secs, where, before=()):
    argv = [
        *before,
        RINGLOAD,
        "--path",
        name,
        "--cpu",
        0,
        "--depth",
        depth,
        "--bs",
        BS,
        "--secs",
        secs,
    ]
    return json.loads(output_of([*argv, *where], secs + 90))


class Backend:
    """What is opened on a device, measured several times, and closed.

    measure(depth, secs, before): BEFORE is put before the command that loads it.
    load(depth, secs): the same load, for instructions to be counted.
    """

    name = ""
    configured = ""  # how, in words for the page
    rounds = False  # a poller of ours serves it, whose rounds the plugin tells apart

    @classmethod
    def missing(cls):
        """Why it cannot be had here, or an empty string."""
        return ""

    def __init__(self, device, workdir):
        del workdir
        self.device = device

    def load(self, depth, secs):
        self.measure(depth, secs)

    def close(self):
        pass


class Poller(Backend):
    """vhost_blk: a busy poller on the core."""

    name = VHOST_BLK
    configured = "one busy poller, engine auto (mq, polled queue), memory on demand"
    rounds = True

    @classmethod
    def missing(cls):
        return "" if Path("/dev/vhost-blk").exists() else "no vhost_blk here, only its rivals"

    def measure(self, depth, secs, before=(), more=()):
        where = ["--device", self.device, "--mode", "busy", "--poll-cpus", CORE, *more]
        return ringload(self.name, depth, secs, where, before)

    def load(self, depth, secs):
        # In bursts: how many requests a round finds must not depend on the clock.
        self.measure(depth, secs, more=["--burst"])


class Daemon(Backend):
    """qemu-storage-daemon's vhost-user-blk, all of it on the core."""

    name = DAEMON
    configured = "aio=io_uring, cache.direct, one I/O thread that polls (poll-max-ns's default)"

    def __init__(self, device, workdir):
        super().__init__(device, workdir)
        self.socket = Path(workdir) / "daemon.sock"
        disk = f"driver=host_device,node-name=d,filename={device},cache.direct=on,aio=io_uring"
        export = "type=vhost-user-blk,id=e,node-name=d,writable=on,iothread=t"
        export += f",addr.type=unix,addr.path={self.socket}"
        argv = ["taskset", "-c", str(CORE), "qemu-storage-daemon", "--object", "iothread,id=t"]
        self.process = subprocess.Popen([*argv, "--blockdev", disk, "--export", export])
        for _ in range(600):
            if self.socket.exists():
                return
            if self.process.poll() is not None:
                raise RuntimeError("qemu-storage-daemon ended")
            time.sleep(0.1)
        raise RuntimeError("qemu-storage-daemon made no socket within a minute")

    def measure(self, depth, secs, before=()):
        return ringload(self.name, depth, secs, ["--socket", self.socket], before)

    def close(self):
        self.process.terminate()
        self.process.wait(30)


class Uring(Backend):
    """fio over io_uring, everything on that helps it."""

    name = URING
    configured = (
        "fio: hipri (IOPOLL on null_blk's poll queue), fixedbufs, registerfiles, a tag for each "
        "request, no time stamps"
    )

    def fio(self, depth, secs, *more, before=()):
        argv = [*before, "taskset", "-c", CORE, "fio", "--name=x", f"--filename={self.device}"]
        argv += ["--ioengine=io_uring", "--hipri", "--fixedbufs", "--registerfiles", "--direct=1"]
        argv += ["--rw=randread", f"--bs={BS}", f"--iodepth={depth}", "--norandommap"]
        argv += ["--time_based", f"--runtime={secs}", "--ramp_time=1", "--thread"]
        argv += ["--output-format=json", *more]
        text = output_of(argv, secs + 90)
        return json.loads(text[text.index("{") :])["jobs"][0]

    def measure(self, depth, secs, before=()):
        # Clocks cost it a part of its core: the latency is taken apart.
        job = self.fio(depth, secs, "--gtod_reduce=1", before=before)
        slow = self.fio(depth, min(secs, 2))["read"]["clat_ns"]
        iops = job["read"]["iops"]
        cpu = job["usr_cpu"] + job["sys_cpu"]
        return {
            "path": self.name,
            "op": "randread",
            "bs": BS,
            "depth": depth,
            "queues": 1,
            "ios": job["read"]["total_ios"],
            "errors": 0,
            "iops": iops,
            "ns_per_io": 1e9 / iops,
            "lat_us": {
                "mean": slow["mean"] / 1e3,
                "p50": slow["percentile"]["50.000000"] / 1e3,
                "p99": slow["percentile"]["99.000000"] / 1e3,
            },
            "cpu_pct": cpu,
            "cpu_ns_per_io": cpu / 100 * 1e9 / iops,
        }


BACKENDS = (Poller, Daemon, Uring)


def middle(rows):
    """The run whose IOPS are the median, of the quiet ones if there are any."""
    rows = [r for r in rows if r.get("quiet", True)] or rows
    return sorted(rows, key=lambda r: r["iops"])[len(rows) // 2]


def ratios_of(rounds, depth):
    """Of rounds of {path: row}: medians of what vhost_blk does by the others.

    None where no round had both of them undisturbed.
    """
    found = {}
    for other in (b.name for b in BACKENDS if b.name != VHOST_BLK):
        pairs = [(r[VHOST_BLK], r[other]) for r in rounds if VHOST_BLK in r and other in r]
        quiet_pairs = [p for p in pairs if all(row.get("quiet", True) for row in p)]
        if pairs:
            ratios = [a["iops"] / b["iops"] for a, b in quiet_pairs]
            found[f"{VHOST_BLK} / {other}, depth {depth}"] = (
                round(statistics.median(ratios), 3) if ratios else None
            )
    return found


def measure_depth(backends, depth, secs, rounds):
    """All back ends in turn, and again: the rounds, each {path: row}."""
    found = []
    for _ in range(rounds):
        found.append({})
        for backend in backends:
            with quiet.Watch() as watch:
                row = backend.measure(depth, secs)
            row |= watch.row()
            found[-1][backend.name] = row
            note = "" if watch.quiet else " (disturbed)"
            say(f"{backend.name} depth {depth}: {row['iops']:,.0f} IOPS{note}")
    return found


def reads_of(device):
    """The reads that the device has completed."""
    return int(Path(f"/sys/block/{Path(device).name}/stat").read_text().split()[0])


def await_reads(device, before, alive):
    """Wait until the device completes more than BEFORE."""
    limit = time.monotonic() + START_LIMIT
    while reads_of(device) <= before:
        if not alive() or time.monotonic() > limit:
            raise RuntimeError(f"the load brought no I/O to {device}")
        time.sleep(0.1)


def counted(backend, depth, secs, symbols):
    """Instructions of the serving core for each I/O, in a window of SECS."""
    failed = []

    def load():
        try:
            backend.load(depth, SETTLE + secs + TAIL)
        except Exception as e:  # handed to the main thread below
            failed.append(e)

    before = reads_of(backend.device)
    thread = threading.Thread(target=load)
    thread.start()
    try:
        await_reads(backend.device, before, thread.is_alive)
        time.sleep(SETTLE)
        with insns.Counting(symbols) as counting:
            time.sleep(secs)
            if not thread.is_alive():
                raise RuntimeError(f"{backend.name}: the load ended within the window")
    finally:
        thread.join()
        if failed:
            raise failed[0]
    return {"path": backend.name, "depth": depth, **counting.window.served(CORE, backend.rounds)}


def profiles(backends, depth, secs, workdir):
    """Where the core's time goes with each back end: a run of its own, as perf costs some."""
    if not profile.available():
        say("where the time goes is not looked at: there is no perf (package linux-perf)")
        return []
    found = []
    for backend in backends:
        sampler = profile.Sampler(CORE, workdir)
        row = backend.measure(depth, secs, sampler.before())
        where = profile.of(sampler.report(), 1e9 / row["iops"])
        found.append(
            {"path": backend.name, "depth": depth, "ns_per_io": 1e9 / row["iops"], **where}
        )
        modules = ", ".join(f"{m} {ns:,.0f}" for m, ns in list(where["modules"].items())[:5])
        say(f"{backend.name} depth {depth}: ns of each I/O: {modules}")
    return found


def open_backends(device, workdir, stack, kinds=BACKENDS):
    """Those that can be had here."""
    found = []
    for kind in kinds:
        why = kind.missing()
        if why:
            say(why)
            continue
        backend = kind(device, workdir)
        stack.callback(backend.close)
        found.append(backend)
    return found


def load_modules(workdir):
    env = guestside.environment(workdir, None)
    subprocess.run(["modprobe", "vhost"], check=False)
    for module in ("vhost_poll", "vhost_serve", "vhost_blk"):
        if env.module(module):
            env.load(module)


@contextlib.contextmanager
def backends_open(kinds=BACKENDS):
    """(the open back ends, a directory), until the end of `with`."""
    with contextlib.ExitStack() as stack:
        workdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="pvhost"))
        load_modules(workdir)
        null = stack.enter_context(NullBlk(NULL_BLK))
        yield open_backends(null.path, workdir, stack, kinds), workdir


def document(commit):
    doc = {"machine": guestside.machine(commit), "rows": []}
    doc["machine"]["kernel"] = platform.release()
    doc["configured"] = {b.name: b.configured for b in BACKENDS}
    return doc


def run(depths, secs, rounds, out, commit, sample):
    """Measure, keeping OUT up to date; the exit status.  SAMPLE: profile by a timer."""
    if os.cpu_count() < 2:
        say("needs two CPUs: one plays the guest, the other serves it")
        return 1
    doc = {**document(commit), "ratios": {}}
    with backends_open() as (backends, workdir):
        for depth in depths:
            found = measure_depth(backends, depth, secs, rounds)
            doc["rows"] += [middle([r[b.name] for r in found]) for b in backends]
            doc["ratios"].update(ratios_of(found, depth))
            guestside.write_json(out, doc)
        if sample:
            doc["profiles"] = profiles(backends, max(depths), secs, workdir)
        guestside.write_json(out, doc)
    for name, ratio in doc["ratios"].items():
        say(f"{name}: {f'{ratio:.2f}' if ratio else 'no ratio, others had the CPUs'}")
    return 0


def count(depths, secs, runs, out, commit, kinds=BACKENDS):
    """Count instructions, RUNS windows for each row, into OUT; the exit status."""
    doc = document(commit)
    with backends_open(kinds) as (backends, _):
        symbols = insns.symbols()
        for backend in backends:
            for depth in depths:
                rows = [counted(backend, depth, secs, symbols) for _ in range(runs)]
                doc["rows"].append(insns.middle(rows))
                guestside.write_json(out, doc)
                row = doc["rows"][-1]
                say(
                    f"{backend.name} depth {depth}: {row['insns']:,.1f} instructions of each I/O "
                    f"(spread {row['spread']:.2%} of {runs} windows)"
                )
    return 0
