"""The pieces of the report's page: HTML and SVG as text, every value escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from html import escape
from typing import Any

from oncewire.message.instant import SECOND, Instant

STYLE = """
:root{--ink:#1c2430;--soft:#5c6675;--line:#d8dde5;--good:#1f7a4d;--bad:#b3261e;--back:#fff}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1.5rem;color:var(--ink);background:var(--back);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:0 0 .6rem}
section{margin:2rem 0}
.verdict{font-size:1.2rem;font-weight:600;padding:.8rem 1rem;border-left:.4rem solid}
.good{color:var(--good);border-color:var(--good)}.bad{color:var(--bad);border-color:var(--bad)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:600}td{overflow-wrap:anywhere;min-width:3.5rem}
.note,footer{color:var(--soft);font-size:.85rem}
.bar{display:flex;height:1.6rem;border-radius:.2rem;overflow:hidden;margin:.4rem 0}
.key{display:inline-block;margin-right:1rem;font-size:.85rem}
.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem;vertical-align:-.1rem}
svg{display:block;max-width:none}
@media print{body{max-width:none;padding:0;font-size:11px}section{break-inside:avoid-page}
.wide{overflow:visible}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""

COLOURS = ("#1f7a4d", "#3b6fb5", "#b3261e", "#b7791f", "#6b5b95", "#5c6675", "#2a9d8f", "#9c4668")
_CELL, _LABEL = 14, 260


def page(title: str, parts: Sequence[str]) -> str:
    """The whole page."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def section(title: str, content: str) -> str:
    """A heading and what stands under it."""
    return f"<section><h2>{escape(title)}</h2>{content or _nothing()}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], most: int) -> str:
    """A table; of more rows than `most` it is said that there are more."""
    if not rows:
        return _nothing()
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows[:most]
    )
    more = f'<p class="note">{len(rows) - most:,} more.</p>' if len(rows) > most else ""
    return f'<div class="wide"><table><tr>{columns}</tr>{lines}</table></div>{more}'


def bar(counts: Mapping[str, int]) -> str:
    """Shares of a whole, with a key."""
    total = sum(counts.values())
    if not total:
        return ""
    parts, keys = [], []
    for index, (name, count) in enumerate(sorted(counts.items(), key=lambda pair: -pair[1])):
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<span style="flex:{count};background:{colour}"></span>')
        share = f"{count:,} ({count / total:.1%})"
        keys.append(
            f'<span class="key"><i style="background:{colour}"></i>{escape(name)} {share}</span>'
        )
    return f'<div class="bar">{"".join(parts)}</div><p>{"".join(keys)}</p>'


def heat_map(
    cells: Mapping[tuple[str, date], int], troubled: Mapping[tuple[str, date], int]
) -> str:
    """A row a partner, a square a day; darker is more, red is trouble."""
    if not cells:
        return ""
    names = sorted({name for name, _ in cells})
    days = sorted({day for _, day in cells})
    most = max(cells.values())
    drawn = []
    for row, name in enumerate(names):
        y = 20 + row * _CELL
        drawn.append(f'<text x="0" y="{y + 10}" font-size="11">{escape(name[:40])}</text>')
        for column, day in enumerate(days):
            count = cells.get((name, day), 0)
            if not count:
                continue
            bad = troubled.get((name, day), 0)
            colour = "#b3261e" if bad else "#1f7a4d"
            depth = 0.25 + 0.75 * (count / most) ** 0.5
            x = _LABEL + column * _CELL
            said = f"{name}, {day}: {count} messages" + (f", {bad} in trouble" if bad else "")
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_CELL - 2}" fill="{colour}" '
                f'fill-opacity="{depth:.2f}"><title>{escape(said)}</title></rect>'
            )
    width, height = _LABEL + len(days) * _CELL, 24 + len(names) * _CELL
    marks = (
        f'<text x="{_LABEL}" y="12" font-size="11">{days[0]}</text>'
        f'<text x="{width}" y="12" font-size="11" text-anchor="end">{days[-1]}</text>'
    )
    return _drawing(width, height, marks + "".join(drawn))


def time_line(holes: Sequence[tuple[str, Instant | None, Instant, int]]) -> str:
    """Where rows are missing in journals, on one line of time."""
    if not holes:
        return ""
    instants = [at for _, before, after, _ in holes for at in (before, after) if at is not None]
    first, last = min(instants), max(*instants, min(instants) + 1)
    names = sorted({name for name, *_ in holes})
    width, drawn = 900, []
    for name, before, after, rows in holes:
        y = 20 + names.index(name) * 18
        left = _LABEL + (width - _LABEL) * ((before or first) - first) // (last - first)
        right = _LABEL + (width - _LABEL) * (after - first) // (last - first)
        drawn.append(
            f'<rect x="{left}" y="{y}" width="{max(3, right - left)}" height="12" fill="#b3261e">'
            f"<title>{escape(name)}: {rows} rows are missing</title></rect>"
        )
    labels = "".join(
        f'<text x="0" y="{30 + row * 18}" font-size="11">{escape(name[:40])}</text>'
        for row, name in enumerate(names)
    )
    ends = (
        f'<text x="{_LABEL}" y="12" font-size="11">{_when(first)}</text>'
        f'<text x="{width}" y="12" font-size="11" text-anchor="end">{_when(last)}</text>'
    )
    return _drawing(width, 26 + len(names) * 18, labels + ends + "".join(drawn))


def _drawing(width: int, height: int, content: str) -> str:
    return (
        f'<div class="wide"><svg width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">{content}</svg></div>'
    )


def _when(at: Instant) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M")


def _nothing() -> str:
    return '<p class="note">None.</p>'
