"""OutgoingDocument: a document of ours as the store keeps it while its parts are sent.

Its row has no bytes that travel. They are the header that all its parts share, as a draft, and the
files of its payloads in the spool, already compressed where that is agreed: a part is a few bytes
of its own around a range of such a file, so the document is there once, however often it is sent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from msgspec.structs import replace

from oncewire.errors import StoreDamaged
from oncewire.handler.context import HandlerContext
from oncewire.handler.perform import first_attempt, perform
from oncewire.handler.route import addresses_for
from oncewire.handler.sending.seal import route_of, seal, unpack_draft
from oncewire.message.payload import Attachment, Payload, Reference, naming
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    index_acknowledged,
    nth_part,
    part_id,
    part_size,
)
from oncewire.protocol.notes import Acknowledged, Effect, Note
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.states import OutgoingState, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredOutgoing, StoredParcel
from oncewire.wire import codec
from oncewire.wire.mime.multipart import TRANSFER, reference_to

CONTENT_TYPE = "application/x-oncewire-document"
"""Of a row whose bytes are no message."""

_HEADER, _ACTION = "payload", "fragment-action"


@dataclass(frozen=True, slots=True)
class Content:
    """One payload of a document, and the file that it travels from."""

    content_id: str
    media_type: str
    # Of the payload as it was handed in.
    size: int
    # Of the file, which is named by its digest.
    name: str
    length: int
    # How it was compressed into that file; None: it is the payload itself.
    encoding: str | None = None
    mime_headers: tuple[tuple[str, str], ...] = ()
    # It is small enough to travel whole, in the message that names the fragments of the others.
    inline: bool = False


@dataclass(frozen=True, slots=True)
class OutgoingDocument:
    """A document as it was handed in."""

    draft: bytes
    contents: tuple[Content, ...]
    # The Action of its fragments (`mid:`); None: its parts say themselves what they are part of.
    fragment_action: str | None = None

    @property
    def travelling(self) -> tuple[Content, ...]:
        """The payloads that are cut into parts."""
        return tuple(content for content in self.contents if not content.inline)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each of them that travel."""
        return tuple(content.length for content in self.travelling)

    def stored(self) -> StoredParcel:
        """The parcel that the store keeps for it."""
        headers = tuple((_HEADER, json.dumps(asdict(content))) for content in self.contents)
        if self.fragment_action is not None:
            headers = ((_ACTION, self.fragment_action), *headers)
        files = (SpoolSlice(content.name, 0, content.length) for content in self.contents)
        return StoredParcel(CONTENT_TYPE, headers, (self.draft, *files))

    @classmethod
    def read(cls, parcel: StoredParcel | None, message_id: str) -> OutgoingDocument:
        """What the store kept. StoreDamaged where that is not what was written."""
        try:
            if parcel is None or parcel.content_type != CONTENT_TYPE:
                raise ValueError("it has no parts")
            draft, *_ = parcel.body
            contents = [json.loads(value) for name, value in parcel.headers if name == _HEADER]
            if not isinstance(draft, bytes):
                raise TypeError("it has no header")
            action = next((value for name, value in parcel.headers if name == _ACTION), None)
            return cls(draft, tuple(_content(values) for values in contents), action)
        except (ValueError, TypeError, KeyError) as problem:
            raise StoreDamaged(
                f"the stored document {message_id} is damaged: {problem}",
                message_id=message_id,
                remedy="put its row back from a backup, or give it up with `oncewire abandon`",
            ) from problem


def names_fragments(parcel: StoredParcel | None) -> bool:
    """Whether a message of the document's own will name its parts, or is there already."""
    if parcel is None:
        return False
    return parcel.content_type != CONTENT_TYPE or any(name == _ACTION for name, _ in parcel.headers)


def _content(values: dict[str, object]) -> Content:
    pairs = values.pop("mime_headers")
    headers = tuple((str(name), str(value)) for name, value in pairs)  # type: ignore[attr-defined]
    return Content(**values, mime_headers=headers)  # type: ignore[arg-type]


