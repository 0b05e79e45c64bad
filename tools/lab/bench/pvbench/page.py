# SPDX-License-Identifier: GPL-2.0
"""The rows as one HTML page that needs nothing beside itself."""

import statistics
from html import escape

from pvbench import svg
from pvbench.rows import (
    COUNTS,
    POLLING_HEADINGS,
    RESTING_HEADINGS,
    bandwidth,
    caused_per_io,
    groups,
    is_ours,
    number,
    per_io,
    polling_cells,
    polling_loads,
    rested_p50s,
    resting_cells,
    size_name,
    warning,
)

CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#5f6670;
--line:#d9dde2;--card:#f6f7f9;--peer:#7d8ca3;--ours:#0b8a6a;--warn:#fff4d6;
--busy:#c2541b;--adaptive:#0b8a6a;--event:#4566c4}
@media(prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e6e8eb;
--dim:#9aa3ad;--line:#343a42;--card:#1d2126;--peer:#8494ac;--ours:#2fbf98;
--warn:#3a3118;--busy:#e8834a;--adaptive:#2fbf98;--event:#8aa4f0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--bg);
color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:34px 0 8px}
h3{font-size:16px;margin:18px 0 6px}
p{margin:6px 0 12px;max-width:78ch}.dim{color:var(--dim)}
.warn{background:var(--warn);border-radius:6px;padding:10px 14px;max-width:none}
.grid{display:grid;gap:16px;
grid-template-columns:repeat(auto-fill,minmax(300px,1fr))}
.wide{grid-template-columns:repeat(auto-fill,minmax(420px,1fr))}
.card{background:var(--card);border-radius:8px;padding:14px}
svg{width:100%;height:auto;display:block;font-family:inherit}
svg text{fill:var(--fg);font-size:12px}svg .t{font-size:14px;font-weight:600}
svg .s{fill:var(--dim);font-size:11px}svg .n{font-size:11.5px}
svg .v{font-variant-numeric:tabular-nums;font-weight:600}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}
svg .peer{fill:var(--peer)}svg .ours{fill:var(--ours)}svg .pale{opacity:.4}
svg line.grid{stroke:var(--line)}svg .line{fill:none;stroke-width:2}
svg .line.busy{stroke:var(--busy)}svg .line.adaptive{stroke:var(--adaptive)}
svg .line.event{stroke:var(--event)}svg .dot.busy{fill:var(--busy)}
svg .dot.adaptive{fill:var(--adaptive)}svg .dot.event{fill:var(--event)}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;
margin:0 5px 0 14px;vertical-align:-1px}.key i:first-child{margin-left:0}
details{border-top:1px solid var(--line);padding:8px 0}
summary{cursor:pointer;font-weight:600;padding:4px 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;
font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:4px 10px;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:600}
th:first-child,td:first-child{text-align:left}
tr.ours td:first-child{color:var(--ours);font-weight:600}
"""

INTRO = (
    "Each figure below is what the host did for one I/O of a guest, "
    "counted by its kernel over exactly the measured requests. Paths are "
    "named guest driver / backend."
)


def _css(path):
    return "ours" if is_ours(path) else "peer"


def _card(inner):
    return f'<div class="card">{inner}</div>'


def _count_chart(rows, key, title, meaning):
    items = []
    for row in rows:
        value = per_io(row, key)
        pale = value - caused_per_io(row, key) if value else 0
        items.append((row["path"], value, _css(row["path"]), number(value), pale))
    return _card(svg.bars(f"{title} per I/O", items, meaning))


def _plain_chart(rows, title, sub, value_of):
    items = [
        (row["path"], value_of(row), _css(row["path"]), number(value_of(row)), 0) for row in rows
    ]
    return _card(svg.bars(title, items, sub))


def _panel(rows):
    cards = [_count_chart(rows, *count) for count in COUNTS]
    cards.append(_plain_chart(rows, "IOPS", "I/Os a second", lambda r: r["iops"]))
    if rows[0]["bs"] > 4096:
        cards.append(_plain_chart(rows, "Bandwidth", "MiB/s", bandwidth))
    for key, name in (("mean", "Mean"), ("p50", "Median"), ("p99", "99%")):
        cards.append(
            _plain_chart(
                rows, f"{name} latency", "µs, in the guest", lambda r, k=key: r["lat_us"][k]
            )
        )
    counted = [r for r in rows if r.get("insns")]
    for key, name in (("server", "the server's CPU"), ("vcpu", "the guest"), ("rest", "the rest")):
        if counted:
            title = f"Instructions of {name}"
            per = "of each I/O"
            cards.append(
                _plain_chart(counted, title, per, lambda r, k=key: r["insns"][k] / r["ios"])
            )
    return f'<div class="grid">{"".join(cards)}</div>{_reasons(rows)}'


def _reasons(rows):
    """Exits by reason as a table: few numbers, many names."""
    names = {}
    for row in rows:
        for name, n in row.get("exits_by_reason", {}).items():
            names[name] = max(names.get(name, 0), n / row["ios"])
    top = sorted(names, key=names.get, reverse=True)[:8]
    if not top:
        return ""
    body = [
        [row["path"]] + [number(row["exits_by_reason"].get(n, 0) / row["ios"]) for n in top]
        for row in rows
        if "exits_by_reason" in row
    ]
    return "<h3>VM exits per I/O, by reason</h3>" + _table(["path", *top], body)


def _table(head, body):
    def line(cells, tag, css=""):
        inner = "".join(f"<{tag}>{escape(str(c))}</{tag}>" for c in cells)
        return f'<tr class="{css}">{inner}</tr>'

    return (
        '<div class="scroll"><table><thead>'
        + line(head, "th")
        + "</thead><tbody>"
        + "".join(line(r, "td", _css(r[0])) for r in body)
        + "</tbody></table></div>"
    )


def _guest_section(doc):
    out = [
        "<h2>In a guest</h2>",
        f"<p>{INTRO}</p>",
        '<p class="key dim"><i style="background:var(--peer)"></i>peers'
        '<i style="background:var(--ours)"></i>with a piece of ours'
        '<i style="background:var(--fg);opacity:.35"></i>pale: what the '
        "same guest does without I/O in the same time</p>",
    ]
    for i, ((op, bs, depth), rows) in enumerate(groups(doc["rows"])):
        opened = " open" if i < 2 else ""
        out.append(
            f"<details{opened}><summary>{op} {size_name(bs)}, depth "
            f"{depth}</summary>{_panel(rows)}</details>"
        )
    for skip in doc.get("skipped", ()):
        out.append(
            f'<p class="dim">Not run: {escape(skip["path"])}: ' f'{escape(skip["reason"])}</p>'
        )
    return "".join(out)


def _host_section(doc):
    """Rows of the load generator that plays the guest itself."""
    out = [
        "<h2>Host side alone</h2><p>A load generator on the host plays "
        "the guest: no vCPU, no nesting, the same null_blk for each row, "
        "so ratios of times mean something here even under emulation.</p>"
    ]
    found = {}
    for row in doc["rows"]:
        key = (row.get("op", ""), row.get("bs", 0), row["depth"])
        found.setdefault(key, []).append(row)
    for (op, bs, depth), rows in found.items():
        named = [
            dict(r, path=f'{r["path"]}, {r["queues"]} queue(s)' if "queues" in r else r["path"])
            for r in rows
        ]
        cards = [_plain_chart(named, "IOPS", "I/Os a second", lambda r: r.get("iops"))]
        for key, title in (
            ("ns_per_io", "ns per I/O"),
            ("cpu_ns_per_io", "CPU ns per I/O"),
            ("insns", "Instructions of the serving core per I/O"),
        ):
            if any(key in r for r in named):
                cards.append(_plain_chart(named, title, "", lambda r, k=key: r.get(k)))
        out.append(
            f"<h3>{escape(op)} {size_name(bs)}, depth {depth}</h3>"
            f'<div class="grid">{"".join(cards)}</div>'
        )
    out.append(_ratios(doc))
    out.append(_profile_section(doc.get("profiles", ())))
    return "".join(out)


def _ratios(doc, title="Ratios of IOPS"):
    """Ratios, or why there are none, and how each of the rows was configured."""
    out = []
    for name, ratio in doc.get("ratios", {}).items():
        said = number(ratio) if ratio else "refused: in no round were both of them undisturbed"
        out.append(f"<li>{escape(name)}: {said}</li>")
    how = [f"<li>{escape(k)}: {escape(v)}</li>" for k, v in doc.get("configured", {}).items()]
    form = "<h3>{}</h3><ul>{}</ul>"
    parts = [form.format(title, "".join(out))] * bool(out)
    parts += [form.format("How each was configured", "".join(how))] * bool(how)
    return "".join(parts)


def _files_section(doc):
    """Servers of files, with the load generator that plays the guest."""
    head = ["server", "operation", "depth", "a second", "CPU ns", "context switches"]
    head += ["instructions"]
    out = [
        "<h2>Files, the host side alone</h2><p>A load generator on the host plays the guest: "
        "each server has one core for all of its threads, and the same directory. A busy poller "
        "of ours always takes its whole core. Instructions are those of that core.</p>"
    ]
    for fs in dict.fromkeys(row["fs"] for row in doc["rows"]):
        body = [
            [
                row["path"],
                row["op"],
                row["depth"],
                f"{row['ops_per_s']:,.0f}",
                f"{row['cpu_ns_per_op']:,.0f}",
                number(row["csw_per_op"]),
                number(row.get("insns")),
            ]
            for row in doc["rows"]
            if row["fs"] == fs
        ]
        out.append(f"<h3>{escape(fs)}</h3>{_table(head, body)}")
    return "".join(out) + _ratios(doc, "vhost_fs by the best virtiofsd, operations a second")


def _insns_section(doc):
    """Counted instructions, by function."""
    cards = []
    for row in doc["rows"]:
        items = [
            (
                f"{f['function']} ({f['module']})",
                f["insns"],
                _css(row["path"]),
                number(f["insns"]),
                0,
            )
            for f in row["functions"]
        ]
        sub = ", ".join(f"{m} {number(n)}" for m, n in list(row["modules"].items())[:4])
        title = f"{row['path']}, depth {row['depth']}: {number(row['insns'])}"
        cards.append(_card(svg.bars(title, items, sub)))
    return (
        "<h2>Instructions of one I/O, by function</h2><p>All that the serving core executed, "
        "counted by the emulator. Of a poller of ours it is the rounds that found work, without "
        "interrupts, of a system call the time in the kernel, of the others everything. It does "
        "not show cache misses, barriers, and what an atomic operation waits for.</p>"
        f'<div class="grid">{"".join(cards)}</div>'
    )


def _profile_section(profiles):
    """Where the nanoseconds of one I/O go."""
    out = []
    for one in profiles:
        items = [
            (f"{f['function']} ({f['module']})", f["ns"], _css(one["path"]), number(f["ns"]), 0)
            for f in one["functions"]
        ]
        sub = ", ".join(f"{m} {number(ns)}" for m, ns in list(one["modules"].items())[:4])
        out.append(_card(svg.bars(f"{one['path']}: {number(one['ns_per_io'])} ns", items, sub)))
    if not out:
        return ""
    return (
        f"<h3>Where the nanoseconds of one I/O go, depth {profiles[0]['depth']}</h3>"
        '<p class="dim">The serving core, sampled by perf in a run of its own.</p>'
        f'<div class="grid">{"".join(out)}</div>'
    )


def _modes_section(doc):
    """Offered load against the poller's CPU and the latency, by mode."""
    out = [
        "<h2>The poller's three modes</h2><p>Load offered by the host-side "
        "generator; CPU is the poller's share of its core.</p>"
    ]
    backends = dict.fromkeys(r["backend"] for r in doc["rows"])
    for backend in backends:
        cards = []
        for title, unit, value_of, ylog in (
            ("CPU of the poller", "% of its core", lambda r: r["cpu_pct"], False),
            ("Median latency", "µs", lambda r: r["lat_us"]["p50"], True),
        ):
            series = []
            for mode in ("busy", "adaptive", "event"):
                points = sorted(
                    (r["iops"], value_of(r))
                    for r in doc["rows"]
                    if r["mode"] == mode and r["iops"] > 0 and r["backend"] == backend
                )
                series.append((mode, mode, points))
            cards.append(_card(svg.lines(title, series, "I/Os a second", unit, ylog)))
        out.append(f"<h3>{escape(backend)}</h3>" f'<div class="grid wide">{"".join(cards)}</div>')
    return "".join(out)


