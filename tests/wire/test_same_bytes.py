"""What is read and written stays the same, byte for byte, as the digests in `same_bytes.json` say.

`python -m tests.wire.test_same_bytes` records them anew, after a change that means to alter bytes.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from oncewire.errors import EbxmlError, Inconsistent, OncewireError, SoapFault
from oncewire.message.envelope import Actor, Payload
from oncewire.message.form import Dialect
from oncewire.wire import answers, codec, inspection, soap, splice
from oncewire.wire.inspection import CaptureKind, open_capture
from oncewire.wire.parcel import Parcel, ReadFault, Received
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.encryption import EncryptionChoice, encrypt_chunks
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, computed_references, sign
from tests import parts
from tests.fuzz import seeds
from tests.wire import samples
from tests.wire.security import keys

RECORD = Path(__file__).with_name("same_bytes.json")
EACH = pytest.mark.parametrize("dialect", list(Dialect))

# The primes of a key that is the same in each run, so that its signatures are too (PKCS #1).
_P = (
    "f4989d10b85eda584011afcca65ad269e245bc3116e8b32807fce494e539819bc49a0ee57b388073c7cb6855"
    "df3f84a6c468a04c974a602d835213772b32821f710fd9a2cc8ce76982a390d32b716798828a895879a6e3d1"
    "e5465e36a2d27e37f95918fc98a8cf9327671dcb5030e3b6dcd5acc2b44db985545f5b24ccfb3319"
)
_Q = (
    "d01289b2424a42a3afdd9eaba15b011c0aa46ac5eca3181a84c4eeb549d8c5cc38bcb400a18123a3446c45c4"
    "19575251cdf9f2d0e42657ace06f5b1c78883808624e5976c6a8bd0d50465779995baa38a74d01ddec05b0c7"
    "d5bbaa8a0c5be3a438de16551a296c34e57fe67743d07bfcc6b91574320c4a26e61b033e1ab4c711"
)


def _signer() -> keys.Identity:
    p, q, e = int(_P, 16), int(_Q, 16), 65537
    d = rsa.rsa_recover_private_exponent(e, p, q)
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    key = rsa.RSAPrivateNumbers(p, q, d, *crt, rsa.RSAPublicNumbers(e, p * q)).private_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(keys.name("alpha"))
        .issuer_name(keys.name("alpha"))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    )
    return keys.Identity(key, builder.sign(key, hashes.SHA256()))


SIGNER = _signer()


def _digest(*pieces: object) -> str:
    """One digest of bytes and of plain values."""
    made = hashlib.sha256()
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else json.dumps(piece, sort_keys=True).encode()
        made.update(b"%d:" % len(data) + data)
    return made.hexdigest()[:24]


def _of_parcel(parcel: Parcel) -> str:
    return _digest(parcel.content_type, parcel.headers, parcel.body)


def _of_received(received: Received) -> str:
    return _digest(
        inspection.describe_received(received),
        received.envelope,
        [place and list(place) for place in received.places],
        [[part, name, digest.hex()] for part, name, digest in received.extra_digests],
        [received.charset, received.closed, received.odd_base64],
        *(payload.data or b"" for payload in received.message.payloads),
    )


def _of_messages(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Every kind of message of a dialect, in every way that it is written."""
    form, parcels = samples.form(dialect), []
    for number, message in enumerate(seeds.conversation(dialect)):
        parcel = codec.write(message, form)
        parcels.append(parcel)
        yield f"write {number}", _of_parcel(parcel)
        yield f"mail {number}", _of_parcel(codec.write(message, form, mail=True))
        stream = codec.write_stream(message, form, {}, boundary="b0undary")
        body = b"".join(stream.chunks)
        yield f"stream {number}", _digest(stream.content_type, stream.headers, stream.size, body)
        apart = tuple(replace(payload, data=None) for payload in message.payloads)
        laid = codec.lay_out(replace(message, payloads=apart), form)
        pieces = [piece if isinstance(piece, bytes) else piece.size for piece in laid.body]
        yield f"lay out {number}", _digest(laid.content_type, laid.headers, *pieces)
        envelope = codec.write_envelope(message, form)
        yield f"next hop {number}", _digest(splice.next_hop(envelope, samples.NEXT_HOP, form))
        yield f"read {number}", _of_received(codec.read(parcel))
        if dialect is Dialect.EBMS2:
            yield from _of_signatures(number, envelope, message.payloads)
    yield "bundle", _of_parcel(codec.bundle(parcels))
    order = samples.order_message(dialect)
    errors: list[EbxmlError] = [Inconsistent("said twice", location="//a/@b", remedy="say it once")]
    answer = samples.envelope_for(dialect, own=samples.BETA)
    for name, made in (
        ("unrouted acknowledgment", answers.acknowledgment_for(order, answer)),
        ("unrouted hop", answers.acknowledgment_for(order, answer, actor=Actor.NEXT_MSH)),
        ("unrouted error", answers.error_message_for(order, errors, answer)),
    ):
        yield name, _of_parcel(codec.write(made, form))


