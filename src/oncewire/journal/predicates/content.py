"""S9, same id, same content: a copy is a copy, and other content under a known id is refused."""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import DUPLICATE, RECEIVED, SUBMITTED, Trace


def judge(subject: Subject) -> None:
    """Each node by the digests it wrote down; S15 and S1 have compared the hand-over."""
    if subject.has(ViolationKind.ALTERED):
        return
    for trace in subject.traces:
        problem = _problem(trace)
        if problem is not None:
            subject.found("S9", ViolationKind.ALTERED, trace.node, problem)
            return


def _problem(trace: Trace) -> str | None:
    kinds = trace.kinds
    submissions = kinds.get(SUBMITTED)
    if submissions is not None and len(submissions) > 1 and len(_digests(submissions)) > 1:
        return "Two messages with different content were submitted under one MessageId."
    received = kinds.get(RECEIVED)
    if received is None:
        return None
    digests = _digests(received)
    if len(received) > 1 and len(digests) > len({row.peer for row in received}):
        return "One party's MessageId was accepted twice, with different content."
    for row in kinds.get(DUPLICATE, ()):
        if row.digest is not None and row.digest not in digests:
            return "Other content under a known MessageId was taken for a copy instead of refused."
    return None


def _digests(rows: list[Row]) -> set[str | None]:
    return {row.digest for row in rows}
