"""A stream of the year: the messages of one agreement in one direction, and its two nodes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms


@dataclass(frozen=True, slots=True)
class Force:
    """What is fixed for one message instead of left to chance."""

    misbehaviour: str = ""
    """What its handlers do wrong; empty for a neighbour that goes plainly."""
    gap: Duration | None = None
    """How long after the message before it it is submitted, at most."""
    ack_after: Duration = 0
    """How much longer than usual its acknowledgement takes."""


@dataclass(frozen=True)
class Handler:
    """One node: its name, its party, its clock's error and the instants it was started."""

    name: str
    skew: Duration
    boots: tuple[Instant, ...]

    @cached_property
    def party(self) -> str:
        """Its PartyId."""
        return f"urn:party:{self.name}"

    @cached_property
    def boot_names(self) -> tuple[str, ...]:
        """What its journal calls its boots."""
        return tuple(f"{self.name}-{boot + 1}" for boot in range(len(self.boots)))

    def boot_at(self, instant: Instant) -> int:
        """Which of its boots was running."""
        return (bisect_right(self.boots, instant) or 1) - 1


@dataclass(frozen=True, slots=True)
class Stream:
    """All messages of one agreement in one direction."""

    index: int
    sender: Handler
    receiver: Handler
    hub: Handler | None
    terms: Terms
    signed: bool
    split: bool
    count: int
    forces: dict[int, Force] = field(default_factory=dict)
    """What is done wrong, by the message's index."""

    @property
    def channel(self) -> str | None:
        """The numbered stream's name."""
        if not self.terms.numbered:
            return None
        return f"{self.sender.name}>{self.receiver.name}/{self.index}"

    @property
    def cpa_id(self) -> str:
        """The agreement that its messages name."""
        return f"cpa-{self.sender.name}-{self.receiver.name}-{self.index}"
