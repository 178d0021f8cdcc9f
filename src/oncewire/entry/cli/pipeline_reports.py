"""What the commands of `oncewire pipeline` answer, as reports for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from oncewire.entry.cli.output import OK, WRONG, Listing, Report
from oncewire.entry.number import number_of

if TYPE_CHECKING:
    from oncewire.pipeline.check import Verification
    from oncewire.pipeline.jobs import Done
    from oncewire.pipeline.proof import Difference, Proven
    from oncewire.pipeline.reconcile import Reconciliation
    from oncewire.pipeline.version import NodeState

SHOWN_MAX = 20
"""Rows of a table for people; `--json` has all of them."""


def report_of_run(done: Done, lake: str) -> Report:
    """What a run of the pipeline did."""
    return Report(
        facts={
            "lake": str(lake),
            "version": done.version,
            "rows": done.rows,
            "quarantined": done.quarantined,
            "envelopes": done.envelopes,
            "unreadable": done.unreadable,
            "cut_off": done.cut_off,
            "messages": done.messages,
            "violations": done.violations,
        },
        listings=(
            Listing("verdicts", ("verdict", "messages"), list(done.verdicts.items()), "Ledger"),
        ),
        summary=f"{number_of(done.messages, 'message')} in the ledger, "
        f"{number_of(done.violations, 'violation')}",
        hints=(f"oncewire pipeline verify --lake {quote(str(lake))}",),
    )


def report_of_check(found: Verification, *, json: bool) -> Report:
    """Which promises the journals show broken, and how far they were judged."""
    facts: dict[str, Any] = {
        "clean": found.clean,
        "messages": found.messages,
        "parts": found.parts,
        "rows": found.rows,
        "nodes": found.nodes,
        "outcomes": found.outcomes,
        "kinds": found.kinds,
        "rows_quarantined": found.rows_quarantined,
        "extents": found.extents,
        "not_judged_yet": found.extents.get("not_yet", 0),
        "in_doubt": found.extents.get("in_doubt", 0),
        "rules": found.rules,
        "unchained": len(found.unchained),
    }
    columns = ("kind", "message_id", "predicate", "node", "channel", "sentence")
    every = [_values(violation, columns) for violation in (*found.violations, *found.quarantined)]
    listings = [
        Listing("findings", columns, every if json else every[:SHOWN_MAX]),
        _extents_of_check(found, json=json),
    ]
    if found.unchained:
        listings.append(Listing("unchained", *_differences(found.unchained)))
    if json:
        short = ("kind", "message_id")
        listings.insert(
            0,
            Listing(
                "violations", short, [_values(violation, short) for violation in found.violations]
            ),
        )
    unjudged, unchained = len(found.quarantined), len(found.unchained)
    waiting, doubted = (found.extents.get(name, 0) for name in ("not_yet", "in_doubt"))
    return Report(
        facts=facts,
        listings=tuple(listings),
        summary=f"{number_of(len(found.violations), 'violation')} in "
        f"{number_of(found.messages, 'message')}"
        + (f" and {number_of(found.parts, 'part')} of documents" if found.parts else "")
        + (f", {number_of(unchained, 'range')} of rows unchained" if unchained else "")
        + (f", {number_of(unjudged, 'thing')} wrong with the journals" if unjudged else "")
        + (f", {number_of(waiting, 'message')} {_NOT_YET}" if waiting else "")
        + (f", {doubted:,} in doubt" if doubted else ""),
        exit_code=OK if found.clean else WRONG,
    )


_NOT_YET = "not judged yet, for what is missing of them may still come by their agreements"


def _extents_of_check(found: Verification, *, json: bool) -> Listing:
    """How far each channel was judged, those furthest behind first."""
    columns = ("sender", "receiver", "partner", "channel", "through", "clock", "messages",
               "not_yet", "in_doubt")  # fmt: skip
    ordered = sorted(
        found.judged, key=lambda row: (-row["not_yet"], str(row["through"]), str(row["channel"]))
    )
    rows = [[shown(row[name]) for name in columns] for row in ordered]
    return Listing("judged", columns, rows if json else rows[:SHOWN_MAX], "Judged through")


def shown(value: Any) -> Any:
    """A value of a table as JSON can carry it."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def report_of_proof(
    found: Sequence[Proven], nodes: Mapping[str, NodeState], *, signed: bool | None = None
) -> Report:
    """What is not as it was taken in; and whether the version has the signature it must have."""
    differences = [difference for proven in found for difference in proven.differences]
    count = sum(proven.rows for proven in found)
    shown = {} if signed is None else {"signed": signed}
    return Report(
        facts={
            **shown,
            "unchanged": not differences,
            "rows": count,
            "heads": {name: state.chain for name, state in sorted(nodes.items())},
        },
        listings=(Listing("differences", *_differences(differences)),),
        summary=f"{number_of(len(differences), 'difference')} in {number_of(count, 'row')}"
        + ("; the signature is of another version, or by another key" if signed is False else ""),
        exit_code=WRONG if differences or signed is False else OK,
    )


def _differences(found: Sequence[Difference]) -> tuple[tuple[str, ...], list[list[Any]]]:
    columns = ("node", "seq", "what", "sentence")
    return columns, [_values(difference, columns) for difference in found]


def report_of_books(found: Reconciliation, *, json: bool) -> Report:
    """Where the books of two parties disagree."""
    columns = (
        "message_id", "disagreement", "sender", "receiver", "sender_says", "receiver_says",
        "sender_proof", "receiver_proof", "sentence",
    )  # fmt: skip
    rows = [[disagreement[name] for name in columns] for disagreement in found.disagreements]
    ours, theirs = found.parties
    return Report(
        facts={
            "parties": list(found.parties),
            "compared": found.compared,
            "agreed": found.agreed,
            "kinds": found.kinds,
        },
        listings=(Listing("disagreements", columns, rows if json else rows[:SHOWN_MAX]),),
        summary=f"{ours} and {theirs} agree on {found.agreed:,} of "
        f"{number_of(found.compared, 'message')}",
        exit_code=OK if not found.disagreements else WRONG,
    )


def _values(found: Any, columns: tuple[str, ...]) -> list[Any]:
    return [getattr(found, name) for name in columns]
