"""Passing: what a hub lets through, and what it takes upon itself (HOP-7).

It is a proxy for the To Party: the message goes on, what answers it goes back the way the
message came, and every byte but the routing stays as it was. In the drafts an answer names the
two ends of the last hop only (ACK-4, ACK-12), so whom it is for is known by the message it
refers to: of each message that may be answered a row is kept, without its bytes. A report that
goes back is stored until it was taken: it would not be repeated if it were lost here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction, EndpointType, PartyTerms, sender_of
from oncewire.agreement.resolve import Resolution
from oncewire.agreement.rules import notice_terms
from oncewire.errors import Inconsistent, InvalidValue, ValueNotRecognized
from oncewire.handler.actions import REPLY, Post, PostAnswer, PostOn, Relay, Source
from oncewire.handler.authentication import check_connection
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import read_stored, whole_parcel
from oncewire.handler.facts import facts_of, facts_under, is_answer
from oncewire.handler.hub.next_hop import send_onward
from oncewire.handler.perform import begin
from oncewire.handler.route import (
    Route,
    addresses_for,
    agreement_for,
    agreement_of_hop,
    agreement_toward,
    peer_label,
    route_under,
)
from oncewire.handler.sending.answer import (
    NOTHING,
    Answer,
    Awaited,
    acknowledge,
    answer_error,
    post_or_reply,
    write_answer,
)
from oncewire.handler.sending.seal import onward_parcel, sealed, stored_parcel
from oncewire.message.envelope import Actor, Error, Message, MessageKind, RoutingHeader, Severity
from oncewire.message.form import AckRequest, SyncReplyMode
from oncewire.message.ids import Party
from oncewire.message.instant import SECOND
from oncewire.protocol.hops import HopDuty, answer_previous, awaits_onward, hop_duty
from oncewire.protocol.notes import Note, PassedOn
from oncewire.protocol.receiver import ack_owed
from oncewire.protocol.sender import enter_window
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.synchronous import (
    SyncPlan,
    answerable_after_restart,
    late_warning,
    onward_patience,
    plan_reply,
    relay_patience,
    timeout_error,
    unreachable_error,
)
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredOutgoing, StoredParcel
from oncewire.wire.mime.multipart import bundle
from oncewire.wire.parcel import Parcel, Received

if TYPE_CHECKING:
    from oncewire.handler.sending.transmit import Transmission


_GIVEN_UP = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Upstream:
    """One message that a hub has in its store, and the hop it came by."""

    context: HandlerContext
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    terms: Terms
    plan: SyncPlan
    warnings: tuple[Error, ...] = ()

    @classmethod
    def read(
        cls, context: HandlerContext, tx: Transaction, stored: StoredIncoming, plan: SyncPlan
    ) -> Upstream | None:
        """Read it again from the store; None where its bytes or its agreement are gone."""
        agreement = agreement_of_hop(context, tx, stored)
        if agreement is None or stored.parcel is None:
            return None
        received = read_stored(context.store.spool, stored.parcel, context.limits)
        terms = context.terms_of(tx, stored.incoming.terms_id)
        return cls(context, tx, stored, received, agreement, terms, plan)

    @property
    def message(self) -> Message:
        """What it says; a hub verifies nothing of it."""
        return self.received.message

    def acknowledge(self, *warnings: Error) -> StoredAnswer:
        """The acknowledgement of this hop, kept for every copy."""
        owed = ack_owed(self.message, self.terms, final=False)
        told = (*self.warnings, *warnings)
        answer = acknowledge(
            self.context, self.message, self.agreement, owed, self.plan, self.received,
            final=False, warnings=told,
        )  # fmt: skip
        incoming = self.stored.incoming
        self.tx.save_answer(incoming.sender, incoming.message_id, answer)
        write_answer(self.context, self.tx, self.stored, answer, told)
        return answer

    def until_forwarded(self) -> StoredAnswer | None:
        """Come back later, until the next hop has it; then the acknowledgement (HOP-4)."""
        copy = self.tx.outgoing(self.stored.incoming.message_id)
        verdict = answer_previous(
            HopDuty.UNTIL_FORWARDED, copy.outgoing if copy else None, self.terms
        )
        if verdict.acknowledge:
            return self.acknowledge()
        return self.report(verdict.error or Error("TransientError", Severity.WARNING))

    def report(self, error: Error) -> StoredAnswer | None:
        """An error that is told once and not kept; None where no message can say it."""
        try:
            return answer_error(self.context, self.message, self.agreement, (error,), self.plan)
        except InvalidValue:
            # ebMS 2.0 has no Transient Error; unless it was agreed, HTTP has to say it.
            return None

    def come_back(self) -> Answer:
        """HTTP 503 with Retry-After, which says what a Transient Error says."""
        return Answer(503, retry_after=max(1, self.terms.retry_interval // SECOND))

    def given_up(self) -> Error | None:
        """What became of the next hop, if it is known that nothing will (HOP-9)."""
        copy = self.tx.outgoing(self.stored.incoming.message_id)
        if copy is None or copy.outgoing.state not in _GIVEN_UP:
            return None
        certain = copy.outgoing.state is OutgoingState.NOT_DELIVERED
        severity = Severity.ERROR if certain else Severity.WARNING
        return Error("DeliveryFailure", severity, "", copy.outgoing.reason[:300])

    def beside(self, *, relayed: bool) -> StoredAnswer | None:
        """What this hub itself says when the next hop has spoken.

        Its acknowledgement goes along with what is relayed unless only the To Party's was
        asked for: that one is among it, and the initiator has no use for another.
        """
        asked_far = self.terms.ack_requested is not AckRequest.NONE
        asked_here = self.terms.hop_ack_requested is not AckRequest.NONE
        if relayed and asked_far and not asked_here:
            return None
        if self.stored.answer is not None:
            return self.stored.answer
        if hop_duty(self.message, self.terms) is HopDuty.UNTIL_FORWARDED:
            return self.until_forwarded()
        failed = self.given_up()
        # Responsibility is not taken for what has failed already.
        return self.acknowledge() if failed is None else self.report(failed)

    def overdue(self) -> StoredAnswer | None:
        """The next hop did not speak in time (SYNC-17). What may be repeated is stored for good
        and acknowledged; what may not was never promised to anybody."""
        if self.stored.answer is not None:
            return self.stored.answer
        if hop_duty(self.message, self.terms) is HopDuty.UNTIL_FORWARDED:
            return self.until_forwarded()
        failed = self.given_up()
        if failed is None and answerable_after_restart(self.terms):
            return self.acknowledge(late_warning())
        return self.report(failed or timeout_error())


# Relay: at a hub, what the next hop says goes back on the connection of the request.
#
# The hub's own exchange is as synchronous as the one it serves (SYNC-11). What comes back on its
# connection is taken in like any arrival, and leaves on the connection that waits for it; where
# none waits any more, because the time was up or the process died in between, it goes its own way.
# So nothing that was stored depends on a connection.


_HERE = SyncPlan(SyncReplyMode.SIGNALS_AND_RESPONSE)
"""Whatever is said now leaves on the connection, and is owed on no other."""


def waiting_for(context: HandlerContext, tx: Transaction, message_id: str) -> StoredIncoming | None:
    """The request of that id whose connection waits here now."""
    if not context.state.relaying:
        return None
    for stored in tx.incoming_by_id(message_id):
        key = (stored.incoming.sender, message_id)
        if stored.incoming.state is IncomingState.FORWARDED and key in context.state.relaying:
            return stored
    return None


def give_back(context: HandlerContext, asked: StoredIncoming, post: Post | PostAnswer) -> None:
    """Let a message leave on the connection that waits for it, or else as it would have."""
    incoming = asked.incoming
    context.state.actions.append(
        Relay(incoming.sender, incoming.message_id, post.parcel, instead=post)
    )


def take_back(context: HandlerContext, asked: StoredIncoming, message_id: str) -> None:
    """Give back a message of ours that was about to leave on a connection of its own."""
    for post in context.state.actions:
        if isinstance(post, Post) and post.message_id == message_id:
            context.state.actions.remove(post)
            give_back(context, asked, post)
            return


def nothing_more(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """The onward exchange of a request is over: its connection waits no longer."""
    asked = waiting_for(context, tx, message_id)
    if asked is None:
        return
    key = (asked.incoming.sender, message_id)
    given = (action for action in context.state.actions if isinstance(action, Relay))
    if all((each_relay.sender, each_relay.message_id) != key for each_relay in given):
        context.state.actions.append(Relay(*key))


def not_passed(
    context: HandlerContext,
    tx: Transaction,
    post: PostOn,
    ended: Transmission,
    fault: Parcel | None,
) -> None:
    """The next handler gave no message back: say what is known, in time for it to be heard.

    A status and a SOAP Fault go back as they are; of the rest the initiator is told what
    became of its message, and repeats it if it may.
    """
    asked = waiting_for(context, tx, post.message_id)
    if asked is None:
        return
    key = (post.sender, post.message_id)
    if fault is not None:
        context.state.actions.append(Relay(*key, stored_parcel(fault), status=500))
        return
    if ended.retry_after is not None:
        context.state.actions.append(Relay(*key, status=503, retry_after=ended.retry_after))
        return
    error = unreachable_error(ended.reason) if ended.certain else timeout_error()
    report = _report(context, asked, post.parcel, error)
    context.state.actions.append(Relay(*key, None if report is None else report.parcel))


def _report(
    context: HandlerContext, asked: StoredIncoming, onward: StoredParcel, error: Error
) -> StoredAnswer | None:
    """The error, addressed to the handler that the message came from; the copy that went on
    names this hub's own hop last."""
    agreement = agreement_for(context, asked.facts.cpa_id, asked.peer)
    if agreement is None:
        return None
    message = read_stored(context.store.spool, onward, context.limits).message
    message = replace(message, routing=message.routing[:-1])
    return answer_error(context, message, agreement, (error,), _HERE)


