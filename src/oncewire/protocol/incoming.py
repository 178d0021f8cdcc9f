"""Incoming: one message at its receiver, as far as the protocol must remember it."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.message.instant import Instant
from oncewire.message.quick import quick
from oncewire.message.variant import variant
from oncewire.protocol.states import INCOMING, IncomingEvent, IncomingState, move


@quick
@dataclass(frozen=True, slots=True)
class Incoming:
    """The duplicate record and the way to the application in one.

    The key is (sender, message_id): `sender` is the authenticated From Party, so that no
    other partner can use up an id (DRV-6).
    """

    sender: str
    message_id: str
    digest: str
    terms_id: str
    received_at: Instant
    state: IncomingState = IncomingState.ARRIVING
    channel: str | None = None
    epoch: int | None = None
    number: int | None = None
    # How often the application was given it; more than once only after a crash.
    hand_overs: int = 0
    # Until then the taker owns it; afterwards it may be taken again, marked redelivered.
    lease_until: Instant | None = None
    confirmed_at: Instant | None = None

    def moved(
        self, event: IncomingEvent, to: IncomingState | None = None, **changes: object
    ) -> Incoming:
        """The message after one step of the state table; `to` where the table leaves a choice."""
        return variant(self, state=move(INCOMING, self.state, event, to), **changes)

    def handed_over(self, lease_until: Instant | None) -> Incoming:
        """Given to the application."""
        return self.moved(
            IncomingEvent.HANDED_OVER,
            hand_overs=self.hand_overs + 1,
            lease_until=lease_until,
        )

    def lost(self) -> Incoming:
        """The hand-over was not confirmed in time, or the process died with it."""
        return self.moved(IncomingEvent.HAND_OVER_LOST, lease_until=None)

    def closed(self) -> Incoming:
        """It is handed over no more: nobody waits for its answer (SYNC-18), or it was given up."""
        return self.moved(IncomingEvent.NOT_ANSWERED, lease_until=None)

    def confirmed(self, now: Instant) -> Incoming:
        """The application has it; saying so twice is the same as once."""
        if self.state is IncomingState.CONFIRMED:
            return self
        return self.moved(IncomingEvent.CONFIRMED, confirmed_at=now, lease_until=None)
