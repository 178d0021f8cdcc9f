"""Answer: acknowledgements, errors and faults, on this connection or on one of their own."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from msgspec import Struct, structs

from oncewire.agreement.agreement import CPA_ID, Agreement, Direction, EndpointType
from oncewire.agreement.rules import replies_unasked
from oncewire.errors import EbxmlError, InvalidValue, SecurityFailure, SoapFault, ValueNotRecognized
from oncewire.handler.actions import PostAnswer, Source
from oncewire.handler.authentication import is_authentic, receipt_references
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.facts import word_for
from oncewire.handler.perform import HANDLER, open_incident
from oncewire.handler.route import Route, as_of_today, envelope_for, peer_label, route_under
from oncewire.handler.sending.seal import seal, stored_parcel
from oncewire.handler.spool_reading import RefusedByTerms
from oncewire.message.envelope import ANSWERS, Actor, Error, ErrorList, Message, MessageKind
from oncewire.message.form import AckRequest, Form, SyncReplyMode
from oncewire.message.instant import Duration
from oncewire.protocol.documents import UNFINISHED
from oncewire.protocol.notes import AckSent, Note, Raise, WarningSent
from oncewire.protocol.receiver import AckOwed, ride_patience
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.synchronous import SyncPlan, awaits_response, holds_connection, patience
from oncewire.protocol.terms import DuplicateAnswer, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredOutgoing, StoredParcel
from oncewire.wire import answers, codec, soap
from oncewire.wire.answers import Envelope
from oncewire.wire.parcel import PartialHeader, ReadFault, Received

logger = logging.getLogger("oncewire.handler")


@dataclass(frozen=True, slots=True)
class Awaited:
    """A request whose reply is to go back on its own connection, once it is there."""

    sender: str
    message_id: str
    # How long the connection waits for the application, or for the next hop.
    patience: Duration


class Answer(Struct, frozen=True):
    """What goes back on the connection once the commit is done; no parcel: an empty body."""

    status: int = 204
    parcel: StoredParcel | None = None
    retry_after: int | None = None
    # Nothing can go back yet: the application is asked first.
    awaited: Awaited | None = None
    # Nothing can go back yet: at a hub, what the next hop says goes back too.
    relayed: Awaited | None = None
    # What is answered is a partner's, as far as its agreement lets that be known, and is no
    # repetition: the partner itself is there.
    partner_is_there: bool = False
    # Nothing came of what is answered, and it could be anybody's: no row names its bytes.
    refused: bool = False


NOTHING = Answer()
"""Received, and nothing to say on this connection."""

DAMAGED = Answer(400)
"""The bytes are not those that were sent; the sender's next attempt brings them whole."""


def signal_route(agreement: Agreement, kind: MessageKind) -> Route:
    """The way back to the partner for a signal of that kind."""
    return route_under(agreement, agreement.signal_binding(Direction.SEND, kind))


def acknowledgment_for(
    context: HandlerContext,
    message: Message,
    route: Route,
    owed: AckOwed,
    received: Received,
    *,
    final: bool,
) -> Message:
    """The acknowledgement that is owed for a message, as a message of its own by that way back;
    its elements may ride on a response instead."""
    references = receipt_references(context, received) if owed.signed else ()
    envelope = envelope_for(context, route)
    asked_here = owed.hop_receipt is not AckRequest.NONE
    for_end = final and (owed.receipt is not AckRequest.NONE or not asked_here)
    actor = Actor.TO_PARTY_MSH if for_end else Actor.NEXT_MSH
    ack = answers.acknowledgment_for(message, envelope, actor=actor, references=references)
    if for_end and asked_here and message.ack_requested:
        # Both kinds were asked for: one message answers both (ebMS 2.0 §10).
        second = answers.acknowledgment_of(message, envelope, actor=Actor.NEXT_MSH)
        ack = structs.replace(ack, acknowledgments=(*ack.acknowledgments, second))
    return ack


