"""Reading the drafts' `ebXMLHeader`: one tolerant reader for both dialects.

What the drafts leave open it takes either way (docs/explanation/decisions.md#drafts-on-the-wire).

What differs between ms-0.9x and rm-0.78 is which words they write, and a reader accepts
them all; only the kind of a message is told in two ways.
"""

from __future__ import annotations

import itertools

from oncewire.errors import EbxmlError, InvalidValue, OtherXml
from oncewire.message.envelope import (
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    Split,
)
from oncewire.message.form import AckRequest, Dialect, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service, check_id, is_uri
from oncewire.message.instant import Instant
from oncewire.wire.drafts import blocks as n
from oncewire.wire.drafts.blocks import DraftElement
from oncewire.wire.ebms2.blocks import signed_digest
from oncewire.wire.parcel import Findings
from oncewire.wire.xml import Element, exact_bytes, read_moment, whole_number

# Everything else in Header is foreign, and is kept as its bytes (HDR-7).
_KNOWN_HEADER = frozenset(
    {
        "from",
        "to",
        "tpainfo",
        "cpaid",
        "conversationid",
        "service",
        "action",
        "messagedata",
        "qualityofserviceinfo",
        "synchronousmessaginginfo",
    }
)
# Everything else beside Header is noted and passed over: no draft says what may stand there.
_KNOWN_ROOT = frozenset(
    {
        "manifest",
        "header",
        "routingheaderlist",
        "routingheader",
        "statusdata",
        "errorlist",
        "acknowledgment",
        "signature",
    }
)


def _location(name: str, shown: str) -> str:
    return f"//Header/{'MessageData/' if name == 'messageid' else ''}{shown}"


