"""Operate: what an administrator may do to a channel or a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oncewire.agreement.agreement import Direction
from oncewire.agreement.resolve import channel_of
from oncewire.errors import NotAllowed, NotHere, StoreDamaged, UnknownMessage
from oncewire.handler.arriving.poison import (
    call_operator,
    find_to_end,
    give_up_received,
    last_terms,
    mend_channel,
)
from oncewire.handler.documents.original import is_whole
from oncewire.handler.documents.outcome import abandon_document, parts_sent
from oncewire.handler.node import Node
from oncewire.handler.perform import (
    HANDLER,
    load_channel,
    open_incident,
    perform,
    receiver_key,
    receiver_of,
    resolve_incidents,
)
from oncewire.handler.upkeep.resumable import check_resumable
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import format_instant
from oncewire.protocol.effects import Note, Raise, Resolve
from oncewire.protocol.notes import EpochEnded, Resumed, Suspended
from oncewire.protocol.sender import abandon, resume
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState, Phase
from oncewire.protocol.terms import Scope, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing

BEHIND_MAX = 10_000
"""How many messages are looked at when a receiver's pause is lifted; the rest wait it out."""

_WITH_APPLICATION = (IncomingState.HELD, IncomingState.READY, IncomingState.HANDED_OVER)
"""What arrived and waits for the application."""


def find_outgoing(tx: Transaction, message_id: str) -> StoredOutgoing:
    """The message, or an error that says where to look."""
    stored = tx.outgoing(message_id)
    if stored is None:
        for gone in tx.removed(message_id):
            if gone.sender is None:
                when = format_instant(gone.removed_at)
                raise UnknownMessage(
                    f"message {message_id} ended as {gone.state} and was removed by retention "
                    f"on {when}",
                    remedy=f"`oncewire why {message_id}` tells its story",
                )
        raise UnknownMessage(
            f"no message {message_id} was sent from here",
            remedy="`oncewire outbox` lists what was",
        )
    return stored


def _check_not_received(tx: Transaction, message_id: str) -> None:
    """An incident of a message that arrived is the application's to resolve."""
    if tx.outgoing(message_id) is None and tx.incoming_by_id(message_id):
        raise NotAllowed(
            f"message {message_id} was received here, not sent",
            remedy="mend the application: it is offered the message until it takes it",
        )


def _check_given_up(message_id: str, arrived: Sequence[StoredIncoming], *, done_with: bool) -> None:
    """What arrived here is given up only while the application has it before it."""
    if not arrived:
        return
    if done_with:
        states = " and ".join(sorted({kept.incoming.state.value for kept in arrived}))
        raise NotAllowed(
            f"message {message_id} was received here and is {states} already",
            remedy="there is nothing left to abandon",
        )
    raise NotAllowed(
        f"message {message_id} was received here and has not been offered to the application yet",
        remedy="let the application take it; what it refuses can be given up",
    )


def find_channel(tx: Transaction, key: str) -> SendingChannel:
    """The channel, or an error that says where to look."""
    channel = tx.sending_channel(key)
    if channel is None:
        raise NotHere(f"no channel {key} sends from here", remedy="`oncewire status` lists them")
    return channel


def resume_message(node: Node, tx: Transaction, message_id: str) -> None:
    """The trouble with this message is over: send it again with a fresh counter (RTY-13)."""
    _check_not_received(tx, message_id)
    stored = find_outgoing(tx, message_id)
    channel = load_channel(tx, stored.outgoing)
    check_resumable(tx, stored, channel)
    if channel is not None and channel.suspended:
        resume_channel(node, tx, channel.key)
        return
    if stored.outgoing.state is OutgoingState.WAITING:
        # Looked at with the next commit; if it still cannot go on, it has its incident again.
        resolve_incidents(node, tx, Resolve(message_id))
        node.troubled.pop(message_id, None)
        if stored.outgoing.channel is not None:
            node.admissions[stored.outgoing.channel] = None
        return
    if is_whole(stored):
        _resume_parts(node, tx, stored)
        return
    _lift_pause(node, tx, stored.peer, {message_id})
    terms = node.terms_of(tx, stored.outgoing.terms_id)
    step = resume(stored.outgoing, channel, terms, node.now())
    perform(node, tx, stored, channel, step, terms)


