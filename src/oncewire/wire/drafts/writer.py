"""Writing the drafts' `ebXMLHeader`: ms-0.9x of early 2001, and rm-0.78, which is Reliable
Messaging v0-078 over MS v0-21 (docs/explanation/decisions.md#drafts-on-the-wire)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from oncewire.errors import InvalidValue
from oncewire.message.envelope import (
    Acknowledgment,
    AcknowledgmentType,
    Actor,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    RoutingHeader,
    SequenceStatus,
)
from oncewire.message.form import AckRequest, Form, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Party, PartyId, is_uri
from oncewire.message.instant import Instant
from oncewire.wire.drafts import blocks as n
from oncewire.wire.ebms2.blocks import write_signed_digest
from oncewire.wire.xml import (
    boolean,
    identifier,
    optional_attribute,
    written_basic_moment,
    written_moment,
)


def _party(name: str, party: Party, register: str) -> str:
    """From or To; `register` is the attribute that says whose word an id is."""
    ids = ""
    for who in party.ids:
        # As strict as our own reader.
        if not who.type and not is_uri(who.value):
            raise InvalidValue(
                f"PartyId {who.value!r} has no {register} and is not a URI",
                remedy=f"give PartyId a {register} or a URI",
            )
        ids += f"<PartyId{optional_attribute(register, who.type)}>{identifier(who.value)}</PartyId>"
    return f"<{name}>{ids}</{name}>"


def _message_data(header: Header, stamp: str, moment: Callable[[Instant], str]) -> str:
    """MessageData; the drafts differ in the name of the time stamp and in how instants look."""
    ref_to, expiry = header.ref_to_message_id, header.time_to_live
    return (
        f"<MessageData><MessageId>{identifier(header.message_id)}</MessageId>"
        f"<{stamp}>{moment(header.timestamp)}</{stamp}>"
        + (f"<RefToMessageId>{identifier(ref_to)}</RefToMessageId>" if ref_to else "")
        + (f"<TimeToLive>{moment(expiry)}</TimeToLive>" if expiry is not None else "")
        + f"{n.split(header.split)}</MessageData>"
    )


def _instance(hop: RoutingHeader) -> str:
    return f"<MessageServiceId>{identifier(hop.msh_id)}</MessageServiceId>" if hop.msh_id else ""


# ms-0.9x.


def write_ms09x(message: Message, form: Form) -> bytes:
    """The header document's bytes."""
    # Numbers of a conversation came with ebMS 2.0; here they belong to the hop (C6).
    if message.order is not None:
        raise InvalidValue(
            "ms-0.9x has no MessageOrder", remedy="number the hop in its RoutingHeader"
        )
    # Manifest, Header, routing, status, errors, acknowledgements: the order of the sync paper where
    # it has one (HDR-6), ours elsewhere.
    header = message.header
    # Signals have both too (ACK-10, ACK-11).
    if header.service is None or header.action is None:
        raise InvalidValue("an ms-0.9x message names no Service or no Action", remedy="name both")
    routing = "".join([ms09x_hop(hop) for hop in routing_of(message)])
    answers = "".join([_acknowledgment(answer, form) for answer in message.acknowledgments])
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<ebXMLHeader xmlns="{n.NAMESPACE}" version="{n.MS_VERSION}">'
        f"{n.write_manifest(message)}"
        f"<Header>{_party('From', header.from_party, 'type')}"
        f"{_party('To', header.to_party, 'type')}"
        f"<CPAId>{identifier(header.cpa_id)}</CPAId>"
        f"<ConversationId>{identifier(header.conversation_id)}</ConversationId>"
        f"<Service{optional_attribute('type', header.service.type)}>"
        f"{identifier(header.service.value)}</Service><Action>{identifier(header.action)}</Action>"
        f"{_message_data(header, 'Timestamp', written_moment)}{_quality(message)}{_sync(header)}"
        f"{n.foreign(message)}</Header>"
        + (f"<RoutingHeaderList>{routing}</RoutingHeaderList>" if routing else "")
        + f"{_status(message)}{n.write_error_list(message.error_list)}{answers}</ebXMLHeader>"
    )
    return document.encode()


def routing_of(message: Message) -> tuple[RoutingHeader, ...]:
    """The hops, the last one asking for what the message asks of the next handler."""
    if not message.routing:
        return ()
    # A wish for this hop goes into this hop's entry; those of earlier hops were for others
    # (HOP-10).
    wanted = message.asks_ack_of(Actor.NEXT_MSH)
    last = message.routing[-1]
    if wanted is last.ack_requested:
        return message.routing
    return (*message.routing[:-1], replace(last, ack_requested=wanted))


