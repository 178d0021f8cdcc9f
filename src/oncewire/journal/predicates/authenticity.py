"""S14, authentic: on a signed agreement, what is handed over lies in the verified node-set."""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import HANDED_OVER, RECEIVED
from oncewire.protocol import notes


def judge(subject: Subject) -> None:
    """Each node that handed over what it received."""
    for trace in subject.traces:
        if HANDED_OVER not in trace.kinds:
            continue
        for row in trace.kinds.get(RECEIVED, ()):
            if row.detail is None or "signature_required" not in row.detail:
                continue
            said = notes.Received.read(row.detail)
            if said.signature_required and said.signature != "verified":
                subject.found(
                    "S14",
                    ViolationKind.UNSIGNED,
                    trace.node,
                    "It was handed over, but its signature does not cover all that was used.",
                )
                return
