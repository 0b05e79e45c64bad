# SPDX-License-Identifier: GPL-2.0
"""Counted instructions as text, and beside the table that is kept in the tree."""

import json

from pvbench.rows import is_ours
from pvbench.table import ruled

# An I/O of ours may take so much more than the table has, as a share.
MORE = 0.05
FUNCTIONS = 10


def _key(row):
    return row["path"], row["depth"]


def _kept_rows(kept):
    return {_key(row): row["insns"] for row in kept["rows"]}


def incomparable(doc, kept):
    """Why the two do not compare, or an empty string: the code that is not ours differs."""
    if not kept["rows"]:
        return "no table is kept: UPDATE=1 writes it"
    theirs, here = kept["kernel"], doc["machine"]["kernel"]
    if theirs != here:
        return f"the table is of kernel {theirs}, this is {here}: UPDATE=1 writes it anew"
    return ""


def worse(doc, kept):
    """A sentence for each row of ours that takes more than it may, or is in no table."""
    before, found = _kept_rows(kept), []
    for row in doc["rows"]:
        if not is_ours(row["path"]):
            continue
        name = f"{row['path']}, depth {row['depth']}"
        old = before.get(_key(row))
        if old is None:
            found.append(f"{name}: not in the table")
        elif row["insns"] > old * (1 + MORE):
            more = row["insns"] / old - 1
            found.append(
                f"{name}: {row['insns']:,.1f} for each I/O, {more:.1%} more than {old:,.1f}"
            )
    return found


def kept(doc, old):
    """The table to keep: ours; rows that were not counted stay if they still compare."""
    rows = {}
    if old.get("kernel") == doc["machine"]["kernel"]:
        rows = _kept_rows(old)
    rows |= {_key(r): round(r["insns"], 1) for r in doc["rows"] if is_ours(r["path"])}
    listed = [{"path": p, "depth": d, "insns": n} for (p, d), n in sorted(rows.items())]
    return json.dumps({"kernel": doc["machine"]["kernel"], "rows": listed}, indent=1) + "\n"


def render(doc, kept_doc):
    """The rows, and the dearest functions of each of ours."""
    before = _kept_rows(kept_doc) if not incomparable(doc, kept_doc) else {}
    table = [("path", "depth", "insns/I/O", "kept", "change", "spread", "I/Os", "idle round")]
    for row in doc["rows"]:
        old = before.get(_key(row))
        idle = row.get("idle_round")
        table.append(
            (
                row["path"],
                str(row["depth"]),
                f"{row['insns']:,.1f}",
                f"{old:,.1f}" if old else "–",
                f"{row['insns'] / old - 1:+.1%}" if old else "–",
                f"{row['spread']:.2%}",
                f"{row['ios']:,}",
                f"{idle:,.1f}" if idle else "–",
            )
        )
    out = [
        f"Instructions of the serving core for each 4 KiB random read; kernel "
        f"{doc['machine']['kernel']}, commit {doc['machine']['commit']}",
        "Not seen: cache misses, barriers, what an atomic operation waits for.",
        "",
        *ruled(table),
    ]
    for row in doc["rows"]:
        if not is_ours(row["path"]):
            continue
        modules = ", ".join(f"{m} {n:,.1f}" for m, n in row["modules"].items() if n >= 0.1)
        out += [f"{row['path']}, depth {row['depth']}: {modules}"]
        out += [
            f"{f['insns']:10,.1f}  {f['function']} ({f['module']})"
            for f in row["functions"][:FUNCTIONS]
        ]
        out.append("")
    return "\n".join(out)
