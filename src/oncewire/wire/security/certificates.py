"""Whose key it is: loading certificates, and whether the agreement lets one speak for the partner.

A certificate that came with a message proves nothing by itself. It counts when the agreement pins
it, or when it chains to one of the agreement's trust anchors *and* has a subject the agreement
names: an anchor alone would let any customer of the same authority speak for the partner.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import verification
from lxml import etree

from oncewire.errors import SecurityFailure

_DS = "{http://www.w3.org/2000/09/xmldsig#}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 24 * 60 * 60 * 1_000_000
# A KeyInfo names one certificate or a short chain; more only costs time.
_MAX_KEY_INFO = 16


# --- loading -------------------------------------------------------------------------------------


def load_certificate(data: bytes) -> x509.Certificate:
    """One certificate from PEM, DER, or the bare base64 that XML carries."""
    found = load_certificates(data)
    if len(found) != 1:
        raise SecurityFailure(
            f"expected one certificate, found {len(found)}", remedy="give them one by one"
        )
    return found[0]


def load_certificates(data: bytes) -> tuple[x509.Certificate, ...]:
    """Every certificate of a PEM bundle, or the one of a DER file or of base64 text."""
    try:
        if b"-----BEGIN" in data:
            return tuple(x509.load_pem_x509_certificates(data))
        # Every DER certificate is an ASN.1 sequence.
        if data[:1] == b"\x30":
            return (x509.load_der_x509_certificate(data),)
        der = base64.b64decode(b"".join(data.split()), validate=True)
        return (x509.load_der_x509_certificate(der),)
    except (ValueError, binascii.Error) as trouble:
        raise SecurityFailure(
            "the data is no X.509 certificate", remedy="give PEM or DER"
        ) from trouble


def load_crl(data: bytes) -> x509.CertificateRevocationList:
    """A revocation list from PEM or DER."""
    try:
        if b"-----BEGIN" in data:
            return x509.load_pem_x509_crl(data)
        return x509.load_der_x509_crl(data)
    except ValueError as trouble:
        raise SecurityFailure(
            "the data is no revocation list", remedy="give PEM or DER"
        ) from trouble


def key_info_ders(parent: etree._Element) -> tuple[bytes, ...]:
    """The X509Certificates below an element, as DER and in order: of a message or of a CPA."""
    # X509Certificate alone (XML Signature §4.4.4): a bare key or a name proves nothing that the
    # agreement could know.
    texts = [element.text or "" for element in parent.iter(f"{_DS}X509Certificate")]
    if len(texts) > _MAX_KEY_INFO:
        raise SecurityFailure(f"KeyInfo carries {len(texts)} certificates")
    try:
        return tuple(base64.b64decode("".join(text.split()), validate=True) for text in texts)
    except (ValueError, binascii.Error) as trouble:
        raise SecurityFailure("a certificate in KeyInfo is not base64") from trouble


def from_der(der: bytes) -> x509.Certificate:
    """A certificate that came with a message: read to the end now, so that nothing fails later."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.subject.rfc4514_string()
        certificate.issuer.rfc4514_string()
        validity(certificate)
        certificate.public_key()
        _ = certificate.extensions
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as trouble:
        raise SecurityFailure("a certificate in KeyInfo cannot be read") from trouble
    return certificate


@functools.lru_cache(maxsize=1024)
def der_of(certificate: x509.Certificate) -> bytes:
    """The certificate's bytes; kept, because each message compares them."""
    return certificate.public_bytes(serialization.Encoding.DER)


# --- what a certificate says ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """A certificate as an operator wants to see it."""

    subject: str
    issuer: str
    serial: str
    fingerprint: str
    not_before: int
    not_after: int
    key: str
    self_signed: bool


def summary(certificate: x509.Certificate) -> CertificateSummary:
    """Who it names, who vouches, from when to when, and which key."""
    not_before, not_after = validity(certificate)
    return CertificateSummary(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        not_before=not_before,
        not_after=not_after,
        key=_key_words(certificate),
        self_signed=is_self_signed(certificate),
    )


