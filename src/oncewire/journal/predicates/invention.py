"""S1, no invention: what is handed over was submitted, with the same content, at its From Party."""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    CONFIRMED,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    PASSED_ON,
    RECEIVED,
    SUBMITTED,
    Trace,
)
from oncewire.protocol import notes

_PASSING = {FORWARDED, PASSED_ON}


def judge(subject: Subject) -> None:
    """Each node that handed the message over, against the submissions of its From Party."""
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        if rows is None:
            if CONFIRMED in trace.kinds:
                subject.found(
                    "S1",
                    ViolationKind.INVENTED,
                    trace.node,
                    "It was confirmed, but it was never handed over.",
                )
            continue
        if JOINED in trace.kinds:
            continue
        received = trace.kinds.get(RECEIVED)
        if received is None:
            _judge_unreceived(subject, trace, rows[0])
            continue
        for row in rows:
            # The digest covers the From Party, so an equal one is of the right submission.
            if row.digest not in subject.submitted_digests:
                _judge_origin(subject, trace, row, received)


def _judge_unreceived(subject: Subject, trace: Trace, row: Row) -> None:
    """Best-effort messages need no store (RM-6); all others are stored first (RM-18)."""
    if "split_id" in (row.detail or "") and (
        notes.HandedOver.read(row.detail).split_id == row.message_id
    ):
        return  # A whole document: S13 asks for its parts.
    source = row if row.terms_id is not None else subject.submitted
    if source is None or subject.context.terms_of(source).reliable:
        subject.found(
            "S1",
            ViolationKind.INVENTED,
            trace.node,
            "It was handed over, but this node never received it.",
        )


def _judge_origin(subject: Subject, trace: Trace, row: Row, received: list[Row]) -> None:
    """No submission has this content: was there another, or none at all?"""
    context = subject.context
    arrival = next((each for each in received if each.digest == row.digest), received[0])
    digest = row.digest or arrival.digest
    peer = _origin(subject, arrival.peer)
    if context.declared:
        # Another partner may use the same MessageId; only the From Party's own word counts.
        homes = context.homes.get(peer or "", set())
        digests = {
            submitted.digest
            for each in subject.traces
            if each.node in homes
            for submitted in each.kinds.get(SUBMITTED, ())
        }
    else:
        digests = {*subject.submitted_digests}
    if digests and digest not in digests:
        kind, problem = ViolationKind.ALTERED, "with other content than was submitted"
    elif not digests and subject.healed and context.has_journal_of(peer):
        kind, problem = ViolationKind.INVENTED, f"but {peer} never submitted it"
    else:
        return
    if not subject.has(kind):
        subject.found("S1", kind, trace.node, f"It was handed over, {problem}.")


def _origin(subject: Subject, peer: str | None) -> str | None:
    """Who must have submitted what came from a peer: behind a hub, whom the hub has it from."""
    asked: set[str] = set()
    while peer is not None and peer not in asked:
        asked.add(peer)
        homes = subject.context.homes.get(peer, set())
        hubs = [
            each
            for each in subject.traces
            if each.node in homes and SUBMITTED not in each.kinds and _PASSING & each.kinds.keys()
        ]
        if not hubs:
            return peer
        arrivals = hubs[0].kinds.get(RECEIVED)
        peer = arrivals[0].peer if arrivals else None
    return peer
