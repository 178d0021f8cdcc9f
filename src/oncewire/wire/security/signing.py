"""Signing an envelope and its parts, as ebMS 2.0 §4.1.3 asks.

The given bytes are written into and none of them changes: the signature is inserted before the end
of the header. Keys and certificates arrive as arguments.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, certificates, nodeset, references, wrapping
from oncewire.wire.security.algorithms import SigningKey
from oncewire.wire.security.layout import Laid, info_octets, laid_out, lay
from oncewire.wire.security.layouts import Layouts
from oncewire.wire.security.references import DS, PartDigests, SignedReference


@dataclass(frozen=True, slots=True)
class SigningChoice:
    """The algorithms the agreement names for what we sign, by short name."""

    signature: str = "rsa-sha256"
    digest: str = "sha256"
    # What §4.1.3 names; a partner of 2002 may know no other.
    canonicalization: str = "c14n"


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed envelope, and the digests a signed acknowledgment of it must carry."""

    envelope: bytes
    references: tuple[SignedReference, ...]


def sign(
    envelope: bytes,
    parts: Sequence[PartDigests],
    key: SigningKey,
    certificate: x509.Certificate,
    choice: SigningChoice = SigningChoice(),  # noqa: B008  (frozen)
    layouts: Layouts | None = None,
) -> Signed:
    """The envelope with a ds:Signature over itself and over every part.

    Each part brings its digest by the chosen algorithm, so that its content need not be at hand.
    `layouts` are what was learned of earlier ones: the same result, sooner.
    """
    method = choice.canonicalization
    laid = laid_out(envelope, method) if layouts is None else layouts.laid(envelope, method)
    signed = _references(laid, parts, choice.digest, method)
    signed_info = _signed_info_xml(signed, choice)
    # Canonicalised as its verifier will see it, in the header with all that is in force there.
    octets_of = info_octets if layouts is None else layouts.info_octets
    octets = octets_of(_in_context(signed_info, laid.context), method)
    value = algorithms.sign_octets(key, choice.signature, octets)
    signature = _signature_xml(signed_info, value, certificate)
    at = laid.insert_at
    return Signed(envelope[:at] + signature + envelope[at:], signed)


def computed_references(
    envelope: bytes, parts: Sequence[PartDigests], digest: str, canonicalization: str = "c14n"
) -> tuple[SignedReference, ...]:
    """The references a signature of this unsigned message would carry.

    A signed acknowledgment of an unsigned message carries them as its proof of receipt, and the
    sender computes them from what it sent to check that proof.
    """
    root = nodeset.parse(envelope)
    laid = lay(root, wrapping.frame_of(root), canonicalization, "", -1)
    return _references(laid, parts, digest, canonicalization)


def _references(
    laid: Laid, parts: Sequence[PartDigests], digest: str, canonicalization: str
) -> tuple[SignedReference, ...]:
    """The digests of envelope and parts."""
    uris = _uris_of_parts(laid.manifest, parts)
    made = algorithms.digest(digest, laid.octets)
    first = SignedReference("", digest, made, laid.exclusion, canonicalization)
    rest = [
        SignedReference(uri, digest, _digest_of(part, digest))
        for uri, part in zip(uris, parts, strict=True)
    ]
    return (first, *rest)


def _uris_of_parts(manifest: Sequence[str], parts: Sequence[PartDigests]) -> list[str]:
    """The URI of each part as the Manifest writes it: the standard wants both equal."""
    # §4.1.3: the reference has the URI of the Manifest; an equal part under another spelling is
    # another text.
    written = {references.content_id_of(uri): uri for uri in manifest}
    named = [references.bare_content_id(part.content_id) for part in parts]
    missing = sorted(str(content_id) for content_id in written.keys() - set(named))
    if missing:
        raise SecurityFailure(f"part {missing[0][:120]!r} of the Manifest has no digest to sign")
    if len(set(named)) != len(named):
        raise SecurityFailure("two parts have one Content-ID")
    return [written.get(content_id, f"cid:{content_id}") for content_id in named]


def _digest_of(part: PartDigests, name: str) -> bytes:
    found = part.digests.get(name)
    if found is None:
        raise SecurityFailure(f"part {part.content_id[:120]!r} comes without its {name} digest")
    return found


def _signed_info_xml(signed: Sequence[SignedReference], choice: SigningChoice) -> str:
    canonical = algorithms.CANONICAL_URIS[choice.canonicalization]
    return (
        "<ds:SignedInfo>"
        f'<ds:CanonicalizationMethod Algorithm="{canonical}"/>'
        f'<ds:SignatureMethod Algorithm="{algorithms.SIGNATURE_URIS[choice.signature]}"/>'
        f"{''.join(references.reference_xml(reference) for reference in signed)}"
        "</ds:SignedInfo>"
    )


def _signature_xml(signed_info: str, value: bytes, certificate: x509.Certificate) -> bytes:
    return (
        f'<ds:Signature xmlns:ds="{DS}">{signed_info}'
        f"<ds:SignatureValue>{base64.b64encode(value).decode('ascii')}</ds:SignatureValue>"
        f"{_key_info_xml(certificate)}</ds:Signature>"
    ).encode()


@functools.lru_cache(maxsize=64)
def _key_info_xml(certificate: x509.Certificate) -> str:
    encoded = base64.b64encode(certificates.der_of(certificate)).decode("ascii")
    return (
        f"<ds:KeyInfo><ds:X509Data><ds:X509Certificate>{encoded}</ds:X509Certificate>"
        "</ds:X509Data></ds:KeyInfo>"
    )


def _in_context(signed_info: str, context: str) -> bytes:
    return f'<r {context}><ds:Signature xmlns:ds="{DS}">{signed_info}</ds:Signature></r>'.encode()