def relay(
    context: HandlerContext, tx: Transaction, awaited: Awaited, said: Sequence[Relay]
) -> Answer:
    """What goes back on a connection that waited: what the next hop said, and beside it what
    this hub has to say itself (SYNC-8); nothing said: the time was up (SYNC-17)."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    status = next((each_relay for each_relay in said if each_relay.status != 200), None)
    if status is not None:
        return Answer(status.status, status.parcel, status.retry_after)
    parcels = [each_relay.parcel for each_relay in said if each_relay.parcel is not None]
    if stored is None or stored.passed_on:
        return _together(context, parcels) if said else Answer(504)
    previous = Upstream.read(context, tx, stored, _HERE)
    if previous is not None:
        own = previous.beside(relayed=bool(parcels)) if said else previous.overdue()
        if own is not None:
            parcels.insert(0, own.parcel)
        elif not parcels:
            return previous.come_back()
    return _together(context, parcels)


def _together(context: HandlerContext, parcels: list[StoredParcel]) -> Answer:
    """One message as it is, several one after the other: a hub writes into none of them."""
    if not parcels:
        return NOTHING
    if len(parcels) == 1:
        return Answer(200, parcels[0])
    return Answer(
        200, sealed(context, bundle([whole_parcel(context, stored) for stored in parcels]))
    )


def pass_on(
    context: HandlerContext,
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
    parcel = _through(context, tx, received, route)
    if is_answer(message):
        _post(context, tx, message, route, parcel, source, asked=asked)
        return NOTHING
    _remember(context, tx, message, ahead, before, source)
    plan = plan_reply(
        message, before.terms, can_answer=source.can_answer, final=False, ack_owed=False
    )
    if not awaits_onward(message, HopDuty.PROXY, plan):
        _post(context, tx, message, route, parcel, source)
        return NOTHING
    sender = str(sender_of(before.agreement, message.header.from_party))
    # Send it on, and keep its connection until the next handler has spoken.
    outer = before.terms
    message_id = message.header.message_id
    way = _way(route, EndpointType.ALL_PURPOSE)
    if way is None:
        return NOTHING
    timeout = onward_patience(outer, route.terms)
    context.state.actions.append(PostOn(*way, parcel, sender, message_id, timeout))
    return Answer(relayed=Awaited(sender, message_id, relay_patience(outer)))


def pass_back(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    asked: StoredIncoming,
    source: Source,
) -> None:
    """What answers a message that was passed on goes back to the handler that came from.

    It must come over the connection that leads on to the To Party, if its agreement binds one.
    """
    ahead = _way_on(context, tx, asked)
    before = agreement_of_hop(context, tx, asked)
    if ahead is None or before is None:
        raise ValueNotRecognized(
            f"no agreement leads to {asked.peer if ahead else asked.facts.to_party} any more",
            location="//MessageData/RefToMessageId",
            remedy="put back the agreement that the message came or went under",
        )
    check_connection(context, ahead, source)
    kind = received.message.kind
    route = route_under(before, before.signal_binding(Direction.SEND, kind))
    error = kind is MessageKind.ERROR
    parcel = _through(context, tx, received, route)
    endpoint = EndpointType.ERROR if error else EndpointType.RESPONSE
    _post(context, tx, received.message, route, parcel, source, endpoint, asked)


def check_say(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    spoken_of: Sequence[str],
    agreement: Agreement,
    ahead: Agreement,
) -> None:
    """Refuse what a neighbour says of a message that did not go its way: the From Party sees that
    it came through here, and would take it for the word of those who have the message."""
    for reference in spoken_of:
        found = [
            stored
            for stored in tx.incoming_by_id(reference)
            if stored.incoming.state is IncomingState.FORWARDED and stored.peer == peer_label(ahead)
        ]
        named = [stored for stored in found if _names_from_party(message, stored)]
        if not all(_went_to(context, tx, stored, agreement) for stored in named or found):
            raise ValueNotRecognized(
                f"{reference} did not go to {peer_label(agreement)}, who speaks of it",
                location="//MessageData/RefToMessageId",
            )


def _went_to(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming, agreement: Agreement
) -> bool:
    """Whether a message went on to this agreement's partner, or is for who lies behind that one."""
    way, near = _way_on(context, tx, stored), agreement.partner
    if way is None or peer_label(way) == peer_label(agreement):
        return True
    return stored.facts.to_party in map(str, (*near.party.ids, *near.behind))


