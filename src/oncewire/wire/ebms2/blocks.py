"""The single blocks of ebMS 2.0: names, each element to its value, and the rules between them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lxml import etree
from msgspec.structs import replace

from oncewire.errors import EbxmlError, Inconsistent, InvalidValue, SoapFault
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    Compression,
    DeliverySemantics,
    Message,
    MessageKind,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    SignedDigest,
    Stretch,
)
from oncewire.message.instant import Instant
from oncewire.wire.xml import (
    WHITESPACE,
    Element,
    attribute,
    children,
    local_name,
    read_moment,
    whole_number,
)

if TYPE_CHECKING:
    from oncewire.wire.parcel import Findings

# The names ebMS 2.0 puts on the wire, by its schema 2.0c, and those of our extensions
# (docs/explanation/decisions.md#extensions).


# SOAP 1.1 alone (§2.1.1); the namespace of 1.2 is known only to be answered with VersionMismatch.
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
SOAP12 = "http://www.w3.org/2003/05/soap-envelope"
# The namespace is the schema's own address. Nothing is ever fetched from it.
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
XLINK = "http://www.w3.org/1999/xlink"
DS = "http://www.w3.org/2000/09/xmldsig#"
XML = "http://www.w3.org/XML/1998/namespace"
RMX = "urn:oncewire:ext:1"
RMX_ERRORS = "urn:oncewire:ext:1:errors"

VERSION = "2.0"
# SOAP's own word for the next handler (SOAP 1.1 §4.2.2): SyncReply is for every handler on the way.
ACTOR_NEXT = "http://schemas.xmlsoap.org/soap/actor/next"
# What handlers say to each other; an application never sees this Service (§3.1.4).
SIGNAL_SERVICE = "urn:oasis:names:tc:ebxml-msg:service"
# The range of §9.1.1, and that of the slides (SEQ-12).
SEQUENCE_MAX = 99_999_999

# Actions of §6.3.2, §4.2.4, §7.1 and §8; the Action alone tells the kind, not what is found in
# the message.
SIGNAL_ACTIONS: dict[str, MessageKind] = {
    "Acknowledgment": MessageKind.ACKNOWLEDGMENT,
    "MessageError": MessageKind.ERROR,
    "StatusRequest": MessageKind.STATUS_REQUEST,
    "StatusResponse": MessageKind.STATUS_RESPONSE,
    "Ping": MessageKind.PING,
    "Pong": MessageKind.PONG,
}


def _eb(name: str) -> str:
    return f"{{{EB}}}{name}"


ENVELOPE = f"{{{SOAP}}}Envelope"
HEADER = f"{{{SOAP}}}Header"
BODY = f"{{{SOAP}}}Body"
FAULT = f"{{{SOAP}}}Fault"
ACTOR = f"{{{SOAP}}}actor"
MUST_UNDERSTAND = f"{{{SOAP}}}mustUnderstand"

MESSAGE_HEADER = _eb("MessageHeader")
SYNC_REPLY = _eb("SyncReply")
MESSAGE_ORDER = _eb("MessageOrder")
ACK_REQUESTED = _eb("AckRequested")
ACKNOWLEDGMENT = _eb("Acknowledgment")
ERROR_LIST = _eb("ErrorList")
ERROR = _eb("Error")
MANIFEST = _eb("Manifest")
REFERENCE = _eb("Reference")
SCHEMA = _eb("Schema")
STATUS_REQUEST = _eb("StatusRequest")
STATUS_RESPONSE = _eb("StatusResponse")
FROM = _eb("From")
TO = _eb("To")
PARTY_ID = _eb("PartyId")
ROLE = _eb("Role")
CPA_ID = _eb("CPAId")
CONVERSATION_ID = _eb("ConversationId")
SERVICE = _eb("Service")
ACTION = _eb("Action")
MESSAGE_DATA = _eb("MessageData")
MESSAGE_ID = _eb("MessageId")
TIMESTAMP = _eb("Timestamp")
REF_TO_MESSAGE_ID = _eb("RefToMessageId")
TIME_TO_LIVE = _eb("TimeToLive")
DUPLICATE_ELIMINATION = _eb("DuplicateElimination")
DESCRIPTION = _eb("Description")
SEQUENCE_NUMBER = _eb("SequenceNumber")

# The schema qualifies attributes too: a bare `version` is not ebMS 2.0's.
A_ID = _eb("id")
A_TYPE = _eb("type")
A_VERSION = _eb("version")
A_STATUS = _eb("status")
A_SIGNED = _eb("signed")
A_LOCATION = _eb("location")
A_CODE_CONTEXT = _eb("codeContext")
A_ERROR_CODE = _eb("errorCode")
A_SEVERITY = _eb("severity")
A_HIGHEST_SEVERITY = _eb("highestSeverity")
A_MESSAGE_STATUS = _eb("messageStatus")
A_LANG = f"{{{XML}}}lang"
A_HREF = f"{{{XLINK}}}href"
A_ROLE = f"{{{XLINK}}}role"

SIGNATURE = f"{{{DS}}}Signature"
DS_REFERENCE = f"{{{DS}}}Reference"
DS_DIGEST_METHOD = f"{{{DS}}}DigestMethod"
DS_DIGEST_VALUE = f"{{{DS}}}DigestValue"

# Ours. Split and Compression lie inside signed elements, the others belong to a hop
# (docs/explanation/decisions.md#extensions).
SPLIT = f"{{{RMX}}}Split"
SPLIT_ID = f"{{{RMX}}}SplitId"
SPLIT_NUMBER = f"{{{RMX}}}SplitNumber"
HOP_SEQUENCE = f"{{{RMX}}}HopSequence"
ROUTING_HEADER_LIST = f"{{{RMX}}}RoutingHeaderList"
ROUTING_HEADER = f"{{{RMX}}}RoutingHeader"
ROUTING_FIELDS = tuple(
    f"{{{RMX}}}{name}" for name in ("SenderURI", "ReceiverURI", "ErrorURI", "Timestamp")
)
COMPRESSION = f"{{{RMX}}}Compression"
STRETCH = f"{{{RMX}}}Stretch"
MIN_RETRY_SECS = f"{{{RMX}}}MinRetrySecs"


# SOAP 1.1 §4.2.3 has 0 and 1 alone, but `true` is what real partners send
# (docs/explanation/decisions.md#real-partners).
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}
_ACTORS = {actor.value: actor for actor in Actor}
_STATUSES = {status.value: status for status in SequenceStatus}
# Blocks with another actor are for another handler on the way.
_OURS = frozenset({None, "", ACTOR_NEXT, *_ACTORS})


def text_of(element: Element) -> str:
    """The element's text without the white space around it."""
    return (element.text or "").strip(WHITESPACE)


