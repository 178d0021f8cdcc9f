"""A letter: one message of the year on its way, and what the network has in store for it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from oncewire.message.instant import Duration, Instant
from oncewire.message.sequence import SequenceNumber
from oncewire.pipeline.sample_year.stream import Force
from oncewire.pipeline.sample_year.twists import NEVER, TWISTS, Twist
from oncewire.protocol.terms import RetryCount, Terms

REFUSED, TRANSIENT = "refused", "transient"
"""What a receiver may answer that is no acknowledgement."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to the attempts of one message on one hop."""

    lost: int = 0
    """So many do not arrive."""
    acks_lost: int = 0
    """So many of those that arrive are answered in vain."""
    certain: bool = False
    """Whether the connection was refused, so that its sender knows that nothing arrived."""
    answer: str = ""
    late: bool = False
    """An acknowledgement comes when nobody waits for it any more."""
    ack_after: Duration = 0
    """How much longer than usual an acknowledgement takes."""


PLAIN = Trouble()
SILENT = Trouble(lost=NEVER)

_SHARE_OF = {
    "plain": 900,
    "resend": 35,
    "lost_ack": 35,
    "unknown": 6,
    "late_ack": 5,
    "no_connection": 4,
    "refused": 7,
    "transient": 4,
    "expired": 4,
}
_WAYS, _SHARES = tuple(_SHARE_OF), tuple(accumulate(_SHARE_OF.values()))


def draw_way(rng: Random) -> str:
    """What happens to a message that nothing is planned for."""
    return _WAYS[bisect_right(_SHARES, rng.random() * _SHARES[-1])]


def trouble_of(way: str, terms: Terms, rng: Random) -> Trouble:
    """The same as what its attempts meet."""
    ways = len(terms.transports) if terms.retries_counted is RetryCount.PER_TRANSPORT else 1
    more = ways * (1 + terms.resends) - 1
    if way == "plain" or (way in ("resend", "lost_ack") and not (more or not terms.reliable)):
        return PLAIN
    some = 1 + rng.randrange(more) if more else 1
    return {
        "resend": Trouble(lost=some),
        "lost_ack": Trouble(acks_lost=some),
        "unknown": SILENT,
        "late_ack": Trouble(acks_lost=NEVER, late=True),
        "no_connection": Trouble(lost=NEVER, certain=True),
        "refused": Trouble(answer=REFUSED),
        "transient": Trouble(answer=TRANSIENT),
        "expired": SILENT,
    }[way]


class Letter:
    """What both ends and the network know of one message."""

    __slots__ = (
        "digest", "document", "epoch", "expires_at", "force", "message_id", "part", "received",
        "sequence", "size", "stamp", "submitted", "troubles", "twist", "waits",
    )  # fmt: skip

    def __init__(
        self,
        message_id: str,
        digest: str,
        size: int,
        submitted: str,
        received: str,
        *,
        force: Force | None = None,
        document: str | None = None,
        part: int | None = None,
    ) -> None:
        self.message_id, self.digest, self.size = message_id, digest, size
        self.submitted, self.received = submitted, received
        """The details of its SUBMITTED and RECEIVED rows."""
        self.force, self.document, self.part = force, document, part
        self.twist: Twist | None = None
        if force is not None and force.misbehaviour:
            self.twist = TWISTS[force.misbehaviour]
        self.troubles: dict[int, Trouble] = {}
        """By hop; none: it goes plainly."""
        self.waits = False
        """Whether everything before it is settled when it enters the window."""
        self.expires_at: Instant | None = None
        self.stamp: Instant = 0
        self.sequence: SequenceNumber | None = None
        self.epoch: int | None = None
        """Of its receiver."""

    def does(self, misbehaviour: str) -> bool:
        """Whether this is what is done wrong with it."""
        return self.force is not None and self.force.misbehaviour == misbehaviour
