"""Fragments: a document as NHS Spine sends it, named together by the document's own message.

Each fragment is a message that carries a range of a file as base64, and says nothing of what it is
a range of. When the last of them is acknowledged the document's message goes out, whose Manifest
names them by their MessageIds (`mid:`), in their order. So it never names what did not arrive, and
what its sender is told of it is true of the document.
"""

from __future__ import annotations

from dataclasses import replace

from oncewire.handler.documents.original import (
    CONTENT_TYPE,
    Content,
    Original,
    has_parts,
    is_whole,
    names_fragments,
)
from oncewire.handler.node import Node
from oncewire.handler.perform import first_attempt, perform
from oncewire.handler.route import addresses_for
from oncewire.handler.sealing.seal import route_of, seal, unpack_draft
from oncewire.message.attachment import Attachment, naming
from oncewire.message.payload import Payload, Reference
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    index_acknowledged,
    nth_part,
    part_id,
    part_size,
)
from oncewire.protocol.effects import Effect, Note
from oncewire.protocol.notes import Acknowledged
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.states import OutgoingState, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing
from oncewire.wire import codec
from oncewire.wire.mime.writer import TRANSFER
from oncewire.wire.resolve import reference_to


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
    node: Node, tx: Transaction, stored: StoredOutgoing, document: SplitDocument, terms: Terms
) -> None:
    """Give the document's own message its bytes and its first attempt."""
    message_id, parcel = stored.outgoing.message_id, tx.outgoing_parcel(stored.outgoing.message_id)
    outgoing = stored.outgoing
    if parcel is None or parcel.content_type == CONTENT_TYPE:
        original = Original.read(parcel, message_id)
        if original.fragment_action is None:
            return
        message = codec.read(unpack_draft(original.draft)).message
        inline = tuple(_inline(content) for content in original.contents if content.inline)
        message = replace(message, manifest=_manifest(original, document, terms), payloads=inline)
        composed = codec.as_stated(message)
        parcel = seal(node, composed, route_of(node, stored, terms, composed))
        outgoing = replace(outgoing, expires_at=composed.header.time_to_live)
        whole = document.moved(DocumentState.WHOLE)
        # From now on it is kept: what is heard of it may come long after its first fragment.
        tx.save_document(replace(whole, latest_at=node.now()))
    addresses = addresses_for(node, tx, stored, terms.transports)
    due = SenderStep(replace(outgoing, next_attempt_at=node.now()), None, ())
    step = first_attempt(node, tx, stored, due, terms, node.now(), addresses)
    perform(node, tx, stored, None, step, terms, parcel=parcel, addresses=addresses)


def _inline(content: Content) -> Payload:
    return Payload(
        content.content_id,
        content.media_type,
        content.size,
        content.name,
        spooled=content.name,
        mime_headers=content.mime_headers,
    )


def _manifest(original: Original, document: SplitDocument, terms: Terms) -> tuple[Reference, ...]:
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