def _resume_parts(node: Node, tx: Transaction, whole: StoredOutgoing) -> None:
    """Of a document what is under way are its parts: each of them is sent again."""
    for part in parts_sent(tx, tx.document("", whole.outgoing.message_id)):
        if part.outgoing.state not in FINAL_OUTGOING:
            resume_message(node, tx, part.outgoing.message_id)


def resume_channel(node: Node, tx: Transaction, key: str) -> None:
    """Lift a suspension: every unsettled message starts again with a fresh counter.

    An incident of a stream that only arrives here is resolved by the operator's word.
    """
    if key.split(" ", maxsplit=1)[0] == HANDLER:
        resolve_incidents(node, tx, Resolve(channel=key))
        return
    if mend_channel(node, tx, key):
        return
    if tx.sending_channel(key) is None and tx.receiving_channel(key) is not None:
        resolve_incidents(node, tx, Resolve(channel=key))
        return
    channel = find_channel(tx, key)
    live = tx.live(key)
    ids = {stored.outgoing.message_id for stored in live}
    for peer in sorted({stored.peer for stored in live}):
        _lift_pause(node, tx, peer, ids)
    receiver = receiver_of(key)
    if receiver is not None:
        _lift_pause(node, tx, receiver, set())
        return
    tx.save_sending_channel(channel.resume())
    resolve_incidents(node, tx, Resolve(channel=key))
    node.write(tx, [Note(Resumed(), channel=key)])
    _resume_all(node, tx, live)
    node.admissions[key] = None


def _resume_all(node: Node, tx: Transaction, found: Iterable[StoredOutgoing]) -> None:
    for stored in found:
        if stored.damage:
            continue
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        present = load_channel(tx, stored.outgoing)
        step = resume(stored.outgoing, present, terms, node.now())
        perform(node, tx, stored, present, step, terms)


def _lift_pause(node: Node, tx: Transaction, peer: str, but: set[str]) -> None:
    """The receiver asked for a pause (RTY-8), and the operator knows better: what waits for its
    end starts again, `but` for messages that the caller resumes itself."""
    receiver = tx.sending_channel(receiver_key(peer))
    if receiver is None or receiver.paused_until <= node.now():
        resolve_incidents(node, tx, Resolve(channel=receiver_key(peer)))
        return
    due = [
        message_id
        for message_id in tx.due(receiver.paused_until, BEHIND_MAX)
        if message_id not in but
    ]
    behind = [kept for kept in map(tx.outgoing, due) if kept is not None and kept.peer == peer]
    tx.save_sending_channel(receiver.resume())
    resolve_incidents(node, tx, Resolve(channel=receiver.key))
    node.write(tx, [Note(Resumed())], peer=peer)
    for key in {stored.outgoing.channel: None for stored in behind}:
        channel = None if key is None else tx.sending_channel(key)
        if channel is not None:
            tx.save_sending_channel(replace(channel, paused_until=0))
    _resume_all(node, tx, behind)


def pause_channel(node: Node, tx: Transaction, key: str, reason: str) -> None:
    """Stop sending on a channel until it is resumed; arrivals are not affected."""
    channel = find_channel(tx, key)
    tx.save_sending_channel(channel.suspend(reason))
    node.write(tx, [Note(Suspended(reason), channel=key)])
    open_incident(node, tx, Raise(f"paused by the operator: {reason}", channel=key))


