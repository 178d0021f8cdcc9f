"""Copying: a trial that was sent is sent once more, to see what its receiver makes of a copy."""

from __future__ import annotations

from oncewire.errors import NotAllowed
from oncewire.handler.actions import PostAnswer
from oncewire.handler.node import Node
from oncewire.handler.route import addresses_for
from oncewire.message.trial import is_trial
from oncewire.store.contract import Transaction


def send_copy(node: Node, tx: Transaction, message_id: str) -> None:
    """Let the stored bytes of a trial leave again, beside its own attempts."""
    stored, parcel = tx.outgoing(message_id), tx.outgoing_parcel(message_id)
    if stored is None or parcel is None or not is_trial(message_id):
        raise NotAllowed(
            f"message {message_id} is no trial that was sent", remedy="copy none but trials"
        )
    transports = node.terms_of(tx, stored.outgoing.terms_id).transports
    ways = list(addresses_for(node, tx, stored, transports).items())
    if ways:
        tx.save_outgoing(stored.outgoing.repeated())
        node.actions.append(PostAnswer(*ways[0], parcel, others=tuple(ways[1:])))
