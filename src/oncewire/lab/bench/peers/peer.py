"""Peer: another product in the same run, where it is installed; where not, that is said."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from oncewire.lab.bench.child import Child
from oncewire.lab.bench.figures import PeerFigure, Plan


@dataclass(frozen=True, slots=True)
class Peer:
    """One product: the module that drives it, and what of it is measured."""

    name: str
    module: str
    remark: str
    arguments: tuple[str, ...] = ()


PEERS = (
    Peer("rabbitmq", "rabbitmq", "durable queue, persistent messages, confirmed when stored"),
    Peer("nats", "nats", "JetStream on file, sync_interval always, acknowledged when stored"),
    Peer("as2", "as2", "pyas2lib over HTTP, synchronous MDN, unsigned; no store at all"),
    Peer("as2 signed", "as2", "the same, message and MDN signed (RSA)", ("--signed",)),
)


def measure_peers(plan: Plan, in_flight: int, size: int) -> tuple[PeerFigure, ...]:
    """All of them, one after the other."""
    return tuple(measure(peer, plan, in_flight, size) for peer in PEERS)


def measure(peer: Peer, plan: Plan, in_flight: int, size: int) -> PeerFigure:
    """One of them; without rates where it is not installed."""
    module = f"oncewire.lab.bench.peers.{peer.module}"
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-peer-", ignore_cleanup_errors=True) as folder,
        Child(module, folder, *peer.arguments) as child,
    ):
        missing = child.first.get("missing")
        if missing:
            return PeerFigure(peer.name, remark=str(missing))
        rates = []
        child.ask("push", seconds=plan.warming, in_flight=in_flight, size=size)
        for _ in range(plan.repeats):
            pushed = child.ask("push", seconds=plan.seconds, in_flight=in_flight, size=size)
            rates.append(pushed["messages"] / pushed["seconds"])
    return PeerFigure(peer.name, tuple(rates), peer.remark)
