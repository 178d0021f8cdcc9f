"""The digests of received parts that a signature will ask for, kept while the parts pass by."""

from __future__ import annotations

from oncewire.wire.received import Received
from oncewire.wire.security import algorithms
from oncewire.wire.security.references import PartDigests

USUAL = "sha256"
"""Every payload's SHA-256 is known anyway; only others must be asked for."""

_OTHERS = tuple(
    (name, uri.encode() + b'"') for name, uri in algorithms.DIGEST_URIS.items() if name != USUAL
)


def digest_names(envelope: bytes) -> tuple[str, ...]:
    """Digest algorithms other than SHA-256 that the header names, by their short names."""
    quoted = envelope.replace(b"'", b'"')
    # By text search: what is found too much costs a digest, and the signature's reader judges
    # exactly.
    return tuple(name for name, uri in _OTHERS if uri in quoted)


def signature_parts(received: Received) -> tuple[PartDigests, ...]:
    """Each payload as the signature's modules want it."""
    others = digest_names(received.envelope) if received.signed else ()
    parts = []
    for payload in received.message.payloads:
        digests = {USUAL: bytes.fromhex(payload.digest)}
        if payload.data is not None:
            digests.update((name, algorithms.digest(name, payload.data)) for name in others)
        digests |= {
            name: digest
            for content_id, name, digest in received.extra_digests
            if content_id == payload.content_id
        }
        parts.append(PartDigests(payload.content_id, digests))
    return tuple(parts)