def type_of(answer: Acknowledgment) -> AcknowledgmentType:
    """The type an acknowledgement has, said or implied by who gave it."""
    if answer.type is not None:
        return answer.type
    if answer.actor is Actor.NEXT_MSH:
        return AcknowledgmentType.INTERMEDIATE_ACK
    return AcknowledgmentType.DELIVERY_RECEIPT


def _quality(message: Message) -> str:
    header = message.header
    receipt = header.delivery_receipt_requested
    # The same wish may be said as AckRequested of the To Party
    # (docs/explanation/decisions.md#values-on-the-wire).
    if receipt is None:
        wanted = message.asks_ack_of(Actor.TO_PARTY_MSH)
        receipt = wanted if wanted is not AckRequest.NONE else None
    # Both attributes are optional since v0.91; an element without either says nothing.
    if header.semantics is None and receipt is None:
        return ""
    words = optional_attribute(
        "deliverySemantics", header.semantics.value if header.semantics is not None else None
    )
    asked = optional_attribute(
        "deliveryReceiptRequested", receipt.value if receipt is not None else None
    )
    return f"<QualityOfServiceInfo{words}{asked}/>"


def _sync(header: Header) -> str:
    if header.sync_reply is None:
        # SYNC-15 requires one of three words; "as agreed" is SyncReply's meaning in 2.0.
        if header.sync_reply_as_agreed:
            raise InvalidValue(
                "ms-0.9x names the synchronous replies it wants, not `as agreed`",
                remedy="put the agreed mode into sync_reply",
            )
        return ""
    # No word for it: a sender that wants none leaves the element out.
    if header.sync_reply is SyncReplyMode.NONE:
        return ""
    word = n.SYNC_WORDS.get(header.sync_reply)
    if word is None:
        raise InvalidValue(
            f"ms-0.9x has no syncReplyMode {header.sync_reply.value}",
            remedy="agree on " + ", ".join(n.SYNC_MODES),
        )
    return f'<SynchronousMessagingInfo syncReplyMode="{word}"/>'


def ms09x_hop(hop: RoutingHeader, declarations: str = "") -> str:
    """One RoutingHeader; `declarations` make it stand alone for a splice."""
    if hop.sender_uri is None or hop.receiver_uri is None:
        raise InvalidValue(
            "a RoutingHeader of ms-0.9x names its ends by URI", remedy="give both URIs"
        )
    # The three of HDR-5.
    if hop.timestamp is None:
        raise InvalidValue(
            "a RoutingHeader of ms-0.9x has a Timestamp", remedy="give the time of the hop"
        )
    # None is what silence means (ACK-13).
    asked = hop.ack_requested.value if hop.ack_requested is not AckRequest.NONE else None
    # ebXML is what silence means.
    stated = hop.method is ReliableMessagingMethod.TRANSPORT
    method = ReliableMessagingMethod.TRANSPORT.value if stated else None
    number = ""
    if hop.sequence is not None:
        # Said always: a Receiver restarts on Reset, and must not guess which it is (SEQ-13,
        # SEQ-14).
        status = hop.sequence.status or SequenceStatus.CONTINUE
        number = f'<SequenceNumber Status="{status.value}">{hop.sequence.number}</SequenceNumber>'
    return (
        f"<RoutingHeader{declarations}{optional_attribute('ackRequested', asked)}"
        f"{optional_attribute('reliableMessagingMethod', method)}>"
        f"<SenderURI>{identifier(hop.sender_uri)}</SenderURI>"
        f"<ReceiverURI>{identifier(hop.receiver_uri)}</ReceiverURI>"
        + (f"<ErrorURI>{identifier(hop.error_uri)}</ErrorURI>" if hop.error_uri else "")
        + f"<Timestamp>{written_moment(hop.timestamp)}</Timestamp>{number}{_instance(hop)}"
        + "</RoutingHeader>"
    )


def _status(message: Message) -> str:
    if message.status_request is not None:
        named = identifier(message.status_request.ref_to_message_id)
        return f"<StatusData><RefToMessageId>{named}</RefToMessageId></StatusData>"
    if message.status_response is None:
        return ""
    answer = message.status_response
    stamp = (
        f"<Timestamp>{written_moment(answer.timestamp)}</Timestamp>"
        if answer.timestamp is not None
        else ""
    )
    return (
        f'<StatusData messageStatus="{answer.status.value}">'
        f"<RefToMessageId>{identifier(answer.ref_to_message_id)}</RefToMessageId>{stamp}"
        "</StatusData>"
    )