def check_version(element: Element, location: str, findings: Findings) -> None:
    """Every block says the version it is written in (§2.3.8)."""
    version = element.get(A_VERSION)
    # A missing one is the schema's matter: under this namespace it can be no other.
    if version != VERSION and version is not None:
        findings.inconsistent(
            f"the version is {version[:32]!r}, not {VERSION!r}",
            f"{location}/@version",
            "send ebMS 2.0",
        )


def instant(element: Element, location: str, findings: Findings) -> Instant | None:
    """A dateTime; one without a zone is taken as UTC and noted
    (docs/explanation/decisions.md#real-partners)."""
    try:
        value, zoned = read_moment(element.text or "")
    except InvalidValue as problem:
        findings.invalid(problem, location)
        return None
    if not zoned:
        findings.note(f"{location} has no time zone and is taken as UTC")
    return value


def actor_of(element: Element, location: str, findings: Findings) -> Actor | None:
    """Whom a block addresses; without an actor, the To Party's handler (§2.3.11)."""
    value = element.get(ACTOR)
    if not value:
        return Actor.TO_PARTY_MSH
    # An unknown one is refused: the block is either for a hop, which may take it away, or for the
    # end, which is signed, and to guess wrong breaks one of the two.
    actor = _ACTORS.get(value.strip(WHITESPACE))
    if actor is None:
        findings.inconsistent(
            f"{value[:128]!r} is neither the toPartyMSH nor the nextMSH actor",
            f"{location}/@actor",
            "address one of the two",
        )
    return actor


