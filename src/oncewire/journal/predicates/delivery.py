"""S4, nothing lost, and L1, nothing for ever under way: judged once every timer has run out."""

from __future__ import annotations

from oncewire.journal.outcome import given_up_by
from oncewire.journal.predicates.context import Subject, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    INCIDENT,
    JOINED,
    NOTIFIED,
    PASSED_ON,
    RECEIVED,
    REFUSED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    SUSPENDED,
    Trace,
)
from oncewire.protocol import notes
from oncewire.protocol.terms import HopMode


def judge_delivery(subject: Subject) -> None:
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


# L3, calm: where nothing goes wrong every message arrives, and no failure is told.
#
# Judged only where the world says of itself that it was calm: no journal can prove that. Every
# other promise is kept by a handler that fails each message and says so; this one is not.


ALARMS = (
    FAILED,
    NOTIFIED,
    REJECTED,
    REFUSED,
    EXHAUSTED,
    EXPIRED,
    SUSPENDED,
    ABANDONED,
    INCIDENT,
)
"""Kinds that tell of trouble, the plainest first."""


def judge_calm(subject: Subject) -> None:
    """Each message, and each signal that was refused."""
    if not subject.context.calm:
        return
    for alarm in ALARMS:
        for trace in subject.traces:
            if alarm in trace.kinds and not subject.has(ViolationKind.WRONG_OUTCOME):
                subject.found(
                    "L3",
                    ViolationKind.WRONG_OUTCOME,
                    trace.node,
                    f"Nothing went wrong in this world, and it has a row {alarm!r}.",
                )
    if subject.submitted is None or arrived(subject) or subject.has(ViolationKind.LOST):
        return
    subject.found(
        "L3",
        ViolationKind.LOST,
        subject.submitted.node,
        "Nothing went wrong in this world, and no application has it.",
    )


# S12, hops: an intermediary that took responsibility forwards the message or reports it, and what
# reports it arrives or is the operator's to know of (C33).
#
# A notice that is reliable is judged like any message (S4). One that is sent with best effort, as
# earlier versions did under ebMS 2.0, and one that only passes a hub are judged here.


def judge_hop(subject: Subject) -> None:
    """Each hub on the way, once every timer has run out."""
    if not subject.healed:
        return
    for trace in subject.traces:
        if FORWARDED in trace.kinds:
            if _is_responsible(subject, trace):
                _judge_hub(subject, trace)
        elif SENT in trace.kinds and not _is_known_of(trace):
            _judge_notice(subject, trace)


def _is_responsible(subject: Subject, trace: Trace) -> bool:
    """Its acknowledgement is the promise (HOP-8); storing and forwarding is one by itself."""
    terms = subject.context.terms_of(trace.kinds[FORWARDED][0])
    promised = ACK_SENT in trace.kinds or terms.hop_mode is HopMode.STORE_AND_FORWARD
    return promised and terms.reliable


def _judge_hub(subject: Subject, trace: Trace) -> None:
    standing = trace.standing
    if standing is None or standing.kind == RESUMED:
        judge_open(subject, trace, trace.kinds[FORWARDED][0])
    elif standing.kind == FAILED and not subject.was_told(trace):
        subject.found(
            "S12",
            ViolationKind.UNNOTIFIED,
            trace.node,
            "This hub took responsibility, failed, and did not tell the From Party.",
        )


def _is_known_of(trace: Trace) -> bool:
    """Whether what this node sent was acknowledged, or its operator knows that it was not."""
    return any(kind in trace.kinds for kind in (ACKNOWLEDGED, INCIDENT, ABANDONED))


def _judge_notice(subject: Subject, trace: Trace) -> None:
    submitted = trace.first(SUBMITTED)
    if submitted is None:
        # Of what passes, only a report is stored and repeated.
        owed = PASSED_ON in trace.kinds
    elif not subject.is_notice or subject.context.terms_of(submitted).reliable:
        return
    else:
        # Sent once: the last that is known of it is that no transport took it.
        last = trace.last(SENT, SEND_FAILED)
        owed = last is not None and last.kind == SEND_FAILED
    if owed:
        subject.found(
            "S12",
            ViolationKind.UNNOTIFIED,
            trace.node,
            "It tells the From Party of a failure, nobody took it, and the operator was not told.",
        )
