"""Ways: transports that messages have left, and how they are taken again.

A message that has used up its retries on one transport goes on with the next that is agreed, and
those that begin after it do not try the first in vain. The first is probed, which costs nobody a
message; once that gets through, messages begin there again. What is open is kept as incidents, so
that a restart knows it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.handler.node import Node
from oncewire.handler.perform import WAY, resolve_incidents, way_key
from oncewire.handler.route import peer_label, route_under
from oncewire.protocol.effects import Resolve


@dataclass(frozen=True, slots=True)
class LeftWay:
    """A transport to one receiver that is not used for now."""

    peer: str
    transport: str
    address: str


def take_up(node: Node) -> None:
    """Remember what an earlier run had left."""
    with node.store.reader() as reader:
        keys = [incident.channel or "" for incident in reader.incidents()]
    for key in keys:
        if key.startswith(WAY):
            transport, _, peer = key.removeprefix(WAY).partition(" to ")
            node.left.add((peer, transport))


def left_ways(node: Node) -> list[LeftWay]:
    """What is to be probed, as far as there is an address for it today."""
    found: dict[tuple[str, str], LeftWay] = {}
    for agreement in node.agreements:
        route = route_under(agreement, agreement.sending)
        for transport in route.terms.transports:
            key, address = (peer_label(agreement), transport), route.address(transport)
            if key in node.left and address is not None:
                found[key] = LeftWay(*key, address)
    return list(found.values())


def take_again(node: Node, way: LeftWay) -> None:
    """A probe got through, or an operator says that it would."""
    node.left.discard((way.peer, way.transport))
    with node.transition() as tx:
        resolve_incidents(node, tx, Resolve(channel=way_key(way.peer, way.transport)))
