"""S15, given as verified: the application is given what was checked when it arrived.

The digest of a hand-over is that of what the application is really given, the digest of the
arrival that of the verified view. Whatever lies between the two (a second reading of the bytes,
a store that rots, a key that opens something else) must not change a value or a byte. A document
whose own message names its fragments is given as it was handed in, where that is known.
"""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.trace import HANDED_OVER, JOINED, RECEIVED


def judge(subject: Subject) -> None:
    """Each node that handed over what it had received."""
    for trace in subject.traces:
        received = trace.kinds.get(RECEIVED)
        if received is None:
            continue
        joined = JOINED in trace.kinds
        # What was received of a document under its own id is the message that names its fragments.
        verified = subject.submitted_digests if joined else {row.digest for row in received}
        if joined and not verified:
            continue
        for row in trace.kinds.get(HANDED_OVER, ()):
            if row.digest is not None and row.digest not in verified:
                subject.found(
                    "S15",
                    ViolationKind.ALTERED,
                    trace.node,
                    "The application was given other content than was split."
                    if joined
                    else "The application was given other content than was received and verified.",
                )
                return
