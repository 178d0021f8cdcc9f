"""The message that a good signature covers, read from the signed bytes and nothing else."""

from __future__ import annotations

from msgspec import structs

from oncewire.message import Acknowledgment, Actor, Message, Payload
from oncewire.message.form import Validation
from oncewire.wire import header
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Received
from oncewire.wire.security.references import bare_content_id
from oncewire.wire.security.signature import Covered
from oncewire.wire.templates.envelope import EnvelopeTemplates


def read_verified(
    received: Received,
    verified: Covered,
    limits: Limits = DEFAULT_LIMITS,
    templates: EnvelopeTemplates | None = None,
    owner: str = "",
) -> Received:
    """The received message with only what was signed, and the hop blocks, which are not.

    Parts that no reference covers are left out, and not refused: the standard has a reference
    for each part that needs signing (§4.1.3) and lets others be there, and gateways of mail do
    add some. Those that are signed stand in the order in which they are signed, whatever the
    order they came in. Of their MIME headers, which nothing signs, only the media type and the
    file name are kept: what a document is called, which no digest could hold.
    The envelope stays as it was received: it is what is kept and forwarded.

    `templates` read it sooner, and learn of it as the signer's, `owner`'s.
    """
    # Read again from these octets, so that not one value can come from elsewhere (XML Signature
    # §8.1.3).
    octets = verified.readable
    payloads = _signed_parts(received.message, verified)
    # Canonical octets are UTF-8, and the schema was judged on what was received.
    asked = octets, None, limits, Validation.OFF, payloads
    reading = templates.read(*asked) if templates is not None else None
    if reading is None:
        reading = header.read(*asked)
        if templates is not None:
            templates.learn_envelope(octets, None, owner, limits, Validation.OFF)
    left_out = tuple(
        f"the part {content_id[:64]!r} is not signed and was left out"
        for content_id in verified.unsigned_parts
    )
    message = reading.message
    backed = _backed(message, verified)
    if backed is not message.acknowledgments:
        message = structs.replace(message, acknowledgments=backed)
    return structs.replace(received, message=message, notes=(*received.notes, *left_out))


def _signed_parts(message: Message, verified: Covered) -> tuple[Payload, ...]:
    """The parts that the signature covers, in its order."""
    parts = {bare_content_id(part.content_id): part for part in message.payloads}
    return tuple(
        # A Content-Encoding that is added changes what the application gets, and no digest shows
        # it.
        structs.replace(
            parts[reference.content_id],
            content_encoding=None,
            mime_headers=_name_only(parts[reference.content_id]),
        )
        for reference in verified.references
        if reference.content_id is not None
    )


def _name_only(part: Payload) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in part.mime_headers if pair[0].lower() == "content-disposition")


def _backed(message: Message, verified: Covered) -> tuple[Acknowledgment, ...]:
    """The acknowledgements that the signature stands behind.

    One that is addressed to the next hop lies outside of it (§4.1.3), so any hop can
    put one in. It counts for the message that the signed header refers to and for no other, and
    the signed header says whose it is.
    """
    if not any(tag.endswith("}Acknowledgment") for tag in verified.hop_blocks):
        return message.acknowledgments
    # §6.3.2.3 and MessageData name the same message; only the second is signed.
    meant = message.header.ref_to_message_id
    return tuple(
        structs.replace(ack, from_party=None) if ack.actor is Actor.NEXT_MSH else ack
        for ack in message.acknowledgments
        if ack.actor is not Actor.NEXT_MSH or ack.ref_to_message_id == meant
    )
