# SPDX-License-Identifier: GPL-2.0
"""Load against the poller's CPU and the latency, in each of its three modes.

The load comes from ringload, which plays the guest on the host: no vCPU and no
nesting stand between the offered load and what is measured.
"""

import json
import subprocess
from pathlib import Path

from pvbench.paths import POLL_CPU, NullBlk, Unavailable

TOP = Path(__file__).resolve().parents[4]
RINGLOAD = TOP / "tools/testing/selftests/vhost_blk/ringload"
MODES = ("busy", "adaptive", "event")
RATES = (100, 1000, 4000, 0)  # requests a second; 0: as fast as it goes
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


def parse(text, mode, backend):
    """ringload's answer as a row of modes.json."""
    got = json.loads(text[text.index("{") :])
    return {
        "mode": mode,
        "backend": backend,
        "target_iops": got.get("rate", 0),
        "depth": got["depth"],
        "ios": got["ios"],
        "iops": got["iops"],
        "cpu_pct": got["cpu_pct"],
        "busy_pct": got.get("busy_pct"),
        "lat_us": got["lat_us"],
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
    return done.stdout


def check(env):
    for module in ("vhost_poll", "vhost_blk"):
        if not env.module(module):
            raise Unavailable(f"module {module} is not built")
    if not RINGLOAD.exists():
        raise Unavailable("ringload is not built")


def measure(env, secs, emit, say):
    """All rows; needs no guest.  How many failed."""
    check(env)
    for module in ("vhost", "vhost_poll", "vhost_blk"):
        env.load(module)
    failed = 0
    for backend, settings, points in BACKENDS:
        with NullBlk(settings) as null:
            for mode in MODES:
                for rate, depth in points:
                    try:
                        emit(parse(load(null.path, mode, rate, depth, secs), mode, backend))
                    except subprocess.TimeoutExpired as e:
                        say(f"modes: FAILED: {e}")
                        failed += 1
                say(f"modes: {backend}, {mode}: done")
    return failed
