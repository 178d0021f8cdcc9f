"""The state tables: every state a message or a stream can be in and every step between them.

The code of `sender` and `receiver` moves only along these tables (`move` refuses any
other step), and `docs/` draws its diagrams from them, so picture and code cannot differ.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from oncewire.errors import NotAllowed


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
    HOP = "hop"  # somebody on the way took responsibility, and may have to give it back (HOP-8)


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
    EPOCH_ENDED = "epoch ended"  # a number was given up, or somebody restarts the numbering


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
    # Where numbers only count messages under way, nobody else sees an epoch begin.
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
