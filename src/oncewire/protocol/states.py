"""The state tables: every state a message or a stream can be in and every step between them.

The code of `sender` and `receiver` moves only along these tables (`move` refuses any
other step), and `docs/` draws its diagrams from them, so picture and code cannot differ.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import SequenceStatus
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms


class OutgoingState(StrEnum):
    """Where a message stands at its sender."""

    WAITING = "waiting"  # submitted; no place in the window yet
    OUTSTANDING = "outstanding"  # may be under way; a timer runs
    SUSPENDED = "suspended"  # retries are used up; the operator decides
    DELIVERED = "delivered"  # acknowledged
    NOT_DELIVERED = "not_delivered"  # never transmitted, or refused
    UNKNOWN = "unknown"  # transmitted, never acknowledged
    SENT = "sent"  # best effort: nothing more will be known (OPS-4)


class Proof(StrEnum):
    """Whose word says that a message is delivered."""

    TO_PARTY = "to_party"  # its own handler's: final
    HOP = "hop"  # a hub took responsibility, and may have to give it back (HOP-8)


class OutgoingEvent(StrEnum):
    """What happens to a message at its sender."""

    WINDOW_ENTERED = "window entered"
    ATTEMPT_DUE = "attempt due"
    TRANSMISSION_FAILED = "transmission failed"
    TRANSMISSION_ENDED = "transmission ended"
    ACK_ARRIVED = "ack arrived"
    ERROR_ARRIVED = "error arrived"
    DEADLINE_PASSED = "deadline passed"
    RETRIES_EXHAUSTED = "retries exhausted"
    RESUMED = "resumed"
    ABANDONED = "abandoned"
    # Of a document that travels in parts.
    PARTS_ARRIVED = "parts arrived"
    PART_FAILED = "part failed"


ENDLESS: Duration = 2**61
"""The lease of what this process itself offers to an application: only a restart ends it."""


class IncomingState(StrEnum):
    """Where a message stands at its receiver."""

    ARRIVING = "arriving"  # not stored yet
    HELD = "held"  # stored and acknowledged; waits for an earlier number
    READY = "ready"  # stored; the application may have it
    GATHERED = "gathered"  # part of a document; waits for the other parts
    HANDED_OVER = "handed_over"  # given to the application, not confirmed yet
    CONFIRMED = "confirmed"  # the application has it
    FORWARDED = "forwarded"  # an intermediary sent it on, or has the next hop as its duty
    REFUSED = "refused"  # answered with an error; its number is settled
    CLOSED = "closed"  # never handed over any more: its initiator left, or an operator gave it up


class IncomingEvent(StrEnum):
    """What happens to a message at its receiver."""

    ARRIVED = "arrived"
    GAP_CLOSED = "gap closed"
    HANDED_OVER = "handed over"
    HAND_OVER_LOST = "hand-over lost"
    CONFIRMED = "confirmed"
    NOT_ANSWERED = "not answered"
    JOINED = "joined"
    NOT_JOINED = "not joined"


class Phase(StrEnum):
    """Where a numbered stream stands at its sender: what may enter its window."""

    UNBEGUN = "unbegun"  # no number was given yet: one message, which begins the first epoch
    OPENING = "opening"  # nothing: the epoch's first message travels alone until it is settled
    RUNNING = "running"  # as many messages as the window has places
    ENDING = "ending"  # one message, once all others are settled: it begins the next epoch


class ChannelEvent(StrEnum):
    """What happens to a numbered stream at its sender."""

    OPENER_ENTERED = "opener entered"  # the first message of an epoch
    MESSAGE_ENTERED = "message entered"
    NUMBER_SETTLED = "number settled"
    EPOCH_ENDED = "epoch ended"  # a number was given up, or an operator restarts the numbering


_O, _OE = OutgoingState, OutgoingEvent
OUTGOING: dict[tuple[OutgoingState, OutgoingEvent], frozenset[OutgoingState]] = {
    (_O.WAITING, _OE.WINDOW_ENTERED): frozenset({_O.OUTSTANDING}),
    (_O.WAITING, _OE.DEADLINE_PASSED): frozenset({_O.NOT_DELIVERED}),
    (_O.WAITING, _OE.ABANDONED): frozenset({_O.NOT_DELIVERED}),
    (_O.OUTSTANDING, _OE.ATTEMPT_DUE): frozenset({_O.OUTSTANDING, _O.SENT}),
    (_O.OUTSTANDING, _OE.TRANSMISSION_FAILED): frozenset(
        {_O.OUTSTANDING, _O.NOT_DELIVERED, _O.UNKNOWN}
    ),
    (_O.OUTSTANDING, _OE.TRANSMISSION_ENDED): frozenset({_O.DELIVERED}),
    (_O.OUTSTANDING, _OE.ACK_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.OUTSTANDING, _OE.ERROR_ARRIVED): frozenset({_O.OUTSTANDING, _O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.OUTSTANDING, _OE.DEADLINE_PASSED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.OUTSTANDING, _OE.RETRIES_EXHAUSTED): frozenset(
        {_O.SUSPENDED, _O.NOT_DELIVERED, _O.UNKNOWN}
    ),
    (_O.OUTSTANDING, _OE.RESUMED): frozenset({_O.OUTSTANDING}),
    (_O.OUTSTANDING, _OE.ABANDONED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.SUSPENDED, _OE.ACK_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.SUSPENDED, _OE.ERROR_ARRIVED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.SUSPENDED, _OE.DEADLINE_PASSED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.SUSPENDED, _OE.RESUMED): frozenset({_O.OUTSTANDING}),
    (_O.SUSPENDED, _OE.ABANDONED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    # A late acknowledgement; the To Party's after an intermediary's; and an intermediary's
    # word that its own was not the end of the story (DRV-7, HOP-9).
    (_O.UNKNOWN, _OE.ACK_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.UNKNOWN, _OE.ERROR_ARRIVED): frozenset({_O.NOT_DELIVERED}),
    (_O.UNKNOWN, _OE.RESUMED): frozenset({_O.OUTSTANDING}),
    (_O.UNKNOWN, _OE.ABANDONED): frozenset({_O.UNKNOWN}),
    (_O.NOT_DELIVERED, _OE.ACK_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.NOT_DELIVERED, _OE.RESUMED): frozenset({_O.OUTSTANDING}),
    (_O.NOT_DELIVERED, _OE.ABANDONED): frozenset({_O.NOT_DELIVERED}),
    (_O.DELIVERED, _OE.ACK_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.DELIVERED, _OE.ERROR_ARRIVED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    # An error about a best-effort message is told, and more is not known by it (OPS-4, ERR-2).
    (_O.SENT, _OE.ERROR_ARRIVED): frozenset({_O.SENT}),
    # A document has no attempts of its own: its parts have, and end it.
    (_O.WAITING, _OE.PART_FAILED): frozenset({_O.NOT_DELIVERED}),
    (_O.OUTSTANDING, _OE.PARTS_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.OUTSTANDING, _OE.PART_FAILED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    # The message that names its parts has attempts, and may wait for the operator.
    (_O.SUSPENDED, _OE.PART_FAILED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
    (_O.UNKNOWN, _OE.PARTS_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.NOT_DELIVERED, _OE.PARTS_ARRIVED): frozenset({_O.DELIVERED}),
    (_O.DELIVERED, _OE.PART_FAILED): frozenset({_O.NOT_DELIVERED, _O.UNKNOWN}),
}

_I, _IE = IncomingState, IncomingEvent
INCOMING: dict[tuple[IncomingState, IncomingEvent], frozenset[IncomingState]] = {
    (_I.ARRIVING, _IE.ARRIVED): frozenset(
        {_I.HELD, _I.READY, _I.GATHERED, _I.FORWARDED, _I.REFUSED}
    ),
    (_I.HELD, _IE.GAP_CLOSED): frozenset({_I.READY, _I.GATHERED, _I.FORWARDED}),
    (_I.HELD, _IE.NOT_ANSWERED): frozenset({_I.CLOSED}),
    (_I.READY, _IE.HANDED_OVER): frozenset({_I.HANDED_OVER}),
    (_I.READY, _IE.NOT_ANSWERED): frozenset({_I.CLOSED}),
    (_I.HANDED_OVER, _IE.CONFIRMED): frozenset({_I.CONFIRMED}),
    (_I.HANDED_OVER, _IE.HAND_OVER_LOST): frozenset({_I.READY}),
    (_I.HANDED_OVER, _IE.NOT_ANSWERED): frozenset({_I.CLOSED}),
    # A hand-over that was taken for lost may have succeeded after all.
    (_I.READY, _IE.CONFIRMED): frozenset({_I.CONFIRMED}),
    # A part: its document is whole, or never will be. Who was not answered yet is told so.
    (_I.GATHERED, _IE.JOINED): frozenset({_I.CONFIRMED}),
    (_I.GATHERED, _IE.NOT_JOINED): frozenset({_I.CLOSED, _I.REFUSED}),
    (_I.HELD, _IE.NOT_JOINED): frozenset({_I.CLOSED, _I.REFUSED}),
}

_P, _C = Phase, ChannelEvent
CHANNEL: dict[tuple[Phase, ChannelEvent], frozenset[Phase]] = {
    (_P.UNBEGUN, _C.OPENER_ENTERED): frozenset({_P.OPENING}),
    # Where numbers only count messages under way, the receiver sees no epoch begin.
    (_P.UNBEGUN, _C.MESSAGE_ENTERED): frozenset({_P.RUNNING}),
    # The opener is the only number under way, so any settling frees the others.
    (_P.OPENING, _C.NUMBER_SETTLED): frozenset({_P.RUNNING}),
    (_P.OPENING, _C.EPOCH_ENDED): frozenset({_P.ENDING}),
    (_P.RUNNING, _C.MESSAGE_ENTERED): frozenset({_P.RUNNING}),
    (_P.RUNNING, _C.NUMBER_SETTLED): frozenset({_P.RUNNING}),
    (_P.RUNNING, _C.EPOCH_ENDED): frozenset({_P.ENDING}),
    # Another range was agreed on (C2).
    (_P.RUNNING, _C.OPENER_ENTERED): frozenset({_P.OPENING}),
    (_P.ENDING, _C.NUMBER_SETTLED): frozenset({_P.ENDING}),
    (_P.ENDING, _C.EPOCH_ENDED): frozenset({_P.ENDING}),
    (_P.ENDING, _C.OPENER_ENTERED): frozenset({_P.OPENING}),
    (_P.ENDING, _C.MESSAGE_ENTERED): frozenset({_P.RUNNING}),
}

FINAL_OUTGOING = frozenset({_O.DELIVERED, _O.NOT_DELIVERED, _O.UNKNOWN, _O.SENT})


class Outcome(StrEnum):
    """How a message ended, at its sender.

    `DELIVERED`: its receiver has it and said so. `NOT_DELIVERED`: it never left, or was refused.
    `UNKNOWN`: it left, and its receiver never answered. `SENT`: all that can be said of a
    best-effort message. `IN_FLIGHT` is no end, and stands in ledgers only.
    """

    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"
    UNKNOWN = "unknown"
    IN_FLIGHT = "in_flight"
    SENT = "sent"


def outcome_in(state: OutgoingState) -> Outcome | None:
    """The outcome of a message that is in this state at its sender; None: it has none yet."""
    return Outcome(state.value) if state in FINAL_OUTGOING else None


S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def move(table: dict[tuple[S, E], frozenset[S]], state: S, event: E, to: S | None = None) -> S:
    """The state after the event, if the table has that step; the error names what is possible.

    `to` chooses where the table leaves a choice.
    """
    allowed = table.get((state, event), ())
    if to is None and len(allowed) == 1:
        (only,) = allowed
        return only
    if to is not None and to in allowed:
        return to
    events = sorted(str(e.value) for s, e in table if s is state)
    thing = "stream" if isinstance(state, Phase) else "message"
    aim = "step on" if to is None else f"become {to.value}"
    raise NotAllowed(
        f"a {thing} that is {state.value} cannot {aim} by '{event.value}'",
        remedy="possible here: " + (", ".join(events) or "nothing more"),
    )


# Outgoing: one message at its sender, as far as the protocol must remember it.


class Outgoing(Struct, frozen=True, gc=False):
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
    def taken_over(self) -> bool:
        """Whether a hub or a reliable transport alone has said that it has it: it answers for the
        message from there (HOP-8), and the To Party itself has not spoken."""
        return self.state is OutgoingState.DELIVERED and self.proved_by is Proof.HOP

    @property
    def copies(self) -> int:
        """How many copies of it may have reached the receiver, or may do so still."""
        return self.attempts - self.attempts_lost + self.repeats

    @property
    def may_be_repeated(self) -> bool:
        """Whether a copy of the request that it answers may bring it again: it may have arrived,
        and the application was not told that it certainly did not (S5)."""
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
        return replace(self, state=move(OUTGOING, self.state, event, to), **changes)

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
        return replace(self, repeats=self.repeats + 1)

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


# Incoming: one message at its receiver, as far as the protocol must remember it.


class Incoming(Struct, frozen=True, gc=False):
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
        return replace(self, state=move(INCOMING, self.state, event, to), **changes)

    def handed_over(self, lease_until: Instant | None) -> Incoming:
        """The message after it was given to the application."""
        return self.moved(
            IncomingEvent.HANDED_OVER, hand_overs=self.hand_overs + 1, lease_until=lease_until
        )

    @property
    def lease_ends(self) -> Instant | None:
        """When the lease ends by itself; None: there is none, or only a restart ends it."""
        endless = self.lease_until is not None and self.lease_until >= ENDLESS
        return None if endless else self.lease_until

    def lost(self) -> Incoming:
        """The message after a hand-over that was not confirmed in time, or before a crash."""
        return self.moved(IncomingEvent.HAND_OVER_LOST, lease_until=None)

    def closed(self) -> Incoming:
        """It is handed over no more: its answer is not awaited (SYNC-18), or it was given up."""
        return self.moved(IncomingEvent.NOT_ANSWERED, lease_until=None)

    def confirmed(self, now: Instant) -> Incoming:
        """The application has it; saying so twice is the same as once."""
        if self.state is IncomingState.CONFIRMED:
            return self
        return self.moved(IncomingEvent.CONFIRMED, confirmed_at=now, lease_until=None)
