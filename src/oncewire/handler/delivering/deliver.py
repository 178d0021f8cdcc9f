"""Deliver: hand messages to the application, each once, in order, and hear that it has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from oncewire.errors import (
    InvalidValue,
    NotAllowed,
    OncewireError,
    StoreDamaged,
    StoreFull,
    StoreGone,
    UnknownMessage,
)
from oncewire.handler.actions import Decided, Notice, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.view import accepted, as_agreed
from oncewire.handler.perform import journal_received, resolve_incidents, withhold
from oncewire.handler.spool_reading import SPOOL_ABOVE, NotProved
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Error, Header, Payload, Reference
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.message.payload import DistantPayload
from oncewire.protocol.documents import DocumentState
from oncewire.protocol.notes import Confirmed, HandedOver, Resolve
from oncewire.protocol.states import IncomingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming

# Application: the software behind the handler, and what it is given.


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """One message as the application gets it."""

    sender: str
    message_id: str
    header: Header
    payloads: tuple[Payload, ...]
    # It was given before, and the handler was never told that it arrived.
    redelivered: bool
    # The Manifest: what is said of the payloads, and of parts in other messages (`mid:`).
    references: tuple[Reference, ...] = ()
    # Messages of one channel are handed over in order.
    channel: str | None = None
    # What its sender warns of beside the document (ERR-10).
    warnings: tuple[Error, ...] = ()
    # Identity digest of exactly this, computed from its bytes (S15).
    digest: str = ""

    @classmethod
    def of(cls, context: HandlerContext, stored: StoredIncoming) -> GivenMessage:
        """Of the stored bytes: what was accepted is what is handed over."""
        message = accepted(context, stored)
        # The identity is what the From Party wrote, by whatever names it goes here.
        given = replace(message, payloads=tuple(map(_measured, message.payloads)))
        return cls(
            stored.incoming.sender,
            stored.incoming.message_id,
            as_agreed(context, stored, message.header),
            message.payloads,
            stored.incoming.hand_overs > 1,
            message.manifest,
            stored.incoming.channel,
            () if message.error_list is None else message.error_list.errors,
            identity_digest(given),
        )


def _measured(payload: Payload) -> Payload:
    """The payload with the digest of the bytes that it really has. What lies in the spool was
    proved to have it."""
    if isinstance(payload, DistantPayload) or payload.data is None:
        return payload
    return Payload.of(payload.content_id, payload.media_type, payload.data)


class Application(Protocol):
    """An application that is called. Returning from `deliver` means: I have it."""

    # How many messages it takes at a time.
    batch: int
    # Whether it is called when a message of its own fails; otherwise the notice waits until
    # somebody takes it.
    hears: bool

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission] | None:
        """Take a message; raise to get it again later.

        What it returns is submitted in the commit that confirms the message: answers leave
        exactly once for each message, whatever crashes in between.
        """

    async def notify(self, notice: Notice) -> None:
        """Hear that a message of its own failed. Returning means: I know; raise to be told
        again later, under the same `notice_id`."""


logger = logging.getLogger("oncewire.handler")

FOR_EVER: Instant = 2**62
"""Later than any lease."""

LOOK_AHEAD = 256
"""Messages of channels that are busy which are passed over to find one of another channel."""

IsOver = Callable[[StoredIncoming], bool]


class Room(Protocol):
    """What the taker can be given at once, where that is bounded by more than a count."""

    @property
    def left(self) -> int:
        """Bytes of payloads that still fit."""

    def admit(self, taken: GivenMessage) -> bool:
        """Put a message beside those that were admitted before; False: it does not fit."""


class _NoRoom(Exception):
    """A message does not fit beside those that are given already: the next taker gets it."""


def hand_over(
    context: HandlerContext,
    tx: Transaction,
    limit: int,
    lease: Duration,
    room: Room | None = None,
    *,
    one_by_one: bool = False,
    is_over: IsOver,
) -> list[GivenMessage]:
    """Hand over what is ready, in order of delivery; not more than there is room for, for what
    is leased and cannot be carried would be nobody's until its lease ends.

    `one_by_one`: of each channel one message, and the next when that is confirmed. `is_over`
    says of a message that it is not given out any more, and has then settled it.

    The taker must confirm within the lease; otherwise, as after a crash of either side,
    the message is handed over again and marked `redelivered`. One that cannot be given as it
    was accepted, or that is too large for an empty room, waits, with an incident, and delays
    nobody but what follows it on its channel.
    """
    now = context.now()
    whole = 0 if room is None else room.left
    given: list[GivenMessage] = []
    withheld: set[tuple[str, str]] = set()
    blocked: set[str | None] = set()
    # Channels that have their one message already.
    busy: set[str | None] = set()
    if one_by_one:
        busy.update(kept.incoming.channel for kept in tx.given(now))
        busy.discard(None)
    passed = settled = 0
    while passed < LOOK_AHEAD:
        # Those that wait are found again each time; asking for twice as many gets past them.
        found = tx.ready(now, limit - len(given) + 2 * len(withheld))
        fresh = [kept for kept in found if _key(kept) not in withheld]
        for stored in fresh:
            if len(given) == limit:
                return given
            channel = stored.incoming.channel
            if channel in busy:
                passed += 1
                withheld.add(_key(stored))
                continue
            if _follows_unjoined(context, tx, stored):
                withheld.add(_key(stored))
                continue
            try:
                if is_over(stored):
                    # What waited behind it may be ready now.
                    settled += 1
                    continue
                fits = None if room is None else _Fitting(room, whole, alone=not given)
                handed = (
                    None if channel in blocked else _give(context, tx, stored, now + lease, fits)
                )
            except _NoRoom:
                return given
            except StoreDamaged as problem:
                withhold(context, tx, stored, problem)
                handed = None
            except NotProved:
                # It is given when its files are read; others need not wait for that.
                handed = None
            if handed is not None:
                given.append(handed)
                if one_by_one and channel is not None:
                    busy.add(channel)
                continue
            withheld.add(_key(stored))
            if channel is not None and _is_ordered(context, tx, stored):
                blocked.add(channel)
        if not fresh or not (withheld or settled):
            break
    return given


@dataclass(frozen=True, slots=True)
class _Fitting:
    """The room, seen by the next message; `whole`: what it had, `alone`: nothing is in it yet."""

    room: Room
    whole: int
    alone: bool

    def check(self, fits: bool, size: int) -> None:
        """Refuse what does not fit: for now, or, where it would not fit alone, for ever."""
        if fits:
            return
        if not self.alone and size <= self.whole:
            raise _NoRoom
        raise InvalidValue(
            f"its payloads have {size:,} bytes, more than can be taken at once",
            remedy="have it put into a folder or given to a function (`application.way` in the "
            "settings)",
        )


def _give(
    context: HandlerContext,
    tx: Transaction,
    listed: StoredIncoming,
    lease_until: Instant,
    fitting: _Fitting | None = None,
) -> GivenMessage | None:
    """Hand one message over; None: what was accepted cannot be read any more, or never fits.

    It is read whole, checked and filed before anything says that it was handed over.
    """
    incoming = listed.incoming
    late = incoming.state is IncomingState.HANDED_OVER
    if late:
        incoming = incoming.lost()
    incoming = incoming.handed_over(lease_until)
    size = listed.facts.size
    try:
        stored = tx.incoming(incoming.sender, incoming.message_id) or listed
        if stored.view is not None:
            # Of what is large no more than that is held.
            size = min(size, SPOOL_ABOVE)
        if fitting is not None:
            # Of what does not fit no byte need be read.
            fitting.check(size <= fitting.room.left, size)
        taken = GivenMessage.of(context, replace(stored, incoming=incoming))
        if fitting is not None:
            fitting.check(fitting.room.admit(taken), size)
        tx.save_incoming(incoming)
    except (StoreFull, StoreGone, MemoryError, _NoRoom, NotProved):
        raise
    except Exception as problem:
        if not isinstance(problem, OncewireError):
            logger.exception("a stored message cannot be read")
        withhold(context, tx, listed, problem)
        return None
    again = incoming.hand_overs > 1
    split_id = incoming.message_id if stored.facts.split_id == incoming.message_id else None
    what = HandedOver(redelivered=again, lease_expired=again and late, split_id=split_id)
    journal_received(context, tx, stored, what, incoming, taken.digest)
    return taken


def _follows_unjoined(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a document comes before a message on its channel that is still put together."""
    channel, position = stored.incoming.channel, stored.position
    fellows = context.store.fellows
    elsewhere = () if fellows is None else fellows.elsewhere("join")
    if channel is None or not (context.state.joining or elsewhere):
        return False
    keys = [
        key
        for key, (on, place) in context.state.joining.items()
        if on == channel and place < position
    ]
    before = any(
        (document := tx.document(*key)) is not None
        and document.state is DocumentState.JOINING
        and document.channel == channel
        and document.position < position
        for key in (*keys, *elsewhere)
    )
    return before and _is_ordered(context, tx, stored)