def acknowledge(
    context: HandlerContext,
    message: Message,
    agreement: Agreement,
    owed: AckOwed,
    plan: SyncPlan,
    received: Received,
    *,
    final: bool,
    warnings: tuple[Error, ...] = (),
) -> StoredAnswer:
    """Build the acknowledgement that is owed for a message, with what its sender is told."""
    route = signal_route(agreement, MessageKind.ACKNOWLEDGMENT)
    ack = acknowledgment_for(context, message, route, owed, received, final=final)
    if warnings:
        ack = structs.replace(ack, error_list=ErrorList(warnings))
    parcel = seal(context, ack, route, sign=owed.signed)
    return StoredAnswer(ack.header.message_id, ack.kind, parcel, owed=not plan.signals)


def write_answer(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    answer: StoredAnswer,
    warnings: Iterable[Error] = (),
    *,
    acknowledges: bool | None = None,
) -> None:
    """Journal what a message is answered with, and what its sender is warned of in it.

    `acknowledges`: whether the answer does, where its kind does not say it.
    """
    message_id = stored.incoming.message_id
    if acknowledges is None:
        acknowledges = answer.kind is MessageKind.ACKNOWLEDGMENT
    notes = [Note(AckSent(), message_id, answer.answer_id)] if acknowledges else []
    for warning in warnings:
        what = WarningSent(warning.code, warning.location or None, warning.description or None)
        notes.append(Note(what, message_id, answer.answer_id))
    context.write(
        tx, notes, terms_id=stored.incoming.terms_id, hop=stored.hop or None, peer=stored.peer
    )


def answer_error(
    context: HandlerContext,
    message: Message,
    agreement: Agreement,
    errors: tuple[Error, ...],
    plan: SyncPlan,
) -> StoredAnswer | None:
    """Build the error message that answers a refused one; None where none may be sent."""
    if message.kind in ANSWERS:
        return None
    route = signal_route(agreement, MessageKind.ERROR)
    envelope = envelope_for(context, route)
    report = answers.error_message_for(message, errors, envelope)
    return StoredAnswer(
        envelope.message_id, report.kind, seal(context, report, route), owed=not plan.signals
    )


def post_or_reply(
    context: HandlerContext,
    agreement: Agreement,
    stored: StoredIncoming,
    answer: StoredAnswer,
    plan: SyncPlan,
    source: Source,
) -> Answer:
    """Give the answer back on this connection, or send it on one of its own (C27)."""
    if plan.signals and source.can_answer:
        return Answer(200, answer.parcel)
    incoming = stored.incoming
    sender, message_id = (incoming.sender, incoming.message_id) if stored.answer else ("", "")
    parts = [answer]
    if is_bundle(answer):
        # Two replies share a body only on the connection that waits for both (C30).
        bundled = codec.unbundle(whole_parcel(context, answer.parcel), context.limits)
        parts = [structs.replace(answer, parcel=stored_parcel(part)) for part in bundled]
    for part in parts:
        post_signal(context, agreement, part, sender=sender, message_id=message_id)
    return NOTHING


def is_bundle(answer: StoredAnswer) -> bool:
    """Whether an answer is two messages in one body, an acknowledgement and a response (C30)."""
    return answer.parcel.content_type.startswith(codec.BUNDLE_TYPE)


def signal_ways(
    context: HandlerContext, agreement: Agreement, kind: MessageKind
) -> list[tuple[str, str]]:
    """The transports that reach the partner's handler with a signal, and its address on each;
    last those on which nothing got across lately."""
    route = signal_route(as_of_today(context, agreement), kind)
    purpose = EndpointType.ERROR if kind is MessageKind.ERROR else EndpointType.RESPONSE
    found = [(name, route.address(name, purpose)) for name in route.terms.transports]
    ways = [(name, address) for name, address in found if address is not None]
    return sorted(ways, key=lambda way: (route.peer, way[0]) in context.state.left)


