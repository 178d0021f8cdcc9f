"""S3, acknowledged means durable: first the store, then the answer, and the store remembers."""

from __future__ import annotations

from oncewire.journal.outcome import elapsed
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    DUPLICATE,
    FORWARDED,
    PASSED_ON,
    RECEIVED,
    SENT,
    Trace,
)
from oncewire.protocol import notes

STORED = frozenset({RECEIVED, FORWARDED, DUPLICATE})
"""Kinds that show a node has, or had, the message in its store."""


def judge(subject: Subject) -> None:
    """Each node by itself, then each acknowledgement against the node that gave it."""
    for trace in subject.traces:
        kinds = trace.kinds
        if ACK_SENT in kinds:
            _judge_ack_sent(subject, trace)
        if len(kinds.get(RECEIVED, ())) > 1:
            _judge_memory(subject, trace)
        if ACKNOWLEDGED in kinds and subject.healed:
            for row in kinds[ACKNOWLEDGED]:
                _judge_acknowledged(subject, trace, row)


def _judge_ack_sent(subject: Subject, trace: Trace) -> None:
    acknowledged = trace.kinds[ACK_SENT][0]
    stored = trace.first(RECEIVED) or trace.first(FORWARDED)
    if stored is None or stored.seq > acknowledged.seq:
        subject.found(
            "S3",
            ViolationKind.ACK_WITHOUT_STORE,
            trace.node,
            "Its acknowledgement left before the message was stored.",
        )


def _judge_memory(subject: Subject, trace: Trace) -> None:
    """A first copy is first only once while the id is remembered (DRV-4).

    A message handed over twice for this very reason is S2's finding already.
    """
    if subject.has(ViolationKind.TWICE):
        return
    first: dict[tuple[str | None, str | None], Row] = {}
    for row in trace.kinds[RECEIVED]:
        before = first.setdefault((row.peer, row.digest), row)
        terms = subject.context.terms_of(before)
        if before is row or not terms.reliable or terms.repeats_pass:
            continue
        if elapsed(before, row) <= terms.persist_duration:
            subject.found(
                "S3",
                ViolationKind.FORGOTTEN,
                trace.node,
                "A copy was stored as if it were the first: the node had forgotten the message.",
            )
            return


def _judge_acknowledged(subject: Subject, trace: Trace, row: Row) -> None:
    """Whoever acknowledged must have it; a status answer or a product's report is no such word.

    An acknowledgement that should not have been accepted at all is S10's finding already.
    """
    if subject.has(ViolationKind.UNMATCHED_ACK):
        return
    if row.detail is not None and notes.Acknowledged.read(row.detail).by not in (
        "ack",
        "response",
    ):
        return
    peer = row.peer
    if peer is None:
        sent = trace.last(SENT)
        peer = sent.peer if sent is not None else None
    silent = _without_it(subject, peer)
    if silent is not None and not _is_cut_off(subject, silent, row):
        subject.found(
            "S3",
            ViolationKind.ACK_WITHOUT_STORE,
            trace.node,
            f"{silent} acknowledged it, but its journal does not have it.",
        )


def _is_cut_off(subject: Subject, silent: str, row: Row) -> bool:
    """Whether the journal of who gave the acknowledgement ends before it: that is told instead."""
    context = subject.context
    ends = [context.ended_before(node, row.at) for node in sorted(context.homes[silent])]
    if None in ends:
        return False
    subject.tell(ends[0])
    return True


def _without_it(subject: Subject, peer: str | None) -> str | None:
    """Who must have given the acknowledgement and does not have the message; None: nobody, or
    nobody whose journal is here.

    A hub that passed the message on promises nothing and acknowledges nothing: the word came
    through it, from whoever it passed the message on to.
    """
    asked: set[str] = set()
    while peer is not None and peer not in asked:
        asked.add(peer)
        homes = subject.context.homes.get(peer)
        if homes is None:
            return None
        here = [trace for trace in subject.traces if trace.node in homes]
        if any(not STORED.isdisjoint(trace.kinds) for trace in here):
            return None
        passed = [row for trace in here for row in trace.kinds.get(PASSED_ON, ())]
        if not passed:
            return peer
        peer = passed[0].peer
    return None
