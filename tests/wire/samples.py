"""Messages that several tests start from: of our own making, and from the corpus."""

import re
from pathlib import Path

from oncewire.message.envelope import (
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
)
from oncewire.message.form import AckRequest, Dialect, Extension, Form
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import parse_instant
from oncewire.wire import answers, codec

NOW = parse_instant("2026-01-05T10:00:00Z")[0]
ALL_EXTENSIONS = frozenset(Extension)

ALPHA = Party.of("alpha", "urn:ex:org")
BETA = Party.of("beta", "urn:ex:org")
FIRST_HOP = RoutingHeader(
    sender_uri="http://alpha.example/msh",
    receiver_uri="http://hub.example/msh",
    sender_id=PartyId("006998397", "DUNS"),
    receiver_id=PartyId("123456789", "DUNS"),
    timestamp=NOW,
    ack_requested=AckRequest.UNSIGNED,
    sequence=SequenceNumber(1, SequenceStatus.CONTINUE),
)
NEXT_HOP = RoutingHeader(
    sender_uri="http://hub.example/msh",
    receiver_uri="http://beta.example/msh",
    sender_id=PartyId("123456789", "DUNS"),
    receiver_id=PartyId("555555555", "DUNS"),
    timestamp=NOW + 3_000_000,
    ack_requested=AckRequest.SIGNED,
    sequence=SequenceNumber(4711, SequenceStatus.CONTINUE),
)
ORDER = Payload.of("order-1@alpha.example", "application/xml", b"<order>\r\n <n>1</n>\n</order>\n")
PICTURE = Payload.of("pic@alpha.example", "image/png", bytes(range(256)) * 4)


def form(dialect: Dialect, **values: object) -> Form:
    """A form with every extension agreed."""
    return Form(dialect=dialect, extensions=ALL_EXTENSIONS, **values)  # type: ignore[arg-type]


def header(**values: object) -> Header:
    """A complete header of a reliable order; any value can be exchanged."""
    chosen: dict[str, object] = {
        "from_party": ALPHA,
        "to_party": BETA,
        "cpa_id": "alpha-beta-1",
        "conversation_id": "conv-77",
        "service": Service("urn:ex:orders"),
        "action": "PlaceOrder",
        "message_id": "m-1001@alpha.example",
        "timestamp": NOW,
        "semantics": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    }
    return Header(**(chosen | values))  # type: ignore[arg-type]


def order_message(dialect: Dialect, payloads: tuple[Payload, ...] = (ORDER,)) -> Message:
    """A reliable order with one hop behind it."""
    return Message(dialect, MessageKind.NORMAL, header(), routing=(FIRST_HOP,), payloads=payloads)


def written(dialect: Dialect, payloads: tuple[Payload, ...] = (ORDER,)) -> codec.Parcel:
    """The same as bytes."""
    return codec.write(order_message(dialect, payloads), form(dialect))


def envelope_for(dialect: Dialect, **values: object) -> answers.Envelope:
    """What an answer needs."""
    chosen: dict[str, object] = {
        "message_id": "a-1@beta.example",
        "now": NOW + 1_000_000,
        "form": form(dialect),
    }
    return answers.Envelope(**(chosen | values))  # type: ignore[arg-type]


def soap(header_blocks: str, body: str = "", root: str = "") -> bytes:
    """An ebMS 2.0 envelope around the given text."""
    return (
        '<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:eb="http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink"{root}>'
        f"<SOAP:Header>{header_blocks}</SOAP:Header><SOAP:Body>{body}</SOAP:Body></SOAP:Envelope>"
    ).encode()


MESSAGE_HEADER = (
    '<eb:MessageHeader SOAP:mustUnderstand="1" eb:version="2.0">'
    '<eb:From><eb:PartyId eb:type="urn:ex:org">alpha</eb:PartyId></eb:From>'
    '<eb:To><eb:PartyId eb:type="urn:ex:org">beta</eb:PartyId></eb:To>'
    "<eb:CPAId>alpha-beta-1</eb:CPAId><eb:ConversationId>conv-77</eb:ConversationId>"
    "<eb:Service>urn:ex:orders</eb:Service><eb:Action>PlaceOrder</eb:Action>"
    "<eb:MessageData><eb:MessageId>m-1@alpha.example</eb:MessageId>"
    "<eb:Timestamp>2026-01-05T10:00:00Z</eb:Timestamp></eb:MessageData>"
    "<eb:DuplicateElimination/></eb:MessageHeader>"
)
ACK_REQUESTED = (
    '<eb:AckRequested SOAP:mustUnderstand="1" eb:version="2.0" eb:signed="false" '
    'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"/>'
)


# The corpus


def filled(template: bytes) -> bytes:
    """A template of ebms-core with its placeholders filled."""
    text = template.decode()
    text = re.sub(r'\s*th:each="[^"]*"', "", text)
    text = re.sub(r'th:eb:type="\$\{(\w+)\}"', r'eb:type="urn:osb:\1"', text)
    text = re.sub(r'th:eb:type="(\w+)"', r'eb:type="\1"', text)
    text = re.sub(r'th:xlink:href="[^"]*"', 'xlink:href="cid:1"', text)
    text = text.replace("[[${timestamp}]]", "2026-01-05T10:00:00Z")
    text = text.replace("[[${timeToLive}]]", "2027-01-05T10:00:00Z")
    return re.sub(r"\[\[\$\{(\w+)\}\]\]", r"\1", text).encode()


def corpus_bytes(corpus: Path, name: str) -> bytes:
    """A corpus file ready to be read: templates filled, frames merged with their header."""
    path = corpus / name
    data = path.read_bytes()
    if name.startswith("ebms-core/soap/"):
        return filled(data)
    if b"{{ebxml}}" in data:
        return data.replace(b"{{ebxml}}", path.with_suffix(".ebxml").read_bytes())
    return data


def corpus_messages(corpus: Path) -> list[str]:
    """Every message file of the corpus, by its path in it."""
    return sorted(
        path.relative_to(corpus).as_posix()
        for path in corpus.rglob("*")
        if path.suffix in {".xml", ".msg", ".eml", ".txt", ".ebxml"}
        and path.parent.name not in {"cpa", "certs"}
        and path.name != "INDEX.md"
    )