def ack_requested(element: Element, findings: Findings) -> AckRequested | None:
    """AckRequested (§6.3.1)."""
    location = "//Header/AckRequested"
    check_version(element, location, findings)
    actor = actor_of(element, location, findings)
    signed = element.get(A_SIGNED)
    # Required by §6.3.1.2; a sender that forgets it has no use for a signed answer.
    if signed is None:
        findings.note("AckRequested does not say whether it wants a signature")
        signed = "false"
    # What kind of proof is wanted must not be guessed.
    wanted = _BOOLEAN.get(signed.strip(WHITESPACE))
    if wanted is None:
        findings.inconsistent(
            f"signed={signed[:32]!r} is not a boolean", f"{location}/@signed", "write true or false"
        )
    return None if actor is None or wanted is None else AckRequested(actor, wanted)


def sync_reply(element: Element, findings: Findings) -> bool:
    """SyncReply (§4.3): always to the next actor."""
    check_version(element, "//Header/SyncReply", findings)
    actor = element.get(ACTOR)
    # With any other actor a hop would not know that it has to keep its connection open (§4.3.1).
    if actor is None:
        findings.note("SyncReply names no actor")
    elif actor.strip(WHITESPACE) != ACTOR_NEXT:
        findings.inconsistent(
            f"{actor[:128]!r} is not the actor of SyncReply",
            "//Header/SyncReply/@actor",
            f"address {ACTOR_NEXT}",
        )
    return True


def message_order(element: Element, findings: Findings) -> SequenceNumber | None:
    """MessageOrder (§9.1)."""
    check_version(element, "//Header/MessageOrder", findings)
    # The number is the block's whole content (§9.1.1); what others add beside it is theirs.
    location = "//Header/MessageOrder"
    numbers = [child for child in element if child.tag == SEQUENCE_NUMBER]
    if numbers:
        return _sequence(numbers[0], numbers[0].get(A_STATUS), location, findings)
    findings.inconsistent("MessageOrder has no SequenceNumber", location, "number the message")
    return None


def hop_sequence(element: Element, findings: Findings) -> SequenceNumber | None:
    """rmx:HopSequence (docs/explanation/decisions.md#extensions)."""
    return _sequence(element, element.get("status"), "//Header/HopSequence", findings)


def _sequence(
    element: Element, status: str | None, location: str, findings: Findings
) -> SequenceNumber | None:
    number = whole_number(element.text)
    if number is None:
        findings.inconsistent(
            f"SequenceNumber {text_of(element)[:32]!r} is not a number",
            location,
            "send a whole number from 0",
        )
        return None
    # Continue is the schema's default (§9.1.1).
    known = _STATUSES.get(status or "Continue")
    if known is None:
        findings.inconsistent(
            f"status {str(status)[:32]!r} is neither Reset nor Continue",
            location,
            "send Reset or Continue",
        )
        return None
    try:
        return SequenceNumber(number, known)
    except InvalidValue as problem:
        findings.invalid(problem, location)
        return None


def routing(element: Element, findings: Findings) -> tuple[RoutingHeader, ...]:
    """rmx:RoutingHeaderList, oldest hop first; what is unreadable in it is left out."""
    hops = []
    # The trail is for audit (HOP-3), so a bad entry costs itself and not the message.
    for child in children(element):
        if child.tag != ROUTING_HEADER:
            continue
        fields = {field.tag: text_of(field) for field in child}
        stamp = fields.get(f"{{{RMX}}}Timestamp")
        try:
            hops.append(
                RoutingHeader(
                    sender_uri=fields.get(f"{{{RMX}}}SenderURI"),
                    receiver_uri=fields.get(f"{{{RMX}}}ReceiverURI"),
                    error_uri=fields.get(f"{{{RMX}}}ErrorURI"),
                    timestamp=None if stamp is None else read_moment(stamp)[0],
                    method=None,
                    msh_id=child.get("mshId"),
                )
            )
        except InvalidValue as problem:
            findings.note(f"a RoutingHeader was left out: {problem.problem}")
    return tuple(hops)


