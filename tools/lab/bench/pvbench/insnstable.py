# SPDX-License-Identifier: GPL-2.0
"""Counted instructions as text, and beside the table that is kept in the tree."""

import json

from pvbench.rows import is_ours
from pvbench.table import ruled

# An I/O of ours may take so much more than the table has, as a share.
MORE = 0.05
FUNCTIONS = 10
# In a guest: each driver of ours, and mainline's driver of the same device.
PEERS = {
    "pvfs": "virtiofs",
    "virtio_pvblk": "virtio_blk",
    "virtio_pvblk+iopoll": "virtio_blk",
}
# The counts depend on these beside our source; the table is of one of each.
VERSIONS = {
    "kernel": "kernel",
    "kernel_build": "kernel's build",
    "compiler": "compiler of our modules",
    "emulator": "emulator",
}


def _key(row):
    return row["path"], row["depth"]


def _kept_rows(kept):
    return {_key(row): row["insns"] for row in kept["rows"]}


def _guest_of(path):
    """(file system or driver, operation) of a guest's row."""
    words = path.split()
    return tuple(words[1:]) if words[0] == "guest" else ()


def incomparable(doc, kept):
    """Why the two do not compare, or an empty string: the code that is not ours differs."""
    if not kept["rows"]:
        return "no table is kept: UPDATE=1 writes it"
    for key, name in VERSIONS.items():
        theirs, here = kept.get(key), doc["machine"].get(key)
        if theirs != here:
            return f"the {name} differs: the table's {theirs}, here {here}; UPDATE=1 writes it anew"
    return ""


def worse(doc, kept):
    """A sentence for each row of ours that takes more than it may, or is in no table.

    A row of a guest need not be in the table.
    """
    before, found = _kept_rows(kept), []
    for row in doc["rows"]:
        if not is_ours(row["path"]) or _guest_of(row["path"]) and _key(row) not in before:
            continue
        name = f"{row['path']}, depth {row['depth']}"
        old = before.get(_key(row))
        if old is None:
            found.append(f"{name}: not in the table; UPDATE=1 adds it")
        elif row["insns"] > old * (1 + MORE):
            more = row["insns"] / old - 1
            found.append(
                f"{name}: {row['insns']:,.1f} for each I/O, {more:.1%} more than {old:,.1f}"
            )
    return found


def _belongs(path):
    return is_ours(path) or path.startswith("host ")


def kept(doc, old):
    """The table to keep, without other back ends; old rows stay if they still compare."""
    rows = {} if incomparable(doc, old) else _kept_rows(old)
    rows |= {_key(r): round(r["insns"], 1) for r in doc["rows"] if _belongs(r["path"])}
    listed = [{"path": p, "depth": d, "insns": n} for (p, d), n in sorted(rows.items())]
    table = {key: doc["machine"].get(key) for key in VERSIONS} | {"rows": listed}
    return json.dumps(table, indent=1) + "\n"


def ratios(rows):
    """(operation, depth, ours, the system call's, ratio) of each that has both."""
    hosts = [row for row in rows if row["path"].startswith("host ")]
    calls = {(row["path"], row["depth"]): row["insns"] for row in hosts}
    for row in rows:
        op = row["path"].removeprefix("ring/vhost_fs ")
        call = calls.get((f"host {op}", row["depth"])) or calls.get((f"host {op}", 1))
        if op != row["path"] and call:
            yield op, row["depth"], row["insns"], call, row["insns"] / call


def guest_pairs(rows):
    """(our row, mainline's) of each operation and depth that has both."""
    guests = [row for row in rows if _guest_of(row["path"])]
    found = {(*_guest_of(row["path"]), row["depth"]): row for row in guests}
    for (name, op, depth), ours in found.items():
        theirs = found.get((PEERS.get(name), op, depth))
        if theirs:
            yield ours, theirs


def _compared(ours, theirs):
    """A sentence on two rows of a guest.  The idle loop of each belongs to no row."""
    name, op = _guest_of(ours["path"])
    peer, _ = _guest_of(theirs["path"])
    both = (ours["insns"] + ours["idle_loop"]) / (theirs["insns"] + theirs["idle_loop"])
    return (
        f"{op}, depth {ours['depth']}: {ours['insns']:,.1f} by {name}, {theirs['insns']:,.1f} by "
        f"{peer}: {ours['insns'] / theirs['insns']:.2f} times; with the idle loop's "
        f"{ours['idle_loop']:,.1f} and {theirs['idle_loop']:,.1f}: {both:.2f} times"
    )


