"""The one door of the wire: Parcel to Message, Message to Parcel.

read(parcel)                  -> Received, or a ReadFault that says what to answer
read_all(parcel)              -> several messages that came as one body (C30)
Reader(content_type, ...)     -> the same piece by piece, for payloads of any size
write(message, form)          -> Parcel
write_stream(message, form, sources) -> a Parcel whose body comes in pieces
lay_out(message, form)        -> a Parcel with gaps for payloads that lie elsewhere
pack(envelope, message, form) -> Parcel around a header that exists already
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from oncewire.errors import EbxmlError, InvalidValue
from oncewire.message.envelope import Acknowledgment, Actor, Message, Payload, Reference
from oncewire.message.form import Dialect, Form, Validation
from oncewire.wire import header
from oncewire.wire.drafts.blocks import DRAFT_TYPE, MS_VERSION, RM_VERSION
from oncewire.wire.ebms2 import blocks as ebms2
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond
from oncewire.wire.mime import multipart
from oncewire.wire.mime.multipart import (
    BUNDLE_TYPE,
    Packaging,
    PartHeaders,
    Source,
    bundle,
    parameters,
    part_of,
    reference_to,
)
from oncewire.wire.parcel import Parcel, ReadFault, Received
from oncewire.wire.reader import HeaderRead, MultipartReader, Reader
from oncewire.wire.security.references import bare_content_id
from oncewire.wire.security.signature import Covered
from oncewire.wire.soap import action_of

if TYPE_CHECKING:
    from oncewire.wire.templates.envelope import EnvelopeTemplates

Signer: TypeAlias = Callable[[bytes, tuple[Payload, ...]], bytes]
"""Takes the envelope and the payloads it refers to; gives the signed envelope."""


@dataclass(frozen=True, slots=True)
class StreamParcel:
    """A Parcel whose body is read once, piece by piece."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    chunks: Iterator[bytes]
    size: int


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A Parcel whose body has a gap for each payload that is not at hand: the payload stands there,
    and its bytes belong there unchanged."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: tuple[bytes | Payload, ...]


def read(
    parcel: Parcel,
    limits: Limits = DEFAULT_LIMITS,
    *,
    validation: Validation = Validation.REPORT,
    templates: EnvelopeTemplates | None = None,
) -> Received:
    """The message in a parcel, payload bytes included; ReadFault when it is refused.

    `templates` of earlier headers give the same result, sooner.
    """
    reader = Reader(
        parcel.content_type,
        parcel.headers,
        limits,
        validation=validation,
        templates=templates,
        whole=parcel,
    )
    reader.feed(parcel.body)
    return reader.finish()[1]


def read_header(
    envelope: bytes,
    charset: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    validation: Validation = Validation.REPORT,
) -> Received:
    """The header alone: its payloads are elsewhere, and its references are not resolved."""
    reading = header.read(envelope, charset, limits, validation)
    return Received(
        message=reading.message,
        parcel=Parcel("text/xml", envelope),
        envelope=envelope,
        dialect=reading.message.dialect,
        notes=tuple(reading.notes),
        schema_problems=reading.schema_problems,
        signed=reading.signed,
        charset=charset,
        # Its payloads are elsewhere, and without them it must not pass for whole.
        complete=all(reference.content_id is None for reference in reading.message.manifest),
    )


def read_all(
    parcel: Parcel,
    limits: Limits = DEFAULT_LIMITS,
    *,
    validation: Validation = Validation.REPORT,
    templates: EnvelopeTemplates | None = None,
) -> tuple[Received, ...]:
    """Every message of a body: one, or several that came together (SYNC-8, C30)."""
    inners = unbundle(parcel, limits)
    return tuple(
        read(inner, limits, validation=validation, templates=templates) for inner in inners
    )


# Several messages in one body: multipart/mixed of whole messages (SYNC-8, C30).
#
# The sync paper lets an acknowledgement and a response come back together, merged into one header
# or one after the other. Merged is what we write by default; this is the other form.

# By content: some send a header as text/xml, some as application/xml, some with no type.
_SNIFF = 4096
_ENVELOPES = (b":Envelope", b"<Envelope", b"ebXMLHeader")


class _Collector:
    """Keeps each part whole, multiparts included."""

    def __init__(self) -> None:
        self.parts: list[tuple[PartHeaders, list[bytes]]] = []

    def part_started(self, headers: PartHeaders) -> bool:
        self.parts.append((headers, []))
        # A multipart/related inside is one whole message, and is read as such later.
        return False

    def part_data(self, data: bytes) -> None:
        self.parts[-1][1].append(data)

    def part_ended(self, _begin: int | None, _end: int) -> None:
        return


