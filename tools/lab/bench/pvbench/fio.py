# SPDX-License-Identifier: GPL-2.0
"""What is run in the guest and what its answer means.

One fio process holds two jobs: a short one that warms everything, and, after
it has ended, the one that is measured.  The second starts and ends with a
gate: fio calls a script that writes a word to a serial port of the guest's and
waits for an answer, while the host takes a snapshot.  So the counters cover
the measured requests, all of them, and nothing else; the gate's own cost (some
twenty exits for the second word) is in the idle baseline too.
"""

import json
import re
from dataclasses import dataclass

GATE_TTY = "/dev/ttyS2"
BEGIN, END = "B", "E"

KIB = 1024


@dataclass(frozen=True)
class Op:
    """An access pattern: fio's name for it and a block size."""

    rw: str
    bs: int

    def __str__(self):
        return f"{self.rw}:{self.bs // KIB}k"


DEFAULT_OPS = (
    Op("randread", 4 * KIB),
    Op("randwrite", 4 * KIB),
    Op("read", 32 * KIB),
    Op("write", 32 * KIB),
    Op("read", 128 * KIB),
    Op("write", 128 * KIB),
)
DEFAULT_DEPTHS = (1, 32)
PATTERNS = {"randread", "randwrite", "read", "write"}


def split_list(text):
    return [w for w in re.split(r"[\s,]+", text or "") if w]


def parse_size(text):
    m = re.fullmatch(r"(\d+)([km]?)", text.lower())
    if not m or int(m.group(1)) == 0:
        raise ValueError(f"{text!r} is no block size; write it as 4k or 128k")
    return int(m.group(1)) * {"": 1, "k": KIB, "m": KIB * KIB}[m.group(2)]


def parse_ops(text):
    """`randread`, `read:32k`, ... ; a bare pattern means its default sizes."""
    ops = []
    for word in split_list(text):
        rw, _, size = word.partition(":")
        if rw not in PATTERNS:
            raise ValueError(
                f"{word!r} is no operation; there are "
                f"{', '.join(sorted(PATTERNS))}, with :SIZE or without"
            )
        ops += [Op(rw, parse_size(size))] if size else [op for op in DEFAULT_OPS if op.rw == rw]
    return ops or list(DEFAULT_OPS)


def parse_depths(text):
    depths = [int(w) for w in split_list(text)]
    if any(not 1 <= d <= 1024 for d in depths):
        raise ValueError("a depth lies between 1 and 1024")
    return depths or list(DEFAULT_DEPTHS)


def gate(letter, before="", after=""):
    """What fio has a shell do; the port is open already, opening it is dear.

    BEFORE and AFTER are commands; at END before is still within the window, as after
    is at BEGIN.
    """
    steps = (before, f"echo {letter} >&9; read -r _ <&9", after)
    return f"'{'; '.join(s for s in steps if s)}'"


def _gated(options, warm, secs, note=""):
    jobs = ["--name=warm", f"--runtime={warm}", "--name=row", "--stonewall", f"--runtime={secs}"]
    jobs += [f"--exec_prerun={gate(BEGIN, after=note)}", f"--exec_postrun={gate(END, before=note)}"]
    # fio takes options before a --name as global only when told so.
    args = ["fio", "--output-format=json", "--eta=never", "--name=global", "--thread"]
    args += ["--time_based", *options, *jobs]
    # What fio says in between must not pass the agent's port: that is a kick.
    return _opened(
        f"{' '.join(args)} >row.out 2>row.err; s=$?; cat row.err >&2; cat row.out; exit $s"
    )


def _opened(command):
    return f"cd /run && exec 9<>{GATE_TTY} && {command}"


def command(target, op, depth, secs, engine="io_uring", warm=1, size="64M", more=(), note=""):
    """The guest's shell command; its output is one JSON document.

    MORE are options of fio's, NOTE a command that runs at both ends of the window,
    within it.
    """
    options = [
        f"--filename={target}",
        f"--rw={op.rw}",
        f"--bs={op.bs}",
        f"--iodepth={depth}",
        f"--ioengine={engine}",
        f"--size={size}",
        "--direct=1",
        "--norandommap",
        "--randrepeat=1",
        "--disk_util=0",
        "--clat_percentiles=0",
        "--lat_percentiles=1",
        "--percentile_list=50:99:99.9",
        *more,
    ]
    return _gated(options, warm, secs, note)


def idle_command(secs, spin):
    """The baseline, for as long and with the same gates.

    Asleep it is a bare sleep: fio without I/O wakes a hundred times a second,
    which a guest that works hides, so taking it off would flatter the path.
    """
    if spin:
        return _gated(["--ioengine=null", "--size=1G", "--bs=4096", "--rw=randread"], 1, secs)
    return _opened(f"sh -c {gate(BEGIN)}; sleep {secs}; sh -c {gate(END)}")


def result(text):
    """The measured job of fio's JSON as fields of a row."""
    doc = json.loads(text[text.index("{") : text.rindex("}") + 1])
    job = next(j for j in doc["jobs"] if j["jobname"] == "row")
    if job.get("error"):
        raise RuntimeError(f"fio in the guest ended with errno {job['error']}")
    side = max(job["read"], job["write"], key=lambda s: s["total_ios"])
    if not side["total_ios"]:
        raise RuntimeError("fio in the guest did no I/O")
    lat = side["lat_ns"]
    pct = {float(k): v for k, v in lat.get("percentile", {}).items()}
    return {
        "ios": side["total_ios"],
        "iops": round(side["iops"], 1),
        "bw_mib": round(side["bw_bytes"] / 2**20, 2),
        "lat_us": {
            "mean": round(lat["mean"] / 1e3, 2),
            "p50": round(pct.get(50.0, lat["mean"]) / 1e3, 2),
            "p99": round(pct.get(99.0, lat["max"]) / 1e3, 2),
            "p99.9": round(pct.get(99.9, lat["max"]) / 1e3, 2),
            "max": round(lat["max"] / 1e3, 2),
        },
        "runtime_s": job["job_runtime"] / 1e3,
    }
