# SPDX-License-Identifier: GPL-2.0
"""The rows on a terminal."""

from pvbench.rows import COUNTS, groups, number, per_io, size_name, warning

HEADINGS = (
    "path",
    "exits",
    "caused",
    "kicks",
    "irqs",
    "csw",
    "syscalls",
    "IOPS",
    "MiB/s",
    "mean",
    "p50",
    "p99",
)


def cells(row):
    lat = row["lat_us"]
    counts = [number(per_io(row, key)) for key, *_ in COUNTS]
    counts.insert(1, number(per_io(row, "exits_caused")))
    return (
        row["path"],
        *counts,
        f"{row['iops']:,.0f}",
        f"{row['iops'] * row['bs'] / 2**20:,.1f}",
        *(f"{lat[k]:,.0f}" for k in ("mean", "p50", "p99")),
    )


def lines_of(table):
    """Columns as wide as needed, the first one left-aligned."""
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    for r in table:
        yield "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(r, widths, strict=True))
        )


def render(doc):
    """The whole document as text: counts are per I/O, latencies in µs."""
    machine = doc["machine"]
    out = [
        f"Host: {machine['accelerator']}, {machine['cpus']} CPUs, kernel "
        f"{machine['host_kernel']}; QEMU {machine.get('qemu', '')}; "
        f"commit {machine['commit']}"
    ]
    warn = warning(machine)
    out += [warn, ""] if warn else [""]
    for (op, bs, depth), rows in groups(doc["rows"]):
        table = list(lines_of([HEADINGS] + [cells(r) for r in rows]))
        out.append(f"{op} {size_name(bs)}, depth {depth}   " "(counts per I/O; latency in µs)")
        out += table[:1] + ["-" * len(table[0])] + table[1:] + [""]
    for skip in doc.get("skipped", ()):
        out.append(f"not run: {skip['path']}: {skip['reason']}")
    return "\n".join(out)
