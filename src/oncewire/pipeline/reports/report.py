"""The report: what a lake shows, as one static page for people and a CSV for each partner.

The page needs no network and no script: numbers are text, pictures are drawn as SVG and CSS.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import Any

from oncewire.journal.history import in_words
from oncewire.journal.predicates.context import QUARANTINE
from oncewire.message.instant import SECOND, Instant
from oncewire.pipeline.lake.lake import Lake, count_values
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.lake.version import Version, safe_name, write_forced

# The pieces of the report's page: HTML and SVG as text, every value escaped.


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
"""An outcome that is not named here is a broken promise, or a number without an explanation."""
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
    return drawing(width, height, _ends(label, width, str(first), str(last)) + drawn) + key


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
    return drawing(_WIDTH, 26 + len(names) * 18, ends + drawn)


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


def drawing(width: int, height: int, content: str) -> str:
    """A picture of that size, which may be scrolled where it is wider than the page."""
    return (
        f'<div class="wide"><svg width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">{content}</svg></div>'
    )


def _when(at: Instant) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M")


def _nothing() -> str:
    return '<p class="note">None.</p>'


SHOWN_MAX = 200
"""Rows of one table of the page; the CSV of a partner has all of its own."""

_CSV = {
    "messages": "messages",
    "delivered": "delivered_count",
    "not_delivered": "not_delivered_count",
    "unknown": "unknown_count",
    "in_flight": "in_flight_count",
    "best_effort": "best_effort_count",
    "arrived": "arrived_count",
    "violations": "with_findings_count",
    "resends": "resends",
    "duplicates_stopped": "duplicates_stopped",
    "late_acks": "late_acks",
}
"""What a partner's file counts, and the columns of partner service that it adds up."""

_TROUBLE = ("with_findings_count", "not_delivered_count", "unknown_count")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the page is made of."""

    version: Version
    verdicts: dict[str, int]
    service: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    gaps: list[dict[str, Any]]
    judged: list[dict[str, Any]]
    moments: dict[str, int]
    """When the neighbours of gaps were submitted or received."""


_NEIGHBOURS = ("after_message_id", "before_message_id")


def gather(lake: Lake) -> Facts:
    """Read the gold tables of the published version."""
    version = lake.shown()

    def rows(name: str) -> list[dict[str, Any]]:
        import pyarrow.dataset as ds

        return [
            row
            for entry in OPEN[name].entries(version)
            for row in ds.dataset(lake.root / entry.path, format="parquet").to_table().to_pylist()
        ]

    tables = ("ledger_closed", "ledger_open")
    verdicts = count_values(lake, version, "verdict", *tables, empty="part_of")
    gaps = rows("sequence_gaps")
    folders = [folder for each_table in tables for folder in lake.folders(version, each_table)]
    return Facts(
        version,
        dict(sorted(verdicts.items())),
        rows("partner_service"),
        rows("violations"),
        gaps,
        rows("judged"),
        _moments(folders, {gap[name] for gap in gaps for name in _NEIGHBOURS} - {None}),
    )


def _moments(folders: list[str], message_ids: set[str]) -> dict[str, int]:
    """When messages were submitted, or else received."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    found: dict[str, int] = {}
    wanted = pc.field("message_id").isin(pa.array(sorted(message_ids), pa.string()))
    columns = ["message_id", "submitted_at", "received_at"]
    for folder in folders if message_ids else ():
        for row in (
            ds.dataset(folder, format="parquet").to_table(columns, filter=wanted).to_pylist()
        ):
            at = row["submitted_at"] or row["received_at"]
            if at is not None:
                found[row["message_id"]] = int(at.timestamp() * SECOND)
    return found


