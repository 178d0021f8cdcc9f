"""Writing ebMS 2.0: a Message to a SOAP envelope that the official schema accepts.

Strict: the rules in `blocks` are checked first, and features that 2.0 lacks are written
only when the agreement names them (docs/explanation/decisions.md#extensions). Templates and
escaping, because they are ten times faster than building a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oncewire.errors import InvalidValue, TransientError
from oncewire.message.envelope import (
    CODE_CONTEXT,
    Acknowledgment,
    AckRequested,
    Actor,
    Compression,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Split,
    Stretch,
)
from oncewire.message.form import AckRequest, Extension, Form, SyncReplyMode
from oncewire.message.ids import Party, PartyId, is_uri
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.xml import (
    attribute,
    boolean,
    foreign_text,
    identifier,
    optional_attribute,
    text,
    written_moment,
)

# The prefixes are bound on the root once; what a hop puts in later binds its own.
_OPEN = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<SOAP:Envelope xmlns:SOAP="{n.SOAP}" xmlns:eb="{n.EB}" xmlns:xlink="{n.XLINK}">'
    "<SOAP:Header>"
    '<eb:MessageHeader SOAP:mustUnderstand="1" eb:version="2.0">'
)
# Never signed: the transform leaves out whatever has this actor (§4.1.3).
_SYNC_REPLY = (
    f'<eb:SyncReply SOAP:mustUnderstand="1" eb:version="2.0" SOAP:actor="{n.ACTOR_NEXT}"/>'
)
# On every header block of ours (§2.3.9): a handler that does not know one must refuse it.
_BLOCK = 'SOAP:mustUnderstand="1" eb:version="2.0"'
_OWN = frozenset({"", n.EB, n.RMX})
# What xsd:ID and xsd:language accept; the schema is enforced by some partners.
_NCNAME = re.compile(r"[A-Za-z_][A-Za-z0-9._\-]*\Z")
_LANGUAGE = re.compile(r"[a-zA-Z]{1,8}(?:-[a-zA-Z0-9]{1,8})*\Z")


def write(message: Message, form: Form) -> bytes:
    """The envelope's bytes."""
    header = message.header
    opening = _opening(header)
    requests = ack_requests(message)
    sync = wants_sync_reply(header)
    # Once-and-only-once is two elements in 2.0, this one and AckRequested (§6.6).
    duplicate_elimination = (
        header.duplicate_elimination or header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    )
    for error in n.broken(message):
        raise InvalidValue(f"{error.problem}: {error.location}", remedy=error.remedy)
    if len(requests) > 1 and len({request.actor for request in requests}) != len(requests):
        raise InvalidValue("two AckRequested have one actor", remedy="ask each handler once")
    # In the order of the schema.
    parts = [opening, "<eb:DuplicateElimination/>" if duplicate_elimination else ""]
    if header.descriptions:
        parts.append(_descriptions(header.descriptions))
    if header.split is not None:
        parts.append(_split(header.split, form))
    if header.foreign:
        parts.extend(foreign_text(element, _OWN) for element in header.foreign)
    parts.append("</eb:MessageHeader>")
    if sync:
        parts.append(_SYNC_REPLY)
    if message.order is not None:
        parts.append(_message_order(message.order))
    parts.extend(map(ack_requested, requests))
    parts.extend(map(_acknowledgment, message.acknowledgments))
    if message.error_list is not None:
        parts.append(_error_list(message.error_list, form))
    if message.routing:
        parts.extend(hop_blocks(message.routing, form))
    parts.append("</SOAP:Header>")
    parts.append(_body(message, form))
    parts.append("</SOAP:Envelope>")
    return "".join(parts).encode()


