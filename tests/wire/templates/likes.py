"""Envelopes like one that a template was made of, whole and damaged, and how they are compared."""

import random
import re
from collections.abc import Callable

from msgspec.structs import replace

from oncewire.errors import EbxmlError
from oncewire.message.envelope import Acknowledgment, AckRequested, Actor, Message, RoutingHeader
from oncewire.message.form import Dialect, Validation
from oncewire.wire import answers, codec, header
from oncewire.wire.header import HeaderReading
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.parcel import ReadFault
from oncewire.wire.security import signature
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, acknowledged_digests, sign
from oncewire.wire.templates.envelope import EnvelopeTemplate, learned
from tests.fuzz.mutations import TOKENS, mutated
from tests.fuzz.seeds import conversation
from tests.wire import samples
from tests.wire.security import keys

CHARSET = "UTF-8"
Span = tuple[int, int]
FIELDS = (
    b"ConversationId|MessageId|Timestamp|RefToMessageId|TimeToLive|HopSequence|SequenceNumber"
    b"|DigestValue|SignatureValue"
)
REPORT = Validation.REPORT

VALUES = [
    b"m-2@alpha.example", b"1", b"007", b"0", b"99999999", b"100000000", b"4294967296", b"9" * 18,
    b"x" * 255, b"x" * 256, b"2026-02-28T23:59:59Z", b"2026-02-29T10:00:00Z",
    b"2026-01-05T24:00:00Z", b"2026-01-05T10:00:60Z", b"2026-01-05T10:00:00.5Z",
    b"2026-01-05T10:00:00.1234567Z", b"2026-01-05T10:00:00", b"2026-01-05T10:00:00+01:00",
    b"20260105T100000Z", b"0000-01-01T00:00:00Z", b"9999-12-31T23:59:59Z",
    b"2026-01-05t10:00:00z", b" m-2", b"m-2\n", b"\tm", b"a b", b"a&amp;b", b"a&#98;c", b"&lt;",
    b"<![CDATA[m-2]]>", b"a<!-- b -->c", b"<!-- -->", b"a<?pi?>b", b"a]]>b", b"a>b", b'a"b',
    b"a'b", b"a=b", b"xmlns", b"xmlns" * 40, b"<x/>", b"</eb:MessageId>", b"\x00", b"\x0b",
    b"\x7f", b"\xc3\xa4", b"\xc3", b"\xff", "\u2028".encode(), "\ufffe".encode(), b"",
    b"QUJD" * 11, b"QUJD" * 10 + b"QUI=", b"QUJD" * 10 + b"QQ==", b"QUJD=", b"QUJDRA", b"QU JD",
    b"QUJD" * 400, b"====", b"cid:other", b"order-1%40alpha", b"a@b", b"A" * 200,
    b"-1", b"+1", b"1.0", b"\xd9\xa1",
]  # fmt: skip
"""What might stand in a field: good values of every kind, and what only looks like one."""


def envelopes(dialect: Dialect) -> list[bytes]:
    """One of each kind that the dialect has, and one that every field stands in."""
    made = [*conversation(dialect), _busy(dialect)]
    written = [codec.write_envelope(message, samples.form(dialect)) for message in made]
    return written + (signed_envelopes() if dialect is Dialect.EBMS2 else [])


def signed_envelopes() -> list[bytes]:
    """An order and its signed acknowledgement, as they come and as they were signed."""
    order = replace(samples.order_message(Dialect.EBMS2), payloads=(samples.ORDER, samples.PICTURE))
    form = samples.form(Dialect.EBMS2)
    parts = [
        PartDigests(part.content_id, {"sha256": bytes.fromhex(part.digest)})
        for part in order.payloads
    ]
    asked = replace(order, ack_requested=(AckRequested(Actor.TO_PARTY_MSH, signed=True),))
    first = _signed(codec.write_envelope(asked, form), parts)
    said = acknowledged_digests(signature.signed_references(first))
    made = samples.envelope_for(Dialect.EBMS2, own=samples.BETA, hop=samples.NEXT_HOP)
    ack = answers.acknowledgment_for(asked, made, references=said)
    second = _signed(codec.write_envelope(ack, form), [])
    views = [
        signature.covered(envelope, covered).readable
        for envelope, covered in ((first, parts), (second, []))
    ]
    return [first, second, *views]


def _signed(envelope: bytes, parts: list[PartDigests]) -> bytes:
    signer = keys.alpha("p256")
    choice = SigningChoice("ecdsa-sha256")
    return sign(envelope, parts, signer.key, signer.certificate, choice).envelope


