"""S12, hops: an intermediary that took responsibility forwards the message or reports it."""

from __future__ import annotations

from oncewire.journal.predicates.delivery import judge_open
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import ACK_SENT, FAILED, FORWARDED, RESUMED, Trace
from oncewire.protocol.terms import HopMode


def judge(subject: Subject) -> None:
    """Each hub on the way, once every timer has run out."""
    if not subject.healed:
        return
    for trace in subject.traces:
        if FORWARDED in trace.kinds and _is_responsible(subject, trace):
            _judge_hub(subject, trace)


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
