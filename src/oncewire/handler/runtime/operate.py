"""Operate: what an administrator may do to a channel or a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from shlex import quote
from typing import Protocol

from msgspec.structs import replace

from oncewire.agreement.agreement import Direction
from oncewire.agreement.resolve import channel_of
from oncewire.errors import NotAllowed, NotHere, StoreDamaged, UnknownMessage
from oncewire.handler.context import NEVER, HandlerContext
from oncewire.handler.perform import (
    HANDLER,
    WAY,
    load_channel,
    open_incident,
    perform,
    receiver_key,
    receiver_of,
    resolve_incidents,
    way_key,
)
from oncewire.handler.receiving.release import (
    call_operator,
    find_to_end,
    give_up_received,
    last_terms,
    mend_channel,
)
from oncewire.handler.route import peer_label
from oncewire.handler.sending.answer import ANSWER_CHANNEL, signal_ways
from oncewire.handler.sending.outgoing_document import has_parts, is_whole
from oncewire.handler.sending.parts import abandon_document, parts_sent
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import Instant, format_instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.notes import (
    EpochEnded,
    HoldLifted,
    HoldSet,
    Note,
    Raise,
    Resolve,
    Resumed,
    Suspended,
)
from oncewire.protocol.sender import abandon, check_resendable, resume
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, Outgoing, OutgoingState, Phase
from oncewire.protocol.terms import Scope, Terms
from oncewire.store.contract import Reader, Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing

# Resumable: whether an operator's `resume` can help a message on, and why not.


class Stored(Protocol):
    """What is asked of the store: a transaction has it as well as a reader."""

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        """The message that was sent from here under that id."""

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        """A document in parts."""


def can_resume(reader: Reader, stored: StoredOutgoing, now: Instant) -> bool:
    """Whether `resume` would send a message on now. Past its deadline it would not: it would be
    refused, or end the message."""
    outgoing = stored.outgoing
    channel = None if outgoing.channel is None else reader.sending_channel(outgoing.channel)
    try:
        check_resumable(reader, stored, channel)
        terms = reader.terms(outgoing.terms_id)
        deadline = None if terms is None else outgoing.deadline(terms)
        if terms is None or (deadline is not None and deadline <= now):
            return False
        if not _goes_another_way(stored, channel):
            check_resendable(outgoing, channel, terms, now)
    except (NotAllowed, StoreDamaged):
        return False
    return True


def _goes_another_way(stored: StoredOutgoing, channel: SendingChannel | None) -> bool:
    """Whether not the message itself starts anew, but its channel, its parts or its wait."""
    waits = stored.outgoing.state is OutgoingState.WAITING
    return waits or is_whole(stored) or (channel is not None and channel.suspended)


def check_resumable(known: Stored, stored: StoredOutgoing, channel: SendingChannel | None) -> None:
    """Raise NotAllowed of what ended in a way that others have acted on."""
    message_id, state = stored.outgoing.message_id, stored.outgoing.state
    stands = channel is not None and channel.suspended_by == message_id
    if state is OutgoingState.DELIVERED and not stands:
        raise NotAllowed(
            f"message {message_id} was delivered: its receiver acknowledged it",
            remedy="a receiver that has it drops a copy under the same id; `oncewire ask "
            f"{quote(message_id)}` asks whether it still has it. If it has lost it since, as when "
            "an older backup was restored there, or is to process the document once more, send "
            "the document as a new message",
        )
    if state not in FINAL_OUTGOING or (channel is not None and channel.suspended):
        return
    if is_whole(stored):
        _refuse_ended(stored)
    _refuse_part_of_ended(known, stored)
    if stored.relayed_from is not None and stored.facts.kind is MessageKind.NORMAL:
        # A delivery behind the back of a party that acts on the failure would be a second one.
        raise NotAllowed(
            f"the failure of {message_id} was reported to {stored.relayed_from}",
            remedy="its From Party decides whether to send it again",
        )


def _refuse_ended(whole: StoredOutgoing) -> None:
    message_id, state = whole.outgoing.message_id, whole.outgoing.state
    if state in FINAL_OUTGOING:
        raise NotAllowed(
            f"document {message_id} ended as {state.value}, which its application was told",
            remedy="send the document anew, under an id of its own",
        )


def _refuse_part_of_ended(known: Stored, part: StoredOutgoing) -> None:
    """A part that ended took its document with it, and joins it to nothing any more; nor does the
    message that names parts of which one did not arrive."""
    split_id = part.facts.split_id
    whole = None if split_id is None else known.outgoing(split_id)
    if split_id is None or whole is None or not has_parts(whole):
        return
    document = known.document("", split_id)
    if part.facts.split_number is not None or document is None or not document.complete:
        _refuse_ended(whole)


BEHIND_MAX = 10_000
"""How many messages are looked at when a receiver's pause is lifted; the rest wait it out."""