def peer_ratios(rows):
    """(operation, depth, ours, the least of virtiofsd's, its path, ratio) of each with both."""
    ours = {}
    peers = {}
    for row in rows:
        words = row["path"].split()
        key = words[-1], row["depth"]
        if words[0] == "ring/vhost_fs":
            ours[key] = row["insns"]
        elif words[0].startswith("ring/virtiofsd"):
            name = " ".join(words[:-1]).removeprefix("ring/")
            peers[key] = min(peers.get(key, (row["insns"], name)), (row["insns"], name))
    for key in ours:
        if key in peers:
            theirs, name = peers[key]
            yield *key, ours[key], theirs, name, theirs / ours[key]


def _number(value):
    return f"{value:,.1f}"


def _rows(doc, before):
    yield (
        "path",
        "depth",
        "insns/I/O",
        "kept",
        "change",
        "spread",
        "samples",
        "p10",
        "p90",
        "idle",
    )
    for row in doc["rows"]:
        old = before.get(_key(row))
        spread = row.get("range")
        yield (
            row["path"],
            str(row["depth"]),
            _number(row["insns"]),
            _number(old) if old else "–",
            f"{row['insns'] / old - 1:+.1%}" if old else "–",
            f"{row['spread']:.2%}" if len(row["windows"]) > 1 else "–",
            str(row.get("samples", "–")),
            _number(spread[1]) if spread else "–",
            _number(spread[2]) if spread else "–",
            _number(row["idle_round"]) if row.get("idle_round") else "–",
        )


def _dearest(what, functions):
    yield f"    the dearest of {what}:"
    for f in functions[:FUNCTIONS]:
        yield f"{f['insns']:10,.1f}  {f['function']} ({f['module']})"


def _functions(row):
    parts = row.get("parts") or row["modules"]
    shown = ", ".join(f"{m} {n:,.1f}" for m, n in parts.items() if n >= 0.1)
    yield f"{row['path']}, depth {row['depth']}: {shown}"
    if row.get("calls"):
        counted = ", ".join(f"{n:.2f} {what}" for what, n in row["calls"].items())
        yield f"    {row['ios']} I/Os, and for each {counted}"
    if row["ours"]:
        yield from _dearest("ours", row["ours"])
    yield from _dearest("all", row["functions"])
    yield ""


def _head(doc, kept_doc, what):
    """What is counted, of which versions, and the rows."""
    machine = doc["machine"]
    why = incomparable(doc, kept_doc)
    before = {} if why else _kept_rows(kept_doc)
    return [
        f"Instructions of {what}; commit {machine['commit']}",
        *(f"{name}: {machine.get(key)}" for key, name in VERSIONS.items()),
        "Not seen: cache misses, barriers, what an atomic operation waits for, and spinning.",
        "",
        *ruled(list(_rows(doc, before))),
        *([f"not compared: {why}", ""] if why else []),
    ]


def render(doc, kept_doc):
    """The rows, and the dearest functions of each of ours."""
    what = "the serving core for each 4 KiB random read, and for each operation on a file"
    out = _head(doc, kept_doc, what)
    for op, depth, ours, call, ratio in ratios(doc["rows"]):
        out.append(
            f"{op}, depth {depth}: {ours:,.1f} by vhost_fs, {call:,.1f} by the system call: "
            f"{ratio:.2f} times"
        )
    out.append("")
    for row in doc["rows"]:
        if is_ours(row["path"]):
            out += _functions(row)
    return "\n".join(out)


def render_files(doc):
    """Servers of files: the rows, and how they compare."""
    out = _head(doc, {"rows": []}, "the serving core for each operation on a file")
    out = out[:-2]
    for op, ours, call, ratio in ratios(doc["rows"]):
        out.append(
            f"{op}: {ours:,.1f} by vhost_fs, {call:,.1f} by the system call: {ratio:.2f} times"
        )
    for op, depth, ours, theirs, name, ratio in peer_ratios(doc["rows"]):
        out.append(
            f"{op}, depth {depth}: {theirs:,.1f} by {name}, {ours:,.1f} by vhost_fs: "
            f"{ratio:.2f} times"
        )
    out.append("")
    for row in doc["rows"]:
        out += _functions(row)
    return "\n".join(out)


def render_guest(doc, kept_doc):
    """The same of a guest, with the functions of mainline's drivers, too."""
    out = _head(doc, kept_doc, "a guest's vCPU for each operation on a file or a disk")
    out += [_compared(*pair) for pair in guest_pairs(doc["rows"])]
    out.append("")
    for row in doc["rows"]:
        out += _functions(row)
    return "\n".join(out)
