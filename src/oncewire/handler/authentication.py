"""Authentication: what an agreement asks of signatures and certificates, applied to a message.

Here stands what makes a message its partner's own word. It is *authentic* when it proves what the
agreement asks for: a signature of a trusted certificate, a TLS connection that showed the agreed
certificate (the partner's to us, or ours to the partner's endpoint), or both. An agreement that
asks for neither goes by the names of the parties, the CPAId and a MessageId that is outstanding;
`agreement check` warns of it.

What is not authentic counts for nothing. It is not stored, ends no message, settles and
takes back no outcome, and is answered with nothing that is signed: such an answer would be
believed by whoever the message names. It is counted and shown (`ignored`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from cryptography import x509
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction, Withdrawn
from oncewire.agreement.resolve import Resolution, find_binding
from oncewire.errors import EbxmlError, MimeProblem, SecurityFailure
from oncewire.handler.actions import REPLY, Source
from oncewire.handler.encryption import Opening, closed_for_others
from oncewire.handler.route import peer_label
from oncewire.message.envelope import Acknowledgment, Header, Message, MessageKind, SignedDigest
from oncewire.message.form import Security
from oncewire.message.instant import Instant
from oncewire.store.records import StoredParcel
from oncewire.wire.codec import read_verified
from oncewire.wire.parcel import Parcel, Received
from oncewire.wire.security import references, signature, wrapping
from oncewire.wire.security.algorithms import (
    CANONICAL_URIS,
    DIGEST_URIS,
    SAFE,
    SIGNATURE_URIS,
    AlgorithmPolicy,
)
from oncewire.wire.security.certificates import (
    Trust,
    der_of,
    is_revoked,
    load_certificate,
    load_crl,
)
from oncewire.wire.security.references import PartDigests, SignedReference, signature_parts
from oncewire.wire.security.signature import acknowledged_digests
from oncewire.wire.splice import envelope_in

if TYPE_CHECKING:
    from oncewire.handler.context import HandlerContext

_WITH_SHA1 = AlgorithmPolicy(
    signatures=frozenset(SIGNATURE_URIS),
    digests=frozenset(DIGEST_URIS),
    canonicalizations=frozenset(CANONICAL_URIS),
    min_rsa_bits=1024,
)


def verified_message(
    context: HandlerContext, received: Received, resolution: Resolution, source: Source
) -> Message:
    """The message as far as it may be believed, its payloads opened.

    Where there is a signature the values are read again from the signed tree alone, so
    nothing that was wrapped around it or slipped beside it can be taken for its content.
    """
    agreement, at = resolution.agreement, resolution.accepted_at
    if agreement.partner.client_certificates:
        check_connection(context, agreement, source, at)
    return _believed(context, received, resolution.security, peer_label(agreement), at)


def check_passing(
    context: HandlerContext, received: Received, resolution: Resolution, source: Source
) -> None:
    """At a hub: whether a neighbour's own message proves what the hub asks of it. What is
    encrypted for somebody else it cannot look into; its receiver can."""
    check_connection(context, resolution.agreement, source, resolution.accepted_at)
    security = resolution.security
    if not received.signed and not security.require_signature:
        return
    _verified(
        context,
        received,
        security,
        resolution.accepted_at,
        lambda signed: closed_for_others(context, received, signed),
    )


def is_verified(received: Received, security: Security) -> bool:
    """Whether what is believed of a message is what its signature covers: one is there, and is
    required, or can be checked."""
    known = security.partner_certificates or security.trust_anchors
    return received.signed and (security.require_signature or bool(known))


def is_authentic(
    context: HandlerContext, agreement: Agreement, source: Source, received: Received | None = None
) -> bool:
    """Whether something that came is the partner's own word, as far as the agreement asks for
    proof. Without `received` it is a word that cannot be signed: a SOAP Fault, or a message that
    could not be read."""
    security = agreement.receiving.security
    if received is None and security.require_signature:
        return False
    try:
        check_connection(context, agreement, source)
        if received is not None:
            security = _security_of(agreement, received.message)
            _believed(context, received, security, peer_label(agreement))
    except EbxmlError:
        return False
    return True


def _security_of(agreement: Agreement, message: Message) -> Security:
    try:
        return find_binding(agreement, Direction.RECEIVE, message).security
    except EbxmlError:
        # It is refused because there is none for it; what holds for everything else holds here.
        return agreement.receiving.security


def _believed(
    context: HandlerContext,
    received: Received,
    security: Security,
    partner: str,
    accepted_at: Instant | None = None,
) -> Message:
    if security.encrypt and received.message.payloads:
        return _believed_closed(context, received, security, partner, accepted_at)

    def parts(_signed: Sequence[SignedReference]) -> tuple[PartDigests, ...]:
        return signature_parts(received)

    verified = _verified(context, received, security, accepted_at, parts, partner)
    if verified is None:
        return received.message
    return _signed_message(context, received, verified, partner)


def _believed_closed(
    context: HandlerContext,
    received: Received,
    security: Security,
    partner: str,
    accepted_at: Instant | None,
) -> Message:
    """What is believed of a message whose payloads are encrypted.

    There is one answer, whether one could not be opened or is not what was signed: to tell them
    apart would open documents to an attacker who asks often enough.
    """
    opening = Opening(context, received, security)
    try:
        verified = _verified(context, received, security, accepted_at, opening.parts)
        if verified is None:
            return opening.plain(received.message)
        return opening.plain(_signed_message(context, opening.received, verified, partner))
    except SecurityFailure as failure:
        if not failure.location.startswith("cid:"):
            raise
        raise SecurityFailure(
            "a payload cannot be opened, or is not what its sender signed",
            location=failure.location,
            remedy="compare the certificates of both sides, then send it again",
        ) from failure


def _signed_message(
    context: HandlerContext, received: Received, verified: signature.Verified, partner: str
) -> Message:
    templates = context.caches.templates.envelopes
    believed = read_verified(received, verified, context.limits, templates, partner).message
    found = received.message
    alike = believed.kind is found.kind and believed.header == found.header
    if not alike and _header(believed) != _header(found):
        # The agreement was found by what was read first: it must be the same that is signed.
        raise SecurityFailure(
            "the signed header is another one than the one that was found first",
            location="//Header/MessageHeader",
        )
    return believed


def _verified(
    context: HandlerContext,
    received: Received,
    security: Security,
    accepted_at: Instant | None,
    parts: signature.Parts,
    partner: str | None = None,
) -> signature.Verified | None:
    """What the signature proves; None where there is none that anybody here asks for. Who it is
    said to be of is told where nothing happens when the digests of the parts are asked for."""
    if not received.signed:
        if security.require_signature:
            raise SecurityFailure(
                "the agreement asks for a signature, the message has none",
                location="//Header/Signature",
            )
        return None
    if not is_verified(received, security):
        # Signed for a handler that can check it; to us it is as good as unsigned.
        return None
    policy = _WITH_SHA1 if security.allow_sha1 else SAFE
    # A certificate that has expired since was good for what was signed with it before.
    at = context.now() if accepted_at is None else accepted_at
    asked = received.octets, parts, _trust(security), at, policy
    if partner is None:
        verified = signature.verify_signature(*asked)
    else:
        verified = context.caches.templates.signatures.verify(partner, *asked)
    if is_withdrawn(context.agreements.withdrawn, verified.certificate):
        # Whatever was agreed, and whenever: who is not trusted any more is not believed.
        raise SecurityFailure(
            "the message is signed with a certificate that was revoked",
            location="//Header/Signature",
            remedy="sign with the partner's new certificate",
        )
    return verified


def _header(message: Message) -> tuple[MessageKind, Header]:
    """What a message says of itself; foreign elements are kept as bytes, and those may differ."""
    return message.kind, replace(message.header, foreign=())


def is_withdrawn(withdrawn: Withdrawn, certificate: x509.Certificate) -> bool:
    """Whether a certificate was revoked, by us or by its authority."""
    if der_of(certificate) in withdrawn.certificates:
        return True
    lists = [load_crl(der) for der in withdrawn.lists]
    return is_revoked(certificate, lists, [load_certificate(der) for der in withdrawn.issuers])


def check_connection(
    context: HandlerContext,
    agreement: Agreement,
    source: Source,
    accepted_at: Instant | None = None,
) -> None:
    """The TLS certificate of the connection, where the agreement binds one.

    What was accepted under an older agreement may come over a connection of today's.
    """
    expected = set(agreement.partner.client_certificates)
    if not expected:
        return
    today: list[Agreement] = []
    if accepted_at is not None:
        today += context.agreements.between(agreement.own.party, agreement.partner.party)
    if source.transport == REPLY:
        _check_reply(source, (agreement, *today))
        return
    if source.transport != "http" and agreement.receiving.security.require_signature:
        # No other transport shows a certificate; there the signature has to do.
        return
    for each_agreement in today:
        expected |= set(each_agreement.partner.client_certificates)
    expected -= {
        hashlib.sha256(der).hexdigest() for der in context.agreements.withdrawn.certificates
    }
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


def _check_reply(source: Source, agreements: tuple[Agreement, ...]) -> None:
    """A reply is the word of the one we connected to, whatever party it names."""
    if not source.secured:
        raise SecurityFailure(
            "the agreement knows its partner by a certificate, and the reply came without TLS",
            remedy="agree on an https address for the partner",
        )
    if not any(agreement.is_reached_at(source.address) for agreement in agreements):
        raise SecurityFailure(
            "the agreement knows its partner by a certificate, and the reply came from an address"
            " that is not the partner's",
            remedy="let the partner itself say so",
        )


# Every message of a partner is verified with the same certificates.
@lru_cache(maxsize=1024)
def _trust(security: Security) -> Trust:
    pinned = tuple(load_certificate(der) for der in security.partner_certificates)
    anchors = tuple(load_certificate(der) for der in security.trust_anchors)
    subjects: frozenset[str] = frozenset(
        certificate.subject.rfc4514_string() for certificate in pinned
    )
    crls: tuple[x509.CertificateRevocationList, ...] = tuple(
        load_crl(der) for der in security.revocation_lists
    )
    return Trust(pinned=pinned, anchors=anchors, subjects=subjects, crls=crls)


def receipt_references(context: HandlerContext, received: Received) -> tuple[SignedDigest, ...]:
    """The digests a signed acknowledgement repeats: the message's own, or computed ones."""
    known = (
        context.caches.templates.signatures.references(received.octets) if received.signed else None
    )
    return acknowledged_digests(known or _references(received))


