"""Told: what is journaled as told was taken by an application, and notices cause no notices.

The journal shows that a failure was told, and how often. Whether the application took it only
the application knows: where its own record is at hand (in the simulator, in tests with real
processes) `untold` compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import FAILED, NOTIFIED, Trace


def judge(subject: Subject) -> None:
    """Each node that told somebody of a failure."""
    for trace in subject.traces:
        if NOTIFIED not in trace.kinds:
            continue
        if subject.is_notice:
            subject.found(
                "told",
                ViolationKind.NEEDLESS_NOTICE,
                trace.node,
                "It is the notice of a failure itself, and its own failure was told by another.",
            )
        elif _told_too_often(trace):
            subject.found(
                "told",
                ViolationKind.UNTOLD,
                trace.node,
                "It is recorded as told more often than it failed.",
            )


def _told_too_often(trace: Trace) -> bool:
    return len(trace.kinds[NOTIFIED]) > len(trace.kinds.get(FAILED, ())) > 0


def untold(rows: Iterable[Row], taken: Mapping[str, Collection[str]]) -> Iterator[Violation]:
    """What the nodes call told and their applications never took.

    `taken` holds for each node the MessageIds of the failures that its application knows of. A
    row that names the notice of a hub (`ref_to`) is that message's matter.
    """
    for row in rows:
        known = taken.get(row.node)
        if row.kind != NOTIFIED or row.ref_to is not None or known is None:
            continue
        if row.message_id not in known:
            yield Violation(
                "told",
                ViolationKind.UNTOLD.value,
                row.message_id,
                row.channel,
                row.node,
                "It is recorded as told, but its application never took the notice.",
            )
