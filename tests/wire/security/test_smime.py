"""S/MIME envelopes: what we close others open, and the other way round."""

import random
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509 import CertificateBuilder, SubjectKeyIdentifier

from oncewire.errors import SecurityFailure
from oncewire.wire.security import smime
from oncewire.wire.security.smime import Opened, envelop, is_enveloped, open_envelope
from tests.wire.security.keys import Identity, alpha, mallory, name

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


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our key, our certificate and a document, for the tools of others."""
    folder, own = tmp_path_factory.mktemp("smime"), alpha("rsa")
    for each, data in (("key", own.key_pem), ("crt", own.certificate_pem), ("plain", DOCUMENT)):
        (folder / each).write_bytes(data)
    (folder / "long").write_bytes(DOCUMENT * 5000)
    return folder


def cms(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        ["openssl", "cms", *arguments], cwd=folder, capture_output=True, check=True
    )
    return done.stdout


def theirs(folder: Path, *how: str, document: str = "plain") -> bytes:
    """The document as another's tool closes it."""
    return cms(folder, "-encrypt", "-binary", *how, "-outform", "DER", "-in", document, "crt")


@pytest.mark.process
def test_openssl_opens_ours(shelf: Path) -> None:
    (shelf / "ours").write_bytes(envelop(DOCUMENT, "text/xml", alpha("rsa").certificate))
    shown = cms(
        shelf, "-decrypt", "-inform", "DER", "-in", "ours", "-inkey", "key", "-recip", "crt"
    )
    assert shown.endswith(b"\r\n\r\n" + DOCUMENT)


@pytest.mark.process
@pytest.mark.parametrize("cipher", ["-des3", "-aes128", "-aes192", "-aes256"])
@pytest.mark.parametrize("way", [(), ("-stream",)], ids=["whole", "pieces"])
@pytest.mark.requirement("TRN-3")
def test_we_open_what_others_close(cipher: str, way: tuple[str, ...], shelf: Path) -> None:
    """Norway's handlers write triple DES, and with a library that writes in pieces."""
    assert opened(theirs(shelf, cipher, *way)) == Opened("text/xml", DOCUMENT)
    assert opened(theirs(shelf, cipher, *way, document="long")).content == DOCUMENT * 5000


@pytest.mark.process
def test_whom_it_is_for_may_be_said_by_the_key(shelf: Path) -> None:
    own = alpha("rsa")
    assert isinstance(own.key, rsa.RSAPrivateKey)
    made = (
        CertificateBuilder(name("a"), name("a"), own.key.public_key(), 7)
        .not_valid_before(own.certificate.not_valid_before_utc)
        .not_valid_after(own.certificate.not_valid_after_utc)
        .add_extension(SubjectKeyIdentifier.from_public_key(own.key.public_key()), critical=False)
        .sign(own.key, hashes.SHA256())
    )
    (shelf / "named").write_bytes(made.public_bytes(Encoding.PEM))
    how = ["-encrypt", "-binary", "-aes256", "-keyid", "-outform", "DER", "-in", "plain", "named"]
    data = cms(shelf, *how)
    assert open_envelope(data, made, own.key) == Opened("text/xml", DOCUMENT)
    with pytest.raises(SecurityFailure):
        opened(data)


@pytest.mark.process
@pytest.mark.parametrize(
    "how",
    [
        ("-camellia256",),
        ("-aes256", "-recip", "crt", "-keyopt", "rsa_padding_mode:oaep"),
        ("-aes-256-gcm",),
    ],
    ids=["cipher", "key transport", "another structure"],
)
def test_what_is_closed_in_a_way_we_do_not_know_is_refused_and_no_more(
    how: tuple[str, ...], shelf: Path
) -> None:
    last = () if "-recip" in how else ("crt",)
    data = cms(shelf, "-encrypt", "-binary", *how, "-outform", "DER", "-in", "plain", *last)
    with pytest.raises(SecurityFailure, match="cannot be decrypted"):
        opened(data)


def test_nobody_writes_what_is_only_read() -> None:
    """AES-256 stands in every envelope of ours, triple DES in none."""
    data = envelop(DOCUMENT, "text/xml", alpha("rsa").certificate)
    assert bytes.fromhex("60864801650304012a") in data
    assert bytes.fromhex("2a864886f70d0307") not in data


@pytest.mark.process
def test_bytes_that_are_damaged_anywhere_end_in_one_refusal(shelf: Path) -> None:
    good = [theirs(shelf, "-des3", "-stream"), theirs(shelf, "-aes128")]
    chance = random.Random(15)
    words = set()
    for number in range(2000):
        data = bytearray(good[number % 2])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = bytes(data[: chance.randrange(len(data))] if number % 3 == 0 else data)
        try:
            opened(cut)
        except SecurityFailure as told:
            words.add(told.problem)
    assert words == {"a payload cannot be decrypted"}
