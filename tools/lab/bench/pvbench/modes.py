# SPDX-License-Identifier: GPL-2.0
"""Load against the poller's CPU and the latency, in each of its three modes.

The load comes from ringload, which plays the guest on the host: no vCPU and no
nesting stand between the offered load and what is measured.  The modes go by
turns, and what compares two of them is of one round, so that a machine that
becomes slower makes all slower; medians of the rounds are reported.
"""

import json
import statistics
import subprocess
from pathlib import Path

from pvbench.paths import POLL_CPU, NullBlk, Unavailable

TOP = Path(__file__).resolve().parents[4]
RINGLOAD = TOP / "tools/testing/selftests/vhost_blk/ringload"
MODES = ("busy", "adaptive", "event")
# Of the rounds: a CPU that was busy or asleep before makes a difference for the next one.
ORDERS = (
    ("busy", "adaptive", "event"),
    ("busy", "event", "adaptive"),
    ("adaptive", "event", "busy"),
    ("event", "adaptive", "busy"),
)
IDLE = 0.01  # one request a second before it is measured, and none after
RATES = (IDLE, 100, 1000, 4000, 0)  # requests a second; 0: as fast as it goes
DEPTH = 32

# name, null_blk settings, (rate, depth) pairs
BACKENDS = (
    ("null_blk", {}, [(rate, 1 if rate else DEPTH) for rate in RATES]),
    (
        "null_blk with 1 ms service time",
        {"irqmode": 2, "completion_nsec": 1_000_000, "poll_queues": 0},
        [(0, 1), (0, 8), (0, DEPTH)],
    ),
)


def asked(rate):
    """What load was asked for, in words."""
    if rate == IDLE:
        return "nothing"
    return f"{rate:,.0f}/s" if rate else "all it can"


def median_of(runs, *keys):
    """Of one number that ringload reported for each run."""
    found = []
    for run in runs:
        for key in keys:
            run = run[key]
        found.append(run)
    return statistics.median(found)


def rows_of(rounds, backend, rate, depth):
    """Of rounds of {mode: ringload's answer}: a row of modes.json for each mode."""
    for mode in MODES:
        runs = [r[mode] for r in rounds]
        row = {"mode": mode, "backend": backend, "target_iops": rate, "depth": depth}
        row |= {key: median_of(runs, key) for key in ("ios", "iops", "cpu_pct", "busy_pct")}
        row["lat_us"] = {k: median_of(runs, "lat_us", k) for k in ("mean", "p50", "p99")}
        row["cpu_pct_range"] = [f(r["cpu_pct"] for r in runs) for f in (min, max)]
        if row["ios"]:
            row["beside"] = {other: beside(rounds, mode, other) for other in MODES}
        yield row


def beside(rounds, mode, other):
    """What MODE does by what OTHER does in the same round: medians."""
    pairs = [(r[mode], r[other]) for r in rounds]
    return {
        "iops": statistics.median(a["iops"] / b["iops"] for a, b in pairs),
        "p50": statistics.median(a["lat_us"]["p50"] / b["lat_us"]["p50"] for a, b in pairs),
    }


def load(device, mode, rate, depth, secs):
    argv = [
        RINGLOAD,
        "--device",
        device,
        "--mode",
        mode,
        "--poll-cpus",
        POLL_CPU,
        "--cpu",
        0,
        "--depth",
        depth,
        "--rate",
        rate,
        "--secs",
        secs,
    ]
    done = subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=secs + 60, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ringload: {(done.stderr or done.stdout)[-300:]}")
    return json.loads(done.stdout[done.stdout.index("{") :])


def check(env):
    for module in ("vhost_poll", "vhost_serve", "vhost_blk"):
        if not env.module(module):
            raise Unavailable(f"module {module} is not built")
    if not RINGLOAD.exists():
        raise Unavailable("ringload is not built")


def measure_point(device, rate, depth, secs):
    """Rounds of {mode: ringload's answer}, the modes by turns."""
    return [{m: load(device, m, rate, depth, secs) for m in order} for order in ORDERS]


def measure(env, secs, emit, say):
    """All rows; needs no guest.  How many points failed."""
    check(env)
    for module in ("vhost", "vhost_poll", "vhost_serve", "vhost_blk"):
        env.load(module)
    failed = 0
    for backend, settings, points in BACKENDS:
        with NullBlk(settings) as null:
            for rate, depth in points:
                try:
                    rounds = measure_point(null.path, rate, depth, secs)
                except subprocess.TimeoutExpired as e:
                    say(f"modes: FAILED: {e}")
                    failed += 1
                    continue
                for row in rows_of(rounds, backend, rate, depth):
                    emit(row)
                say(f"modes: {backend}, {asked(rate)}, depth {depth}: done")
    return failed