def sentence(facts: Facts) -> str:
    """The verdict in one sentence."""
    messages = sum(facts.verdicts.values())
    broken = [finding for finding in facts.findings if finding["predicate"] != QUARANTINE]
    wrong = len(facts.findings) - len(broken)
    waiting = sum(row["not_yet_count"] for row in facts.judged)
    doubted = sum(row["in_doubt_count"] for row in facts.judged)
    judged = messages - waiting - doubted
    if not facts.findings and not judged and messages:
        said = "No promise was found broken."
    elif not facts.findings:
        said = f"Every promise was kept for {judged:,} messages."
    else:
        said = f"{len(broken):,} promises are broken in {messages:,} messages"
        said += f", and {wrong:,} things are wrong with the journals." if wrong else "."
    if waiting:
        said += f" {waiting:,} messages are not judged yet."
    if doubted:
        said += f" {doubted:,} are in doubt because rows are missing."
    return said


def render(facts: Facts, title: str) -> str:
    """The page."""
    good = not facts.findings
    return page(
        title,
        [
            f'<p class="verdict {"good" if good else "bad"}">{escape(sentence(facts))}</p>',
            section("Outcomes", bar(facts.verdicts)),
            section("Partners by day", _partners_by_day(facts.service)),
            section("Latency", _latency(facts.service)),
            section("Gaps in the numbers", _gaps(facts)),
            section("Causes by frequency", _causes(facts.findings)),
            section("Best effort", _best_effort(facts.service)),
            section("What was judged, and what not", _judged(facts.judged)),
            section("Findings", _findings(facts.findings)),
            (
                f"<footer>Version {facts.version.number} of the lake, judged by rules "
                f"{escape(str(facts.version.judged.get('rules', 'none')))}.</footer>"
            ),
        ],
    )


def _day(row: dict[str, Any]) -> date:
    hour: datetime = row["hour"]
    return hour.date()


def _partners_by_day(service: list[dict[str, Any]]) -> str:
    cells: Counter[tuple[str, date]] = Counter()
    troubled: Counter[tuple[str, date]] = Counter()
    for row in service:
        if row["hour"] is None:
            continue
        key = f"{row['partner'] or 'unknown'} ({row['direction']})", _day(row)
        cells[key] += row["messages"]
        troubled[key] += sum(row[name] for name in _TROUBLE)
    return heat_map(cells, troubled)