def abandon_message(node: Node, tx: Transaction, message_id: str, by: str | None = None) -> None:
    """Give a message up, by the word of that person; on a numbered channel the numbering restarts
    after it. One that arrived, and that the application was offered and did not confirm, is
    handed to nobody.

    Of one that has its outcome already only the incident is left to close, if it has one:
    past persistDuration nothing else can be done for it (C37). The same holds for a message
    that arrived and is done with.
    """
    if find_to_end(tx, message_id) is None and give_up_received(node, tx, message_id, by):
        return
    arrived = [] if tx.outgoing(message_id) else tx.incoming_by_id(message_id)
    done_with = all(kept.incoming.state not in _WITH_APPLICATION for kept in arrived)
    if arrived and done_with and resolve_incidents(node, tx, Resolve(message_id)):
        return
    _check_given_up(message_id, arrived, done_with=done_with)
    stored = find_outgoing(tx, message_id)
    terms = last_terms(node, tx, stored)
    stored = replace(stored, outgoing=replace(stored.outgoing, terms_id=node.keep_terms(tx, terms)))
    try:
        channel = load_channel(tx, stored.outgoing)
    except StoreDamaged as problem:
        # The stream is made anew without it.
        call_operator(node, tx, problem)
        channel = None
    stands = channel is not None and channel.suspended_by == message_id
    over = stored.outgoing.state in FINAL_OUTGOING and not stands
    if over and resolve_incidents(node, tx, Resolve(message_id)):
        return
    if is_whole(stored) and not over:
        abandon_document(node, tx, stored, by)
        return
    step = abandon(stored.outgoing, channel, terms, by)
    if stored.facts.kind is not MessageKind.NORMAL:
        # Of a signal's end only the operator is told, whose word this is (C33).
        step = replace(step, outgoing=replace(step.outgoing, notice_owed=False))
    perform(node, tx, stored, channel, step, terms)


def hold_message(tx: Transaction, message_id: str, *, held: bool) -> None:
    """Keep a message beyond its time for legal or business reasons, or no longer (STO-8)."""
    if tx.hold(message_id, held):
        return
    for gone in tx.removed(message_id):
        raise UnknownMessage(
            f"message {message_id} was removed by retention on {format_instant(gone.removed_at)}",
            remedy=f"`oncewire why {message_id}` still tells its story",
        )
    raise UnknownMessage(
        f"no message {message_id} is kept here",
        remedy="`oncewire outbox` and `oncewire inbox` list them",
    )


def restart_channel(node: Node, tx: Transaction, key: str) -> None:
    """Restart the numbering of a channel on purpose (SEQ-4).

    Only when every number is settled and the epoch has used a whole window of them: until then
    a copy that the network kept could be taken for one of the new stream (gap 15).
    """
    channel = find_channel(tx, key)
    terms = _stream_terms(node, tx, key)
    if terms is None or not terms.numbered or channel.epoch == 0:
        raise NotAllowed(
            f"channel {key} has no numbering that could be restarted",
            remedy="`oncewire status` shows which channels count, and how far they are",
        )
    if channel.phase is Phase.ENDING:
        raise NotAllowed(
            f"the numbering of channel {key} ends already",
            remedy="the next message that is sent on it begins the new one",
        )
    tx.save_sending_channel(channel.restart(terms))
    ended = EpochEnded("restarted by the operator")
    node.write(tx, [Note(ended, channel=key, epoch=channel.epoch)])


def _stream_terms(node: Node, tx: Transaction, key: str) -> Terms | None:
    """The terms a stream runs under: those of what is on it, else those agreed for it."""
    for stored in (*tx.live(key), *tx.waiting(key, 1)):
        return node.terms_of(tx, stored.outgoing.terms_id)
    conversation = key.partition("#")[2] or None
    for agreement in node.agreements:
        for binding in agreement.bindings():
            terms = binding.terms
            if binding.direction is not Direction.SEND or (
                terms.scope is Scope.CONVERSATION and conversation is None
            ):
                continue
            if channel_of(agreement, terms, Direction.SEND, conversation, None) == key:
                return terms
    return None
