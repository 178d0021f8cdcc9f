"""Parts: a document of ours goes out, one message for each part, as there are places for them.

A part is composed when its turn comes: then it gets its number and its bytes, which are a header of
its own around a range of the document's file. It is stored without those: nothing is copied.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from oncewire.errors import StoreDamaged
from oncewire.handler.content_digest import headers_with_digest
from oncewire.handler.context import HandlerContext
from oncewire.handler.perform import begin, journal_submitted, load_channel, perform
from oncewire.handler.route import stamped, stamps_at_entry, with_number
from oncewire.handler.sending.outgoing_document import (
    Content,
    OutgoingDocument,
    as_fragment,
    enter_index,
    has_parts,
    is_named_apart,
    is_part,
    is_whole,
    may_be_named,
)
from oncewire.handler.sending.seal import route_of, sealed, sequence_of, unpack_draft, written
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Compression, Message, Payload, Reference, Split, Stretch
from oncewire.protocol.documents import (
    DocumentState,
    Part,
    SplitDocument,
    index_stands,
    nth_part,
    part_failed,
    part_id,
    part_size,
    parts_arrived,
    parts_under_way,
)
from oncewire.protocol.notes import Abandoned
from oncewire.protocol.sender import SenderStep, abandon, enter_window
from oncewire.protocol.sending import SendingChannel, failure, note_of
from oncewire.protocol.states import FINAL_OUTGOING, Outgoing, OutgoingEvent, OutgoingState, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredOutgoing, StoredParcel
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel

RANGE, WHOLE_DIGEST = "Content-Range", "Repr-Digest"
"""What a part says of the document in its MIME headers (RFC 9110, RFC 9530), where its header has
no place for it."""

_END = b"\r\n--"
"""Begins what stands behind the last part of a body, and stands nowhere in it again."""


def document_of(tx: Transaction, stored: StoredOutgoing) -> SplitDocument | None:
    """How far a document of ours is, by its own row or that of a part."""
    return None if stored.facts.split_id is None else tx.document("", stored.facts.split_id)


def may_go_on(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Whether the next part of a document may go out: not too many are under way. Of terms that
    cannot be read the maker of the part will hear."""
    document = document_of(tx, stored)
    if document is None or document.state is not DocumentState.OPEN:
        return False
    try:
        terms = context.terms_of(tx, stored.outgoing.terms_id)
    except StoreDamaged:
        return True
    return document.under_way < parts_under_way(part_size(terms))


def release(context: HandlerContext) -> Iterator[tuple[str, Exception]]:
    """Send what there is room for of documents that no window holds back; gives those that cannot
    go on, with their trouble."""
    while context.state.releasing:
        message_id = next(iter(context.state.releasing))
        del context.state.releasing[message_id]
        went = [True]
        while went.pop():
            trouble = context.isolated_step(partial(_release_one, context, message_id, went))
            if trouble is not None:
                yield message_id, trouble
                break


def _release_one(
    context: HandlerContext, message_id: str, went: list[bool], tx: Transaction
) -> None:
    """Send the next part, if there is one and room for it, or what names them all; tells `went`
    so."""
    stored = tx.outgoing(message_id)
    document = None if stored is None else document_of(tx, stored)
    if stored is None or document is None or document.channel is not None:
        went.append(False)
        return
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    if document.complete:
        if may_be_named(stored, document):
            enter_index(context, tx, stored, document, terms)
        went.append(False)
        return
    ready = (
        document.released < document.total
        and stored.outgoing.state not in FINAL_OUTGOING
        and may_go_on(context, tx, stored)
    )
    if ready:
        enter_next(context, tx, stored, None, terms)
    went.append(ready)


def enter_next(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    channel: SendingChannel | None,
    terms: Terms,
) -> None:
    """Give the next part its place, its number, its bytes and its first attempt."""
    document, message_id = document_of(tx, stored), stored.outgoing.message_id
    if document is None or not is_whole(stored):
        raise StoreDamaged(
            f"how far document {message_id} is is not known any more",
            message_id=message_id,
            remedy=f"restore the store from a backup, or `oncewire abandon {message_id}`",
        )
    number = document.released + 1
    original = OutgoingDocument.read(tx.outgoing_parcel(message_id), message_id)
    mid = original.fragment_action is not None
    part = nth_part(original.sizes, part_size(terms, base64=mid), number)
    composed, place = _compose(context, stored, original, document, part)
    route = route_of(context, stored, terms, composed)
    entering = channel
    if channel is not None and stamps_at_entry(terms):
        # The stamps of a hop rise in the order in which its messages enter, whatever waited.
        entering, stamp = channel.stamp(context.now())
        composed = stamped(composed, stamp)
    fresh = _row(context, stored, composed, number)
    journal_submitted(context, tx, fresh, composed.header)
    entered = enter_window(fresh.outgoing, entering, terms, context.now())
    sequence = sequence_of(entered.outgoing, terms)
    if sequence is not None:
        composed = with_number(composed, sequence, terms)
    parcel = _around(context, written(context, composed, route), place, composed)
    tx.save_document(replace(document, released=number))
    if number == document.total and stored.outgoing.state is OutgoingState.WAITING:
        # All its parts are out. From now on it waits for nothing but them: they stand on the
        # channel, and have its deadline.
        moved = stored.outgoing.moved(OutgoingEvent.WINDOW_ENTERED, expires_at=None, channel=None)
        tx.save_outgoing(moved)
    begin(context, tx, fresh, channel, entered, terms, parcel)


