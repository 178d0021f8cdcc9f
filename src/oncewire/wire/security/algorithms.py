"""Which algorithms may sign a message, by their URI, and how a signature value is made and checked.

Names are short (`rsa-sha256`, `sha256`, `exc-c14n`) everywhere but on the wire. Only what stands in
these tables exists for us: an HMAC or an unknown URI has no entry, so no code path can use it.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from oncewire.errors import SecurityFailure

SigningKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_XMLDSIG = "http://www.w3.org/2000/09/xmldsig#"
# RFC 4051's names for what XML Signature of 2002 lacked.
_MORE = "http://www.w3.org/2001/04/xmldsig-more#"
_XMLENC = "http://www.w3.org/2001/04/xmlenc#"

SIGNATURE_URIS: dict[str, str] = {
    "rsa-sha1": f"{_XMLDSIG}rsa-sha1",
    "rsa-sha256": f"{_MORE}rsa-sha256",
    "rsa-sha384": f"{_MORE}rsa-sha384",
    "rsa-sha512": f"{_MORE}rsa-sha512",
    "ecdsa-sha256": f"{_MORE}ecdsa-sha256",
    "ecdsa-sha384": f"{_MORE}ecdsa-sha384",
    "ecdsa-sha512": f"{_MORE}ecdsa-sha512",
}
DIGEST_URIS: dict[str, str] = {
    "sha1": f"{_XMLDSIG}sha1",
    "sha256": f"{_XMLENC}sha256",
    "sha384": f"{_MORE}sha384",
    "sha512": f"{_XMLENC}sha512",
}
# Without comments, both: URI="" has none to sign (XML Signature §4.3.3.3).
CANONICAL_URIS: dict[str, str] = {
    "c14n": "http://www.w3.org/TR/2001/REC-xml-c14n-20010315",
    "exc-c14n": "http://www.w3.org/2001/10/xml-exc-c14n#",
}

_SIGNATURE_NAMES = {uri: name for name, uri in SIGNATURE_URIS.items()}
_DIGEST_NAMES = {uri: name for name, uri in DIGEST_URIS.items()}
_CANONICAL_NAMES = {uri: name for name, uri in CANONICAL_URIS.items()}

# SHA-1 is in the reader's table because agreements of 2002 name it; a policy must ask for it.
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "sha1": hashes.SHA1(),  # noqa: S303
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
# Found by name once: `hashlib.new` takes as long as a digest.
_DIGESTS = {name: functools.partial(hashlib.new, name) for name in DIGEST_URIS} | {
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_ECDSA = {name: ec.ECDSA(algorithm) for name, algorithm in _HASHES.items()}


def signature_name(uri: str) -> str:
    """The short name of a SignatureMethod; HMAC and anything unknown is refused."""
    return _known(uri, _SIGNATURE_NAMES, "signature algorithm")


def digest_name(uri: str) -> str:
    """The short name of a DigestMethod; anything unknown is refused."""
    return _known(uri, _DIGEST_NAMES, "digest algorithm")


def canonical_name(uri: str) -> str:
    """The short name of a canonicalization; the variants with comments are not the standard's."""
    return _known(uri, _CANONICAL_NAMES, "canonicalization")


def _known(uri: str, names: dict[str, str], what: str) -> str:
    name = names.get(uri)
    if name is None:
        raise SecurityFailure(f"{what} {uri[:120]!r} is not accepted")
    return name


def digest(name: str, octets: bytes) -> bytes:
    """The digest of the octets by its short name."""
    return _DIGESTS[name](octets).digest()