def _acknowledgment(answer: Acknowledgment, form: Form) -> str:
    # The last schema has no type, so it is written where agreed (C9, C10).
    kind = type_of(answer).value if form.ack_typed else None
    party = _party("From", answer.from_party, "type") if answer.from_party is not None else ""
    return (
        f'<Acknowledgment signed="{boolean(answer.signed)}"{optional_attribute("type", kind)}>'
        f"<Timestamp>{written_moment(answer.timestamp)}</Timestamp>{party}"
        f"{''.join(write_signed_digest(digest) for digest in answer.references)}</Acknowledgment>"
    )


# rm-0.78.

# All the kinds there are: v0-078 has neither status nor ping.
_MESSAGE_TYPES = {
    MessageKind.NORMAL: "Normal",
    MessageKind.ACKNOWLEDGMENT: "Acknowledgement",
    MessageKind.ERROR: "Error",
}
# Its own words for reliable and not (C1).
_SEMANTICS = {
    DeliverySemantics.ONCE_AND_ONLY_ONCE: "AtMostOnce",
    DeliverySemantics.BEST_EFFORT: "Unspecified",
}


def write_rm078(message: Message, form: Form) -> bytes:  # noqa: ARG001 - the dialect has no options
    """The header document's bytes."""
    header = message.header
    kind = _MESSAGE_TYPES.get(message.kind)
    if kind is None:
        raise InvalidValue(
            f"rm-0.78 has no {message.kind.value}", remedy="agree on ms-0.9x or ebms2"
        )
    # Unreliable ones too, so that every hop can be audited (HDR-2).
    if not message.routing:
        raise InvalidValue(
            "every rm-0.78 message has a RoutingHeader", remedy="name SenderID and ReceiverID"
        )
    if message.order is not None:
        raise InvalidValue(
            "rm-0.78 has no MessageOrder", remedy="number the hop in its RoutingHeader"
        )
    # Its replies never come on the request's connection (TRN-2).
    if header.sync_reply_as_agreed or header.sync_reply not in (None, SyncReplyMode.NONE):
        raise InvalidValue("rm-0.78 has no synchronous replies", remedy="agree on ms-0.9x or ebms2")
    # ACK-7; what an acknowledgement carried could not be acknowledged itself.
    if message.kind is not MessageKind.NORMAL and (message.payloads or message.manifest):
        raise InvalidValue(
            f"an rm-0.78 {message.kind.value} carries no payload",
            remedy="send the payload in a message of its own",
        )
    # Signals carry no ServiceInterface and no Action, only what they answer (ACK-6).
    service = ""
    if message.kind is MessageKind.NORMAL:
        if header.service is None or header.action is None:
            raise InvalidValue(
                "an rm-0.78 message names no ServiceInterface or no Action", remedy="name both"
            )
        service = (
            f"<ServiceInterface{optional_attribute('type', header.service.type)}>"
            f"{identifier(header.service.value)}</ServiceInterface>"
            f"<Action>{identifier(header.action)}</Action>"
        )
    semantics = (
        f'<ReliableMessagingInfo DeliverySemantics="{_SEMANTICS[header.semantics]}"/>'
        if header.semantics is not None
        else ""
    )
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<ebXMLHeader version="{n.RM_VERSION}" MessageType="{kind}">'
        f"{n.write_manifest(message)}"
        f"<Header>{_party('From', header.from_party, 'context')}"
        f"{_party('To', header.to_party, 'context')}"
        f"<TPAInfo><TPAId>{identifier(header.cpa_id)}</TPAId>"
        f"<ConversationID>{identifier(header.conversation_id)}</ConversationID>{service}</TPAInfo>"
        f"{_message_data(header, 'TimeStamp', written_basic_moment)}{semantics}"
        f"{n.foreign(message)}</Header>"
        f"{rm078_hop(message.routing[-1])}{n.write_error_list(message.error_list)}"
        "</ebXMLHeader>"
    )
    return document.encode()


def rm078_hop(hop: RoutingHeader, declarations: str = "") -> str:
    """The one RoutingHeader, rewritten at each hop; `declarations` serve a splice."""
    # Only PartyIDs here (C25); a URI is one without context.
    sender = hop.sender_id or PartyId(hop.sender_uri or "")
    receiver = hop.receiver_id or PartyId(hop.receiver_uri or "")
    number = ""
    # The number alone: there is no Status (C7), and on unreliable messages no number (HDR-3).
    if hop.sequence is not None:
        number = f"<SequenceNumber>{hop.sequence.number}</SequenceNumber>"
    return (
        f"<RoutingHeader{declarations}>"
        f"<SenderID{optional_attribute('context', sender.type)}>"
        f"{identifier(sender.value)}</SenderID>"
        f"<ReceiverID{optional_attribute('context', receiver.type)}>"
        f"{identifier(receiver.value)}</ReceiverID>{_instance(hop)}{number}</RoutingHeader>"
    )
