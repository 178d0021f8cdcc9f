"""L3, calm: where nothing goes wrong every message arrives, and nobody is told of a failure.

Judged only where the world says of itself that it was calm: no journal can prove that. Every
other promise is kept by a handler that fails each message and says so; this one is not.
"""

from __future__ import annotations

from oncewire.journal.predicates.delivery import arrived
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import (
    ABANDONED,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    INCIDENT,
    NOTIFIED,
    REFUSED,
    REJECTED,
    SUSPENDED,
)

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


def judge(subject: Subject) -> None:
    """Each message, and each signal that somebody threw away."""
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
