"""Reading the single blocks of ebMS 2.0: each element to its value, faults to `findings`."""

from __future__ import annotations

from dataclasses import replace

from lxml import etree

from oncewire.errors import Inconsistent, InvalidValue, SoapFault
from oncewire.message import (
    AckRequested,
    Actor,
    Compression,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
)
from oncewire.message.instant import Instant
from oncewire.message.payload import Stretch
from oncewire.wire.ebms2 import names as n
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.moments import read_moment
from oncewire.wire.xml.tree import WHITESPACE, Element, children, whole_number

# SOAP 1.1 §4.2.3 has 0 and 1 alone, but `true` is what real partners send
# (docs/decisions.md#real-partners).
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}
_ACTORS = {actor.value: actor for actor in Actor}
_STATUSES = {status.value: status for status in SequenceStatus}
# Blocks with another actor are for somebody else on the way.
_OURS = frozenset({None, "", n.ACTOR_NEXT, *_ACTORS})


def text_of(element: Element) -> str:
    """The element's text without the white space around it."""
    return (element.text or "").strip(WHITESPACE)


def check_version(element: Element, location: str, findings: Findings) -> None:
    """Every block says the version it is written in (§2.3.8)."""
    version = element.get(n.A_VERSION)
    # A missing one is the schema's matter: under this namespace it can be no other.
    if version != n.VERSION and version is not None:
        findings.fault(
            Inconsistent(
                f"the version is {version[:32]!r}, not {n.VERSION!r}",
                location=f"{location}/@version",
                remedy="send ebMS 2.0",
            )
        )


def instant(element: Element, location: str, findings: Findings) -> Instant | None:
    """A dateTime; one without a zone is taken as UTC and noted
    (docs/decisions.md#real-partners)."""
    try:
        value, zoned = read_moment(element.text or "")
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, location)
        return None
    if not zoned:
        findings.note(f"{location} has no time zone and is taken as UTC")
    return value


def actor_of(element: Element, location: str, findings: Findings) -> Actor | None:
    """Whom a block addresses; without an actor, the To Party's handler (§2.3.11)."""
    value = element.get(n.ACTOR)
    if not value:
        return Actor.TO_PARTY_MSH
    # An unknown one is refused: the block is either for a hop, which may take it away, or for the
    # end, which is signed, and to guess wrong breaks one of the two.
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


def ack_requested(element: Element, findings: Findings) -> AckRequested | None:
    """AckRequested (§6.3.1)."""
    location = "//Header/AckRequested"
    check_version(element, location, findings)
    actor = actor_of(element, location, findings)
    signed = element.get(n.A_SIGNED)
    # Required by §6.3.1.2; whoever forgets it has no use for a signed answer.
    if signed is None:
        findings.note("AckRequested does not say whether it wants a signature")
        signed = "false"
    # What kind of proof is wanted must not be guessed.
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


def sync_reply(element: Element, findings: Findings) -> bool:
    """SyncReply (§4.3): always to the next actor."""
    check_version(element, "//Header/SyncReply", findings)
    actor = element.get(n.ACTOR)
    # With any other actor a hop would not know that it has to keep its connection open (§4.3.1).
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


def message_order(element: Element, findings: Findings) -> SequenceNumber | None:
    """MessageOrder (§9.1)."""
    check_version(element, "//Header/MessageOrder", findings)
    # The number is the block's whole content (§9.1.1); what others add beside it is theirs.
    location = "//Header/MessageOrder"
    numbers = [child for child in element if child.tag == n.SEQUENCE_NUMBER]
    if numbers:
        return _sequence(numbers[0], numbers[0].get(n.A_STATUS), location, findings)
    findings.fault(
        Inconsistent(
            "MessageOrder has no SequenceNumber", location=location, remedy="number the message"
        )
    )
    return None


def hop_sequence(element: Element, findings: Findings) -> SequenceNumber | None:
    """rmx:HopSequence (docs/decisions.md#extensions)."""
    return _sequence(element, element.get("status"), "//Header/HopSequence", findings)


def _sequence(
    element: Element, status: str | None, location: str, findings: Findings
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
    # Continue is the schema's default (§9.1.1).
    known = _STATUSES.get(status or "Continue")
    if known is None:
        findings.fault(
            Inconsistent(
                f"status {str(status)[:32]!r} is neither Reset nor Continue",
                location=location,
                remedy="send Reset or Continue",
            )
        )
        return None
    try:
        return SequenceNumber(number, known)
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, location)
        return None


def routing(element: Element, findings: Findings) -> tuple[RoutingHeader, ...]:
    """rmx:RoutingHeaderList, oldest hop first; what is unreadable in it is left out."""
    hops = []
    # The trail is for audit (HOP-3), so a bad entry costs itself and not the message.
    for child in children(element):
        if child.tag != n.ROUTING_HEADER:
            continue
        fields = {field.tag: text_of(field) for field in child}
        stamp = fields.get(f"{{{n.RMX}}}Timestamp")
        try:
            hops.append(
                RoutingHeader(
                    sender_uri=fields.get(f"{{{n.RMX}}}SenderURI"),
                    receiver_uri=fields.get(f"{{{n.RMX}}}ReceiverURI"),
                    error_uri=fields.get(f"{{{n.RMX}}}ErrorURI"),
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
        if child.tag != n.REFERENCE:
            continue
        try:
            reference, others = _reference(child)
        except InvalidValue as problem:
            findings.invalid(Inconsistent, problem, f"{location}/Reference/@href")
            continue
        references.append(reference)
        foreign.append(others)
    # A Manifest without a reference says neither that there are payloads nor that there are none
    # (§3.2).
    if not references:
        findings.fault(
            Inconsistent(
                "Manifest has no Reference",
                location=f"{location}/Reference",
                remedy="name the payloads, or leave the Manifest out",
            )
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
        if tag == n.SCHEMA:
            schemas.append((child.get(n.A_LOCATION) or "", child.get(n.A_VERSION)))
        elif tag == n.DESCRIPTION:
            descriptions.append((child.get(n.A_LANG) or "", child.text or ""))
        elif tag == n.COMPRESSION:
            compression = Compression(
                child.get("encoding") or "", whole_number(child.get("originalSize"))
            )
        elif tag == n.STRETCH:
            stretch = Stretch(
                whole_number(child.get("offset")) or 0,
                whole_number(child.get("size")) or 0,
                (child.get("digest") or "")[:64],
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
        stretch=stretch,
    )
    return reference, foreign


def must_understand(block: Element, findings: Findings) -> None:
    """A block we do not know: a fault if it must be understood by us, else an oddity (§2.3.9)."""
    actor = block.get(n.ACTOR)
    must = (block.get(n.MUST_UNDERSTAND) or "0").strip(WHITESPACE)
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


def with_sequence(hop: RoutingHeader, sequence: SequenceNumber) -> RoutingHeader:
    """The hop with its number."""
    return replace(hop, sequence=sequence)


def with_foreign(reference: Reference, foreign: tuple[bytes, ...]) -> Reference:
    """The reference with its foreign children."""
    return replace(reference, foreign=foreign)
