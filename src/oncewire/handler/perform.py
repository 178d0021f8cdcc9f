"""Perform: save what a protocol step decided, journal it, and collect what must leave."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from oncewire.agreement.agreement import Direction
from oncewire.agreement.resolve import is_of_another, other_names
from oncewire.errors import InvalidValue, NotAllowed, StoreDamaged
from oncewire.handler.actions import Post, Settled
from oncewire.handler.content_digest import check_kept
from oncewire.handler.context import HandlerContext
from oncewire.handler.route import addresses_for
from oncewire.message.envelope import Header, MessageKind
from oncewire.message.instant import SECOND, Instant
from oncewire.protocol.notes import (
    Admit,
    AskStatus,
    Detail,
    Effect,
    Incident,
    Leave,
    Note,
    Notify,
    Pause,
    Raise,
    Resolve,
    Resolved,
    Submitted,
    Transmit,
)
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sender import SenderStep, Way, attempt_due
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, Incoming, Outgoing, Phase
from oncewire.protocol.terms import Scope, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing, StoredParcel, Word

logger = logging.getLogger("oncewire.handler")

_TO = "to "

HANDLER = "handler"
"""The channel that incidents name which are the handler's own: it carries no messages."""

WAY = f"{HANDLER} way "

STORE = f"{HANDLER} store"
"""The store cannot be written for now."""

DAMAGED = f"{HANDLER} damaged"
"""The store is damaged, and it is unknown which message that concerns."""


def load_channel(tx: Transaction, outgoing: Outgoing) -> SendingChannel | None:
    """The channel a message runs on, if it has one."""
    return None if outgoing.channel is None else tx.sending_channel(outgoing.channel)


def stream_to_join(
    context: HandlerContext, tx: Transaction, key: str | None, terms: Terms
) -> str | None:
    """The name of the stream that a new message goes on, which is called `key` today.

    Where the agreement changed from numbers per pair to numbers per triple, or back, what has not
    ended on the stream of before and what follows it are one stream to their receiver.
    """
    known = context.state.numbered
    if key is None or not terms.numbered or terms.scope is Scope.CONVERSATION or key in known:
        return key
    other, today = _other_stream(context, tx, key, terms), tx.sending_channel(key)
    if other is None or not (other.unsettled(terms) or tx.waiting(other.key, 1)):
        return key
    if today is not None and (today.unsettled(terms) or tx.waiting(key, 1)):
        return key
    return other.key


def _other_stream(
    context: HandlerContext, tx: Transaction, key: str, terms: Terms
) -> SendingChannel | None:
    """The last stream that had the numbers which are those of `key` today."""
    found = [
        channel
        for name in other_names(key, terms)
        if (channel := tx.sending_channel(name)) is not None
        and not is_of_another(name, context.agreements, Direction.SEND)
    ]
    return max(found, key=lambda channel: channel.last_stamp, default=None)


def stream_to_number(
    context: HandlerContext, tx: Transaction, key: str, terms: Terms
) -> SendingChannel:
    """The numbered stream of that name, opened where there is none.

    A receiver cannot tell numbers per pair from numbers per triple. Where the agreement changed
    from one to the other, the stream therefore begins anew, later than the other one ended.
    """
    channel = tx.sending_channel(key) or SendingChannel.open(key, terms)
    if terms.scope is Scope.CONVERSATION or key in context.state.numbered:
        return channel
    other = _other_stream(context, tx, key, terms)
    if other is None or other.last_stamp <= channel.last_stamp:
        if other is None or not (other.unsettled(terms) or tx.waiting(other.key, 1)):
            # What is left on it may still be numbered, and would be later.
            context.state.numbered.add(key)
        context.state.numbered.difference_update(other_names(key, terms))
    elif not channel.unsettled(terms):
        ended = channel if channel.phase is Phase.UNBEGUN else channel.end_epoch()
        channel = replace(ended, last_stamp=other.last_stamp)
        # What must wait for a place gets its number from the stored one.
        tx.save_sending_channel(channel)
    return channel