def _is_ordered(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether what follows a message on its channel must wait for it; unless that is known not
    to be so, it must."""
    try:
        return context.terms_of(tx, stored.incoming.terms_id).ordered
    except StoreDamaged:
        return True


def _key(stored: StoredIncoming) -> tuple[str, str]:
    return stored.incoming.sender, stored.incoming.message_id


def confirm(
    context: HandlerContext, tx: Transaction, sender: str, message_id: str, by: str | None = None
) -> bool:
    """The application has the message, or the person called `by` says so in its place.
    Idempotent: False when that was known already."""
    stored = tx.incoming(sender, message_id)
    if stored is None:
        for gone in tx.removed(message_id):
            if gone.sender == sender:
                _check_not_closed(message_id, IncomingState(gone.state))
                return False
        raise UnknownMessage(
            f"no message {message_id} from {sender} was received here",
            remedy="confirm with the sender and MessageId that the hand-over named",
        )
    _check_not_closed(message_id, stored.incoming.state)
    confirmed = stored.incoming.confirmed(context.now())
    if confirmed is stored.incoming:
        return False
    tx.save_incoming(confirmed)
    journal_received(context, tx, stored, Confirmed(by), confirmed, confirmed.digest)
    # It may have been refused until the operator was called.
    resolve_incidents(context, tx, Resolve(message_id), confirmed.channel)
    if by is not None:
        context.state.actions.append(Decided(sender, message_id))
    return True


def _check_not_closed(message_id: str, state: IncomingState) -> None:
    """Refuse the confirmation of what is over without one: the record says so already."""
    if state is IncomingState.CLOSED:
        raise NotAllowed(
            f"message {message_id} was given up here, or nobody waited for its answer any more",
            remedy=f"`oncewire why {message_id}` says who gave it up; its sender can send it anew",
        )


def recover_hand_overs(context: HandlerContext, tx: Transaction) -> None:
    """After a restart: what was handed over and not confirmed is ready again, in its order.

    The application may have died with this process; waiting for its leases to run out
    would let later messages of a stream overtake these.
    """
    elsewhere = context.elsewhere("offer")
    beside = context.store.fellows is not None and context.store.fellows.others
    for stored in tx.ready(FOR_EVER, 10_000):
        if _key(stored) in elsewhere or _key(stored) in context.state.offering:
            continue
        if beside and stored.incoming.lease_ends is not None:
            # Its taker may have it from a handler that goes on, and confirm it here.
            continue
        if stored.incoming.state is IncomingState.HANDED_OVER:
            try:
                tx.save_incoming(stored.incoming.lost())
            except (StoreDamaged, NotAllowed) as problem:
                withhold(context, tx, stored, problem)


LEASE: Duration = 60 * SECOND