PAUSED = "paused by "
"""How the reason begins for which a channel that a person paused stands still."""

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
            f"no message {message_id} was sent from here", remedy="`oncewire outbox` lists what was"
        )
    return stored


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


def resume_message(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """The trouble with this message is over: send it again with a fresh counter (RTY-13)."""
    # An incident of a message that arrived is the application's to resolve.
    if tx.outgoing(message_id) is None and tx.incoming_by_id(message_id):
        raise NotAllowed(
            f"message {message_id} was received here, not sent",
            remedy="mend the application: it is offered the message until it takes it",
        )
    stored = find_outgoing(tx, message_id)
    channel = load_channel(tx, stored.outgoing)
    check_resumable(tx, stored, channel)
    if channel is not None and channel.suspended:
        resume_channel(context, tx, channel.key)
        return
    if stored.outgoing.state is OutgoingState.WAITING:
        # Looked at with the next commit; if it still cannot go on, it has its incident again.
        resolve_incidents(context, tx, Resolve(message_id))
        context.state.troubled.pop(message_id, None)
        if stored.outgoing.channel is not None:
            context.state.admissions[stored.outgoing.channel] = None
        return
    if is_whole(stored):
        # Of a document what is under way are its parts: each of them is sent again.
        for part in parts_sent(tx, tx.document("", stored.outgoing.message_id)):
            if part.outgoing.state not in FINAL_OUTGOING:
                resume_message(context, tx, part.outgoing.message_id)
        return
    _check_number(tx, stored.outgoing)
    _lift_pause(context, tx, stored.peer, {message_id})
    _start_again(context, tx, stored)


def _check_number(tx: Transaction, outgoing: Outgoing) -> None:
    """Raise NotAllowed where a later message has the number: in a small range they wrap around."""
    if outgoing.channel is None or outgoing.number is None:
        return
    place = (outgoing.epoch, outgoing.number)
    for other in (stored.outgoing for stored in tx.live(outgoing.channel)):
        if (other.epoch, other.number) == place and other.message_id != outgoing.message_id:
            raise NotAllowed(
                f"message {outgoing.message_id} cannot be resent: its number {outgoing.number} "
                f"belongs to {other.message_id} by now",
                remedy="send its content as a new message; `oncewire abandon "
                f"{quote(outgoing.message_id)}` closes its incident",
            )


def resume_channel(context: HandlerContext, tx: Transaction, key: str) -> None:
    """Lift a suspension: every unsettled message starts again with a fresh counter.

    An incident of a stream that only arrives here is resolved by the operator's word.
    """
    if key.split(" ", maxsplit=1)[0] == HANDLER:
        resolve_incidents(context, tx, Resolve(channel=key))
        return
    if mend_channel(context, tx, key):
        return
    if tx.sending_channel(key) is None and tx.receiving_channel(key) is not None:
        resolve_incidents(context, tx, Resolve(channel=key))
        return
    channel = find_channel(tx, key)
    live = tx.live(key)
    ids = {stored.outgoing.message_id for stored in live}
    for peer in sorted({stored.peer for stored in live}):
        _lift_pause(context, tx, peer, ids)
    receiver = receiver_of(key)
    if receiver is not None:
        _lift_pause(context, tx, receiver, set())
        return
    tx.save_sending_channel(channel.resume())
    resolve_incidents(context, tx, Resolve(channel=key))
    context.write(tx, [Note(Resumed(), channel=key)])
    _resume_all(context, tx, live)
    context.state.admissions[key] = None


def find_partner(context: HandlerContext, partner: str) -> str:
    """The label of the handler behind a partner's CPAId, PartyId or label."""
    for agreement in context.agreements:
        ids = agreement.partner.party.ids
        names = {agreement.cpa_id, *agreement.also_known_as, peer_label(agreement)}
        if partner in names | {str(party_id) for party_id in ids} | {one.value for one in ids}:
            return peer_label(agreement)
    raise NotHere(f"no agreement is with {partner}", remedy="`oncewire partner list` shows them")


def resume_partner(
    context: HandlerContext, tx: Transaction, peer: str, channels: Iterable[str]
) -> None:
    """The trouble with a partner is over: everything that goes to it starts again. `channels` are
    those that may be suspended."""
    for transport in [name for label, name in context.state.left if label == peer]:
        context.state.left.discard((peer, transport))
        resolve_incidents(context, tx, Resolve(channel=way_key(peer, transport)))
    for key in channels:
        if any(stored.peer == peer for stored in tx.live(key)):
            resume_channel(context, tx, key)
    _lift_pause(context, tx, peer, set())
    waiting = map(tx.outgoing, tx.due(NEVER, BEHIND_MAX))
    now = context.now()
    _resume_all(
        context,
        tx,
        (
            stored
            for stored in waiting
            if stored is not None
            and stored.peer == peer
            and not is_whole(stored)
            and (stored.outgoing.next_attempt_at or 0) > now
            and stored.outgoing.message_id not in context.state.in_flight
            and ("", stored.outgoing.message_id) not in context.elsewhere("send")
        ),
    )


def _resume_all(context: HandlerContext, tx: Transaction, found: Iterable[StoredOutgoing]) -> None:
    for stored in found:
        if stored.damage:
            continue
        _start_again(context, tx, stored)


def _start_again(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    """A message has a fresh counter, and is due now; an attempt that is under way has its wait."""
    before, now = stored.outgoing, context.now()
    terms, channel = context.terms_of(tx, before.terms_id), load_channel(tx, before)
    step = resume(before, channel, terms, now)
    elsewhere, message_id = context.elsewhere("send"), before.message_id
    in_flight = message_id in context.state.in_flight or ("", message_id) in elsewhere
    if in_flight and step.outgoing.state is OutgoingState.OUTSTANDING:
        timer = _without_pause(before, terms, now)
        step = replace(step, outgoing=replace(step.outgoing, next_attempt_at=timer))
    perform(context, tx, stored, channel, step, terms)


def _lift_pause(context: HandlerContext, tx: Transaction, peer: str, but: set[str]) -> None:
    """The receiver asked for a pause (RTY-8), and the operator knows better: what waits for its
    end starts again, `but` for messages that the caller resumes itself."""
    receiver = tx.sending_channel(receiver_key(peer))
    if receiver is None or receiver.paused_until <= context.now():
        resolve_incidents(context, tx, Resolve(channel=receiver_key(peer)))
        return
    due = [
        message_id
        for message_id in tx.due(receiver.paused_until, BEHIND_MAX)
        if message_id not in but
    ]
    behind = [kept for kept in map(tx.outgoing, due) if kept is not None and kept.peer == peer]
    tx.save_sending_channel(receiver.resume())
    resolve_incidents(context, tx, Resolve(channel=receiver.key))
    context.write(tx, [Note(Resumed())], peer=peer)
    for key in {stored.outgoing.channel: None for stored in behind}:
        channel = None if key is None else tx.sending_channel(key)
        if channel is not None:
            tx.save_sending_channel(replace(channel, paused_until=0))
    _resume_all(context, tx, behind)
    # What stands on a suspended channel, too, is due as soon as that goes on.
    for stored in map(tx.outgoing, tx.expired(NEVER, BEHIND_MAX)):
        if stored is None or stored.peer != peer or stored.damage:
            continue
        timer = stored.outgoing.next_attempt_at or 0
        # Each was put off to the end of the pause as it then was, which has grown since.
        if context.now() < timer <= receiver.paused_until:
            terms = context.terms_of(tx, stored.outgoing.terms_id)
            timer = _without_pause(stored.outgoing, terms, context.now())
            tx.save_outgoing(replace(stored.outgoing, next_attempt_at=timer))


def _without_pause(outgoing: Outgoing, terms: Terms, now: Instant) -> Instant:
    """When a message would be due if its receiver had asked for no pause."""
    own = (outgoing.last_sent_at or 0) + max(terms.timeout, terms.retry_interval)
    return min(outgoing.next_attempt_at or NEVER, max(now, own))


def pause_channel(context: HandlerContext, tx: Transaction, key: str, reason: str) -> None:
    """Stop sending on a channel until it is resumed; arrivals are not affected."""
    channel = find_channel(tx, key)
    if channel.suspended:
        # Who stopped it first, and why, stays what everybody is told.
        raise NotAllowed(
            f"channel {key} is suspended already: {channel.suspended_reason}",
            remedy="nothing is sent on it until it is resumed",
        )
    said = f"{PAUSED}{context.state.by or 'the operator'}: {reason}"
    tx.save_sending_channel(channel.suspend(said))
    context.write(tx, [Note(Suspended(reason), channel=key)])
    open_incident(context, tx, Raise(said, channel=key))


def abandon_message(
    context: HandlerContext, tx: Transaction, message_id: str, by: str | None = None
) -> None:
    """Give a message up, by the word of that person; on a numbered channel the numbering restarts
    after it. One that arrived, and that the application was offered and did not confirm, is
    not handed over.

    Of one that has its outcome already only the incident is left to close, if it has one:
    past persistDuration nothing else can be done for it (C37). The same holds for a message
    that arrived and is done with.
    """
    if find_to_end(tx, message_id) is None and give_up_received(context, tx, message_id, by):
        return
    arrived = [] if tx.outgoing(message_id) else tx.incoming_by_id(message_id)
    done_with = all(kept.incoming.state not in _WITH_APPLICATION for kept in arrived)
    if arrived and done_with and resolve_incidents(context, tx, Resolve(message_id)):
        return
    _check_given_up(message_id, arrived, done_with=done_with)
    stored = find_outgoing(tx, message_id)
    terms = last_terms(context, tx, stored)
    stored = replace(
        stored, outgoing=replace(stored.outgoing, terms_id=context.keep_terms(tx, terms))
    )
    try:
        channel = load_channel(tx, stored.outgoing)
    except StoreDamaged as problem:
        # The stream is made anew without it.
        call_operator(context, tx, problem)
        channel = None
    stands = channel is not None and channel.suspended_by == message_id
    over = stored.outgoing.state in FINAL_OUTGOING and not stands
    if over and resolve_incidents(context, tx, Resolve(message_id)):
        return
    # A document is nothing without one of its parts: the others are not sent for nothing, and
    # their ends call the operator no more.
    whole = stored if is_whole(stored) else _whole_of(tx, stored)
    if whole is not None and not over and whole.outgoing.state not in FINAL_OUTGOING:
        abandon_document(context, tx, whole, by)
        return
    step = abandon(stored.outgoing, channel, terms, by)
    if stored.facts.kind is not MessageKind.NORMAL:
        # Of a signal's end only the operator is told, whose word this is (C33).
        step = replace(step, outgoing=replace(step.outgoing, notice_owed=False))
    perform(context, tx, stored, channel, step, terms)


def _whole_of(tx: Transaction, stored: StoredOutgoing) -> StoredOutgoing | None:
    """The document of ours that a message is a part of, if it is one."""
    if stored.facts.split_number is None or stored.relayed_from is not None:
        return None
    return tx.outgoing(stored.facts.split_id or "")


def hold_message(context: HandlerContext, tx: Transaction, message_id: str, *, held: bool) -> None:
    """Keep a message beyond its time for legal or business reasons, or no longer (STO-8)."""
    was_held = tx.on_hold(message_id)
    if tx.hold(message_id, held):
        if not (held or was_held):
            return
        sent = tx.outgoing(message_id)
        at = sent.outgoing if sent is not None else tx.incoming_by_id(message_id)[0].incoming
        what = HoldSet() if held else HoldLifted()
        note = Note.about(at, what)
        context.write(tx, [note])
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


def restart_channel(context: HandlerContext, tx: Transaction, key: str) -> None:
    """Restart the numbering of a channel on purpose (SEQ-4).

    Only when every number is settled and the epoch has used a whole window of them: until then
    a copy that the network kept could be taken for one of the new stream (gap 15).
    """
    channel = find_channel(tx, key)
    terms = _stream_terms(context, tx, key)
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
    context.write(tx, [Note(ended, channel=key, epoch=channel.epoch)])


def _stream_terms(context: HandlerContext, tx: Transaction, key: str) -> Terms | None:
    """The terms a stream runs under: those of what is on it, else those agreed for it."""
    for stored in (*tx.live(key), *tx.waiting(key, 1)):
        return context.terms_of(tx, stored.outgoing.terms_id)
    conversation = key.partition("#")[2] or None
    for agreement in context.agreements:
        for binding in agreement.bindings():
            terms = binding.terms
            if binding.direction is not Direction.SEND or (
                terms.scope is Scope.CONVERSATION and conversation is None
            ):
                continue
            if channel_of(agreement, terms, Direction.SEND, conversation, None) == key:
                return terms
    return None


# Over: incidents of handlers and ways are closed when what they tell of has ended.
#
# Most incidents are closed by the step that ends their cause. Of these no step can know: a pause
# runs out while nothing is sent, an address is written into an agreement, a transport is agreed no
# more. So they are looked at now and then.


_SIGNALS = (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR)


def close_what_is_over(context: HandlerContext) -> None:
    """Close those whose cause has ended."""
    with context.store.reader() as reader:
        keys = {incident.channel for incident in reader.incidents() if incident.channel}
    for key in sorted(keys):
        # One that cannot be read stays open, and delays no other.
        context.isolated_step(partial(_close_if_over, context, key))


def _close_if_over(context: HandlerContext, key: str, tx: Transaction) -> None:
    if _is_over(context, tx, key):
        resolve_incidents(context, tx, Resolve(channel=key))


def _is_over(context: HandlerContext, tx: Transaction, key: str) -> bool:
    if receiver_of(key) is not None:
        receiver = tx.sending_channel(key)
        return receiver is None or receiver.paused_until <= context.now()
    if key.startswith(ANSWER_CHANNEL):
        return _can_answer(context, key.removeprefix(ANSWER_CHANNEL))
    if key.startswith(WAY):
        transport, _, peer = key.removeprefix(WAY).partition(" to ")
        # Whether messages to a partner may go by a transport.
        agreed = any(
            transport in agreement.sending.terms.transports
            for agreement in context.agreements
            if peer_label(agreement) == peer
        )
        if not agreed:
            context.state.left.discard((peer, transport))
        return not agreed
    return False


def _can_answer(context: HandlerContext, peer: str) -> bool:
    """Whether every signal to a partner has somewhere to go."""
    return all(
        signal_ways(context, agreement, kind)
        for agreement in context.agreements
        if peer_label(agreement) == peer
        for kind in _SIGNALS
    )
