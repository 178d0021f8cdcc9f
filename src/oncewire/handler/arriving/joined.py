"""Joined: a document whose parts are all here is handed to the application, once, or refused.

Before: what is to be put together is read from the rows of its parts (`plan_join`). Then the work
is done, outside of any turn (`documents.joining`). After: the document is a received message of its
own, under its SplitId, and the part that made it complete gets its answer (`finish_join`); or that
part is refused, the document is given up and nothing of it is left (`refuse_join`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from oncewire.errors import DeliveryFailure, EbxmlError, Inconsistent
from oncewire.handler.actions import PostReply, Ready
from oncewire.handler.answering.answer import answer_error, post_signal
from oncewire.handler.arriving.pieces import (
    contents,
    contents_named,
    index_of,
    read_part,
    read_payloads,
)
from oncewire.handler.arriving.release import follow
from oncewire.handler.arriving.request import Request
from oncewire.handler.delivering.view import View, write_view
from oncewire.handler.documents.bounds import Bounds
from oncewire.handler.documents.claims import (
    hand_to_document,
    is_early,
    latest_of,
    parts_of,
    settle_claims,
)
from oncewire.handler.documents.gathering import check_split_id
from oncewire.handler.documents.joining import Joined, Pieces
from oncewire.handler.node import Node
from oncewire.journal.identity import document_digest, identity_digest
from oncewire.message.envelope import Message
from oncewire.message.fault import Error
from oncewire.message.instant import SECOND
from oncewire.message.payload import Reference
from oncewire.protocol import notes
from oncewire.protocol.documents import DocumentState, SplitDocument
from oncewire.protocol.effects import Note
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.receiver import close_number, hold_deadline
from oncewire.protocol.states import IncomingEvent, IncomingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.wire.limits import Limits
from oncewire.wire.received import PartPlace
from oncewire.wire.resolve import reference_to

logger = logging.getLogger("oncewire.handler")

CONTENT_TYPE = "application/x-oncewire-joined"
"""Of a row whose bytes are payloads one after the other; its view says where each lies."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """What a document is to be made of."""

    document: SplitDocument
    # The first part, or the message that names all parts: its header is the document's.
    first: Message
    contents: tuple[Pieces, ...]
    limits: Limits
    named: bool = False


def plan_join(node: Node, tx: Transaction, sender: str, split_id: str) -> JoinPlan | None:
    """What is to be put together; None: nothing any more. Raises the error that its sender is told
    of where the parts do not fit together."""
    document = tx.document(sender, split_id)
    if document is None or document.state is not DocumentState.JOINING:
        return None
    terms = node.terms_of(tx, document.terms_id)
    limits = Bounds.of(node.limits, terms).limits
    index = index_of(node, tx, document)
    listed = parts_of(tx, document, index)
    if index is not None:
        here = read_payloads(node, tx, listed[0])
        fragments = [read_part(node, tx, each) for each in listed[1:]]
        named = tuple(contents_named(document, index, here, fragments))
        return JoinPlan(document, index, named, limits, named=True)
    parts = [read_part(node, tx, each) for each in listed]
    return JoinPlan(document, parts[0].message, tuple(contents(document, parts, terms)), limits)


# --- it is whole ---------------------------------------------------------------------------------


def finish_join(node: Node, tx: Transaction, plan: JoinPlan, joined: tuple[Joined, ...]) -> None:
    """The document is whole: it is the application's, and its sender is told so."""
    document = tx.document(*plan.document.key)
    if document is None or document.state is not DocumentState.JOINING:
        return
    try:
        if not plan.named:
            check_split_id(tx, *document.key)
    except Inconsistent as error:
        _give_up(node, tx, document, error)
        return
    index = plan.first if plan.named else None
    parts = parts_of(tx, document, index)
    settle_claims(tx, document, index)
    message = _whole(plan, joined)
    row = _row(node, document, parts[0], message, joined)
    if plan.named:
        # The message that named the parts has its own row, by which its copies are known.
        key = f"{document.sender} {node.world.new_id()}"
        row = replace(row, incoming=replace(row.incoming, sender=key))
    last = tx.incoming(document.sender, document.last_part) if document.last_part else None
    request = None if last is None else Request.read(node, tx, last)
    _hand_over(node, tx, [part for part in parts if part.incoming.message_id != document.split_id])
    for listed in parts:
        _end(tx, node, listed, IncomingEvent.JOINED, IncomingState.CONFIRMED)
    tx.add_incoming(row)
    digest = document_digest([payload.digest for payload in message.payloads])
    node.write(
        tx,
        [Note(notes.Joined(document.total), document.split_id)],
        terms_id=document.terms_id,
        peer=row.facts.from_party,
        digest=digest,
        size=row.facts.size,
    )
    tx.save_document(document.moved(DocumentState.WHOLE))
    node.joining.pop(document.key, None)
    node.actions.append(Ready(1))
    if request is not None and request.owed.owed:
        request.save_ack()
        node.actions.append(PostReply(document.sender, document.last_part))


