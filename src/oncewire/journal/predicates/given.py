"""S15, given as verified: the application is given what was checked when it arrived.

The digest of a hand-over is that of what the application is really given, the digest of the
arrival that of the verified view. Whatever lies between the two (a second reading of the bytes,
a store that rots, a key that opens something else) must not change a value or a byte.
"""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import HANDED_OVER, RECEIVED


def judge(subject: Subject) -> None:
    """Each node that handed over what it had received."""
    for trace in subject.traces:
        received = trace.kinds.get(RECEIVED)
        if received is None:
            continue
        verified = {row.digest for row in received}
        for row in trace.kinds.get(HANDED_OVER, ()):
            if row.digest is not None and row.digest not in verified:
                subject.found(
                    "S15",
                    ViolationKind.ALTERED,
                    trace.node,
                    "The application was given other content than was received and verified.",
                )
                return
