"""Keys: what this handler signs and decrypts with. They arrive here and are never logged."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography import x509

from oncewire.wire.security.algorithms import SigningKey


@dataclass(frozen=True, slots=True)
class Keys:
    """A private key and the certificate partners know it by."""

    certificate: x509.Certificate
    signing_key: SigningKey = field(repr=False)
