"""Reading ebMS 2.0: a SOAP envelope to a Message, tolerant of what real partners send.

The walk visits each child once and compares whole tag names, which costs half of what
XPath does. A fault never stops it: see `ReadFault`. Single blocks, and the rules between
elements, which the writer obeys too, are in `blocks`.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncewire.errors import EbxmlError, InvalidValue, SoapFault, ValueNotRecognized
from oncewire.message.envelope import (
    CODE_CONTEXT,
    Acknowledgment,
    AckRequested,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    Severity,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, PartyId, Service, check_id, is_uri
from oncewire.message.instant import Instant
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.parcel import Findings
from oncewire.wire.xml import WHITESPACE, Element, children, exact_bytes, whole_number

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


def _sound_party(named: tuple[tuple[str, str | None], ...], role: str | None) -> Party:
    """A party without anything wrong; InvalidValue for any other."""
    # Several ids of one party are several names for it, one per type; an id without type must say
    # by itself what it means, as a URI does (§3.1.1.1).
    kinds = [kind for _, kind in named if kind is not None]
    if len(set(kinds)) != len(kinds) or not all(kind or is_uri(value) for value, kind in named):
        raise InvalidValue("a PartyId breaks a rule")
    return Party(tuple(PartyId(value, kind) for value, kind in named), role)


def _sound_service(value: str, kind: str | None) -> Service | None:
    """A service without anything wrong, or None."""
    # Without a type it is unknown whose vocabulary the name is from (§3.1.4.1).
    if kind is None and not is_uri(value):
        return None
    return Service(value, kind)


_IDS = (
    ("cpa_id", _CPA_ID),
    ("conversation_id", _CONVERSATION_ID),
    ("action", _ACTION),
    ("message_id", _MESSAGE_ID),
    ("ref_to_message_id", _REF_TO),
)


class Ebms2Reading(Findings):
    """One reading of one envelope; afterwards `message` is there, or `faults` are. A value that
    breaks its rule is a fault, not a fact."""

    dialect = Dialect.EBMS2
    timestamp: Instant | None = None
    time_to_live: Instant | None = None
    duplicate_elimination: bool = False
    split: Split | None = None
    order: SequenceNumber | None = None
    error_list: ErrorList | None = None
    hop_sequence: SequenceNumber | None = None
    routing: tuple[RoutingHeader, ...] = ()
    status_request: StatusRequest | None = None
    status_response: StatusResponse | None = None

    def __init__(self, root: Element, envelope: bytes, charset: str | None) -> None:
        super().__init__()
        self.root = root
        self.envelope = envelope
        self.charset = charset
        self.ref_to: list[str] = []
        self.descriptions: list[tuple[str, str]] = []
        # Elements whose exact bytes are wanted; found in one pass at the end.
        self.foreign: list[Element] = []
        self.ack_requested: list[AckRequested] = []
        self.acknowledgments: list[Acknowledgment] = []
        self.manifest: list[Reference] = []
        self.reference_foreign: list[list[Element]] = []
        self.digests: list[tuple[int, Element]] = []

    def read(self, payloads: tuple[Payload, ...]) -> None:
        """Read everything, faults or not."""
        header, body = self._split_envelope()
        if header is None:
            return
        n.find_repeated(header, self)
        if body is not None:
            n.find_repeated(body, self)
        message_header: Element | None = None
        unknown: list[Element] = []
        for block in children(header):
            tag = block.tag
            if tag == n.MESSAGE_HEADER:
                # Of two the first says whom an error is for; see `find_repeated`.
                if message_header is None:
                    message_header = block
                    self.read_message_header(block)
            elif not self._block(tag, block):
                unknown.append(block)
        # Without it no ErrorList can be addressed: the answer is a SOAP Fault (§4.2).
        if message_header is None:
            self._refuse("the SOAP Header holds no eb:MessageHeader", "send an ebMS 2.0 message")
            return
        # After the header: what is no ebMS message at all is refused as that.
        for block in unknown:
            n.must_understand(block, self)
        if body is not None:
            self._body(body)
        self._complete(payloads)

    def _refuse(self, problem: str, remedy: str = "") -> None:
        """What is no ebMS message is answered with a SOAP Fault (§4.2)."""
        self.fault(SoapFault("Client", problem, remedy=remedy))

    def _split_envelope(self) -> tuple[Element | None, Element | None]:
        header = body = None
        for child in children(self.root):
            tag = child.tag
            if tag == n.HEADER and header is None:
                header = child
            elif tag == n.BODY and body is None:
                body = child
            elif tag in (n.HEADER, n.BODY):
                self._refuse("the SOAP Envelope has two Headers or two Bodies", "send one of each")
        if header is None:
            self._refuse("the SOAP Envelope has no Header", "send an ebMS 2.0 message")
        elif body is None:
            # Required (SOAP 1.1 §4.3), but an acknowledgement has nothing to put there.
            self.note("the SOAP Envelope has no Body")
        return header, body

    def _block(self, tag: str, block: Element) -> bool:
        """Read a header block; False when it is not one of ours."""
        if tag == n.ACK_REQUESTED:
            request = n.ack_requested(block, self)
            if request is not None:
                self.ack_requested.append(request)
        elif tag == n.ACKNOWLEDGMENT:
            self._acknowledgment(block)
        elif tag == n.SYNC_REPLY:
            self.sync_reply = n.sync_reply(block, self)
        elif tag == n.MESSAGE_ORDER:
            self.order = n.message_order(block, self)
        elif tag == n.ERROR_LIST:
            self.error_list = error_list(block, self)
        elif tag == n.SIGNATURE:
            # Only noticed here: whether it holds needs the agreement's certificates
            # (`wire/security`).
            self.signed = True
        elif tag == n.HOP_SEQUENCE:
            self.hop_sequence = n.hop_sequence(block, self)
        elif tag == n.ROUTING_HEADER_LIST:
            self.routing = n.routing(block, self)
        else:
            return False
        return True

    def _acknowledgment(self, block: Element) -> None:
        value, references = acknowledgment(block, self)
        if value is not None:
            # Its ds:References are wanted as written: they are compared, digest by digest, with
            # what was sent (§6.3.2.5).
            number = len(self.acknowledgments)
            self.acknowledgments.append(value)
            self.digests.extend((number, reference) for reference in references)

    def _body(self, body: Element) -> None:
        for child in children(body):
            tag = child.tag
            if tag == n.MANIFEST:
                self.manifest, self.reference_foreign = n.manifest(child, self)
            elif tag == n.STATUS_REQUEST:
                self.status_request = status_request(child, self)
            elif tag == n.STATUS_RESPONSE:
                self.status_response = status_response(child, self)
            elif tag == n.FAULT:
                # A Fault answers a message and carries none (SOAP 1.1 §4.4).
                self._refuse("the Body holds a SOAP Fault beside an ebXML header")

    # MessageHeader (§3.1): parties, agreement, service, MessageData.

    def read_message_header(self, element: Element) -> None:
        """Every child once, in any order; the schema judges the order."""
        n.check_version(element, MH, self)
        if element.get(n.ACTOR) is not None:
            # The signature's transform skips what is meant for the next MSH, so a header
            # marked so could be forged beside a signed one.
            self.inconsistent(
                "the MessageHeader carries an actor",
                f"{MH}/@actor",
                "the MessageHeader is for the whole way and has no actor",
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
            self.inconsistent(
                f"{name} holds elements instead of text", location, f"send one {name} as plain text"
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
            self.invalid(problem, location)
            return
        if sound is None:
            self.inconsistent(
                f"Service {value!r} has no type and is not a URI",
                location,
                "give Service a type or a URI",
            )

    def _party(self, element: Element, location: str) -> Party | None:
        named: list[tuple[str, str | None]] = []
        role: str | None = None
        for child in children(element):
            tag = child.tag
            if tag == n.PARTY_ID:
                if len(child):
                    self.inconsistent("PartyId holds elements", f"{location}/PartyId")
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
            self.invalid(problem, f"{location}/Role")
            return Party(tuple(ids))

    def _odd_party_id(
        self, value: str, kind: str | None, location: str, ids: list[PartyId]
    ) -> None:
        try:
            party_id = PartyId(value, kind)
        except InvalidValue as problem:
            self.invalid(problem, location)
            return
        if kind is None:
            if not is_uri(value):
                self.inconsistent(
                    f"PartyId {value!r} has no type and is not a URI",
                    location,
                    "give PartyId a type or a URI",
                )
        elif any(other.type == kind for other in ids):
            self.inconsistent(
                f"two PartyIds of one party have the type {kind!r}",
                f"{location}/@type",
                "name the party once per type",
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
                self.timestamp = n.instant(child, _TIMESTAMP, self)
            elif tag == n.REF_TO_MESSAGE_ID:
                value = self._text(child, _REF_TO)
                if value:
                    # Two are kept until the acknowledgements are read: they tell which one counts.
                    self.ref_to.append(value)
            elif tag == n.TIME_TO_LIVE:
                self.time_to_live = n.instant(child, _TIME_TO_LIVE, self)

    def _split(self, element: Element) -> None:
        """rmx:Split, inside the header so that it is signed (BIG-4, BIG-5)."""
        split_id = ""
        number = total = None
        for child in children(element):
            if child.tag == n.SPLIT_ID:
                split_id = n.text_of(child)
            elif child.tag == n.SPLIT_NUMBER:
                number, total = whole_number(child.text), whole_number(child.get("Total"))
        try:
            self.split = Split(split_id, number or 0, total or 0)
        except InvalidValue as problem:
            self.invalid(problem, f"{MH}/Split")

    # Putting it together

    def _complete(self, payloads: tuple[Payload, ...]) -> None:
        # The order matters: the kind decides what may be missing, and the acknowledgements which of
        # two RefToMessageIds is meant.
        kind = self.kind = self._kind()
        self.ref_to_message_id = self._ref_to_message_id()
        if self.to_party is None and self.acknowledgments and kind is MessageKind.ACKNOWLEDGMENT:
            self.note("the acknowledgement names no To PartyId")
            self.to_party = Party((UNNAMED,))
        if self.ack_requested and kind in (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR):
            # Obeying would make two handlers acknowledge each other for ever (§6.3.1).
            self.note("AckRequested on an acknowledgement or error is ignored")
            self.ack_requested.clear()
        self.semantics = n.semantics(
            self.ack_requested, duplicate_elimination=self.duplicate_elimination
        )
        foreign = self._exact()
        header = self.header(foreign)
        if header is None:
            return
        message = Message(
            Dialect.EBMS2,
            kind,
            header,
            self._routing(),
            self.order,
            tuple(self.ack_requested),
            tuple(self.acknowledgments),
            self.error_list,
            self.status_request,
            self.status_response,
            tuple(self.manifest),
            payloads,
        )
        self.faults.extend(n.broken(message))
        self.message = message

    def _kind(self) -> MessageKind:
        """Told by Service and Action alone: an Acknowledgment or an ErrorList of warnings may
        ride on business (§5, §6.3.2)."""
        if self.service is not None and self.service.value == n.SIGNAL_SERVICE:
            kind = n.SIGNAL_ACTIONS.get(self.action or "")
            if kind is not None:
                return kind
            # Business under the handlers' own Service would never reach an application (§3.1.4).
            if self.action:
                self.inconsistent(
                    f"the signal service has no Action {self.action[:64]!r}",
                    f"{MH}/Action",
                    "use one of " + ", ".join(n.SIGNAL_ACTIONS),
                )
        return MessageKind.NORMAL

    def _ref_to_message_id(self) -> str | None:
        """The message that this one answers (§3.1.6.3)."""
        if not self.ref_to:
            return None
        if len(self.ref_to) > 1:
            # PHINMS sends two; the one that is acknowledged is the one that counts.
            self.note("MessageData has more than one RefToMessageId")
            for acknowledgment in self.acknowledgments:
                if acknowledgment.ref_to_message_id in self.ref_to:
                    return acknowledgment.ref_to_message_id
            self.twice("RefToMessageId", f"{MD}/RefToMessageId")
        return self.ref_to[0]

    def _routing(self) -> tuple[RoutingHeader, ...]:
        if self.hop_sequence is None or self.from_party is None or self.to_party is None:
            return self.routing
        if self.routing:
            # The last hop is the one just made, and its number is the only one that still means
            # something.
            last = replace(self.routing[-1], sequence=self.hop_sequence)
            return (*self.routing[:-1], last)
        # The number came without the trail: the hop runs between the parties themselves.
        return (
            RoutingHeader(
                sender_id=self.from_party.ids[0],
                receiver_id=self.to_party.ids[0],
                sequence=self.hop_sequence,
            ),
        )

    def _exact(self) -> tuple[bytes, ...]:
        """Foreign bytes of the header; those of references and digests are put in place."""
        if not (self.foreign or self.digests or any(self.reference_foreign)):
            return ()
        wanted = [
            *self.foreign,
            *(child for elements in self.reference_foreign for child in elements),
        ]
        wanted.extend(element for _, element in self.digests)
        try:
            written = iter(exact_bytes(self.envelope, self.charset, self.root, wanted))
        except EbxmlError as error:
            self.fault(error)
            return ()
        foreign = tuple(next(written) for _ in self.foreign)
        for number, others in enumerate(self.reference_foreign):
            if others:
                kept = tuple(next(written) for _ in others)
                self.manifest[number] = replace(self.manifest[number], foreign=kept)
        for number, element in self.digests:
            digest = n.signed_digest(element, next(written), self)
            if digest is not None:
                known = self.acknowledgments[number]
                digests = (*known.references, digest)
                self.acknowledgments[number] = replace(known, references=digests)
        return foreign

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
            self.inconsistent(f"{name} is missing", location, "send what the schema requires")

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
                self.invalid(problem, location)
                setattr(self, attribute, None)


# Reading what ebMS 2.0 handlers say to each other: acknowledgements, errors, status.


def acknowledgment(
    element: Element, findings: Findings
) -> tuple[Acknowledgment | None, list[Element]]:
    """Acknowledgment (§6.3.2) and its ds:Reference elements, whose bytes are read later."""
    location = "//Header/Acknowledgment"
    n.check_version(element, location, findings)
    actor = n.actor_of(element, location, findings)
    stamp: Instant | None = None
    ref_to: str | None = None
    party: Party | None = None
    references: list[Element] = []
    for child in children(element):
        tag = child.tag
        if tag == n.TIMESTAMP:
            stamp = n.instant(child, f"{location}/Timestamp", findings)
        elif tag == n.REF_TO_MESSAGE_ID:
            ref_to = n.text_of(child)
        elif tag == n.FROM:
            party = _acknowledging_party(child, findings)
        elif tag == n.DS_REFERENCE:
            references.append(child)
    # When the message was received (§6.3.2.2), which is half of what a receipt proves.
    if stamp is None:
        findings.inconsistent(
            "Acknowledgment has no Timestamp",
            f"{location}/Timestamp",
            "say when the message was received",
        )
    if stamp is None or actor is None:
        return None, []
    try:
        # Its digests are what makes it a signed one (§6.3.2.5); that the signature itself holds is
        # judged elsewhere.
        value = Acknowledgment(stamp, ref_to or "", party, actor, signed=bool(references))
    except InvalidValue as problem:
        findings.invalid(problem, f"{location}/RefToMessageId")
        return None, []
    return value, references


def _acknowledging_party(element: Element, findings: Findings) -> Party | None:
    """Who acknowledges, which on several hops is not the To Party (§6.3.2.4)."""
    ids = []
    role = None
    for child in children(element):
        tag = child.tag
        # Not held to the rule of types: nothing is sent to this name, it is shown and compared.
        if tag == n.PARTY_ID and (value := n.text_of(child)):
            try:
                ids.append(PartyId(value, child.get(n.A_TYPE) or None))
            except InvalidValue as problem:
                findings.invalid(problem, "//Header/Acknowledgment/From/PartyId")
        elif tag == n.ROLE:
            role = n.text_of(child) or None
    try:
        return Party(tuple(ids), role) if ids else None
    except InvalidValue as problem:
        findings.invalid(problem, "//Header/Acknowledgment/From/Role")
        return None


def error_list(element: Element, findings: Findings) -> ErrorList | None:
    """ErrorList (§4.2.3)."""
    location = "//Header/ErrorList"
    n.check_version(element, location, findings)
    errors = []
    for child in children(element):
        if child.tag == n.ERROR:
            error = _error(child, findings)
            if error is not None:
                errors.append(error)
    # An empty list would be an answer that says neither yes nor no (§4.2.3).
    if not errors:
        findings.inconsistent("ErrorList has no Error", f"{location}/Error", "report an Error")
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
        findings.invalid(problem, "//Header/ErrorList/Error")
    except ValueError:
        findings.inconsistent(
            f"severity {severity[:32]!r} is neither Warning nor Error",
            "//Header/ErrorList/Error/@severity",
            "send Warning or Error",
        )
    return None


def _named(element: Element, location: str, findings: Findings) -> tuple[str, Instant | None]:
    """The message that is asked about, and when it came if that is said."""
    n.check_version(element, location, findings)
    named, stamp = "", None
    for child in children(element):
        if child.tag == n.REF_TO_MESSAGE_ID:
            named = n.text_of(child)
        elif child.tag == n.TIMESTAMP:
            stamp = n.instant(child, f"{location}/Timestamp", findings)
    return named, stamp


def status_request(element: Element, findings: Findings) -> StatusRequest | None:
    """StatusRequest (§7.2): the message asked about stands in it, not in MessageData."""
    location = "//Body/StatusRequest"
    try:
        return StatusRequest(_named(element, location, findings)[0])
    except InvalidValue as problem:
        findings.invalid(problem, f"{location}/RefToMessageId")
        return None


def status_response(element: Element, findings: Findings) -> StatusResponse | None:
    """StatusResponse (§7.3): what became of the message, and when it came if it did."""
    location = "//Body/StatusResponse"
    named, stamp = _named(element, location, findings)
    status = element.get(n.A_MESSAGE_STATUS) or ""
    try:
        return StatusResponse(named, MessageStatus(status.strip(WHITESPACE)), stamp)
    except InvalidValue as problem:
        findings.invalid(problem, f"{location}/RefToMessageId")
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


def read(
    root: Element, envelope: bytes, charset: str | None, payloads: tuple[Payload, ...] = ()
) -> Findings:
    """The reading of one envelope: its message, or its faults and facts."""
    reading = Ebms2Reading(root, envelope, charset)
    reading.read(payloads)
    return reading
