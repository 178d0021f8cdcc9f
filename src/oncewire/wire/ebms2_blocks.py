"""Reading the single blocks of ebMS 2.0: each element to its value, faults to `findings`."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lxml import etree

from oncewire.errors import Inconsistent, InvalidValue, SoapFault, ValueNotRecognized
from oncewire.message import (
    Acknowledgment,
    AckRequested,
    Actor,
    Compression,
    Error,
    ErrorList,
    MessageStatus,
    Party,
    PartyId,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    SignedDigest,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.fault import CODE_CONTEXT
from oncewire.message.instant import Instant, parse_instant
from oncewire.wire import ebms2_names as n
from oncewire.wire.refusal import Findings
from oncewire.wire.tree import WHITESPACE, whole_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}
_ACTORS = {actor.value: actor for actor in Actor}
# Blocks with another actor are for somebody else on the way.
_OURS = frozenset({None, "", n.ACTOR_NEXT, *_ACTORS})


def text_of(element: etree._Element) -> str:
    """The element's text without the white space around it."""
    return (element.text or "").strip(WHITESPACE)


def check_version(element: etree._Element, location: str, findings: Findings) -> None:
    """Every block says the version it is written in (§2.3.8)."""
    version = element.get(n.A_VERSION)
    if version != n.VERSION and version is not None:
        findings.fault(
            Inconsistent(
                f"the version is {version[:32]!r}, not {n.VERSION!r}",
                location=f"{location}/@version",
                remedy="send ebMS 2.0",
            )
        )


def instant(element: etree._Element, location: str, findings: Findings) -> Instant | None:
    """A dateTime; one without a zone is taken as UTC and noted (WIRE.md B.11)."""
    text = element.text or ""
    if len(text) == 20 and text[7] == "-" and text[10] == "T" and text[19] == "Z":
        # The usual form, in a quarter of the time; whatever it refuses is looked at again.
        try:
            return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
        except ValueError:
            pass
    try:
        value, zoned = parse_instant(text)
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, location)
        return None
    if not zoned:
        findings.note(f"{location} has no time zone and is taken as UTC")
    return value


def _actor(element: etree._Element, location: str, findings: Findings) -> Actor | None:
    value = element.get(n.ACTOR)
    if not value:
        return Actor.TO_PARTY_MSH
    actor = _ACTORS.get(value.strip(WHITESPACE))
    if actor is None:
        findings.fault(
            Inconsistent(
                f"{value[:128]!r} is neither the toPartyMSH nor the nextMSH actor",
                location=f"{location}/@actor",
                remedy="address one of the two",
            )
        )
    return actor


def ack_requested(element: etree._Element, findings: Findings) -> AckRequested | None:
    """AckRequested (§6.3.1)."""
    location = "//Header/AckRequested"
    check_version(element, location, findings)
    actor = _actor(element, location, findings)
    signed = element.get(n.A_SIGNED)
    if signed is None:
        findings.note("AckRequested does not say whether it wants a signature")
        signed = "false"
    wanted = _BOOLEAN.get(signed.strip(WHITESPACE))
    if wanted is None:
        findings.fault(
            Inconsistent(
                f"signed={signed[:32]!r} is not a boolean",
                location=f"{location}/@signed",
                remedy="write true or false",
            )
        )
    return None if actor is None or wanted is None else AckRequested(actor, wanted)


def sync_reply(element: etree._Element, findings: Findings) -> bool:
    """SyncReply (§4.3): always to the next actor."""
    check_version(element, "//Header/SyncReply", findings)
    actor = element.get(n.ACTOR)
    if actor is None:
        findings.note("SyncReply names no actor")
    elif actor.strip(WHITESPACE) != n.ACTOR_NEXT:
        findings.fault(
            Inconsistent(
                f"{actor[:128]!r} is not the actor of SyncReply",
                location="//Header/SyncReply/@actor",
                remedy=f"address {n.ACTOR_NEXT}",
            )
        )
    return True


def message_order(element: etree._Element, findings: Findings) -> SequenceNumber | None:
    """MessageOrder (§9.1)."""
    check_version(element, "//Header/MessageOrder", findings)
    for child in element:
        if child.tag == n.SEQUENCE_NUMBER:
            return _sequence(child, child.get(n.A_STATUS), "//Header/MessageOrder", findings)
    findings.fault(
        Inconsistent(
            "MessageOrder has no SequenceNumber",
            location="//Header/MessageOrder",
            remedy="number the message",
        )
    )
    return None


def hop_sequence(element: etree._Element, findings: Findings) -> SequenceNumber | None:
    """rmx:HopSequence (WIRE.md part D)."""
    return _sequence(element, element.get("status"), "//Header/HopSequence", findings)


