"""The dialect `ms-0.9x`: the `ebXMLHeader` document of early 2001
(docs/explanation/decisions.md#drafts-on-the-wire)."""

from __future__ import annotations

from oncewire.errors import InvalidValue
from oncewire.message.envelope import (
    Acknowledgment,
    AcknowledgmentType,
    Actor,
    Header,
    Message,
    MessageKind,
    Payload,
    RoutingHeader,
    SequenceStatus,
)
from oncewire.message.form import AckRequest, Dialect, Form, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Party, Service, is_uri
from oncewire.wire.drafts import blocks as n
from oncewire.wire.drafts import blocks as pieces
from oncewire.wire.drafts.blocks import DraftElement
from oncewire.wire.drafts.reader import DraftReading
from oncewire.wire.ebms2.writer import signed_digest
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.source import (
    Element,
    boolean,
    identifier,
    optional_attribute,
    written_moment,
)


def _kind(_root: DraftElement, service: Service | None, action: str | None) -> MessageKind:
    """Told by Service and Action: 0.9x has no MessageType (C8)."""
    if service is None:
        return MessageKind.NORMAL
    return n.kind_of_signal(service.value, action) or MessageKind.NORMAL


def read(
    root: Element, envelope: bytes, charset: str | None, payloads: tuple[Payload, ...] = ()
) -> Findings:
    """The reading of one header document: its message, or its faults and facts."""
    reading = DraftReading(Dialect.MS_09X, _kind, root, envelope, charset)
    reading.read(payloads)
    return reading


def write(message: Message, form: Form) -> bytes:
    """The header document's bytes."""
    # Numbers of a conversation came with ebMS 2.0; here they belong to the hop (C6).
    if message.order is not None:
        raise InvalidValue(
            "ms-0.9x has no MessageOrder", remedy="number the hop in its RoutingHeader"
        )
    # Manifest, Header, routing, status, errors, acknowledgements: the order of the sync paper where
    # it has one (HDR-6), ours elsewhere.
    header = message.header
    routing = "".join([routing_header(hop) for hop in routing_of(message)])
    answers = "".join([_acknowledgment(answer, form) for answer in message.acknowledgments])
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<ebXMLHeader xmlns="{n.NAMESPACE}" version="{n.MS_VERSION}">'
        f"{pieces.write_manifest(message)}"
        f"<Header>{_party('From', header.from_party)}{_party('To', header.to_party)}"
        f"<CPAId>{identifier(header.cpa_id)}</CPAId>"
        f"<ConversationId>{identifier(header.conversation_id)}</ConversationId>{_service(header)}"
        f"{_message_data(header)}{_quality(message)}{_sync(header)}"
        f"{pieces.foreign(message)}</Header>"
        + (f"<RoutingHeaderList>{routing}</RoutingHeaderList>" if routing else "")
        + f"{_status(message)}{pieces.write_error_list(message.error_list)}{answers}</ebXMLHeader>"
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
    return (*message.routing[:-1], _asking(last, wanted))


def _asking(hop: RoutingHeader, wanted: AckRequest) -> RoutingHeader:
    return RoutingHeader(
        hop.sender_uri,
        hop.receiver_uri,
        hop.sender_id,
        hop.receiver_id,
        hop.timestamp,
        hop.error_uri,
        wanted,
        hop.method,
        hop.sequence,
        hop.msh_id,
    )


def _party(name: str, party: Party) -> str:
    ids = ""
    for who in party.ids:
        # As strict as our own reader.
        if not who.type and not is_uri(who.value):
            raise InvalidValue(
                f"PartyId {who.value!r} has no type and is not a URI",
                remedy="give PartyId a type or a URI",
            )
        ids += f"<PartyId{optional_attribute('type', who.type)}>{identifier(who.value)}</PartyId>"
    return f"<{name}>{ids}</{name}>"


def _service(header: Header) -> str:
    service, action = header.service, header.action
    # Signals have both too (ACK-10, ACK-11).
    if service is None or action is None:
        raise InvalidValue("an ms-0.9x message names no Service or no Action", remedy="name both")
    return (
        f"<Service{optional_attribute('type', service.type)}>{identifier(service.value)}</Service>"
        f"<Action>{identifier(action)}</Action>"
    )


def type_of(answer: Acknowledgment) -> AcknowledgmentType:
    """The type an acknowledgement has, said or implied by who gave it."""
    if answer.type is not None:
        return answer.type
    if answer.actor is Actor.NEXT_MSH:
        return AcknowledgmentType.INTERMEDIATE_ACK
    return AcknowledgmentType.DELIVERY_RECEIPT


def _message_data(header: Header) -> str:
    ref_to = (
        f"<RefToMessageId>{identifier(header.ref_to_message_id)}</RefToMessageId>"
        if header.ref_to_message_id
        else ""
    )
    expiry = (
        f"<TimeToLive>{written_moment(header.time_to_live)}</TimeToLive>"
        if header.time_to_live is not None
        else ""
    )
    return (
        f"<MessageData><MessageId>{identifier(header.message_id)}</MessageId>"
        f"<Timestamp>{written_moment(header.timestamp)}</Timestamp>"
        f"{ref_to}{expiry}{pieces.split(header.split)}</MessageData>"
    )


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


def routing_header(hop: RoutingHeader, declarations: str = "") -> str:
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
        + f"<Timestamp>{written_moment(hop.timestamp)}</Timestamp>{number}"
        + (f"<MessageServiceId>{identifier(hop.msh_id)}</MessageServiceId>" if hop.msh_id else "")
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
    party = _party("From", answer.from_party) if answer.from_party is not None else ""
    return (
        f'<Acknowledgment signed="{boolean(answer.signed)}"{optional_attribute("type", kind)}>'
        f"<Timestamp>{written_moment(answer.timestamp)}</Timestamp>{party}"
        f"{''.join(signed_digest(digest) for digest in answer.references)}</Acknowledgment>"
    )