def _opening(header: Header) -> str:
    """The envelope up to the MessageData of its MessageHeader."""
    service = header.service
    if service is None or header.action is None:
        raise InvalidValue("an ebMS 2.0 message names no Service or no Action", remedy="name both")
    # As strict as we are with others (§3.1.4.1).
    if not service.type and not is_uri(service.value):
        raise InvalidValue(
            f"Service {service.value!r} has no type and is not a URI",
            remedy="give Service a type or a URI",
        )
    ref_to = (
        f"<eb:RefToMessageId>{identifier(header.ref_to_message_id)}</eb:RefToMessageId>"
        if header.ref_to_message_id
        else ""
    )
    expiry = (
        f"<eb:TimeToLive>{written_moment(header.time_to_live)}</eb:TimeToLive>"
        if header.time_to_live is not None
        else ""
    )
    return (
        f"{_OPEN}{_party('From', header.from_party)}{_party('To', header.to_party)}"
        f"<eb:CPAId>{identifier(header.cpa_id)}</eb:CPAId>"
        f"<eb:ConversationId>{identifier(header.conversation_id)}</eb:ConversationId>"
        f"<eb:Service{optional_attribute('eb:type', service.type)}>{identifier(service.value)}"
        f"</eb:Service><eb:Action>{identifier(header.action)}</eb:Action>"
        f"<eb:MessageData><eb:MessageId>{identifier(header.message_id)}</eb:MessageId>"
        f"<eb:Timestamp>{written_moment(header.timestamp)}</eb:Timestamp>"
        f"{ref_to}{expiry}</eb:MessageData>"
    )


def ack_requests(message: Message) -> tuple[AckRequested, ...]:
    """Every AckRequested the message implies, however its values say it
    (docs/explanation/decisions.md#values-on-the-wire)."""
    # These are never acknowledged: two handlers would go on for ever (§6.3.1).
    if message.kind in (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR):
        return ()
    requests = list(message.ack_requested)
    asked = [request.actor for request in requests]
    receipt = message.header.delivery_receipt_requested
    once = message.header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    if Actor.TO_PARTY_MSH not in asked and (
        once or receipt in (AckRequest.SIGNED, AckRequest.UNSIGNED)
    ):
        requests.append(AckRequested(Actor.TO_PARTY_MSH, receipt is AckRequest.SIGNED))
    hop = message.last_hop
    if Actor.NEXT_MSH not in asked and hop is not None and hop.ack_requested is not AckRequest.NONE:
        requests.append(AckRequested(Actor.NEXT_MSH, hop.ack_requested is AckRequest.SIGNED))
    return tuple(requests)


def wants_sync_reply(header: Header) -> bool:
    """Whether a SyncReply element is due; which replies come is the agreement's matter."""
    if header.sync_reply is None:
        return header.sync_reply_as_agreed
    return header.sync_reply is not SyncReplyMode.NONE


def _party(name: str, party: Party) -> str:
    ids = ""
    if len(party.ids) > 1 and _repeat_a_type(party.ids):
        raise InvalidValue(
            f"two PartyIds of {party} have one type", remedy="name the party once per type"
        )
    for party_id in party.ids:
        if not party_id.type and not is_uri(party_id.value):
            raise InvalidValue(
                f"PartyId {party_id.value!r} has no type and is not a URI",
                remedy="give PartyId a type or a URI",
            )
        kind = "" if party_id.type is None else f' eb:type="{attribute(party_id.type)}"'
        ids += f"<eb:PartyId{kind}>{identifier(party_id.value)}</eb:PartyId>"
    role = f"<eb:Role>{identifier(party.role)}</eb:Role>" if party.role else ""
    return f"<eb:{name}>{ids}{role}</eb:{name}>"


def _repeat_a_type(ids: tuple[PartyId, ...]) -> bool:
    kinds = [party_id.type for party_id in ids if party_id.type is not None]
    return len(set(kinds)) != len(kinds)


def _descriptions(descriptions: Iterable[tuple[str, str]]) -> str:
    return "".join([_description(language, words) for language, words in descriptions])


def _description(language: str, words: str) -> str:
    if not words:
        raise InvalidValue("a Description is empty", remedy="write something or leave it out")
    # xml:lang is required and must be a language; without this a Description read from a lax
    # partner could not be written again.
    lang = language if _LANGUAGE.match(language) else "en"
    return f'<eb:Description xml:lang="{lang}">{text(words)}</eb:Description>'


def _split(split: Split, form: Form) -> str:
    if Extension.SPLIT not in form.extensions:
        raise InvalidValue(
            "the message is part of a split document, but the agreement has no `split` extension",
            remedy="agree on the extension, or send the document whole",
        )
    return (
        f'<rmx:Split xmlns:rmx="{n.RMX}"><rmx:SplitId>{identifier(split.split_id)}</rmx:SplitId>'
        f'<rmx:SplitNumber Total="{split.total}">{split.number}</rmx:SplitNumber></rmx:Split>'
    )


