"""Deliver: hand messages to the application, each once, in order, and hear that it has them."""

from __future__ import annotations

from dataclasses import replace

from oncewire.errors import UnknownMessage
from oncewire.handler.node import Node
from oncewire.handler.perform import resolve_incidents
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.effects import Note, Resolve
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.states import IncomingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming

FOR_EVER: Instant = 2**62
"""Later than any lease."""


def take(node: Node, tx: Transaction, limit: int, lease: Duration) -> list[StoredIncoming]:
    """Hand over what is ready, in order of delivery.

    The taker must confirm within the lease; otherwise, as after a crash of either side,
    the message is handed over again and marked `redelivered`.
    """
    now = node.now()
    taken = []
    for stored in tx.ready(now, limit):
        incoming = stored.incoming
        late = incoming.state is IncomingState.HANDED_OVER
        if late:
            incoming = incoming.lost()
        incoming = incoming.handed_over(now + lease)
        tx.save_incoming(incoming)
        _journal(node, tx, stored, "handed_over", incoming, late)
        taken.append(replace(stored, incoming=incoming))
    return taken


def confirm(node: Node, tx: Transaction, sender: str, message_id: str) -> bool:
    """The application has the message. Idempotent: False when that was known already."""
    stored = tx.incoming(sender, message_id)
    if stored is None:
        if any(gone.sender == sender for gone in tx.removed(message_id)):
            # Only what was confirmed is ever removed.
            return False
        raise UnknownMessage(
            f"no message {message_id} from {sender} was received here",
            remedy="confirm with the sender and MessageId that the hand-over named",
        )
    confirmed = stored.incoming.confirmed(node.now())
    if confirmed is stored.incoming:
        return False
    tx.save_incoming(confirmed)
    _journal(node, tx, stored, "confirmed", confirmed, late=False)
    # It may have been refused until somebody was called.
    resolve_incidents(node, tx, Resolve(message_id))
    return True


def recover_hand_overs(tx: Transaction, limit: int = 10_000) -> None:
    """After a restart: what was handed over and not confirmed is ready again, in its order.

    The application may have died with this process; waiting for its leases to run out
    would let later messages of a stream overtake these.
    """
    for stored in tx.ready(FOR_EVER, limit):
        if stored.incoming.state is IncomingState.HANDED_OVER:
            tx.save_incoming(stored.incoming.lost())


def _journal(
    node: Node, tx: Transaction, stored: StoredIncoming, kind: str, incoming: Incoming, late: bool
) -> None:
    detail: dict[str, object] = {}
    if kind == "handed_over" and incoming.hand_overs > 1:
        detail["redelivered"] = True
        if late:
            detail["lease_expired"] = True
    note = Note(
        kind,
        incoming.message_id,
        stored.facts.ref_to,
        incoming.channel,
        incoming.epoch,
        incoming.number,
        detail=detail,
    )
    node.write(
        tx,
        [note],
        terms_id=incoming.terms_id,
        peer=stored.facts.from_party,
        digest=incoming.digest,
        size=stored.facts.size,
    )
