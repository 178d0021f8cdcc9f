"""A message from options and payload files: what `oncewire message build` makes.

It is for tests, for partners' questions and for learning; messages that must arrive are sent
with `oncewire send`, which keeps, numbers and repeats them.
"""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import read_bytes
from oncewire.errors import InvalidValue
from oncewire.message import (
    AckRequest,
    AckRequested,
    Actor,
    DeliverySemantics,
    Dialect,
    Header,
    Message,
    MessageKind,
    Party,
    PartyId,
    Payload,
    RoutingHeader,
    SequenceNumber,
    Service,
)
from oncewire.message.form import Form
from oncewire.message.ids import is_uri
from oncewire.message.instant import Duration, Instant
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.agreement.agreement import Agreement
    from oncewire.entry.keys import KeyFiles

_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a message to build."""

    from_party: Party
    to_party: Party
    cpa_id: str
    service: Service
    action: str
    message_id: str
    conversation_id: str
    timestamp: Instant
    form: Form = field(default_factory=Form)
    ack: AckRequest = AckRequest.NONE
    duplicate_elimination: bool = False
    ref_to_message_id: str | None = None
    time_to_live: Duration | None = None
    sequence: int | None = None
    sync_reply: bool = False
    payloads: tuple[Payload, ...] = ()


def read_party(text: str) -> Party:
    """`value` or `type|value`: the same way for both sides of a message."""
    kind, bar, value = text.rpartition("|")
    return Party.of(value if bar else text, kind if bar else None)


def read_payload(place: str, number: int) -> Payload:
    """`FILE` or `FILE;media/type` as the payload with that number."""
    name, _, media_type = place.partition(";")
    path = Path(name)
    guessed = mimetypes.guess_type(path.name)[0] or _MEDIA_TYPE
    data = read_bytes(path, "payload")
    return Payload.of(f"payload-{number}@oncewire", media_type.strip() or guessed, data)


def under_agreement(wanted: Wanted, agreement: Agreement) -> Wanted:
    """The same under an agreement: its parties, its form, its wishes."""
    terms = agreement.sending.terms
    return replace(
        wanted,
        from_party=agreement.own.party,
        to_party=agreement.partner.party,
        cpa_id=agreement.cpa_id,
        form=agreement.form,
        ack=terms.ack_requested if wanted.ack is AckRequest.NONE else wanted.ack,
        duplicate_elimination=wanted.duplicate_elimination or terms.duplicate_elimination,
    )


def message_of(wanted: Wanted) -> Message:
    """The message's values, in the dialect of its form."""
    reliable = wanted.ack is not AckRequest.NONE
    draft = wanted.form.dialect is not Dialect.EBMS2
    once = DeliverySemantics.ONCE_AND_ONLY_ONCE
    header = Header(
        from_party=wanted.from_party,
        to_party=wanted.to_party,
        cpa_id=wanted.cpa_id,
        conversation_id=wanted.conversation_id,
        service=wanted.service,
        action=wanted.action,
        message_id=wanted.message_id,
        timestamp=wanted.timestamp,
        ref_to_message_id=wanted.ref_to_message_id,
        time_to_live=None
        if wanted.time_to_live is None
        else wanted.timestamp + wanted.time_to_live,
        semantics=once if reliable else DeliverySemantics.BEST_EFFORT,
        duplicate_elimination=wanted.duplicate_elimination,
        sync_reply_as_agreed=wanted.sync_reply,
    )
    number = None if wanted.sequence is None else SequenceNumber(wanted.sequence)
    asked = AckRequested(Actor.TO_PARTY_MSH, wanted.ack is AckRequest.SIGNED)
    return Message(
        dialect=wanted.form.dialect,
        kind=MessageKind.NORMAL,
        header=header,
        routing=(_hop(wanted, number),) if draft else (),
        order=None if draft else number,
        ack_requested=(asked,) if reliable and not draft else (),
        payloads=wanted.payloads,
    )


def _hop(wanted: Wanted, number: SequenceNumber | None) -> RoutingHeader:
    """The drafts name the two handlers of a hop; here they stand for their parties."""
    sender, receiver = wanted.from_party.ids[0], wanted.to_party.ids[0]
    return RoutingHeader(
        sender_uri=_uri(sender),
        receiver_uri=_uri(receiver),
        sender_id=sender,
        receiver_id=receiver,
        timestamp=wanted.timestamp,
        ack_requested=wanted.ack,
        sequence=number,
    )


def _uri(party_id: PartyId) -> str:
    return party_id.value if is_uri(party_id.value) else f"urn:oncewire:handler:{party_id.value}"


def parcel_of(wanted: Wanted, keys: KeyFiles | None = None) -> Parcel:
    """The message as bytes; signed if keys are given."""
    signer = _signer(keys) if keys is not None else None
    return codec.write(message_of(wanted), wanted.form, signer=signer)


def _signer(keys: KeyFiles) -> codec.Signer:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from oncewire.wire.references import PartDigests
    from oncewire.wire.signing import SigningChoice, sign

    certificate = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
    key = serialization.load_pem_private_key(keys.key.read_bytes(), None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise InvalidValue(f"{keys.key} is neither RSA nor EC", remedy="use another key")
    name = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa-sha256"

    def signed(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [
            PartDigests(one.content_id, {"sha256": bytes.fromhex(one.digest)}) for one in payloads
        ]
        return sign(envelope, parts, key, certificate, SigningChoice(name)).envelope

    return signed


def as_file(parcel: Parcel, *, bare: bool = False) -> bytes:
    """The parcel as a file that `message decode` reads: with its headers, or the body alone."""
    if bare:
        return parcel.body
    lines = [f"Content-Type: {parcel.content_type}"]
    lines += [f"{name}: {value}" for name, value in parcel.headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + parcel.body