def _hand_over(node: Node, tx: Transaction, parts: Sequence[StoredIncoming]) -> None:
    """Give the document those that are not its own yet, in the order of their stream."""
    waiting = [part for part in parts if not part.incoming.hand_overs]
    waiting.sort(key=lambda part: (part.incoming.epoch or 0, part.incoming.number or 0))
    for part in waiting:
        hand_to_document(node, tx, part)


def _end(
    tx: Transaction, node: Node, listed: StoredIncoming, event: IncomingEvent, to: IncomingState
) -> None:
    confirmed = node.now() if to is IncomingState.CONFIRMED else None
    ended = listed.incoming.moved(event, to, confirmed_at=confirmed, hand_overs=1)
    tx.save_incoming(ended, forget=to is not IncomingState.CONFIRMED)


def _whole(plan: JoinPlan, joined: tuple[Joined, ...]) -> Message:
    header = replace(plan.first.header, message_id=plan.document.split_id, split=None)
    payloads = tuple(whole.payload for whole in joined)
    references = tuple(Reference(reference_to(payload.content_id)) for payload in payloads)
    return replace(plan.first, header=header, manifest=references, payloads=payloads)


def _row(
    node: Node,
    document: SplitDocument,
    part: StoredIncoming,
    message: Message,
    joined: tuple[Joined, ...],
) -> StoredIncoming:
    places, offset = [], 0
    for whole in joined:
        places.append(PartPlace(offset, whole.payload.size))
        offset += whole.payload.size
    digest = identity_digest(message)
    incoming = Incoming(
        document.sender,
        document.split_id,
        digest,
        document.terms_id,
        node.now(),
        channel=document.channel,
    ).moved(IncomingEvent.ARRIVED, IncomingState.READY)
    facts = replace(
        part.facts,
        timestamp=message.header.timestamp,
        digest=digest,
        size=offset,
        split_number=None,
    )
    body = tuple(piece for whole in joined for piece in whole.body)
    return StoredIncoming(
        incoming,
        facts,
        part.peer,
        part.transport,
        StoredParcel(CONTENT_TYPE, (), body),
        position=document.position,
        hop=part.hop,
        agreement_id=part.agreement_id,
        view=write_view(View(message, tuple(places))),
    )


# --- it never will be ----------------------------------------------------------------------------


def refuse_join(node: Node, tx: Transaction, sender: str, split_id: str, error: EbxmlError) -> None:
    """The parts are no document: it is given up, and whoever waits for an answer is told why."""
    document = tx.document(sender, split_id)
    if document is not None and document.state is DocumentState.JOINING:
        _give_up(node, tx, document, error)


