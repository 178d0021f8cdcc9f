"""S10, ack integrity: an accepted acknowledgement answers something that was outstanding."""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    FAILED,
    FORWARDED,
    RESUMED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.message.header import AckRequest
from oncewire.protocol import notes

_PLAIN = notes.Acknowledged()


def judge(subject: Subject) -> None:
    """Each acknowledgement that a sending node accepted."""
    for trace in subject.traces:
        rows = trace.kinds.get(ACKNOWLEDGED)
        if rows is None:
            continue
        settled: Row | None = None
        for row in rows:
            said = _PLAIN if row.detail is None else notes.Acknowledged.read(row.detail)
            if said.by == "parts":
                # A document: it was never sent itself, and its parts are judged by themselves.
                continue
            if _judge_match(subject, trace, row, settled):
                _judge_given(subject, trace, row, said)
            _judge_signature(subject, trace, said)
            if said.final:
                settled = row


def _judge_match(subject: Subject, trace: Trace, row: Row, settled: Row | None) -> bool:
    sent = trace.first(SENT)
    if sent is None or sent.seq > row.seq:
        problem = "An acknowledgement was accepted before the message was sent."
    elif settled is not None and not _reopened(trace, settled.seq, row.seq):
        problem = "An acknowledgement was accepted though the message was settled already."
    elif row.peer not in (None, sent.peer) and not _answers(subject, trace, row.peer or ""):
        problem = f"An acknowledgement of {row.peer} was accepted, who was never sent the message."
    else:
        return True
    subject.found("S10", ViolationKind.UNMATCHED_ACK, trace.node, problem)
    return False


def _judge_given(subject: Subject, trace: Trace, row: Row, said: notes.Acknowledged) -> None:
    """Who is said to have given it, and has the message, gave one by that id.

    Where nobody's acknowledgements of it are here, nothing is known of their ids.
    """
    if row.ref_to is None or said.by != "ack" or subject.has(ViolationKind.UNMATCHED_ACK):
        return
    given = {
        ack.ref_to
        for other in subject.traces
        if other.node != trace.node
        for ack in other.kinds.get(ACK_SENT, ())
    }
    homes = subject.context.homes.get(row.peer or "", set())
    has_it = any(
        ACK_SENT in other.kinds for other in subject.traces if other.node in homes - {trace.node}
    )
    if has_it and row.ref_to not in given:
        subject.found(
            "S10",
            ViolationKind.UNMATCHED_ACK,
            trace.node,
            f"The acknowledgement {row.ref_to} was accepted, which {row.peer} never gave.",
        )


def _reopened(trace: Trace, after: int, before: int) -> bool:
    """A hub may take its acknowledgement back (HOP-9), an operator may resume."""
    return any(trace.between(kind, after, before) for kind in (FAILED, RESUMED))


def _answers(subject: Subject, trace: Trace, peer: str) -> bool:
    """Whether the peer is one the message went to; unknown names are given the benefit of doubt,
    because one party may have several ids."""
    homes = subject.context.homes
    if peer not in homes:
        return True
    asked = {
        row.peer
        for kind in (SENT, SUBMITTED, FORWARDED)
        for row in trace.kinds.get(kind, ())
        if row.peer is not None
    }
    return (
        not asked
        or peer in asked
        or any(name not in homes or homes[name] & homes[peer] for name in asked)
    )


def _judge_signature(subject: Subject, trace: Trace, said: notes.Acknowledged) -> None:
    if said.signed or said.by not in ("ack", "response"):
        return
    terms = subject.sending_terms(trace)
    wanted = terms.hop_ack_requested if said.hop else terms.ack_requested
    if wanted is AckRequest.SIGNED:
        subject.found(
            "S10",
            ViolationKind.UNSIGNED,
            trace.node,
            "A signed acknowledgement was agreed; the accepted one is not, or signs other content.",
        )