def _message_order(order: SequenceNumber) -> str:
    # Written even where it is the default, for readers without the schema.
    status = order.status or SequenceStatus.CONTINUE
    return (
        f"<eb:MessageOrder {_BLOCK}>"
        f'<eb:SequenceNumber eb:status="{status.value}">{order.number}</eb:SequenceNumber>'
        "</eb:MessageOrder>"
    )


def ack_requested(request: AckRequested, declarations: str = "") -> str:
    """One AckRequested block; `declarations` make it stand alone for a splice."""
    return (
        f'<eb:AckRequested{declarations} {_BLOCK} eb:signed="{boolean(request.signed)}" '
        f'SOAP:actor="{request.actor.value}"/>'
    )


def _acknowledgment(answer: Acknowledgment) -> str:
    party = _party("From", answer.from_party) if answer.from_party is not None else ""
    digests = "".join(map(n.write_signed_digest, answer.references))
    return (
        f'<eb:Acknowledgment {_BLOCK} SOAP:actor="{answer.actor.value}">'
        f"<eb:Timestamp>{written_moment(answer.timestamp)}</eb:Timestamp>"
        f"<eb:RefToMessageId>{identifier(answer.ref_to_message_id)}</eb:RefToMessageId>"
        f"{party}{digests}</eb:Acknowledgment>"
    )


def _error_list(errors: ErrorList, form: Form) -> str:
    inner = "".join(_error(error, form) for error in errors.errors)
    return (
        f'<eb:ErrorList {_BLOCK} eb:highestSeverity="{errors.highest_severity.value}">'
        f"{inner}</eb:ErrorList>"
    )


def _error(error: Error, form: Form) -> str:
    # Left out where it is the default (§4.2.3.2.2).
    context: str | None = error.code_context if error.code_context != CODE_CONTEXT else None
    pause = ""
    if error.code == TransientError.code:
        if Extension.TRANSIENT_ERROR not in form.extensions:
            raise InvalidValue(
                "the agreement has no `transient_error` extension",
                remedy="answer HTTP 503 with Retry-After, or agree on the extension",
            )
        # The code is ours, so its context must be ours: in the default one it would be an unknown
        # word.
        context = n.RMX_ERRORS
        if error.min_retry_secs is not None:
            pause = (
                f'<rmx:MinRetrySecs xmlns:rmx="{n.RMX}">{error.min_retry_secs}</rmx:MinRetrySecs>'
            )
    words = _description("en", error.description) if error.description else ""
    return (
        f"<eb:Error{optional_attribute('eb:codeContext', context)} "
        f'eb:errorCode="{attribute(error.code)}" eb:severity="{error.severity.value}"'
        f"{optional_attribute('eb:location', error.location or None)}>{words}{pause}</eb:Error>"
    )


def hop_blocks(routing: tuple[RoutingHeader, ...], form: Form) -> Iterable[str]:
    """The blocks of our extensions that change at every hop, each able to stand alone."""
    # Only the hop just being made has a number; those of earlier hops were between others.
    last = routing[-1]
    if Extension.HOP_SEQUENCE in form.extensions and last.sequence is not None:
        yield hop_sequence(last.sequence)
    if Extension.ROUTING in form.extensions:
        hops = "".join(routing_header(hop) for hop in routing)
        yield f"<rmx:RoutingHeaderList {_HOP_ATTRIBUTES}>{hops}</rmx:RoutingHeaderList>"


# To the next MSH, so outside the signature, and mustUnderstand=0, so that a handler without our
# extensions passes over it.
_HOP_ATTRIBUTES = (
    f'xmlns:rmx="{n.RMX}" xmlns:SOAP="{n.SOAP}" '
    f'SOAP:mustUnderstand="0" SOAP:actor="{Actor.NEXT_MSH.value}"'
)


def hop_sequence(sequence: SequenceNumber) -> str:
    """rmx:HopSequence: the number of this hop."""
    status = sequence.status or SequenceStatus.CONTINUE
    return (
        f'<rmx:HopSequence {_HOP_ATTRIBUTES} status="{status.value}">'
        f"{sequence.number}</rmx:HopSequence>"
    )


