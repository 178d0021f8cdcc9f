"""What a transition asks of the outside world, as values in the imperative.

State is saved first, in one transaction; effects are performed afterwards. All of them
can be found again from the saved state after a crash, and each is safe to repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from oncewire.message.instant import Instant
from oncewire.message.quick import quick
from oncewire.message.signals import Severity
from oncewire.protocol.notes import Detail, Kind


@quick
@dataclass(frozen=True, slots=True)
class Note:
    """Write a journal row that tells what happened."""

    what: Detail
    message_id: str | None = None
    ref_to: str | None = None
    channel: str | None = None
    epoch: int | None = None
    number: int | None = None
    attempt: int | None = None
    transport: str | None = None

    @property
    def kind(self) -> Kind:
        """The kind of the row."""
        return self.what.KIND


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send the stored bytes of this message over this transport."""

    message_id: str
    attempt: int
    transport: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the From Party how its message ended (ERR-9: Error never sent, Warning unacked), or
    that one sent with best effort was refused (ERR-2)."""

    message_id: str
    severity: Severity
    reason: str


@dataclass(frozen=True, slots=True)
class Raise:
    """Open an incident that an operator must resolve."""

    reason: str
    message_id: str | None = None
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Resolve:
    """The incident of this message or channel is over."""

    message_id: str | None = None
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Admit:
    """The window has places again: bring in the next waiting messages of the channel."""

    channel: str
    places: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing more to the receiver of this message before then (RTY-8)."""

    until: Instant
    # Why an operator must know of it; empty: it is as agreed.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Let messages that begin now take another transport to this receiver, until a probe of this
    one gets through (RTY-15)."""

    transport: str


@dataclass(frozen=True, slots=True)
class AskStatus:
    """Ask the receiver what became of a message that must not be resent (C37)."""

    message_id: str


Effect: TypeAlias = Note | Transmit | Notify | Raise | Resolve | Admit | Pause | Leave | AskStatus
