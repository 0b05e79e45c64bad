# SPDX-License-Identifier: GPL-2.0
"""A row of bench.json, and what is derived from it for showing."""

import statistics

# What is counted, in the order it is shown.  key, heading, meaning
COUNTS = (
    ("exits", "VM exits", "times the guest's vCPUs left guest mode"),
    ("kicks", "kicks", "doorbell writes that signalled the backend"),
    ("irqs", "interrupts", "device interrupts injected into the guest"),
    ("csw", "context switches", "of the backend's threads on the host"),
    ("syscalls", "system calls", "by the backend's threads on the host"),
)
# Of these the guest has some without I/O, too; a row holds them as KEY_idle.
HAVE_IDLE = ("exits", "csw", "syscalls")
OURS = ("vhost_blk", "vhost_fs", "pvblk", "pvfs")


def caused(row, key):
    """A count beyond that of the same guest without I/O for the same time."""
    return None if row.get(key) is None else max(0, row[key] - (row.get(f"{key}_idle") or 0))


def per_io(row, key):
    """A count per I/O; None where it could not be counted."""
    return None if row.get(key) is None else row[key] / row["ios"]


def caused_per_io(row, key):
    value = caused(row, key)
    return None if value is None else value / row["ios"]


def is_ours(path):
    return any(name in path for name in OURS)


def bandwidth(row):
    return row["iops"] * row["bs"] / 2**20


def size_name(nbytes):
    return f"{nbytes // 1024} KiB"


def number(value):
    """Short, without hiding what is nearly nothing: 0 means none at all."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if value < 0.001:
        return "<0.001"
    if value < 0.1:
        return f"{value:.3f}"
    if value < 100:
        return f"{value:.2f}"
    return f"{value:,.0f}"


def groups(rows):
    """[(op, bs, depth), its rows] in the order the groups first appear."""
    out = {}
    for row in rows:
        out.setdefault((row["op"], row["bs"], row["depth"]), []).append(row)
    return list(out.items())


def warning(machine):
    """The sentence about wall-clock times, or None on real hardware."""
    if "emulat" not in machine.get("accelerator", "").lower():
        return None
    return (
        "The host ran under emulation (TCG). Counts (exits, kicks, "
        "interrupts, switches, calls) are exact; times are not "
        "hardware's: an exit costs some fifty times as much beside the "
        "rest as it does there, so wall-clock ratios (IOPS, latency) "
        "are inflated in favour of fewer exits."
    )


# Of polling.json: a line for each who may look for completions, and each load.
POLLING_HEADINGS = (
    "who looks",
    "vCPUs",
    "load",
    "exits per I/O",
    "caused",
    "interrupts per I/O",
    "IOPS",
    "p50 µs",
    "p99",
    "p99.9",
    "max",
    "neighbour's share",
)
# And a line for each who may, when there is little to do.
RESTING_HEADINGS = (
    "who looks",
    "vCPUs",
    "idle: exits a second",
    "idle: % of a CPU",
    "rested: p50 µs",
)


def polling_loads(row):
    """[(what else there is, its reads)] of a row of polling.json, see polling.py."""
    loads = [("alone", row["alone"]), ("alone, 32 at a time", row["deep"])]
    return loads + [(f"beside: {name}", run) for name, run in row["beside"].items()]


def polling_cells(row):
    """A row of polling.json as lines of text."""
    return [
        (
            row["who"],
            str(row["vcpus"]),
            load,
            number(per_io(run, "exits")),
            number(caused_per_io(run, "exits")),
            number(per_io(run, "irqs")),
            f"{run['iops']:,.0f}",
            *(f"{run['lat_us'][k]:,.0f}" for k in ("p50", "p99", "p99.9", "max")),
            f"{run['share']:.0%}" if "share" in run else "",
        )
        for load, run in polling_loads(row)
    ]


def resting_cells(row):
    """The same row, of what it costs at rest."""
    idle, rested = row["idle"], rested_p50s(row)
    return (
        row["who"],
        str(row["vcpus"]),
        number(idle["exits"] / idle["window_s"]),
        number(idle["vcpu_cpu_us"] / idle["window_s"] / 1e4),
        f"{statistics.median(rested):,.0f} ({min(rested):,.0f} to {max(rested):,.0f})",
    )


def rested_p50s(row):
    """The median of each round."""
    return [r["lat_us"]["p50"] for r in row["rested"]]
