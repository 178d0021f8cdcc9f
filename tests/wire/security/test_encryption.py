"""Encrypted parts: ours to the referee, the referee's to us, and nothing else is read."""

import base64
import re

import pytest
import xmlsec
from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import encryption, signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.encryption import (
    DATA_URIS,
    DS,
    KEY_URIS,
    XENC,
    Decryption,
    EncryptionChoice,
    EncryptionPolicy,
    decrypt_part,
    encrypt_part,
)
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice
from tests.wire.security import documents, keys
from tests.wire.security.documents import PART, PART_ID

_EVERYTHING = EncryptionPolicy(frozenset(DATA_URIS), frozenset(KEY_URIS))
_WRITTEN = sorted(set(DATA_URIS) - {"tripledes-cbc"})
_SIZES = [0, 1, 15, 16, 17, 48 * 1024, 100_001]


def _key() -> rsa.RSAPrivateKey:
    key = keys.alpha("rsa").key
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def _certificate() -> x509.Certificate:
    return keys.alpha("rsa").certificate


@pytest.mark.parametrize("key", sorted(KEY_URIS))
@pytest.mark.parametrize("data", _WRITTEN)
def test_a_part_comes_back_as_it_was(data: str, key: str) -> None:
    for size in _SIZES:
        content = bytes(range(256)) * (size // 256) + bytes(size % 256)
        document = encrypt_part(content, _certificate(), "image/png", EncryptionChoice(data, key))
        part = decrypt_part(document, _key(), _EVERYTHING)
        assert (part.content, part.mime_type) == (content, "image/png")


@pytest.mark.parametrize("key", sorted(KEY_URIS))
@pytest.mark.parametrize("data", _WRITTEN)
def test_the_referee_reads_what_we_encrypt(data: str, key: str) -> None:
    document = encrypt_part(PART, _certificate(), "text/xml", EncryptionChoice(data, key))
    manager = xmlsec.KeysManager()
    manager.add_key(
        xmlsec.Key.from_memory(keys.alpha("rsa").key_pem, xmlsec.constants.KeyDataFormatPem)
    )
    context = xmlsec.EncryptionContext(manager)
    assert context.decrypt(etree.fromstring(document)) == PART


@pytest.mark.parametrize("key", sorted(KEY_URIS))
@pytest.mark.parametrize("data", sorted(DATA_URIS))
def test_we_read_what_the_referee_encrypts(data: str, key: str) -> None:
    template = etree.fromstring(
        f'<xenc:EncryptedData xmlns:xenc="{XENC}" MimeType="text/xml" Type="{XENC}Element">'
        f'<xenc:EncryptionMethod Algorithm="{DATA_URIS[data]}"/><ds:KeyInfo xmlns:ds="{DS}">'
        f'<xenc:EncryptedKey><xenc:EncryptionMethod Algorithm="{KEY_URIS[key]}"/>'
        "<xenc:CipherData><xenc:CipherValue/></xenc:CipherData></xenc:EncryptedKey></ds:KeyInfo>"
        "<xenc:CipherData><xenc:CipherValue/></xenc:CipherData></xenc:EncryptedData>"
    )
    manager = xmlsec.KeysManager()
    manager.add_key(
        xmlsec.Key.from_memory(
            keys.alpha("rsa").certificate_pem, xmlsec.constants.KeyDataFormatCertPem
        )
    )
    context = xmlsec.EncryptionContext(manager)
    family = data.partition("-")[0]
    kind = xmlsec.constants.KeyDataDes if family == "tripledes" else xmlsec.constants.KeyDataAes
    context.key = xmlsec.Key.generate(
        kind, encryption.KEY_BYTES[family] * 8, xmlsec.constants.KeyDataTypeSession
    )
    context.encrypt_binary(template, PART)
    part = decrypt_part(etree.tostring(template), _key(), _EVERYTHING)
    assert (part.content, part.mime_type) == (PART, "text/xml")


def test_triple_des_is_read_and_not_written() -> None:
    with pytest.raises(SecurityFailure, match="not encrypted with tripledes"):
        encrypt_part(PART, _certificate(), "", EncryptionChoice("tripledes-cbc"))
    content_key, iv = bytes(range(24)), bytes(8)
    padded = b"seven boxes" + b"\x99" * 4 + b"\x05"
    octets = iv + Cipher(TripleDES(content_key), CBC(iv)).encryptor().update(padded)
    wrapped = _key().public_key().encrypt(content_key, padding.PKCS1v15())
    document = (
        f'<e:EncryptedData xmlns:e="{XENC}">'
        f'<e:EncryptionMethod Algorithm="{DATA_URIS["tripledes-cbc"]}"/>'
        f'<k:KeyInfo xmlns:k="{DS}"><e:EncryptedKey>'
        f'<e:EncryptionMethod Algorithm="{KEY_URIS["rsa-1_5"]}"/><e:CipherData><e:CipherValue>'
        f"{base64.encodebytes(wrapped).decode()}</e:CipherValue></e:CipherData></e:EncryptedKey>"
        f"</k:KeyInfo><e:CipherData><e:CipherValue>\n{base64.encodebytes(octets).decode()}\n"
        "</e:CipherValue></e:CipherData></e:EncryptedData>"
    ).encode()
    # Filling bytes of any value: XML Encryption reads the last one only.
    assert decrypt_part(document, _key(), _EVERYTHING).content == b"seven boxes"


@given(st.binary(max_size=300), st.lists(st.integers(1, 200), max_size=60), st.data())
def test_pieces_of_any_size_give_the_same(
    content: bytes, cuts: list[int], data: st.DataObject
) -> None:
    choice = EncryptionChoice(data.draw(st.sampled_from(_WRITTEN)), "rsa-1_5")
    pieces = [content[i : i + 7] for i in range(0, len(content), 7)]
    document = b"".join(encryption.encrypt_chunks(pieces, _certificate(), "a/b", choice))
    decryption = Decryption(_key(), _EVERYTHING)
    found = b""
    for cut in cuts:
        found += decryption.feed(document[:cut])
        document = document[cut:]
    found += decryption.feed(document) + decryption.finish()
    assert found == content


# --- the agreement decides -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "key"),
    [("aes256-cbc", "rsa-oaep"), ("aes256-gcm", "rsa-1_5"), ("aes128-cbc", "rsa-1_5")],
)
def test_weak_algorithms_need_the_agreements_word(data: str, key: str) -> None:
    document = encrypt_part(PART, _certificate(), "", EncryptionChoice(data, key))
    with pytest.raises(SecurityFailure, match="not allowed by the agreement"):
        decrypt_part(document, _key())
    policy = EncryptionPolicy(frozenset({data}), frozenset({key}))
    assert decrypt_part(document, _key(), policy).content == PART


