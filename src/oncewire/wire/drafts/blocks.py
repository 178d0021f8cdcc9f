"""Reading the blocks beside the drafts' Header: routing, manifest, errors, acknowledgements."""

from __future__ import annotations

import functools
from dataclasses import replace

from oncewire.errors import Inconsistent, InvalidValue, TransientError, ValueNotRecognized
from oncewire.message import (
    Acknowledgment,
    AcknowledgmentType,
    AckRequest,
    Actor,
    Dialect,
    Error,
    ErrorList,
    Header,
    Message,
    MessageStatus,
    Party,
    PartyId,
    Reference,
    ReliableMessagingMethod,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    SignedDigest,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.fault import CODE_CONTEXT
from oncewire.wire.drafts import names as n
from oncewire.wire.drafts.element import DraftElement
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.moments import read_moment
from oncewire.wire.xml.tree import Element, whole_number


def ack_request(word: str, location: str, findings: Findings) -> AckRequest | None:
    """Signed, Unsigned or None, and nothing else (ACK-13)."""
    value = n.ACK_REQUESTS.get(word.lower())
    if value is None:
        findings.fault(
            ValueNotRecognized(
                f"{word[:32]!r} is not a kind of acknowledgement",
                location=location,
                remedy="send Signed, Unsigned or None",
            )
        )
    return value


def routing(root: DraftElement, dialect: Dialect, findings: Findings) -> tuple[RoutingHeader, ...]:
    """Every RoutingHeader, oldest first, in a list or alone."""
    hops: list[RoutingHeader] = []
    # 0.9x has a list, v0-078 a single one (C24). The last is the hop just made (HDR-5).
    listed = root.first("routingheaderlist")
    for element in [*(listed.all("routingheader") if listed else ()), *root.all("routingheader")]:
        hop = _hop(element, dialect, findings)
        if hop is not None:
            hops.append(hop)
    return tuple(hops)


def _hop(element: DraftElement, dialect: Dialect, findings: Findings) -> RoutingHeader | None:
    location = "//RoutingHeader"
    # Attribute or element, under the old name too (C12).
    word = element.value("ackrequested")
    asked = ack_request(word, f"{location}/@ackRequested", findings) if word else None
    stamp = element.value("timestamp")
    try:
        return RoutingHeader(
            sender_uri=element.value("senderuri"),
            receiver_uri=element.value("receiveruri"),
            # By URI in 0.9x, by PartyID in v0-078; both are kept where both stand (C25).
            sender_id=_party_id(element.first("senderid")),
            receiver_id=_party_id(element.first("receiverid")),
            timestamp=None if stamp is None else read_moment(stamp)[0],
            error_uri=element.value("erroruri"),
            # Absence means None (ACK-13).
            ack_requested=asked or AckRequest.NONE,
            method=_method(element.value("reliablemessagingmethod"), location, findings),
            sequence=_sequence(element.first("sequencenumber"), dialect, location, findings),
            # Which of a party's handlers it is (HDR-4).
            msh_id=element.value("messageserviceid"),
        )
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, location)
        return None


# The same few parties stand in message after message.
party_id_of = functools.lru_cache(maxsize=1024)(PartyId)


def _party_id(element: DraftElement | None) -> PartyId | None:
    if element is None:
        return None
    # SenderID is itself a PartyID, or holds one: the table of v0-078 can be read either way
    # (HDR-1).
    inner = element.first("partyid") or element
    return party_id_of(inner.text, inner.value("context") or inner.value("type") or None)


def _method(word: str | None, location: str, findings: Findings) -> ReliableMessagingMethod:
    # Absence counts as ebXML (RM-5).
    if word is None:
        return ReliableMessagingMethod.EBXML
    method = n.METHODS.get(word.lower())
    if method is not None:
        return method
    findings.fault(
        ValueNotRecognized(
            f"reliableMessagingMethod {word[:32]!r} is not known",
            location=f"{location}/@reliableMessagingMethod",
            remedy="send ebXML or Transport",
        )
    )
    return ReliableMessagingMethod.EBXML