def unbundle(parcel: Parcel, limits: Limits) -> tuple[Parcel, ...]:
    """The parcels of a concatenation, or the parcel itself when it is one message."""
    media_type, params = parameters(parcel.content_type)
    if media_type != BUNDLE_TYPE:
        return (parcel,)
    collector = _Collector()
    try:
        reader = MultipartReader(params.get("boundary", ""), collector, limits)
        reader.feed(parcel.body)
        reader.finish()
    except EbxmlError as error:
        raise ReadFault((error,)) from None
    parts = [(headers, b"".join(pieces)) for headers, pieces in collector.parts]
    whole = [
        headers.media_type == "multipart/related" or _is_header(content)
        for headers, content in parts
    ]
    # Two headers at least, or one that is a multipart of its own: anything less is one message.
    alone = len(whole) == 1 or whole.count(True) < 2
    if not whole or not all(whole) or (alone and parts[0][0].media_type != "multipart/related"):
        # One header and its payloads under the wrong subtype: mail gateways do that.
        return (parcel,)
    if len(parts) > limits.bundled:
        many = beyond(
            f"{len(parts)} messages come as one body", "bundled", limits.bundled, mime=True
        )
        raise ReadFault((many,))
    return tuple(
        Parcel(headers.content_type, content, headers.others) for headers, content in parts
    )


def _is_header(content: bytes) -> bool:
    start = content[:_SNIFF]
    return start.lstrip()[:1] == b"<" and any(mark in start for mark in _ENVELOPES)


def write(
    message: Message,
    form: Form,
    *,
    boundary: str | None = None,
    signer: Signer | None = None,
    mail: bool = False,
) -> Parcel:
    """The message as bytes, in the dialect the form names; payload data must be at hand."""
    # Signed after it is written and never touched again: one byte more and the signature is broken
    # (DRV-5).
    envelope = write_envelope(message, form)
    if signer is not None:
        envelope = signer(envelope, message.payloads)
    return pack(envelope, message, form, boundary=boundary, mail=mail)


def write_stream(
    message: Message,
    form: Form,
    sources: Mapping[str, Source],
    *,
    boundary: str | None = None,
    signer: Signer | None = None,
    mail: bool = False,
) -> StreamParcel:
    """The message as `write` makes it, with payloads read from `sources` by Content-ID."""
    envelope = write_envelope(message, form)
    if signer is not None:
        envelope = signer(envelope, message.payloads)
    return pack_stream(envelope, message, form, sources, boundary=boundary, mail=mail)


def lay_out(message: Message, form: Form, *, signer: Signer | None = None) -> LaidOut:
    """The bytes that `write` makes, with gaps for payloads whose bytes are not at hand."""
    envelope = write_envelope(message, form)
    if signer is not None:
        envelope = signer(envelope, message.payloads)
    # What is left out is put in as it lies there.
    frame, payloads = _frame(message, mail=False), tuple(map(multipart.plain, message.payloads))
    boundary = multipart.boundary_for(envelope, payloads)
    body: list[bytes | Payload] = []
    written: list[bytes] = []
    for piece in multipart.laid_out(envelope, payloads, frame, boundary):
        if isinstance(piece, bytes):
            written.append(piece)
        elif piece.data is not None:
            written.append(piece.data)
        else:
            body += [b"".join(written), piece]
            written = []
    body.append(b"".join(written))
    content_type = multipart.content_type(frame, boundary)
    return LaidOut(content_type, _headers(message, form, mail=False), tuple(body))


def write_envelope(message: Message, form: Form) -> bytes:
    """The header alone, unsigned; a payload without a reference gets one."""
    # One dialect per agreement: a partner is not asked to guess (C1, C8, C18).
    if message.dialect is not form.dialect:
        raise InvalidValue(
            f"the message is {message.dialect.value}, the agreement says {form.dialect.value}",
            remedy="build the message for the agreed dialect",
        )
    return header.WRITERS[form.dialect](referring(message), form)


def pack(
    envelope: bytes,
    message: Message,
    form: Form,
    *,
    boundary: str | None = None,
    mail: bool = False,
) -> Parcel:
    """A parcel around a header that exists already (spliced, or signed elsewhere)."""
    headers = _headers(message, form, mail=mail)
    if _is_bare(message, mail=mail):
        return Parcel(_EBMS2_ROOT, envelope, headers)
    frame = _frame(message, mail=mail)
    chosen = _boundary(envelope, message.payloads, boundary)
    body = multipart.body(envelope, message.payloads, frame, chosen)
    return Parcel(multipart.content_type(frame, chosen), body, headers)


def pack_stream(
    envelope: bytes,
    message: Message,
    form: Form,
    sources: Mapping[str, Source],
    *,
    boundary: str | None = None,
    mail: bool = False,
) -> StreamParcel:
    """The parcel as `pack` makes it, with payloads read from `sources`."""
    headers = _headers(message, form, mail=mail)
    if _is_bare(message, mail=mail):
        return StreamParcel(_EBMS2_ROOT, headers, iter((envelope,)), len(envelope))
    frame = _frame(message, mail=mail)
    payloads = message.payloads
    chosen = _boundary(envelope, payloads, boundary)
    return StreamParcel(
        multipart.content_type(frame, chosen),
        headers,
        multipart.pieces(envelope, payloads, sources, frame, chosen),
        multipart.body_size(envelope, payloads, frame, chosen),
    )


