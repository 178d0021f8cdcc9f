"""Reports and trials: stored like any other message, and taken by the handler itself."""

from __future__ import annotations

from oncewire.handler.answering.signals import receive_errors
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_of_hop
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.trial import is_trial
from oncewire.protocol import notes
from oncewire.protocol.effects import Note
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming


def is_for_us(message_id: str, kind: MessageKind) -> bool:
    """Whether a stored message is for the handler: no application is given it."""
    return kind is MessageKind.ERROR or is_trial(message_id)


def take_it(node: Node, tx: Transaction, message: Message, stored: StoredIncoming) -> None:
    """Take a message that is for the handler itself."""
    if message.kind is MessageKind.ERROR:
        _receive_report(node, tx, message, stored)
    else:
        _consume(node, tx, message, stored)


def _receive_report(node: Node, tx: Transaction, message: Message, stored: StoredIncoming) -> None:
    """A reliable failure notice is for the handler itself: it is the consumer (ERR-5..9)."""
    # The one it was accepted under: where that is gone, another that leads to the same hub says
    # nothing of whom the message was sent to.
    agreement = node.agreement_kept(tx, stored.agreement_id) or agreement_of_hop(node, tx, stored)
    if agreement is not None:
        receive_errors(node, tx, message, agreement)
    _consume(node, tx, message, stored)


def _consume(node: Node, tx: Transaction, message: Message, stored: StoredIncoming) -> None:
    """What is for the handler itself, a failure notice or a trial, is taken by it at once."""
    now = node.now()
    done = stored.incoming.handed_over(now).confirmed(now)
    tx.save_incoming(done)
    facts = {
        "terms_id": done.terms_id,
        "peer": stored.facts.from_party,
        "digest": identity_digest(message),
        "size": stored.facts.size,
    }
    for what in (notes.HandedOver(), notes.Confirmed()):
        note = Note(
            what, done.message_id, stored.facts.ref_to, done.channel, done.epoch, done.number
        )
        node.write(tx, [note], **facts)  # type: ignore[arg-type]
