"""S/MIME envelopes: what we close others open, and the other way round."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from oncewire.errors import SecurityFailure
from oncewire.wire.security import smime
from oncewire.wire.security.smime import Opened, envelop, is_enveloped, open_envelope
from tests.wire.security.keys import Identity, alpha, mallory

DOCUMENT = b"<order>\r\nwith an \xc3\xbc,\na line\0</order>"


def opened(data: bytes, whose: Identity | None = None) -> Opened:
    own = whose or alpha("rsa")
    assert isinstance(own.key, rsa.RSAPrivateKey)
    return open_envelope(data, own.certificate, own.key)


def test_what_is_closed_is_opened_as_it_was_meant() -> None:
    data = envelop(DOCUMENT, 'text/xml; charset="utf-8"', alpha("rsa").certificate)
    assert b"order" not in data
    assert opened(data) == Opened('text/xml; charset="utf-8"', DOCUMENT)
    assert is_enveloped(smime.MEDIA_TYPE)
    assert not is_enveloped("application/xml")


@pytest.mark.parametrize(
    ("inside", "media_type", "content"),
    [
        (b"<bare/>", "text/xml", b"<bare/>"),
        (b"%PDF", "application/octet-stream", b"%PDF"),
        (b"", "application/octet-stream", b""),
        (b"content-type: a/b\r\n\r\nx", "a/b", b"x"),
        (b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n", "a/b", b"x"),
    ],
)
def test_others_put_other_things_into_it(inside: bytes, media_type: str, content: bytes) -> None:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(inside).add_recipient(alpha("rsa").certificate)
    data = builder.set_content_encryption_algorithm(AES128).encrypt(
        Encoding.DER, [pkcs7.PKCS7Options.Binary]
    )
    assert opened(data) == Opened(media_type, content)


def test_whatever_is_wrong_is_said_in_the_same_words() -> None:
    good = envelop(DOCUMENT, "text/xml", alpha("rsa").certificate)
    broken = [b"", b"junk", good[:-1], good[:200], good + b"x"]
    broken += [good[:place] + bytes((good[place] ^ 1,)) + good[place + 1 :] for place in (30, 300)]
    theirs = envelop(DOCUMENT, "text/xml", mallory("rsa").certificate)
    words = set()
    for data in (*broken, theirs):
        with pytest.raises(SecurityFailure) as told:
            opened(data)
        words.add(str(told.value))
    assert len(words) == 1


def test_a_change_of_the_cipher_text_never_gives_the_document() -> None:
    good = envelop(DOCUMENT, "text/xml", alpha("rsa").certificate)
    for place in range(len(good) - 60, len(good)):
        changed = good[:place] + bytes((good[place] ^ 1,)) + good[place + 1 :]
        try:
            assert opened(changed).content != DOCUMENT
        except SecurityFailure:
            continue


def test_nobody_is_encrypted_for_without_an_rsa_key() -> None:
    with pytest.raises(SecurityFailure, match="no RSA key"):
        envelop(b"x", "text/xml", alpha("p256").certificate)


@pytest.mark.process
def test_openssl_opens_ours_and_we_open_its(tmp_path: Path) -> None:
    own = alpha("rsa")
    for name, data in (("key", own.key_pem), ("crt", own.certificate_pem), ("plain", DOCUMENT)):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "ours").write_bytes(envelop(DOCUMENT, "text/xml", own.certificate))

    def cms(*arguments: str) -> bytes:
        done = subprocess.run(
            ["openssl", "cms", *arguments], cwd=tmp_path, capture_output=True, check=True
        )
        return done.stdout

    shown = cms("-decrypt", "-inform", "DER", "-in", "ours", "-inkey", "key", "-recip", "crt")
    assert shown.endswith(b"\r\n\r\n" + DOCUMENT)
    theirs = cms(
        "-encrypt", "-binary", "-aes256", "-outform", "DER", "-in", "plain", "-out", "-", "crt"
    )
    assert opened(theirs) == Opened("text/xml", DOCUMENT)
