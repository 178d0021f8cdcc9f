"""What a mould reads is what the full reader reads, whatever is in the envelope."""

import base64
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.message import Dialect, SequenceNumber, SequenceStatus
from oncewire.message.form import Validation
from oncewire.wire import codec
from oncewire.wire.inspection.capture import CaptureKind, open_capture
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Received
from oncewire.wire.refusal import ReadFault
from oncewire.wire.templates.envelope import (
    ENVELOPE_MAX,
    EnvelopeTemplate,
    EnvelopeTemplates,
    learned,
)
from oncewire.wire.templates.gaps import Field, find_gaps
from tests.wire import samples
from tests.wire.differential.likes import (
    CHARSET,
    REPORT,
    agrees,
    envelopes,
    full,
    learn,
    like,
    signed_envelopes,
)
from tests.wire.samples import corpus_bytes, corpus_messages
from tests.wire.strategies import messages

EACH = pytest.mark.parametrize("dialect", list(Dialect))
CASES = 150
"""Of each envelope; a case takes some fifty microseconds."""


def _read(dialect: Dialect, **header: object) -> Received:
    message = samples.order_message(dialect)
    message = replace(message, header=replace(message.header, **header))
    return codec.read(codec.write(message, samples.form(dialect)))


@pytest.mark.long
@EACH
def test_an_envelope_like_a_learned_one_is_read_alike(dialect: Dialect) -> None:
    read = 0
    for number, envelope in enumerate(envelopes(dialect)):
        mould = learn(envelope)
        assert mould is not None, envelope
        assert agrees(mould, envelope)
        gaps = find_gaps(envelope, dialect)
        for case in range(CASES):
            chance = random.Random(f"{dialect.value}:{number}:{case}")
            read += agrees(mould, like(chance, envelope, gaps))
    # Likenesses that none of them is read from would show nothing.
    assert read > CASES


@pytest.mark.long
@EACH
@settings(max_examples=30)
@given(data=st.data())
def test_any_message_that_can_be_written_is_read_alike(
    data: st.DataObject, dialect: Dialect
) -> None:
    message = data.draw(messages(dialect, typed=False))
    other = data.draw(messages(dialect, typed=False))
    said, more = message.header, other.header
    form = samples.form(dialect)
    mould = learn(codec.write_envelope(message, form))
    if mould is None:
        return
    changed = replace(
        said,
        message_id=more.message_id,
        conversation_id=more.conversation_id,
        timestamp=more.timestamp,
        time_to_live=said.time_to_live and more.timestamp,
    )
    for each in (message, replace(message, header=changed), other):
        agrees(mould, codec.write_envelope(each, form))


@pytest.mark.long
def test_the_corpus_is_read_alike(corpus: Path) -> None:
    learned_of = hits = 0
    for path in corpus_messages(corpus):
        try:
            capture = open_capture(corpus_bytes(corpus, path))
            if capture.kind is CaptureKind.XML:
                received = codec.read_header(capture.parcel.body)
            else:
                received = codec.read(capture.parcel)
        except ReadFault:
            continue
        mould = learn(received.envelope, received.charset)
        if mould is None:
            continue
        learned_of += 1
        assert agrees(mould, received.envelope, received.charset)
        gaps = find_gaps(received.envelope, received.dialect)
        for case in range(CASES):
            changed = like(random.Random(f"{path}:{case}"), received.envelope, gaps)
            hits += agrees(mould, changed, received.charset)
    assert learned_of > 10
    assert hits > learned_of


@EACH
def test_the_usual_fields_may_differ(dialect: Dialect) -> None:
    moulds = EnvelopeTemplates()
    moulds.learn(_read(dialect), "beta", DEFAULT_LIMITS)
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
        moulds.learn(codec.read(codec.write(changed, samples.form(dialect))), "x", DEFAULT_LIMITS)
    parcel = codec.write(changed, samples.form(dialect))
    found = codec.read(parcel, moulds=moulds)
    assert found.moulded
    assert replace(found, moulded=False) == codec.read(parcel)
    assert moulds.hits == 1


def test_a_number_beyond_its_rules_is_left_to_the_full_reader() -> None:
    message = samples.order_message(Dialect.EBMS2)
    numbered = replace(message, order=SequenceNumber(7))
    envelope = codec.write_envelope(numbered, samples.form(Dialect.EBMS2))
    mould = learn(envelope)
    assert mould is not None
    assert agrees(mould, envelope.replace(b">7</", b">99999999</"))
    beyond = envelope.replace(b">7</", b">100000000</")
    assert full(beyond) is None
    assert mould.read(beyond, DEFAULT_LIMITS) is None