def _way_on(context: HandlerContext, tx: Transaction, asked: StoredIncoming) -> Agreement | None:
    """The agreement by which a message went on to its To Party: today's, or where that is gone
    the one that our copy went under."""
    today = agreement_toward(context, asked.facts.to_party, asked.facts.service)
    copy = None if today is not None else tx.outgoing(asked.incoming.message_id)
    return today if copy is None else agreement_of_hop(context, tx, copy)


def way_back(
    context: HandlerContext, tx: Transaction, message: Message, asked: StoredIncoming | None
) -> Agreement | None:
    """The way on for an answer to its From Party where no agreement of today leads there: what
    was taken under an agreement is answered for under it."""
    if asked is None or not _names_from_party(message, asked):
        return None
    return agreement_of_hop(context, tx, asked)


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


def is_from_beyond(
    context: HandlerContext, tx: Transaction, received: Received, asked: StoredIncoming
) -> bool:
    """Whether another hub gives the To Party's signed receipt back: its signature is for the
    From Party to check, and of our own hop it says nothing."""
    ahead = _way_on(context, tx, asked)
    if ahead is None or asked.facts.to_party in map(str, ahead.partner.party.ids):
        return False
    wanted = context.terms_of(tx, asked.incoming.terms_id).ack_requested
    signed = wanted is AckRequest.SIGNED or (wanted is not AckRequest.NONE and received.signed)
    return signed and is_receipt(received.message, asked)


