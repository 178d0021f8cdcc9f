"""S5, honest outcome: what the From Party is told is what its handler can know (ERR-9)."""

from __future__ import annotations

from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACKNOWLEDGED,
    FAILED,
    HANDED_OVER,
    NOTIFIED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    WARNED,
    Trace,
)
from oncewire.protocol import notes

SEVERITY = {Outcome.NOT_DELIVERED.value: "Error", Outcome.UNKNOWN.value: "Warning"}
"""The severity of the notice for each failure (ERR-9)."""


def judge(subject: Subject) -> None:
    """Each sending node whose message failed, or was said to; no other can break this."""
    for trace in subject.traces:
        kinds = trace.kinds
        if not kinds.keys() & {FAILED, NOTIFIED, WARNED}:
            continue
        if subject.has(ViolationKind.TAKEN_BACK):
            return
        submitted = notes.Submitted() if SUBMITTED not in kinds else _submitted(trace)
        if submitted.is_part and NOTIFIED in kinds:
            sentence = "Its From Party was told of a part, and not of its document."
            subject.found("S5", ViolationKind.WRONG_OUTCOME, trace.node, sentence)
            continue
        whole = submitted.split_id is not None and not submitted.is_part
        problem = (
            (None if whole else _problem_of_failures(trace))
            or _problem_of_acknowledgements(trace)
            or _problem_of_notices(trace)
            or _problem_of_delivery(subject, trace)
        )
        if problem is not None:
            subject.found("S5", ViolationKind.WRONG_OUTCOME, trace.node, problem)


def _submitted(trace: Trace) -> notes.Submitted:
    detail = trace.kinds[SUBMITTED][0].detail
    return notes.Submitted.read(detail) if "split_id" in (detail or "") else notes.Submitted()


def _problem_of_failures(trace: Trace) -> str | None:
    for failed in trace.kinds.get(FAILED, ()):
        outcome = notes.Failed.read(failed.detail).outcome
        if outcome not in SEVERITY:
            return f"It failed as {outcome!r}, which is not an outcome of a failure."
        acknowledged = _last_before(trace, ACKNOWLEDGED, failed.seq)
        if acknowledged is not None and not (
            trace.between(REJECTED, acknowledged.seq, failed.seq)
            or trace.between(RESUMED, acknowledged.seq, failed.seq)
        ):
            return "It was set to failed after it had been acknowledged."
        if outcome == Outcome.UNKNOWN and not _transmitted(trace, failed.seq):
            return "It is called unknown, but no attempt can have reached the receiver."
        rejected = _last_before(trace, REJECTED, failed.seq) is not None
        if outcome == Outcome.NOT_DELIVERED and _transmitted(trace, failed.seq) and not rejected:
            return "It is called not delivered, but an attempt may have reached the receiver."
    return None


def _problem_of_acknowledgements(trace: Trace) -> str | None:
    """One that comes after the failure is told as late, so that nobody is surprised (DRV-7)."""
    for row in trace.kinds.get(ACKNOWLEDGED, ()):
        failed = _last_before(trace, FAILED, row.seq)
        if (
            failed is not None
            and not trace.between(RESUMED, failed.seq, row.seq)
            and not notes.Acknowledged.read(row.detail).late
        ):
            return "An acknowledgement came after the failure and is not marked as late."
    return _problem_of_hops(trace)


def _problem_of_hops(trace: Trace) -> str | None:
    """Once a handler on the way has reported that it could not deliver it, no hub's
    acknowledgement says that it arrived (HOP-9)."""
    reports = [
        row.seq
        for kind, detail in ((WARNED, notes.Warned), (REJECTED, notes.Rejected))
        for row in trace.kinds.get(kind, ())
        if detail.read(row.detail).code == "DeliveryFailure"
    ]
    for row in trace.kinds.get(ACKNOWLEDGED, ()) if reports else ():
        if notes.Acknowledged.read(row.detail).hop and row.seq > min(reports):
            return "A hub's acknowledgement counts, although its failure had been reported."
    return None


def _problem_of_notices(trace: Trace) -> str | None:
    for row in trace.kinds.get(NOTIFIED, ()):
        due = {
            SEVERITY.get(notes.Failed.read(failed.detail).outcome)
            for failed in trace.kinds.get(FAILED, ())
            if failed.seq < row.seq
        }
        if not due:
            return "Its From Party was told of a failure that had not happened."
        severity = notes.Notified.read(row.detail).severity
        if severity not in due:
            return (
                f"Its From Party was told with severity {severity!r}, which is not its outcome's."
            )
    return None


def _problem_of_delivery(subject: Subject, trace: Trace) -> str | None:
    """Told as not delivered, yet an application has it: the business would send it again."""
    standing = trace.standing
    if (
        SUBMITTED in trace.kinds
        and standing is not None
        and standing.kind == FAILED
        and notes.Failed.read(standing.detail).outcome == Outcome.NOT_DELIVERED
        and any(HANDED_OVER in other.kinds for other in subject.traces)
    ):
        return "It is called not delivered, but it was handed over."
    return None


def _transmitted(trace: Trace, before: int) -> bool:
    """Whether an attempt before that position may have reached the receiver."""
    attempts = {row.attempt for row in trace.kinds.get(SENT, ()) if row.seq < before}
    refused = {
        row.attempt
        for row in trace.kinds.get(SEND_FAILED, ())
        if row.seq < before and notes.SendFailed.read(row.detail).outcome == "refused"
    }
    return not attempts <= refused


def _last_before(trace: Trace, kind: str, position: int) -> Row | None:
    rows = [row for row in trace.kinds.get(kind, ()) if row.seq < position]
    return rows[-1] if rows else None