def _give_up(node: Node, tx: Transaction, document: SplitDocument, error: EbxmlError) -> None:
    index = index_of(node, tx, document)
    parts = parts_of(tx, document, index)
    settle_claims(tx, document, index)
    last = tx.incoming(document.sender, document.last_part) if document.last_part else None
    request = None if last is None else Request.read(node, tx, last)
    code, place, problem = error.code, error.location or None, str(error.problem)[:500]
    refused = notes.Refused(code, location=place, problem=problem, split_id=document.split_id)
    peer = parts[0].peer if parts else None
    node.write(tx, [Note(refused, document.split_id)], terms_id=document.terms_id, peer=peer)
    taken = [part for part in parts if part.incoming.state is IncomingState.GATHERED]
    # What was acknowledged is its document's, and shares its fate.
    theirs = [part for part in taken if part.incoming.message_id != document.split_id]
    _hand_over(node, tx, [part for part in theirs if part.answered])
    for listed in parts:
        if listed.incoming.state is IncomingState.HELD:
            _settle_number(node, tx, listed)
        is_last = listed.incoming.message_id == document.last_part and request is not None
        to = IncomingState.REFUSED if is_last else IncomingState.CLOSED
        _end(tx, node, listed, IncomingEvent.NOT_JOINED, to)
    if request is not None:
        _answer(node, tx, request, error, refused)
    tx.save_document(document.moved(DocumentState.FAILED))
    node.joining.pop(document.key, None)
    node.refusals.count(code, peer or "", problem, document.split_id, node.now())
    # What it lay in goes as soon as that is durable.
    node.clean_due_at = min(node.clean_due_at, node.now() + SECOND)
    logger.warning(
        "a document is given up", extra={"message_id": document.split_id, "problem": problem}
    )


def _settle_number(node: Node, tx: Transaction, listed: StoredIncoming) -> None:
    """Nobody waits any more for the turn of a part, nor for what follows it."""
    key = listed.incoming.channel
    channel = None if key is None else tx.receiving_channel(key)
    if channel is not None:
        follow(node, tx, *close_number(listed.incoming, channel))


def _answer(
    node: Node, tx: Transaction, request: Request, error: EbxmlError, refused: notes.Refused
) -> None:
    """Refuse the part that made the document complete; its copies get the same answer."""
    incoming, errors = request.stored.incoming, (Error.of(error),)
    note = Note(
        replace(refused, split_id=None),
        incoming.message_id,
        channel=incoming.channel,
        epoch=incoming.epoch,
        number=incoming.number,
    )
    node.write(
        tx, [note], terms_id=incoming.terms_id, peer=request.stored.peer, digest=incoming.digest
    )
    answer = answer_error(node, request.message, request.agreement, errors, request.plan)
    if answer is None:
        return
    tx.save_answer(incoming.sender, incoming.message_id, answer)
    if answer.owed:
        key = {"sender": incoming.sender, "message_id": incoming.message_id}
        post_signal(node, request.agreement, answer, **key)
    node.actions.append(PostReply(incoming.sender, incoming.message_id))


def give_up_incomplete(node: Node) -> None:
    """Forget documents of which a part is missing that nobody sends any more."""
    with node.transition() as tx:
        waiting = tx.open_documents()
        latest = latest_of(each for each in waiting if is_early(each.split_id))
        for document in waiting:
            terms = node.terms_of(tx, document.terms_id)
            came = document.latest_at
            if is_early(document.split_id):
                # The message that names it goes out when all of them are there, and may be
                # persistDuration under way.
                came = latest[document.sender, *document.about] + terms.persist_duration
            late = node.now() >= hold_deadline(came, terms)
            if document.state is not DocumentState.OPEN or not late:
                continue
            missing = document.total - document.count
            problem = (
                f"{missing:,} of {document.total:,} parts of document {document.split_id} did not "
                "come within persistDuration"
            )
            if is_early(document.split_id):
                problem = "no message named a fragment within persistDuration"
            _give_up(node, tx, document, DeliveryFailure(problem, location="//SplitNumber"))
