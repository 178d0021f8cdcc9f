"""The signals one message calls for: acknowledgement, error, status, pong, failure notice.

Pure form: which Service, Action, parties and references each dialect wants (ACK-4..12,
ERR-3..9, HOP-11; gap 6; ebMS 2.0 §4.2, §6.3). Whether and when one is due is the
protocol's matter; ids, times and our own names are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import EbxmlError, InvalidValue
from oncewire.message.envelope import (
    Acknowledgment,
    AcknowledgmentType,
    Actor,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    RoutingHeader,
    Severity,
    SignedDigest,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import AckRequest, Dialect, Form
from oncewire.message.ids import Party, PartyId, Service, is_uri
from oncewire.message.instant import Instant
from oncewire.wire.drafts import blocks as draft_names
from oncewire.wire.ebms2 import blocks as ebms2_names
from oncewire.wire.parcel import PartialHeader

UNKNOWN_CPA = "unknown"
"""Stands for a CPAId that could not be read; Norway's handlers answer with the same word."""


class Envelope(Struct, frozen=True, gc=False):
    """What every signal needs beside the message it answers."""

    message_id: str
    now: Instant
    form: Form
    # Who we are: needed where the message does not say it, and for hubs always.
    own: Party | None = None
    # Whom we answer, from the agreement, when the message's own From could not be read.
    peer: Party | None = None
    # The hop the answer itself takes; rm-0.78 derives it from the message answered.
    hop: RoutingHeader | None = None


def knows_faults(dialect: Dialect | None) -> bool:
    """Whether the sender of what is no message can be told so by a SOAP Fault: the drafts have no
    SOAP. Who sends something that claims to be nothing is answered as ebMS 2.0 has it."""
    return dialect in (None, Dialect.EBMS2)


def has_replies(dialect: Dialect | None) -> bool:
    """Whether a response may have a body at all: in v0-078 it has none (TRN-2)."""
    return dialect is not Dialect.RM_078


def acknowledgment_for(
    received: Message,
    envelope: Envelope,
    *,
    actor: Actor = Actor.TO_PARTY_MSH,
    references: tuple[SignedDigest, ...] = (),
) -> Message:
    """The stand-alone acknowledgement of a message.

    `actor` says as whom we acknowledge: the To Party's handler or a hop. `references` are
    the digests of a signed message, for a signed acknowledgement (§6.3.2.5).
    """
    action = None
    if received.dialect is Dialect.MS_09X and envelope.form.ack_typed:
        action = _type(actor).value
    answers: tuple[Acknowledgment, ...] = ()
    # ebMS 2.0 always has the element (§6.3.2), MS 0.9x where it was asked for (ACK-14); v0-078 has
    # none, its MessageType says it (ACK-7).
    asked = received.dialect is Dialect.MS_09X and _asked(received, actor) is not AckRequest.NONE
    if asked or received.dialect is Dialect.EBMS2:
        answers = (acknowledgment_of(received, envelope, actor=actor, references=references),)
    header, hop = received.header, received.routing[-1] if received.routing else None
    kind, dialect = MessageKind.ACKNOWLEDGMENT, received.dialect
    said = _header(header, hop, envelope, kind, dialect, action=action, as_hop=actor)
    routing = _routing(said, dialect, envelope)
    return Message(dialect, kind, said, routing, acknowledgments=answers)


def acknowledgment_of(
    received: Message,
    envelope: Envelope,
    *,
    actor: Actor = Actor.TO_PARTY_MSH,
    references: tuple[SignedDigest, ...] = (),
) -> Acknowledgment:
    """The Acknowledgment element alone, to ride on a business response (ACK-16)."""
    typed = received.dialect is Dialect.MS_09X and envelope.form.ack_typed
    own = envelope.own
    if own is None and actor is Actor.TO_PARTY_MSH:
        own = received.header.to_party
    return Acknowledgment(
        timestamp=envelope.now,
        ref_to_message_id=received.header.message_id,
        from_party=Party(own.ids) if own is not None and own.role is not None else own,
        actor=actor,
        signed=bool(references) or _asked(received, actor) is AckRequest.SIGNED,
        type=_type(actor) if typed else None,
        references=references,
    )


def _type(actor: Actor) -> AcknowledgmentType:
    if actor is Actor.NEXT_MSH:
        return AcknowledgmentType.INTERMEDIATE_ACK
    return AcknowledgmentType.DELIVERY_RECEIPT


def _asked(received: Message, actor: Actor) -> AckRequest:
    asked = received.asks_ack_of(actor)
    if asked is AckRequest.NONE and received.dialect is not Dialect.EBMS2:
        # The drafts' To Party is also the last hop, and answers what the hop asked.
        return received.asks_ack_of(Actor.NEXT_MSH)
    return asked


