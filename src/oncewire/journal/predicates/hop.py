"""S12, hops: an intermediary that took responsibility forwards the message or reports it, and what
reports it arrives or is the operator's to know of (C33).

A notice that is reliable is judged like any message (S4). One that is sent with best effort, as
earlier versions did under ebMS 2.0, and one that only passes a hub are judged
here.
"""

from __future__ import annotations

from oncewire.journal.predicates.delivery import judge_open
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    FAILED,
    FORWARDED,
    INCIDENT,
    PASSED_ON,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.protocol.terms import HopMode


def judge(subject: Subject) -> None:
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
    """Whether somebody has what this node sent, or its operator knows that nobody has."""
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
