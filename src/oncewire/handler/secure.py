"""Secure: what an agreement asks of signatures and certificates, applied to one message."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from cryptography import x509
from lxml import etree

from oncewire.agreement.resolve import Resolution
from oncewire.errors import AgreementProblem, SecurityFailure
from oncewire.handler.node import Node
from oncewire.handler.source import Source
from oncewire.message.acknowledgment import SignedDigest
from oncewire.message.envelope import Message
from oncewire.message.form import Security, Validation
from oncewire.message.payload import Payload
from oncewire.wire import header as wire_header
from oncewire.wire import references, signature, signing
from oncewire.wire.algorithms import (
    CANONICAL_URIS,
    DIGEST_URIS,
    SAFE,
    SIGNATURE_URIS,
    AlgorithmPolicy,
    canonical_name,
    digest_name,
    signature_name,
)
from oncewire.wire.certificates import Trust, load_certificate, load_crl
from oncewire.wire.codec import Signer
from oncewire.wire.received import Received
from oncewire.wire.references import PartDigests, SignedReference

_WITH_SHA1 = AlgorithmPolicy(
    signatures=frozenset(SIGNATURE_URIS),
    digests=frozenset(DIGEST_URIS),
    canonicalizations=frozenset(CANONICAL_URIS),
    min_rsa_bits=1024,
)


def signer_for(node: Node, security: Security) -> Signer:
    """The function that signs an envelope of ours as the agreement says."""
    keys = node.keys
    if keys is None:
        raise AgreementProblem(
            "a signature is agreed, but this handler has no signing key",
            key="security.sign",
            remedy="give the handler a key and certificate, or agree on unsigned messages",
        )
    choice = signing.SigningChoice(
        signature_name(security.signature_algorithm),
        digest_name(security.digest_algorithm),
        canonical_name(security.canonicalization),
    )

    def sign(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [_digests(payload, choice.digest) for payload in payloads]
        return signing.sign(envelope, parts, keys.signing_key, keys.certificate, choice).envelope

    return sign


def _digests(payload: Payload, *names: str) -> PartDigests:
    """A payload's digests; SHA-256 is at hand, others need the bytes."""
    found: dict[str, bytes] = {"sha256": bytes.fromhex(payload.digest)}
    for name in names:
        if name not in found:
            if payload.data is None:
                raise SecurityFailure(
                    f"the digest {name} of a large payload is not at hand",
                    location=f"cid:{payload.content_id}",
                    remedy="agree on sha256",
                )
            found[name] = hashlib.new(name, payload.data).digest()
    return PartDigests(payload.content_id, found)


def verified_message(
    node: Node, received: Received, resolution: Resolution, source: Source
) -> Message:
    """The message as far as it may be believed.

    Where there is a signature the values are read again from the signed tree alone, so
    nothing that was wrapped around it or slipped beside it can be taken for its content.
    """
    _check_connection(resolution, source)
    security = resolution.security
    required = security.require_signature
    if not received.signed:
        if required:
            raise SecurityFailure(
                "the agreement asks for a signature, the message has none",
                location="//Header/Signature",
            )
        return received.message
    if not required and not security.partner_certificates and not security.trust_anchors:
        # Signed for somebody who can check it; to us it is as good as unsigned.
        return received.message
    message = received.message
    needed = set(signature.digests_needed(received.envelope).values())
    parts = [_digests(payload, *needed) for payload in message.payloads]
    policy = _WITH_SHA1 if security.allow_sha1 else SAFE
    verified = signature.verify(received.envelope, parts, _trust(security), node.now(), policy)
    octets = signature.readable_envelope(verified)
    reading = wire_header.read(octets, "utf-8", node.limits, Validation.OFF)
    unsigned = set(verified.unsigned_parts)
    payloads = tuple(one for one in message.payloads if one.content_id not in unsigned)
    return replace(reading.message, payloads=payloads)


def _check_connection(resolution: Resolution, source: Source) -> None:
    """The TLS certificate of the connection, where the agreement binds one."""
    expected = resolution.agreement.partner.client_certificates
    if not expected or source.transport != "http":
        return
    if source.certificate is None:
        raise SecurityFailure(
            "the agreement binds a client certificate, the connection showed none",
            remedy="connect with the certificate that the agreement names",
        )
    if hashlib.sha256(source.certificate).hexdigest() not in expected:
        raise SecurityFailure(
            "the connection's client certificate is not the agreed one",
            remedy="connect with the certificate that the agreement names",
        )


def _trust(security: Security) -> Trust:
    pinned = tuple(load_certificate(der) for der in security.partner_certificates)
    anchors = tuple(load_certificate(der) for der in security.trust_anchors)
    subjects: frozenset[str] = frozenset(one.subject.rfc4514_string() for one in pinned)
    crls: tuple[x509.CertificateRevocationList, ...] = tuple(
        load_crl(der) for der in security.revocation_lists
    )
    return Trust(pinned=pinned, anchors=anchors, subjects=subjects, crls=crls)


def receipt_references(received: Received) -> tuple[SignedDigest, ...]:
    """The digests a signed acknowledgement repeats: the message's own, or computed ones."""
    parts = [_digests(payload) for payload in received.message.payloads]
    if received.signed:
        root = etree.fromstring(received.envelope, etree.XMLParser(resolve_entities=False))
        signed_info = root.find(f".//{{{references.DS}}}SignedInfo")
        found = () if signed_info is None else references.read_references(signed_info)
    else:
        found = signing.computed_references(received.envelope, parts, "sha256")
    return tuple(_signed_digest(one) for one in found)


def _signed_digest(reference: SignedReference) -> SignedDigest:
    (element,) = references.reference_elements([reference])
    return SignedDigest(
        reference.uri,
        DIGEST_URIS[reference.digest_name],
        reference.digest,
        etree.tostring(element),
    )