def _sequence(
    element: DraftElement | None, dialect: Dialect, location: str, findings: Findings
) -> SequenceNumber | None:
    """SequenceNumber of the hop (HDR-3), with its Status where there is one (SEQ-13)."""
    if element is None:
        return None
    number = whole_number(element.text)
    if number is None:
        findings.fault(
            Inconsistent(
                f"SequenceNumber {element.text[:32]!r} is not a number",
                location=location,
                remedy="send a whole number",
            )
        )
        return None
    word = element.value("status")
    status: SequenceStatus | None = None
    if word is not None:
        status = n.STATUSES.get(word.lower())
        if status is None:
            findings.fault(
                ValueNotRecognized(
                    f"Status {word[:32]!r} is neither Reset nor Continue",
                    location=location,
                    remedy="send Reset or Continue",
                )
            )
    elif dialect is not Dialect.RM_078:
        # v0-078 has no Status: there the number 1 alone begins a series (C7).
        status = SequenceStatus.CONTINUE
    return SequenceNumber(number, status)


def manifest(root: DraftElement, findings: Findings) -> tuple[list[Reference], list[list[Element]]]:
    """The references, and the foreign elements of each."""
    element = root.first("manifest")
    references: list[Reference] = []
    foreign: list[list[Element]] = []
    if element is None:
        return references, foreign
    for item in element.all("reference"):
        try:
            references.append(_reference(item))
        except InvalidValue as problem:
            findings.invalid(Inconsistent, problem, "//Manifest/Reference/@href")
            continue
        foreign.append(
            [child for name, child in item.order if name not in ("schema", "description")]
            if item.children
            else []
        )
    # Neither a list of payloads nor the word that there are none.
    if not references:
        findings.fault(
            Inconsistent(
                "Manifest has no Reference",
                location="//Manifest/Reference",
                remedy="name the payloads, or leave the Manifest out",
            )
        )
    return references, foreign


def _reference(item: DraftElement) -> Reference:
    return Reference(
        # xlink:href, with or without its namespace; only attributes here, as MS 1.0 has it.
        href=(item.attribute("href") or "").strip(),
        role=item.attribute("role"),
        id=item.attribute("id"),
        schemas=tuple(
            [
                (schema.attribute("location") or "", schema.attribute("version"))
                for schema in item.all("schema")
            ]
        ),
        descriptions=tuple(
            [
                (words.attribute("lang") or "", words.element.text or "")
                for words in item.all("description")
            ]
        ),
    )


def with_foreign(
    message: Message,
    own: tuple[bytes, ...],
    references: list[tuple[bytes, ...]],
    digests: list[tuple[SignedDigest, ...]],
) -> Message:
    """The message with the exact bytes of what is foreign in it."""
    return replace(
        message,
        header=replace(message.header, foreign=own),
        manifest=tuple(
            replace(reference, foreign=foreign) if foreign else reference
            for reference, foreign in zip(message.manifest, references, strict=True)
        ),
        acknowledgments=tuple(
            replace(answer, references=given) if given else answer
            for answer, given in zip(message.acknowledgments, digests, strict=True)
        ),
    )


def error_list(root: DraftElement, findings: Findings) -> ErrorList | None:
    """ErrorList; MinRetrySecs stands beside the errors and belongs to the transient one."""
    element = root.first("errorlist")
    if element is None:
        return None
    # The picture of it is lost (gap 3), so it is read beside the errors and inside one.
    seconds = whole_number(element.value("minretrysecs"))
    errors = []
    for item in element.all("error"):
        error = _error(item, seconds, findings)
        if error is not None:
            errors.append(error)
    if not errors:
        findings.fault(
            Inconsistent(
                "ErrorList has no Error", location="//ErrorList/Error", remedy="report an Error"
            )
        )
        return None
    return ErrorList(tuple(errors))