def _compose(
    context: HandlerContext,
    stored: StoredOutgoing,
    original: OutgoingDocument,
    document: SplitDocument,
    part: Part,
) -> tuple[Message, SpoolSlice]:
    """The message of a part, and where its content lies."""
    message = codec.read(unpack_draft(original.draft)).message
    content = original.travelling[part.payload]
    place = SpoolSlice(content.name, part.offset, part.length)
    with context.store.spool.open(content.name) as spooled:
        spooled.seek(part.offset)
        data = spooled.read(part.length)
    if len(data) != part.length:
        raise StoreDamaged(
            f"the file of document {document.split_id} is shorter than it was",
            message_id=stored.outgoing.message_id,
            remedy="put it back from a backup, or give it up with `oncewire abandon`",
        )
    payload = Payload.of(content.content_id, content.media_type, data)
    if original.fragment_action is None:
        payload, reference = _as_part(content, part, payload)
    else:
        payload, reference = as_fragment(content, payload, _told(content, part))
    header = replace(
        message.header,
        message_id=part_id(document.split_id, part.number, document.total),
        # Strictly later than the part before, and than the document.
        timestamp=message.header.timestamp + part.number,
        action=original.fragment_action or message.header.action,
        split=None
        if original.fragment_action is not None
        else Split(document.split_id, part.number, document.total),
    )
    # What its sender warns of is said once.
    errors = message.error_list if part.number == 1 else None
    composed = replace(
        message, header=header, manifest=(reference,), payloads=(payload,), error_list=errors
    )
    return codec.as_stated(composed), place


def _as_part(content: Content, part: Part, payload: Payload) -> tuple[Payload, Reference]:
    """The payload of a part that says itself what it is a part of, and its reference."""
    made = None if content.encoding is None else Compression(content.encoding, content.size)
    reference = Reference(
        f"cid:{content.content_id}",
        compression=made,
        stretch=Stretch(part.offset, content.length, content.name),
    )
    told = (*content.mime_headers, *_told(content, part))
    return replace(payload, content_encoding=content.encoding, mime_headers=told), reference


def _told(content: Content, part: Part) -> tuple[tuple[str, str], ...]:
    if not part.length:
        return ()
    last, digest = part.offset + part.length - 1, bytes.fromhex(content.name)
    return (
        (RANGE, f"bytes {part.offset}-{last}/{content.length}"),
        (WHOLE_DIGEST, f"sha-256=:{base64.b64encode(digest).decode()}:"),
    )


def _row(
    context: HandlerContext, stored: StoredOutgoing, message: Message, number: int
) -> StoredOutgoing:
    header = message.header
    outgoing = Outgoing(
        header.message_id,
        stored.outgoing.terms_id,
        context.now(),
        stored.outgoing.channel,
        expires_at=header.time_to_live,
    )
    facts = replace(
        stored.facts,
        timestamp=header.timestamp,
        digest=identity_digest(message),
        size=message.payloads[0].size,
        action=header.action or stored.facts.action,
        split_number=number,
    )
    return StoredOutgoing(
        outgoing, facts, stored.peer, hop=stored.hop, agreement_id=stored.agreement_id
    )


def _around(
    context: HandlerContext, parcel: Parcel, place: SpoolSlice, message: Message
) -> StoredParcel:
    """The bytes of a part, with the range of the document's file in the place of its content. What
    was encrypted, or written for mail, has no such range and is stored as it is."""
    (payload,) = message.payloads
    body = parcel.body
    end = body.rfind(_END)
    begin = end - place.length
    if not payload.data or begin < 0 or body[begin:end] != payload.data:
        return sealed(context, parcel)
    headers = headers_with_digest(parcel)
    return StoredParcel(parcel.content_type, headers, (body[:begin], place, body[end:]))


# Outcome: how its parts end decides how a document of ours ends, once.
#
# It is delivered when the last of its parts is acknowledged, whose receiver says so only when the
# document is whole there; where a message of its own names the parts (`fragments`), that is the
# last. It fails with the first part that does: then no further part is sent, and its From Party is
# told of the document, not of parts.


_FAILED = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)


def follow(context: HandlerContext) -> None:
    """Draw the consequences of every part that has ended since the last commit."""
    while context.state.parts_ended:
        message_id = context.state.parts_ended.pop(0)
        with context.transition() as tx:
            part = tx.outgoing(message_id)
            if part is not None and is_part(part):
                _part_ended(context, tx, part)


