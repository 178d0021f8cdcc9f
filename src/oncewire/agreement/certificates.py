"""Certificates as an agreement holds them: DER bytes, known by their fingerprint."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import textwrap
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.utils import CryptographyDeprecationWarning

from oncewire.errors import InvalidValue
from oncewire.message.instant import SECOND, Instant

_PEM = re.compile(
    r"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE|X509 CRL)-----(.*?)-----END \1-----", re.DOTALL
)
_FINGERPRINT = re.compile(r"(?:sha256:)?([0-9a-fA-F]{2}(?::?[0-9a-fA-F]{2}){31})\Z")
# DER of a certificate or a revocation list is a SEQUENCE with a length in long form.
_DER_START = b"\x30"


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What `check` wants to know of a certificate."""

    subject: str
    not_before: Instant
    not_after: Instant


def fingerprint(der: bytes) -> str:
    """The SHA-256 of the DER bytes, as lower-case hex."""
    return hashlib.sha256(der).hexdigest()


def spoken_fingerprint(der: bytes) -> str:
    """The fingerprint in pairs with colons, for reading out over the phone."""
    digits = fingerprint(der).upper()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def read_fingerprint(text: str) -> str | None:
    """A fingerprint as people write it, with or without colons; None if it is not one."""
    match = _FINGERPRINT.match(text.strip())
    return match.group(1).replace(":", "").lower() if match else None


def from_base64(text: str) -> bytes:
    """The bytes of ds:X509Certificate or of a PEM body; white space does not matter."""
    try:
        der = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        der = b""
    if not der.startswith(_DER_START):
        raise InvalidValue(
            "a certificate is not base64 of DER", remedy="copy the whole certificate again"
        )
    return der


def read_certificates(raw: object) -> tuple[bytes, ...]:
    """The DER of every certificate (or revocation list) in PEM text, PEM bytes or DER bytes."""
    if isinstance(raw, bytes):
        if raw.startswith(_DER_START):
            return (raw,)
        raw = raw.decode("ascii", errors="replace")
    if not isinstance(raw, str):
        raise InvalidValue("a certificate is not text", remedy="give a file name or PEM text")
    ders = tuple(from_base64(match.group(2)) for match in _PEM.finditer(raw))
    if not ders:
        raise InvalidValue(
            "no certificate was found", remedy="give a file in PEM or DER form, or PEM text"
        )
    return ders


def to_pem(der: bytes, label: str = "CERTIFICATE") -> str:
    """PEM text of the DER bytes."""
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def facts(der: bytes) -> CertificateFacts | None:
    """Subject and validity; None when the bytes are no certificate that can be read."""
    certificate = _loaded(der)
    if certificate is None:
        return None
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        not_before=int(certificate.not_valid_before_utc.timestamp()) * SECOND,
        not_after=int(certificate.not_valid_after_utc.timestamp()) * SECOND,
    )


def leaves(ders: Iterable[bytes]) -> tuple[bytes, ...]:
    """Of a certificate with its chain, in any order, those that issued none of the others."""
    given = tuple(ders)
    known = {der: _loaded(der) for der in given}
    issuers = {
        certificate.issuer
        for certificate in known.values()
        if certificate is not None and certificate.issuer != certificate.subject
    }
    found = tuple(
        der
        for der, certificate in known.items()
        if certificate is None or certificate.subject not in issuers
    )
    return found or given


def _loaded(der: bytes) -> x509.Certificate | None:
    try:
        with warnings.catch_warnings():
            # Serial numbers that today's rules forbid are common among partners.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            return x509.load_der_x509_certificate(der)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None