def _sequence(
    element: etree._Element, status: str | None, location: str, findings: Findings
) -> SequenceNumber | None:
    number = whole_number(element.text)
    if number is None:
        findings.fault(
            Inconsistent(
                f"SequenceNumber {text_of(element)[:32]!r} is not a number",
                location=location,
                remedy="send a whole number from 0",
            )
        )
        return None
    try:
        return SequenceNumber(number, SequenceStatus(status or "Continue"))
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, location)
    except ValueError:
        findings.fault(
            Inconsistent(
                f"status {str(status)[:32]!r} is neither Reset nor Continue",
                location=location,
                remedy="send Reset or Continue",
            )
        )
    return None


def routing(element: etree._Element, findings: Findings) -> tuple[RoutingHeader, ...]:
    """rmx:RoutingHeaderList, oldest hop first; what is unreadable in it is left out."""
    hops = []
    for child in element:
        if child.tag != n.ROUTING_HEADER:
            continue
        fields = {grandchild.tag: text_of(grandchild) for grandchild in child}
        stamp = fields.get(f"{{{n.RMX}}}Timestamp")
        try:
            hops.append(
                RoutingHeader(
                    sender_uri=fields.get(f"{{{n.RMX}}}SenderURI"),
                    receiver_uri=fields.get(f"{{{n.RMX}}}ReceiverURI"),
                    error_uri=fields.get(f"{{{n.RMX}}}ErrorURI"),
                    timestamp=None if stamp is None else parse_instant(stamp)[0],
                    msh_id=child.get("mshId"),
                )
            )
        except InvalidValue as problem:
            findings.note(f"a RoutingHeader was left out: {problem.problem}")
    return tuple(hops)


def acknowledgment(
    element: etree._Element, findings: Findings
) -> tuple[Acknowledgment | None, list[etree._Element]]:
    """Acknowledgment (§6.3.2) and its ds:Reference elements, whose bytes are read later."""
    location = "//Header/Acknowledgment"
    check_version(element, location, findings)
    actor = _actor(element, location, findings)
    stamp: Instant | None = None
    ref_to: str | None = None
    party: Party | None = None
    references: list[etree._Element] = []
    for child in element:
        tag = child.tag
        if tag == n.TIMESTAMP:
            stamp = instant(child, f"{location}/Timestamp", findings)
        elif tag == n.REF_TO_MESSAGE_ID:
            ref_to = text_of(child)
        elif tag == n.FROM:
            party = _acknowledging_party(child, findings)
        elif tag == n.DS_REFERENCE:
            references.append(child)
    if stamp is None:
        findings.fault(
            Inconsistent(
                "Acknowledgment has no Timestamp",
                location=f"{location}/Timestamp",
                remedy="say when the message was received",
            )
        )
    if stamp is None or actor is None:
        return None, []
    try:
        value = Acknowledgment(stamp, ref_to or "", party, actor, signed=bool(references))
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
        return None, []
    return value, references


def _acknowledging_party(element: etree._Element, findings: Findings) -> Party | None:
    ids = []
    role = None
    for child in element:
        if child.tag == n.PARTY_ID and text_of(child):
            try:
                ids.append(PartyId(text_of(child), child.get(n.A_TYPE) or None))
            except InvalidValue as problem:
                findings.invalid(Inconsistent, problem, "//Header/Acknowledgment/From/PartyId")
        elif child.tag == n.ROLE:
            role = text_of(child) or None
    try:
        return Party(tuple(ids), role) if ids else None
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, "//Header/Acknowledgment/From/Role")
        return None


def signed_digest(
    element: etree._Element, written: bytes, findings: Findings
) -> SignedDigest | None:
    """One ds:Reference of a signed acknowledgement, with its own bytes."""
    method = value = ""
    for child in element:
        if child.tag == n.DS_DIGEST_METHOD:
            method = child.get("Algorithm") or ""
        elif child.tag == n.DS_DIGEST_VALUE:
            value = "".join((child.text or "").split())
    try:
        digest = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        findings.fault(
            Inconsistent(
                "a DigestValue of the acknowledgement is not base64",
                location="//Header/Acknowledgment/Reference/DigestValue",
                remedy="copy the ds:Reference of the message acknowledged",
            )
        )
        return None
    return SignedDigest(element.get("URI") or "", method, digest, written)


def error_list(element: etree._Element, findings: Findings) -> ErrorList | None:
    """ErrorList (§4.2.3)."""
    location = "//Header/ErrorList"
    check_version(element, location, findings)
    errors = []
    for child in element:
        if child.tag == n.ERROR:
            error = _error(child, findings)
            if error is not None:
                errors.append(error)
    if not errors:
        findings.fault(
            Inconsistent(
                "ErrorList has no Error", location=f"{location}/Error", remedy="report an Error"
            )
        )
        return None
    reported = ErrorList(tuple(errors))
    highest = element.get(n.A_HIGHEST_SEVERITY)
    if highest != reported.highest_severity.value:
        findings.note(
            f"highestSeverity is {str(highest)[:16]!r}, "
            f"the errors say {reported.highest_severity.value}"
        )
    return reported


