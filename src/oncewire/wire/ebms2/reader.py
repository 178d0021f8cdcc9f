"""Reading ebMS 2.0: a SOAP envelope to a Message, tolerant of what real partners send.

The walk visits each child once and compares whole tag names, which costs half of what
XPath does. A fault never stops it: see `refusal`. Rules between elements are in
`rules`, which the writer obeys too.
"""

from __future__ import annotations

from oncewire.errors import EbxmlError, Inconsistent, SoapFault
from oncewire.message.envelope import (
    Acknowledgment,
    AckRequested,
    ErrorList,
    Message,
    MessageKind,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party
from oncewire.wire.ebms2 import blocks
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.ebms2 import header as signals
from oncewire.wire.ebms2 import writer as ebms2_rules
from oncewire.wire.ebms2.blocks import find_repeated
from oncewire.wire.ebms2.header import MD, MH, UNNAMED, MessageHeaderReading
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.source import Element, children, exact_bytes


class Ebms2Reading(MessageHeaderReading):
    """One reading of one envelope; afterwards `message` is there, or `faults` are."""

    dialect = Dialect.EBMS2
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
        find_repeated(header, self)
        if body is not None:
            find_repeated(body, self)
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
            self.fault(
                SoapFault(
                    "Client",
                    "the SOAP Header holds no eb:MessageHeader",
                    remedy="send an ebMS 2.0 message",
                )
            )
            return
        # After the header: what is no ebMS message at all is refused as that.
        for block in unknown:
            blocks.must_understand(block, self)
        if body is not None:
            self._body(body)
        self._complete(payloads)

    def _split_envelope(self) -> tuple[Element | None, Element | None]:
        header = body = None
        for child in children(self.root):
            tag = child.tag
            if tag == n.HEADER and header is None:
                header = child
            elif tag == n.BODY and body is None:
                body = child
            elif tag in (n.HEADER, n.BODY):
                self.fault(
                    SoapFault(
                        "Client",
                        "the SOAP Envelope has two Headers or two Bodies",
                        remedy="send one of each",
                    )
                )
        if header is None:
            self.fault(
                SoapFault(
                    "Client", "the SOAP Envelope has no Header", remedy="send an ebMS 2.0 message"
                )
            )
        elif body is None:
            # Required (SOAP 1.1 §4.3), but an acknowledgement has nothing to put there.
            self.note("the SOAP Envelope has no Body")
        return header, body

    def _block(self, tag: str, block: Element) -> bool:
        """Read a header block; False when it is not one of ours."""
        if tag == n.ACK_REQUESTED:
            request = blocks.ack_requested(block, self)
            if request is not None:
                self.ack_requested.append(request)
        elif tag == n.ACKNOWLEDGMENT:
            self._acknowledgment(block)
        elif tag == n.SYNC_REPLY:
            self.sync_reply = blocks.sync_reply(block, self)
        elif tag == n.MESSAGE_ORDER:
            self.order = blocks.message_order(block, self)
        elif tag == n.ERROR_LIST:
            self.error_list = signals.error_list(block, self)
        elif tag == n.SIGNATURE:
            # Only noticed here: whether it holds needs the agreement's certificates
            # (`wire/security`).
            self.signed = True
        elif tag == n.HOP_SEQUENCE:
            self.hop_sequence = blocks.hop_sequence(block, self)
        elif tag == n.ROUTING_HEADER_LIST:
            self.routing = blocks.routing(block, self)
        else:
            return False
        return True

    def _acknowledgment(self, block: Element) -> None:
        value, references = signals.acknowledgment(block, self)
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
                self.manifest, self.reference_foreign = blocks.manifest(child, self)
            elif tag == n.STATUS_REQUEST:
                self.status_request = signals.status_request(child, self)
            elif tag == n.STATUS_RESPONSE:
                self.status_response = signals.status_response(child, self)
            elif tag == n.FAULT:
                # A Fault answers a message and carries none (SOAP 1.1 §4.4).
                self.fault(
                    SoapFault("Client", "the Body holds a SOAP Fault beside an ebXML header")
                )

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
        self.semantics = ebms2_rules.semantics(
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
        self.faults.extend(ebms2_rules.broken(message))
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
                self.fault(
                    Inconsistent(
                        f"the signal service has no Action {self.action[:64]!r}",
                        location=f"{MH}/Action",
                        remedy="use one of " + ", ".join(n.SIGNAL_ACTIONS),
                    )
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
            last = blocks.with_sequence(self.routing[-1], self.hop_sequence)
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
                self.manifest[number] = blocks.with_foreign(self.manifest[number], kept)
        for number, element in self.digests:
            digest = n.signed_digest(element, next(written), self)
            if digest is not None:
                known = self.acknowledgments[number]
                self.acknowledgments[number] = signals.with_digest(known, digest)
        return foreign


def read(
    root: Element, envelope: bytes, charset: str | None, payloads: tuple[Payload, ...] = ()
) -> Findings:
    """The reading of one envelope: its message, or its faults and facts."""
    reading = Ebms2Reading(root, envelope, charset)
    reading.read(payloads)
    return reading