def manifest(element: Element, findings: Findings) -> tuple[list[Reference], list[list[Element]]]:
    """Manifest (§3.2): its references, and the foreign elements of each."""
    location = "//Body/Manifest"
    check_version(element, location, findings)
    references: list[Reference] = []
    foreign: list[list[Element]] = []
    # A Reference that cannot be read is a fault: a payload would get lost unseen (§3.2.1).
    for child in children(element):
        if child.tag != REFERENCE:
            continue
        try:
            reference, others = _reference(child)
        except InvalidValue as problem:
            findings.invalid(problem, f"{location}/Reference/@href")
            continue
        references.append(reference)
        foreign.append(others)
    # A Manifest without a reference says neither that there are payloads nor that there are none
    # (§3.2).
    if not references:
        findings.inconsistent(
            "Manifest has no Reference",
            f"{location}/Reference",
            "name the payloads, or leave the Manifest out",
        )
    return references, foreign


def _reference(element: Element) -> tuple[Reference, list[Element]]:
    """One Reference (§3.2.1): href is what counts, the rest is kept for the application."""
    schemas: list[tuple[str, str | None]] = []
    descriptions: list[tuple[str, str]] = []
    compression: Compression | None = None
    stretch: Stretch | None = None
    foreign: list[Element] = []
    for child in children(element):
        tag = child.tag
        if tag == SCHEMA:
            schemas.append((child.get(A_LOCATION) or "", child.get(A_VERSION)))
        elif tag == DESCRIPTION:
            descriptions.append((child.get(A_LANG) or "", child.text or ""))
        elif tag == COMPRESSION:
            compression = Compression(
                child.get("encoding") or "", whole_number(child.get("originalSize"))
            )
        elif tag == STRETCH:
            stretch = Stretch(
                whole_number(child.get("offset")) or 0,
                whole_number(child.get("size")) or 0,
                (child.get("digest") or "")[:64],
            )
        else:
            foreign.append(child)
    reference = Reference(
        href=(element.get(A_HREF) or "").strip(WHITESPACE),
        role=element.get(A_ROLE),
        id=element.get(A_ID),
        schemas=tuple(schemas),
        descriptions=tuple(descriptions),
        compression=compression,
        stretch=stretch,
    )
    return reference, foreign


def must_understand(block: Element, findings: Findings) -> None:
    """A block we do not know: a fault if it must be understood by us, else an oddity (§2.3.9)."""
    actor = block.get(ACTOR)
    must = (block.get(MUST_UNDERSTAND) or "0").strip(WHITESPACE)
    name = etree.QName(block.tag).localname[:64]
    # A value that is no boolean counts as 1: to pass over what must be understood is the worse
    # mistake (SOAP 1.1 §4.2.3).
    if _BOOLEAN.get(must, True) and actor in _OURS:
        findings.fault(
            SoapFault(
                "MustUnderstand",
                f"the header block {name} must be understood and is not known here",
                remedy="leave it out, or mark it mustUnderstand=0",
            )
        )
    else:
        findings.note(f"the header block {name} is not known and was passed over")


# What stands where in an ebMS 2.0 header, as the standard's own tables have it.
#
# `schema` makes its validator of them; `find_repeated` refuses what they let stand once.


