"""Keys and certificates for the tests, made once per process."""

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from oncewire.wire.security.algorithms import DIGEST_URIS, SIGNATURE_URIS, AlgorithmPolicy

WITH_SHA1 = AlgorithmPolicy(frozenset(SIGNATURE_URIS), frozenset(DIGEST_URIS))
"""What agreements of the first years allow, which name rsa-sha1 and sha1."""

NOW = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 1_000_000
_DAY = timedelta(days=1)
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Identity:
    """A private key and the certificate that goes with it."""

    key: Key
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def new_key(kind: str) -> Key:
    """`rsa` (2048 bits), or a curve: `p256`, `p384`, `p521`."""
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:] or 2048))
    curves = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}
    return ec.generate_private_key(curves[kind])


def name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def issue(
    common: str,
    kind: str = "p256",
    issuer: Identity | None = None,
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    days: int = 365,
    serial: int | None = None,
    ca: bool = False,
) -> Identity:
    """A new identity, self-signed unless an issuer is given."""
    key = new_key(kind)
    subject = name(common)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + days * _DAY)
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    signer = issuer.key if issuer else key
    return Identity(key, builder.sign(signer, hashes.SHA256()))


def alpha(kind: str = "p256") -> Identity:
    """The partner whose messages are believed."""
    return _kept("alpha", kind)


def mallory(kind: str = "p256") -> Identity:
    """Somebody else with a key of the same kind."""
    return _kept("mallory", kind)


@functools.cache
def _kept(common: str, kind: str) -> Identity:
    return issue(common, kind)