def _latency(service: list[dict[str, Any]]) -> str:
    """Hours are not averaged: for each partner the median hour, and the worst one."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in service:
        if row["latency_p50_us"] is not None:
            found.setdefault((row["partner"] or "", row["direction"]), []).append(row)
    rows = []
    for (partner, direction), hours in sorted(found.items()):
        middle = [
            sorted(hour[name] for hour in hours)[len(hours) // 2]
            for name in ("latency_p50_us", "latency_p95_us", "latency_p99_us")
        ]
        worst = max(hour["latency_p99_us"] for hour in hours)
        rows.append((partner, direction, *map(lasting, (*middle, worst))))
    head = ("partner", "direction", "p50", "p95", "p99", "worst hour's p99")
    return table(head, rows, SHOWN_MAX)


def lasting(micros: float) -> str:
    """How long something took, as people say it."""
    seconds = micros / SECOND
    if seconds < 60:
        return in_words(round(micros))
    return f"{seconds / 60:.1f} min" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"


def _gaps(facts: Facts) -> str:
    states = Counter(gap["state"] for gap in facts.gaps)
    rows = [
        (gap["node"], gap["channel"], gap["side"], gap["epoch"], gap["first_missing"],
         gap["missing_count"], words(gap["state"]))
        for gap in sorted(facts.gaps, key=lambda row: (row["state"], row["channel"]))
    ]  # fmt: skip
    head = ("node", "channel", "side", "epoch", "first", "how many", "state")
    return time_line(_missing(facts)) + bar(dict(states)) + table(head, rows, SHOWN_MAX)


def _missing(facts: Facts) -> list[tuple[str, int | None, int, str, str]]:
    """Holes in journals and gaps in numbers, by when that was; numbers by their neighbours."""
    found: list[tuple[str, int | None, int, str, str]] = [
        (
            f"{name}: rows",
            hole.before,
            hole.after,
            f"{name}: {hole.last - hole.first + 1} rows are missing",
            "rows",
        )
        for name, state in sorted(facts.version.nodes.items())
        for hole in state.holes
    ]
    for gap in facts.gaps:
        around = [facts.moments.get(gap[name]) for name in _NEIGHBOURS]
        known = [moment for moment in around if moment is not None]
        if known:
            numbers = f"{gap['missing_count']} from {gap['first_missing']}"
            said = f"{gap['channel']}: {numbers}, {gap['state']}"
            found.append((gap["node"], min(known), max(known), said, gap["state"]))
    return found


def _causes(findings: list[dict[str, Any]]) -> str:
    counted = Counter((finding["predicate"], finding["kind"]) for finding in findings)
    rows = [(predicate, words(kind), count) for (predicate, kind), count in counted.most_common()]
    return table(("predicate", "kind", "how often"), rows, SHOWN_MAX)


def _best_effort(service: list[dict[str, Any]]) -> str:
    sent: Counter[str] = Counter()
    arrived: Counter[str] = Counter()
    for row in service:
        if row["direction"] == "out" and row["best_effort_count"]:
            sent[row["partner"] or ""] += row["best_effort_count"]
            arrived[row["partner"] or ""] += row["arrived_count"]
    rows = [
        (partner, count, arrived[partner], f"{arrived[partner] / count:.1%}")
        for partner, count in sorted(sent.items())
    ]
    return table(("partner", "sent", "seen to arrive", "share"), rows, SHOWN_MAX)


def _judged(judged: list[dict[str, Any]]) -> str:
    # Ways that differ only in their terms are one to a reader.
    ways: dict[tuple[str, ...], Counter[str]] = {}
    for row in judged:
        through = row["through_at"]
        way = (
            row["sender"] or "",
            row["partner"] or row["receiver"] or "",
            row["channel"] or "",
            "everything" if through is None else f"{through:%Y-%m-%d %H:%M} UTC",
            row["clock"],
        )
        counted = ways.setdefault(way, Counter(not_yet=0, in_doubt=0))
        counted.update(not_yet=row["not_yet_count"], in_doubt=row["in_doubt_count"])
    ordered = sorted(ways.items(), key=lambda pair: (-pair[1].total(), pair[0]))
    rows = [
        (*way[:3], counted["not_yet"], counted["in_doubt"], *way[3:]) for way, counted in ordered
    ]
    head = ("sender", "partner", "channel", "not yet", "in doubt", "through", "clock")
    return table(head, rows, SHOWN_MAX)


def _findings(findings: list[dict[str, Any]]) -> str:
    rows = [
        (
            words(finding["kind"]),
            finding["message_id"] or "",
            finding["node"] or "",
            finding["sentence"],
        )
        for finding in findings
    ]
    return table(("kind", "message", "node", "what"), rows, SHOWN_MAX)


# --- for a partner ----------------------------------------------------------------------------


def partner_csvs(facts: Facts) -> dict[str, str]:
    """For each partner a file's name and its text: a day and a direction a line."""
    days: dict[str, dict[tuple[date, str], Counter[str]]] = {}
    for row in facts.service:
        if row["partner"] is None or row["hour"] is None:
            continue
        counts = days.setdefault(row["partner"], {}).setdefault(
            (_day(row), row["direction"]), Counter()
        )
        counts.update({name: row[column] for name, column in _CSV.items()})
    return {
        f"{safe_name(partner)}.csv": _csv(
            (day, direction, *(counts[name] for name in _CSV))
            for (day, direction), counts in sorted(found.items())
        )
        for partner, found in sorted(days.items())
    }


def _csv(rows: Iterable[tuple[Any, ...]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(("day", "direction", *_CSV))
    writer.writerows(rows)
    return written.getvalue()


def write(lake: Lake, out: Path, folder: Path | None = None) -> Facts:
    """Write the page, and with a folder each partner's file into it."""
    facts = gather(lake)
    write_forced(out, render(facts, f"Ledger of {lake.root.name}"))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in partner_csvs(facts).items():
            write_forced(folder / name, text)
    return facts