def _busy(dialect: Dialect) -> Message:
    order = samples.order_message(dialect)
    later = samples.NOW + 1_500_000
    said = replace(order.header, ref_to_message_id="m-0@beta.example", time_to_live=later)
    answers = (Acknowledgment(samples.NOW, "m-0@beta.example", samples.BETA),)
    hops: tuple[RoutingHeader, ...] = (samples.NEXT_HOP, *order.routing)
    if dialect is Dialect.RM_078:
        return replace(order, header=said)
    return replace(order, header=said, acknowledgments=answers, routing=hops)


def learn(envelope: bytes, charset: str | None = CHARSET) -> EnvelopeTemplate | None:
    return learned(envelope, charset, DEFAULT_LIMITS, REPORT)


def full(envelope: bytes, charset: str | None = CHARSET) -> HeaderReading | None:
    """What the full reader says; None where it refuses."""
    try:
        return header.read(envelope, charset, DEFAULT_LIMITS, REPORT)
    except (ReadFault, EbxmlError):
        return None


def agrees(template: EnvelopeTemplate, envelope: bytes, charset: str | None = CHARSET) -> bool:
    """Whether the template read the envelope, and then as the full reader does; it may decline."""
    found = template.read(envelope, DEFAULT_LIMITS)
    if found is None:
        return False
    assert found == full(envelope, charset), envelope
    return True


def spans_of(envelope: bytes, names: bytes = FIELDS) -> list[Span]:
    """Where the texts of those elements, or of all fields, and the names of parts lie."""
    elements = rb"<(?:[\w.-]+:)?(?:" + names + rb")(?:\s[^<>]*)?>([^<>]+)<"
    texts = [match.span(1) for match in re.finditer(elements, envelope, re.IGNORECASE)]
    parts = re.finditer(rb'(?:href|URI)="cid:([^"]+)"', envelope) if names is FIELDS else ()
    return sorted([*texts, *(match.span(1) for match in parts)])


def _filled(chance: random.Random, envelope: bytes, spans: list[Span]) -> bytes:
    """Other values in some spans, likely of the right kind for another one."""
    taken = [envelope[slice(*span)] for span in spans]
    for span in sorted(spans, key=lambda each: each[0], reverse=True):
        if chance.random() < 0.4:
            own = envelope[slice(*span)]
            same_kind = own[:-2] + b"%d" % chance.randrange(10) + own[-1:]
            value = chance.choice([chance.choice(VALUES), chance.choice(taken), same_kind])
            if chance.random() < 0.1:
                value = own[:3] + chance.choice(TOKENS) + own[3:]
            envelope = envelope[: span[0]] + value + envelope[span[1] :]
    return envelope


def _beside(chance: random.Random, envelope: bytes, spans: list[Span]) -> bytes:
    """Something at the edge of a slot, or the edge itself gone."""
    span = chance.choice(spans)
    at = chance.choice([span[0], span[1]]) + chance.choice([-1, 0, 1])
    return chance.choice(
        [
            envelope[:at] + chance.choice(TOKENS) + envelope[at:],
            envelope[:at] + envelope[at + 1 :],
            envelope[:at] + bytes([chance.randrange(256)]) + envelope[at + 1 :],
        ]
    )


def _written_otherwise(chance: random.Random, envelope: bytes, _spans: list[Span]) -> bytes:
    text = envelope.decode("utf-8", "replace")
    ways: list[Callable[[], bytes]] = [
        lambda: b"\xef\xbb\xbf" + envelope,
        lambda: text.encode("utf-16"),
        lambda: text.encode("utf-16-le"),
        lambda: envelope.replace(b"UTF-8", b"ISO-8859-1", 1),
        lambda: envelope.replace(b'version="1.0"', b'version="1.1"', 1),
        lambda: envelope.replace(b"\n", b"\r\n", 1),
        lambda: envelope + chance.choice([b"\n", b" ", b"<!-- -->", b"\x00", b"<a/>"]),
        lambda: chance.choice([b"\n", b" "]) + envelope,
        lambda: envelope.partition(b"?>")[2],
    ]
    return chance.choice(ways)()


def like(chance: random.Random, envelope: bytes, spans: list[Span]) -> bytes:
    """Another envelope: with other values, or damaged in one of many ways."""
    ways = [_filled, _filled, _filled, _beside, _written_otherwise]
    changed = chance.choice(ways)(chance, envelope, spans)
    return mutated(chance, changed) if chance.random() < 0.15 else changed
