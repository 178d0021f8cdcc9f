"""Keys of the parties of a wild world: made from their names, so that every replay has the same."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oncewire.handler.keys import Keys


@cache
def keys_of(name: str) -> Keys:
    """The key a party signs with, and its certificate. Worth nothing outside a simulation."""
    secret = int.from_bytes(hashlib.sha256(f"simulated {name}".encode()).digest()) >> 1
    key = ec.derive_private_key(secret, ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(secret % 2**64 + 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    return Keys(certificate, key)


@cache
def certificate_pem(name: str) -> str:
    """The certificate as an agreement holds it."""
    encoding = serialization.Encoding.PEM
    return keys_of(name).certificate.public_bytes(encoding).decode()