def _error(element: etree._Element, findings: Findings) -> Error | None:
    description = ""
    pause: int | None = None
    for child in element:
        if child.tag == n.DESCRIPTION:
            description = child.text or ""
        elif child.tag == n.MIN_RETRY_SECS:
            pause = whole_number(child.text)
    severity = element.get(n.A_SEVERITY) or "Error"
    try:
        return Error(
            code=(element.get(n.A_ERROR_CODE) or "").strip(WHITESPACE),
            severity=Severity(severity.strip(WHITESPACE)),
            location=element.get(n.A_LOCATION) or "",
            description=description,
            code_context=element.get(n.A_CODE_CONTEXT) or CODE_CONTEXT,
            min_retry_secs=pause,
        )
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, "//Header/ErrorList/Error")
    except ValueError:
        findings.fault(
            Inconsistent(
                f"severity {severity[:32]!r} is neither Warning nor Error",
                location="//Header/ErrorList/Error/@severity",
                remedy="send Warning or Error",
            )
        )
    return None


def manifest(
    element: etree._Element, findings: Findings
) -> tuple[list[Reference], list[list[etree._Element]]]:
    """Manifest (§3.2): its references, and the foreign elements of each."""
    location = "//Body/Manifest"
    check_version(element, location, findings)
    references: list[Reference] = []
    foreign: list[list[etree._Element]] = []
    for child in element:
        if child.tag != n.REFERENCE:
            continue
        try:
            reference, others = _reference(child)
        except InvalidValue as problem:
            findings.invalid(Inconsistent, problem, f"{location}/Reference/@href")
            continue
        references.append(reference)
        foreign.append(others)
    if not references:
        findings.fault(
            Inconsistent(
                "Manifest has no Reference",
                location=f"{location}/Reference",
                remedy="name the payloads, or leave the Manifest out",
            )
        )
    return references, foreign


def _reference(element: etree._Element) -> tuple[Reference, list[etree._Element]]:
    schemas: list[tuple[str, str | None]] = []
    descriptions: list[tuple[str, str]] = []
    compression: Compression | None = None
    foreign: list[etree._Element] = []
    for child in element:
        tag = child.tag
        if tag == n.SCHEMA:
            schemas.append((child.get(n.A_LOCATION) or "", child.get(n.A_VERSION)))
        elif tag == n.DESCRIPTION:
            descriptions.append((child.get(n.A_LANG) or "", child.text or ""))
        elif tag == n.COMPRESSION:
            compression = Compression(
                child.get("encoding") or "", whole_number(child.get("originalSize"))
            )
        else:
            foreign.append(child)
    reference = Reference(
        href=(element.get(n.A_HREF) or "").strip(WHITESPACE),
        role=element.get(n.A_ROLE),
        id=element.get(n.A_ID),
        schemas=tuple(schemas),
        descriptions=tuple(descriptions),
        compression=compression,
    )
    return reference, foreign


def _named(element: etree._Element, location: str, findings: Findings) -> str:
    check_version(element, location, findings)
    for child in element:
        if child.tag == n.REF_TO_MESSAGE_ID:
            return text_of(child)
    return ""


def status_request(element: etree._Element, findings: Findings) -> StatusRequest | None:
    """StatusRequest (§7.1.1)."""
    location = "//Body/StatusRequest"
    try:
        return StatusRequest(_named(element, location, findings))
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
        return None


def status_response(element: etree._Element, findings: Findings) -> StatusResponse | None:
    """StatusResponse (§7.1.2)."""
    location = "//Body/StatusResponse"
    named = _named(element, location, findings)
    status = element.get(n.A_MESSAGE_STATUS) or ""
    stamp = None
    for child in element:
        if child.tag == n.TIMESTAMP:
            stamp = instant(child, f"{location}/Timestamp", findings)
    try:
        return StatusResponse(named, MessageStatus(status.strip(WHITESPACE)), stamp)
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
    except ValueError:
        findings.fault(
            ValueNotRecognized(
                f"messageStatus {status[:32]!r} is not a status",
                location=f"{location}/@messageStatus",
                remedy="send one of " + ", ".join(known.value for known in MessageStatus),
            )
        )
    return None


def must_understand(block: etree._Element, findings: Findings) -> None:
    """A block we do not know: a fault if it must be understood by us, else an oddity."""
    actor = block.get(n.ACTOR)
    must = (block.get(n.MUST_UNDERSTAND) or "0").strip(WHITESPACE)
    name = etree.QName(block.tag).localname[:64]
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


def with_sequence(hop: RoutingHeader, sequence: SequenceNumber) -> RoutingHeader:
    """The hop with its number."""
    return replace(hop, sequence=sequence)


def with_foreign(reference: Reference, foreign: tuple[bytes, ...]) -> Reference:
    """The reference with its foreign children."""
    return replace(reference, foreign=foreign)


def with_digest(acknowledgment: Acknowledgment, digest: SignedDigest) -> Acknowledgment:
    """The acknowledgement with one more digest."""
    return replace(acknowledgment, references=(*acknowledgment.references, digest))