def error_message_for(
    about: Message | PartialHeader, errors: Sequence[EbxmlError | Error], envelope: Envelope
) -> Message:
    """The message that reports errors in another one to its sender."""
    listed = tuple(error if isinstance(error, Error) else Error.of(error) for error in errors)
    return replace(_signal(about, envelope, MessageKind.ERROR), error_list=ErrorList(listed))


def delivery_failure_for(
    failed: Message | PartialHeader, envelope: Envelope, *, transmitted: bool, description: str = ""
) -> Message:
    """The notice to the From Party that a message is not, or perhaps not, delivered (ERR-5..9).

    Severity is Error if it was never transmitted, Warning if it was sent and never
    acknowledged. Its semantics are those of the failed message (ERR-8, C33); ebMS 2.0 has none
    for an error, nor an acknowledgement of one, so there its sender repeats it until the
    transport has taken it (`agreement.rules.notice_terms`).
    """
    facts = failed if isinstance(failed, PartialHeader) else PartialHeader.of(failed)
    if facts.from_party is None:
        raise InvalidValue(
            "the From Party of the failed message is not known", remedy="raise an incident instead"
        )
    own = envelope.own or facts.to_party
    if own is None:
        raise InvalidValue("a failure notice has no sender", remedy="name our own party")
    dialect = facts.dialect or envelope.form.dialect
    error = Error(
        "DeliveryFailure", Severity.WARNING if transmitted else Severity.ERROR, "", description
    )
    header = replace(
        _header(facts, facts.last_hop, envelope, MessageKind.ERROR, dialect),
        from_party=own,
        to_party=facts.from_party,
        semantics=DeliverySemantics.BEST_EFFORT if dialect is Dialect.EBMS2 else facts.semantics,
    )
    return Message(
        dialect=dialect,
        kind=MessageKind.ERROR,
        header=header,
        routing=_routing(header, dialect, envelope),
        error_list=ErrorList((error,)),
    )


def status_response_for(
    request: Message,
    status: MessageStatus,
    envelope: Envelope,
    *,
    received_at: Instant | None = None,
) -> Message:
    """The answer to a StatusRequest; the time of arrival only where there was one (§7.1.2)."""
    if request.status_request is None:
        raise InvalidValue("the message asks for no status", remedy="answer StatusRequests only")
    # Neither may say when: the one must not know, the other does not (§7.3).
    silent = status in (MessageStatus.UNAUTHORIZED, MessageStatus.NOT_RECOGNIZED)
    response = StatusResponse(
        request.status_request.ref_to_message_id, status, None if silent else received_at
    )
    signal = _signal(request, envelope, MessageKind.STATUS_RESPONSE)
    return replace(signal, status_response=response)


def pong_for(ping: Message, envelope: Envelope) -> Message:
    """The answer to a Ping (§8)."""
    return _signal(ping, envelope, MessageKind.PONG)


_FOR_THE_ASKER = (MessageKind.PONG, MessageKind.STATUS_RESPONSE)
"""Answers to the From Party, however many handlers are on the way."""


def _signal(about: Message | PartialHeader, envelope: Envelope, kind: MessageKind) -> Message:
    """A signal about a message, without what it says."""
    facts = about.header if isinstance(about, Message) else about
    hop, dialect = about.last_hop, about.dialect or envelope.form.dialect
    if kind in _FOR_THE_ASKER and isinstance(about, Message) and len(about.routing) > 1:
        # The party that asked is behind a hub, which passes the answer on by its To.
        hop = None
    header = _header(facts, hop, envelope, kind, dialect)
    return Message(dialect, kind, header, _routing(header, dialect, envelope))


def ask_status(asked: Message, envelope: Envelope) -> Message:
    """A StatusRequest about a message we sent: same parties, agreement and conversation."""
    return _question(
        asked, envelope, MessageKind.STATUS_REQUEST, StatusRequest(asked.header.message_id)
    )


def ping_like(message: Message, envelope: Envelope) -> Message:
    """A Ping to the party that a message of ours went to."""
    return _question(message, envelope, MessageKind.PING, None)


def _question(
    like: Message, envelope: Envelope, kind: MessageKind, request: StatusRequest | None
) -> Message:
    service, action = _service(like.dialect, kind)
    header = Header(
        from_party=like.header.from_party,
        to_party=like.header.to_party,
        cpa_id=like.header.cpa_id,
        conversation_id=like.header.conversation_id,
        service=service,
        action=action,
        message_id=envelope.message_id,
        timestamp=envelope.now,
        semantics=DeliverySemantics.BEST_EFFORT,
    )
    hop = (envelope.hop,) if envelope.hop is not None else ()
    return Message(like.dialect, kind, header, routing=hop, status_request=request)


