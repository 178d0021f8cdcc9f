"""S/MIME of payload parts: a part becomes a CMS EnvelopedData that only the partner can open.

What is inside is a MIME part with its own Content-Type (RFC 8551 §3.1). Some handlers put the
document there as it is; that is read too. AES-256 is written. Triple DES, which old handlers still
write, is read: what that protects badly is the sender's, and its signature is another matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES, AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from oncewire.errors import MimeProblem, SecurityFailure
from oncewire.message.file_name import disposition, name_in
from oncewire.wire.mime.multipart import decoded, header_lines, parameters

# BER: the values of a CMS structure, one after the other.
#
# Senders that stream write lengths that are not known before the end, and strings in pieces (X.690
# §8.1.3.6, §8.7.3), so reading DER is not enough. No tree is built: a cursor goes over the bytes
# once, and its caller says which element comes next. Any other element is a ValueError.


SEQUENCE, SET = 0x30, 0x31
INTEGER, OCTETS, OBJECT_ID = 0x02, 0x04, 0x06

_CONSTRUCTED = 0x20
_DEEPEST = 16
_END = b"\0\0"


class Cursor:
    """A place in a structure, within the elements that were entered and not left."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        # Where each of them ends; None: at a mark that comes there.
        self._ends: list[int | None] = [len(data)]

    def tag(self) -> int | None:
        """The tag of the next element; None: this one has no more."""
        end = self._ends[-1]
        if end is None:
            if self._data[self._at : self._at + 2] == _END:
                return None
        elif self._at == end:
            return None
        return self._byte(self._at)

    def enter(self, tag: int) -> None:
        """Go into the next element, which has this tag."""
        length = self._head(tag)
        if len(self._ends) > _DEEPEST:
            raise ValueError("too deep")
        self._ends.append(None if length is None else self._at + length)

    def leave(self) -> None:
        """Go behind the element that was entered last, whatever else is in it."""
        while self.tag() is not None:
            self.skip()
        if self._ends.pop() is None:
            self._at += len(_END)

    def skip(self) -> None:
        """Go behind the next element."""
        tag = self.tag()
        if tag is None:
            raise ValueError("there is nothing more")
        length = self._head(tag)
        if length is not None:
            self._at += length
            return
        if len(self._ends) > _DEEPEST:
            raise ValueError("too deep")
        self._ends.append(None)
        self.leave()

    def primitive(self, tag: int) -> bytes:
        """The content of the next element, which has this tag and no elements in it."""
        length = self._head(tag)
        if length is None or tag & _CONSTRUCTED:
            raise ValueError("it has elements in it")
        self._at += length
        return self._data[self._at - length : self._at]

    def octets(self, tag: int = OCTETS) -> bytes:
        """The octet string that comes next under this tag, whole or in pieces."""
        if self.tag() == tag:
            return self.primitive(tag)
        self.enter(tag | _CONSTRUCTED)
        pieces = []
        while self.tag() is not None:
            pieces.append(self.octets())
        self.leave()
        return b"".join(pieces)

    def finish(self) -> None:
        """Nothing may follow the whole."""
        if len(self._ends) != 1 or self._at != len(self._data):
            raise ValueError("more bytes follow")

    def _head(self, tag: int) -> int | None:
        """Go to the content of the next element; its length, None where a mark ends it."""
        if self.tag() != tag or tag & 0x1F == 0x1F:
            raise ValueError("another element is expected")
        first = self._byte(self._at + 1)
        self._at += 2
        if first == 0x80:
            if not tag & _CONSTRUCTED:
                raise ValueError("a string without a length")
            return None
        length = first
        if first > 0x80:
            count = first & 0x7F
            written = self._data[self._at : self._at + count]
            if count > 8 or len(written) != count:
                raise ValueError("a length that no value can have")
            length, self._at = int.from_bytes(written, "big"), self._at + count
        around = next((end for end in reversed(self._ends) if end is not None), 0)
        if self._at + length > around:
            raise ValueError("it ends before it should")
        return length

    def _byte(self, at: int) -> int:
        if at >= len(self._data):
            raise ValueError("it ends before it should")
        return self._data[at]


MEDIA_TYPE = "application/pkcs7-mime; smime-type=enveloped-data"
_KINDS = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})

# Object identifiers as CMS has them (RFC 5652 §14, RFC 3370, RFC 3565).
_ENVELOPED = bytes.fromhex("2a864886f70d010703")
_RSA_1_5 = bytes.fromhex("2a864886f70d010101")
_CIPHERS: dict[bytes, tuple[type[AES] | type[TripleDES], int]] = {
    bytes.fromhex("608648016503040102"): (AES, 16),
    bytes.fromhex("608648016503040116"): (AES, 24),
    bytes.fromhex("60864801650304012a"): (AES, 32),
    bytes.fromhex("2a864886f70d0307"): (TripleDES, 24),
}
# Tags that mean what their place says: [0] and [1], with elements in them or without.
_FIRST, _FIRST_PLAIN = 0xA0, 0x80


@dataclass(frozen=True, slots=True)
class Opened:
    """A decrypted part."""

    media_type: str
    content: bytes
    # What its sender calls it inside; empty: nothing.
    file_name: str = ""


