"""After verification a message is read from what was signed and from nothing else."""

import pytest
from msgspec.structs import replace

from oncewire.message.envelope import Actor, Message, Payload
from oncewire.message.form import Dialect
from oncewire.wire import answers, codec, splice
from oncewire.wire.codec import Parcel, Reader, read_verified
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests, digest_names, signature_parts
from oncewire.wire.security.signature import SigningChoice, acknowledged_digests, sign
from tests.wire import samples
from tests.wire.security import keys


def signed(dialect: Dialect, digest: str = "sha256", message: Message | None = None) -> Parcel:
    identity = keys.alpha()

    def signer(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [PartDigests.of(one.content_id, one.data or b"", digest) for one in payloads]
        choice = SigningChoice(signature="ecdsa-sha256", digest=digest)
        return sign(envelope, parts, identity.key, identity.certificate, choice).envelope

    return codec.write(
        message or samples.order_message(dialect), samples.form(dialect), signer=signer
    )


def verify(received: codec.Received) -> signature.Verified:
    trust = Trust(pinned=(keys.alpha().certificate,))
    return signature.verify_signature(received.envelope, signature_parts(received), trust, keys.NOW)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_signed_message_is_read_again_the_same(dialect: Dialect) -> None:
    received = codec.read(signed(dialect))
    assert received.signed
    again = read_verified(received, verify(received))
    assert again.message == received.message
    assert again.envelope == received.envelope


def test_foreign_elements_of_a_signed_message_are_read_too() -> None:
    message = samples.order_message(Dialect.EBMS2)
    message = replace(
        message, header=replace(message.header, foreign=(b'<x:Y xmlns:x="urn:x">z</x:Y>',))
    )
    received = codec.read(signed(Dialect.EBMS2, message=message))
    again = read_verified(received, verify(received))
    assert again.message.header.foreign == (b'<x:Y xmlns:x="urn:x">z</x:Y>',)


def test_a_part_that_nobody_signed_is_left_out() -> None:
    parcel = signed(Dialect.EBMS2)
    mark = parcel.content_type.partition('boundary="')[2].rstrip('"')
    extra = f"--{mark}\r\nContent-ID: <evil@x>\r\n\r\nevil\r\n--{mark}--\r\n".encode()
    body = parcel.body.replace(f"--{mark}--\r\n".encode(), extra)
    received = codec.read(replace(parcel, body=body))
    assert len(received.message.payloads) == 2
    again = read_verified(received, verify(received))
    assert [one.content_id for one in again.message.payloads] == [samples.ORDER.content_id]
    assert any("evil@x" in note for note in again.notes)


@pytest.mark.parametrize("digest", ["sha256", "sha384", "sha512"])
def test_digests_are_kept_while_the_parts_pass_by(digest: str) -> None:
    parcel = signed(Dialect.EBMS2, digest)
    reader = Reader(parcel.content_type, parcel.headers)
    for start in range(0, len(parcel.body), 50):
        reader.feed(parcel.body[start : start + 50])
    _, received = reader.finish()
    assert received.message.payloads[0].data is None
    assert digest_names(received.envelope) == (() if digest == "sha256" else (digest,))
    assert verify(received).signature_name == "ecdsa-sha256"


def test_a_signed_acknowledgement_carries_what_was_signed() -> None:
    received = codec.read(signed(Dialect.EBMS2))
    digests = acknowledged_digests(verify(received).references)
    answer = answers.acknowledgment_for(
        received.message, samples.envelope_for(Dialect.EBMS2), references=digests
    )
    read_back = codec.read(codec.write(answer, samples.form(Dialect.EBMS2)))
    assert read_back.schema_problems == ()
    (element,) = read_back.message.acknowledgments
    assert [one.uri for one in element.references] == ["", "cid:order-1@alpha.example"]
    assert [one.digest_value for one in element.references] == [one.digest_value for one in digests]


def test_hop_blocks_are_read_beside_what_was_signed() -> None:
    received = codec.read(signed(Dialect.EBMS2))
    moved = splice.next_hop(received.envelope, samples.NEXT_HOP, samples.form(Dialect.EBMS2))
    forwarded = replace(received, envelope=moved)
    again = read_verified(forwarded, verify(forwarded))
    assert again.message.routing[-1].sender_uri == samples.NEXT_HOP.sender_uri
    assert {one.actor for one in again.message.ack_requested} == set(Actor)
