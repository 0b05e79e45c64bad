# SPDX-License-Identifier: GPL-2.0
"""The rows on a terminal."""

from pvbench import modes
from pvbench.rows import (
    COUNTS,
    HAVE_IDLE,
    POLLING_HEADINGS,
    RESTING_HEADINGS,
    caused_per_io,
    groups,
    number,
    per_io,
    polling_cells,
    resting_cells,
    size_name,
    warning,
)

HEADINGS = (
    "path",
    "exits",
    "caused",
    "kicks",
    "irqs",
    "csw",
    "caused",
    "syscalls",
    "caused",
    "IOPS",
    "MiB/s",
    "mean",
    "p50",
    "p99",
)


def cells(row):
    lat = row["lat_us"]
    counts = []
    for key, *_ in COUNTS:
        counts.append(number(per_io(row, key)))
        if key in HAVE_IDLE:
            counts.append(number(caused_per_io(row, key)))
    return (
        row["path"],
        *counts,
        f"{row['iops']:,.0f}",
        f"{row['iops'] * row['bs'] / 2**20:,.1f}",
        *(f"{lat[k]:,.0f}" for k in ("mean", "p50", "p99")),
    )


INSNS_HEADINGS = ("instructions per I/O", "server's CPU", "its idle rounds", "guest", "rest")


def insns_cells(row):
    """Instructions by where they were executed."""
    sides = row["insns"]
    counted = (sides[k] / row["ios"] for k in ("server", "server_idle", "vcpu", "rest"))
    return (row["path"], *(f"{n:,.0f}" for n in counted))


def lines_of(table):
    """Columns as wide as needed, the first one left-aligned."""
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    for r in table:
        yield "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(r, widths, strict=True))
        )


def ruled(table):
    """A table's lines with a rule below its headings."""
    first, *rest = lines_of(table)
    return [first, "-" * len(first), *rest, ""]


def head(machine):
    out = [
        f"Host: {machine['accelerator']}, {machine['cpus']} CPUs, kernel "
        f"{machine['host_kernel']}; QEMU {machine.get('qemu', '')}; "
        f"commit {machine['commit']}"
    ]
    if machine.get("disk_us"):
        out.append(
            f"The disk of virtio_blk and virtio_pvblk takes {machine['disk_us']} us for each I/O; "
            "files are on other media."
        )
    warn = warning(machine)
    return out + ([warn, ""] if warn else [""])


def render_polling(doc):
    """polling.json as text."""
    loads = [POLLING_HEADINGS, *(line for r in doc["rows"] for line in polling_cells(r))]
    resting = [RESTING_HEADINGS, *map(resting_cells, doc["rows"])]
    title = "Ways to poll in the guest: randread 4 KiB, vhost_blk busy"
    return "\n".join([*head(doc["machine"]), title, *ruled(loads), *ruled(resting)])


MODES_HEADINGS = (
    "backend",
    "mode",
    "asked for",
    "depth",
    "IOPS",
    "busy's",
    "CPU %",
    "p50 µs",
    "busy's",
    "event's",
    "p99 µs",
)


def mode_cells(row):
    lat = row["lat_us"]
    by = {m: {k: f"x{v:.2f}" for k, v in b.items()} for m, b in row.get("beside", {}).items()}
    none = {"iops": "", "p50": ""}
    return (
        row["backend"],
        row["mode"],
        modes.asked(row["target_iops"]),
        str(row["depth"]),
        f"{row['iops']:,.0f}",
        by.get("busy", none)["iops"],
        f"{row['cpu_pct']:.2f}",
        f"{lat['p50']:,.0f}",
        by.get("busy", none)["p50"],
        by.get("event", none)["p50"],
        f"{lat['p99']:,.0f}",
    )


def render_modes(doc):
    """modes.json as text."""
    title = "The poller's modes under load (x: by that of busy or event mode in the same round)"
    table = [MODES_HEADINGS, *map(mode_cells, doc["rows"])]
    return "\n".join([*head(doc["machine"]), title, *ruled(table)])


def render(doc):
    """The whole document as text: counts are per I/O, latencies in µs."""
    out = head(doc["machine"])
    for (op, bs, depth), rows in groups(doc["rows"]):
        out.append(f"{op} {size_name(bs)}, depth {depth}   " "(counts per I/O; latency in µs)")
        out += ruled([HEADINGS] + [cells(r) for r in rows])
        counted = [insns_cells(r) for r in rows if r.get("insns")]
        if counted:
            out += ruled([INSNS_HEADINGS, *counted])
    for skip in doc.get("skipped", ()):
        out.append(f"not run: {skip['path']}: {skip['reason']}")
    return "\n".join(out)
