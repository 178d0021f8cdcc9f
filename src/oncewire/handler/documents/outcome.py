"""Outcome: how its parts end decides how a document of ours ends, once.

It is delivered when the last of its parts is acknowledged, whose receiver says so only when the
document is whole there; where a message of its own names the parts (`fragments`), that is the last.
It fails with the first part that does: then no further part is sent, and its From Party is told of
the document, not of parts.
"""

from __future__ import annotations

from dataclasses import replace

from oncewire.handler.documents.fragments import is_named_apart
from oncewire.handler.documents.original import has_parts, is_part
from oncewire.handler.node import Node
from oncewire.handler.perform import load_channel, perform
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    index_stands,
    part_failed,
    part_id,
    parts_arrived,
)
from oncewire.protocol.notes import Abandoned
from oncewire.protocol.sender import SenderStep, abandon
from oncewire.protocol.settling import failure, note_of
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingEvent, OutgoingState, Proof
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

_FAILED = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)


def follow(node: Node) -> None:
    """Draw the consequences of every part that has ended since the last commit."""
    while node.parts_ended:
        message_id = node.parts_ended.pop(0)
        with node.transition() as tx:
            part = tx.outgoing(message_id)
            if part is not None and is_part(part):
                _part_ended(node, tx, part)


def _part_ended(node: Node, tx: Transaction, part: StoredOutgoing) -> None:
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
            _delivered(node, tx, document, whole, proof)
    elif state in _FAILED:
        # A hub may have taken back what it had said of it.
        document = document.drop(number)
        tx.save_document(document)
        if document.state is not DocumentState.FAILED:
            _failed(node, tx, document, whole, part)
    if document.channel is None:
        node.releasing[split_id] = None
    else:
        node.admissions[document.channel] = None


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
    node: Node, tx: Transaction, document: SplitDocument, whole: StoredOutgoing, proof: Proof
) -> None:
    """Every part has arrived, and with the last of them the document."""
    if whole.outgoing.state is OutgoingState.DELIVERED:
        return
    tx.save_document(_ended(node, document, DocumentState.WHOLE))
    _step(node, tx, whole, parts_arrived(whole.outgoing, proof))


def _failed(
    node: Node,
    tx: Transaction,
    document: SplitDocument,
    whole: StoredOutgoing,
    part: StoredOutgoing,
) -> None:
    """A part will not arrive, or nobody knows whether it did; no further part is sent."""
    tx.save_document(_ended(node, document, DocumentState.FAILED))
    if whole.outgoing.state in _FAILED:
        # Its own time ran out, or the operator gave it up: that was told.
        return
    # Without a part that was never sent, or was refused, nobody can put it together.
    certain = part.outgoing.state is OutgoingState.NOT_DELIVERED or (
        document.released < document.total
    )
    why = f"part {part.facts.split_number} of {document.total}: {part.outgoing.reason}"
    _step(node, tx, whole, part_failed(whole.outgoing, why, certain=certain))


def _ended(node: Node, document: SplitDocument, state: DocumentState) -> SplitDocument:
    """The document at its end, from which on it is kept: what is heard of its last part may come
    long after the first was sent."""
    return replace(document.moved(state), latest_at=node.now())


def _step(node: Node, tx: Transaction, whole: StoredOutgoing, step: SenderStep) -> None:
    if not step.outgoing.attempts:
        # It has no first send of its own that it could be kept from.
        step = replace(step, outgoing=replace(step.outgoing, first_sent_at=node.now()))
    terms = node.terms_of(tx, whole.outgoing.terms_id)
    perform(node, tx, whole, None, step, terms)


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
    node: Node, tx: Transaction, whole: StoredOutgoing, by: str | None = None
) -> None:
    """The operator gives a document up, and with it the parts that are under way."""
    document = tx.document("", whole.outgoing.message_id)
    # Nobody can put it together without a part that certainly never got there.
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
    _step(node, tx, whole, SenderStep(given_up, None, effects))
    if document is None:
        return
    tx.save_document(_ended(node, document, DocumentState.FAILED))
    for part in parts_sent(tx, document):
        if part.outgoing.state not in FINAL_OUTGOING:
            channel, terms = (
                load_channel(tx, part.outgoing),
                node.terms_of(tx, part.outgoing.terms_id),
            )
            perform(node, tx, part, channel, abandon(part.outgoing, channel, terms, by), terms)
    if document.channel is not None:
        node.admissions[document.channel] = None
