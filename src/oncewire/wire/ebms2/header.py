"""Reading MessageHeader of ebMS 2.0 (§3.1): parties, agreement, service, MessageData."""

from __future__ import annotations

import functools

from msgspec.structs import replace

from oncewire.errors import Inconsistent, InvalidValue, ValueNotRecognized
from oncewire.message.envelope import (
    CODE_CONTEXT,
    Acknowledgment,
    Error,
    ErrorList,
    Header,
    MessageStatus,
    Severity,
    SignedDigest,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.ids import Party, PartyId, Service, check_id, is_uri
from oncewire.message.instant import Instant
from oncewire.wire.ebms2 import blocks
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.source import WHITESPACE, Element, children, whole_number

MH = "//Header/MessageHeader"
MD = "//Header/MessageHeader/MessageData"
# Where faults are; put together once, for most messages have none.
_CPA_ID = f"{MH}/CPAId"
_CONVERSATION_ID = f"{MH}/ConversationId"
_ACTION = f"{MH}/Action"
_SERVICE = f"{MH}/Service"
_FROM = f"{MH}/From"
_TO = f"{MH}/To"
_MESSAGE_ID = f"{MD}/MessageId"
_TIMESTAMP = f"{MD}/Timestamp"
_REF_TO = f"{MD}/RefToMessageId"
_TIME_TO_LIVE = f"{MD}/TimeToLive"
UNNAMED = PartyId("urn:oncewire:unnamed")
"""Stands for the empty To of PHINMS answers, which are acknowledgements all the same."""
# Children of the standard's own namespace that we do not know are no extension (§2.3.6), so they
# are not kept.
_EB_PREFIX = f"{{{n.EB}}}"


# The same few parties and services stand in message after message.
@functools.lru_cache(maxsize=1024)
def _sound_party(named: tuple[tuple[str, str | None], ...], role: str | None) -> Party:
    """A party without anything wrong; InvalidValue for any other."""
    # Several ids of one party are several names for it, one per type; an id without type must say
    # by itself what it means, as a URI does (§3.1.1.1).
    kinds = [kind for _, kind in named if kind is not None]
    if len(set(kinds)) != len(kinds) or not all(kind or is_uri(value) for value, kind in named):
        raise InvalidValue("a PartyId breaks a rule")
    return Party(tuple(PartyId(value, kind) for value, kind in named), role)


@functools.lru_cache(maxsize=1024)
def _sound_service(value: str, kind: str | None) -> Service | None:
    """A service without anything wrong, or None."""
    # Without a type it is unknown whose vocabulary the name is from (§3.1.4.1).
    if kind is None and not is_uri(value):
        return None
    return Service(value, kind)


class MessageHeaderReading(Findings):
    """The fields of one MessageHeader; a value that breaks its rule is a fault, not a fact."""

    timestamp: Instant | None = None
    time_to_live: Instant | None = None
    duplicate_elimination: bool = False
    split: Split | None = None

    def __init__(self) -> None:
        super().__init__()
        self.ref_to: list[str] = []
        self.descriptions: list[tuple[str, str]] = []
        # Elements whose exact bytes are wanted; found in one pass at the end.
        self.foreign: list[Element] = []

    def read_message_header(self, element: Element) -> None:
        """Every child once, in any order; the schema judges the order."""
        blocks.check_version(element, MH, self)
        if element.get(n.ACTOR) is not None:
            # The signature's transform skips what is meant for the next MSH, so a header
            # marked so could be forged beside a signed one.
            self.fault(
                Inconsistent(
                    "the MessageHeader carries an actor",
                    location=f"{MH}/@actor",
                    remedy="the MessageHeader is for the whole way and has no actor",
                )
            )
        for child in children(element):
            tag = child.tag
            if tag == n.CPA_ID:
                self.cpa_id = self._text(child, _CPA_ID)
            elif tag == n.CONVERSATION_ID:
                self.conversation_id = self._text(child, _CONVERSATION_ID)
            elif tag == n.ACTION:
                self.action = self._text(child, _ACTION)
            elif tag == n.SERVICE:
                self._service(child)
            elif tag == n.FROM:
                self.from_party = self._party(child, _FROM)
            elif tag == n.TO:
                self.to_party = self._party(child, _TO)
            elif tag == n.MESSAGE_DATA:
                self._message_data(child)
            elif tag == n.DUPLICATE_ELIMINATION:
                # Its presence is the request (§3.1.7); it has no value.
                self.duplicate_elimination = True
            elif tag == n.DESCRIPTION:
                self.descriptions.append((child.get(n.A_LANG) or "", child.text or ""))
            elif tag == n.SPLIT:
                self._split(child)
            elif not tag.startswith(_EB_PREFIX):
                # Extensions of others are carried on as they are (§2.3.6).
                self.foreign.append(child)

    def _text(self, element: Element, location: str) -> str | None:
        """The text of an element that holds nothing else."""
        # Of a text with markup in it another reader may take only the beginning: two handlers
        # would speak of different messages.
        if len(element):
            name = location[location.rfind("/") + 1 :]
            self.fault(
                Inconsistent(
                    f"{name} holds elements instead of text",
                    location=location,
                    remedy=f"send one {name} as plain text",
                )
            )
            return None
        return (element.text or "").strip(WHITESPACE)

    def _service(self, element: Element) -> None:
        location = _SERVICE
        value = self._text(element, location)
        if not value:
            return
        # An empty type says as little as none.
        kind = element.get(n.A_TYPE) or None
        try:
            sound = _sound_service(value, kind)
            self.service = sound or Service(value, kind)
        except InvalidValue as problem:
            self.invalid(Inconsistent, problem, location)
            return
        if sound is None:
            self.fault(
                Inconsistent(
                    f"Service {value!r} has no type and is not a URI",
                    location=location,
                    remedy="give Service a type or a URI",
                )
            )

    def _party(self, element: Element, location: str) -> Party | None:
        named: list[tuple[str, str | None]] = []
        role: str | None = None
        for child in children(element):
            tag = child.tag
            if tag == n.PARTY_ID:
                if len(child):
                    self.fault(
                        Inconsistent("PartyId holds elements", location=f"{location}/PartyId")
                    )
                    continue
                value = (child.text or "").strip(WHITESPACE)
                if value:
                    named.append((value, child.get(n.A_TYPE) or None))
            elif tag == n.ROLE:
                # Recommended and no more (§3.1.1.2); an empty one says nothing.
                role = (child.text or "").strip(WHITESPACE) or None
        if not named:
            # Judged with the whole message: an acknowledgement may lack its To.
            return None
        try:
            return _sound_party(tuple(named), role)
        except InvalidValue:
            return self._odd_party(named, role, location)

    def _odd_party(
        self, named: list[tuple[str, str | None]], role: str | None, location: str
    ) -> Party | None:
        """What is wrong with a party, and what of it can still be used."""
        ids: list[PartyId] = []
        for value, kind in named:
            self._odd_party_id(value, kind, f"{location}/PartyId", ids)
        if not ids:
            return None
        try:
            return Party(tuple(ids), role)
        except InvalidValue as problem:
            self.invalid(Inconsistent, problem, f"{location}/Role")
            return Party(tuple(ids))

    def _odd_party_id(
        self, value: str, kind: str | None, location: str, ids: list[PartyId]
    ) -> None:
        try:
            party_id = PartyId(value, kind)
        except InvalidValue as problem:
            self.invalid(Inconsistent, problem, location)
            return
        if kind is None:
            if not is_uri(value):
                self.fault(
                    Inconsistent(
                        f"PartyId {value!r} has no type and is not a URI",
                        location=location,
                        remedy="give PartyId a type or a URI",
                    )
                )
        elif any(other.type == kind for other in ids):
            self.fault(
                Inconsistent(
                    f"two PartyIds of one party have the type {kind!r}",
                    location=f"{location}/@type",
                    remedy="name the party once per type",
                )
            )
        # It stays, faulty or not: an error message is addressed to it.
        ids.append(party_id)

    def _message_data(self, element: Element) -> None:
        for child in children(element):
            tag = child.tag
            if tag == n.MESSAGE_ID:
                self.message_id = self._text(child, _MESSAGE_ID)
            elif tag == n.TIMESTAMP:
                # UTC by §3.1.6.2; another zone is converted.
                self.timestamp = blocks.instant(child, _TIMESTAMP, self)
            elif tag == n.REF_TO_MESSAGE_ID:
                value = self._text(child, _REF_TO)
                if value:
                    # Two are kept until the acknowledgements are read: they tell which one counts.
                    self.ref_to.append(value)
            elif tag == n.TIME_TO_LIVE:
                self.time_to_live = blocks.instant(child, _TIME_TO_LIVE, self)

    def _split(self, element: Element) -> None:
        """rmx:Split, inside the header so that it is signed (BIG-4, BIG-5)."""
        split_id = ""
        number = total = None
        for child in children(element):
            if child.tag == n.SPLIT_ID:
                split_id = blocks.text_of(child)
            elif child.tag == n.SPLIT_NUMBER:
                number, total = whole_number(child.text), whole_number(child.get("Total"))
        try:
            self.split = Split(split_id, number or 0, total or 0)
        except InvalidValue as problem:
            self.invalid(Inconsistent, problem, f"{MH}/Split")

    # Putting it together

    def header(self, foreign: tuple[bytes, ...]) -> Header | None:
        """The Header, or None and the faults that say what is missing or wrong in it."""
        # All of these are required (§3.1), however short the message: an acknowledgement has them
        # too.
        if (
            self.from_party is None
            or self.to_party is None
            or not self.cpa_id
            or not self.conversation_id
            or self.service is None
            or not self.action
            or not self.message_id
            or self.timestamp is None
        ):
            self._find_missing()
            self._find_invalid()
            return None
        try:
            return Header(
                self.from_party,
                self.to_party,
                self.cpa_id,
                self.conversation_id,
                self.service,
                self.action,
                self.message_id,
                self.timestamp,
                self.ref_to_message_id,
                self.time_to_live,
                self.semantics,
                self.duplicate_elimination,
                sync_reply_as_agreed=self.sync_reply,
                split=self.split,
                descriptions=tuple(self.descriptions),
                foreign=foreign,
            )
        except InvalidValue:
            self._find_invalid()
            return None

    def _find_missing(self) -> None:
        for value, location in (
            (self.from_party, f"{MH}/From/PartyId"),
            (self.to_party, f"{MH}/To/PartyId"),
            (self.cpa_id, _CPA_ID),
            (self.conversation_id, _CONVERSATION_ID),
            (self.service, _SERVICE),
            (self.action, _ACTION),
            (self.message_id, _MESSAGE_ID),
            (self.timestamp, _TIMESTAMP),
        ):
            # An instant of zero is a value.
            if value or value == 0:
                continue
            # What is wrong was said already; that it is also missing would mislead.
            if any(getattr(fault, "location", "") == location for fault in self.faults):
                continue
            name = location.removeprefix(f"{MD}/").removeprefix(f"{MH}/")
            self.fault(
                Inconsistent(
                    f"{name} is missing", location=location, remedy="send what the schema requires"
                )
            )

    def _find_invalid(self) -> None:
        """Which id breaks the rule of all ids; it is no fact an answer may repeat."""
        for attribute, location in _IDS:
            value = getattr(self, attribute)
            if not value:
                setattr(self, attribute, None)
                continue
            try:
                check_id(value, location[location.rfind("/") + 1 :])
            except InvalidValue as problem:
                self.invalid(Inconsistent, problem, location)
                setattr(self, attribute, None)


_IDS = (
    ("cpa_id", _CPA_ID),
    ("conversation_id", _CONVERSATION_ID),
    ("action", _ACTION),
    ("message_id", _MESSAGE_ID),
    ("ref_to_message_id", _REF_TO),
)


# Reading what ebMS 2.0 handlers say to each other: acknowledgements, errors, status.


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
    # The errors themselves decide: a wrong highestSeverity must not turn a failure into a
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
    # An error without a severity is taken as serious: the operator is told of a message that
    # failed, and not of one that only has a warning.
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
