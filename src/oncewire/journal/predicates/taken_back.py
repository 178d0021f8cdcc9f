"""Taken back: an outcome that the To Party's own acknowledgement proved is final.

A hub that acknowledged took responsibility and may have to give it back (HOP-9). The To Party
said that it has the message; nobody else's word can undo that.
"""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import ACKNOWLEDGED, FAILED
from oncewire.protocol import notes


def judge(subject: Subject) -> None:
    """Each sending node that called a message failed and had been told that it arrived."""
    for trace in subject.traces:
        failed = trace.last(FAILED)
        if failed is None:
            continue
        for row in trace.kinds.get(ACKNOWLEDGED, ()):
            if row.seq < failed.seq and notes.Acknowledged.read(row.detail).final:
                subject.found(
                    "taken back",
                    ViolationKind.TAKEN_BACK,
                    trace.node,
                    "It was set to failed although the To Party itself had acknowledged it.",
                )
                break
