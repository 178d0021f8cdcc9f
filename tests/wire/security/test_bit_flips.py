"""Any single bit of a signed message may flip: it is refused, or nothing that is read changes."""

from collections.abc import Iterable

import pytest

from oncewire.errors import SecurityFailure
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, Verified
from tests.wire.security import documents, keys
from tests.wire.security.documents import PART_ID

SIZE = 4096
_PART = b"<order>" + b"<line>7 boxes</line>" * 20 + b"</order>"


def _message() -> tuple[bytes, bytes]:
    """Envelope and part, 4,096 bytes together."""
    who = keys.alpha()
    part = PartDigests.of(PART_ID, _PART, "sha256")

    def sign(padding: str) -> bytes:
        given = documents.envelope(padding=padding)
        return signature.sign(
            given, [part], who.key, who.certificate, SigningChoice("ecdsa-sha256")
        ).envelope

    envelope = sign("." * (SIZE - len(sign("")) - len(_PART)))
    assert len(envelope) + len(_PART) == SIZE
    return envelope, _PART


def _values(verified: Verified) -> tuple[object, ...]:
    """Everything a handler reads from a verified message."""
    return (
        verified.octets,
        verified.readable,
        verified.certificate,
        verified.signature_name,
        verified.references,
        verified.unsigned_parts,
        verified.hop_blocks,
    )


def _flip(octets: bytes, bit: int) -> bytes:
    flipped = bytearray(octets)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def _check(bits: Iterable[int]) -> tuple[int, int]:
    """How many flips were refused, and how many changed nothing that is read."""
    envelope, content = _message()
    trust = Trust((keys.alpha().certificate,))

    def verify(envelope: bytes, content: bytes) -> Verified:
        parts = [PartDigests.of(PART_ID, content, "sha256")]
        return signature.verify_signature(envelope, parts, trust, keys.NOW)

    good = _values(verify(envelope, content))
    refused = equal = 0
    for bit in bits:
        flipped = _flip(envelope + content, bit)
        try:
            found = verify(flipped[: len(envelope)], flipped[len(envelope) :])
        except SecurityFailure:
            refused += 1
            continue
        assert _values(found) == good, f"bit {bit}"
        equal += 1
    return refused, equal


@pytest.mark.long
def test_a_bit_flip_in_every_byte() -> None:
    # One bit of each byte, another one from byte to byte; the soak run takes all eight.
    refused, equal = _check(byte * 8 + byte % 8 for byte in range(SIZE))
    print(f"{refused} refused, {equal} without effect")
    assert refused + equal == SIZE
    assert equal < 20


@pytest.mark.soak
def test_every_bit_flip() -> None:
    refused, equal = _check(range(SIZE * 8))
    print(f"{refused} refused, {equal} without effect")
    assert refused + equal == SIZE * 8
    # What has no effect is white space around the declaration and spare bits of base64.
    assert equal < 40
