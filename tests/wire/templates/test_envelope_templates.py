"""What a template is made of, what it declines to read, and how many there are."""

import base64

import pytest
from msgspec.structs import replace

from oncewire.message.envelope import SequenceNumber, SequenceStatus
from oncewire.message.form import Dialect, Validation
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Received
from oncewire.wire.templates.envelope import EnvelopeTemplate, EnvelopeTemplates, Templates, learned
from oncewire.wire.templates.slotted import DOCUMENT_MAX, TemplateCache
from tests.wire import samples
from tests.wire.templates.likes import (
    CHARSET,
    REPORT,
    agrees,
    envelopes,
    full,
    learn,
    signed_envelopes,
    spans_of,
)

EACH = pytest.mark.parametrize("dialect", list(Dialect))
CASES = 150
"""Of each envelope; a case takes some fifty microseconds."""


def _read(dialect: Dialect, **header: object) -> Received:
    message = samples.order_message(dialect)
    message = replace(message, header=replace(message.header, **header))
    return codec.read(codec.write(message, samples.form(dialect)))


@EACH
def test_the_usual_fields_may_differ(dialect: Dialect) -> None:
    templates = EnvelopeTemplates()
    templates.learn(_read(dialect), "beta", DEFAULT_LIMITS)
    message = samples.order_message(dialect)
    said = replace(
        message.header,
        message_id="another@alpha.example",
        conversation_id="another",
        timestamp=message.header.timestamp + 1_000_000,
    )
    number = SequenceNumber(4712)
    if dialect is Dialect.EBMS2:
        changed = replace(message, header=said)
    else:
        hop = replace(message.routing[-1], sequence=number)
        changed = replace(message, header=said, routing=(*message.routing[:-1], hop))
        templates.learn(
            codec.read(codec.write(changed, samples.form(dialect))), "x", DEFAULT_LIMITS
        )
    parcel = codec.write(changed, samples.form(dialect))
    found = codec.read(parcel, templates=templates)
    assert found.by_template
    assert replace(found, by_template=False) == codec.read(parcel)
    assert templates.hits == 1


def test_a_number_beyond_its_rules_is_left_to_the_full_reader() -> None:
    message = samples.order_message(Dialect.EBMS2)
    numbered = replace(message, order=SequenceNumber(7))
    envelope = codec.write_envelope(numbered, samples.form(Dialect.EBMS2))
    template = learn(envelope)
    assert template is not None
    assert agrees(template, envelope.replace(b">7</", b">99999999</"))
    beyond = envelope.replace(b">7</", b">100000000</")
    assert full(beyond) is None
    assert template.read(beyond, DEFAULT_LIMITS) is None


def test_a_reset_has_no_slot_for_its_number() -> None:
    message = samples.order_message(Dialect.EBMS2)
    reset = replace(message, order=SequenceNumber(0, SequenceStatus.RESET))
    envelope = codec.write_envelope(reset, samples.form(Dialect.EBMS2))
    template = learn(envelope)
    assert template is not None
    assert template.read(envelope.replace(b">0</", b">1</"), DEFAULT_LIMITS) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<eb:MessageId>", b"<eb:MessageId>x</eb:MessageId><eb:MessageId>"),
        (b"m-1@alpha.example", b"m-1 @alpha.example"),
        (b"m-1@alpha.example", b"<!-- -->m-1@alpha.example"),
        (b"m-1@alpha.example", b"m&#45;1@alpha.example"),
        (b'encoding="UTF-8"', b'encoding="ISO-8859-1"'),
        (b"<?xml", b"\xef\xbb\xbf<?xml"),
        (b"<SOAP:Body", b"<SOAP:Bodies"),
        (b"<eb:CPAId>", b"<eb:Description xml:lang='en'>" + b"x" * DOCUMENT_MAX),
    ],
)
def test_what_may_not_be_learned(old: bytes, new: bytes) -> None:
    message = samples.order_message(Dialect.EBMS2)
    said = replace(message.header, message_id="m-1@alpha.example")
    envelope = codec.write_envelope(replace(message, header=said), samples.form(Dialect.EBMS2))
    assert learn(envelope) is not None
    assert old in envelope
    assert learn(envelope.replace(old, new, 1)) is None


