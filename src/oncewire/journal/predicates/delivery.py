"""S4, nothing lost, and L1, nothing for ever under way: judged once every timer has run out."""

from __future__ import annotations

from oncewire.journal.outcome import given_up_by
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    NOTIFIED,
    RECEIVED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.protocol import notes


def judge(subject: Subject) -> None:
    """Each handler that was given the message to deliver: where does it stand at the end?"""
    for trace in subject.traces:
        if ABANDONED in trace.kinds:
            _judge_given_up(subject, trace)
    if not subject.healed:
        return
    for trace in subject.traces:
        submitted = trace.first(SUBMITTED)
        if submitted is not None and subject.context.terms_of(submitted).reliable:
            _judge_submitted(subject, trace, submitted)
    if subject.submitted is None:
        for trace in subject.traces:
            if (ACK_SENT in trace.kinds or JOINED in trace.kinds) and trace.holds:
                _judge_promised(subject, trace)


def _judge_submitted(subject: Subject, trace: Trace, submitted: Row) -> None:
    standing = trace.standing
    if standing is not None and standing.kind == ACKNOWLEDGED:
        if not arrived(subject) and not subject.is_notice:
            _judge_acknowledged(subject, trace, submitted)
    elif standing is not None and standing.kind == FAILED:
        if not (subject.was_told(trace) or arrived(subject) or _is_part(submitted)):
            subject.found(
                "S4",
                ViolationKind.UNNOTIFIED,
                trace.node,
                "It failed, and its From Party was not told.",
            )
    else:
        judge_open(subject, trace, submitted)


def _is_part(submitted: Row) -> bool:
    """Whether its From Party is told of its document instead, which is judged by itself."""
    detail = submitted.detail
    return "split_number" in (detail or "") and notes.Submitted.read(detail).is_part


def _judge_promised(subject: Subject, trace: Trace) -> None:
    """Seen from the receiver alone: what it acknowledged or joined it hands over.

    On an ordered channel an earlier number may be missing, and only the channel's own fold can
    tell whose turn it is.
    """
    received = trace.first(RECEIVED)
    if received is not None:
        terms = subject.context.terms_of(received)
        said = received.detail or ""
        notice = "notice" in said and notes.Received.read(said).notice
        if notice or not terms.reliable or (terms.ordered and HANDED_OVER not in trace.kinds):
            return
    elif HANDED_OVER not in trace.kinds:
        return  # A document that was joined and not handed over is S13's matter.
    _judge_receiver(subject, trace)


def _judge_acknowledged(subject: Subject, trace: Trace, submitted: Row) -> None:
    """The To Party's handler has it and must hand it over; a hub's promise is S12's matter."""
    if NOTIFIED in trace.kinds:
        return
    # On an ordered channel it may be held behind a number that waits for the operator.
    held = subject.context.waits_for_operator(trace, submitted)
    for receiver in subject.traces:
        if receiver.holds and not (held and HANDED_OVER not in receiver.kinds):
            _judge_receiver(subject, receiver)


def _judge_given_up(subject: Subject, trace: Trace) -> None:
    """What a person gave up where it had arrived is lost, whenever that is asked: nothing that may
    still come changes it."""
    by = given_up_by(trace)
    received = trace.first(RECEIVED)
    promised = ACK_SENT in trace.kinds or JOINED in trace.kinds or subject.submitted is not None
    reliable = received is None or subject.context.terms_of(received).reliable
    if by is None or trace.confirmations or not (promised and reliable):
        return
    subject.found(
        "S4",
        ViolationKind.LOST,
        trace.node,
        f"It was given up by {by} where it had arrived: no application has it.",
    )


def _judge_receiver(subject: Subject, trace: Trace) -> None:
    if given_up_by(trace) is not None:
        return  # It is told already.
    if HANDED_OVER not in trace.kinds:
        received = trace.first(RECEIVED)
        if trace.called or (received is not None and subject.context.is_held_up(received)):
            return  # It, or one before it, is there and cannot go on: a person was told.
        if _given_up(trace) and subject.was_told(trace):
            # A notice that gets lost is judged by itself, as it is where the message went on.
            return
        subject.found(
            "S4",
            ViolationKind.LOST,
            trace.node,
            "It was acknowledged and stored, but never handed over.",
        )
    elif not trace.confirmations:
        subject.found(
            "S4",
            ViolationKind.UNCONFIRMED,
            trace.node,
            "It was handed over, but no application ever confirmed it.",
        )


def _given_up(trace: Trace) -> bool:
    """Whether this is a hub whose operator gave the message up before it went on (HOP-9)."""
    kinds = trace.kinds
    return ABANDONED in kinds and FAILED in kinds and SUBMITTED not in kinds


def judge_open(subject: Subject, trace: Trace, row: Row) -> None:
    """No acknowledgement and no failure: excused only while the operator is waited for."""
    if subject.context.waits_for_operator(trace, row):
        return
    if arrived(subject):
        subject.found(
            "L1",
            ViolationKind.UNFINISHED,
            trace.node,
            "It arrived and all its timers have run out, but its sender has no outcome for it.",
        )
    else:
        was = "sent" if SENT in trace.kinds else "taken for delivery, never sent"
        subject.found(
            "S12" if FORWARDED in trace.kinds else "S4",
            ViolationKind.LOST,
            trace.node,
            f"It was {was}, no application has it, and nobody was told.",
        )


def arrived(subject: Subject) -> bool:
    """Whether an application has it, or the document that it is a part of."""
    return any(trace.confirmations for trace in subject.traces)