def _error(item: DraftElement, seconds: int | None, findings: Findings) -> Error | None:
    own = whole_number(item.value("minretrysecs"))
    seconds = seconds if own is None else own
    code = item.value("errorcode") or ""
    # Unsaid it is taken as serious; a Warning would leave the message waiting.
    severity = item.value("severity") or "Error"
    try:
        return Error(
            code=code,
            severity=Severity(severity.capitalize()),
            location=item.value("location") or "",
            description=_message_words(item),
            code_context=item.value("codecontext") or CODE_CONTEXT,
            # Only a Transient Error may make a sender wait.
            min_retry_secs=seconds if code == TransientError.code else None,
        )
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, "//ErrorList/Error")
    except ValueError:
        findings.fault(
            Inconsistent(
                f"severity {severity[:32]!r} is neither Warning nor Error",
                location="//ErrorList/Error/@severity",
                remedy="send Warning or Error",
            )
        )
    return None


def _message_words(item: DraftElement) -> str:
    # An attribute in the drafts (SYNC-17), a Description in what came after.
    stated = item.value("errormessage") is not None
    said = item.first("errormessage" if stated else "description")
    words = item.attribute("errormessage")
    if words is not None:
        return words
    return (said.element.text or "") if said else ""


def acknowledgments(
    root: DraftElement, header: Header, findings: Findings
) -> tuple[list[Acknowledgment], list[list[Element]]]:
    """Each Acknowledgment (ACK-17..19) and its ds:Reference elements, if it has any.

    It acknowledges what MessageData refers to.
    """
    answers = []
    digests = []
    for element in root.all("acknowledgment"):
        stamp = element.value("timestamp")
        word = element.value("type")
        kind = n.ACK_TYPES.get(word.lower()) if word else None
        if word and kind is None:
            findings.fault(
                ValueNotRecognized(
                    f"Acknowledgment type {word[:32]!r} is not known",
                    location="//Acknowledgment/@type",
                    remedy="send DeliveryReceipt or IntermediateAck",
                )
            )
        # No type counts as DeliveryReceipt (ACK-19).
        intermediate = kind is AcknowledgmentType.INTERMEDIATE_ACK
        try:
            answers.append(
                Acknowledgment(
                    timestamp=read_moment(stamp or "")[0],
                    # The drafts name it in MessageData alone (ACK-3).
                    ref_to_message_id=element.value("reftomessageid")
                    or header.ref_to_message_id
                    or "",
                    from_party=_from(element.first("from")),
                    actor=Actor.NEXT_MSH if intermediate else Actor.TO_PARTY_MSH,
                    # What it says of itself; whether a signature is there and holds is judged by
                    # `wire/security`.
                    signed=(element.value("signed") or "false").lower() in ("true", "1"),
                    type=kind,
                )
            )
        except InvalidValue as problem:
            findings.invalid(Inconsistent, problem, "//Acknowledgment")
            continue
        digests.append(element.children.get("reference", []))
    return answers, digests


def _from(element: DraftElement | None) -> Party | None:
    """Who made the acknowledgement; Header's From where it is missing (ACK-18)."""
    if element is None:
        return None
    ids = [_party_id(child) for child in element.all("partyid")]
    return Party(tuple(party_id for party_id in ids if party_id is not None))


def status(
    root: DraftElement, findings: Findings
) -> tuple[StatusRequest | None, StatusResponse | None]:
    """StatusData: a question without messageStatus, an answer with it."""
    element = root.first("statusdata")
    if element is None:
        return None, None
    named = element.value("reftomessageid") or ""
    word = element.value("messagestatus")
    stamp = element.value("timestamp")
    try:
        # 0.9x has one element for both, told apart by its answer; 1.0 made two of it.
        if word is None:
            return StatusRequest(named), None
        moment = None if stamp is None else read_moment(stamp)[0]
        return None, StatusResponse(named, MessageStatus(word), moment)
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, "//StatusData")
    except ValueError:
        findings.fault(
            ValueNotRecognized(
                f"messageStatus {str(word)[:32]!r} is not a status",
                location="//StatusData/@messageStatus",
                remedy="send one of " + ", ".join(known.value for known in MessageStatus),
            )
        )
    return None, None
