"""The report: what a lake shows, as one static page for people and a CSV for each partner.

The page needs no network and no script: numbers are text, pictures are drawn as SVG and CSS.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from html import escape
from pathlib import Path
from typing import Any

from oncewire.journal.history import in_words
from oncewire.journal.predicates.violation import QUARANTINE
from oncewire.message.instant import SECOND
from oncewire.pipeline.files import safe_name, write_forced
from oncewire.pipeline.lake import Lake, count_values
from oncewire.pipeline.report_page import bar, heat_map, page, section, table, time_line, words
from oncewire.pipeline.tables import OPEN
from oncewire.pipeline.version import Version

SHOWN_MAX = 200
"""Rows of one table of the page; the CSV of a partner has all of its own."""

_PARTNER_COLUMNS = (
    "day", "direction", "messages", "delivered", "not_delivered", "unknown", "in_flight",
    "best_effort", "arrived", "violations", "resends", "duplicates_stopped", "late_acks",
)  # fmt: skip


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
    version = lake.current()

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
    waiting = sum(row["not_yet"] for row in facts.judged)
    doubted = sum(row["in_doubt"] for row in facts.judged)
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
        troubled[key] += row["violations"] + row["not_delivered"] + row["unknown"]
    return heat_map(cells, troubled)


def _latency(service: list[dict[str, Any]]) -> str:
    """Hours are not averaged: for each partner the median hour, and the worst one."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in service:
        if row["latency_p50"] is not None:
            found.setdefault((row["partner"] or "", row["direction"]), []).append(row)
    rows = []
    for (partner, direction), hours in sorted(found.items()):
        middle = [
            sorted(hour[name] for hour in hours)[len(hours) // 2]
            for name in ("latency_p50", "latency_p95", "latency_p99")
        ]
        worst = max(hour["latency_p99"] for hour in hours)
        rows.append((partner, direction, *map(lasting, (*middle, worst))))
    head = ("partner", "direction", "p50", "p95", "p99", "worst hour's p99")
    return table(head, rows, SHOWN_MAX)


def lasting(seconds: float) -> str:
    """How long something took, as people say it."""
    if seconds < 60:
        return in_words(round(seconds * SECOND))
    return f"{seconds / 60:.1f} min" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"


def _gaps(facts: Facts) -> str:
    states = Counter(gap["state"] for gap in facts.gaps)
    rows = [
        (gap["node"], gap["channel"], gap["side"], gap["epoch"], gap["first_missing"],
         gap["missing"], words(gap["state"]))
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
            said = f"{gap['channel']}: {gap['missing']} from {gap['first_missing']}, {gap['state']}"
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
        if row["direction"] == "out" and row["best_effort"]:
            sent[row["partner"] or ""] += row["best_effort"]
            arrived[row["partner"] or ""] += row["arrived"]
    rows = [
        (partner, count, arrived[partner], f"{arrived[partner] / count:.1%}")
        for partner, count in sorted(sent.items())
    ]
    return table(("partner", "sent", "seen to arrive", "share"), rows, SHOWN_MAX)


def _judged(judged: list[dict[str, Any]]) -> str:
    # Ways that differ only in their terms are one to a reader.
    ways: dict[tuple[str, ...], Counter[str]] = {}
    for row in judged:
        through = row["through"]
        way = (
            row["sender"] or "",
            row["partner"] or row["receiver"] or "",
            row["channel"] or "",
            "everything" if through is None else f"{through:%Y-%m-%d %H:%M} UTC",
            row["clock"],
        )
        counted = ways.setdefault(way, Counter(not_yet=0, in_doubt=0))
        counted.update(not_yet=row["not_yet"], in_doubt=row["in_doubt"])
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
        counts.update({name: row[name] for name in _PARTNER_COLUMNS[2:]})
    return {
        f"{safe_name(partner)}.csv": _csv(
            (day, direction, *(counts[name] for name in _PARTNER_COLUMNS[2:]))
            for (day, direction), counts in sorted(found.items())
        )
        for partner, found in sorted(days.items())
    }


def _csv(rows: Iterable[tuple[Any, ...]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(_PARTNER_COLUMNS)
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
