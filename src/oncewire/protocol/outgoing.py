"""Outgoing: one message at its sender, as far as the protocol must remember it."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.message.instant import Instant
from oncewire.message.quick import quick
from oncewire.message.sequence import SequenceStatus
from oncewire.message.variant import variant
from oncewire.protocol.states import OUTGOING, OutgoingEvent, OutgoingState, Proof, move
from oncewire.protocol.terms import Terms


@quick
@dataclass(frozen=True, slots=True)
class Outgoing:
    """Everything the retry law looks at; timers are columns, so a restart finds them."""

    message_id: str
    terms_id: str
    submitted_at: Instant
    channel: str | None = None
    state: OutgoingState = OutgoingState.WAITING
    epoch: int | None = None
    number: int | None = None
    status: SequenceStatus | None = None
    # Attempts in all, and on the present transport since it was chosen or resumed.
    attempts: int = 0
    attempts_here: int = 0
    # Attempts that certainly never reached the receiver (the connection was refused).
    attempts_lost: int = 0
    transport: int = 0
    resumes: int = 0
    first_sent_at: Instant | None = None
    last_sent_at: Instant | None = None
    # When the next attempt or the verdict on the last one is due; None: no timer runs.
    next_attempt_at: Instant | None = None
    # TimeToLive as an instant.
    expires_at: Instant | None = None
    reason: str = ""
    # A notice of its failure is owed until the From Party has taken it.
    notice_owed: bool = False
    late: bool = False
    # How often it failed: which failure a notice is about.
    failures: int = 0
    # A response: how often a copy of the request that it answers brought it again.
    repeats: int = 0
    # Whose word made it delivered.
    proved_by: Proof | None = None
    # A handler on its way reported that it could not deliver it. No acknowledgement of a hub
    # counts any more, for nothing tells whether it was given before that or after (HOP-9).
    taken_back: bool = False

    @property
    def transmitted(self) -> bool:
        """Whether any attempt may have reached the receiver (ERR-9)."""
        return self.attempts > self.attempts_lost

    @property
    def copies(self) -> int:
        """How many copies of it may have reached the receiver, or may do so still."""
        return self.attempts - self.attempts_lost + self.repeats

    @property
    def may_be_repeated(self) -> bool:
        """Whether a copy of the request that it answers may bring it again: it may have arrived,
        and nobody was told that it certainly did not (S5)."""
        return self.transmitted and self.state is not OutgoingState.NOT_DELIVERED

    @property
    def unheard(self) -> OutgoingState:
        """The honest outcome where nothing was heard of it: not delivered if it never left, else
        unknown (S5)."""
        return OutgoingState.UNKNOWN if self.transmitted else OutgoingState.NOT_DELIVERED

    def transport_name(self, terms: Terms) -> str:
        """The transport the next attempt uses."""
        return terms.transports[min(self.transport, len(terms.transports) - 1)]

    def moved(
        self, event: OutgoingEvent, to: OutgoingState | None = None, **changes: object
    ) -> Outgoing:
        """The message after one step of the state table; `to` where the table leaves a choice."""
        return variant(self, state=move(OUTGOING, self.state, event, to), **changes)

    def failed(self, event: OutgoingEvent, to: OutgoingState, reason: str) -> Outgoing:
        """The message after a step that its From Party is to be told of."""
        return self.moved(
            event,
            to,
            next_attempt_at=None,
            reason=reason,
            notice_owed=True,
            failures=self.failures + 1,
            proved_by=None,
        )

    def repeated(self) -> Outgoing:
        """The message after a copy of its request was given it once more: no attempt of its own,
        for nothing waits for what comes of it."""
        return variant(self, repeats=self.repeats + 1)

    def deadline(self, terms: Terms) -> Instant | None:
        """When the message must not be sent any more: TimeToLive or persistDuration."""
        ends = []
        if self.expires_at is not None:
            ends.append(self.expires_at)
        if self.first_sent_at is not None and terms.reliable:
            ends.append(self.first_sent_at + terms.persist_duration)
        return min(ends) if ends else None

    def ended_by(self, terms: Terms) -> str:
        """Which of the two the deadline is, by its name in the drafts."""
        return "TimeToLive" if self.expires_at == self.deadline(terms) else "persistDuration"