def test_a_reset_has_no_gap_for_its_number() -> None:
    message = samples.order_message(Dialect.EBMS2)
    reset = replace(message, order=SequenceNumber(0, SequenceStatus.RESET))
    envelope = codec.write_envelope(reset, samples.form(Dialect.EBMS2))
    mould = learn(envelope)
    assert mould is not None
    assert mould.read(envelope.replace(b">0</", b">1</"), DEFAULT_LIMITS) is None


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
        (b"<eb:CPAId>", b"<eb:Description xml:lang='en'>" + b"x" * ENVELOPE_MAX),
    ],
)
def test_what_may_not_be_learned(old: bytes, new: bytes) -> None:
    message = samples.order_message(Dialect.EBMS2)
    said = replace(message.header, message_id="m-1@alpha.example")
    envelope = codec.write_envelope(replace(message, header=said), samples.form(Dialect.EBMS2))
    assert learn(envelope) is not None
    assert old in envelope
    assert learn(envelope.replace(old, new, 1)) is None


def test_a_value_that_the_reader_takes_from_elsewhere_is_found_out() -> None:
    """A hop beside the list counts as the last, wherever it stands; the trial shows it."""
    envelope = envelopes(Dialect.MS_09X)[0]
    begin, end = envelope.index(b"<RoutingHeader "), envelope.index(b"</RoutingHeaderList>")
    hop = envelope[begin:end].replace(b"http://hub.example", b"http://other.example")
    changed = envelope.replace(b"<RoutingHeaderList>", hop + b"<RoutingHeaderList>", 1)
    reading = full(changed)
    assert reading is not None
    assert reading.message.routing[1].receiver_uri == "http://other.example/msh"
    assert learn(changed) is None


def test_two_references_are_not_learned() -> None:
    """Which of them counts depends on what the acknowledgement says, so it is no plain field."""
    answer = next(one for one in envelopes(Dialect.EBMS2) if b"<eb:Acknowledgment" in one)
    mark = b"<eb:RefToMessageId>"
    twice = answer.replace(mark, mark + b"other</eb:RefToMessageId>" + mark, 1)
    assert full(twice) is not None
    assert learn(twice) is None


def test_a_gap_is_told_by_its_place_and_not_by_its_value() -> None:
    envelope = envelopes(Dialect.EBMS2)[0]
    gap = next(g for g in find_gaps(envelope, Dialect.EBMS2) if g.field is Field.MESSAGE_ID)
    message_id = envelope[gap.begin : gap.end]
    same = envelope.replace(b"<eb:Action>", b"<eb:Action>" + message_id, 1)
    mould = learn(same)
    assert mould is not None
    reading = mould.read(same.replace(message_id + b"</eb:MessageId>", b"o</eb:MessageId>"), _D)
    assert reading is not None
    assert reading.message.header.message_id == "o"
    assert (reading.message.header.action or "").startswith(message_id.decode())


_D = DEFAULT_LIMITS


def test_other_limits_and_other_charsets_are_other_questions() -> None:
    received = _read(Dialect.EBMS2)
    moulds = EnvelopeTemplates()
    moulds.learn(received, "beta", DEFAULT_LIMITS)
    asked = received.envelope, received.charset, DEFAULT_LIMITS, REPORT
    assert moulds.read(*asked) is not None
    assert moulds.read(received.envelope, "utf-16", DEFAULT_LIMITS, REPORT) is None
    assert moulds.read(received.envelope, received.charset, Limits(header_bytes=9), REPORT) is None
    assert moulds.read(*asked[:3], Validation.ENFORCE) is None
    assert learned(received.envelope, CHARSET, Limits(id_length=100), REPORT) is None


def test_a_signature_without_a_value_teaches_nothing() -> None:
    signature = b'<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"/></SOAP:Header>'
    assert learn(envelopes(Dialect.EBMS2)[0].replace(b"</SOAP:Header>", signature)) is None