def post_signal(
    context: HandlerContext,
    agreement: Agreement,
    answer: StoredAnswer,
    *,
    sender: str = "",
    message_id: str = "",
    ping_id: str = "",
) -> None:
    """Send a signal to the partner's handler; where it has no address, the operator is told."""
    ways = signal_ways(context, agreement, answer.kind)
    if not ways:
        context.state.unaddressed[peer_label(agreement)] = word_for(answer.kind)
        return
    first, *others = ways
    post = PostAnswer(*first, answer.parcel, sender, message_id, tuple(others), ping_id)
    context.state.actions.append(post)


REFUSED = Answer(400)
"""What came is not taken, and its sender's dialect has nothing that could say why here."""


def answer_fault(fault: ReadFault) -> Answer:
    """The peer sent something that is no message: a SOAP Fault (ebMS 2.0 Appendix B.2), where its
    dialect has such."""
    if not answers.knows_faults(fault.known.dialect):
        return REFUSED
    return Answer(500, stored_parcel(soap.write_fault(fault.error)))


def answer_unread(
    context: HandlerContext, fault: ReadFault, source: Source, received: Received | None = None
) -> Answer:
    """Answer a message that was refused before an agreement could be applied to it.

    It goes back on the connection where the sender waits for it there, or where nobody
    knows another way; otherwise to the partner whose agreement the header names. Who cannot
    prove that he is that partner is a stranger: he is told where he is, and in words that
    are not signed. Any other answer would end the message of the one he claims to be.
    """
    known = fault.known
    agreement = agreement_of(context, known, source)
    by_terms = isinstance(fault, RefusedByTerms)
    if agreement is not None and (by_terms or fault.answerable):
        stranger = not is_authentic(context, agreement, source, received)
    else:
        stranger = agreement is None
    if stranger and by_terms:
        fault = _discreet(fault, named=agreement is not None)
    if not fault.answerable:
        return answer_fault(fault)
    if agreement is None or stranger:
        return _answer_stranger(context, fault) if source.can_answer else NOTHING
    route = signal_route(agreement, MessageKind.ERROR)
    if known.dialect is not None:
        # Who did not send the agreed format is told so in the one he speaks.
        route = replace(route, form=structs.replace(route.form, dialect=known.dialect))
    envelope = structs.replace(envelope_for(context, route), peer=agreement.partner.party)
    if known.to_party is not None and not agreement.own.is_named_by(known.to_party):
        # Whatever party it was meant for, we are the ones who answer.
        known = structs.replace(known, to_party=agreement.own.party)
    report = answers.error_message_for(known, fault.ebxml_errors, envelope)
    answer = StoredAnswer(envelope.message_id, report.kind, seal(context, report, route))
    waits = known.sync_reply or replies_unasked(agreement.receiving)
    if waits and source.can_answer:
        return Answer(200, answer.parcel)
    post_signal(context, agreement, answer)
    return NOTHING


def _discreet(fault: ReadFault, *, named: bool) -> ReadFault:
    """A refusal that says nothing of what was agreed, and with whom. One text for all reasons:
    a stranger who can tell them apart can ask his way through an agreement."""
    error: EbxmlError | SoapFault
    if named:
        error = SecurityFailure(
            "the message does not prove who sent it, or is not what was agreed",
            remedy="compare agreement and certificates with the receiver, who knows the reason",
        )
    else:
        problem = "no agreement here covers the message"
        remedy = "use the CPAId and the PartyIds of the agreement, with their types"
        error = ValueNotRecognized(problem, location=CPA_ID, remedy=remedy)
        if isinstance(fault.error, SoapFault):
            error = SoapFault("Client", problem, remedy=remedy)
    return ReadFault((error,), fault.known)


