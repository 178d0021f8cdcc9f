"""XML Encryption of payload parts: a part becomes an xenc:EncryptedData document.

The content key is new for each part and is wrapped for the recipient's certificate, as the
Digikoppeling -e profiles and ebms-core do. Whether a message is signed before or after is the
caller's: the parts' digests are taken of whatever bytes it hands to the signature.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import AEADDecryptionContext, Cipher, CipherContext
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
KEY_BYTES = {"aes128": 16, "aes192": 24, "aes256": 32, "tripledes": 24}
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
    chunks: Iterable[bytes], recipient: x509.Certificate, mime_type: str, choice: EncryptionChoice
) -> Iterator[bytes]:
    """The EncryptedData document of a part, piece by piece: the part need not fit in memory."""
    if choice.data == "tripledes-cbc" or choice.data not in DATA_URIS:
        raise SecurityFailure(
            f"parts are not encrypted with {choice.data}", remedy="name an aes algorithm"
        )
    family, _, mode = choice.data.partition("-")
    # A new key for each part: with one key a vector used twice would break GCM.
    content_key = os.urandom(KEY_BYTES[family])
    wrapped = _wrap(content_key, recipient, choice.key)
    yield _document_start(recipient, mime_type, choice, wrapped).encode()
    if mode == "gcm":
        octets = _gcm_octets(chunks, content_key, os.urandom(GCM_IV))
    else:
        octets = _cbc_octets(chunks, content_key, os.urandom(16))
    held = bytearray()
    for piece in octets:
        held += piece
        while len(held) >= _CHUNK:
            yield base64.b64encode(held[:_CHUNK])
            del held[:_CHUNK]
    yield base64.b64encode(held)
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


# Reading payload parts that a partner encrypted for us (XML Encryption).
#
# It streams. A decrypted piece must not be used before `finish` has returned: only the last bytes
# of a GCM part prove that none was changed, and CBC proves nothing at all, so a CBC part is only
# as trustworthy as the signature over it, whether that was made before or after it was encrypted.


_DATA_NAMES = {uri: name for name, uri in DATA_URIS.items()}
_KEY_NAMES = {uri: name for name, uri in KEY_URIS.items()}
_HASHES: dict[str, hashes.HashAlgorithm] = {
    f"{DS}sha1": hashes.SHA1(),  # noqa: S303  (as OAEP's mask it is sound, and the wire's default)
    f"{XENC}sha256": hashes.SHA256(),
    "http://www.w3.org/2001/04/xmldsig-more#sha384": hashes.SHA384(),
    f"{XENC}sha512": hashes.SHA512(),
    f"{XENC11}mgf1sha1": hashes.SHA1(),  # noqa: S303
    f"{XENC11}mgf1sha256": hashes.SHA256(),
    f"{XENC11}mgf1sha384": hashes.SHA384(),
    f"{XENC11}mgf1sha512": hashes.SHA512(),
}
# Deeper than any EncryptedData of the standard; a deeper one is not what it says it is.
_MAX_DEPTH = 16
# A wrapped key of a 16,384-bit RSA key; the text before the content is small.
_MAX_WRAPPED = 4096
_CANNOT = "the part cannot be decrypted with the agreed key"


@dataclass(frozen=True, slots=True)
class EncryptionPolicy:
    """What the agreement lets a partner encrypt with; CBC and rsa-1_5 only where it names them."""

    data: frozenset[str] = frozenset({"aes128-gcm", "aes192-gcm", "aes256-gcm"})
    keys: frozenset[str] = frozenset({"rsa-oaep", "rsa-oaep-mgf1p"})


@dataclass(frozen=True, slots=True)
class DecryptedPart:
    """The content of an encrypted part, and the media type it had before."""

    content: bytes
    mime_type: str


def decrypt_part(
    document: bytes,
    key: rsa.RSAPrivateKey,
    policy: EncryptionPolicy = EncryptionPolicy(),  # noqa: B008
) -> DecryptedPart:
    """The content of an EncryptedData document, or SecurityFailure."""
    decryption = Decryption(key, policy)
    content = decryption.feed(document) + decryption.finish()
    return DecryptedPart(content, decryption.mime_type)


class Decryption:
    """Decrypts an EncryptedData document as its bytes arrive."""

    def __init__(self, key: rsa.RSAPrivateKey, policy: EncryptionPolicy) -> None:
        self.mime_type = ""
        self._key = key
        self._policy = policy
        self._path: list[str] = []
        self._data_name = ""
        self._key_name = ""
        self._hashes: dict[str, str] = {}
        self._wrapped: list[str] = []
        self._content: _CbcContent | _GcmContent | None = None
        self._text = _Base64Text()
        self._out = bytearray()
        self._ended = False
        # Expat, not a tree: the content is one text of any size.
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Decrypted bytes that these bytes of the document made available."""
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as trouble:
            raise SecurityFailure(f"the encrypted part is not well-formed: {trouble}") from trouble
        out, self._out = bytes(self._out), bytearray()
        return out

    def finish(self) -> bytes:
        """The last decrypted bytes; from here on all of them may be believed."""
        out = self.feed(b"", final=True)
        if self._content is None or not self._ended:
            raise SecurityFailure("the part is not an encrypted document with its content")
        return out + self._content.finish()

    # The path of names tells each piece of the document apart from others of the same name.

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if len(self._path) > _MAX_DEPTH:
            raise SecurityFailure("the encrypted part is nested too deeply")
        # An unencrypted part where the agreement asks for encryption is refused: any hop can
        # write one.
        if len(self._path) == 1:
            if name != f"{XENC} EncryptedData":
                raise SecurityFailure("the part is not encrypted", remedy="the agreement asks it")
            self.mime_type = attributes.get("MimeType", "")
        elif self._path == _DATA_METHOD:
            self._data_name = _allowed(attributes, _DATA_NAMES, self._policy.data)
        elif self._path == _KEY_METHOD:
            self._key_name = _allowed(attributes, _KEY_NAMES, self._policy.keys)
        elif self._path[:-1] == _KEY_METHOD:
            # Digest and mask of OAEP; anything else would change the key: `_padding` refuses it.
            self._hashes[name] = attributes.get("Algorithm", "")
        elif self._path == _DATA_VALUE:
            # The content begins: its key and its method must have been said before.
            # The order of XML Encryption §3.1: method, key, content. To stream it must be so.
            if self._content is not None or not self._data_name or not self._key_name:
                raise SecurityFailure("the encrypted part lacks its method or its key, or has two")
            family, _, mode = self._data_name.partition("-")
            content_key = self._unwrap(KEY_BYTES[family])
            if mode == "gcm":
                self._content = _GcmContent(content_key)
            else:
                self._content = _CbcContent(family, content_key)

    def _end(self, _name: str) -> None:
        if self._path == _DATA_VALUE:
            self._text.finish()
            self._ended = True
        self._path.pop()

    def _characters(self, text: str) -> None:
        if self._path == _DATA_VALUE and self._content is not None:
            self._out += self._content.feed(self._text.feed(text))
        elif self._path == _KEY_VALUE:
            self._wrapped.append(text)
            # RSA decryption is the dear step, and what is longer than any key's output need not be
            # tried.
            if sum(map(len, self._wrapped)) > _MAX_WRAPPED:
                raise SecurityFailure("the wrapped key is too long")

    def _doctype(self, *_declaration: object) -> None:
        raise SecurityFailure("the encrypted part has a document type declaration")

    def _unwrap(self, size: int) -> bytes:
        # With rsa-1_5 an answer that tells a bad wrapping from a bad content would let an attacker
        # unwrap keys by asking often (Bleichenbacher), so both fail at the same place.
        instead = os.urandom(size)
        try:
            wrapped = base64.b64decode("".join("".join(self._wrapped).split()), validate=True)
            content_key = self._key.decrypt(wrapped, self._padding())
        except (ValueError, binascii.Error) as trouble:
            if self._key_name == "rsa-1_5":
                return instead
            # One sentence for every way to fail: to tell them apart would help an attacker.
            raise SecurityFailure(_CANNOT) from trouble
        return content_key if len(content_key) == size else instead

    def _padding(self) -> padding.AsymmetricPadding:
        if self._key_name == "rsa-1_5":
            return padding.PKCS1v15()
        allowed = {f"{DS} DigestMethod", f"{XENC11} MGF"}
        if self._hashes.keys() - allowed:
            raise SecurityFailure("the key's encryption method has parameters we do not know")
        # Defaults of XML Encryption §5.4.2 where nothing is said.
        digest = self._hashes.get(f"{DS} DigestMethod", f"{DS}sha1")
        mask = self._hashes.get(f"{XENC11} MGF", f"{XENC11}mgf1sha1")
        if digest not in _HASHES or mask not in _HASHES:
            raise SecurityFailure("the key's encryption method names an unknown digest")
        return oaep(_HASHES[digest], _HASHES[mask])