def test_only_rsa_recipients_exist() -> None:
    with pytest.raises(SecurityFailure, match="no RSA key"):
        encrypt_part(PART, keys.alpha().certificate, "")
    for choice in (EncryptionChoice("aes512-gcm"), EncryptionChoice(key="kw-aes128")):
        with pytest.raises(SecurityFailure):
            encrypt_part(PART, _certificate(), "", choice)


# --- what cannot be read -------------------------------------------------------------------------


def test_another_key_cannot_read_it() -> None:
    other = keys.mallory("rsa").key
    assert isinstance(other, rsa.RSAPrivateKey)
    for key in sorted(KEY_URIS):
        document = encrypt_part(PART * 9, _certificate(), "", EncryptionChoice("aes256-gcm", key))
        with pytest.raises(SecurityFailure, match="cannot be decrypted"):
            decrypt_part(document, other, _EVERYTHING)


def test_no_bit_of_a_gcm_part_can_change() -> None:
    document = encrypt_part(PART, _certificate(), "")
    found = list(re.finditer(rb"CipherValue>([^<]+)<", document))[-1]
    octets = base64.b64decode(found[1])
    for bit in range(len(octets) * 8):
        flipped = bytearray(octets)
        flipped[bit // 8] ^= 1 << bit % 8
        changed = document.replace(found[1], base64.b64encode(flipped))
        with pytest.raises(SecurityFailure, match="cannot be decrypted"):
            decrypt_part(changed, _key())


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (rb"^.*$", b"", "not well-formed"),
        (rb"^.*$", b"plain text", "not well-formed"),
        (rb"^.*$", b"<order/>", "the part is not encrypted"),
        (rb"^", b"<!DOCTYPE a>", "document type"),
        (rb"</xenc:EncryptedData>$", b"", "not well-formed"),
        (rb"(?s)<ds:KeyInfo.*</ds:KeyInfo>", b"", "lacks its method or its key"),
        (rb"<xenc:EncryptionMethod [^>]*/>", b"", "lacks its method or its key"),
        (rb"(.*</ds:KeyInfo>)(.*)(</xenc:EncryptedData>)", rb"\1\2\2\3", "has two"),
        (rb"(.*)(</xenc:CipherValue>)", rb"\1****\2", "not base64"),
        (rb"(.*)(</xenc:CipherValue>)", rb"\1A\2", "cut short"),
        (rb"CipherData", b"CipherReference", "not an encrypted document"),
        (rb"aes256-gcm", b"aes256-xyz", "not allowed"),
        (rb"#sha1", b"#md5", "unknown digest"),
        (rb"(<ds:DigestMethod )", rb"<x/>\1", "parameters we do not know"),
        (rb"(<xenc:EncryptedKey>)", b"<a>" * 20 + b"</a>" * 20 + rb"\1", "nested too deeply"),
        (rb"(CipherValue>)", rb"\1" + b"A" * 5000, "too long"),
        (rb"(CipherValue>)", rb"\1AAAA", "cannot be decrypted"),
    ],
)  # fmt: skip
def test_a_broken_document_is_refused(old: bytes, new: bytes, why: str) -> None:
    document = encrypt_part(PART, _certificate(), "text/xml")
    changed = re.sub(old, new, document, count=1 if b"Reference" not in new else 0)
    assert changed != document
    with pytest.raises(SecurityFailure, match=why) as refused:
        decrypt_part(changed, _key())
    assert refused.value.code == "SecurityFailure"


