"""Each community's handler, as a script, exchanges messages with ours over a bad network."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.protocol.states import OutgoingState
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from tests.handler.processes.proxy import Luck, Proxy, Wires
from tests.handler.running import journal
from tests.peers.communities import Digikoppeling, Phinms, Spine, SpineForwarding
from tests.peers.peer import Peer
from tests.peers.prototypes import Prototype2000, WindowProposal
from tests.ports import free_port

COUNT = 6
LOSSY = Luck(lose=0.12, lose_answer=0.12, cut_answer=0.05, repeat=0.1, delay=0.2)
# Ours resends as soon as the test likes; everything else is the profile's.
FAST = (
    '[delivery]\ntimeout = "PT0.4S"\nretry_interval = "PT0.4S"\nretries = 120\n'
    'persist_duration = "PT1H"\n[sync]\ntimeout = "PT3S"\n'
)
PEERS = (Digikoppeling, Spine, SpineForwarding, Phinms, Prototype2000, WindowProposal)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wires() -> Iterator[Wires]:
    found = Wires()
    yield found
    found.end()


def agreement_with(peer: type[Peer], ports: dict[str, int]) -> str:
    sides = {
        side: f'http = "http://127.0.0.1:{ports[name]}/msh"\n'
        f'uri = "http://127.0.0.1:{ports[name]}/msh"\n'
        for side, name in (("own", "alpha"), ("partner", "beta"))
    }
    return peer.AGREEMENT.format(**sides, profile=peer.PROFILE) + FAST


async def play(folder: Path, kind: type[Peer], wires: Wires) -> None:
    outer = {"alpha": free_port(), "beta": free_port()}
    inner = {"alpha": free_port(), "beta": free_port()}
    proxies = [Proxy(name, outer[name], inner[name], 11, LOSSY) for name in outer]
    for proxy in proxies:
        wires.open(proxy)
    text = agreement_with(kind, outer)
    store = SqliteStore(folder / "alpha.db", node="alpha")
    agreement = read_toml(text)
    node = HandlerContext("alpha", store, Agreements([agreement]), RealWorld())
    limits = HttpLimits(late=math.inf)
    transport = HttpTransport(
        HttpServerSettings("127.0.0.1", inner["alpha"], "/msh", limits=limits),
        HttpClientSettings(addresses=AddressRule.of(["loopback"])),
    )
    peer = kind(inner["beta"], f"http://127.0.0.1:{outer['alpha']}/msh")
    if isinstance(peer, WindowProposal):
        peer.public = outer["beta"]
    try:
        async with peer, Handler(node, {"http": transport}) as handler:
            sending = asyncio.create_task(peer.send_all(COUNT))
            ours = [await handler.send(order(agreement.cpa_id, number)) for number in _NUMBERS]
            states = [await handler.wait(each.message_id, 60) for each in ours]
            await asyncio.wait_for(sending, 90)
            given = await handler.take(100)
            for each in given:
                await handler.confirm(each.sender, each.message_id)
            taken = [(each.message_id, (each.payloads[0].data or b"")[:20]) for each in given]
            rows = journal(handler)
    finally:
        for proxy in proxies:
            wires.close(proxy)
    assert peer.complaints == []
    assert states == [OutgoingState.DELIVERED] * COUNT
    # Each order was given to its application once, with its document; ours and theirs.
    assert peer.taken == Counter({f"order-{number}@alpha": 1 for number in _NUMBERS})
    assert peer.documents == {f"order-{n}@alpha": f"order {n}".encode() for n in _NUMBERS}
    arrived = [given for given in taken if given[0].startswith("order-")]
    expected = [(f"order-{number}@beta", f"order {number}".encode()) for number in _NUMBERS]
    if kind is Phinms:
        # It never asks that copies be stopped, so each of them is a message.
        assert set(arrived) == set(expected)
        statuses = {given[0] for given in taken if given[0].startswith("status-")}
        assert len(statuses) == COUNT, "what it says of each order is for our application"
    else:
        assert sorted(arrived) == expected
    if agreement.sending.terms.ordered:
        assert arrived == expected
    report = check_journal(rows, healed=True)
    assert report.clean, report.violations
    assert sum(sum(proxy.faults[fate] for fate in ("lose", "lose_answer")) for proxy in proxies)


_NUMBERS = range(1, COUNT + 1)


def order(cpa_id: str, number: int) -> Submission:
    return Submission(
        cpa_id,
        Service("urn:test:orders"),
        "New",
        (Payload.of(f"doc-{number}", "text/plain", f"order {number}".encode()),),
        conversation_id="talk",
        message_id=f"order-{number}@alpha",
    )


@pytest.mark.requirement("DUP-2")
@pytest.mark.parametrize("kind", PEERS, ids=[kind.PROFILE for kind in PEERS])
def test_both_ways_over_a_bad_network(tmp_path: Path, kind: type[Peer], wires: Wires) -> None:
    asyncio.run(play(tmp_path, kind, wires))