@dataclass(frozen=True, slots=True)
class AlgorithmPolicy:
    """What the agreement lets a partner sign with; the default is what is safe today."""

    signatures: frozenset[str] = field(default=frozenset(SIGNATURE_URIS) - {"rsa-sha1"})
    digests: frozenset[str] = field(default=frozenset(DIGEST_URIS) - {"sha1"})
    canonicalizations: frozenset[str] = field(default=frozenset(CANONICAL_URIS))
    # Certificates of the first ebMS rollouts have 1024-bit keys; such an agreement says so.
    min_rsa_bits: int = 2048

    def check_signature(self, name: str) -> None:
        """Refuse a signature algorithm that the agreement does not allow."""
        self._check(name, self.signatures, "signature algorithm")

    def check_digest(self, name: str) -> None:
        """Refuse a digest algorithm that the agreement does not allow."""
        self._check(name, self.digests, "digest algorithm")

    def check_canonicalization(self, name: str) -> None:
        """Refuse a canonicalization that the agreement does not allow."""
        self._check(name, self.canonicalizations, "canonicalization")

    def _check(self, name: str, allowed: frozenset[str], what: str) -> None:
        if name not in allowed:
            raise SecurityFailure(
                f"{what} {name} is not allowed by the agreement",
                remedy=f"the agreement allows {', '.join(sorted(allowed))}",
            )


SAFE = AlgorithmPolicy()


def kind_of(key: SigningKey) -> str:
    """How the names of the algorithms begin that a key signs with."""
    return "rsa" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa"


def sign_octets(key: SigningKey, name: str, octets: bytes) -> bytes:
    """The SignatureValue of the octets; the kind of key must be the one the algorithm names."""
    kind, hash_algorithm = _parts(name)
    if kind == "rsa" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(octets, padding.PKCS1v15(), hash_algorithm)
    if kind == "ecdsa" and isinstance(key, ec.EllipticCurvePrivateKey):
        # XML Signature writes r and s side by side at the curve's width, not as ASN.1.
        r, s = decode_dss_signature(key.sign(octets, _ECDSA[hash_algorithm.name]))
        width = (key.curve.key_size + 7) // 8
        return r.to_bytes(width, "big") + s.to_bytes(width, "big")
    raise SecurityFailure(
        f"the private key is not of the kind that {name} needs",
        remedy="name an algorithm of the key's kind in the agreement",
    )


def verify_octets(
    certificate: x509.Certificate, name: str, octets: bytes, value: bytes, min_rsa_bits: int
) -> bool:
    """Whether the value is the certificate holder's signature of the octets.

    The key's own kind must be the algorithm's kind (XML Signature §8.2): a public key used as an
    HMAC secret is the oldest confusion.
    """
    kind, hash_algorithm = _parts(name)
    key = _public_key(certificate)
    try:
        if kind == "rsa" and isinstance(key, rsa.RSAPublicKey):
            if key.key_size < min_rsa_bits:
                raise SecurityFailure(
                    f"the certificate's RSA key has {key.key_size} bits, fewer than {min_rsa_bits}"
                )
            key.verify(value, octets, padding.PKCS1v15(), hash_algorithm)
            return True
        if kind == "ecdsa" and isinstance(key, ec.EllipticCurvePublicKey):
            width = (key.curve.key_size + 7) // 8
            # Shorter or longer encodings of r and s would make two texts of one signature.
            if len(value) != 2 * width:
                return False
            r, s = int.from_bytes(value[:width], "big"), int.from_bytes(value[width:], "big")
            key.verify(encode_dss_signature(r, s), octets, _ECDSA[hash_algorithm.name])
            return True
    except InvalidSignature:
        return False
    raise SecurityFailure(f"the certificate's key is not of the kind that {name} needs")


def _parts(name: str) -> tuple[str, hashes.HashAlgorithm]:
    if name not in SIGNATURE_URIS:
        raise SecurityFailure(f"signature algorithm {name!r} is not known")
    kind, _, hash_name = name.partition("-")
    return kind, _HASHES[hash_name]


@functools.lru_cache(maxsize=1024)
def _public_key(certificate: x509.Certificate) -> CertificatePublicKeyTypes:
    # Decoding the key costs as much as an ECDSA verification; partners are few, messages many.
    return certificate.public_key()