def _of_signatures(
    number: int, envelope: bytes, payloads: tuple[Payload, ...]
) -> Iterator[tuple[str, str]]:
    """An envelope signed in every way whose bytes follow from its input, and what that proves."""
    for canonicalization in ("c14n", "exc-c14n"):
        for method, digest in (("rsa-sha256", "sha256"), ("rsa-sha512", "sha512")):
            digests = [PartDigests.of(p.content_id, p.data or b"", digest) for p in payloads]
            choice = SigningChoice(method, digest, canonicalization)
            signed = sign(envelope, digests, SIGNER.key, SIGNER.certificate, choice)
            name = f"{number} {canonicalization} {method}"
            yield f"signed {name}", _digest(signed.envelope)
            trust = Trust((SIGNER.certificate,))
            proved = signature.verify_signature(signed.envelope, digests, trust, keys.NOW)
            yield f"proved {name}", _digest(proved.octets, proved.readable, proved.hop_blocks)
            said = [
                [reference.uri, reference.digest.hex()]
                for reference in computed_references(envelope, digests, digest, canonicalization)
            ]
            references = signature.acknowledged_digests(signed.references)
            yield f"references {name}", _digest(said, *(each.xml for each in references))


_WRAPPED_KEY = re.compile(rb"<xenc:CipherValue>[^<]+</xenc:CipherValue></xenc:CipherData></xenc:E")


def _counted(numbers: Iterator[int], size: int) -> bytes:
    return bytes([next(numbers)]) * size


def _of_the_rest() -> Iterator[tuple[str, str]]:
    """Encrypted parts, and Faults."""
    for data in ("aes128-gcm", "aes256-gcm", "aes256-cbc"):
        for key in ("rsa-oaep", "rsa-oaep-mgf1p", "rsa-1_5"):
            pieces = encrypt_chunks(
                [b"<order/>", b"more" * 9000],
                SIGNER.certificate,
                "application/xml",
                EncryptionChoice(data, key),
            )
            counted = partial(_counted, count())
            with mock.patch.object(os, "urandom", counted):
                # The padding of the wrapped key is random, and as long as the key.
                written = _WRAPPED_KEY.sub(b"", b"".join(pieces), count=1)
            yield f"encrypted {data} {key}", _digest(written)
    for error in (SoapFault("Client", "a < b"), Inconsistent("x", location="//y", remedy="z")):
        yield f"fault {type(error).__name__}", _of_parcel(soap.write_fault(error))


def _of_corpus(corpus: Path) -> Iterator[tuple[str, str]]:
    """What each file of the corpus says, whole and piece by piece, and how its message is written
    by us."""
    for name in samples.corpus_messages(corpus):
        data = samples.corpus_bytes(corpus, name)
        yield f"described {name}", _digest(inspection.describe_bytes(data))
        try:
            capture = open_capture(data)
            if capture.kind is CaptureKind.XML:
                received = codec.read_header(capture.parcel.body)
            else:
                received = codec.read(capture.parcel)
                yield f"pieces {name}", _of_pieces(capture.parcel)
        except ReadFault as fault:
            yield f"refused {name}", _digest(inspection.describe_fault(fault), fault.envelope)
            continue
        yield f"read {name}", _of_received(received)
        try:
            form = samples.form(received.dialect)
            written = _of_parcel(codec.write(received.message, form))
            answer = samples.envelope_for(received.dialect, own=samples.BETA)
            acknowledgment = answers.acknowledgment_for(received.message, answer)
            yield f"acknowledged {name}", _of_parcel(codec.write(acknowledgment, form))
        except OncewireError as problem:
            written = _digest(str(problem))
        yield f"written {name}", written


def _of_pieces(parcel: Parcel) -> str:
    reader = codec.Reader(parcel.content_type, parcel.headers)
    for at in range(0, len(parcel.body), 701):
        reader.feed(parcel.body[at : at + 701])
    return _of_received(reader.finish()[1])


def _recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


@EACH
def test_messages_are_written_and_read_as_recorded(dialect: Dialect) -> None:
    assert dict(_of_messages(dialect)) == _recorded()[dialect.value]


def test_parts_and_faults_are_written_as_recorded() -> None:
    assert dict(_of_the_rest()) == _recorded()["rest"]


def test_the_corpus_is_read_and_written_as_recorded(corpus: Path) -> None:
    assert dict(_of_corpus(corpus)) == _recorded()["corpus"]


def _record() -> None:
    corpus = parts.find_corpus(os.environ, parts.ROOT)
    if corpus is None:
        raise SystemExit("no corpus at ../shared/corpus; set ONCEWIRE_CORPUS to its folder")
    found = {dialect.value: dict(_of_messages(dialect)) for dialect in Dialect}
    found |= {"rest": dict(_of_the_rest()), "corpus": dict(_of_corpus(corpus))}
    RECORD.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