def relay_receipt(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    asked: StoredIncoming,
    source: Source,
) -> None:
    """Give the To Party's acknowledgement back where the initiator waits for it, if it asked.

    It waits on a connection of its own, or because acknowledgements are typed: then a hub's is
    not the receipt (HOP-12). Nor is it where the receipt has to be signed: nobody but the To
    Party can prove what has reached it. And what is addressed to the initiator is the
    initiator's, though the agreement be gone that told the hub of him.
    """
    wanted = context.terms_of(tx, asked.incoming.terms_id).ack_requested
    typed = any(
        acknowledgment.type is not None for acknowledgment in received.message.acknowledgments
    )
    waits = (
        typed
        or wanted is AckRequest.SIGNED
        or _names_from_party(received.message, asked)
        or answered_here(context, tx, received.message, source) is not None
    )
    if waits and wanted is not AckRequest.NONE:
        pass_back(context, tx, received, asked, source)


def pass_again(
    context: HandlerContext, tx: Transaction, known: StoredIncoming, outer: Terms | None = None
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
    terms = context.terms_of(tx, copy.outgoing.terms_id)
    transport = copy.outgoing.transport_name(terms)
    address = addresses_for(context, tx, copy, (transport,)).get(transport)
    if parcel is None or address is None:
        return False
    sender, message_id = known.incoming.sender, known.incoming.message_id
    context.write(tx, [Note(PassedOn(), message_id)], peer=copy.peer)
    if outer is None:
        context.state.actions.append(PostAnswer(transport, address, parcel))
    else:
        timeout = onward_patience(outer, terms)
        context.state.actions.append(
            PostOn(transport, address, parcel, sender, message_id, timeout)
        )
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


def _through(
    context: HandlerContext, tx: Transaction, received: Received, route: Route
) -> StoredParcel:
    """The received bytes with this hop in their routing, and the row that says so."""
    message = received.message
    note = Note(PassedOn(), message.header.message_id, message.header.ref_to_message_id)
    context.write(tx, [note], peer=route.peer, hop=len(message.routing) + 1)
    asks = AckRequest.NONE if is_answer(message) else message.asks_ack_of(Actor.NEXT_MSH)
    return onward_parcel(context, received, route, None, context.now(), asks=asks)


def _remember(
    context: HandlerContext,
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
        context.keep_terms(tx, before.terms),
        context.now(),
    ).moved(IncomingEvent.ARRIVED, IncomingState.FORWARDED)
    peer, hop = peer_label(before.agreement), len(message.routing)
    kept = context.keep_agreement(tx, before.agreement)
    tx.add_incoming(
        StoredIncoming(incoming, facts, peer, source.transport, None, hop=hop, agreement_id=kept)
    )


def _post(
    context: HandlerContext,
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
    waiting = answered_here(context, tx, message, source)
    if waiting is not None:
        give_back(context, waiting, post)
    elif asked is not None and message.kind is MessageKind.ERROR:
        _owe(context, tx, message, route, parcel)
    else:
        context.state.actions.append(post)


def _owe(
    context: HandlerContext, tx: Transaction, message: Message, route: Route, parcel: StoredParcel
) -> None:
    """Store a report that passes, and begin to send it on; a copy of one that is stored adds
    nothing to it."""
    message_id = message.header.message_id
    if tx.outgoing(message_id) is not None:
        return
    terms, now = notice_terms(route.terms), context.now()
    outgoing = Outgoing(message_id, context.keep_terms(tx, terms), now)
    stored = StoredOutgoing(
        outgoing,
        facts_of(message),
        route.peer,
        relayed_from=str(message.header.from_party),
        hop=len(message.routing) + 1,
        agreement_id=context.keep_agreement(tx, route.agreement),
    )
    begin(context, tx, stored, None, enter_window(outgoing, None, terms, now), terms, parcel)


def answered_here(
    context: HandlerContext, tx: Transaction, message: Message, source: Source
) -> StoredIncoming | None:
    """The request whose connection waits for this message, which came on one of our own."""
    reference = message.header.ref_to_message_id
    if source.transport != REPLY or reference is None:
        return None
    return waiting_for(context, tx, reference)


def _way(route: Route, kind: EndpointType) -> tuple[str, str] | None:
    for transport in route.terms.transports:
        address = route.address(transport, kind)
        if address is not None:
            return transport, address
    return None


# Accept: what a hub does with a message that it takes, beside what every receiver does.
#
# It goes on to the next hop. Where its connection can carry back what the next hop says, the
# connection waits for that (SYNC-11); until then a hub may have nothing to say itself (HOP-4).


@dataclass(frozen=True, slots=True)
class HubArrival:
    """One message between the hop it came by and the next."""

    context: HandlerContext
    tx: Transaction
    received: Received
    resolution: Resolution
    source: Source

    @property
    def message(self) -> Message:
        """What it says; a hub verifies nothing of it."""
        return self.received.message

    @property
    def terms(self) -> Terms:
        """The terms of the hop that it came by."""
        return self.resolution.terms

    def keeps_open(self, plan: SyncPlan) -> bool:
        """Whether the connection waits for what the next hop says."""
        return awaits_onward(self.message, hop_duty(self.message, self.terms), plan)

    def kept_open(self, sender: str) -> Answer:
        """Nothing goes back yet."""
        awaited = Awaited(sender, self.message.header.message_id, relay_patience(self.terms))
        return Answer(relayed=awaited)

    def send_on(self, stored: StoredIncoming, ahead: Agreement, *, kept_open: bool) -> None:
        """Store the onward copy and begin its way. What came on a connection of ours leaves on
        the one that waits for it."""
        send_onward(self.context, self.tx, stored, ahead, self.terms if kept_open else None)
        asked = answered_here(self.context, self.tx, self.message, self.source)
        if asked is not None:
            take_back(self.context, asked, self.message.header.message_id)

    def waits_again(self, known: StoredIncoming, plan: SyncPlan) -> bool:
        """Whether a copy's connection waits too: the next hop is still at it, or has spoken,
        what it said was lost on the way back, and it is asked once more."""
        copy = self.tx.outgoing(known.incoming.message_id)
        if not self.keeps_open(plan) or copy is None or copy.outgoing.state in _GIVEN_UP:
            return False
        pass_again(self.context, self.tx, known, self.terms)
        return True

    def ask_again(self, known: StoredIncoming) -> None:
        """A copy that waits for the To Party's own word, which no other handler can repeat."""
        if self.message.asks_ack_of(Actor.TO_PARTY_MSH) is not AckRequest.NONE:
            pass_again(self.context, self.tx, known)

    def until_forwarded(self, stored: StoredIncoming, plan: SyncPlan) -> Answer:
        """Come back later, until the next hop has it; then the acknowledgement (HOP-4)."""
        previous = self._previous(stored, plan)
        return self._say(previous, previous.until_forwarded())

    def given_up(self, stored: StoredIncoming, plan: SyncPlan) -> Answer | None:
        """Responsibility is not taken for what has failed already: its failure is told to the
        copy too (HOP-9). None: it has not failed."""
        previous = self._previous(stored, plan)
        failed = previous.given_up()
        return None if failed is None else self._say(previous, previous.report(failed))

    def _previous(self, stored: StoredIncoming, plan: SyncPlan) -> Upstream:
        agreement, warnings = self.resolution.agreement, self.resolution.warnings
        return Upstream(
            self.context, self.tx, stored, self.received, agreement, self.terms, plan, warnings
        )

    def _say(self, previous: Upstream, answer: StoredAnswer | None) -> Answer:
        if answer is None:
            return previous.come_back() if self.source.can_answer else NOTHING
        kept = answer if answer.kind is MessageKind.ACKNOWLEDGMENT else None
        told = replace(previous.stored, answer=kept)
        return post_or_reply(
            self.context, previous.agreement, told, answer, previous.plan, self.source
        )


# Circles: a message that came through a hub before, and one that has made too many hops.


HOPS_MAX = 16
"""Hops of one message; more handlers than that are not between two parties, but in a circle."""
WAY = "//Header/RoutingHeaderList"


def check_way(message: Message, before: Agreement, ahead: Agreement | None, source: Source) -> None:
    """Refuse to send a message on that would come here again, or that comes from nowhere near.

    The hops that it names tell; where its format names only the last one, or none, what tells is
    that it comes from whom it would be sent to.
    """
    if len(message.routing) > HOPS_MAX:
        raise Inconsistent(
            f"it has made {len(message.routing)} hops, and no more than {HOPS_MAX} are believed",
            location=WAY,
            remedy="look for hubs that send it to each other",
        )
    passed = any(_is_sender(before.own, hop) for hop in message.routing)
    if passed or (ahead is not None and _comes_back(message, before, ahead, source)):
        raise Inconsistent(
            "it was sent on from here before, and has come back: it goes in a circle",
            location=WAY,
            remedy="compare where each hub sends messages for its To Party",
        )


def _is_sender(side: PartyTerms, hop: RoutingHeader) -> bool:
    if hop.sender_uri is not None and hop.sender_uri == side.handler_uri:
        return True
    return hop.sender_id is not None and side.is_named_by(Party((hop.sender_id,)))


def _comes_back(message: Message, before: Agreement, ahead: Agreement, source: Source) -> bool:
    if ahead.partner is before.partner or ahead is before:
        return False
    if message.routing and _is_sender(ahead.partner, message.routing[-1]):
        return True
    if source.certificate is None:
        return False
    shown = hashlib.sha256(source.certificate).hexdigest()
    there, here = ahead.partner.client_certificates, before.partner.client_certificates
    return shown in there and shown not in here
