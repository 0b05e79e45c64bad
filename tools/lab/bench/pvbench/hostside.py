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


def say(text):
    print(f"bench-host: {text}", flush=True)


def output_of(argv, limit):
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{argv[0]} took more than {limit:.0f} s") from None
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {(done.stderr or done.stdout)[-400:]}")
    return done.stdout


def ringload(name, depth, secs, where):
    """The command line of a ringload."""
    argv = [RINGLOAD, "--path", name, "--cpu", 0, "--depth", depth, "--bs", BS, "--secs", secs]
    return [*argv, *where]


class Backend:
    """What is opened on a device, measured several times, and closed.

    measure(depth, secs, before): BEFORE is put before the command that loads it.
    command(depth, secs): the command line of the same load, for instructions to be counted.
    """

    name = ""
    configured = ""  # how, in words for the page
    loop = None  # of a poller of ours, whose rounds the plugin tells apart

    @classmethod
    def missing(cls):
        """Why it cannot be had here, or an empty string."""
        return ""

    def __init__(self, device, workdir):
        del workdir
        self.device = device

    def close(self):
        pass


class Ringload(Backend):
    """What ringload plays the guest of; where() says how."""

    def measure(self, depth, secs, before=()):
        argv = [*before, *ringload(self.name, depth, secs, self.where())]
        return json.loads(output_of(argv, secs + 90))

    def command(self, depth, secs):
        return ringload(self.name, depth, secs, self.where())


class Poller(Ringload):
    """vhost_blk: a busy poller on the core."""

    name = VHOST_BLK
    configured = "one busy poller, engine auto (mq, polled queue), memory on demand"
    loop = insns.POLLER

    @classmethod
    def missing(cls):
        return "" if Path("/dev/vhost-blk").exists() else "no vhost_blk here, only its rivals"

    def where(self):
        return ["--device", self.device, "--mode", "busy", "--poll-cpus", CORE]

    def command(self, depth, secs):
        # In bursts: how many requests a round finds must not depend on the clock.
        return [*super().command(depth, secs), "--burst"]


class Daemon(Ringload):
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

    def where(self):
        return ["--socket", self.socket]

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

    def command(self, depth, secs):
        argv = ["taskset", "-c", CORE, "fio", "--name=x", f"--filename={self.device}"]
        argv += ["--ioengine=io_uring", "--hipri", "--fixedbufs", "--registerfiles", "--direct=1"]
        argv += ["--rw=randread", f"--bs={BS}", f"--iodepth={depth}", "--norandommap"]
        argv += ["--time_based", f"--runtime={secs}", "--ramp_time=1", "--thread"]
        return [*argv, "--output-format=json"]

    def fio(self, depth, secs, *more, before=()):
        text = output_of([*before, *self.command(depth, secs), *more], secs + 90)
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
    for module in ("vhost_poll", "vhost_serve", "vhost_blk", "vhost_fs"):
        if env.module(module):
            env.load(module)


@contextlib.contextmanager
def workdir_with_modules():
    """A directory, until the end of `with`; our modules are loaded."""
    with tempfile.TemporaryDirectory(prefix="pvhost") as workdir:
        load_modules(workdir)
        yield workdir


@contextlib.contextmanager
def backends_open(kinds=BACKENDS):
    """(the open back ends, a directory), until the end of `with`."""
    with contextlib.ExitStack() as stack:
        workdir = stack.enter_context(workdir_with_modules())
        null = stack.enter_context(NullBlk(NULL_BLK))
        yield open_backends(null.path, workdir, stack, kinds), workdir


def document(commit):
    doc = {"machine": guestside.machine(commit), "rows": []}
    doc["machine"]["kernel"] = platform.release()
    doc["machine"]["kernel_build"] = platform.version()
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