def is_enveloped(media_type: str) -> bool:
    """Whether a part says that it is closed."""
    return parameters(media_type)[0] in _KINDS


def envelop(
    content: bytes, media_type: str, recipient: x509.Certificate, file_name: str = ""
) -> bytes:
    """The part as DER, encrypted for the recipient, and its name with it."""
    if not isinstance(recipient.public_key(), rsa.RSAPublicKey):
        raise SecurityFailure(
            "the recipient's certificate has no RSA key to encrypt for",
            remedy="name an RSA certificate for encryption in the agreement",
        )
    head = f"Content-Type: {media_type}\r\nContent-Transfer-Encoding: binary\r\n"
    for name, value in disposition(file_name):
        head += f"{name}: {value}\r\n"
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(f"{head}\r\n".encode("ascii") + content)
    builder = builder.add_recipient(recipient).set_content_encryption_algorithm(AES256)
    # Binary: line ends inside are the document's own.
    return builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])


def open_envelope(data: bytes, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> Opened:
    """The part inside. Whatever is wrong with it, one SecurityFailure says so: who could tell a
    wrong key from wrong content could read it by asking often."""
    try:
        inside = _inside(_read(data), certificate, key)
        if inside[:8].lower() != b"content-" and inside[:5].lower() != b"mime-":
            kind = "text/xml" if inside.lstrip()[:1] == b"<" else "application/octet-stream"
            return Opened(kind, inside)
        head, ended, body = inside.partition(b"\r\n\r\n")
        if not ended:
            raise MimeProblem("the headers of a part do not end", location="MIME")
        lines = tuple(header_lines(head.split(b"\r\n")))
        headers = {name.lower(): value for name, value in lines}
        encoding = headers.get("content-transfer-encoding", "").strip().lower()
        media_type = headers.get("content-type", "application/octet-stream").strip()
        return Opened(media_type, decoded(encoding, body), name_in(lines, media_type))
    except (ValueError, MimeProblem) as error:
        raise SecurityFailure("a payload cannot be decrypted") from error


@dataclass(frozen=True, slots=True)
class _Envelope:
    """An EnvelopedData (RFC 5652 §6.1), as far as it concerns us."""

    # For whom the key of the content is encrypted, by the serial number of his certificate or by
    # the identifier of his key, and the encrypted key.
    keys: tuple[tuple[int | bytes, bytes], ...]
    cipher: bytes
    vector: bytes
    content: bytes


def _read(data: bytes) -> _Envelope:
    cursor = Cursor(data)
    cursor.enter(SEQUENCE)
    if cursor.primitive(OBJECT_ID) != _ENVELOPED:
        raise ValueError("it is no envelope")
    cursor.enter(_FIRST)
    cursor.enter(SEQUENCE)
    cursor.primitive(INTEGER)
    if cursor.tag() == _FIRST:
        cursor.skip()  # certificates of the sender: whom we believe is agreed
    cursor.enter(SET)
    keys = []
    while (tag := cursor.tag()) is not None:
        if tag != SEQUENCE:
            cursor.skip()  # a key that was agreed in another way than ours
        elif (found := _key(cursor)) is not None:
            keys.append(found)
    cursor.leave()
    cursor.enter(SEQUENCE)
    cursor.primitive(OBJECT_ID)
    cursor.enter(SEQUENCE)
    cipher, vector = cursor.primitive(OBJECT_ID), cursor.octets()
    cursor.leave()
    content = cursor.octets(_FIRST_PLAIN)
    for _ in range(4):
        cursor.leave()
    cursor.finish()
    return _Envelope(tuple(keys), cipher, vector, content)


def _key(cursor: Cursor) -> tuple[int | bytes, bytes] | None:
    """One recipient (KeyTransRecipientInfo) and its key; None: of a kind that is not read."""
    cursor.enter(SEQUENCE)
    cursor.primitive(INTEGER)
    whose: int | bytes
    if cursor.tag() == SEQUENCE:
        cursor.enter(SEQUENCE)
        cursor.skip()
        whose = int.from_bytes(cursor.primitive(INTEGER), "big")
        cursor.leave()
    else:
        whose = cursor.octets(_FIRST_PLAIN)
    cursor.enter(SEQUENCE)
    method = cursor.primitive(OBJECT_ID)
    cursor.leave()
    encrypted = cursor.octets(OCTETS)
    cursor.leave()
    return (whose, encrypted) if method == _RSA_1_5 else None


def _inside(envelope: _Envelope, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    ours: set[int | bytes] = {certificate.serial_number}
    try:
        named = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        ours.add(named.value.digest)
    except x509.ExtensionNotFound:
        pass
    found = next((encrypted for whose, encrypted in envelope.keys if whose in ours), None)
    if found is None or envelope.cipher not in _CIPHERS:
        raise ValueError("it is for another recipient, or encrypted in another way")
    kind, length = _CIPHERS[envelope.cipher]
    # A key that was not encrypted as it should gives a random one, of any length.
    chosen = key.decrypt(found, padding.PKCS1v15())
    if len(chosen) != length:
        raise ValueError("the key has another length")
    cipher = kind(chosen)
    decryptor = Cipher(cipher, CBC(envelope.vector)).decryptor()
    unpadder = PKCS7(cipher.block_size).unpadder()
    padded = decryptor.update(envelope.content) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()