# Children: `?` optional, `*` any number, `+` at least one; `other*` is any foreign element.
# Attributes: `!` required, `?` optional; `other` is any foreign attribute. In place of children, `=
# type` is text of that type. §2.3.7 to §2.3.9: what every header block has.
_BLOCK = "id? version! soap:mustUnderstand! other"
_BODY_BLOCK = "id? version! other"
_HEADER_DATA = "From To CPAId ConversationId Service Action MessageData"
STRUCTURE: dict[str, tuple[str, str]] = {
    "MessageHeader": (f"{_HEADER_DATA} DuplicateElimination? Description* other*", _BLOCK),
    "From": ("PartyId+ Role?", ""),
    "To": ("PartyId+ Role?", ""),
    "PartyId": ("= text", "type?text"),
    "CPAId": ("= text", ""),
    "ConversationId": ("= text", ""),
    "Service": ("= text", "type?text"),
    "Action": ("= text", ""),
    "MessageData": ("MessageId Timestamp RefToMessageId? TimeToLive?", ""),
    "MessageId": ("= text", ""),
    "Timestamp": ("= xs:dateTime", ""),
    "RefToMessageId": ("= text", ""),
    "TimeToLive": ("= xs:dateTime", ""),
    # Any text passes: its presence is what counts (§3.1.7).
    "DuplicateElimination": ("= xs:string", ""),
    "Description": ("= text", "xml:lang!"),
    "SyncReply": ("other*", f"{_BLOCK} soap:actor!"),
    "MessageOrder": ("SequenceNumber other*", _BLOCK),
    "SequenceNumber": ("= xs:nonNegativeInteger", "status?order"),
    "AckRequested": ("other*", f"{_BLOCK} soap:actor? signed!xs:boolean"),
    # No wildcard behind ds:Reference (§6.3.2.5): a Reference would fit both.
    "Acknowledgment": ("Timestamp RefToMessageId From? ds*", f"{_BLOCK} soap:actor?"),
    "ErrorList": ("Error+ other*", f"{_BLOCK} highestSeverity!severity"),
    "Error": (
        "Description? other*",
        "id? codeContext?xs:anyURI errorCode!text severity!severity location?text other",
    ),
    "Manifest": ("Reference+ other*", _BODY_BLOCK),
    # xlink:type is fixed (§3.2.1), and may be left out.
    "Reference": (
        "Schema* Description* other*",
        "id? xlink:type?=simple xlink:href! xlink:role? other",
    ),
    "Schema": ("", "location!xs:anyURI version?text"),
    "StatusRequest": ("RefToMessageId other*", _BODY_BLOCK),
    "StatusResponse": ("RefToMessageId Timestamp? other*", f"{_BODY_BLOCK} messageStatus!status"),
}

# What the schema leaves to the envelope, to signatures and to extensions. AckRequested and
# Acknowledgment may stand once per actor, which `broken` judges; a Signature any number of times,
# each signer adding one (§4.1.1). What else is in the Body is not ours and is left alone.
_BESIDE: dict[str, tuple[str, ...]] = {
    HEADER: (
        MESSAGE_HEADER,
        SYNC_REPLY,
        MESSAGE_ORDER,
        ERROR_LIST,
        HOP_SEQUENCE,
        ROUTING_HEADER_LIST,
    ),
    BODY: (MANIFEST, STATUS_REQUEST, STATUS_RESPONSE),
    MESSAGE_HEADER: (SPLIT,),
    SPLIT: (SPLIT_ID, SPLIT_NUMBER),
    ROUTING_HEADER_LIST: (),
    ROUTING_HEADER: ROUTING_FIELDS,
    REFERENCE: (COMPRESSION, STRETCH),
    ERROR: (MIN_RETRY_SECS,),
    DS_REFERENCE: (DS_DIGEST_METHOD, DS_DIGEST_VALUE),
}
# PHINMS sends two, and its Acknowledgment tells which one counts (`reader`).
_TOLERATED = frozenset({(MESSAGE_DATA, REF_TO_MESSAGE_ID)})


def _once() -> dict[str, frozenset[str]]:
    """The children of each element that may stand once in it."""
    table = {parent: set(children) for parent, children in _BESIDE.items()}
    for name, (content, _) in STRUCTURE.items():
        if content.startswith("="):
            continue
        parent = f"{{{EB}}}{name}"
        table.setdefault(parent, set())
        for word in content.split():
            child = f"{{{EB}}}{word.rstrip('?')}"
            if word[-1] not in "*+" and (parent, child) not in _TOLERATED:
                table[parent].add(child)
    return {parent: frozenset(children) for parent, children in table.items()}


_ONCE = _once()


