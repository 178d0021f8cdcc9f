"""Passing: what a hub lets through without taking it upon itself (HOP-7).

It is a proxy for the To Party: the message goes on, what answers it goes back the way the
message came, and every byte but the routing stays as it was. In the drafts an answer names the
two ends of the last hop only (ACK-4, ACK-12), so whom it is for is known by the message it
refers to: of each message that may be answered a row is kept, without its bytes. A report that
goes back is stored until somebody took it: nobody repeats it if it is lost here.
"""

from __future__ import annotations

from dataclasses import replace

from oncewire.agreement.agreement import Agreement, Direction, EndpointType
from oncewire.agreement.naming import sender_of
from oncewire.agreement.resolve import Resolution
from oncewire.agreement.rules import notice_terms
from oncewire.errors import ValueNotRecognized
from oncewire.handler.actions import PostAnswer, PostOn
from oncewire.handler.answering.answer import NOTHING, Answer, Awaited
from oncewire.handler.arrival import facts_under
from oncewire.handler.hub.relay import give_back, waiting_for
from oncewire.handler.node import Node
from oncewire.handler.perform import first_attempt, perform
from oncewire.handler.route import (
    Route,
    addresses_for,
    agreement_of_hop,
    agreement_toward,
    peer_label,
    route_under,
)
from oncewire.handler.sealing.seal import onward_parcel
from oncewire.handler.sealing.secure import check_connection
from oncewire.handler.sending.submit import facts_of
from oncewire.handler.source import REPLY, Source
from oncewire.message.acknowledgment import Actor
from oncewire.message.envelope import ANSWERS, Message, MessageKind
from oncewire.message.header import AckRequest
from oncewire.protocol.effects import Note
from oncewire.protocol.hops import HopDuty, awaits_onward
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.notes import PassedOn
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sender import enter_window
from oncewire.protocol.states import IncomingEvent, IncomingState, OutgoingState
from oncewire.protocol.synchronous import onward_patience, plan_reply, relay_patience
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing, StoredParcel
from oncewire.wire.received import Received


def is_answer(message: Message) -> bool:
    """Whether a message only answers another, and calls for no answer itself; an error is such a
    one unless it is itself reliable."""
    if message.kind is MessageKind.ERROR:
        return not message.reliable
    return message.kind in ANSWERS


def pass_on(
    node: Node,
    tx: Transaction,
    received: Received,
    ahead: Agreement,
    before: Resolution,
    source: Source,
    asked: StoredIncoming | None = None,
) -> Answer:
    """Send it on and promise nothing; the end parties' own retries protect it. `asked`: the
    message that went on from here and that this one answers.

    What it asks of the next handler it goes on asking: the answer comes back through here, and
    on this connection where that was asked for too (SYNC-11).
    """
    message = received.message
    route = route_under(ahead, ahead.default(Direction.SEND))
    parcel = _through(node, tx, received, route)
    if is_answer(message):
        _post(node, tx, message, route, parcel, source, asked=asked)
        return NOTHING
    _remember(node, tx, message, ahead, before, source)
    plan = plan_reply(
        message, before.terms, can_answer=source.can_answer, final=False, ack_owed=False
    )
    if not awaits_onward(message, HopDuty.PROXY, plan):
        _post(node, tx, message, route, parcel, source)
        return NOTHING
    sender = str(sender_of(before.agreement, message.header.from_party))
    return _keep_open(node, message, sender, route, parcel, before.terms)


def pass_back(
    node: Node, tx: Transaction, received: Received, asked: StoredIncoming, source: Source
) -> None:
    """What answers a message that was passed on goes back to the handler that came from.

    It must come over the connection that leads on to the To Party, if its agreement binds one.
    """
    ahead = _way_on(node, tx, asked)
    before = agreement_of_hop(node, tx, asked)
    if ahead is None or before is None:
        raise ValueNotRecognized(
            f"no agreement leads to {asked.peer if ahead else asked.facts.to_party} any more",
            location="//MessageData/RefToMessageId",
            remedy="put back the agreement that the message came or went under",
        )
    check_connection(node, ahead, source)
    kind = received.message.kind
    route = route_under(before, before.signal_binding(Direction.SEND, kind))
    error = kind is MessageKind.ERROR
    parcel = _through(node, tx, received, route)
    endpoint = EndpointType.ERROR if error else EndpointType.RESPONSE
    _post(node, tx, received.message, route, parcel, source, endpoint, asked)


def _way_on(node: Node, tx: Transaction, asked: StoredIncoming) -> Agreement | None:
    """The agreement by which a message went on to its To Party: today's, or where that is gone
    the one that our copy went under."""
    today = agreement_toward(node, asked.facts.to_party, asked.facts.service)
    copy = None if today is not None else tx.outgoing(asked.incoming.message_id)
    return today if copy is None else agreement_of_hop(node, tx, copy)