def _answer_stranger(context: HandlerContext, fault: ReadFault) -> Answer:
    """A stranger: the error is built from what the message says of itself."""
    if not answers.has_replies(fault.known.dialect):
        return REFUSED
    form = Form(dialect=fault.known.dialect or Form().dialect)
    plain = Envelope(context.new_message_id(), context.now(), form)
    try:
        report = answers.error_message_for(fault.known, fault.ebxml_errors, plain)
    except InvalidValue:
        # It does not say who sent it, so no message can be addressed to its sender.
        return answer_fault(fault)
    return Answer(200, stored_parcel(codec.write(report, form)))


def agreement_of(context: HandlerContext, known: PartialHeader, source: Source) -> Agreement | None:
    """The agreement a refused header names, if its sender is that agreement's partner.

    Where the sender could not be read, the agreement's name alone decides. The two parties
    decide where the name means nothing: under an agreement that takes any, or when it could
    not be read and the transport cannot answer by itself.
    """
    party = known.from_party
    named = context.agreements.by_cpa_id(known.cpa_id or "")
    if party is None:
        return named[0] if len(named) == 1 else None
    for agreement in named:
        if agreement.partner.is_named_by(party):
            return agreement
    if known.to_party is None:
        return None
    for agreement in context.agreements.between(known.to_party, party):
        if agreement.any_cpa_id or not source.can_answer:
            return agreement
    return None


def response_again(
    context: HandlerContext,
    tx: Transaction,
    response: StoredOutgoing,
    agreement: Agreement,
    *,
    here: bool,
) -> Answer:
    """Send the stored bytes of a response once more (DUP-6); `here`: on this connection."""
    parcel = tx.outgoing_parcel(response.outgoing.message_id)
    if parcel is None:
        return NOTHING
    tx.save_outgoing(response.outgoing.repeated())
    if here:
        return Answer(200, parcel)
    answer = StoredAnswer(response.outgoing.message_id, MessageKind.NORMAL, parcel)
    post_signal(context, agreement, answer)
    return NOTHING


# Awaited: answers that wait for the application, and what a copy gets of those that were given.


_UNDER_WAY = (IncomingState.HELD, IncomingState.READY, IncomingState.HANDED_OVER)
_AT_THE_APPLICATION = (IncomingState.READY, IncomingState.HANDED_OVER)


class Patience(Struct, frozen=True):
    """What waits for the application when a message arrives: nothing, unless it says so."""

    # Those the message is kept under: what its connection carries back is known from them.
    terms: Terms
    # Its connection waits for the response.
    waits: bool = False
    # Its acknowledgement waits for a response to ride on.
    rides: bool = False

    @classmethod
    def of(cls, terms: Terms, plan: SyncPlan, owed: AckOwed, *, called: bool) -> Patience:
        """For a message of which this handler acts for the To Party; `called`: its application
        is called, and need not come."""
        waits = holds_connection(plan, terms, ack_owed=owed.owed, called=called)
        mode = plan.mode
        if plan.response and not waits:
            mode = SyncReplyMode.MSH_SIGNALS_ONLY
        if terms.sync_mode is not mode:
            terms = structs.replace(terms, sync_mode=mode)
        # A connection that carries signals back carries the acknowledgement now.
        rides = owed.owed and not plan.signals and ride_patience(terms) > 0
        return cls(terms, waits, rides)


def await_response(stored: StoredIncoming, terms: Terms) -> Answer:
    """Nothing goes back yet: the connection waits for the application."""
    incoming = stored.incoming
    return Answer(awaited=Awaited(incoming.sender, incoming.message_id, patience(terms)))


def await_rider(context: HandlerContext, stored: StoredIncoming, terms: Terms) -> None:
    """The acknowledgement of a message waits for a response that it can ride on."""
    incoming = stored.incoming
    due = context.now() + ride_patience(terms)
    heapq.heappush(context.state.acks_waiting, (due, incoming.sender, incoming.message_id))


