"""Any message survives writing and reading in every dialect that can carry it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from msgspec.structs import replace

from oncewire.agreement.compose import profile_values
from oncewire.errors import InvalidValue
from oncewire.lab.simulation.draw import DIALECTS
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    Split,
)
from oncewire.message.form import _CARRIES, AckRequest, Dialect, Extension, Form, SyncReplyMode
from oncewire.wire import codec, header, inspection
from oncewire.wire.codec import Reader
from oncewire.wire.mime.multipart import bundle
from oncewire.wire.reader import PayloadData, PayloadEnded
from tests.examples import examples
from tests.wire import samples
from tests.wire.strategies import messages, some_messages

# A message has many values, and drawing them costs more than writing and reading them.
EXAMPLES = 60
CASES = [
    pytest.param(Dialect.EBMS2, False, id="ebms2"),
    pytest.param(Dialect.MS_09X, False, id="ms-0.9x"),
    pytest.param(Dialect.MS_09X, True, id="ms-0.9x typed"),
    pytest.param(Dialect.RM_078, False, id="rm-0.78"),
]


def test_every_dialect_has_its_places() -> None:
    every, drafts = set(Dialect), set(Dialect) - {Dialect.EBMS2}
    assert set(header.READERS) == set(header.WRITERS) == set(_CARRIES) == every
    assert set(codec._DRAFT_TYPES) == drafts
    assert {case.values[0] for case in CASES} == every
    drawn = {profile_values(name)["wire.dialect"].value for name in DIALECTS}
    assert drawn == every


def _both_ways(message: Message, form: Form, *, mail: bool) -> None:
    parcel = codec.write(message, form, mail=mail)
    received = codec.read(parcel)
    assert received.message == message
    assert [one.data for one in received.message.payloads] == [one.data for one in message.payloads]
    assert received.dialect is message.dialect
    # Written once more, it is the same bytes: nothing was added or lost on the way.
    assert codec.write(received.message, form, mail=mail) == parcel


@pytest.mark.requirement("HDR-7")
@pytest.mark.parametrize(("dialect", "typed"), CASES)
@settings(max_examples=examples(EXAMPLES))
@given(data=st.data())
def test_what_is_written_is_read(data: st.DataObject, dialect: Dialect, typed: bool) -> None:
    message = data.draw(messages(dialect, typed=typed))
    form = samples.form(dialect, ack_typed=typed)
    _both_ways(message, form, mail=data.draw(st.booleans()))


@pytest.mark.parametrize(
    ("name", "default"),
    list(zip(Header.__struct_fields__[::-1], Header.__struct_defaults__[::-1], strict=False)),
)
def test_every_optional_value_of_a_header_is_drawn_and_shown(name: str, default: object) -> None:
    """A value that `tests/wire/strategies.py` never draws would be lost unseen."""
    drawn = [message for dialect in Dialect for message in some_messages(dialect)]
    found = [message for message in drawn if getattr(message.header, name) != default]
    assert found
    for message in found:
        without = replace(message, header=replace(message.header, **{name: default}))
        assert inspection.describe_message(message) != inspection.describe_message(without)


@pytest.mark.long
@pytest.mark.parametrize(("dialect", "typed"), CASES)
@settings(max_examples=examples(EXAMPLES))
@given(data=st.data())
def test_any_cut_into_pieces_gives_the_same(
    data: st.DataObject, dialect: Dialect, typed: bool
) -> None:
    message = data.draw(messages(dialect, typed=typed))
    form = samples.form(dialect, ack_typed=typed)
    parcel = codec.write(message, form, mail=data.draw(st.booleans()))
    reader = Reader(parcel.content_type, parcel.headers)
    size = data.draw(st.sampled_from([1, 2, 3, 7, 64, 1000]))
    events = []
    for start in range(0, len(parcel.body), size):
        events.extend(reader.feed(parcel.body[start : start + size]))
    last, received = reader.finish()
    events.extend(last)
    whole = codec.read(parcel)
    assert (
        replace(
            received,
            parcel=parcel,
            message=replace(received.message, payloads=whole.message.payloads),
        )
        == whole
    )
    passed = b"".join(event.data for event in events if isinstance(event, PayloadData))
    assert passed == b"".join(one.data or b"" for one in message.payloads)
    ended = [event.payload for event in events if isinstance(event, PayloadEnded)]
    assert [(one.content_id, one.size, one.digest) for one in ended] == [
        (one.content_id, one.size, one.digest) for one in message.payloads
    ]


@settings(max_examples=examples(EXAMPLES))
@given(data=st.data())
def test_everything_written_in_ebms2_is_valid(corpus: Path, data: st.DataObject) -> None:
    schema = _official(corpus)
    message = data.draw(messages(Dialect.EBMS2))
    root = etree.fromstring(codec.write_envelope(message, samples.form(Dialect.EBMS2)))
    assert schema.validate(root), schema.error_log


_SCHEMAS: dict[Path, etree.XMLSchema] = {}


def _official(corpus: Path) -> etree.XMLSchema:
    path = corpus / "ebms-core/xsd/msg-header-2_0.xsd"
    if path not in _SCHEMAS:
        _SCHEMAS[path] = etree.XMLSchema(etree.parse(str(path)))
    return _SCHEMAS[path]


@pytest.mark.requirement("SYNC-8")
@settings(max_examples=examples(EXAMPLES // 3))
@given(data=st.data())
def test_concatenated_messages_are_read_one_by_one(data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(list(Dialect)))
    drawn = data.draw(st.lists(messages(dialect), min_size=2, max_size=3))
    form = samples.form(dialect)
    together = bundle([codec.write(one, form) for one in drawn])
    assert [one.message for one in codec.read_all(together)] == drawn


def test_a_message_alone_is_read_alone() -> None:
    parcel = samples.written(Dialect.EBMS2)
    assert [one.message for one in codec.read_all(parcel)] == [codec.read(parcel).message]


def test_a_single_message_under_the_wrong_subtype_is_one_message() -> None:
    parcel = samples.written(Dialect.EBMS2)
    wrong = replace(
        parcel, content_type=parcel.content_type.replace("multipart/related", "multipart/mixed")
    )
    (only,) = codec.read_all(wrong)
    assert only.message == codec.read(parcel).message


# What the values imply in each dialect (docs/explanation/decisions.md#values-on-the-wire)


def test_reliable_semantics_become_elimination_and_an_acknowledgement() -> None:
    message = replace(samples.order_message(Dialect.EBMS2), routing=())
    read = codec.read(codec.write(message, Form())).message
    assert read.header.duplicate_elimination
    assert read.ack_requested == (AckRequested(Actor.TO_PARTY_MSH, signed=False),)
    assert read.header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE


def test_the_wishes_of_hop_and_receipt_become_ack_requested() -> None:
    message = samples.order_message(Dialect.EBMS2)
    message = replace(
        message,
        header=replace(message.header, delivery_receipt_requested=AckRequest.SIGNED),
    )
    read = codec.read(codec.write(message, samples.form(Dialect.EBMS2))).message
    assert read.asks_ack_of(Actor.TO_PARTY_MSH) is AckRequest.SIGNED
    assert read.asks_ack_of(Actor.NEXT_MSH) is AckRequest.UNSIGNED


def test_ack_requested_becomes_the_wishes_of_hop_and_receipt() -> None:
    message = replace(
        samples.order_message(Dialect.MS_09X),
        ack_requested=(AckRequested(Actor.NEXT_MSH, True), AckRequested(Actor.TO_PARTY_MSH)),
    )
    read = codec.read(codec.write(message, samples.form(Dialect.MS_09X))).message
    assert read.routing[-1].ack_requested is AckRequest.SIGNED
    assert read.header.delivery_receipt_requested is AckRequest.UNSIGNED


def test_extensions_travel_only_when_agreed() -> None:
    message = samples.order_message(Dialect.EBMS2)
    plain = codec.write_envelope(message, Form())
    assert b"urn:oncewire" not in plain
    agreed = codec.write_envelope(message, Form(extensions=frozenset({Extension.ROUTING})))
    assert b"RoutingHeaderList" in agreed
    assert b"HopSequence" not in agreed


@pytest.mark.parametrize(
    ("dialect", "change"),
    [
        (Dialect.EBMS2, {"split": Split("s", 1, 2)}),
        (Dialect.RM_078, {"sync_reply_as_agreed": True}),
        (Dialect.RM_078, {"sync_reply": SyncReplyMode.RESPONSE_ONLY}),
        (Dialect.MS_09X, {"sync_reply_as_agreed": True}),
        (Dialect.MS_09X, {"sync_reply": SyncReplyMode.SIGNALS_ONLY}),
        (Dialect.MS_09X, {"service": None}),
        (Dialect.RM_078, {"action": None}),
        (Dialect.EBMS2, {"service": None}),
        (Dialect.EBMS2, {"message_id": " space"}),
        (Dialect.EBMS2, {"descriptions": (("en", "bell\x07"),)}),
        (Dialect.EBMS2, {"descriptions": (("en", ""),)}),
        (Dialect.EBMS2, {"foreign": (b"<a:b>not bound</a:b>",)}),
        (Dialect.EBMS2, {"foreign": (b"<plain/>",)}),
        (Dialect.MS_09X, {"foreign": (b"<!DOCTYPE a []><a xmlns='urn:a'/>",)}),
        (Dialect.EBMS2, {"service": samples.Service("not a uri")}),
        (Dialect.EBMS2, {"from_party": samples.Party.of("not a uri")}),
        (Dialect.MS_09X, {"from_party": samples.Party.of("not a uri")}),
        (Dialect.RM_078, {"from_party": samples.Party.of("not a uri")}),
    ],
)
def test_what_a_dialect_cannot_say_is_refused(dialect: Dialect, change: dict[str, object]) -> None:
    message = samples.order_message(dialect)
    message = replace(message, header=replace(message.header, **change))  # type: ignore[arg-type]
    with pytest.raises(InvalidValue) as caught:
        codec.write(message, Form(dialect))
    assert caught.value.remedy


def test_the_dialect_is_the_agreements() -> None:
    with pytest.raises(InvalidValue, match="agreement says"):
        codec.write(samples.order_message(Dialect.MS_09X), Form(Dialect.EBMS2))


@pytest.mark.parametrize(
    "kind",
    [MessageKind.PING, MessageKind.PONG, MessageKind.STATUS_REQUEST, MessageKind.STATUS_RESPONSE],
)
def test_v0_078_has_no_services(kind: MessageKind) -> None:
    message = replace(samples.order_message(Dialect.RM_078, ()), kind=kind)
    with pytest.raises(InvalidValue, match=r"rm-0\.78 has no"):
        codec.write(message, Form(Dialect.RM_078))


def test_a_payload_without_reference_gets_one() -> None:
    odd = Payload.of("a b/c%41@x", "text/plain", b"x")
    parcel = codec.write(replace(samples.order_message(Dialect.EBMS2), payloads=(odd,)), Form())
    read = codec.read(parcel).message
    assert read.manifest[0].href == "cid:a%20b/c%2541@x"
    assert read.payloads[0].content_id == odd.content_id


def test_a_boundary_may_be_given_but_not_one_that_occurs() -> None:
    message = samples.order_message(Dialect.EBMS2)
    parcel = codec.write(message, Form(), boundary="B1")
    assert b"\r\n--B1--\r\n" in parcel.body
    assert codec.read(parcel).message.payloads == message.payloads
    payload = Payload.of("x@x", "text/plain", b"\r\n--B1\r\n")
    with pytest.raises(InvalidValue, match="boundary"):
        codec.write(replace(message, payloads=(payload,)), Form(), boundary="B1")
    with pytest.raises(InvalidValue, match="boundary"):
        codec.write(message, Form(), boundary="B1\r\nX: y")
    telling = replace(message, header=replace(message.header, conversation_id="--B1"))
    with pytest.raises(InvalidValue, match="boundary"):
        codec.write(telling, Form(), boundary="B1")


def test_the_same_message_has_the_same_bytes() -> None:
    message = samples.order_message(Dialect.MS_09X, (samples.ORDER, samples.PICTURE))
    form = samples.form(Dialect.MS_09X)
    assert codec.write(message, form) == codec.write(message, form)


def test_soap_action_is_a_template_of_the_agreement() -> None:
    message = samples.order_message(Dialect.EBMS2)
    assert codec.write(message, Form()).header("soapaction") == '"ebXML"'
    spine = Form(soap_action="{service}/{action}")
    assert codec.write(message, spine).header("SOAPAction") == "urn:ex:orders/PlaceOrder"
    draft = codec.write(samples.order_message(Dialect.MS_09X), Form(Dialect.MS_09X))
    assert draft.header("SOAPAction") is None


def test_a_signer_sees_the_envelope_and_the_payloads() -> None:
    seen = []

    def signer(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        seen.append((envelope, payloads))
        return envelope.replace(b"</SOAP:Header>", b"<!--signed--></SOAP:Header>")

    message = samples.order_message(Dialect.EBMS2)
    parcel = codec.write(message, Form(), signer=signer)
    assert seen[0][1] == message.payloads
    assert b"<!--signed-->" in parcel.body
    assert codec.read(parcel).message.payloads == message.payloads


def test_several_payloads_of_a_draft_share_one_container() -> None:
    parcel = samples.written(Dialect.MS_09X, (samples.ORDER, samples.PICTURE))
    assert parcel.body.count(b"multipart/mixed") == 1
    assert codec.read(parcel).message.payloads == (samples.ORDER, samples.PICTURE)


def test_an_acknowledgement_of_ebms2_travels_as_plain_xml() -> None:
    parcel = codec.write(replace(samples.order_message(Dialect.EBMS2), payloads=()), Form())
    assert parcel.content_type == "text/xml; charset=UTF-8"
    draft = codec.write(samples.order_message(Dialect.MS_09X, ()), Form(Dialect.MS_09X))
    assert draft.content_type.startswith('multipart/related; type="application/vnd.eb+xml"')