def _key_words(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    return type(key).__name__


def is_self_signed(certificate: x509.Certificate) -> bool:
    """Whether the certificate vouches for itself alone."""
    return certificate.subject == certificate.issuer and _issued_by(certificate, certificate)


@functools.lru_cache(maxsize=1024)
def validity(certificate: x509.Certificate) -> tuple[int, int]:
    """First and last instant at which the certificate is good."""
    return (
        (certificate.not_valid_before_utc - _EPOCH) // _MICROSECOND,
        (certificate.not_valid_after_utc - _EPOCH) // _MICROSECOND,
    )


# --- trust ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom the agreement lets sign (or lets us encrypt for). Two pins may be good at once, so that
    a partner can roll over to a new certificate without a day on which both sides must change."""

    pinned: tuple[x509.Certificate, ...] = ()
    # Certificates that chain to one of these count too, if their subject (RFC 4514) is named.
    anchors: tuple[x509.Certificate, ...] = ()
    subjects: frozenset[str] = frozenset()
    intermediates: tuple[x509.Certificate, ...] = ()
    crls: tuple[x509.CertificateRevocationList, ...] = ()
    # Whether a certificate whose issuer has no list here is refused.
    crl_required: bool = False


def candidates(key_info: Sequence[bytes], trust: Trust) -> tuple[x509.Certificate, ...]:
    """The certificates a signature may have been made with, given those its KeyInfo shows.

    A KeyInfo without certificates leaves the choice to the agreement's pins. One that shows only
    certificates the agreement does not know is refused, whatever it proves about itself.
    """
    # KeyInfo is optional (XML Signature §4.4).
    if not key_info:
        if not trust.pinned:
            raise SecurityFailure(
                "the message shows no certificate and the agreement pins none",
                remedy="pin the partner's certificate in the agreement",
            )
        return trust.pinned
    for certificate in trust.pinned:
        # Byte for byte: another certificate for the same key may have other dates and another name.
        if der_of(certificate) in key_info:
            return (certificate,)
    if trust.anchors:
        named = tuple(
            certificate
            for certificate in map(from_der, key_info)
            if certificate.subject.rfc4514_string() in trust.subjects
        )
        if named:
            return named
    raise SecurityFailure(
        "the message is signed with a certificate that the agreement does not name",
        remedy="if the partner has a new certificate, add it to the agreement",
    )


def check(
    certificate: x509.Certificate, trust: Trust, now: int, shown: Sequence[bytes] = ()
) -> None:
    """Refuse a certificate that the agreement does not allow at this instant.

    `shown` are further certificates of the message's KeyInfo: they may bridge the way to an anchor
    and are worth nothing else.
    """
    not_before, not_after = validity(certificate)
    # Also of pinned ones: a pin says who, not for how long.
    if now < not_before:
        raise SecurityFailure(f"the certificate of {_who(certificate)} is not valid yet")
    if now > not_after:
        raise SecurityFailure(
            f"the certificate of {_who(certificate)} has expired",
            remedy="ask the partner for the new one",
        )
    # A pinned certificate needs no chain: the agreement itself vouches for it.
    if certificate not in trust.pinned:
        if is_self_signed(certificate) and certificate not in trust.anchors:
            raise SecurityFailure(
                f"the certificate of {_who(certificate)} is self-signed "
                "and the agreement does not pin it",
                remedy="pin it in the agreement",
            )
        _check_chain(certificate, trust, now, shown)
        if certificate.subject.rfc4514_string() not in trust.subjects:
            raise SecurityFailure(f"the agreement does not name the subject {_who(certificate)}")
    _check_revocation(certificate, trust, now)


def _who(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()[:200]


def _check_chain(
    certificate: x509.Certificate, trust: Trust, now: int, shown: Sequence[bytes]
) -> None:
    """A path from the certificate to an anchor, each link good now."""
    who = _who(certificate)
    if not trust.anchors:
        raise SecurityFailure(
            f"the agreement neither pins the certificate of {who} nor names a trust anchor"
        )
    # Signing certificates of business partners follow their own authority's habits and not the
    # web's, so of the leaf only the path is asked; an issuer must be allowed to issue.
    issuers = verification.ExtensionPolicy.permit_all().require_present(
        x509.BasicConstraints, verification.Criticality.AGNOSTIC, None
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(trust.anchors)))
        .time(_EPOCH + timedelta(microseconds=now))
        .extension_policies(ca_policy=issuers, ee_policy=verification.ExtensionPolicy.permit_all())
        .build_client_verifier()
    )
    try:
        verifier.verify(certificate, [*trust.intermediates, *map(from_der, shown)])
    except verification.VerificationError as trouble:
        raise SecurityFailure(
            f"the certificate of {who} does not chain to a trust anchor of the agreement"
        ) from trouble


def _check_revocation(certificate: x509.Certificate, trust: Trust, now: int) -> None:
    """Refuse a revoked certificate; a list that is out of date or not its issuer's says nothing."""
    if not trust.crls and not trust.crl_required:
        return
    who = _who(certificate)
    checked = False
    for crl in trust.crls:
        # Serial numbers are unique per issuer only (RFC 5280).
        if crl.issuer != certificate.issuer:
            continue
        _check_crl(crl, trust, now)
        if crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise SecurityFailure(
                f"the certificate of {who} is revoked", remedy="ask the partner for the new one"
            )
        checked = True
    if trust.crl_required and not checked:
        raise SecurityFailure(f"there is no revocation list of the issuer of {who}")


def is_revoked(
    certificate: x509.Certificate,
    lists: Sequence[x509.CertificateRevocationList],
    issuers: Sequence[x509.Certificate],
) -> bool:
    """Whether a list that its issuer signed names the certificate; however old the list is,
    what was revoked stays so."""
    return any(
        crl.issuer == certificate.issuer
        and crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None
        and any(issuer.subject == crl.issuer and _signed_crl(crl, issuer) for issuer in issuers)
        for crl in lists
    )


def _check_crl(crl: x509.CertificateRevocationList, trust: Trust, now: int) -> None:
    """A list is used only when a known issuer signed it and it has not run out."""
    name = crl.issuer.rfc4514_string()[:200]
    issuers = [
        issuer for issuer in (*trust.anchors, *trust.intermediates) if issuer.subject == crl.issuer
    ]
    # An unsigned list could revoke a partner, or fail to.
    if not any(_signed_crl(crl, issuer) for issuer in issuers):
        raise SecurityFailure(
            f"the revocation list of {name} is not signed by a known issuer",
            remedy="add the issuer's certificate to the agreement",
        )
    until = crl.next_update_utc
    # A stale list may lack the revocation that matters.
    if until is not None and (until - _EPOCH) // _MICROSECOND < now:
        raise SecurityFailure(
            f"the revocation list of {name} is out of date", remedy="fetch the new list"
        )


def _signed_crl(crl: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    key = issuer.public_key()
    return isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey) and (
        crl.is_signature_valid(key)
    )


def _issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
