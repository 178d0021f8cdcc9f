"""S/MIME of payload parts: a part becomes a CMS EnvelopedData that only the partner can open.

What is inside is a MIME part with its own Content-Type (RFC 8551 §3.1). Some handlers put the
document there as it is; that is read too.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from oncewire.errors import MimeProblem, SecurityFailure
from oncewire.wire.mime.headers import header_lines, parameters
from oncewire.wire.mime.transfer import decoded

MEDIA_TYPE = "application/pkcs7-mime; smime-type=enveloped-data"
_KINDS = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})


@dataclass(frozen=True, slots=True)
class Opened:
    """A part as it was meant."""

    media_type: str
    content: bytes


def is_enveloped(media_type: str) -> bool:
    """Whether a part says that it is closed."""
    return parameters(media_type)[0] in _KINDS


def envelop(content: bytes, media_type: str, recipient: x509.Certificate) -> bytes:
    """The part as DER, closed for the recipient."""
    if not isinstance(recipient.public_key(), rsa.RSAPublicKey):
        raise SecurityFailure(
            "the recipient's certificate has no RSA key to encrypt for",
            remedy="name an RSA certificate for encryption in the agreement",
        )
    head = f"Content-Type: {media_type}\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(head.encode("ascii") + content)
    builder = builder.add_recipient(recipient).set_content_encryption_algorithm(AES256)
    # Binary: line ends inside are the document's own.
    return builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])


def open_envelope(data: bytes, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> Opened:
    """The part inside. Whatever is wrong with it, one SecurityFailure says so: who could tell a
    wrong key from wrong content could read it by asking often."""
    try:
        inside = pkcs7.pkcs7_decrypt_der(data, certificate, key, [])
        return _part(inside)
    except (ValueError, TypeError, MimeProblem) as error:
        raise SecurityFailure("a payload cannot be decrypted") from error


def _part(inside: bytes) -> Opened:
    if inside[:8].lower() != b"content-" and inside[:5].lower() != b"mime-":
        kind = "text/xml" if inside.lstrip()[:1] == b"<" else "application/octet-stream"
        return Opened(kind, inside)
    head, ended, body = inside.partition(b"\r\n\r\n")
    if not ended:
        raise MimeProblem("the headers of a part do not end", location="MIME")
    headers = {name.lower(): value for name, value in header_lines(head.split(b"\r\n"))}
    encoding = headers.get("content-transfer-encoding", "").strip().lower()
    media_type = headers.get("content-type", "application/octet-stream").strip()
    return Opened(media_type, decoded(encoding, body))