def is_awaited(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a request has no reply yet, and one is to go back on its connection. A document that
    comes in parts has no connection of its own: each part is answered by itself."""
    if stored.answered or stored.facts.split_id or stored.incoming.state not in _UNDER_WAY:
        return False
    return awaits_response(context.terms_of(tx, stored.incoming.terms_id))


def ack_waits(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether the acknowledgement of a message still waits for a response to ride on."""
    if stored.answered or stored.incoming.state not in _AT_THE_APPLICATION:
        return False
    terms = context.terms_of(tx, stored.incoming.terms_id)
    return not terms.synchronous and ride_patience(terms) > 0


def awaits_join(tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a part has no answer yet because its document is not put together."""
    waits = stored.incoming.state in (IncomingState.HELD, IncomingState.GATHERED)
    if not waits or stored.facts.split_id is None:
        return False
    document = tx.document(stored.incoming.sender, stored.facts.split_id)
    return (
        document is not None
        and document.state in UNFINISHED
        and document.last_part == stored.incoming.message_id
    )


def was_given(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether an answer was given once, so that a copy gets it again. A response that certainly
    never arrived goes its own way, and one that was refused goes none: a copy that brought it
    along would make a lie of what its application is told (ERR-9, S5)."""
    if stored.answer is None:
        return False
    if is_bundle(stored.answer):
        responses = _carried(context, tx, stored.answer)
        return all(kept.outgoing.state is not OutgoingState.NOT_DELIVERED for kept in responses)
    response = tx.outgoing(stored.answer.answer_id)
    return response is None or response.outgoing.may_be_repeated


def count_copy(context: HandlerContext, tx: Transaction, answer: StoredAnswer) -> None:
    """A stored answer is given once more. Where it is a response, or holds one, another copy of
    that is under way beside its own attempts, and may meet what they did not (S5)."""
    for kept in _carried(context, tx, answer):
        tx.save_outgoing(kept.outgoing.repeated())


def _carried(
    context: HandlerContext, tx: Transaction, answer: StoredAnswer
) -> list[StoredOutgoing]:
    """The responses that an answer is or holds; the same request may have had others since,
    whose fate is none of its own."""
    ids = [answer.answer_id]
    if is_bundle(answer):
        both = codec.read_all(whole_parcel(context, answer.parcel), context.limits)
        ids = [received.message.header.message_id for received in both]
    return [kept for kept in map(tx.outgoing, ids) if kept is not None]


def response_to_repeat(
    tx: Transaction, stored: StoredIncoming, terms: Terms
) -> StoredOutgoing | None:
    """The response that a copy of a message gets: the first one, or the latest that may be brought
    again. Where the first may not, no later one takes its place: copies would get two answers."""
    responses = tx.responses_to(stored.incoming.message_id, stored.peer)
    if terms.duplicate_answer is not DuplicateAnswer.MOST_RECENT:
        del responses[1:]
    repeatable = [kept for kept in responses if kept.outgoing.may_be_repeated]
    return repeatable[-1] if repeatable else None


# Unaddressed: answers that cannot be sent, because the agreement has no address for them.
#
# The partner goes on asking until it gives up, and nothing here shows why: what it sent is stored
# and delivered. So the operator is called, once for each partner, however many answers there are.


ANSWER_CHANNEL = f"{HANDLER} answers to "


def call_operator(context: HandlerContext) -> None:
    """Open an incident for each partner that could not be told something since the last look."""
    found = dict(context.state.unaddressed)
    context.state.unaddressed.clear()
    for peer, what in found.items():
        key = f"{ANSWER_CHANNEL}{peer}"
        logger.error("an answer has no address", extra={"peer": peer, "answer": what})
        reason = (
            f"{what} for {peer} could not leave: the agreement names no address for it; add one, "
            "and this is closed by itself"
        )
        with context.transition() as tx:
            open_incident(context, tx, Raise(reason, channel=key))
