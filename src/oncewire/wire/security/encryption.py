"""XML Encryption of payload parts: a part becomes an xenc:EncryptedData document.

The content key is new for each part and is wrapped for the recipient's certificate, as the
Digikoppeling -e profiles and ebms-core do. Whether a message is signed before or after is the
caller's: the parts' digests are taken of whatever bytes it hands to the signature.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

from oncewire.errors import SecurityFailure

XENC = "http://www.w3.org/2001/04/xmlenc#"
# GCM and OAEP with a digest of choice came with XML Encryption 1.1; ebMS 2.0 names no algorithm
# (§4.1.4).
XENC11 = "http://www.w3.org/2009/xmlenc11#"
DS = "http://www.w3.org/2000/09/xmldsig#"

DATA_URIS: dict[str, str] = {
    **{f"aes{bits}-cbc": f"{XENC}aes{bits}-cbc" for bits in (128, 192, 256)},
    **{f"aes{bits}-gcm": f"{XENC11}aes{bits}-gcm" for bits in (128, 192, 256)},
    "tripledes-cbc": f"{XENC}tripledes-cbc",
}
KEY_URIS: dict[str, str] = {
    "rsa-oaep": f"{XENC11}rsa-oaep",
    "rsa-oaep-mgf1p": f"{XENC}rsa-oaep-mgf1p",
    "rsa-1_5": f"{XENC}rsa-1_5",
}
# Triple DES is read from old partners and never written.
KEY_BYTES = {
    "aes128": 16,
    "aes192": 24,
    "aes256": 32,
    "tripledes": 24,
}
# As XML Encryption 1.1 fixes them: vector first, tag last, no length beside them.
GCM_IV = 12
GCM_TAG = 16
# 48 characters of input make 64 of base64; a multiple of three bytes can be encoded by itself.
_CHUNK = 48 * 1024


@dataclass(frozen=True, slots=True)
class EncryptionChoice:
    """The algorithms the agreement names for what we encrypt."""

    # GCM because it shows a change; CBC can be read bit by bit through its error answers.
    data: str = "aes256-gcm"
    key: str = "rsa-oaep-mgf1p"


# --- encrypting ----------------------------------------------------------------------------------


def encrypt_part(
    content: bytes,
    recipient: x509.Certificate,
    mime_type: str,
    choice: EncryptionChoice = EncryptionChoice(),  # noqa: B008  (frozen)
) -> bytes:
    """The part as an EncryptedData document; its own media type is then application/xml."""
    return b"".join(encrypt_chunks([content], recipient, mime_type, choice))


def encrypt_chunks(
    chunks: Iterable[bytes],
    recipient: x509.Certificate,
    mime_type: str,
    choice: EncryptionChoice,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Iterator[bytes]:
    """The same piece by piece, for a part that is not to be held in memory."""
    if choice.data == "tripledes-cbc" or choice.data not in DATA_URIS:
        raise SecurityFailure(
            f"parts are not encrypted with {choice.data}", remedy="name an aes algorithm"
        )
    family, _, mode = choice.data.partition("-")
    # A new key for each part: with one key a vector used twice would break GCM.
    content_key = entropy(KEY_BYTES[family])
    wrapped = _wrap(content_key, recipient, choice.key)
    yield _document_start(recipient, mime_type, choice, wrapped).encode()
    if mode == "gcm":
        octets = _gcm_octets(chunks, content_key, entropy(GCM_IV))
    else:
        octets = _cbc_octets(chunks, content_key, entropy(16))
    yield from _base64_chunks(octets)
    yield b"</xenc:CipherValue></xenc:CipherData></xenc:EncryptedData>"


def _document_start(
    recipient: x509.Certificate, mime_type: str, choice: EncryptionChoice, wrapped: bytes
) -> str:
    """Everything before the content. The key's name lets a recipient of many find its own."""
    name = escape(recipient.subject.rfc4514_string())
    # No Type: that would promise an XML element, and a part can be anything.
    return (
        f'<xenc:EncryptedData xmlns:xenc="{XENC}" MimeType={quoteattr(mime_type)}>'
        f'<xenc:EncryptionMethod Algorithm="{DATA_URIS[choice.data]}"/>'
        f'<ds:KeyInfo xmlns:ds="{DS}"><xenc:EncryptedKey>{_key_method(choice.key)}'
        f"<ds:KeyInfo><ds:KeyName>{name}</ds:KeyName></ds:KeyInfo>"
        f"<xenc:CipherData><xenc:CipherValue>{base64.b64encode(wrapped).decode('ascii')}"
        "</xenc:CipherValue></xenc:CipherData></xenc:EncryptedKey></ds:KeyInfo>"
        "<xenc:CipherData><xenc:CipherValue>"
    )