def test_a_value_that_the_reader_takes_from_elsewhere_is_read_from_there() -> None:
    """A hop beside the list counts as the last, wherever it stands."""
    envelope = envelopes(Dialect.MS_09X)[0]
    begin, end = envelope.index(b"<RoutingHeader "), envelope.index(b"</RoutingHeaderList>")
    hop = envelope[begin:end].replace(b"http://hub.example", b"http://other.example")
    changed = envelope.replace(b"<RoutingHeaderList>", hop + b"<RoutingHeaderList>", 1)
    template = learn(changed)
    assert template is not None
    number = b'<SequenceNumber Status="Continue">1<'
    assert changed.count(number) == 2
    other = changed.replace(number, number.replace(b"1", b"77"), 1)
    assert agrees(template, other)
    reading = full(other)
    assert reading is not None
    assert [hop.sequence and hop.sequence.number for hop in reading.message.routing] == [1, 77]


def test_a_template_that_says_something_else_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong as it is made, the trial shows it."""
    envelope = envelopes(Dialect.EBMS2)[0]
    monkeypatch.setattr("oncewire.wire.templates.envelope._put", lambda *_: None)
    monkeypatch.setattr(EnvelopeTemplate, "has_own_id", True)
    assert learn(envelope) is None


def test_two_references_are_not_learned() -> None:
    """Which of them counts depends on what the acknowledgement says, so it is no plain field."""
    answer = next(one for one in envelopes(Dialect.EBMS2) if b"<eb:Acknowledgment" in one)
    mark = b"<eb:RefToMessageId>"
    twice = answer.replace(mark, mark + b"other</eb:RefToMessageId>" + mark, 1)
    assert full(twice) is not None
    assert learn(twice) is None


def test_a_slot_is_told_by_its_place_and_not_by_its_value() -> None:
    envelope = envelopes(Dialect.EBMS2)[0]
    (span,) = spans_of(envelope, b"MessageId")
    message_id = envelope[slice(*span)]
    same = envelope.replace(b">conv-77<", b">" + message_id + b"<", 1)
    template = learn(same)
    assert template is not None
    other = same.replace(message_id + b"</eb:MessageId>", b"o</eb:MessageId>")
    reading = template.read(other, DEFAULT_LIMITS)
    assert reading is not None
    assert reading.message.header.message_id == "o"
    assert reading.message.header.conversation_id == message_id.decode()


def test_other_limits_and_other_charsets_are_other_questions() -> None:
    received = _read(Dialect.EBMS2)
    templates = EnvelopeTemplates()
    templates.learn(received, "beta", DEFAULT_LIMITS)
    asked = received.envelope, received.charset, DEFAULT_LIMITS, REPORT
    assert templates.read(*asked) is not None
    assert templates.read(received.envelope, "utf-16", DEFAULT_LIMITS, REPORT) is None
    assert (
        templates.read(received.envelope, received.charset, Limits(header_bytes=9), REPORT) is None
    )
    assert templates.read(*asked[:3], Validation.ENFORCE) is None
    assert learned(received.envelope, CHARSET, Limits(id_length=100), REPORT) is None


def test_a_signature_without_a_value_teaches_nothing() -> None:
    signature = b'<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"/></SOAP:Header>'
    assert learn(envelopes(Dialect.EBMS2)[0].replace(b"</SOAP:Header>", signature)) is None


def test_of_a_signed_message_digests_and_signature_may_differ_and_nothing_else_of_it() -> None:
    order, ack, *_ = signed_envelopes()
    for envelope in (order, ack):
        template = learn(envelope)
        assert template is not None
        ((begin, end),) = spans_of(envelope, b"SignatureValue")
        other = envelope[:begin] + b"QUJD" * 22 + envelope[end:]
        # A key of 256 bits has two equals signs in its signatures.
        assert not agrees(template, other)
        same = envelope[:begin] + b"QUJD" * 21 + b"QQ==" + envelope[end:]
        assert agrees(template, same)
        assert not agrees(template, envelope.replace(b"ecdsa-sha256", b"ecdsa-sha384"))
        assert not agrees(
            template, envelope.replace(b"<ds:X509Certificate>M", b"<ds:X509Certificate>N")
        )


def test_what_a_signed_acknowledgment_has_digests_of_is_read_from_its_slots() -> None:
    _, ack, *_ = signed_envelopes()
    template = learn(ack)
    assert template is not None
    # Those of the acknowledgment come before that of its own signature.
    spans = [s for s in spans_of(ack, b"DigestValue") if s[0] > ack.index(b"<eb:Acknowledgment")][
        :3
    ]
    changed = ack
    for number, (begin, end) in reversed(list(enumerate(spans))):
        digest = base64.b64encode(bytes([number]) * 32)
        changed = changed[:begin] + digest + changed[end:]
    reading = template.read(changed, DEFAULT_LIMITS)
    assert reading == full(changed)
    assert reading is not None
    (said,) = reading.message.acknowledgments
    assert [one.digest_value for one in said.references] == [bytes([n]) * 32 for n in range(3)]


def test_what_a_template_read_is_not_learned_again() -> None:
    received = _read(Dialect.EBMS2)
    templates = EnvelopeTemplates()
    for _ in range(9):
        templates.learn(received, "beta", DEFAULT_LIMITS)
        received = codec.read(received.parcel, templates=templates)
    assert len(templates) == 1


def _shapes(count: int) -> list[Received]:
    return [_read(Dialect.EBMS2, action=f"Action{number}") for number in range(count)]


def test_a_partner_has_his_own_places_and_the_one_used_last_stays() -> None:
    templates = EnvelopeTemplates(TemplateCache(of_one=2))
    first, second, third, other = _shapes(4)
    templates.learn(other, "gamma", DEFAULT_LIMITS)
    templates.learn(first, "beta", DEFAULT_LIMITS)
    templates.learn(second, "beta", DEFAULT_LIMITS)
    assert codec.read(first.parcel, templates=templates).by_template
    # Of what comes after, the fourth is the next one that is learned.
    templates.learn(third, "beta", DEFAULT_LIMITS)
    assert len(templates) == 3
    templates.learn(third, "beta", DEFAULT_LIMITS)
    assert len(templates) == 3
    helped = [
        codec.read(one.parcel, templates=templates).by_template for one in (first, second, third)
    ]
    assert helped == [True, False, True]
    assert codec.read(other.parcel, templates=templates).by_template


def test_the_table_is_bounded() -> None:
    templates = EnvelopeTemplates(TemplateCache(most=3))
    for number, received in enumerate(_shapes(9)):
        templates.learn(received, f"partner {number}", DEFAULT_LIMITS)
        assert codec.read(received.parcel, templates=templates).by_template
    assert len(templates) == 3


def test_who_never_sends_alike_is_seldom_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def counted(envelope: bytes, *_more: object) -> EnvelopeTemplate | None:
        tried.append(envelope)
        return None

    monkeypatch.setattr("oncewire.wire.templates.envelope.learned", counted)
    templates = EnvelopeTemplates()
    received = _read(Dialect.EBMS2)
    for _ in range(1000):
        templates.learn(received, "beta", DEFAULT_LIMITS)
    assert len(tried) == 10


def test_an_envelope_whose_parties_stand_elsewhere_is_left_alone() -> None:
    """What an envelope is found by must be the same in the next one."""
    received = _read(Dialect.EBMS2)
    moved = received.envelope.replace(b"<eb:CPAId>", b"", 1).replace(b"</eb:CPAId>", b"", 1)
    parcel = replace(received, envelope=moved)
    templates = EnvelopeTemplates()
    templates.learn(parcel, "beta", DEFAULT_LIMITS)
    assert len(templates) == 0


def test_templates_can_be_turned_off() -> None:
    off, received = Templates(enabled=False), _read(Dialect.EBMS2)
    off.envelopes.learn(received, "beta", DEFAULT_LIMITS)
    assert len(off.envelopes) == 0
    assert not codec.read(received.parcel, templates=off.envelopes).by_template
