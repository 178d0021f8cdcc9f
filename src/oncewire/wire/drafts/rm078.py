"""The dialect `rm-0.78`: Reliable Messaging v0-078 over MS v0-21
(docs/explanation/decisions.md#drafts-on-the-wire)."""

from __future__ import annotations

from oncewire.errors import InvalidValue
from oncewire.message.envelope import (
    DeliverySemantics,
    Message,
    MessageKind,
    Payload,
    RoutingHeader,
)
from oncewire.message.form import Dialect, Form, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service, is_uri
from oncewire.wire.drafts import blocks as n
from oncewire.wire.drafts import blocks as pieces
from oncewire.wire.drafts.blocks import DraftElement
from oncewire.wire.drafts.reader import DraftReading
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.source import Element, identifier, optional_attribute, written_basic_moment

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


def _kind(root: DraftElement, service: Service | None, action: str | None) -> MessageKind | None:
    word = root.value("messagetype")
    # An unknown MessageType is refused, never taken for Normal: an acknowledgement must not reach
    # an application.
    if word is not None:
        return n.MESSAGE_TYPES.get(word.lower())
    if service is None:
        return MessageKind.NORMAL
    return n.kind_of_signal(service.value, action) or MessageKind.NORMAL


def read(
    root: Element, envelope: bytes, charset: str | None, payloads: tuple[Payload, ...] = ()
) -> Findings:
    """The reading of one header document: its message, or its faults and facts."""
    reading = DraftReading(Dialect.RM_078, _kind, root, envelope, charset)
    reading.read(payloads)
    return reading


def write(message: Message, form: Form) -> bytes:  # noqa: ARG001 - the dialect has no options
    """The header document's bytes."""
    header = message.header
    kind = _MESSAGE_TYPES.get(message.kind)
    if kind is None:
        raise InvalidValue(
            f"rm-0.78 has no {message.kind.value}", remedy="agree on ms-0.9x or ebms2"
        )
    _check(message)
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
    ref_to = (
        f"<RefToMessageId>{identifier(header.ref_to_message_id)}</RefToMessageId>"
        if header.ref_to_message_id
        else ""
    )
    expiry = (
        f"<TimeToLive>{written_basic_moment(header.time_to_live)}</TimeToLive>"
        if header.time_to_live is not None
        else ""
    )
    semantics = (
        f'<ReliableMessagingInfo DeliverySemantics="{_SEMANTICS[header.semantics]}"/>'
        if header.semantics is not None
        else ""
    )
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<ebXMLHeader version="{n.RM_VERSION}" MessageType="{kind}">'
        f"{pieces.write_manifest(message)}"
        f"<Header>{_party('From', header.from_party)}{_party('To', header.to_party)}"
        f"<TPAInfo><TPAId>{identifier(header.cpa_id)}</TPAId>"
        f"<ConversationID>{identifier(header.conversation_id)}</ConversationID>{service}</TPAInfo>"
        f"<MessageData><MessageId>{identifier(header.message_id)}</MessageId>"
        f"<TimeStamp>{written_basic_moment(header.timestamp)}</TimeStamp>"
        f"{ref_to}{expiry}{pieces.split(header.split)}</MessageData>{semantics}"
        f"{pieces.foreign(message)}</Header>"
        f"{routing_header(message.routing[-1])}{pieces.write_error_list(message.error_list)}"
        "</ebXMLHeader>"
    )
    return document.encode()


def _check(message: Message) -> None:
    # Unreliable ones too, so that every hop can be audited (HDR-2).
    if not message.routing:
        raise InvalidValue(
            "every rm-0.78 message has a RoutingHeader",
            remedy="name SenderID and ReceiverID",
        )
    if message.order is not None:
        raise InvalidValue(
            "rm-0.78 has no MessageOrder", remedy="number the hop in its RoutingHeader"
        )
    # Its replies never come on the request's connection (TRN-2).
    header = message.header
    if header.sync_reply_as_agreed or header.sync_reply not in (None, SyncReplyMode.NONE):
        raise InvalidValue("rm-0.78 has no synchronous replies", remedy="agree on ms-0.9x or ebms2")
    # ACK-7; what an acknowledgement carried could not be acknowledged itself.
    if message.kind is not MessageKind.NORMAL and (message.payloads or message.manifest):
        raise InvalidValue(
            f"an rm-0.78 {message.kind.value} carries no payload",
            remedy="send the payload in a message of its own",
        )


def _party(name: str, party: Party) -> str:
    ids = "".join(
        f"<PartyId{optional_attribute('context', who.type)}>{identifier(who.value)}</PartyId>"
        for who in party.ids
        if _named(who)
    )
    return f"<{name}>{ids}</{name}>"


def _named(party_id: PartyId) -> bool:
    if not party_id.type and not is_uri(party_id.value):
        raise InvalidValue(
            f"PartyId {party_id.value!r} has no context and is not a URI",
            remedy="give PartyId a context or a URI",
        )
    return True


def routing_header(hop: RoutingHeader, declarations: str = "") -> str:
    """The one RoutingHeader, rewritten at each hop; `declarations` serve a splice."""
    # Only PartyIDs here (C25); a URI is one without context.
    sender = hop.sender_id or PartyId(hop.sender_uri or "")
    receiver = hop.receiver_id or PartyId(hop.receiver_uri or "")
    number = ""
    # The number alone: there is no Status (C7), and on unreliable messages no number (HDR-3).
    if hop.sequence is not None:
        number = f"<SequenceNumber>{hop.sequence.number}</SequenceNumber>"
    instance = (
        f"<MessageServiceId>{identifier(hop.msh_id)}</MessageServiceId>" if hop.msh_id else ""
    )
    return (
        f"<RoutingHeader{declarations}>"
        f"<SenderID{optional_attribute('context', sender.type)}>"
        f"{identifier(sender.value)}</SenderID>"
        f"<ReceiverID{optional_attribute('context', receiver.type)}>"
        f"{identifier(receiver.value)}</ReceiverID>{instance}{number}</RoutingHeader>"
    )