def _references(received: Received) -> tuple[SignedReference, ...]:
    signed = _references_in(received.octets) if received.signed else None
    if signed is not None:
        return signed
    parts = signature_parts(received)
    return signature.computed_references(received.octets, parts, "sha256")


def _references_in(envelope: bytes) -> tuple[SignedReference, ...] | None:
    """What the signature of an envelope covers; None where it has none."""
    header = wrapping.frame_of(references.parse(envelope)).header
    signed_info = header.find(f"{{{references.DS}}}Signature/{{{references.DS}}}SignedInfo")
    if signed_info is None:
        return None
    return references.read_references(references.standing_alone(signed_info))


def references_sent(
    context: HandlerContext, parcel: StoredParcel
) -> tuple[SignedReference, ...] | None:
    """What the signature of a message of ours covers, without reading the rest of it; None where
    that has to be read."""
    pieces = [part for part in parcel.body if isinstance(part, bytes)]
    if len(pieces) < len(parcel.body):
        return None
    whole = Parcel(parcel.content_type, b"".join(pieces), parcel.headers)
    try:
        envelope = envelope_in(whole, context.limits)
        return context.caches.templates.signatures.references(envelope) or _references_in(envelope)
    except (MimeProblem, SecurityFailure):
        return None


def proves_receipt(sent: Received | tuple[SignedReference, ...], ack: Acknowledgment) -> bool:
    """Whether a signed acknowledgement names exactly the digests of what we sent (S10); `sent`:
    the message, or what its signature covers."""
    try:
        theirs = [
            references.acknowledged(digest.uri, digest.digest_method, digest.digest_value)
            for digest in ack.references
        ]
        ours = sent if isinstance(sent, tuple) else _references(sent)
        references.check_acknowledged(theirs, ours)
    except SecurityFailure:
        return False
    return True
