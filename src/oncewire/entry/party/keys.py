"""Keys and certificates of a party: made here, kept in files that only their owner can read."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import PRIVATE, PUBLIC, read_bytes, write_new
from oncewire.errors import InvalidValue
from oncewire.message.instant import Instant

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

# Two years: long enough not to be a chore, short enough that a lost key stops mattering.
VALID_DAYS = 730
_RSA_BITS = 3072


class KeyKind(StrEnum):
    """RSA is what every partner's software takes; EC signs about fifty times faster."""

    RSA = "rsa"
    EC = "ec"


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Where a key pair is, and how its certificate is known."""

    certificate: Path
    key: Path
    fingerprint: str
    subject: str
    not_after: Instant


def make_keys(
    folder: Path,
    name: str,
    *,
    now: Instant,
    kind: KeyKind = KeyKind.RSA,
    hosts: Iterable[str] = ("localhost", "127.0.0.1", "::1"),
    replace: bool = False,
    subject: str = "",
) -> KeyFiles:
    """Make a key pair and a self-signed certificate: `NAME.key` (0600) and `NAME.crt`; it names
    `subject`, if that is another name than the files'."""
    from cryptography.hazmat.primitives import serialization

    key = _generate(kind)
    certificate = _self_signed(key, subject or name, now, hosts)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_path = write_new(folder / f"{name}.key", secret, PRIVATE, replace=replace)
    text = certificate.public_bytes(serialization.Encoding.PEM)
    certificate_path = write_new(folder / f"{name}.crt", text, PUBLIC, replace=replace)
    return _described(certificate, certificate_path, key_path)


def describe_keys(certificate: Path, key: Path) -> KeyFiles:
    """What the files hold; InvalidValue when they do not belong together."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        shown = x509.load_pem_x509_certificate(read_bytes(certificate, "certificate"))
    except ValueError as error:
        raise InvalidValue(
            f"{certificate} is no PEM certificate: {error}", remedy="name another file"
        ) from None
    try:
        secret = serialization.load_pem_private_key(read_bytes(key, "private key"), None)
    except (ValueError, TypeError) as error:
        raise InvalidValue(
            f"{key} is no unencrypted PEM private key: {error}", remedy="name another file"
        ) from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if secret.public_key().public_bytes(*form) != shown.public_key().public_bytes(*form):
        raise InvalidValue(
            f"{key} is not the key of {certificate}", remedy="name the pair that belongs together"
        )
    return _described(shown, certificate, key)


def is_private(path: Path) -> bool:
    """Whether only its owner can read the file."""
    return path.stat().st_mode & 0o077 == 0


def _generate(kind: KeyKind) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if kind is KeyKind.EC:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)


def _self_signed(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    name: str,
    now: Instant,
    hosts: Iterable[str],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    # A day back, for partners whose clocks are behind ours.
    start = datetime.fromtimestamp(now / 1_000_000, UTC).replace(microsecond=0) - timedelta(days=1)
    uses = dict.fromkeys(
        (
            "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
            "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
        ),
        False,
    )  # fmt: skip
    # Signing messages, TLS on both ends, and (RSA) keys of encrypted payloads.
    uses |= {"digital_signature": True, "content_commitment": True}
    uses["key_encipherment"] = isinstance(key, rsa.RSAPrivateKey)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=VALID_DAYS + 1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**uses), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _described(certificate: x509.Certificate, path: Path, key: Path) -> KeyFiles:
    from cryptography.hazmat.primitives import serialization

    from oncewire.agreement.certificates import spoken_fingerprint

    return KeyFiles(
        certificate=path,
        key=key,
        fingerprint=spoken_fingerprint(certificate.public_bytes(serialization.Encoding.DER)),
        subject=certificate.subject.rfc4514_string(),
        not_after=int(certificate.not_valid_after_utc.timestamp()) * 1_000_000,
    )
