"""What a hub sends on is the message, not the connection it came on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncewire.handler.actions import Post
from oncewire.handler.engine import Engine
from oncewire.handler.seal import whole_parcel
from oncewire.handler.source import Source
from oncewire.handler.submit import Submission
from oncewire.message import Payload, Service
from oncewire.simulation.options import Options
from oncewire.simulation.run import Simulation
from oncewire.simulation.topology import CPA_ID


def posts(engine: Engine) -> list[Post]:
    return [action for action in engine.commit() if isinstance(action, Post)]


@pytest.mark.requirement("HOP-5", "HOP-8")
def test_headers_of_the_connection_stay_behind() -> None:
    simulation = Simulation(Options(hops=2), seed=1)
    buyer, hub = simulation.actor("buyer").engine, simulation.actor("hub1").engine
    document = Payload.of("order", "text/plain", b"order")
    buyer.submit(Submission(CPA_ID, Service("urn:sim:orders"), "PlaceOrder", (document,)))
    (first,) = posts(buyer)
    parcel = whole_parcel(buyer.node, first.parcel)
    came_with = (
        *parcel.headers,
        ("Host", "hub1"),
        ("Content-Length", str(len(parcel.body))),
        ("Authorization", "Basic c2VjcmV0"),
        ("SOAPAction", '"ebXML"'),
    )
    hub.receive(replace(parcel, headers=came_with), Source("http", can_answer=True))
    (onward,) = posts(hub)
    assert len(whole_parcel(hub.node, onward.parcel).body) > len(parcel.body)
    names = [name for name, _ in onward.parcel.headers]
    assert sorted(names) == ["Content-Digest", "SOAPAction"]