_EBMS2_ROOT = "text/xml; charset=UTF-8"


def _is_bare(message: Message, *, mail: bool) -> bool:
    # What has no payload, as an acknowledgement, travels as plain XML in ebMS 2.0.
    return not message.payloads and message.dialect is Dialect.EBMS2 and not mail


def _boundary(envelope: bytes, payloads: tuple[Payload, ...], given: str | None) -> str:
    # Chosen by content, so that the bytes of a message follow from the message alone.
    if given is None:
        return multipart.boundary_for(envelope, payloads)
    multipart.check_boundary(given, payloads, envelope)
    return given


def as_stated(message: Message) -> Message:
    """The message with the values its reader will find: what the elements say together.

    Only ebMS 2.0 has no word for the semantics and lets them follow from what is asked.
    """
    return ebms2.as_stated(message) if message.dialect is Dialect.EBMS2 else message


def referring(message: Message) -> Message:
    """The message with a reference for every payload that has none yet."""
    if not message.payloads:
        return message
    missing: Sequence[Payload] = message.payloads
    if message.manifest:
        # By part and not by text: the manifest may write the same Content-ID escaped (RFC 2392).
        ids = tuple(payload.content_id for payload in message.payloads)
        named = {
            part_of(content_id, ids)
            for reference in message.manifest
            if (content_id := reference.content_id)
        }
        missing = [payload for payload in message.payloads if payload.content_id not in named]
    if not missing:
        return message
    added = [Reference(reference_to(payload.content_id)) for payload in missing]
    return structs.replace(message, manifest=(*message.manifest, *added))


def _frame(message: Message, *, mail: bool) -> Packaging:
    # Derived from the message's id, so that a header part has an id of its own everywhere.
    digest = hashlib.sha256(message.header.message_id.encode()).hexdigest()[:32]
    root_id = f"{digest}@header.oncewire"
    # §2.1.2: multipart/related of text/xml, and `start` names the header for readers that do not
    # take the first part (RFC 2387 §3.2).
    if message.dialect is Dialect.EBMS2:
        return Packaging(_EBMS2_ROOT, f'type="text/xml"; start="<{root_id}>"', root_id, base64=mail)
    # One payload container, whatever it holds.
    return Packaging(*_DRAFT_TYPES[message.dialect], root_id, nest_payloads=True, base64=mail)


# Their own media type, with the version beside it.
_DRAFT_TYPES = {
    dialect: (
        f'{DRAFT_TYPE}; version="{version}"; charset="utf-8"',
        f'type="{DRAFT_TYPE}"; version="{version}"',
    )
    for dialect, version in ((Dialect.MS_09X, MS_VERSION), (Dialect.RM_078, RM_VERSION))
}


def _headers(message: Message, form: Form, *, mail: bool) -> tuple[tuple[str, str], ...]:
    # Without it a mail reader takes the body for plain text (RFC 2045 §4).
    headers: tuple[tuple[str, str], ...] = (("MIME-Version", "1.0"),) if mail else ()
    if message.dialect is Dialect.EBMS2:
        # The drafts have no SOAP, so no SOAPAction (ebMS 2.0 App. B.2).
        return (*headers, ("SOAPAction", action_of(message, form)))
    return headers


# Which messages a body seems to name, before it is read.
#
# It is a guess, by which the handler loads the messages that the body probably concerns. Nothing
# else relies on it: a wrong guess only costs time.

FAR = 16 * 1024
"""Bytes of a body that are searched: the header comes first."""

NAMES_MAX = 8
"""Most ids that are taken from one body; a body with more is a flood."""

# Every dialect's elements are called so, for the message's own id and for the one it refers to.
_NAMED = re.compile(rb"MessageId>\s*([^<>&\s]{1,200})\s*<")


def named_in(body: bytes) -> tuple[str, ...]:
    """MessageIds that the beginning of a body seems to contain, each once."""
    found = []
    for match in _NAMED.finditer(body, 0, FAR):
        found.append(match[1].decode("utf-8", "replace"))
        if len(found) == NAMES_MAX:
            break
    return tuple(dict.fromkeys(found))


__all__ = [
    "BUNDLE_TYPE",
    "HeaderRead",
    "LaidOut",
    "Parcel",
    "ReadFault",
    "Reader",
    "Received",
    "Signer",
    "as_stated",
    "bundle",
    "lay_out",
    "pack",
    "read",
    "read_all",
    "read_header",
    "unbundle",
    "write",
    "write_envelope",
    "write_stream",
]


# The message that a good signature covers, read from the signed bytes and nothing else.


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