_DATA_METHOD = [f"{XENC} EncryptedData", f"{XENC} EncryptionMethod"]
_DATA_VALUE = [f"{XENC} EncryptedData", f"{XENC} CipherData", f"{XENC} CipherValue"]
_ENCRYPTED_KEY = [f"{XENC} EncryptedData", f"{DS} KeyInfo", f"{XENC} EncryptedKey"]
_KEY_METHOD = [*_ENCRYPTED_KEY, f"{XENC} EncryptionMethod"]
_KEY_VALUE = [*_ENCRYPTED_KEY, f"{XENC} CipherData", f"{XENC} CipherValue"]


def _allowed(attributes: dict[str, str], names: dict[str, str], allowed: frozenset[str]) -> str:
    uri = attributes.get("Algorithm", "")
    name = names.get(uri)
    # The sender must not choose the weakest method that we can read.
    if name is None or name not in allowed:
        raise SecurityFailure(
            f"encryption with {uri[:120]!r} is not allowed by the agreement",
            remedy=f"the agreement allows {', '.join(sorted(allowed))}",
        )
    return name


class _Base64Text:
    """Base64 that arrives in pieces cut anywhere."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> bytes:
        joined = self._rest + "".join(text.split())
        whole = len(joined) - len(joined) % 4
        self._rest = joined[whole:]
        try:
            return base64.b64decode(joined[:whole], validate=True)
        except (ValueError, binascii.Error) as trouble:
            raise SecurityFailure("the encrypted content is not base64") from trouble

    def finish(self) -> None:
        if self._rest:
            raise SecurityFailure("the encrypted content is cut short")


class _CbcContent:
    """CBC: the first block is the vector, the last byte counts the padding."""

    def __init__(self, family: str, key: bytes) -> None:
        self._cipher = TripleDES(key) if family == "tripledes" else AES(key)
        self._block = self._cipher.block_size // 8
        self._held = b""
        self._context: CipherContext | None = None

    def feed(self, octets: bytes) -> bytes:
        octets = self._held + octets
        if self._context is None:
            if len(octets) < self._block:
                self._held = octets
                return b""
            iv, octets = octets[: self._block], octets[self._block :]
            self._context = Cipher(self._cipher, CBC(iv)).decryptor()
        # The last whole block stays back: it may be the one that holds the padding.
        keep = len(octets) % self._block or self._block
        ready, self._held = octets[:-keep], octets[-keep:]
        return self._context.update(ready)

    def finish(self) -> bytes:
        if self._context is None or len(self._held) != self._block:
            raise SecurityFailure(_CANNOT)
        last = self._context.update(self._held) + self._context.finalize()
        # Only the last byte counts (XML Encryption §5.2); the others may be anything.
        if not 1 <= last[-1] <= self._block:
            raise SecurityFailure(_CANNOT)
        return last[: -last[-1]]


class _GcmContent:
    """GCM: a vector of 12 bytes first, a tag of 16 bytes last."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._held = b""
        self._context: AEADDecryptionContext | None = None

    def feed(self, octets: bytes) -> bytes:
        octets = self._held + octets
        if self._context is None:
            if len(octets) < GCM_IV:
                self._held = octets
                return b""
            iv, octets = octets[:GCM_IV], octets[GCM_IV:]
            self._context = Cipher(AES(self._key), GCM(iv)).decryptor()
        # The last 16 bytes seen so far may be the tag.
        cut = max(0, len(octets) - GCM_TAG)
        ready, self._held = octets[:cut], octets[cut:]
        return self._context.update(ready)

    def finish(self) -> bytes:
        if self._context is None or len(self._held) != GCM_TAG:
            raise SecurityFailure(_CANNOT)
        try:
            return self._context.finalize_with_tag(self._held)
        except InvalidTag as trouble:
            raise SecurityFailure(_CANNOT) from trouble
