# SPDX-License-Identifier: GPL-2.0
"""The two plots of the page, as SVG text: named bars, and lines over a load.

Colours come from the page's CSS classes, so that one drawing serves a light
and a dark page.
"""

import math
from html import escape

BAR_H, PITCH, WIDTH = 12, 34, 330
VALUE_ROOM = 62


def bars(title, items, sub=""):
    """Horizontal bars; items are (name, value, css class, shown, pale part).

    The pale part of a value is drawn lighter at its end: what would have
    happened anyway.  A value of None is said to be unknown, not drawn as 0.
    """
    top = max((v for _, v, *_ in items if v), default=1) or 1
    height = 42 + PITCH * len(items)
    out = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" ' f'aria-label="{escape(title)}">',
        f'<text x="0" y="14" class="t">{escape(title)}</text>',
        f'<text x="0" y="29" class="s">{escape(sub)}</text>',
    ]
    for i, (name, value, css, shown, pale) in enumerate(items):
        y = 48 + PITCH * i
        room = WIDTH - VALUE_ROOM
        width = room * (value or 0) / top
        solid = room * ((value or 0) - pale) / top
        out.append(f'<text x="0" y="{y}" class="n">{escape(name)}</text>')
        if width:
            out.append(
                f'<rect x="0" y="{y + 5}" width="{max(width, 1):.1f}" '
                f'height="{BAR_H}" rx="2" class="{css} pale"/>'
            )
        if solid > 0:
            out.append(
                f'<rect x="0" y="{y + 5}" width="{max(solid, 1):.1f}" '
                f'height="{BAR_H}" rx="2" class="{css}"/>'
            )
        out.append(f'<text x="{width + 6:.1f}" y="{y + 15}" class="v">' f"{escape(shown)}</text>")
    return "".join(out) + "</svg>"


def _ticks_log(lo, hi):
    return [10.0**e for e in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)]


def _short(value):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def lines(title, series, xname, yname, ylog=False):
    """Lines over a logarithmic x; series are (name, css class, [(x, y)])."""
    points = [p for _, _, pts in series for p in pts]
    if not points:
        return ""
    width, height, left, right, upper, lower = 480, 300, 52, 74, 34, 40
    xs = _ticks_log(min(x for x, _ in points), max(x for x, _ in points))
    if len(xs) < 2:
        xs.append(xs[0] * 10)
    ymax = max(y for _, y in points) or 1
    ymin = min((y for _, y in points if y > 0), default=1)
    ys = _ticks_log(ymin, ymax) if ylog else _ticks_linear(ymax)
    if len(ys) < 2:
        ys.append(ys[0] * 10)

    def px(x):
        return left + (width - left - right) * (math.log10(x / xs[0]) / math.log10(xs[-1] / xs[0]))

    def py(y):
        part = (
            math.log10(max(y, ys[0]) / ys[0]) / math.log10(ys[-1] / ys[0]) if ylog else y / ys[-1]
        )
        return height - lower - (height - lower - upper) * part

    out = [
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">'
        f'<text x="0" y="14" class="t">{escape(title)}</text>'
    ]
    for y in ys:
        out.append(
            f'<line x1="{left}" x2="{width - right}" y1="{py(y):.1f}" '
            f'y2="{py(y):.1f}" class="grid"/><text x="{left - 6}" '
            f'y="{py(y) + 4:.1f}" class="s end">{_short(y)}</text>'
        )
    for x in xs:
        out.append(
            f'<text x="{px(x):.1f}" y="{height - lower + 16}" ' f'class="s mid">{_short(x)}</text>'
        )
    out.append(
        f'<text x="{(left + width - right) / 2}" y="{height - 6}" '
        f'class="s mid">{escape(xname)}</text>'
        f'<text x="0" y="28" class="s">{escape(yname)}</text>'
    )
    label_ys = _apart([py(pts[-1][1]) for _, _, pts in series if pts])
    for (name, css, pts), label_y in zip([s for s in series if s[2]], label_ys, strict=True):
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in pts)
        out.append(f'<polyline points="{path}" class="line {css}"/>')
        out += [
            f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" ' f'class="dot {css}"/>'
            for x, y in pts
        ]
        out.append(
            f'<text x="{px(pts[-1][0]) + 8:.1f}" y="{label_y + 4:.1f}" '
            f'class="n">{escape(name)}</text>'
        )
    return "".join(out) + "</svg>"


def _ticks_linear(ymax):
    step = 10.0 ** math.floor(math.log10(ymax))
    for factor in (5, 2, 1, 0.5, 0.2):
        if ymax / (step * factor) >= 3:
            step *= factor
            break
    return [step * i for i in range(math.ceil(ymax / step) + 1)]


def _apart(positions, gap=14):
    """Labels' heights moved down until none covers another."""
    out = list(positions)
    last = -math.inf
    for i in sorted(range(len(out)), key=lambda i: positions[i]):
        out[i] = max(out[i], last + gap)
        last = out[i]
    return out
