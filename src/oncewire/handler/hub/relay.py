"""Relay: at a hub, what the next hop says goes back on the connection of the request.

The hub's own exchange is as synchronous as the one it serves (SYNC-11). What comes back on its
connection is taken in like any arrival, and leaves on the connection that waits for it; where
none waits any more, because the time was up or the process died in between, it goes its own
way. So nothing that was stored depends on a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncewire.handler.actions import Post, PostAnswer, PostOn, Relay
from oncewire.handler.answering.answer import NOTHING, Answer, Awaited, answer_error
from oncewire.handler.hub.previous import Previous
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_for
from oncewire.handler.sealing.seal import sealed, stored_parcel, whole_parcel
from oncewire.handler.sealing.spooled import read_stored
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.fault import Error
from oncewire.message.header import SyncReplyMode
from oncewire.protocol.states import IncomingState
from oncewire.protocol.synchronous import (
    SyncPlan,
    timeout_error,
    unreachable_error,
)
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredParcel
from oncewire.wire.mime.bundle import bundle
from oncewire.wire.parcel import Parcel

_HERE = SyncPlan(SyncReplyMode.SIGNALS_AND_RESPONSE)
"""Whatever is said now leaves on the connection, and is owed on no other."""


def waiting_for(node: Node, tx: Transaction, message_id: str) -> StoredIncoming | None:
    """The request of that id whose connection waits here now."""
    if not node.relaying:
        return None
    for stored in tx.incoming_by_id(message_id):
        key = (stored.incoming.sender, message_id)
        if stored.incoming.state is IncomingState.FORWARDED and key in node.relaying:
            return stored
    return None


def give_back(node: Node, asked: StoredIncoming, post: Post | PostAnswer) -> None:
    """Let a message leave on the connection that waits for it, or else as it would have."""
    incoming = asked.incoming
    node.actions.append(Relay(incoming.sender, incoming.message_id, post.parcel, instead=post))


def take_back(node: Node, asked: StoredIncoming, message_id: str) -> None:
    """The same for a message of ours that was about to leave on a connection of its own."""
    for post in node.actions:
        if isinstance(post, Post) and post.message_id == message_id:
            node.actions.remove(post)
            give_back(node, asked, post)
            return


def nothing_more(node: Node, tx: Transaction, message_id: str) -> None:
    """The onward exchange of a request is over: its connection waits no longer."""
    asked = waiting_for(node, tx, message_id)
    if asked is None:
        return
    key = (asked.incoming.sender, message_id)
    given = (action for action in node.actions if isinstance(action, Relay))
    if all((each_relay.sender, each_relay.message_id) != key for each_relay in given):
        node.actions.append(Relay(*key))


def not_passed(
    node: Node, tx: Transaction, post: PostOn, ended: Transmission, fault: Parcel | None
) -> None:
    """The next handler gave no message back: say what is known, in time for it to be heard.

    A status and a SOAP Fault go back as they are; of the rest the initiator is told what
    became of its message, and repeats it if it may.
    """
    asked = waiting_for(node, tx, post.message_id)
    if asked is None:
        return
    key = (post.sender, post.message_id)
    if fault is not None:
        node.actions.append(Relay(*key, stored_parcel(fault), status=500))
        return
    if ended.retry_after is not None:
        node.actions.append(Relay(*key, status=503, retry_after=ended.retry_after))
        return
    error = unreachable_error(ended.reason) if ended.certain else timeout_error()
    report = _report(node, asked, post.parcel, error)
    node.actions.append(Relay(*key, None if report is None else report.parcel))


def _report(
    node: Node, asked: StoredIncoming, onward: StoredParcel, error: Error
) -> StoredAnswer | None:
    """The error, addressed to the handler that the message came from; the copy that went on
    names this hub's own hop last."""
    agreement = agreement_for(node, asked.facts.cpa_id, asked.peer)
    if agreement is None:
        return None
    message = read_stored(node.store.spool, onward, node.limits).message
    message = replace(message, routing=message.routing[:-1])
    return answer_error(node, message, agreement, (error,), _HERE)


def relay(node: Node, tx: Transaction, awaited: Awaited, said: Sequence[Relay]) -> Answer:
    """What goes back on a connection that waited: what the next hop said, and beside it what
    this hub has to say itself (SYNC-8); nothing said: the time was up (SYNC-17)."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    status = next((each_relay for each_relay in said if each_relay.status != 200), None)
    if status is not None:
        return Answer(status.status, status.parcel, status.retry_after)
    parcels = [each_relay.parcel for each_relay in said if each_relay.parcel is not None]
    if stored is None or stored.passed_on:
        return _together(node, parcels) if said else Answer(504)
    previous = Previous.read(node, tx, stored, _HERE)
    if previous is not None:
        own = previous.beside(relayed=bool(parcels)) if said else previous.overdue()
        if own is not None:
            parcels.insert(0, own.parcel)
        elif not parcels:
            return previous.come_back()
    return _together(node, parcels)


def _together(node: Node, parcels: list[StoredParcel]) -> Answer:
    """One message as it is, several one after the other: a hub writes into none of them."""
    if not parcels:
        return NOTHING
    if len(parcels) == 1:
        return Answer(200, parcels[0])
    return Answer(200, sealed(node, bundle([whole_parcel(node, stored) for stored in parcels])))
