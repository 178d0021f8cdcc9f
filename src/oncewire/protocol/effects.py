"""What a transition asks of the outside world, as values in the imperative.

State is saved first, in one transaction; effects are performed afterwards. All of them
can be found again from the saved state after a crash, and each is safe to repeat.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from oncewire.message.instant import Instant
from oncewire.message.signals import Severity
from oncewire.protocol.notes import Detail, Kind


class Note(Struct, frozen=True, gc=False):
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


class Transmit(Struct, frozen=True, gc=False):
    """Send the stored bytes of this message over this transport."""

    message_id: str
    attempt: int
    transport: str


class Notify(Struct, frozen=True, gc=False):
    """Tell the From Party how its message ended (ERR-9: Error never sent, Warning unacked), or
    that one sent with best effort was refused (ERR-2)."""

    message_id: str
    severity: Severity
    reason: str


class Raise(Struct, frozen=True, gc=False):
    """Open an incident that an operator must resolve."""

    reason: str
    message_id: str | None = None
    channel: str | None = None


class Resolve(Struct, frozen=True, gc=False):
    """The incident of this message or channel is over."""

    message_id: str | None = None
    channel: str | None = None


class Admit(Struct, frozen=True, gc=False):
    """The window has places again: bring in the next waiting messages of the channel."""

    channel: str
    places: int


class Pause(Struct, frozen=True, gc=False):
    """Send nothing more to the receiver of this message before then (RTY-8)."""

    until: Instant
    # Why an operator must know of it; empty: it is as agreed.
    problem: str = ""


class Leave(Struct, frozen=True, gc=False):
    """Let messages that begin now take another transport to this receiver, until a probe of this
    one gets through (RTY-15)."""

    transport: str


class AskStatus(Struct, frozen=True, gc=False):
    """Ask the receiver what became of a message that must not be resent (C37)."""

    message_id: str


Effect: TypeAlias = Note | Transmit | Notify | Raise | Resolve | Admit | Pause | Leave | AskStatus
