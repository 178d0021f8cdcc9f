"""Next hop: a message that is not for us is sent on.

A hub leaves the message as it is: it splices its own RoutingHeader, and the number of the
next stream, into the received bytes and changes no other byte.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.rules import notice_terms
from oncewire.errors import (
    AgreementProblem,
    NotAllowed,
    OncewireError,
    StoreDamaged,
    StoreFull,
    StoreGone,
    UnknownMessage,
)
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.notices import write_notified
from oncewire.handler.encryption import read_head, read_stored
from oncewire.handler.perform import (
    begin,
    open_incident,
    resolve_incidents,
    stream_to_join,
    stream_to_number,
    withhold,
)
from oncewire.handler.route import envelope_for, route_under, stamped
from oncewire.handler.sending.seal import (
    onward_parcel,
    relayed,
    relayed_draft,
    sequence_of,
    store_outgoing,
    unpack_draft,
)
from oncewire.message.envelope import Actor, Message
from oncewire.message.form import SyncReplyMode
from oncewire.protocol.hops import owes_failure_notice
from oncewire.protocol.notes import (
    Abandoned,
    Failed,
    Forwarded,
    Note,
    Notified,
    Raise,
    Resolve,
    Skipped,
)
from oncewire.protocol.sender import enter_window
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.synchronous import onward_patience
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing
from oncewire.wire import answers


def send_onward(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    ahead: Agreement,
    outer: Terms | None = None,
) -> None:
    """Store the onward copy, numbered for the next hop where its stream has a place.

    `outer`: the connection it came on waits, under these terms, so its own hop is synchronous
    too and shorter (SYNC-11, gap 11).
    """
    if stored.parcel is None:
        return
    received = read_head(context.store.spool, stored.parcel, context.limits)
    message = received.message
    route = route_under(ahead, ahead.default(Direction.SEND))
    # Where no connection waits this hop is no synchronous exchange, and is repeated (SYNC-18).
    terms = structs.replace(route.terms, sync_mode=SyncReplyMode.NONE)
    if outer is not None:
        timeout = onward_patience(outer, route.terms)
        terms = structs.replace(route.terms, sync_mode=outer.sync_mode, sync_timeout=timeout)
    route = replace(route, terms=terms)
    key = stream_to_join(context, tx, route.channel_of(message.header.conversation_id), route.terms)
    outgoing = Outgoing(
        message.header.message_id,
        context.keep_terms(tx, route.terms),
        context.now(),
        key,
        expires_at=message.header.time_to_live,
    )
    copy = StoredOutgoing(
        outgoing,
        stored.facts,
        route.peer,
        relayed_from=stored.facts.from_party,
        hop=len(message.routing) + 1,
        agreement_id=context.keep_agreement(tx, ahead),
    )
    # The row belongs to the stream that the message came on, whose number it uses up; the onward
    # stream tells of itself when it gives the copy a number.
    facts = copy.facts
    what = Forwarded(facts.from_party, facts.to_party, message.header.time_to_live, key)
    context.write(
        tx,
        [Note.about(stored.incoming, what)],
        terms_id=outgoing.terms_id,
        hop=copy.hop,
        peer=copy.peer,
        digest=facts.digest,
        size=facts.size,
    )
    channel = None
    if key is not None:
        channel = stream_to_number(context, tx, key, route.terms)
        if channel.places(route.terms) < 1 or tx.waiting(key, 1):
            draft, files = relayed_draft(stored.parcel)
            tx.add_outgoing(copy, parcel=None, draft=draft, files=files)
            return
    now = stamp = context.now()
    before = channel
    if channel is not None:
        # Along a stream timestamps rise strictly; the hop's own is what its receiver reads.
        channel, stamp = channel.stamp(now)
    entered = enter_window(copy.outgoing, channel, terms, now)
    sequence = sequence_of(entered.outgoing, terms)
    parcel = onward_parcel(context, received, route, sequence, stamp, kept=True)
    begin(context, tx, copy, before, entered, terms, parcel)


def report_failure(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    """A hub that could not deliver tells the From Party (HOP-9, ERR-5..9).

    Only a notice that is stored and will be sent counts as telling.
    """
    parcel = tx.outgoing_parcel(stored.outgoing.message_id)
    draft = None if parcel is not None else tx.draft(stored.outgoing.message_id)
    failed = None
    if parcel is not None:
        failed = read_head(context.store.spool, parcel, context.limits).message
    elif draft is not None:
        failed = relayed(context, unpack_draft(draft)).message
    if failed is None:
        raise UnknownMessage(
            f"the bytes of {stored.outgoing.message_id} are gone",
            remedy="tell the From Party by other means",
        )
    unknown = stored.outgoing.state is OutgoingState.UNKNOWN
    notice_id = tell_from_party(
        context, tx, failed, transmitted=unknown, reason=stored.outgoing.reason
    )
    write_notified(context, tx, stored, notice_id)


def tell_from_party(
    context: HandlerContext, tx: Transaction, failed: Message, *, transmitted: bool, reason: str
) -> str:
    """Store the notice of a failure on its way to the From Party; returns its MessageId."""
    # Today's way to the From Party; where there is none any more, the agreement that the message
    # came under: what was taken under it is answered for under it.
    header = failed.header
    back = context.agreements.toward(header.from_party)
    for stored in () if back is not None else tx.incoming_by_id(header.message_id):
        if stored.facts.from_party == str(header.from_party):
            back = back or context.agreement_kept(tx, stored.agreement_id)
    if back is None:
        raise AgreementProblem(
            f"no agreement leads back to {failed.header.from_party}",
            remedy="add an agreement with the From Party, or with a hub that reaches it",
        )
    route = route_under(back, back.sending)
    envelope = structs.replace(envelope_for(context, route), hop=route.hop(context.now()))
    notice = answers.delivery_failure_for(
        failed, envelope, transmitted=transmitted, description=reason[:300]
    )
    # No connection waits for it, so it is repeated like any other (SYNC-18).
    asked = notice.asks_ack_of(Actor.TO_PARTY_MSH)
    terms = structs.replace(route.terms, sync_mode=SyncReplyMode.NONE, ack_requested=asked)
    if not notice.reliable:
        terms = notice_terms(terms)
    route = replace(route, terms=terms)
    key = stream_to_join(context, tx, route.channel_of(notice.header.conversation_id), terms)
    if key is not None:
        # As `submit` has it: later than the message before it, whatever the clock says.
        channel, stamp = stream_to_number(context, tx, key, terms).stamp(context.now())
        tx.save_sending_channel(channel)
        header = structs.replace(notice.header, timestamp=stamp)
        notice = stamped(structs.replace(notice, header=header), stamp)
    store_outgoing(context, tx, notice, route, key)
    return notice.header.message_id


# Stranded: what a hub acknowledged and cannot send on, because the way on is gone.
#
# A message that waited for an earlier number is released to the next hop; if no agreement leads
# there any more, the hub still answers for it (HOP-8, S12). It stays as it is, an incident calls
# the operator, and it goes on, in its order, as soon as the agreement is back or by the operator's
# word. Giving it up is the operator's decision, and the From Party is told (HOP-9).


LOOK_AT = 10_000
"""Held messages that one look goes through; they are bounded by the windows of the streams."""


def _ahead(context: HandlerContext, stored: StoredIncoming) -> Agreement | None:
    """The agreement that a message goes on under; None: no one leads on, or its bytes are gone."""
    message = _stranded_message(context, stored)
    if message is None:
        return None
    return context.agreements.toward(message.header.to_party, message.header.service)


def go_on(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """A held message's turn has come to go on; False: it cannot, and the operator is called."""
    ahead = _ahead(context, stored)
    if ahead is None:
        problem = f"no agreement leads on to {stored.facts.to_party} any more"
        incoming = stored.incoming
        open_incident(context, tx, Raise(problem, incoming.message_id), incoming)
        return False
    _forward(context, tx, stored, ahead)
    return True


