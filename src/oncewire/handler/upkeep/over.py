"""Over: incidents of handlers and ways are closed when what they tell of has ended.

Most incidents are closed by the step that ends their cause. Of these no step can know: a pause
runs out while nothing is sent, an address is written into an agreement, a transport is agreed no
more. So they are looked at now and then.
"""

from __future__ import annotations

from oncewire.handler.answering.answer import signal_ways
from oncewire.handler.answering.unaddressed import ANSWERS
from oncewire.handler.node import Node
from oncewire.handler.perform import WAY, receiver_of, resolve_incidents
from oncewire.handler.route import peer_label
from oncewire.message.envelope import MessageKind
from oncewire.protocol.effects import Resolve
from oncewire.store.contract import Transaction

_SIGNALS = (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR)


def close_what_is_over(node: Node) -> None:
    """Close those whose cause has ended."""
    with node.store.reader() as reader:
        keys = {incident.channel for incident in reader.incidents() if incident.channel}
    for key in sorted(keys):
        with node.transition() as tx:
            if _is_over(node, tx, key):
                resolve_incidents(node, tx, Resolve(channel=key))


def _is_over(node: Node, tx: Transaction, key: str) -> bool:
    if receiver_of(key) is not None:
        receiver = tx.sending_channel(key)
        return receiver is None or receiver.paused_until <= node.now()
    if key.startswith(ANSWERS):
        return _can_answer(node, key.removeprefix(ANSWERS))
    if key.startswith(WAY):
        transport, _, peer = key.removeprefix(WAY).partition(" to ")
        agreed = _is_agreed(node, peer, transport)
        if not agreed:
            node.left.discard((peer, transport))
        return not agreed
    return False


def _can_answer(node: Node, peer: str) -> bool:
    """Whether every signal to a partner has somewhere to go."""
    return all(
        signal_ways(node, agreement, kind)
        for agreement in node.agreements
        if peer_label(agreement) == peer
        for kind in _SIGNALS
    )


def _is_agreed(node: Node, peer: str, transport: str) -> bool:
    """Whether messages to a partner may go by a transport."""
    return any(
        transport in agreement.sending.terms.transports
        for agreement in node.agreements
        if peer_label(agreement) == peer
    )