def way_back(
    node: Node, tx: Transaction, message: Message, asked: StoredIncoming | None
) -> Agreement | None:
    """The way on for an answer to its From Party where no agreement of today leads there: what
    was taken under an agreement is answered for under it."""
    if asked is None or not _names_from_party(message, asked):
        return None
    return agreement_of_hop(node, tx, asked)


def _names_from_party(message: Message, asked: StoredIncoming) -> bool:
    """Whether an answer is addressed to who sent what it answers, and not to the last hub."""
    return asked.facts.from_party in map(str, message.header.to_party.ids)


def is_receipt(message: Message, asked: StoredIncoming) -> bool:
    """Whether the To Party itself acknowledges, by the name that the element gives (ACK-18), and
    not only the hop to it: that is for the hub which made the hop (HOP-12)."""
    return any(
        acknowledgment.from_party is not None
        and acknowledgment.actor is Actor.TO_PARTY_MSH
        and asked.facts.to_party in map(str, acknowledgment.from_party.ids)
        for acknowledgment in message.acknowledgments
    )


def is_from_beyond(node: Node, tx: Transaction, received: Received, asked: StoredIncoming) -> bool:
    """Whether another hub gives the To Party's signed receipt back: its signature is for the
    From Party to check, and of our own hop it says nothing."""
    ahead = _way_on(node, tx, asked)
    if ahead is None or asked.facts.to_party in map(str, ahead.partner.party.ids):
        return False
    wanted = node.terms_of(tx, asked.incoming.terms_id).ack_requested
    signed = wanted is AckRequest.SIGNED or (wanted is not AckRequest.NONE and received.signed)
    return signed and is_receipt(received.message, asked)


def relay_receipt(
    node: Node, tx: Transaction, received: Received, asked: StoredIncoming, source: Source
) -> None:
    """Give the To Party's acknowledgement back where the initiator waits for it, if it asked.

    It waits on a connection of its own, or because acknowledgements are typed: then a hub's is
    not the receipt (HOP-12). Nor is it where the receipt has to be signed: nobody but the To
    Party can prove what has reached it. And what is addressed to the initiator is the
    initiator's, though the agreement be gone that told the hub of him.
    """
    wanted = node.terms_of(tx, asked.incoming.terms_id).ack_requested
    typed = any(
        acknowledgment.type is not None for acknowledgment in received.message.acknowledgments
    )
    waits = (
        typed
        or wanted is AckRequest.SIGNED
        or _names_from_party(received.message, asked)
        or answered_here(node, tx, received.message, source) is not None
    )
    if waits and wanted is not AckRequest.NONE:
        pass_back(node, tx, received, asked, source)


def pass_again(
    node: Node, tx: Transaction, known: StoredIncoming, outer: Terms | None = None
) -> bool:
    """A copy of what the next hop has already: its sender still waits for the To Party's word,
    which was lost on the way back. Only the To Party can say it again, so it gets the copy.

    `outer`: the copy's connection waits for what comes back, under these terms.
    """
    copy = tx.outgoing(known.incoming.message_id)
    if known.incoming.state is not IncomingState.FORWARDED or copy is None:
        return False
    if copy.outgoing.state is not OutgoingState.DELIVERED:
        # The onward hop is still at it, or has given up and said so.
        return False
    parcel = tx.outgoing_parcel(copy.outgoing.message_id)
    terms = node.terms_of(tx, copy.outgoing.terms_id)
    transport = copy.outgoing.transport_name(terms)
    address = addresses_for(node, tx, copy, (transport,)).get(transport)
    if parcel is None or address is None:
        return False
    sender, message_id = known.incoming.sender, known.incoming.message_id
    node.write(tx, [Note(PassedOn(), message_id)], peer=copy.peer)
    if outer is None:
        node.actions.append(PostAnswer(transport, address, parcel))
    else:
        timeout = onward_patience(outer, terms)
        node.actions.append(PostOn(transport, address, parcel, sender, message_id, timeout))
    return True


def asked_here(tx: Transaction, message: Message) -> StoredIncoming | None:
    """The message that went on from here and that this one answers.

    An answer repeats agreement and conversation of what it answers, which tells two senders
    apart that use one MessageId.
    """
    reference = message.header.ref_to_message_id
    if reference is None:
        return None
    header = message.header
    found = [
        stored
        for stored in tx.incoming_by_id(reference)
        if stored.incoming.state is IncomingState.FORWARDED
    ]
    named = [
        stored
        for stored in found
        if (stored.facts.cpa_id, stored.facts.conversation_id)
        == (header.cpa_id, header.conversation_id)
    ]
    return next(iter(named or found), None)