def _polling_section(doc):
    """Ways to poll in the guest."""
    cards = []
    charts = []
    for n, (load, _) in enumerate(polling_loads(doc["rows"][0]) if doc["rows"] else ()):

        def of(value, n=n):
            return lambda r: value(polling_loads(r)[n][1])

        charts += [
            (f"VM exits per I/O, {load}", "", of(lambda run: per_io(run, "exits"))),
            (f"IOPS, {load}", "", of(lambda run: run["iops"])),
            (f"99% latency, {load}", "µs", of(lambda run: run["lat_us"]["p99"])),
            (f"Maximum latency, {load}", "µs", of(lambda run: run["lat_us"]["max"])),
        ]
    for title, sub, value_of in (
        *charts,
        ("Idle", "exits a second", lambda r: r["idle"]["exits"] / r["idle"]["window_s"]),
        ("Median latency after a rest", "µs", lambda r: statistics.median(rested_p50s(r))),
    ):
        items = [
            (
                f"{r['who']}, {r['vcpus']} vCPU",
                value_of(r),
                "ours" if r["ours"] else "peer",
                number(value_of(r)),
                0,
            )
            for r in doc["rows"]
        ]
        cards.append(_card(svg.bars(title, items, sub)))
    table = _table(POLLING_HEADINGS, [line for r in doc["rows"] for line in polling_cells(r)])
    table += _table(RESTING_HEADINGS, [resting_cells(r) for r in doc["rows"]])
    return (
        "<h2>Ways to poll in the guest</h2><p>The candidates on the same disk "
        "of vhost_blk, 4 KiB random reads, one at a time where nothing else is said.</p>"
        f'<div class="grid">{"".join(cards)}</div>{table}'
    )


def render(guest=None, host=None, modes=None, polling=None, insns=None, files=None):
    """The page; a part that was not measured is left out."""
    docs = [d for d in (guest, host, modes, polling, insns, files) if d]
    machine = docs[0].get("machine", {}) if docs else {}
    facts = ", ".join(
        f"{k.replace('_', ' ')} {v}"
        for k, v in machine.items()
        if v and not isinstance(v, dict | list)
    )
    warn = warning(machine)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>What one I/O costs</title><style>{CSS}</style>"
        "<h1>What one I/O costs</h1>"
        f'<p class="dim">{escape(facts)}</p>'
    ]
    if warn:
        parts.append(f'<p class="warn">{escape(warn)}</p>')
    sections = (
        (guest, _guest_section),
        (polling, _polling_section),
        (modes, _modes_section),
        (host, _host_section),
        (files, _files_section),
        (insns, _insns_section),
    )
    for doc, section in sections:
        if doc and doc["rows"]:
            parts.append(section(doc))
    return "".join(parts) + "</html>\n"
