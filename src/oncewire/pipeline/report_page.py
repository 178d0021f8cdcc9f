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
th{color:var(--soft);font-weight:600}th,td{white-space:nowrap}
td.number,th.number{text-align:right}td.said{white-space:normal;min-width:16rem}
.note,footer{color:var(--soft);font-size:.85rem}
.bar{display:flex;height:1.6rem;border-radius:.2rem;overflow:hidden;margin:.4rem 0}
.key{display:inline-block;margin-right:1rem;font-size:.85rem}
.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem;vertical-align:-.1rem}
svg{display:block;max-width:none}
@media print{body{max-width:none;padding:0;font-size:11px}section{break-inside:avoid-page}
.wide{overflow:visible}svg{max-width:100%;height:auto}table{font-size:9px}
th,td{white-space:normal;overflow-wrap:anywhere;padding:.2rem .4rem}td.said{min-width:0}
thead{display:table-header-group}tr{break-inside:avoid}section.long{break-inside:auto}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""

GOOD, BAD, WARY, CALM = "#1f7a4d", "#b3261e", "#b7791f", "#3b6fb5"
COLOURS = {
    "delivered": GOOD, "sent": CALM, "in_flight": "#8a94a3", "unknown": WARY,
    "not_delivered": "#c2571a", "skipped": CALM, "open": WARY,
}  # fmt: skip
"""What is not named here is a broken promise, or a number that nobody accounts for."""
_LETTER, _LABEL_MAX, _WIDTH = 6.6, 260, 960
_CELLS = (4, 14)
"""Sides of a day's square: least and most, so that a year is not much wider than a screen."""
TALL = 25
"""Rows of a table that need not stand on one page."""
SENTENCE = 40
"""A text longer than this may be broken into lines."""


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
    # What does not fit on a page in print begins where it is and not on the next one.
    tall = " class=long" * (content.count("<tr>") > TALL)
    return f"<section{tall}><h2>{escape(title)}</h2>{content or _nothing()}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], most: int) -> str:
    """A table; of more rows than `most` it is said that there are more."""
    if not rows:
        return _nothing()
    numbers = [isinstance(value, int | float) for value in rows[0]]
    columns = "".join(
        f"<th{' class=number' * number}>{escape(name)}</th>"
        for name, number in zip(head, numbers, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:most])
    more = f'<p class="note">{len(rows) - most:,} more.</p>' if len(rows) > most else ""
    return (
        f'<div class="wide"><table><thead><tr>{columns}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{more}"
    )


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f"<td class=number>{value:,}</td>"
    text = str(value)
    return f"<td{' class=said' * (len(text) > SENTENCE)}>{escape(text)}</td>"


def bar(counts: Mapping[str, int]) -> str:
    """Shares of a whole, with a key."""
    total = sum(counts.values())
    if not total:
        return ""
    parts, keys = [], []
    for name, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        colour = COLOURS.get(name, BAD)
        parts.append(f'<span style="flex:{count};background:{colour}"></span>')
        said = f"{escape(words(name))} {count:,} ({count / total:.1%})"
        keys.append(f'<span class="key"><i style="background:{colour}"></i>{said}</span>')
    return f'<div class="bar">{"".join(parts)}</div><p>{"".join(keys)}</p>'


def heat_map(
    cells: Mapping[tuple[str, date], int], troubled: Mapping[tuple[str, date], int]
) -> str:
    """A row a partner, a square a day; darker is more, red is trouble."""
    if not cells:
        return ""
    names = sorted({name for name, _ in cells})
    first, last = min(day for _, day in cells), max(day for _, day in cells)
    days, label, most = (last - first).days + 1, _label(names), max(cells.values())
    side = max(_CELLS[0], min(_CELLS[1], (_WIDTH - label) // days))
    drawn = _labels(names, _CELLS[1])
    for (name, day), count in sorted(cells.items()):
        if not count:
            continue
        bad = troubled.get((name, day), 0)
        depth = 0.25 + 0.75 * (count / most) ** 0.5
        x, y = label + (day - first).days * side, 20 + names.index(name) * _CELLS[1]
        said = f"{name}, {day}: {count} messages" + (f", {bad} in trouble" if bad else "")
        drawn += (
            f'<rect x="{x}" y="{y}" width="{side - 1}" height="{_CELLS[1] - 2}" '
            f'fill="{BAD if bad else GOOD}" fill-opacity="{depth:.2f}">'
            f"<title>{escape(said)}</title></rect>"
        )
    width, height = max(label + days * side, label + 150), 24 + len(names) * _CELLS[1]
    key = (
        f'<p class="note">Darker is more; <i style="color:{BAD}">red</i> where a promise was '
        "broken or a message did not arrive for certain.</p>"
    )
    return _drawing(width, height, _ends(label, width, str(first), str(last)) + drawn) + key


def time_line(gaps: Sequence[tuple[str, Instant | None, Instant, str, str]]) -> str:
    """What is missing, on one line of time: where, since when, until when, in words, its state."""
    if not gaps:
        return ""
    instants = [at for _, before, after, *_ in gaps for at in (before, after) if at is not None]
    first, last = min(instants), max(*instants, min(instants) + 1)
    names = sorted({name for name, *_ in gaps})
    label, drawn = _label(names), _labels(names, 18)
    for name, before, after, said, state in gaps:
        y = 20 + names.index(name) * 18
        left = label + (_WIDTH - label - 4) * ((before or first) - first) // (last - first)
        right = label + (_WIDTH - label - 4) * (after - first) // (last - first)
        drawn += (
            f'<rect x="{left}" y="{y}" width="{max(4, right - left)}" height="12" '
            f'fill="{COLOURS.get(state, BAD)}"><title>{escape(said)}</title></rect>'
        )
    ends = _ends(label, _WIDTH, _when(first), _when(last))
    return _drawing(_WIDTH, 26 + len(names) * 18, ends + drawn)


def _label(names: Sequence[str]) -> int:
    """How much room the names take before a drawing begins."""
    return min(_LABEL_MAX, 10 + int(_LETTER * max(map(len, names))))


def _labels(names: Sequence[str], height: int) -> str:
    return "".join(
        f'<text x="0" y="{30 + row * height}" font-size="11">{escape(name[:40])}</text>'
        for row, name in enumerate(names)
    )


def _ends(label: int, width: int, first: str, last: str) -> str:
    return (
        f'<text x="{label}" y="12" font-size="11">{first}</text>'
        f'<text x="{width}" y="12" font-size="11" text-anchor="end">{last}</text>'
    )


def words(name: str) -> str:
    """A word of a table as people write it."""
    return name.replace("_", " ")


def _drawing(width: int, height: int, content: str) -> str:
    return (
        f'<div class="wide"><svg width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">{content}</svg></div>'
    )


def _when(at: Instant) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M")


def _nothing() -> str:
    return '<p class="note">None.</p>'