def perform(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    before: SendingChannel | None,
    step: SenderStep,
    terms: Terms,
    *,
    parcel: StoredParcel | None = None,
    addresses: Mapping[str, str] | None = None,
) -> None:
    """Save one step of a stored message, journal it, and collect what leaves after the commit.

    `parcel`, `addresses`: its bytes and where it goes by each transport, if they are at hand.
    """
    channel = step.channel
    if channel is not None and any(isinstance(effect, Pause) for effect in step.effects):
        # It is kept in one place, with the receiver: lifted there, it is lifted for every
        # channel, also for one on which nothing waits at that moment.
        channel = replace(channel, paused_until=0)
    if channel is not None and channel is not before:
        tx.save_sending_channel(channel)
    if step.outgoing is not stored.outgoing:
        tx.save_outgoing(step.outgoing, parcel=parcel)
    perform_effects(context, tx, stored, step.outgoing, step.effects, terms, parcel, addresses)
    if step.outgoing.state in FINAL_OUTGOING:
        context.state.in_flight.discard(step.outgoing.message_id)
        if stored.facts.split_number is not None and stored.relayed_from is None:
            context.state.parts_ended.append(step.outgoing.message_id)
        context.state.actions.append(Settled(step.outgoing.message_id, step.outgoing.state))


def perform_effects(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    outgoing: Outgoing,
    effects: tuple[Effect, ...],
    terms: Terms,
    parcel: StoredParcel | None = None,
    addresses: Mapping[str, str] | None = None,
) -> None:
    """Journal the notes, and collect what leaves after the commit."""
    notes = [effect for effect in effects if isinstance(effect, Note)]
    if notes:
        context.write(
            tx, notes, terms_id=outgoing.terms_id, hop=stored.hop or None, peer=stored.peer
        )
    for effect in effects:
        if isinstance(effect, Transmit):
            _post(context, tx, stored, outgoing, effect, terms, parcel, addresses)
        elif isinstance(effect, Raise):
            open_incident(context, tx, effect)
        elif isinstance(effect, Resolve):
            resolve_incidents(context, tx, effect)
        elif isinstance(effect, Pause):
            _pause_receiver(context, tx, stored.peer, effect)
        elif isinstance(effect, Leave):
            _leave(context, tx, stored.peer, effect)
        elif isinstance(effect, AskStatus):
            context.state.status_questions.append(effect.message_id)
        elif isinstance(effect, Notify):
            context.state.failed.append(outgoing.message_id)
        elif isinstance(effect, Admit):
            # In a transition of its own: what is wrong with one that waits is not this one's.
            context.state.admissions[effect.channel] = None