def has_parts(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document that travels in parts."""
    facts = stored.facts
    return facts.split_id == stored.outgoing.message_id and facts.split_number is None


def is_whole(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document of which only the parts travel, now at least: the message
    that names fragments goes out when they have arrived, and is then like any other."""
    return has_parts(stored) and not stored.outgoing.attempts


def is_part(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a part of a document that was split here: what a hub passes on
    is a message like any other to it."""
    return stored.facts.split_number is not None and stored.relayed_from is None


# Fragments: a document as NHS Spine sends it, named together by the document's own message.
#
# Each fragment is a message that carries a range of a file as base64, and says nothing of what it
# is a range of. When the last of them is acknowledged the document's message goes out, whose
# Manifest names them by their MessageIds (`mid:`), in their order. So it never names what did not
# arrive, and what its sender is told of it is true of the document.


def as_fragment(
    content: Content, payload: Payload, told: tuple[tuple[str, str], ...]
) -> tuple[Payload, Reference]:
    """The payload of a fragment, and its reference; `told`: what it says of the whole."""
    headers = (*content.mime_headers, *told, TRANSFER)
    said = _attachment(content, payload.size)
    return replace(payload, mime_headers=headers), said.described(reference_to(payload.content_id))


def _attachment(content: Content, length: int) -> Attachment:
    """What a reference to a fragment says: the same of all of one payload, but for the length."""
    named = Payload(
        content.content_id, content.media_type, 0, content.name, mime_headers=content.mime_headers
    )
    return Attachment(
        named.file_name or content.content_id,
        content.media_type,
        compressed=content.encoding is not None,
        large=True,
        length=length,
    )


def is_named_apart(tx: Transaction, whole: StoredOutgoing) -> bool:
    """Whether a message of the document's own names its parts, so that they alone end nothing."""
    return not is_whole(whole) or names_fragments(tx.outgoing_parcel(whole.outgoing.message_id))


def index_heard_of(
    tx: Transaction, whole: StoredOutgoing, step: SenderStep, proof: Proof, ack_id: str
) -> SenderStep:
    """What an acknowledgement of a message does to it, where that names fragments: it says that
    the document is there if they are, and no more than is known of them."""
    document = tx.document("", whole.outgoing.message_id) if has_parts(whole) else None
    if document is None or step.outgoing.state is not OutgoingState.DELIVERED or not step.effects:
        return step
    if not document.complete:
        return index_acknowledged(whole.outgoing, proof, ack_id)
    if _rests_on_hubs(tx, document) and not whole.outgoing.taken_back:
        return replace(step, effects=tuple(map(_not_final, step.effects)))
    return step


def _rests_on_hubs(tx: Transaction, document: SplitDocument) -> bool:
    """Whether a hub may still take back what it said of a fragment."""
    names = (part_id(document.split_id, n, document.total) for n in range(1, document.total + 1))
    parts = (part.outgoing for part in map(tx.outgoing, names) if part is not None)
    return any(
        part.state is not OutgoingState.DELIVERED or part.proved_by is Proof.HOP for part in parts
    )


def _not_final(effect: Effect) -> Effect:
    if isinstance(effect, Note) and isinstance(effect.what, Acknowledged):
        return replace(effect, what=replace(effect.what, hop=True))
    return effect


def may_be_named(stored: StoredOutgoing, document: SplitDocument) -> bool:
    """Whether the message that names the fragments is to go out: they are all there, and it did
    not."""
    return (
        document.complete
        and document.state in (DocumentState.OPEN, DocumentState.WHOLE)
        and stored.outgoing.state is OutgoingState.OUTSTANDING
        and is_whole(stored)
    )


def enter_index(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    document: SplitDocument,
    terms: Terms,
) -> None:
    """Give the document's own message its bytes and its first attempt."""
    message_id, parcel = stored.outgoing.message_id, tx.outgoing_parcel(stored.outgoing.message_id)
    outgoing = stored.outgoing
    if parcel is None or parcel.content_type == CONTENT_TYPE:
        original = OutgoingDocument.read(parcel, message_id)
        if original.fragment_action is None:
            return
        message = codec.read(unpack_draft(original.draft)).message
        inline = tuple(_inline(content) for content in original.contents if content.inline)
        message = replace(message, manifest=_manifest(original, document, terms), payloads=inline)
        composed = codec.as_stated(message)
        parcel = seal(context, composed, route_of(context, stored, terms, composed))
        outgoing = replace(outgoing, expires_at=composed.header.time_to_live)
        whole = document.moved(DocumentState.WHOLE)
        # From now on it is kept: what is heard of it may come long after its first fragment.
        tx.save_document(replace(whole, latest_at=context.now()))
    addresses = addresses_for(context, tx, stored, terms.transports)
    due = SenderStep(replace(outgoing, next_attempt_at=context.now()), None, ())
    step = first_attempt(context, tx, stored, due, terms, context.now(), addresses)
    perform(context, tx, stored, None, step, terms, parcel=parcel, addresses=addresses)


def _inline(content: Content) -> Payload:
    return Payload(
        content.content_id,
        content.media_type,
        content.size,
        content.name,
        spooled=content.name,
        mime_headers=content.mime_headers,
    )


def _manifest(
    original: OutgoingDocument, document: SplitDocument, terms: Terms
) -> tuple[Reference, ...]:
    """A reference for each payload that is here, and for each fragment of the others, in order."""
    limit, number = part_size(terms, base64=True), 0
    found: list[Reference] = []
    for content in original.contents:
        if content.inline:
            found.append(Reference(reference_to(content.content_id)))
            continue
        for _ in range(max(1, -(-content.length // limit))):
            number += 1
            part = nth_part(original.sizes, limit, number)
            href = naming(part_id(document.split_id, number, document.total))
            found.append(_attachment(content, part.length).described(href))
    return tuple(found)