def find_repeated(element: Element, findings: Findings) -> None:
    """Refuse whatever stands more than once in an element, or in one that we read inside it.

    Of two where one may stand, a signature may cover one and a reader take the other, or two
    readers one each.
    """
    once = _ONCE[element.tag]
    seen = set()
    for child in children(element):
        tag = child.tag
        if tag in once:
            if tag in seen:
                findings.twice(local_name(child), place_of(child))
            seen.add(tag)
        if tag in _ONCE and len(child):
            find_repeated(child, findings)


def place_of(element: Element) -> str:
    """Where an element stands, as errors name places."""
    names = [local_name(element)]
    for parent in element.iterancestors():
        if parent.tag == ENVELOPE:
            break
        names.append(local_name(parent))
    return "//" + "/".join(reversed(names))


def signed_digest(element: Element, written: bytes, findings: Findings) -> SignedDigest | None:
    """One ds:Reference of a signed acknowledgement, with its own bytes."""
    method = value = ""
    for child in children(element):
        if child.tag == DS_DIGEST_METHOD:
            method = child.get("Algorithm") or ""
        elif child.tag == DS_DIGEST_VALUE:
            # Line ends are part of how base64 is written, not of the value.
            value = "".join((child.text or "").split())
    try:
        digest = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        findings.inconsistent(
            "a DigestValue of the acknowledgement is not base64",
            "//Header/Acknowledgment/Reference/DigestValue",
            "copy the ds:Reference of the message acknowledged",
        )
        return None
    # The bytes go along, transforms included: the digest is of octets that only they describe.
    return SignedDigest(element.get("URI") or "", method, digest, written)


def write_signed_digest(digest: SignedDigest) -> str:
    """A ds:Reference: the very bytes it came in, or new ones."""
    # Its transforms must stay with it: they say which octets the digest is of (§6.3.2.5).
    if digest.xml:
        return digest.xml.decode()
    return (
        f'<ds:Reference xmlns:ds="{DS}" URI="{attribute(digest.uri)}">'
        f'<ds:DigestMethod Algorithm="{attribute(digest.digest_method)}"/>'
        f"<ds:DigestValue>{base64.b64encode(digest.digest_value).decode()}</ds:DigestValue>"
        "</ds:Reference>"
    )


# What ebMS 2.0 forbids between elements of one message, without knowing the agreement.
#
# The reader answers a broken rule with the error given here; the writer refuses to break it.


def semantics(
    asked: Iterable[AckRequested], *, duplicate_elimination: bool
) -> DeliverySemantics | None:
    """What the elements say together; None for the combinations in between (§6.6)."""
    # Rows 1 and 2 of the table are once-and-only-once, row 8 best effort. A filter alone, or
    # acknowledgements alone, are neither (C1).
    actors = [request.actor for request in asked]
    if not actors:
        return None if duplicate_elimination else DeliverySemantics.BEST_EFFORT
    if duplicate_elimination and Actor.TO_PARTY_MSH in actors:
        return DeliverySemantics.ONCE_AND_ONLY_ONCE
    return None


def as_stated(message: Message) -> Message:
    """The message with the semantics that its AckRequested and DuplicateElimination state."""
    header = message.header
    # What is signed, stored and compared must be what a reader of these bytes will find (§6.6).
    stated = semantics(message.ack_requested, duplicate_elimination=header.duplicate_elimination)
    if stated is header.semantics:
        return message
    return replace(message, header=replace(header, semantics=stated))


def broken(message: Message) -> Iterator[EbxmlError]:
    """Each rule the message breaks, as the error that answers it."""
    if message.order is not None:
        yield from _order(message)
    if len(message.ack_requested) > 1 or len(message.acknowledgments) > 1:
        # One per actor (§6.3.1.1, §6.3.2.1): two could ask for different things.
        for name, actors in (
            ("AckRequested", [request.actor for request in message.ack_requested]),
            ("Acknowledgment", [answer.actor for answer in message.acknowledgments]),
        ):
            for actor in Actor:
                if actors.count(actor) > 1:
                    yield Inconsistent(
                        f"two {name} elements have the same actor",
                        location=f"//Header/{name}",
                        remedy=f"send one {name} per actor",
                    )
    if message.error_list is not None:
        yield from _checked_error_list(message)
    # §7.2: a question stands alone, so that it can be answered without taking anything in.
    if message.status_request is not None and (message.manifest or message.status_response):
        yield Inconsistent(
            "StatusRequest travels with a Manifest or a StatusResponse",
            location="//Body/StatusRequest",
            remedy="ask in a message of its own",
        )
    if message.kind is not MessageKind.NORMAL:
        yield from _signal(message)


