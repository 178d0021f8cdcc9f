"""A splice changes one block; every byte outside it is equal, and signatures still hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import OtherXml
from oncewire.message.envelope import Message, Payload, RoutingHeader
from oncewire.message.form import AckRequest, Dialect, Form
from oncewire.message.ids import PartyId
from oncewire.wire import codec, splice
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests, signature_parts
from oncewire.wire.security.signature import SigningChoice, sign
from oncewire.wire.splice import with_envelope
from tests.examples import examples
from tests.wire import samples
from tests.wire.roots import envelope_of
from tests.wire.security import keys
from tests.wire.strategies import messages


def _outside(before: bytes, after: bytes) -> tuple[bytes, bytes, bytes]:
    """What is equal at both ends, and what of `after` lies between."""
    front = 0
    while front < min(len(before), len(after)) and before[front] == after[front]:
        front += 1
    back = 0
    while back < min(len(before), len(after)) - front and before[-1 - back] == after[-1 - back]:
        back += 1
    return after[:front], after[front : len(after) - back], after[len(after) - back :]


@pytest.mark.long
@pytest.mark.requirement("HOP-2", "HOP-3")
@pytest.mark.parametrize("dialect", list(Dialect))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_the_next_hop_changes_its_own_blocks_only(data: st.DataObject, dialect: Dialect) -> None:
    message = data.draw(messages(dialect))
    form = samples.form(dialect)
    parcel = codec.write(message, form, mail=data.draw(st.booleans()))
    received = codec.read(parcel)
    envelope = splice.next_hop(received.envelope, samples.NEXT_HOP, form)
    forwarded = codec.read(with_envelope(parcel, envelope))
    assert forwarded.envelope == envelope
    assert forwarded.message.payloads == message.payloads
    # Everything but what belongs to the hop is the same value.
    assert replace(forwarded.message, routing=(), ack_requested=()) == replace(
        message, routing=(), ack_requested=()
    ) or _differs_by_semantics(forwarded.message, message)
    hop = forwarded.message.routing[-1]
    if dialect is Dialect.RM_078:
        assert hop.sender_id == samples.NEXT_HOP.sender_id
        assert len(forwarded.message.routing) == 1
    else:
        assert hop.sender_uri == samples.NEXT_HOP.sender_uri
        assert len(forwarded.message.routing) == len(message.routing) + 1
    assert hop.sequence is not None
    assert hop.sequence.number == 4711


def _differs_by_semantics(one: Message, other: Message) -> bool:
    # In ebMS 2.0 the wish of the next hop decides whether a header without
    # DuplicateElimination is best effort; nothing else may differ.
    return replace(
        one, routing=(), ack_requested=(), header=replace(one.header, semantics=None)
    ) == replace(other, routing=(), ack_requested=(), header=replace(other.header, semantics=None))


@pytest.mark.parametrize("dialect", [Dialect.MS_09X, Dialect.RM_078])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_bytes_outside_the_range_are_equal(data: st.DataObject, dialect: Dialect) -> None:
    message = data.draw(messages(dialect))
    before = codec.write_envelope(message, samples.form(dialect))
    where = splice.layout(before)
    after = splice.next_hop(before, samples.NEXT_HOP, samples.form(dialect))
    if dialect is Dialect.RM_078:
        block = where.named("RoutingHeader", 2)
        assert block is not None
        start, end = block.start, block.end
    elif (listed := where.named("RoutingHeaderList", 2)) is not None:
        start = end = listed.inner_end
    else:
        header = where.named("Header", 2)
        assert header is not None
        start = end = header.end
    assert after[:start] == before[:start]
    assert after[len(after) - (len(before) - end) :] == before[end:]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_signature_outlives_the_hop(dialect: Dialect) -> None:
    identity = keys.alpha()
    message = samples.order_message(dialect)
    form = samples.form(dialect)

    def signer(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [PartDigests.of(one.content_id, one.data or b"", "sha256") for one in payloads]
        choice = SigningChoice(signature="ecdsa-sha256")
        return sign(envelope, parts, identity.key, identity.certificate, choice).envelope

    parcel = codec.write(message, form, signer=signer)
    received = codec.read(parcel)
    assert received.signed
    moved = with_envelope(parcel, splice.next_hop(received.envelope, samples.NEXT_HOP, form))
    forwarded = codec.read(moved)
    assert forwarded.envelope != received.envelope
    verified = signature.verify_signature(
        forwarded.envelope,
        signature_parts(forwarded),
        Trust(pinned=(identity.certificate,)),
        keys.NOW,
    )
    assert verified.certificate == identity.certificate


def test_foreign_elements_and_odd_spelling_survive_a_hop() -> None:
    header = (
        b'<?xml version="1.0"?>\n<!-- keep me -->\n'
        b"<e:ebXMLHeader xmlns:e='http://www.ebxml.org/namespaces/messageHeader' version='0.93'>\n"
        b"  <e:Header  >\t<e:From><e:PartyId type = 'DUNS'>1</e:PartyId></e:From>"
        b"<e:To><e:PartyId type='DUNS'>2</e:PartyId></e:To><e:CPAId>c</e:CPAId>"
        b"<e:ConversationId>v</e:ConversationId><e:Service>urn:s</e:Service><e:Action>a</e:Action>"
        b"<e:MessageData><e:MessageId>m</e:MessageId><e:Timestamp>2001-02-12T10:00:00Z"
        b"</e:Timestamp></e:MessageData><x:Odd xmlns:x='urn:x'/></e:Header>\n"
        b"  <e:RoutingHeaderList/><?pi keep?>\n</e:ebXMLHeader>\n"
    )
    after = splice.next_hop(header, samples.NEXT_HOP, samples.form(Dialect.MS_09X))
    assert after.startswith(header[: header.index(b"<e:RoutingHeaderList/>")])
    assert after.endswith(header[header.index(b"<?pi") :])
    read = codec.read_header(after).message
    assert read.routing[-1].sender_uri == samples.NEXT_HOP.sender_uri
    assert read.header.foreign == (b"<x:Odd xmlns:x='urn:x'/>",)


def test_a_header_without_namespace_stays_without() -> None:
    parcel = samples.written(Dialect.RM_078)
    envelope = envelope_of(parcel)
    after = splice.next_hop(envelope, samples.NEXT_HOP, samples.form(Dialect.RM_078))
    assert b"xmlns=" not in after[after.index(b"<RoutingHeader") :]


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig", "utf8", "latin-1"])
def test_other_encodings_are_spliced_in_their_own(encoding: str) -> None:
    envelope = codec.write_envelope(
        samples.order_message(Dialect.MS_09X), samples.form(Dialect.MS_09X)
    ).decode()
    name = encoding.removesuffix("-sig")
    before = envelope.replace("UTF-8", name).replace("conv-77", "conv-é").encode(encoding)
    hop = replace(samples.NEXT_HOP, sender_uri="http://hüb.example/")
    after = splice.next_hop(before, hop, samples.form(Dialect.MS_09X))
    front, inserted, back = _outside(before, after)
    assert len(front) + len(back) == len(before)
    assert inserted
    read = codec.read_header(after).message
    assert read.header.conversation_id == "conv-é"
    assert read.routing[-1].sender_uri == "http://hüb.example/"


def test_a_hop_never_touches_what_the_to_party_is_asked() -> None:
    envelope = samples.soap(samples.MESSAGE_HEADER + samples.ACK_REQUESTED)
    hop = replace(samples.NEXT_HOP, ack_requested=AckRequest.NONE)
    assert splice.next_hop(envelope, hop, Form()) == envelope


def test_the_wish_of_the_last_hop_is_not_passed_on() -> None:
    envelope = samples.soap(
        samples.MESSAGE_HEADER
        + samples.ACK_REQUESTED.replace("toPartyMSH", "nextMSH")
        + samples.ACK_REQUESTED
    )
    hop = replace(samples.NEXT_HOP, ack_requested=AckRequest.NONE)
    after = splice.next_hop(envelope, hop, Form())
    assert after == samples.soap(samples.MESSAGE_HEADER + samples.ACK_REQUESTED)


def test_a_quoted_printable_header_is_spliced_too() -> None:
    envelope = samples.soap(samples.MESSAGE_HEADER)
    quoted = envelope.replace(b"=", b"=3D")
    body = (
        b"--B\r\nContent-ID: <h>\r\nContent-Type: text/xml\r\n"
        b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + quoted + b"\r\n--B--\r\n"
    )
    parcel = codec.Parcel('multipart/related; boundary="B"; start="<h>"', body)
    assert envelope_of(parcel) == envelope
    after = with_envelope(parcel, envelope.replace(b"conv-77", b"conv-78"))
    assert codec.read(after).message.header.conversation_id == "conv-78"
    assert after.body.startswith(body[: body.index(b"\r\n\r\n") + 4])


def test_a_root_part_that_is_not_first_is_found_by_start() -> None:
    envelope = samples.soap(samples.MESSAGE_HEADER)
    body = (
        b"--B\nContent-ID: <p>\n\nfirst\n--B\nContent-ID: <h>\nContent-Type: text/xml\n\n"
        + envelope
        + b"\n--B--"
    )
    parcel = codec.Parcel('multipart/related; boundary=B; start="<h>"', body)
    after = with_envelope(parcel, envelope + b" ")
    assert after.body == body.replace(envelope, envelope + b" ")
    assert codec.read(after).message.payloads[0].data == b"first"


def test_what_is_not_xml_cannot_be_spliced() -> None:
    with pytest.raises(OtherXml):
        splice.layout(b"<a><b></a>")


def test_v0_078_names_the_ends_of_a_hop_by_uri_when_it_has_no_id() -> None:
    envelope = codec.write_envelope(
        samples.order_message(Dialect.RM_078), samples.form(Dialect.RM_078)
    )
    hop = RoutingHeader("http://hub", "http://end", timestamp=samples.NOW)
    read = codec.read_header(splice.next_hop(envelope, hop, samples.form(Dialect.RM_078))).message
    assert read.routing[0].sender_id == PartyId("http://hub")
