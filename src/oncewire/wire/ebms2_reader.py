"""Reading ebMS 2.0: a SOAP envelope to a Message, tolerant of what real partners send.

The walk visits each child once and compares whole tag names, which costs half of what
XPath does. A fault never stops it: see `refusal`. Rules between elements are in
`ebms2_rules`, which the writer obeys too.
"""

from __future__ import annotations

from lxml import etree

from oncewire.errors import EbxmlError, Inconsistent, InvalidValue, SoapFault
from oncewire.message import (
    Acknowledgment,
    AckRequested,
    Actor,
    DeliverySemantics,
    Dialect,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Party,
    PartyId,
    Reference,
    RoutingHeader,
    SequenceNumber,
    Service,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.ids import check_id, is_uri
from oncewire.message.instant import Instant
from oncewire.wire import ebms2_blocks as blocks
from oncewire.wire import ebms2_names as n
from oncewire.wire import ebms2_rules
from oncewire.wire.refusal import Findings
from oncewire.wire.source import exact_bytes
from oncewire.wire.tree import WHITESPACE, whole_number

_MH = "//Header/MessageHeader"
_MD = "//Header/MessageHeader/MessageData"
UNNAMED = PartyId("urn:oncewire:unnamed")
"""Stands for the empty To of PHINMS answers, which are acknowledgements all the same."""


class Ebms2Reader:
    """One reading of one envelope; `read` gives the message or leaves faults in `findings`."""

    def __init__(
        self, root: etree._Element, envelope: bytes, charset: str | None, findings: Findings
    ) -> None:
        self.root = root
        self.envelope = envelope
        self.charset = charset
        self.findings = findings
        findings.dialect = Dialect.EBMS2
        self.signed = False
        # Elements whose exact bytes are wanted; found in one pass at the end.
        self.foreign: list[etree._Element] = []
        self.reference_foreign: list[list[etree._Element]] = []
        self.digests: list[tuple[int, etree._Element]] = []
        self.from_party: Party | None = None
        self.to_party: Party | None = None
        self.cpa_id: str | None = None
        self.conversation_id: str | None = None
        self.service: Service | None = None
        self.action: str | None = None
        self.message_id: str | None = None
        self.timestamp: Instant | None = None
        self.ref_to: list[str] = []
        self.time_to_live: Instant | None = None
        self.duplicate_elimination = False
        self.descriptions: list[tuple[str, str]] = []
        self.split: Split | None = None
        self.sync_reply = False
        self.order: SequenceNumber | None = None
        self.ack_requested: list[AckRequested] = []
        self.acknowledgments: list[Acknowledgment] = []
        self.error_list: ErrorList | None = None
        self.hop_sequence: SequenceNumber | None = None
        self.routing: tuple[RoutingHeader, ...] = ()
        self.manifest: list[Reference] = []
        self.status_request: StatusRequest | None = None
        self.status_response: StatusResponse | None = None

    def read(self) -> Message | None:
        """The message without its payloads, or None when a fault prevents one."""
        header, body = self._split_envelope()
        if header is None:
            return None
        seen: set[str] = set()
        message_header: etree._Element | None = None
        unknown: list[etree._Element] = []
        for block in header:
            tag = block.tag
            if tag in _ONCE:
                if tag in seen:
                    self._twice(tag)
                    continue
                seen.add(tag)
            if tag == n.MESSAGE_HEADER:
                message_header = block
                self._message_header(block)
            elif tag == n.ACK_REQUESTED:
                self._keep(self.ack_requested, blocks.ack_requested(block, self.findings))
            elif tag == n.ACKNOWLEDGMENT:
                self._acknowledgment(block)
            elif tag == n.SYNC_REPLY:
                self.sync_reply = blocks.sync_reply(block, self.findings)
            elif tag == n.MESSAGE_ORDER:
                self.order = blocks.message_order(block, self.findings)
            elif tag == n.ERROR_LIST:
                self.error_list = blocks.error_list(block, self.findings)
            elif tag == n.SIGNATURE:
                self.signed = True
            elif tag == n.HOP_SEQUENCE:
                self.hop_sequence = blocks.hop_sequence(block, self.findings)
            elif tag == n.ROUTING_HEADER_LIST:
                self.routing = blocks.routing(block, self.findings)
            else:
                unknown.append(block)
        if message_header is None:
            self.findings.fault(
                SoapFault(
                    "Client",
                    "the SOAP Header holds no eb:MessageHeader",
                    remedy="send an ebMS 2.0 message",
                )
            )
            return None
        for block in unknown:
            blocks.must_understand(block, self.findings)
        if body is not None:
            self._body(body)
        return self._message()

    def _split_envelope(self) -> tuple[etree._Element | None, etree._Element | None]:
        header = body = None
        for child in self.root:
            if child.tag == n.HEADER and header is None:
                header = child
            elif child.tag == n.BODY and body is None:
                body = child
            elif child.tag in (n.HEADER, n.BODY):
                self.findings.fault(
                    SoapFault(
                        "Client",
                        "the SOAP Envelope has two Headers or two Bodies",
                        remedy="send one of each",
                    )
                )
        if header is None:
            self.findings.fault(
                SoapFault(
                    "Client", "the SOAP Envelope has no Header", remedy="send an ebMS 2.0 message"
                )
            )
        elif body is None:
            self.findings.note("the SOAP Envelope has no Body")
        return header, body

    @staticmethod
    def _keep(into: list[AckRequested], value: AckRequested | None) -> None:
        if value is not None:
            into.append(value)

    def _twice(self, tag: str) -> None:
        name = tag[tag.rfind("}") + 1 :]
        where = "Body" if tag in _BODY else "Header"
        self.findings.fault(
            Inconsistent(
                f"the message has more than one {name}",
                location=f"//{where}/{name}",
                remedy=f"send one {name}",
            )
        )

    def _acknowledgment(self, block: etree._Element) -> None:
        value, references = blocks.acknowledgment(block, self.findings)
        if value is not None:
            self.acknowledgments.append(value)
            number = len(self.acknowledgments) - 1
            self.digests.extend((number, reference) for reference in references)

    # MessageHeader (§3.1)

    def _message_header(self, element: etree._Element) -> None:
        findings = self.findings
        blocks.check_version(element, _MH, findings)
        actor = element.get(n.ACTOR)
        if actor is not None:
            # The signature's transform skips what is meant for the next MSH, so a header
            # marked so could be forged beside a signed one (TRUST.md, first finding).
            findings.fault(
                Inconsistent(
                    "the MessageHeader carries an actor",
                    location=f"{_MH}/@actor",
                    remedy="the MessageHeader is for the whole way and has no actor",
                )
            )
        for child in element:
            tag = child.tag
            field = _SIMPLE.get(tag)
            if field is not None:
                self._simple(child, field)
            elif tag == n.FROM:
                if self.from_party is None:
                    self.from_party = findings.from_party = self._party(child, f"{_MH}/From")
            elif tag == n.TO:
                if self.to_party is None:
                    self.to_party = findings.to_party = self._party(child, f"{_MH}/To")
            elif tag == n.MESSAGE_DATA:
                self._message_data(child)
            elif tag == n.DUPLICATE_ELIMINATION:
                self.duplicate_elimination = True
            elif tag == n.DESCRIPTION:
                self.descriptions.append((child.get(n.A_LANG) or "", child.text or ""))
            elif tag == n.SPLIT:
                self._split(child)
            elif not tag.startswith(_EB_PREFIX):
                self.foreign.append(child)

    def _simple(self, element: etree._Element, field: tuple[str, str]) -> None:
        attribute, name = field
        if getattr(self, attribute) is not None:
            self.findings.fault(
                Inconsistent(
                    f"the MessageHeader has more than one {name}",
                    location=f"{_MH}/{name}",
                    remedy=f"send one {name}",
                )
            )
            return
        value = self._id(element, f"{_MH}/{name}", name)
        if value is None:
            return
        if name == "Service":
            self._service(element, value)
            return
        setattr(self, attribute, value)
        setattr(self.findings, attribute, value)

    def _service(self, element: etree._Element, value: str) -> None:
        kind = element.get(n.A_TYPE)
        try:
            self.service = self.findings.service = Service(value, kind or None)
        except InvalidValue as problem:
            self.findings.invalid(Inconsistent, problem, f"{_MH}/Service")
            return
        if not kind and not is_uri(value):
            self.findings.fault(
                Inconsistent(
                    f"Service {value!r} has no type and is not a URI",
                    location=f"{_MH}/Service",
                    remedy="give Service a type or a URI",
                )
            )

    def _id(self, element: etree._Element, location: str, name: str) -> str | None:
        value = (element.text or "").strip(WHITESPACE)
        if len(element):
            self.findings.fault(
                Inconsistent(
                    f"{name} holds elements instead of text",
                    location=location,
                    remedy=f"send {name} as plain text",
                )
            )
            return None
        try:
            return check_id(value, name)
        except InvalidValue as problem:
            self.findings.invalid(Inconsistent, problem, location)
            return None

    def _party(self, element: etree._Element, location: str) -> Party | None:
        ids: list[PartyId] = []
        types: set[str | None] = set()
        role: str | None = None
        for child in element:
            if child.tag == n.PARTY_ID:
                self._party_id(child, location, ids, types)
            elif child.tag == n.ROLE:
                role = (child.text or "").strip(WHITESPACE) or None
        if not ids:
            return None
        try:
            return Party(tuple(ids), role)
        except InvalidValue as problem:
            self.findings.invalid(Inconsistent, problem, f"{location}/Role")
            return Party(tuple(ids))

    def _party_id(
        self,
        element: etree._Element,
        location: str,
        ids: list[PartyId],
        types: set[str | None],
    ) -> None:
        value = (element.text or "").strip(WHITESPACE)
        kind = element.get(n.A_TYPE) or None
        if not value:
            # Judged with the whole message: a missing party may be an acknowledgement's.
            return
        try:
            party_id = PartyId(value, kind)
        except InvalidValue as problem:
            self.findings.invalid(Inconsistent, problem, f"{location}/PartyId")
            return
        ids.append(party_id)
        if kind is None and not is_uri(value):
            self.findings.fault(
                Inconsistent(
                    f"PartyId {value!r} has no type and is not a URI",
                    location=f"{location}/PartyId",
                    remedy="give PartyId a type or a URI",
                )
            )
        elif kind is not None and kind in types:
            self.findings.fault(
                Inconsistent(
                    f"two PartyIds of one party have the type {kind!r}",
                    location=f"{location}/PartyId/@type",
                    remedy="name the party once per type",
                )
            )
        types.add(kind)

    def _message_data(self, element: etree._Element) -> None:
        findings = self.findings
        for child in element:
            tag = child.tag
            if tag == n.MESSAGE_ID:
                if self.message_id is not None:
                    findings.fault(
                        Inconsistent(
                            "MessageData has more than one MessageId",
                            location=f"{_MD}/MessageId",
                            remedy="send one MessageId",
                        )
                    )
                    continue
                self.message_id = findings.message_id = self._id(
                    child, f"{_MD}/MessageId", "MessageId"
                )
            elif tag == n.TIMESTAMP:
                self.timestamp = blocks.instant(child, f"{_MD}/Timestamp", findings)
            elif tag == n.REF_TO_MESSAGE_ID:
                value = self._id(child, f"{_MD}/RefToMessageId", "RefToMessageId")
                if value is not None:
                    self.ref_to.append(value)
            elif tag == n.TIME_TO_LIVE:
                self.time_to_live = blocks.instant(child, f"{_MD}/TimeToLive", findings)

    def _split(self, element: etree._Element) -> None:
        split_id = ""
        number = total = None
        for child in element:
            if child.tag == n.SPLIT_ID:
                split_id = blocks.text_of(child)
            elif child.tag == n.SPLIT_NUMBER:
                number, total = whole_number(child.text), whole_number(child.get("Total"))
        try:
            self.split = Split(split_id, number or 0, total or 0)
        except InvalidValue as problem:
            self.findings.invalid(Inconsistent, problem, f"{_MH}/Split")

    # Body

    def _body(self, body: etree._Element) -> None:
        seen: set[str] = set()
        for child in body:
            tag = child.tag
            if tag in _BODY:
                if tag in seen:
                    self._twice(tag)
                    continue
                seen.add(tag)
            if tag == n.MANIFEST:
                self.manifest, self.reference_foreign = blocks.manifest(child, self.findings)
            elif tag == n.STATUS_REQUEST:
                self.status_request = blocks.status_request(child, self.findings)
            elif tag == n.STATUS_RESPONSE:
                self.status_response = blocks.status_response(child, self.findings)
            elif tag == n.FAULT:
                self.findings.fault(
                    SoapFault("Client", "the Body holds a SOAP Fault beside an ebXML header")
                )

    # Putting it together

    def _kind(self) -> MessageKind:
        if self.service is not None and self.service.value == n.SIGNAL_SERVICE:
            kind = n.SIGNAL_ACTIONS.get(self.action or "")
            if kind is not None:
                return kind
            if self.action is not None:
                self.findings.fault(
                    Inconsistent(
                        f"the signal service has no Action {self.action[:64]!r}",
                        location=f"{_MH}/Action",
                        remedy="use one of " + ", ".join(n.SIGNAL_ACTIONS),
                    )
                )
        return MessageKind.NORMAL

    def _ref_to_message_id(self) -> str | None:
        if len(self.ref_to) > 1:
            # PHINMS sends two; the one that is acknowledged is the one that counts.
            self.findings.note("MessageData has more than one RefToMessageId")
            for acknowledgment in self.acknowledgments:
                if acknowledgment.ref_to_message_id in self.ref_to:
                    return acknowledgment.ref_to_message_id
        return self.ref_to[0] if self.ref_to else None

    def _complete_parties(self, kind: MessageKind) -> None:
        for name in ("from_party", "to_party"):
            if getattr(self, name) is None:
                side = "From" if name == "from_party" else "To"
                if side == "To" and self.acknowledgments and kind is MessageKind.ACKNOWLEDGMENT:
                    self.findings.note("the acknowledgement names no To PartyId")
                    self.to_party = Party((UNNAMED,))
                    continue
                self._missing(f"{_MH}/{side}/PartyId", f"{side} names no PartyId")

    def _missing(self, location: str, problem: str) -> None:
        if not any(getattr(fault, "location", "") == location for fault in self.findings.faults):
            self.findings.fault(
                Inconsistent(problem, location=location, remedy="send what the schema requires")
            )

    def _semantics(self) -> DeliverySemantics | None:
        to_party = any(request.actor is Actor.TO_PARTY_MSH for request in self.ack_requested)
        if self.duplicate_elimination and to_party:
            return DeliverySemantics.ONCE_AND_ONLY_ONCE
        if not self.duplicate_elimination and not self.ack_requested:
            return DeliverySemantics.BEST_EFFORT
        return None

    def _message(self) -> Message | None:
        findings = self.findings
        kind = findings.kind = self._kind()
        self._complete_parties(kind)
        ref_to = findings.ref_to_message_id = self._ref_to_message_id()
        findings.sync_reply = self.sync_reply
        if kind in (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR) and self.ack_requested:
            # Obeying would make two handlers acknowledge each other for ever (§6.3.1).
            findings.note("AckRequested on an acknowledgement or error is ignored")
            self.ack_requested.clear()
        semantics = findings.semantics = self._semantics()
        for attribute, location in _REQUIRED:
            if getattr(self, attribute) is None:
                name = location[location.rfind("/") + 1 :]
                self._missing(location, f"{name} is missing")
        if (
            self.from_party is None
            or self.to_party is None
            or self.cpa_id is None
            or self.conversation_id is None
            or self.message_id is None
            or self.timestamp is None
        ):
            return None
        header = Header(
            from_party=self.from_party,
            to_party=self.to_party,
            cpa_id=self.cpa_id,
            conversation_id=self.conversation_id,
            service=self.service,
            action=self.action,
            message_id=self.message_id,
            timestamp=self.timestamp,
            ref_to_message_id=ref_to,
            time_to_live=self.time_to_live,
            semantics=semantics,
            duplicate_elimination=self.duplicate_elimination,
            sync_reply_as_agreed=self.sync_reply,
            split=self.split,
            descriptions=tuple(self.descriptions),
            foreign=self._exact(),
        )
        message = Message(
            dialect=Dialect.EBMS2,
            kind=kind,
            header=header,
            routing=self._routing(),
            order=self.order,
            ack_requested=tuple(self.ack_requested),
            acknowledgments=tuple(self.acknowledgments),
            error_list=self.error_list,
            status_request=self.status_request,
            status_response=self.status_response,
            manifest=tuple(self.manifest),
        )
        for error in ebms2_rules.broken(message):
            findings.fault(error)
        return message

    def _routing(self) -> tuple[RoutingHeader, ...]:
        if self.hop_sequence is None or self.from_party is None or self.to_party is None:
            return self.routing
        if self.routing:
            last = blocks.with_sequence(self.routing[-1], self.hop_sequence)
            return (*self.routing[:-1], last)
        return (
            RoutingHeader(
                sender_id=self.from_party.ids[0],
                receiver_id=self.to_party.ids[0],
                sequence=self.hop_sequence,
            ),
        )

    def _exact(self) -> tuple[bytes, ...]:
        """Foreign bytes of the header; those of references and digests are put in place."""
        wanted = list(self.foreign)
        for children in self.reference_foreign:
            wanted.extend(children)
        wanted.extend(element for _, element in self.digests)
        if not wanted:
            return ()
        try:
            written = iter(exact_bytes(self.envelope, self.charset, self.root, wanted))
        except EbxmlError as error:
            self.findings.fault(error)
            return ()
        foreign = tuple(next(written) for _ in self.foreign)
        for number, children in enumerate(self.reference_foreign):
            if children:
                kept = tuple(next(written) for _ in children)
                self.manifest[number] = blocks.with_foreign(self.manifest[number], kept)
        for number, element in self.digests:
            digest = blocks.signed_digest(element, next(written), self.findings)
            if digest is not None:
                self.acknowledgments[number] = blocks.with_digest(
                    self.acknowledgments[number], digest
                )
        return foreign


_EB_PREFIX = f"{{{n.EB}}}"
_BODY = frozenset({n.MANIFEST, n.STATUS_REQUEST, n.STATUS_RESPONSE})
_ONCE = frozenset(
    {
        n.MESSAGE_HEADER,
        n.SYNC_REPLY,
        n.MESSAGE_ORDER,
        n.ERROR_LIST,
        n.HOP_SEQUENCE,
        n.ROUTING_HEADER_LIST,
    }
)
_SIMPLE = {
    n.CPA_ID: ("cpa_id", "CPAId"),
    n.CONVERSATION_ID: ("conversation_id", "ConversationId"),
    n.SERVICE: ("service", "Service"),
    n.ACTION: ("action", "Action"),
}
_REQUIRED = (
    ("cpa_id", f"{_MH}/CPAId"),
    ("conversation_id", f"{_MH}/ConversationId"),
    ("service", f"{_MH}/Service"),
    ("action", f"{_MH}/Action"),
    ("message_id", f"{_MD}/MessageId"),
    ("timestamp", f"{_MD}/Timestamp"),
)
