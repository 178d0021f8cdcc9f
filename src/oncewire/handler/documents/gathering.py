"""Gathering: parts of a document arrive, in any order, and wait for each other.

A part is judged, stored and answered like any message. It is not handed to the application but to
its document, and the part that comes last is answered only when the document is whole, also where
some wait for their turn: so what its sender is told of it is true of the document.
"""

from __future__ import annotations

from dataclasses import replace

from oncewire.errors import Inconsistent, NotSupported, ValueNotRecognized
from oncewire.handler.actions import Join
from oncewire.handler.documents.bounds import Bounds
from oncewire.handler.documents.claims import (
    check_claims,
    claim,
    early,
    hand_to_document,
    is_early,
    named_in,
)
from oncewire.handler.node import Node
from oncewire.message.envelope import Message
from oncewire.message.header import Header, Split
from oncewire.protocol.documents import UNFINISHED, DocumentState, SplitDocument, check_part
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, SpoolSlice, StoredIncoming, StoredParcel

INLINE = 16 * 1024
"""Bodies of parts up to this size stay in their rows; larger ones are files, of which the document
is made without being copied."""


def is_gathered(tx: Transaction, sender: str, message_id: str) -> bool:
    """Whether the id is that of a document whose parts are waited for, or put together."""
    count, _ = tx.gathered(sender)
    # Known without a look at the store: most partners have none under way.
    document = tx.document(sender, message_id) if count else None
    return document is not None and document.state in UNFINISHED


def check_id(tx: Transaction, sender: str, message_id: str, header: Header) -> None:
    """Refuse a message under the id of a document: the document will be a message under it."""
    own = header.split is not None and header.split.split_id == message_id
    if own or is_gathered(tx, sender, message_id):
        raise Inconsistent(
            f"MessageId {message_id} is the SplitId of a document",
            location="//MessageData/MessageId",
            remedy="give every message, part and document an id of its own",
        )


def about_document(header: Header, facts: MessageFacts) -> tuple[str, ...]:
    """What a part says of its document, in the order of `ABOUT`; parties by their agreed names.
    A fragment has an Action of its own, and refers to nothing."""
    split = header.split is not None
    return (
        *(facts.cpa_id, facts.from_party, header.from_party.role or ""),
        *(facts.to_party, header.to_party.role or ""),
        *(facts.conversation_id, facts.service),
        *((facts.action, facts.ref_to or "") if split else ()),
    )


def check_gathering(
    node: Node,
    tx: Transaction,
    sender: str,
    message: Message,
    split: Split,
    facts: MessageFacts,
    terms: Terms,
) -> None:
    """Refuse a part that contradicts those before it, or is more than is taken of anybody."""
    known, about = tx.document(sender, split.split_id), about_document(message.header, facts)
    _check_name(message, split)
    check_part(known, split, about)
    if known is None:
        check_split_id(tx, sender, split.split_id)
    if message.header.split is None:
        check_claims(tx, sender, message, about)
    elif named_in(message):
        raise NotSupported(
            f"part {split.number} names fragments, and is one of a document itself",
            location="//SplitNumber",
            remedy="send a document as parts, or as fragments that another message names",
        )
    elif len(message.payloads) != 1:
        raise Inconsistent(
            f"part {split.number} has {len(message.payloads)} payloads",
            location="//SplitNumber",
            remedy="send each part of a document as the one payload of its message",
        )
    _check_bounds(Bounds.of(node.limits, terms), tx, known, sender, split, message)


def _check_name(message: Message, split: Split) -> None:
    """Refuse a document that is called as fragments are which nobody has named."""
    named = message.header.split is not None or split.split_id == message.header.message_id
    if named and is_early(split.split_id):
        raise ValueNotRecognized(
            f"the id of a document, {split.split_id}, begins like a reference to a message",
            location="//SplitId",
            remedy="send the document under another id",
        )


def check_split_id(tx: Transaction, sender: str, split_id: str) -> None:
    """Refuse a document under the id of a message: one of the two would be nobody's."""
    taken = tx.incoming(sender, split_id) is not None
    if taken or any(gone.sender == sender for gone in tx.removed(split_id)):
        raise Inconsistent(
            f"SplitId {split_id} is the id of another message or document",
            location="//SplitId",
            remedy="give every document a SplitId of its own",
        )