def routing_header(hop: RoutingHeader, declarations: str = "") -> str:
    """rmx:RoutingHeader: one hop of the audit trail."""
    # As in 0.9x (C25): it names the handler to ask about a lost message.
    if hop.sender_uri is None or hop.receiver_uri is None:
        raise InvalidValue(
            "a RoutingHeader of ebMS 2.0 names its ends by URI", remedy="give both URIs"
        )
    stamp = (
        f"<rmx:Timestamp>{written_moment(hop.timestamp)}</rmx:Timestamp>"
        if hop.timestamp is not None
        else ""
    )
    error = f"<rmx:ErrorURI>{identifier(hop.error_uri)}</rmx:ErrorURI>" if hop.error_uri else ""
    return (
        f"<rmx:RoutingHeader{declarations}{optional_attribute('mshId', hop.msh_id)}>"
        f"<rmx:SenderURI>{identifier(hop.sender_uri)}</rmx:SenderURI>"
        f"<rmx:ReceiverURI>{identifier(hop.receiver_uri)}</rmx:ReceiverURI>"
        f"{error}{stamp}</rmx:RoutingHeader>"
    )


def _body(message: Message, form: Form) -> str:
    """What is for the To Party alone (§2.3.4): no actor, no mustUnderstand, always signed."""
    inner = ""
    if message.manifest:
        references = "".join([_reference(reference, form) for reference in message.manifest])
        inner += f'<eb:Manifest eb:version="2.0">{references}</eb:Manifest>'
    if message.status_request is not None:
        inner += (
            '<eb:StatusRequest eb:version="2.0"><eb:RefToMessageId>'
            f"{identifier(message.status_request.ref_to_message_id)}"
            "</eb:RefToMessageId></eb:StatusRequest>"
        )
    if message.status_response is not None:
        answer = message.status_response
        stamp = (
            f"<eb:Timestamp>{written_moment(answer.timestamp)}</eb:Timestamp>"
            if answer.timestamp is not None
            else ""
        )
        inner += (
            f'<eb:StatusResponse eb:version="2.0" eb:messageStatus="{answer.status.value}">'
            f"<eb:RefToMessageId>{identifier(answer.ref_to_message_id)}</eb:RefToMessageId>"
            f"{stamp}</eb:StatusResponse>"
        )
    return f"<SOAP:Body>{inner}</SOAP:Body>" if inner else "<SOAP:Body/>"


def _reference(reference: Reference, form: Form) -> str:
    identity = reference.id
    if identity is not None and not _NCNAME.match(identity):
        # The schema wants an XML name; NHS handlers put an underscore before a digit.
        identity = f"_{identity}" if _NCNAME.match(f"_{identity}") else None
    # Schema, Description, then the foreign ones: the order of §3.2.1.
    inner = ""
    for location, version in reference.schemas:
        stated = optional_attribute("eb:version", version or None)
        inner += f'<eb:Schema eb:location="{attribute(location)}"{stated}/>'
    if reference.descriptions:
        inner += _descriptions(reference.descriptions)
    if reference.compression is not None:
        inner += _compression(reference.compression, form)
    if reference.stretch is not None:
        inner += _stretch(reference.stretch)
    for element in reference.foreign:
        inner += foreign_text(element, _OWN)
    return (
        f'<eb:Reference xlink:type="simple" xlink:href="{attribute(reference.href)}"'
        f"{optional_attribute('xlink:role', reference.role)}"
        f"{optional_attribute('eb:id', identity)}>{inner}</eb:Reference>"
    )


def _compression(compression: Compression, form: Form) -> str:
    if Extension.COMPRESSION not in form.extensions:
        raise InvalidValue(
            "a payload is compressed, but the agreement has no `compression` extension",
            remedy="agree on the extension, or send the payload as it is",
        )
    size = "" if compression.original_size is None else str(compression.original_size)
    return (
        f'<rmx:Compression xmlns:rmx="{n.RMX}" encoding="{attribute(compression.encoding)}"'
        f"{optional_attribute('originalSize', size or None)}/>"
    )


def _stretch(stretch: Stretch) -> str:
    # Whether the agreement has it is asked where the header says of which document it is.
    return (
        f'<rmx:Stretch xmlns:rmx="{n.RMX}" offset="{stretch.offset}" size="{stretch.size}" '
        f'digest="{attribute(stretch.digest)}"/>'
    )
