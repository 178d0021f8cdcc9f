"""A message from options and payload files: what `oncewire message build` makes.

It is for tests, for partners' questions and for learning; messages that must arrive are sent
with `oncewire send`, which keeps, numbers and repeats them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oncewire.agreement.resolve import binding_named, service_called
from oncewire.entry.files import WHOLE_FILE_MAX
from oncewire.entry.messages.documents import file_payload, open_payload
from oncewire.errors import InvalidValue, NotHere
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
from oncewire.message.instant import Duration, Instant, parse_duration
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.agreement.agreement import Agreement
    from oncewire.entry.party.keys import KeyFiles


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message to build, checked."""

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


@dataclass(frozen=True, slots=True)
class Words:
    """The options as they were typed; an empty one was not given."""

    sender: str = ""
    receiver: str = ""
    cpa_id: str = ""
    service: str = ""
    action: str = ""
    message_id: str = ""
    conversation: str = ""
    ref_to: str = ""
    dialect: str = "ebms2"
    ack: str = "none"
    once: bool = False
    sync: bool = False
    # Below zero: none.
    sequence: int = -1
    time_to_live: str = ""
    # Each FILE or FILE;media/type.
    payloads: tuple[str, ...] = ()


def wanted_of(words: Words, agreement: Agreement | None, *, now: Instant, unique: str) -> Wanted:
    """The options read and checked; an agreement gives parties, form and wishes."""
    parties, service = _parties(words, agreement), Service.read(words.service)
    form = Form(dialect=_chosen(words.dialect, "dialect", Dialect))
    ack = _chosen(words.ack, "ack", AckRequest)
    once = words.once
    if agreement is not None:
        service = service_called(agreement, words.service)
        binding = binding_named(agreement, MessageKind.NORMAL, service, words.action)
        parties = (
            parties[0].acting_as(binding.from_role),
            parties[1].acting_as(binding.to_role),
        )
        terms, form = binding.terms, agreement.form
        ack = terms.ack_requested if ack is AckRequest.NONE else ack
        once = once or terms.duplicate_elimination
    return Wanted(
        from_party=parties[0],
        to_party=parties[1],
        cpa_id=words.cpa_id if agreement is None else agreement.cpa_id,
        service=service,
        action=words.action,
        message_id=words.message_id or f"{unique}@oncewire",
        conversation_id=words.conversation or unique,
        timestamp=now,
        form=form,
        ack=ack,
        duplicate_elimination=once,
        ref_to_message_id=words.ref_to or None,
        time_to_live=parse_duration(words.time_to_live) if words.time_to_live else None,
        sequence=words.sequence if words.sequence >= 0 else None,
        sync_reply=words.sync,
        payloads=tuple(
            _at_hand(payload_of(place, at)) for at, place in enumerate(words.payloads, 1)
        ),
    )


def _parties(words: Words, agreement: Agreement | None) -> tuple[Party, Party]:
    if agreement is not None:
        return agreement.own.party, agreement.partner.party
    if not (words.sender and words.receiver and words.cpa_id):
        raise InvalidValue(
            "it is not said who sends to whom under which agreement",
            remedy="give --from, --to and --cpa-id, or --agreement FILE",
        )
    return Party((PartyId.read(words.sender),)), Party((PartyId.read(words.receiver),))


Word = TypeVar("Word", bound=StrEnum)


def _chosen(word: str, option: str, words: type[Word]) -> Word:
    for each_word in words:
        if each_word.value.lower() == word.lower():
            return each_word
    known = ", ".join(each_word.value.lower() for each_word in words)
    raise InvalidValue(f"--{option} {word!r} is not known", remedy=f"use one of {known}")


def _at_hand(payload: Payload) -> Payload:
    """The payload in memory: a message that is built is shown whole."""
    data = payload.data
    if data is None or len(data) > WHOLE_FILE_MAX:
        raise InvalidValue(
            f"payload {payload.content_id} has more than {WHOLE_FILE_MAX} bytes",
            remedy="name a smaller file",
        )
    return Payload.of(payload.content_id, payload.media_type, data, payload.file_name)


def payload_of(place: str, number: int) -> Payload:
    """`FILE` or `FILE;media/type` as the payload with that number; `-` reads standard input."""
    name, semicolon, media_type = place.partition(";")
    if name == "-":
        return open_payload(sys.stdin.buffer, media_type.strip(), number)
    try:
        return file_payload(Path(name), media_type.strip(), number)
    except NotHere as error:
        if not semicolon:
            raise
        raise NotHere(
            error.problem,
            remedy=f"after `;` stands the media type, here {media_type!r}: check the name before "
            "it, or rename a file that has one in its name",
        ) from None


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

    from oncewire.wire.security.references import PartDigests
    from oncewire.wire.security.signing import SigningChoice, sign

    certificate = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
    key = serialization.load_pem_private_key(keys.key.read_bytes(), None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise InvalidValue(f"{keys.key} is neither RSA nor EC", remedy="use another key")
    name = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa-sha256"

    def signed(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [
            PartDigests(payload.content_id, {"sha256": bytes.fromhex(payload.digest)})
            for payload in payloads
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
