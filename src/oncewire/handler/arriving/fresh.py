"""Fresh: whether a message is news, or anybody may have sent it again.

Who has recorded a message can send it from anywhere, signature and all. It is a partner's word,
and it is treated as a copy; but it does not show that the partner is where it came from now. What
nobody had said here before does.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.handler.arriving.original import spoken_of
from oncewire.handler.node import Node
from oncewire.message.envelope import Message
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.contract import Transaction


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about a message, and about those of ours that it speaks of."""

    # Whether it was accepted, now or long ago.
    accepted: bool
    ours: tuple[OutgoingState | None, ...]
    # Whether somebody waits for it as the answer to a Ping.
    pinged: bool


def standing(node: Node, tx: Transaction, message: Message) -> Standing:
    """What is known now."""
    message_id = message.header.message_id
    accepted = any(
        stored.incoming.state is not IncomingState.REFUSED
        for stored in tx.incoming_by_id(message_id)
    ) or any(gone.state != IncomingState.REFUSED for gone in tx.removed(message_id))
    spoken = (*spoken_of(message), message.header.ref_to_message_id or "")
    found = (tx.outgoing(reference) for reference in dict.fromkeys(spoken) if reference)
    ours = tuple(None if stored is None else stored.outgoing.state for stored in found)
    return Standing(accepted, ours, message.header.ref_to_message_id in node.pings)


def is_news(before: Standing, after: Standing) -> bool:
    """Whether taking the message has changed something: it was accepted, or it settled a message
    of ours, and neither had happened before."""
    return before != after