@pytest.mark.parametrize("last", [0, 17, 255])
def test_padding_that_cannot_be_is_refused(last: int) -> None:
    document = _cbc_document(b"seven boxes 123" + bytes([last]))
    with pytest.raises(SecurityFailure, match="cannot be decrypted"):
        decrypt_part(document, _key(), _EVERYTHING)
    assert decrypt_part(_cbc_document(b"seven boxes 123\x01"), _key(), _EVERYTHING).content == (
        b"seven boxes 123"
    )


def _cbc_document(padded: bytes) -> bytes:
    """A document whose last block is exactly this."""
    content_key, iv = bytes(32), bytes(16)
    octets = iv + Cipher(AES(content_key), CBC(iv)).encryptor().update(padded)
    wrapped = _key().public_key().encrypt(content_key, padding.PKCS1v15())
    return (
        f'<e:EncryptedData xmlns:e="{XENC}">'
        f'<e:EncryptionMethod Algorithm="{DATA_URIS["aes256-cbc"]}"/>'
        f'<k:KeyInfo xmlns:k="{DS}"><e:EncryptedKey>'
        f'<e:EncryptionMethod Algorithm="{KEY_URIS["rsa-1_5"]}"/><e:CipherData><e:CipherValue>'
        f"{base64.b64encode(wrapped).decode()}</e:CipherValue></e:CipherData></e:EncryptedKey>"
        f"</k:KeyInfo><e:CipherData><e:CipherValue>{base64.b64encode(octets).decode()}"
        "</e:CipherValue></e:CipherData></e:EncryptedData>"
    ).encode()


@pytest.mark.parametrize("data", ["aes256-gcm", "aes256-cbc"])
@pytest.mark.parametrize("size", [0, 1, 8, 12, 15, 16, 17, 27])
def test_content_cut_short_is_refused(data: str, size: int) -> None:
    document = encrypt_part(PART, _certificate(), "", EncryptionChoice(data))
    found = list(re.finditer(rb"CipherValue>([^<]+)<", document))[-1]
    octets = base64.b64decode(found[1])[:size]
    with pytest.raises(SecurityFailure, match="cannot be decrypted"):
        decrypt_part(document.replace(found[1], base64.b64encode(octets)), _key(), _EVERYTHING)


# --- with a signature, in either order -----------------------------------------------------------


@pytest.mark.parametrize("encrypt_first", [True, False])
def test_order_of_signature_and_encryption_is_the_callers(encrypt_first: bool) -> None:
    who = keys.alpha()
    sent = encrypt_part(PART, _certificate(), "text/xml")
    over = sent if encrypt_first else PART
    signed = signature.sign(
        documents.envelope(),
        [PartDigests.of(PART_ID, over, "sha256")],
        who.key,
        who.certificate,
        SigningChoice("ecdsa-sha256"),
    )
    read = decrypt_part(sent, _key()).content
    checked = sent if encrypt_first else read
    verified = signature.verify_signature(
        signed.envelope,
        [PartDigests.of(PART_ID, checked, "sha256")],
        Trust((who.certificate,)),
        keys.NOW,
    )
    assert read == PART
    assert verified.references[1].content_id == PART_ID