def resume_stranded_hops(
    context: HandlerContext, tx: Transaction, to_party: str | None = None
) -> None:
    """Send on what is stranded and has a way again, all of it or what is for one party."""
    stranded = [kept for kept in tx.held(LOOK_AT) if to_party in (None, kept.facts.to_party)]
    for listed in sorted(stranded, key=lambda kept: _place(context, tx, kept.incoming)):
        if not is_stranded(context, tx, listed):
            continue
        stored = _whole(context, tx, listed)
        ahead = None if stored is None else _ahead(context, stored)
        if stored is not None and ahead is not None:
            _forward(context, tx, stored, ahead)


def _whole(
    context: HandlerContext, tx: Transaction, listed: StoredIncoming
) -> StoredIncoming | None:
    """With its bytes; None: they cannot be read, and the operator is called."""
    incoming = listed.incoming
    try:
        stored = tx.incoming(incoming.sender, incoming.message_id)
        if stored is not None:
            _stranded_message(context, stored)
    except (StoreFull, StoreGone):
        raise
    except OncewireError as problem:
        withhold(context, tx, listed, problem)
        return None
    return stored


def is_stranded(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether its turn to go on came and it is still here."""
    incoming = stored.incoming
    if incoming.state is not IncomingState.HELD or context.is_ours(tx, stored):
        return False
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    held = () if channel is None else channel.held
    return all(held_message.message_id != incoming.message_id for held_message in held)


def resume_stranded(context: HandlerContext, tx: Transaction, message_id: str) -> bool:
    """The operator's word that the way is there again; False: no such message is stranded."""
    found = _stranded(context, tx, message_id)
    for stored in found:
        if _ahead(context, stored) is None:
            raise NotAllowed(
                f"no agreement leads on to {stored.facts.to_party}",
                remedy="put back the agreement with that party, or with a hub that reaches it",
            )
        # Those before it on its stream go first.
        resume_stranded_hops(context, tx, stored.facts.to_party)
    return bool(found)


def abandon_stranded(
    context: HandlerContext, tx: Transaction, message_id: str, by: str | None = None
) -> bool:
    """The operator, called `by`, gives it up, and its From Party is told, unless it is itself a
    notice (C33); False: none is stranded."""
    found = _stranded(context, tx, message_id)
    for stored in found:
        message = _stranded_message(context, stored)
        if message is None:
            continue
        incoming = _forwarded(stored.incoming)
        tx.save_incoming(incoming)
        reason = f"no agreement leads on to {stored.facts.to_party}"
        notes = [
            # Its turn had come: the stream it came on goes on without it (S7).
            Note.about(incoming, Skipped("abandoned")),
            Note(Abandoned(by), message_id, channel=incoming.channel),
            Note(Failed("not_delivered", "abandoned"), message_id, channel=incoming.channel),
        ]
        if owes_failure_notice(stored.facts.kind, reliable=True):
            notice_id = tell_from_party(context, tx, message, transmitted=False, reason=reason)
            notes.append(Note(Notified("Error"), message_id, notice_id))
        context.write(tx, notes, terms_id=incoming.terms_id, peer=stored.facts.from_party)
        resolve_incidents(context, tx, Resolve(message_id), incoming.channel)
    return bool(found)


def _stranded(context: HandlerContext, tx: Transaction, message_id: str) -> list[StoredIncoming]:
    try:
        found = tx.incoming_by_id(message_id)
    except StoreDamaged:
        # What cannot be read cannot go on either.
        return []
    return [stored for stored in found if is_stranded(context, tx, stored)]


def _forward(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming, ahead: Agreement
) -> None:
    incoming = _forwarded(stored.incoming)
    tx.save_incoming(incoming)
    resolve_incidents(context, tx, Resolve(incoming.message_id), incoming.channel)
    send_onward(context, tx, structs.replace(stored, incoming=incoming), ahead)


def _forwarded(incoming: Incoming) -> Incoming:
    return incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.FORWARDED)


def _stranded_message(context: HandlerContext, stored: StoredIncoming) -> Message | None:
    if stored.parcel is None:
        return None
    return read_stored(context.store.spool, stored.parcel, context.limits).message


def _place(context: HandlerContext, tx: Transaction, incoming: Incoming) -> tuple[str, int, int]:
    """Where it stands in its stream: numbers wrap, so they count from the one expected now."""
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    if channel is None or incoming.number is None:
        return "", 0, 0
    try:
        numbers = context.terms_of(tx, incoming.terms_id).numbers
    except OncewireError:
        return channel.key, incoming.epoch or 0, 0
    behind = numbers.distance(incoming.number, channel.expected)
    return channel.key, incoming.epoch or 0, -behind