def _check_bounds(
    bounds: Bounds,
    tx: Transaction,
    known: SplitDocument | None,
    sender: str,
    split: Split,
    message: Message,
) -> None:
    size = sum(payload.size for payload in message.payloads)
    parts = f"a document has {split.total:,} parts"
    bounds.check("document_parts", split.total, parts)
    so_far = size + (0 if known is None else known.size)
    stretches = [each.stretch.size for each in message.manifest if each.stretch is not None]
    whole = max([so_far, *stretches])
    bounds.check("document_bytes", whole, f"a document has {whole:,} bytes", mime=True)
    count, held = tx.gathered(sender)
    if known is None:
        more = f"{count + 1:,} documents would wait for their other parts"
        bounds.check("gathered_documents", count + 1, more)
    held += size
    what = f"{held:,} bytes of documents would wait for their other parts"
    bounds.check("gathered_bytes", held, what, mime=True)


def completes(tx: Transaction, sender: str, split: Split, message: Message) -> bool:
    """Whether the document has all its parts with this one; some may wait for their turn."""
    known = tx.document(sender, split.split_id)
    count = len(early(tx, sender, message)) if known is None else known.count
    return count + 1 >= split.total


def in_spool(node: Node, parcel: StoredParcel) -> StoredParcel:
    """The bytes of a part where a document can be made of them."""
    body = parcel.body[0] if len(parcel.body) == 1 else b""
    if not isinstance(body, bytes) or len(body) <= INLINE:
        return parcel
    name, length = node.store.spool.put((body,))
    node.spooled.append(name)
    return replace(parcel, body=(SpoolSlice(name, 0, length),))


def gather(
    node: Node,
    tx: Transaction,
    stored: StoredIncoming,
    message: Message,
    split: Split,
    *,
    last: bool,
) -> None:
    """Note a part that is stored. `last`: the document is complete with it, and it waits for its
    answer."""
    incoming = stored.incoming
    document = tx.document(incoming.sender, split.split_id) or SplitDocument(
        incoming.sender,
        split.split_id,
        split.total,
        incoming.terms_id,
        node.now(),
        about=about_document(message.header, stored.facts),
    )
    document = claim(node, tx, document, message)
    document = replace(
        document.add(split.number, stored.facts.size),
        latest_at=node.now(),
        last_part=incoming.message_id if last else "",
        channel=incoming.channel,
    )
    tx.save_document(document)
    if incoming.state is IncomingState.GATHERED:
        gathered(node, tx, stored)


def gathered(node: Node, tx: Transaction, stored: StoredIncoming) -> None:
    """The turn of a part has come: it is its document's, which may be complete with it."""
    incoming, split_id = stored.incoming, stored.facts.split_id or ""
    document = tx.document(incoming.sender, split_id)
    if document is None or document.state is not DocumentState.OPEN:
        return
    if is_early(split_id):
        # Nobody has named it yet.
        return
    if not document.last_part and incoming.message_id != split_id:
        # Otherwise it is complete, and what its sender hears of the last part decides over all
        # whose turn came with it.
        hand_to_document(node, tx, stored)
    if not document.complete:
        return
    parts = tx.parts(incoming.sender, split_id)
    if all(part.incoming.state is not IncomingState.HELD for part in parts):
        joining = replace(document.moved(DocumentState.JOINING), position=tx.take_place())
        tx.save_document(joining)
        begin(node, joining)


def begin(node: Node, document: SplitDocument) -> None:
    """Have a document put together after the commit. What follows it in order waits meanwhile."""
    node.joining[document.key] = (document.channel, document.position)
    node.actions.append(Join(*document.key))


def begin_all(node: Node, tx: Transaction) -> None:
    """After a restart: what was not put together yet."""
    for document in tx.open_documents():
        if document.state is DocumentState.JOINING:
            begin(node, document)


def awaits_join(tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a part has no answer yet because its document is not put together."""
    waits = stored.incoming.state in (IncomingState.HELD, IncomingState.GATHERED)
    if not waits or stored.facts.split_id is None:
        return False
    document = tx.document(stored.incoming.sender, stored.facts.split_id)
    return (
        document is not None
        and document.state in UNFINISHED
        and document.last_part == stored.incoming.message_id
    )
