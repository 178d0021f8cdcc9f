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
    states: list[str] = [stored.incoming.state for stored in tx.incoming_by_id(message_id)]
    states += [gone.state for gone in tx.removed(message_id)]
    accepted = states.count(IncomingState.REFUSED) < len(states)
    reference = message.header.ref_to_message_id
    spoken = dict.fromkeys((*spoken_of(message), reference or ""))
    found = [tx.outgoing(name) for name in spoken if name]
    ours = tuple([None if stored is None else stored.outgoing.state for stored in found])
    return Standing(accepted, ours, reference in node.pings)


def is_news(before: Standing, after: Standing) -> bool:
    """Whether taking the message has changed something: it was accepted, or it settled a message
    of ours, and neither had happened before."""
    return before != after