def _order(message: Message) -> Iterator[EbxmlError]:
    order = message.order
    if order is None:
        return
    # These locations avoid the word SequenceNumber, which tells a sender to fill a gap.
    location = "//Header/MessageOrder"
    header = message.header
    # The answer would have to wait for messages before it while its connection is held open (§9).
    if header.asks_sync_reply:
        yield Inconsistent(
            "MessageOrder travels with SyncReply",
            location=location,
            remedy="an ordered message is answered asynchronously (§9.1.2)",
        )
    # A receiver that forgot the old numbers has no other sign where the new ones begin.
    if order.status is SequenceStatus.RESET and order.number != 0:
        yield Inconsistent(
            f"status Reset comes with number {order.number}",
            location=location,
            remedy="a reset starts at 0 (§9.1.1)",
        )
    # Both sides must wrap at the same number, or one waits for ever (§9.1.1).
    if order.number > SEQUENCE_MAX:
        yield Inconsistent(
            f"number {order.number} is beyond {SEQUENCE_MAX}",
            location=location,
            remedy=f"wrap to 0 after {SEQUENCE_MAX}",
        )
    # A number may neither get lost nor come twice: without retries a gap stays, without the filter
    # a number repeats.
    if header.semantics is not DeliverySemantics.ONCE_AND_ONLY_ONCE:
        yield Inconsistent(
            "MessageOrder comes without DuplicateElimination and AckRequested of the To Party",
            location=location,
            remedy="order needs once-and-only-once delivery (§9.1)",
        )


def _checked_error_list(message: Message) -> Iterator[EbxmlError]:
    location = "//Header/ErrorList"
    if message.error_list is None:
        return
    # What failed has no result to report beside it; a warning may ride on anything but a question
    # (§5).
    serious = message.error_list.highest_severity is Severity.ERROR
    if serious and (message.manifest or message.status_response is not None):
        yield Inconsistent(
            "an ErrorList of severity Error travels with a Manifest or a StatusResponse",
            location=location,
            remedy="report it in a message of its own (§4.2.4)",
        )
    # Not even a warning travels with a question (§7.2).
    if message.status_request is not None:
        yield Inconsistent(
            "an ErrorList travels with a StatusRequest",
            location=location,
            remedy="report it in a message of its own (§4.2.4)",
        )


def _signal(message: Message) -> Iterator[EbxmlError]:
    """A signal must bring what its Action announces, or there is nothing to act on."""
    kind = message.kind
    if kind is MessageKind.STATUS_REQUEST and message.status_request is None:
        yield Inconsistent(
            "the Action is StatusRequest, but there is no StatusRequest element",
            location="//Body/StatusRequest",
            remedy="name the message asked about",
        )
    if kind is MessageKind.STATUS_RESPONSE and message.status_response is None:
        yield Inconsistent(
            "the Action is StatusResponse, but there is no StatusResponse element",
            location="//Body/StatusResponse",
            remedy="say what became of the message",
        )
    if kind is MessageKind.ERROR and message.error_list is None:
        yield Inconsistent(
            "the Action is MessageError, but there is no ErrorList",
            location="//Header/ErrorList",
            remedy="report at least one Error",
        )
    # Only a question answers nothing (§3.1.6.3). Some send the reference in the Acknowledgment
    # alone, and mean the same by it.
    needs_ref = kind not in (MessageKind.PING, MessageKind.STATUS_REQUEST)
    if needs_ref and message.header.ref_to_message_id is None and not message.acknowledgments:
        yield Inconsistent(
            f"a {kind.value} names no RefToMessageId",
            location="//Header/MessageHeader/MessageData/RefToMessageId",
            remedy="name the message it answers",
        )
