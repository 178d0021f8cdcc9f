"""S1, no invention: what is handed over was submitted, with the same content, at its From Party."""

from __future__ import annotations

from oncewire.journal import detail
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import HANDED_OVER, JOINED, RECEIVED, Trace


def judge(subject: Subject) -> None:
    """Each node that handed the message over, against every submission of it."""
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        if rows is None or JOINED in trace.kinds:
            continue
        received = trace.first(RECEIVED)
        if received is None:
            _judge_unreceived(subject, trace, rows[0])
        else:
            _judge_content(subject, trace, received, rows)


def _judge_unreceived(subject: Subject, trace: Trace, row: Row) -> None:
    """Best-effort messages need no store (RM-6); all others are stored first (RM-18)."""
    if "split_id" in (row.detail or "") and (
        detail.HandedOver.read(row.detail).split_id == row.message_id
    ):
        return  # A whole document: S13 asks for its parts.
    source = row if row.terms_id is not None else subject.submitted
    if source is None or subject.context.terms_of(source).reliable:
        subject.found(
            "S1",
            ViolationKind.INVENTED,
            trace.node,
            "It was handed over, but this node never received it.",
        )


def _judge_content(subject: Subject, trace: Trace, received: Row, rows: list[Row]) -> None:
    context, digests = subject.context, subject.submitted_digests
    if not digests:
        if subject.healed and context.has_journal_of(received.peer):
            subject.found(
                "S1",
                ViolationKind.INVENTED,
                trace.node,
                f"It was handed over, but {received.peer} never submitted it.",
            )
        return
    for row in rows:
        digest = row.digest or received.digest
        # Another partner may use the same MessageId; its own journal is then not among these.
        here = context.has_journal_of(received.peer) or not context.declared
        if digest is not None and digest not in digests and here:
            subject.found(
                "S1",
                ViolationKind.ALTERED,
                trace.node,
                "It was handed over with other content than was submitted.",
            )
            return
