"""A message as it is kept, taken apart and checked again before anything is said of it.

That it was good when it came says nothing of the bytes that are on the disk today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from oncewire.errors import EbxmlError, SecurityFailure, StoreDamaged
from oncewire.handler.sealing.confide import is_closed
from oncewire.handler.sealing.intact import is_intact
from oncewire.message import Acknowledgment, Payload
from oncewire.message.form import Validation
from oncewire.wire import codec, header
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.refusal import ReadFault
from oncewire.wire.security import layout, signature, signing
from oncewire.wire.security.digests import USUAL, signature_parts
from oncewire.wire.security.references import SignedReference, bare_content_id, content_id_of


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the two messages of evidence: what is in it, and what of it a signature covers."""

    name: str
    received: Received
    # Whose key made the signature; None where there is none, or nobody knows.
    certificate: x509.Certificate | None
    # The octets of its envelope that are digested; the references say of what else.
    octets: bytes
    references: tuple[SignedReference, ...]
    # What of the kept bytes is not as it was signed or stored; empty where all is well.
    trouble: str

    @property
    def signed(self) -> bool:
        """Whether there is a signature, whoever made it."""
        return self.received.signed

    def document(self, uri: str) -> Payload | None:
        """The part that such a URI names."""
        wanted = content_id_of(uri)
        for payload in self.received.message.payloads:
            if wanted is not None and bare_content_id(payload.content_id) == wanted:
                return payload
        return None

    def acknowledgments(self) -> tuple[Acknowledgment, ...]:
        """Those that the signature covers: one for the next hop anybody may have put in."""
        try:
            reading = header.read(
                self.octets, None, DEFAULT_LIMITS, Validation.OFF, self.received.message.payloads
            )
        except ReadFault:
            # Without what nobody signed it is no acknowledgement any more.
            return ()
        return reading.message.acknowledgments


def taken_apart(name: str, parcel: Parcel, agreed: Sequence[x509.Certificate]) -> Kept:
    """The kept message, checked; StoreDamaged where it cannot even be read."""
    try:
        received = codec.read(parcel)
        if not received.signed:
            return _unsigned(name, parcel, received)
        report = signature.inspect(received.envelope, signature_parts(received), agreed)
        references = signature.signed_references(received.envelope)
    except (EbxmlError, ReadFault) as problem:
        raise StoreDamaged(
            f"the {name} that is kept cannot be read any more: {problem}",
            remedy="nothing can be proved by it; look for an older copy in a backup",
        ) from problem
    kept = Kept(name, received, report.certificate, report.octets, references, "")
    trouble = _trouble(kept, report) or _stored_otherwise(parcel)
    return Kept(name, received, report.certificate, report.octets, references, trouble)


def _unsigned(name: str, parcel: Parcel, received: Received) -> Kept:
    octets: bytes = b""
    references: tuple[SignedReference, ...] = ()
    try:
        octets = layout.envelope_octets(received.envelope)
        parts = signature_parts(received)
        references = signing.computed_references(received.envelope, parts, USUAL)
    except SecurityFailure:
        # What could not be signed, nobody can have signed for.
        pass
    return Kept(name, received, None, octets, references, _stored_otherwise(parcel))


def _stored_otherwise(parcel: Parcel) -> str:
    return "" if is_intact(parcel) else "is not what was stored: its digest is another one"


def _trouble(kept: Kept, report: signature.SignatureReport) -> str:
    if report.certificate is not None and not report.value_good:
        return "has a signature that was not made with the key of its certificate"
    for uri, good in report.references:
        if good:
            continue
        if not uri:
            return "is not what was signed: its envelope was changed"
        part = kept.document(uri)
        # The signature is over the document, and only who can decrypt it can compare.
        if part is None or not is_closed(part):
            return f"is not what was signed: its document {uri} is missing or was changed"
    return ""