# What the dialects have in common and where they differ.


_SIGNAL_SERVICE = Service(ebms2_names.SIGNAL_SERVICE)
_DRAFT_SIGNALS = {
    kind: (Service(service), action) for kind, (service, action) in draft_names.SIGNALS.items()
}


def _service(dialect: Dialect, kind: MessageKind) -> tuple[Service | None, str | None]:
    if dialect is Dialect.EBMS2:
        return _SIGNAL_SERVICE, kind.value
    if dialect is Dialect.RM_078:
        # v0-078 tells signals by MessageType and gives them neither (ACK-6).
        return None, None
    return _DRAFT_SIGNALS[kind]


def _header(
    facts: Header | PartialHeader,
    last_hop: RoutingHeader | None,
    envelope: Envelope,
    kind: MessageKind,
    dialect: Dialect,
    *,
    action: str | None = None,
    as_hop: Actor | None = None,
) -> Header:
    from_party, to_party = _parties(facts, last_hop, envelope, dialect, as_hop)
    service, usual = _service(dialect, kind)
    if facts.message_id is None:
        raise InvalidValue(
            "the MessageId of the message to answer is not known",
            remedy="answer with a SOAP Fault or an HTTP status instead",
        )
    return Header(
        from_party=from_party,
        to_party=to_party,
        # Copied, so that the sender finds its message's agreement (ACK-5); required even where it
        # could not be read.
        cpa_id=facts.cpa_id or UNKNOWN_CPA,
        conversation_id=facts.conversation_id or facts.message_id,
        service=service,
        action=action or usual,
        message_id=envelope.message_id,
        timestamp=envelope.now,
        ref_to_message_id=facts.message_id,
        semantics=DeliverySemantics.BEST_EFFORT,
    )


def _parties(
    facts: Header | PartialHeader,
    last_hop: RoutingHeader | None,
    envelope: Envelope,
    dialect: Dialect,
    as_hop: Actor | None,
) -> tuple[Party, Party]:
    if dialect is not Dialect.EBMS2 and last_hop is not None:
        # From and To are the two ends of the hop just made (ACK-4, ACK-12).
        sender = _end(last_hop.sender_id, last_hop.sender_uri, dialect)
        receiver = _end(last_hop.receiver_id, last_hop.receiver_uri, dialect)
        if sender is not None and receiver is not None:
            return receiver, sender
    own, peer = _sound(facts.to_party, facts.from_party)
    if envelope.own is not None and (own is None or as_hop is Actor.NEXT_MSH):
        own = envelope.own
    peer = peer or envelope.peer
    if own is None or peer is None:
        raise InvalidValue(
            "the parties of the message to answer are not known",
            remedy="answer with a SOAP Fault or an HTTP status instead",
        )
    return own, peer


def _sound(*parties: Party | None) -> list[Party | None]:
    """The parties by those of their ids that an answer may repeat: URIs, and one of each type."""
    found: list[Party | None] = []
    for party in parties:
        if party is None:
            found.append(None)
            continue
        first, *others = party.ids
        if not others and (first.type or is_uri(first.value)):
            found.append(party)
            continue
        ids: list[PartyId] = []
        # Its sender may have written a thousand: each is looked at once.
        types: set[str] = set()
        for party_id in party.ids:
            if party_id.type not in types and (party_id.type or is_uri(party_id.value)):
                ids.append(party_id)
                types.update(filter(None, (party_id.type,)))
        if len(ids) == len(party.ids):
            found.append(party)
        else:
            found.append(Party(tuple(ids), party.role) if ids else None)
    return found


def _end(party_id: PartyId | None, uri: str | None, dialect: Dialect) -> Party | None:
    """One end of a hop as the dialect names it; None for a name of no form."""
    names = (party_id, PartyId(uri) if uri else None)
    for name in names if dialect is Dialect.RM_078 else names[::-1]:
        if name is not None and (name.type or is_uri(name.value)):
            return Party((name,))
    return None


def _routing(header: Header, dialect: Dialect, envelope: Envelope) -> tuple[RoutingHeader, ...]:
    if envelope.hop is not None:
        return (envelope.hop,)
    if dialect is not Dialect.RM_078:
        return ()
    # Every rm-0.78 message has a RoutingHeader, unreliable ones without number (HDR-2, HDR-3).
    return (RoutingHeader(sender_id=header.from_party.ids[0], receiver_id=header.to_party.ids[0]),)
