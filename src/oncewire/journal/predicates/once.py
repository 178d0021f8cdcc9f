"""S2, at most once: one confirmation, and a second hand-over only where a crash excuses it.

Where neither side asked for repeats to be stopped each copy is a message of its own (C40): then
there is one confirmation, and one hand-over, for each arrival.
"""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import CONFIRMED, HANDED_OVER, RECEIVED, Trace
from oncewire.protocol import notes


def judge(subject: Subject) -> None:
    """Over all nodes together, then on each of them; one finding tells enough."""
    confirmations = 0
    for trace in subject.traces:
        confirmations += len(trace.kinds.get(CONFIRMED, ()))
    if confirmations > 1 and confirmations > _arrivals(subject):
        subject.found(
            "S2",
            ViolationKind.TWICE,
            subject.traces[0].node,
            f"Applications confirmed it {confirmations} times.",
        )
        return
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        problem = _problem(subject, trace, rows) if rows is not None else None
        if problem is not None:
            subject.found("S2", ViolationKind.TWICE, trace.node, problem)
            return


def _arrivals(subject: Subject) -> int:
    """How many messages of this MessageId there are: the duplicate key is (From Party, id)
    (DRV-6), one party's message may be received by one node only, and copies that nobody asked
    to stop are messages too."""
    contents: set[str | None] = set()
    copies = 0
    for trace in subject.traces:
        if not trace.holds:
            continue
        for row in trace.kinds.get(RECEIVED, ()):
            if row.digest in contents and subject.context.terms_of(row).repeats_pass:
                copies += 1
            contents.add(row.digest)
    return len(contents) + copies


def _problem(subject: Subject, trace: Trace, rows: list[Row]) -> str | None:
    """One content handed over again without excuse, or after its confirmation."""
    confirmed = trace.first(CONFIRMED)
    if len(rows) == 1 and (confirmed is None or rows[0].seq < confirmed.seq):
        return None
    received = trace.kinds.get(RECEIVED, ())
    if len(received) > 1 and subject.context.terms_of(received[0]).repeats_pass:
        anew = sum(1 for row in rows if "redelivered" not in (row.detail or ""))
        return None if anew <= len(received) else "It was handed over more often than it arrived."
    latest: dict[str | None, Row] = {}
    for row in rows:
        before = latest.get(row.digest)
        if before is not None and not _excused(before, row):
            return "It was handed over again without a crash that excuses it."
        latest[row.digest] = row
    if (
        confirmed is not None
        and len(latest) == 1
        and rows[-1].seq > confirmed.seq
        and not subject.has(ViolationKind.IMPOSSIBLE_ORDER)
    ):
        return "It was handed over after the application had confirmed it."
    return None


def _excused(before: Row, row: Row) -> bool:
    """The process or the application died between hand-over and confirmation, or it failed."""
    if "redelivered" not in (row.detail or ""):
        return False
    said = notes.HandedOver.read(row.detail)
    if row.boot != before.boot:
        return said.redelivered
    return said.redelivered and (said.lease_expired or said.given_back)