class DraftReading(Findings):
    """One reading of one header document; afterwards `message` is there, or `faults` are."""

    def __init__(
        self, dialect: Dialect, root: Element, envelope: bytes, charset: str | None
    ) -> None:
        super().__init__()
        self.dialect: Dialect = dialect
        self.root = DraftElement(root, self)
        self.envelope = envelope
        self.charset = charset
        self.signed = "signature" in self.root.children

    def read(self, payloads: tuple[Payload, ...]) -> None:
        """Read everything, faults or not."""
        header = self.root.first("header")
        if header is None:
            self.fault(
                OtherXml("ebXMLHeader has no Header", location="//Header", remedy="send one")
            )
            return
        if not self.root.children.keys() <= _KNOWN_ROOT:
            for name, _ in self.root.order:
                if name not in _KNOWN_ROOT:
                    self.note(f"the element {name[:64]} is not known and was passed over")
        # Before the header: an answer to a faulty header goes to the hop's sender (ACK-4, ACK-12).
        routing = n.routing(self.root, self.dialect, self)
        if routing:
            self.last_hop = routing[-1]
        value = self._header(header)
        kind = self.kind
        if value is None or kind is None:
            return
        manifest, foreign = n.manifest(self.root, self)
        errors = n.error_list(self.root, self)
        # v0-078 tells an error by its MessageType alone, so the list may be missing.
        if kind is MessageKind.ERROR and errors is None:
            self.inconsistent(
                "an error message has no ErrorList", "//ErrorList", "report at least one Error"
            )
        acknowledgments, digests = n.acknowledgments(self.root, value, self)
        request, response = n.status(self.root, self)
        message = Message(
            dialect=self.dialect,
            kind=kind,
            header=value,
            routing=routing,
            acknowledgments=tuple(acknowledgments),
            error_list=errors,
            status_request=request,
            status_response=response,
            manifest=tuple(manifest),
            payloads=payloads,
        )
        self.message = self._with_foreign(message, header, foreign, digests)

    def _with_foreign(
        self,
        message: Message,
        header: DraftElement,
        references: list[list[Element]],
        digests: list[list[Element]],
    ) -> Message:
        """Foreign elements and digests as they were written: both are forwarded or compared,
        not understood."""
        own = []
        if not header.children.keys() <= _KNOWN_HEADER:
            own = [child for name, child in header.order if name not in _KNOWN_HEADER]
        wanted = [*own, *itertools.chain(*references, *digests)]
        if not wanted:
            return message
        try:
            written = iter(exact_bytes(self.envelope, self.charset, self.root.element, wanted))
        except EbxmlError as error:
            self.fault(error)
            return message
        kept = tuple(next(written) for _ in own)
        named = [tuple(next(written) for _ in children) for children in references]
        proofs = []
        for children in digests:
            read = [signed_digest(child, next(written), self) for child in children]
            proofs.append(tuple(digest for digest in read if digest is not None))
        return n.with_foreign(message, kept, named, proofs)

    # Header

    def _header(self, header: DraftElement) -> Header | None:
        # v0-21 groups the agreement's names in TPAInfo; 0.9x has them in Header (HDR-6).
        agreement = header.first("tpainfo") or header
        from_party = self.from_party = self._party(header, "from", "From")
        to_party = self.to_party = self._party(header, "to", "To")
        cpa_id = self.cpa_id = self._id(agreement, header, "cpaid", "CPAId")
        conversation = self.conversation_id = self._id(
            agreement, header, "conversationid", "ConversationId"
        )
        service = self.service = self._service(agreement, header)
        action = self.action = self._either(agreement, header, "action", "Action") or None
        kind = self.kind = self._kind(service, action)
        # Signals of v0-078 have neither (ACK-6).
        if kind is MessageKind.NORMAL:
            for value, name in ((service, "Service"), (action, "Action")):
                if value is None:
                    self._missing(name, f"//Header/{name}")
        data = header.first("messagedata")
        if data is None:
            self._missing("MessageData", "//Header/MessageData")
            return None
        message_id = self.message_id = self._id(data, data, "messageid", "MessageId")
        stamp = self._instant(data, "timestamp", "Timestamp")
        if stamp is None and "timestamp" not in data.children:
            self._missing("Timestamp", "//Header/MessageData/Timestamp")
        # On any message: a reference proves arrival, signal or business (RM-16).
        ref_to = self.ref_to_message_id = data.value("reftomessageid") or None
        quality = header.first("qualityofserviceinfo")
        # Silence stays None: the agreement's value holds then (CPA-8), and a default would hide
        # that.
        semantics = self.semantics = self._semantics(quality)
        mode, as_agreed = self._sync(header)
        # Known early, because errors of such a message go back on its connection too (SYNC-12).
        self.sync_reply = mode not in (None, SyncReplyMode.NONE) or as_agreed
        expiry = self._expiry(data, quality)
        # The rest may be missing, these not: no answer and no record without them.
        if (
            from_party is None
            or to_party is None
            or cpa_id is None
            or conversation is None
            or message_id is None
            or stamp is None
        ):
            return None
        try:
            return Header(
                from_party=from_party,
                to_party=to_party,
                cpa_id=cpa_id,
                conversation_id=conversation,
                service=service,
                action=action,
                message_id=message_id,
                timestamp=stamp,
                ref_to_message_id=ref_to,
                time_to_live=expiry,
                semantics=semantics,
                delivery_receipt_requested=self._receipt(quality),
                sync_reply=mode,
                sync_reply_as_agreed=as_agreed,
                split=self._split(data),
            )
        except InvalidValue as problem:
            self.invalid(problem, "//Header")
            return None

    def _missing(self, name: str, location: str) -> None:
        self.inconsistent(f"{name} is missing", location, f"send {name}")

    def _id(self, place: DraftElement, other: DraftElement, name: str, shown: str) -> str | None:
        value = self._either(place, other, name, shown)
        try:
            if value is not None:
                return check_id(value, shown)
        except InvalidValue as problem:
            self.invalid(problem, _location(name, shown))
        else:
            self._missing(shown, _location(name, shown))
        return None

    def _either(
        self, place: DraftElement, other: DraftElement, name: str, shown: str
    ) -> str | None:
        """A value in the group or beside it: partners between the drafts of 2000 and 2001 write
        either."""
        value = place.value(name)
        beside = other.value(name) if other is not place else None
        if value is not None and beside is not None:
            self.twice(shown, f"//Header/{shown}")
        return beside if value is None else value

    def _service(self, place: DraftElement, other: DraftElement) -> Service | None:
        element = place.first("service") or other.first("service")
        value = self._either(place, other, "service", "Service")
        if not value:
            return None
        try:
            return Service(value, element.value("type") or None if element else None)
        except InvalidValue as problem:
            self.invalid(problem, "//Header/Service")
            return None

    def _kind(self, service: Service | None, action: str | None) -> MessageKind | None:
        word = self.root.value("messagetype") if self.dialect is Dialect.RM_078 else None
        if word is None:
            # Told by Service and Action: 0.9x has no MessageType (C8).
            signal = n.kind_of_signal(service.value, action) if service is not None else None
            return signal or MessageKind.NORMAL
        # An unknown MessageType is refused, never taken for Normal: an acknowledgement must not
        # reach an application.
        kind = n.MESSAGE_TYPES.get(word.lower())
        if kind is None:
            self.not_recognized(
                f"MessageType {word[:32]!r} is not known",
                "/ebXMLHeader/@MessageType",
                "send Normal, Acknowledgement or Error",
            )
        return kind

    def _party(self, header: DraftElement, name: str, shown: str) -> Party | None:
        element = header.first(name)
        ids: list[PartyId] = []
        for child in element.all("partyid") if element is not None else ():
            # `context` in v0-078 (HDR-1), `type` in 0.9x.
            kind = child.value("type") or child.value("context") or None
            text = child.text
            try:
                ids.append(PartyId(text, kind))
            except InvalidValue as problem:
                self.invalid(problem, f"//Header/{shown}/PartyId")
                continue
            # As in ebMS 2.0: a bare name must say by itself which register it is from.
            if kind is None and not is_uri(text):
                self.inconsistent(
                    f"PartyId {text!r} has no type and is not a URI",
                    f"//Header/{shown}/PartyId",
                    "give PartyId a type or a URI",
                )
        if ids:
            return Party(tuple(ids))
        self._missing(f"{shown}/PartyId", f"//Header/{shown}/PartyId")
        return None

    def _instant(self, place: DraftElement, name: str, shown: str) -> Instant | None:
        value = place.value(name)
        if value is None:
            return None
        try:
            moment, zoned = read_moment(value)
        except InvalidValue as problem:
            self.invalid(problem, f"//Header/MessageData/{shown}")
            return None
        if not zoned:
            self.note(f"{shown} has no time zone and is taken as UTC")
        return moment

    def _expiry(self, data: DraftElement, quality: DraftElement | None) -> Instant | None:
        expiry = self._instant(data, "timetolive", "TimeToLive")
        # v0.91 had it there (docs/explanation/decisions.md#drafts-on-the-wire).
        earlier = self._instant(quality, "timetolive", "TimeToLive") if quality else None
        if expiry is not None and earlier is not None:
            self.twice("TimeToLive", "//Header/MessageData/TimeToLive")
        return earlier if expiry is None else expiry

    def _semantics(self, quality: DraftElement | None) -> DeliverySemantics | None:
        word = quality.value("deliverysemantics") if quality is not None else None
        if word is None:
            return None
        # An unknown word is refused: to take it for best effort would lose messages, for reliable
        # would owe acknowledgements.
        semantics = n.SEMANTICS.get(word.lower())
        if semantics is None:
            self.not_recognized(
                f"deliverySemantics {word[:32]!r} is not known",
                "//Header/QualityOfServiceInfo/@deliverySemantics",
                "send OnceAndOnlyOnce or BestEffort",
            )
        return semantics

    def _receipt(self, quality: DraftElement | None) -> AckRequest | None:
        # Asks the To Party; what asks the next handler stands in the routing header (C12).
        word = quality.value("deliveryreceiptrequested") if quality is not None else None
        if word is None:
            return None
        return n.ack_request(word, "//Header/QualityOfServiceInfo/@deliveryReceiptRequested", self)

    def _sync(self, header: DraftElement) -> tuple[SyncReplyMode | None, bool]:
        """The wish for a synchronous reply, and whether it means "as agreed" (SYNC-15, C31)."""
        location = "//Header/SynchronousMessagingInfo/@syncReplyMode"
        found = header.first("synchronousmessaginginfo")
        if found is None:
            return None, False
        word = found.value("syncreplymode") or ""
        mode = n.SYNC_MODES.get(word)
        if mode is not None:
            return mode, False
        # v0.91 had true and false, and left the mode to the agreement (C31).
        if word.lower() == "true":
            return None, True
        if word.lower() == "false":
            return SyncReplyMode.NONE, False
        self.not_recognized(
            f"syncReplyMode {word[:32]!r} is not known",
            location,
            "send AcksOnly, ResponseOnly or AcksAndResponse",
        )
        return None, False

    def _split(self, data: DraftElement) -> Split | None:
        split_id = data.value("splitid")
        number = data.first("splitnumber")
        if split_id is None and number is None:
            return None
        try:
            # A missing number becomes 0, which Split refuses: ordinals begin with 1 (BIG-5).
            return Split(
                split_id or "",
                whole_number(number.text if number else None) or 0,
                whole_number(number.value("total") if number else None) or 0,
            )
        except InvalidValue as problem:
            self.invalid(problem, "//Header/MessageData/SplitNumber")
            return None


def read(
    dialect: Dialect,
    root: Element,
    envelope: bytes,
    charset: str | None,
    payloads: tuple[Payload, ...] = (),
) -> Findings:
    """The reading of one header document: its message, or its faults and facts."""
    reading = DraftReading(dialect, root, envelope, charset)
    reading.read(payloads)
    return reading