def _post(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    outgoing: Outgoing,
    effect: Transmit,
    terms: Terms,
    parcel: StoredParcel | None,
    addresses: Mapping[str, str] | None,
) -> None:
    if addresses is None:
        addresses = addresses_for(context, tx, stored, (effect.transport,))
    address = addresses.get(effect.transport)
    if parcel is None:
        # It was not made just now: what was kept may have changed.
        parcel = tx.outgoing_parcel(effect.message_id)
        if parcel is not None:
            check_kept(parcel, effect.message_id)
    fellows = context.store.fellows
    if fellows is not None and ("", effect.message_id) in fellows.elsewhere("send"):
        raise NotAllowed(
            f"message {effect.message_id} is being sent by another handler",
            remedy="try again when its attempt is over",
        )
    if address is None or parcel is None:
        raise StoreDamaged(
            f"message {effect.message_id} has no bytes or no address to be sent with",
            remedy="restore the store from a backup",
        )
    if effect.message_id in context.state.troubled:
        relieve(context, tx, effect.message_id)
    delegated = terms.reliable and not terms.runs_protocol
    timeout = max(terms.sync_timeout, 1)
    begin_within = None
    if delegated:
        # Beyond its deadline, at which it is called unknown whatever the transport says later.
        timeout += terms.persist_duration
        deadline = outgoing.deadline(terms)
        if deadline is not None:
            # A moment before the deadline, so that what never left is known by then to have
            # never left (ERR-9).
            time_left = max(deadline - context.now(), 0)
            begin_within = time_left - min(SECOND, time_left // 10)
    else:
        context.state.in_flight.add(effect.message_id)
    context.state.actions.append(
        Post(
            effect.message_id,
            effect.attempt,
            effect.transport,
            address,
            parcel,
            timeout,
            delegated,
            begin_within,
        )
    )


def relieve(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """A message goes on: what held it up, if anything did, is over."""
    if message_id in context.state.troubled:
        del context.state.troubled[message_id]
        context.state.trouble_changed.append(message_id)
        resolve_incidents(context, tx, Resolve(message_id))


def way_to(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    terms: Terms,
    addresses: Mapping[str, str],
) -> Way:
    """What lies between us and the receiver of a message at this moment."""
    receiver = tx.sending_channel(receiver_key(stored.peer))
    closed = frozenset(terms.transports).difference(addresses)
    left = frozenset(name for peer, name in context.state.left if peer == stored.peer)
    return Way(0 if receiver is None else receiver.paused_until, closed, left)


def _leave(context: HandlerContext, tx: Transaction, peer: str, effect: Leave) -> None:
    """Nothing got across: the operator hears of it once, and it is probed from now on."""
    context.state.left.add((peer, effect.transport))
    reason = f"nothing gets to {peer} over {effect.transport}: messages go another way"
    open_incident(context, tx, Raise(reason, channel=way_key(peer, effect.transport)))


def _pause_receiver(context: HandlerContext, tx: Transaction, peer: str, effect: Pause) -> None:
    """Keep the pause that a receiver asked for under the receiver's own name (RTY-8)."""
    key = receiver_key(peer)
    receiver = tx.sending_channel(key) or SendingChannel(key)
    tx.save_sending_channel(receiver.pause(effect.until))
    if effect.problem:
        open_incident(context, tx, Raise(effect.problem, channel=key))


def way_key(peer: str, transport: str) -> str:
    """The channel that incidents name of a transport that nothing gets across on."""
    return f"{WAY}{transport} to {peer}"


def receiver_key(peer: str) -> str:
    """The channel that stands for everything that goes to one handler. It carries no numbers:
    it is where the pause that a receiver asks for is kept, and lifted (RTY-8)."""
    return f"{_TO}{peer}"


def receiver_of(key: str) -> str | None:
    """The handler that such a channel stands for; None: it is another channel."""
    return key.removeprefix(_TO) if key.startswith(_TO) else None


def open_incident(
    context: HandlerContext, tx: Transaction, effect: Raise, arrived: Incoming | None = None
) -> None:
    """Open an incident and say so in the journal; one that is open already is enough.

    `arrived`: the message that it is about, if that came from others. Its place in its stream is
    told, so that a reader of the stream sees why it stands there, and what stands behind it.
    """
    if tx.has_incident(effect.message_id, effect.channel):
        return
    number = tx.open_incident(context.now(), effect.reason, effect.message_id, effect.channel)
    note = Note(Incident(str(number), effect.reason), effect.message_id, channel=effect.channel)
    if arrived is not None and effect.channel is None:
        note = Note.about(arrived, note.what)
    context.write(tx, [note])


def resolve_incidents(
    context: HandlerContext, tx: Transaction, effect: Resolve, stream: str | None = None
) -> int:
    """Close the incidents of a message or a channel; returns how many were open."""
    numbers = tx.resolve_incidents(context.now(), effect.message_id, effect.channel)
    for number in numbers:
        channel = effect.channel or stream
        note = Note(Resolved(str(number)), effect.message_id, channel=channel)
        context.write(tx, [note])
    return len(numbers)


def first_attempt(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    entered: SenderStep,
    terms: Terms,
    now: Instant,
    addresses: Mapping[str, str],
) -> SenderStep:
    """A message that has just entered the window, with its first attempt begun.

    Where there is no room for it or no way, and on a node at rest, the attempt is left due: one
    that was begun and not made would be waited for in vain.
    """
    if context.room < 1:
        return entered
    way = way_to(context, tx, stored, terms, addresses)
    if entered.outgoing.transport_name(terms) in way.closed:
        return entered
    step = attempt_due(entered.outgoing, entered.channel, terms, now, way)
    return SenderStep(step.outgoing, step.channel, (*entered.effects, *step.effects))


def begin(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    before: SendingChannel | None,
    entered: SenderStep,
    terms: Terms,
    parcel: StoredParcel,
    addresses: Mapping[str, str] | None = None,
    words: tuple[Word, ...] = (),
) -> None:
    """Store a message that has entered its window, with its bytes and what it is found by, and
    begin its first attempt."""
    if addresses is None:
        addresses = addresses_for(context, tx, stored, terms.transports)
    step = first_attempt(context, tx, stored, entered, terms, context.now(), addresses)
    fresh = replace(stored, outgoing=step.outgoing)
    tx.add_outgoing(fresh, parcel=parcel, draft=None, words=words)
    perform(context, tx, fresh, before, step, terms, parcel=parcel, addresses=addresses)


def journal_submitted(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    header: Header,
    *,
    best_effort: bool = False,
    document_digest: str | None = None,
) -> None:
    """Journal a message, a document or a part of one as submitted."""
    facts, outgoing = stored.facts, stored.outgoing
    what = Submitted(
        from_party=facts.from_party,
        to_party=facts.to_party,
        cpa_id=facts.cpa_id,
        conversation_id=facts.conversation_id,
        service=str(header.service),
        action=header.action,
        time_to_live=header.time_to_live,
        best_effort=best_effort,
        notice=facts.kind is MessageKind.ERROR,
        split_id=facts.split_id,
        split_number=facts.split_number,
        split_total=facts.split_total,
        document_digest=document_digest,
    )
    context.write(
        tx,
        [Note(what, outgoing.message_id, facts.ref_to, outgoing.channel)],
        terms_id=outgoing.terms_id,
        peer=facts.to_party,
        hop=stored.hop or None,
        digest=facts.digest,
        size=facts.size,
    )


def journal_received(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    what: Detail,
    incoming: Incoming,
    digest: str,
) -> None:
    """Write what became of a message that was received, with its place in its stream."""
    context.write(
        tx,
        [Note.about(incoming, what, stored.facts.ref_to)],
        terms_id=incoming.terms_id,
        peer=stored.facts.from_party,
        digest=digest,
        size=stored.facts.size,
    )


def withhold(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming, problem: Exception
) -> None:
    """Call the operator, once: other content than was accepted is not given out (S15)."""
    message_id = stored.incoming.message_id
    with context.store.reader() as reader:
        called = any(incident.message_id == message_id for incident in reader.incidents())
    if not called:
        logger.error("a message cannot be handed over", extra={"message_id": message_id})
        reason = f"it cannot be handed over: {str(problem)[:200]}; mended, it goes on by itself"
        if not isinstance(problem, InvalidValue):
            # What is whole and only too large is not given up: others can take it.
            reason += f"; or give it up: `oncewire abandon {message_id}`"
        open_incident(context, tx, Raise(reason, message_id), stored.incoming)


def follow(
    context: HandlerContext,
    tx: Transaction,
    channel: ReceivingChannel | None,
    effects: tuple[Effect, ...],
) -> None:
    """Save a stream's new state and record what the step noted."""
    if channel is not None:
        tx.save_receiving_channel(channel)
    notes = [effect for effect in effects if isinstance(effect, Note)]
    if notes:
        context.write(tx, notes)
    for effect in effects:
        if isinstance(effect, Raise):
            open_incident(context, tx, effect)