def _part_ended(context: HandlerContext, tx: Transaction, part: StoredOutgoing) -> None:
    split_id, number = part.facts.split_id or "", part.facts.split_number or 0
    document, whole = tx.document("", split_id), tx.outgoing(split_id)
    if document is None or whole is None or not has_parts(whole):
        return
    state = part.outgoing.state
    if state is OutgoingState.DELIVERED:
        document = document.add(number)
        tx.save_document(document)
        whole, proof = _proof(tx, whole, part)
        if document.complete and proof is not None:
            _delivered(context, tx, document, whole, proof)
    elif state in _FAILED:
        # A hub may have taken back what it had said of it.
        document = document.drop(number)
        tx.save_document(document)
        if document.state is not DocumentState.FAILED:
            _failed(context, tx, document, whole, part)
    if document.channel is None:
        context.state.releasing[split_id] = None
    else:
        context.state.admissions[document.channel] = None


def _proof(
    tx: Transaction, whole: StoredOutgoing, part: StoredOutgoing
) -> tuple[StoredOutgoing, Proof | None]:
    """The document, and whose word it is that it is there if all its parts are; None: nobody's
    yet. A hub's word of one part is a hub's word of the document."""
    if is_named_apart(tx, whole):
        # Fragments that come after all complete it, where their index was heard of before.
        return whole, index_stands(whole.outgoing)
    proof, known = part.outgoing.proved_by or Proof.TO_PARTY, whole.outgoing
    if known.proved_by is Proof.HOP:
        return whole, Proof.HOP
    if proof is Proof.HOP and known.state is not OutgoingState.DELIVERED:
        whole = replace(whole, outgoing=replace(known, proved_by=Proof.HOP))
        tx.save_outgoing(whole.outgoing)
    return whole, proof


def _delivered(
    context: HandlerContext,
    tx: Transaction,
    document: SplitDocument,
    whole: StoredOutgoing,
    proof: Proof,
) -> None:
    """Every part has arrived, and with the last of them the document."""
    if whole.outgoing.state is OutgoingState.DELIVERED:
        return
    tx.save_document(_ended(context, document, DocumentState.WHOLE))
    _step(context, tx, whole, parts_arrived(whole.outgoing, proof))


def _failed(
    context: HandlerContext,
    tx: Transaction,
    document: SplitDocument,
    whole: StoredOutgoing,
    part: StoredOutgoing,
) -> None:
    """A part will not arrive, or it is unknown whether it did; no further part is sent."""
    tx.save_document(_ended(context, document, DocumentState.FAILED))
    if whole.outgoing.state in _FAILED:
        # Its own time ran out, or the operator gave it up: that was told.
        return
    # Without a part that was never sent, or was refused, it cannot be put together.
    certain = part.outgoing.state is OutgoingState.NOT_DELIVERED or (
        document.released < document.total
    )
    why = f"part {part.facts.split_number} of {document.total}: {part.outgoing.reason}"
    _step(context, tx, whole, part_failed(whole.outgoing, why, certain=certain))


def _ended(context: HandlerContext, document: SplitDocument, state: DocumentState) -> SplitDocument:
    """The document at its end, from which on it is kept: what is heard of its last part may come
    long after the first was sent."""
    return replace(document.moved(state), latest_at=context.now())


def _step(
    context: HandlerContext, tx: Transaction, whole: StoredOutgoing, step: SenderStep
) -> None:
    if not step.outgoing.attempts:
        # It has no first send of its own that it could be kept from.
        step = replace(step, outgoing=replace(step.outgoing, first_sent_at=context.now()))
    terms = context.terms_of(tx, whole.outgoing.terms_id)
    perform(context, tx, whole, None, step, terms)


def parts_sent(tx: Transaction, document: SplitDocument | None) -> list[StoredOutgoing]:
    """The parts that were sent and are not acknowledged; there are few of them."""
    if document is None:
        return []
    names = (
        part_id(document.split_id, number, document.total)
        for number in document.missing
        if number <= document.released
    )
    return [part for part in map(tx.outgoing, names) if part is not None]


def abandon_document(
    context: HandlerContext, tx: Transaction, whole: StoredOutgoing, by: str | None = None
) -> None:
    """The operator gives a document up, and with it the parts that are under way."""
    document = tx.document("", whole.outgoing.message_id)
    # It cannot be put together without a part that certainly never got there.
    certain = (
        whole.outgoing.state is OutgoingState.WAITING
        or document is None
        or document.released < document.total
        or not all(part.outgoing.transmitted for part in parts_sent(tx, document))
        or is_named_apart(tx, whole)
    )
    to = OutgoingState.NOT_DELIVERED if certain else OutgoingState.UNKNOWN
    given_up = whole.outgoing.failed(OutgoingEvent.ABANDONED, to, "abandoned by the operator")
    effects = (note_of(Abandoned(by), given_up), *failure(given_up, "abandoned"))
    _step(context, tx, whole, SenderStep(given_up, None, effects))
    if document is None:
        return
    tx.save_document(_ended(context, document, DocumentState.FAILED))
    for part in parts_sent(tx, document):
        if part.outgoing.state not in FINAL_OUTGOING:
            channel, terms = (
                load_channel(tx, part.outgoing),
                context.terms_of(tx, part.outgoing.terms_id),
            )
            perform(context, tx, part, channel, abandon(part.outgoing, channel, terms, by), terms)
    if document.channel is not None:
        context.state.admissions[document.channel] = None
