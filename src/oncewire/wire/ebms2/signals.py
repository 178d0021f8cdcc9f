"""Reading what ebMS 2.0 handlers say to each other: acknowledgements, errors, status."""

from __future__ import annotations

import base64
import binascii
import functools
from dataclasses import replace

from oncewire.errors import Inconsistent, InvalidValue, ValueNotRecognized
from oncewire.message import (
    Acknowledgment,
    Error,
    ErrorList,
    MessageStatus,
    Party,
    PartyId,
    Severity,
    SignedDigest,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.fault import CODE_CONTEXT
from oncewire.message.instant import Instant
from oncewire.wire.ebms2 import blocks
from oncewire.wire.ebms2 import names as n
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.tree import WHITESPACE, Element, children, whole_number


def acknowledgment(
    element: Element, findings: Findings
) -> tuple[Acknowledgment | None, list[Element]]:
    """Acknowledgment (§6.3.2) and its ds:Reference elements, whose bytes are read later."""
    location = "//Header/Acknowledgment"
    blocks.check_version(element, location, findings)
    actor = blocks.actor_of(element, location, findings)
    stamp: Instant | None = None
    ref_to: str | None = None
    party: Party | None = None
    references: list[Element] = []
    for child in children(element):
        tag = child.tag
        if tag == n.TIMESTAMP:
            stamp = blocks.instant(child, f"{location}/Timestamp", findings)
        elif tag == n.REF_TO_MESSAGE_ID:
            ref_to = blocks.text_of(child)
        elif tag == n.FROM:
            party = _acknowledging_party(child, findings)
        elif tag == n.DS_REFERENCE:
            references.append(child)
    # When the message was received (§6.3.2.2), which is half of what a receipt proves.
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
        # Its digests are what makes it a signed one (§6.3.2.5); that the signature itself holds is
        # judged elsewhere.
        value = Acknowledgment(stamp, ref_to or "", party, actor, signed=bool(references))
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
        return None, []
    return value, references


# The same partner stands in acknowledgement after acknowledgement.
_party_id = functools.lru_cache(maxsize=1024)(PartyId)


def _acknowledging_party(element: Element, findings: Findings) -> Party | None:
    """Who acknowledges, which on several hops is not the To Party (§6.3.2.4)."""
    ids = []
    role = None
    for child in children(element):
        tag = child.tag
        # Not held to the rule of types: nothing is sent to this name, it is shown and compared.
        if tag == n.PARTY_ID and (value := blocks.text_of(child)):
            try:
                ids.append(_party_id(value, child.get(n.A_TYPE) or None))
            except InvalidValue as problem:
                findings.invalid(Inconsistent, problem, "//Header/Acknowledgment/From/PartyId")
        elif tag == n.ROLE:
            role = blocks.text_of(child) or None
    try:
        return Party(tuple(ids), role) if ids else None
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, "//Header/Acknowledgment/From/Role")
        return None


def signed_digest(element: Element, written: bytes, findings: Findings) -> SignedDigest | None:
    """One ds:Reference of a signed acknowledgement, with its own bytes."""
    method = value = ""
    for child in children(element):
        if child.tag == n.DS_DIGEST_METHOD:
            method = child.get("Algorithm") or ""
        elif child.tag == n.DS_DIGEST_VALUE:
            # Line ends are part of how base64 is written, not of the value.
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
    # The bytes go along, transforms included: the digest is of octets that only they describe.
    return SignedDigest(element.get("URI") or "", method, digest, written)


def error_list(element: Element, findings: Findings) -> ErrorList | None:
    """ErrorList (§4.2.3)."""
    location = "//Header/ErrorList"
    blocks.check_version(element, location, findings)
    errors = []
    for child in children(element):
        if child.tag == n.ERROR:
            error = _error(child, findings)
            if error is not None:
                errors.append(error)
    # An empty list would be an answer that says neither yes nor no (§4.2.3).
    if not errors:
        findings.fault(
            Inconsistent(
                "ErrorList has no Error", location=f"{location}/Error", remedy="report an Error"
            )
        )
        return None
    reported = ErrorList(tuple(errors))
    highest = element.get(n.A_HIGHEST_SEVERITY)
    # The errors themselves decide: whoever sums them up wrongly must not turn a failure into a
    # warning (§4.2.3.1).
    if highest != reported.highest_severity.value:
        findings.note(
            f"highestSeverity is {str(highest)[:16]!r}, "
            f"the errors say {reported.highest_severity.value}"
        )
    return reported


def _error(element: Element, findings: Findings) -> Error | None:
    description = ""
    pause: int | None = None
    for child in children(element):
        if child.tag == n.DESCRIPTION:
            description = child.text or ""
        elif child.tag == n.MIN_RETRY_SECS:
            pause = whole_number(child.text)
    # Unsaid, it is taken as serious: a message taken for dead is shown to somebody, one taken for
    # well is not.
    severity = element.get(n.A_SEVERITY) or "Error"
    try:
        return Error(
            code=(element.get(n.A_ERROR_CODE) or "").strip(WHITESPACE),
            severity=Severity(severity.strip(WHITESPACE)),
            location=element.get(n.A_LOCATION) or "",
            description=description,
            # The default of §4.2.3.2.2. Codes of another context are kept, for people to read.
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


def _named(element: Element, location: str, findings: Findings) -> tuple[str, Instant | None]:
    """The message that is asked about, and when it came if that is said."""
    blocks.check_version(element, location, findings)
    named, stamp = "", None
    for child in children(element):
        if child.tag == n.REF_TO_MESSAGE_ID:
            named = blocks.text_of(child)
        elif child.tag == n.TIMESTAMP:
            stamp = blocks.instant(child, f"{location}/Timestamp", findings)
    return named, stamp


def status_request(element: Element, findings: Findings) -> StatusRequest | None:
    """StatusRequest (§7.2): the message asked about stands in it, not in MessageData."""
    location = "//Body/StatusRequest"
    try:
        return StatusRequest(_named(element, location, findings)[0])
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
        return None


def status_response(element: Element, findings: Findings) -> StatusResponse | None:
    """StatusResponse (§7.3): what became of the message, and when it came if it did."""
    location = "//Body/StatusResponse"
    named, stamp = _named(element, location, findings)
    status = element.get(n.A_MESSAGE_STATUS) or ""
    try:
        return StatusResponse(named, MessageStatus(status.strip(WHITESPACE)), stamp)
    except InvalidValue as problem:
        findings.invalid(Inconsistent, problem, f"{location}/RefToMessageId")
    except ValueError:
        findings.fault(
            # An unknown word is no news of the message; NotRecognized would be.
            ValueNotRecognized(
                f"messageStatus {status[:32]!r} is not a status",
                location=f"{location}/@messageStatus",
                remedy="send one of " + ", ".join(known.value for known in MessageStatus),
            )
        )
    return None


def with_digest(acknowledgment: Acknowledgment, digest: SignedDigest) -> Acknowledgment:
    """The acknowledgement with one more digest."""
    return replace(acknowledgment, references=(*acknowledgment.references, digest))