def _key_method(name: str) -> str:
    uri = KEY_URIS[name]
    # Named in full: readers differ in what they take for its defaults.
    if name == "rsa-oaep":
        return (
            f'<xenc:EncryptionMethod Algorithm="{uri}"><ds:DigestMethod Algorithm="{XENC}sha256"/>'
            f'<e:MGF xmlns:e="{XENC11}" Algorithm="{XENC11}mgf1sha256"/></xenc:EncryptionMethod>'
        )
    if name == "rsa-oaep-mgf1p":
        return (
            f'<xenc:EncryptionMethod Algorithm="{uri}">'
            f'<ds:DigestMethod Algorithm="{DS}sha1"/></xenc:EncryptionMethod>'
        )
    return f'<xenc:EncryptionMethod Algorithm="{uri}"/>'


def _wrap(content_key: bytes, recipient: x509.Certificate, name: str) -> bytes:
    public = recipient.public_key()
    if not isinstance(public, rsa.RSAPublicKey):
        raise SecurityFailure(
            "the recipient's certificate has no RSA key to encrypt for",
            remedy="name an RSA certificate for encryption in the agreement",
        )
    if name == "rsa-oaep":
        return public.encrypt(content_key, oaep(hashes.SHA256(), hashes.SHA256()))
    if name == "rsa-oaep-mgf1p":
        # The URI fixes the mask's SHA-1 (XML Encryption §5.4.2); OAEP rests on nothing it lost.
        sha1 = hashes.SHA1()  # noqa: S303
        return public.encrypt(content_key, oaep(sha1, sha1))
    if name == "rsa-1_5":
        return public.encrypt(content_key, padding.PKCS1v15())
    raise SecurityFailure(f"keys are not wrapped with {name!r}")


def oaep(digest: hashes.HashAlgorithm, mask: hashes.HashAlgorithm) -> padding.OAEP:
    """The padding that hides a wrapped key."""
    return padding.OAEP(padding.MGF1(mask), digest, None)


def _gcm_octets(chunks: Iterable[bytes], key: bytes, iv: bytes) -> Iterator[bytes]:
    encryptor = Cipher(AES(key), GCM(iv)).encryptor()
    yield iv
    for chunk in chunks:
        yield encryptor.update(chunk)
    yield encryptor.finalize()
    yield encryptor.tag


def _cbc_octets(chunks: Iterable[bytes], key: bytes, iv: bytes) -> Iterator[bytes]:
    """CBC with the padding of XML Encryption: the last byte says how many bytes were added."""
    encryptor = Cipher(AES(key), CBC(iv)).encryptor()
    size = 0
    yield iv
    for chunk in chunks:
        size += len(chunk)
        yield encryptor.update(chunk)
    # Always at least one byte, a whole block where none is missing (XML Encryption §5.2).
    added = 16 - size % 16
    yield encryptor.update(bytes(added - 1) + bytes([added]))
    yield encryptor.finalize()


def _base64_chunks(octets: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in octets:
        held += piece
        while len(held) >= _CHUNK:
            yield base64.b64encode(held[:_CHUNK])
            del held[:_CHUNK]
    yield base64.b64encode(held)