def _through(node: Node, tx: Transaction, received: Received, route: Route) -> StoredParcel:
    """The received bytes with this hop in their routing, and the row that says so."""
    message = received.message
    note = Note(PassedOn(), message.header.message_id, message.header.ref_to_message_id)
    node.write(tx, [note], peer=route.peer, hop=len(message.routing) + 1)
    asks = AckRequest.NONE if is_answer(message) else message.asks_ack_of(Actor.NEXT_MSH)
    return onward_parcel(
        node, received.parcel, received.envelope, route, None, node.now(), asks=asks
    )


def _remember(
    node: Node,
    tx: Transaction,
    message: Message,
    ahead: Agreement,
    before: Resolution,
    source: Source,
) -> None:
    """Keep where it came from, for as long as its sender may repeat it."""
    facts = facts_under(message, before.agreement, ahead)
    if tx.incoming(facts.from_party, message.header.message_id) is not None:
        return
    incoming = Incoming(
        facts.from_party,
        message.header.message_id,
        facts.digest,
        node.keep_terms(tx, before.terms),
        node.now(),
    ).moved(IncomingEvent.ARRIVED, IncomingState.FORWARDED)
    peer, hop = peer_label(before.agreement), len(message.routing)
    kept = node.keep_agreement(tx, before.agreement)
    tx.add_incoming(
        StoredIncoming(incoming, facts, peer, source.transport, None, hop=hop, agreement_id=kept)
    )


def _post(
    node: Node,
    tx: Transaction,
    message: Message,
    route: Route,
    parcel: StoredParcel,
    source: Source,
    kind: EndpointType = EndpointType.ALL_PURPOSE,
    asked: StoredIncoming | None = None,
) -> None:
    """Let it leave: on the connection that waits for it, if it came on one of ours.

    A report about something that went on from here (`asked`) may be all that its From Party will
    ever hear of that: it is stored, and repeated until the handler before us has taken it (C33).
    """
    way = _way(route, kind)
    if way is None:
        return
    post = PostAnswer(*way, parcel)
    waiting = answered_here(node, tx, message, source)
    if waiting is not None:
        give_back(node, waiting, post)
    elif asked is not None and message.kind is MessageKind.ERROR:
        _owe(node, tx, message, route, parcel)
    else:
        node.actions.append(post)


def _owe(node: Node, tx: Transaction, message: Message, route: Route, parcel: StoredParcel) -> None:
    """Store a report that passes, and begin to send it on; a copy of one that is stored adds
    nothing to it."""
    message_id = message.header.message_id
    if tx.outgoing(message_id) is not None:
        return
    terms, now = notice_terms(route.terms), node.now()
    outgoing = Outgoing(message_id, node.keep_terms(tx, terms), now)
    stored = StoredOutgoing(
        outgoing,
        facts_of(message),
        route.peer,
        relayed_from=str(message.header.from_party),
        hop=len(message.routing) + 1,
        agreement_id=node.keep_agreement(tx, route.agreement),
    )
    addresses = addresses_for(node, tx, stored, terms.transports)
    entered = enter_window(outgoing, None, terms, now)
    step = first_attempt(node, tx, stored, entered, terms, now, addresses)
    fresh = replace(stored, outgoing=step.outgoing)
    tx.add_outgoing(fresh, parcel=parcel, draft=None)
    perform(node, tx, fresh, None, step, terms, parcel=parcel, addresses=addresses)


def answered_here(
    node: Node, tx: Transaction, message: Message, source: Source
) -> StoredIncoming | None:
    """The request whose connection waits for this message, which came on one of our own."""
    reference = message.header.ref_to_message_id
    if source.transport != REPLY or reference is None:
        return None
    return waiting_for(node, tx, reference)


def _keep_open(
    node: Node, message: Message, sender: str, route: Route, parcel: StoredParcel, outer: Terms
) -> Answer:
    """Send it on, and keep its connection until the next handler has spoken."""
    message_id = message.header.message_id
    way = _way(route, EndpointType.ALL_PURPOSE)
    if way is None:
        return NOTHING
    timeout = onward_patience(outer, route.terms)
    node.actions.append(PostOn(*way, parcel, sender, message_id, timeout))
    return Answer(relayed=Awaited(sender, message_id, relay_patience(outer)))


def _way(route: Route, kind: EndpointType) -> tuple[str, str] | None:
    for transport in route.terms.transports:
        address = route.address(transport, kind)
        if address is not None:
            return transport, address
    return None