def test_of_a_signed_message_digests_and_signature_may_differ_and_nothing_else_of_it() -> None:
    order, ack, *_ = signed_envelopes()
    for envelope in (order, ack):
        mould = learn(envelope)
        assert mould is not None
        gaps = find_gaps(envelope, Dialect.EBMS2)
        value = next(gap for gap in gaps if gap.field is Field.SIGNATURE_VALUE)
        other = envelope[: value.begin] + b"QUJD" * 22 + envelope[value.end :]
        # A key of 256 bits has two equals signs in its signatures.
        assert not agrees(mould, other)
        same = envelope[: value.begin] + b"QUJD" * 21 + b"QQ==" + envelope[value.end :]
        assert agrees(mould, same)
        assert not agrees(mould, envelope.replace(b"ecdsa-sha256", b"ecdsa-sha384"))
        assert not agrees(
            mould, envelope.replace(b"<ds:X509Certificate>M", b"<ds:X509Certificate>N")
        )


def test_what_a_signed_acknowledgement_has_digests_of_is_read_from_its_gaps() -> None:
    _, ack, *_ = signed_envelopes()
    mould = learn(ack)
    assert mould is not None
    gaps = [gap for gap in find_gaps(ack, Dialect.EBMS2) if gap.field is Field.ACK_DIGEST]
    assert len(gaps) == 3
    changed = ack
    for number, gap in reversed(list(enumerate(gaps))):
        digest = base64.b64encode(bytes([number]) * 32)
        changed = changed[: gap.begin] + digest + changed[gap.end :]
    reading = mould.read(changed, DEFAULT_LIMITS)
    assert reading == full(changed)
    assert reading is not None
    (said,) = reading.message.acknowledgments
    assert [one.digest_value for one in said.references] == [bytes([n]) * 32 for n in range(3)]


def test_what_a_mould_read_is_not_learned_again() -> None:
    received = _read(Dialect.EBMS2)
    moulds = EnvelopeTemplates()
    for _ in range(9):
        moulds.learn(received, "beta", DEFAULT_LIMITS)
        received = codec.read(received.parcel, moulds=moulds)
    assert len(moulds) == 1


def _shapes(count: int) -> list[Received]:
    return [_read(Dialect.EBMS2, action=f"Action{number}") for number in range(count)]


def test_a_partner_has_his_own_places_and_the_one_used_last_stays() -> None:
    moulds = EnvelopeTemplates(of_one=2)
    first, second, third, other = _shapes(4)
    moulds.learn(other, "gamma", DEFAULT_LIMITS)
    moulds.learn(first, "beta", DEFAULT_LIMITS)
    moulds.learn(second, "beta", DEFAULT_LIMITS)
    assert codec.read(first.parcel, moulds=moulds).moulded
    # Of what comes after, the fourth is the next one that is learned.
    moulds.learn(third, "beta", DEFAULT_LIMITS)
    assert len(moulds) == 3
    moulds.learn(third, "beta", DEFAULT_LIMITS)
    assert len(moulds) == 3
    helped = [codec.read(one.parcel, moulds=moulds).moulded for one in (first, second, third)]
    assert helped == [True, False, True]
    assert codec.read(other.parcel, moulds=moulds).moulded


def test_the_table_is_bounded() -> None:
    moulds = EnvelopeTemplates(most=3)
    for number, received in enumerate(_shapes(9)):
        moulds.learn(received, f"partner {number}", DEFAULT_LIMITS)
        assert codec.read(received.parcel, moulds=moulds).moulded
    assert len(moulds) == 3


def test_who_never_sends_alike_is_seldom_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def counted(envelope: bytes, *_more: object) -> EnvelopeTemplate | None:
        tried.append(envelope)
        return None

    monkeypatch.setattr("oncewire.wire.templates.envelope.learned", counted)
    moulds = EnvelopeTemplates()
    received = _read(Dialect.EBMS2)
    for _ in range(1000):
        moulds.learn(received, "beta", DEFAULT_LIMITS)
    assert len(tried) == 10


def test_an_envelope_whose_parties_stand_elsewhere_is_left_alone() -> None:
    """What an envelope is found by must be the same in the next one."""
    received = _read(Dialect.EBMS2)
    moved = received.envelope.replace(b"<eb:CPAId>", b"", 1).replace(b"</eb:CPAId>", b"", 1)
    parcel = replace(received, envelope=moved)
    moulds = EnvelopeTemplates()
    moulds.learn(parcel, "beta", DEFAULT_LIMITS)
    assert len(moulds) == 0
