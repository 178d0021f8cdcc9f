"""Real handlers with two transports: the second is taken when the first fails, and left again."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.entry.control.client import LocalHandler
from oncewire.handler.actions import Post, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.sending.transmit import Transmission, left_ways, take_again, take_up
from oncewire.handler.world import RealWorld
from oncewire.journal.check import check_journal
from oncewire.journal.history import explain, ladder
from oncewire.journal.row import Row
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import HOUR, MILLISECOND
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind, Transport
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from tests.handler.network import Network, TestWorld
from tests.handler.running import journal
from tests.handler.test_other_transports import NAMES, World, by_mail, document
from tests.ports import free_port
from tests.transport.exchange import LOOPBACK
from tests.waiting import until

TERMS = """
[delivery]
transports = ["http", "smtp"]
timeout = "PT0.2S"
retry_interval = "PT0.2S"
retries = 2
"""


@dataclass
class Cut:
    """A transport whose line somebody can cut, before a cargo is sent or after it has arrived."""

    inner: Transport
    before: bool = False
    after: bool = False
    probes: list[OutcomeKind] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.can_answer = self.inner.name, self.inner.can_answer

    async def start(self, on_delivery: OnDelivery) -> None:
        await self.inner.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        if self.before:
            return AttemptOutcome(OutcomeKind.REFUSED, "the line is cut")
        outcome = await self.inner.send(cargo, address, timeout=timeout)
        return AttemptOutcome(OutcomeKind.UNKNOWN, "the line was cut") if self.after else outcome

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        cut = self.before or self.after
        outcome = AttemptOutcome(OutcomeKind.REFUSED, "the line is cut")
        if not cut:
            outcome = await self.inner.probe(address, timeout=timeout)
        self.probes.append(outcome.kind)
        return outcome

    async def stop(self) -> None:
        await self.inner.stop()


@contextlib.asynccontextmanager
async def both_ways(
    folder: Path, extra: str = "", terms: str = TERMS
) -> AsyncIterator[tuple[dict[str, Handler], dict[str, Cut]]]:
    """alpha and beta over HTTP, else by mail; the HTTP of each can be cut."""
    ports = {name: free_port() for name in NAMES}
    lines: dict[str, Cut] = {}
    async with by_mail(folder, terms + extra) as world:
        for name in NAMES:
            server = HttpServerSettings("127.0.0.1", ports[name], "/msh")
            lines[name] = Cut(HttpTransport(server, HttpClientSettings(addresses=LOOPBACK)))
            world.ways[name]["http"] = lines[name]
            at = {"http": f"http://127.0.0.1:{ports[name]}/msh"}
            world.addresses[name] = {**at, **world.addresses[name]}
        async with contextlib.AsyncExitStack() as stack:
            for name in NAMES:
                world.handlers[name] = await stack.enter_async_context(started(world, name))
            yield world.handlers, lines


def started(world: World, name: str) -> Handler:
    agreement = read_toml(world.agreement(name))
    store = SqliteStore(world.folder / f"{name}.db", node=name)
    node = HandlerContext(name, store, Agreements([agreement]), RealWorld())
    return Handler(node, world.ways[name], probe_every=100 * MILLISECOND)


def of(handler: Handler, message_id: str) -> list[Row]:
    return [row for row in journal(handler) if row.message_id == message_id]


@pytest.mark.long
@pytest.mark.requirement("RTY-4", "RTY-15", "CPA-16")
@pytest.mark.within(100)
async def test_the_next_transport_is_taken_and_the_first_again_when_a_probe_gets_through(
    tmp_path: Path,
) -> None:
    async with both_ways(tmp_path) as (handlers, lines):
        alpha, beta = handlers["alpha"], handlers["beta"]
        lines["alpha"].before = True
        first = await alpha.send(document(1))
        assert await alpha.wait(first.message_id, 30) is OutgoingState.DELIVERED
        rows = of(alpha, first.message_id)
        ways = [row.transport for row in rows if row.kind == Kind.SENT]
        assert ways == ["http"] * 3 + ["smtp"]
        assert "from http to smtp" in explain(rows)
        assert any("retries over http" in rung.text for rung in ladder(rows))

        second = await alpha.send(document(2))
        assert await alpha.wait(second.message_id, 30) is OutgoingState.DELIVERED
        rows = of(alpha, second.message_id)
        assert [row.transport for row in rows if row.kind == Kind.SENT] == ["smtp"]
        assert "because nothing got across over http" in explain(rows)
        assert alpha.engine.context.state.left
        with alpha.engine.context.store.reader() as reader:
            assert any("another way" in each.reason for each in reader.incidents())

        lines["alpha"].before = False
        await until(lambda: not alpha.engine.context.state.left)
        assert lines["alpha"].probes[-1] is OutcomeKind.SENT
        third = await alpha.send(document(3))
        assert await alpha.wait(third.message_id, 30) is OutgoingState.DELIVERED
        rows = of(alpha, third.message_id)
        assert [row.transport for row in rows if row.kind == Kind.SENT] == ["http"]
        with alpha.engine.context.store.reader() as reader:
            assert not reader.incidents()
        assert len(await beta.take(10)) == 3
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.long
@pytest.mark.requirement("DUP-9")
@pytest.mark.within(100)
async def test_a_copy_over_another_transport_is_a_copy(tmp_path: Path) -> None:
    """It arrived over HTTP, nobody knew, and it came again by mail: it is handed over once."""

    async with both_ways(tmp_path) as (handlers, lines):
        alpha, beta = handlers["alpha"], handlers["beta"]
        lines["alpha"].after = True
        # beta cannot acknowledge over HTTP either: that comes by mail.
        lines["beta"].before = True
        sent = await alpha.send(document(1))
        assert await alpha.wait(sent.message_id, 30) is OutgoingState.DELIVERED
        assert len(await beta.take(10)) == 1
        assert not await beta.take(10)
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.long
@pytest.mark.requirement("RTY-16")
@pytest.mark.within(100)
async def test_when_the_last_transport_fails_too_somebody_is_told(tmp_path: Path) -> None:
    async with both_ways(tmp_path) as (handlers, lines):
        alpha = handlers["alpha"]
        lines["alpha"].before = True
        await handlers["beta"].transports["smtp"].stop()
        sent = await alpha.send(document(1))
        assert await alpha.wait(sent.message_id, 30) is OutgoingState.NOT_DELIVERED
        assert [notice.message_id for notice in await LocalHandler(alpha).notices()] == [
            sent.message_id
        ]
        ways = [row.transport for row in of(alpha, sent.message_id) if row.kind == Kind.SENT]
        assert ways == ["http"] * 3 + ["smtp"] * 3


@pytest.mark.long
@pytest.mark.requirement("RTY-15")
@pytest.mark.within(100)
async def test_an_ordered_stream_survives_the_change(tmp_path: Path) -> None:
    """Numbered by pair, the numbers go on over the other transport (C29)."""
    extra = '[sequence]\nordered = true\nscope = "pair"\n'
    extra += '[wire]\nextensions = ["hop_sequence", "routing"]\n'

    async with both_ways(tmp_path, extra) as (handlers, lines):
        alpha, beta = handlers["alpha"], handlers["beta"]
        sent = []
        for number in range(9):
            lines["alpha"].before = 3 <= number < 6
            sent.append(await alpha.send(document(number)))
            if number in (2, 5):
                await alpha.wait(sent[-1].message_id, 30)
        for each in sent:
            assert await alpha.wait(each.message_id, 30) is OutgoingState.DELIVERED
        taken = await beta.take(20)
        assert [given.message_id for given in taken] == [each.message_id for each in sent]
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.long
@pytest.mark.requirement("SEQ-1")
@pytest.mark.within(100)
async def test_two_transports_to_one_receiver_are_numbered_each_by_itself(tmp_path: Path) -> None:
    """v0-078 numbers the triple of sender, receiver and transport."""
    # Of one action's messages each has one transport, and none may change it.
    terms = TERMS.replace('"http", "smtp"', '"http"')
    extra = '[sequence]\nnumbered = true\nscope = "triple"\n'
    extra += '[wire]\nextensions = ["hop_sequence", "routing"]\n'
    for direction in ("send", "receive"):
        for action, way in (("New", "http"), ("Mail", "smtp")):
            extra += f'[[actions]]\ndirection = "{direction}"\nservice = "urn:test:orders"\n'
            extra += f'action = "{action}"\ndelivery.transports = ["{way}"]\n'
    async with both_ways(tmp_path, extra, terms) as (handlers, _):
        alpha, beta = handlers["alpha"], handlers["beta"]
        for number in range(3):
            for action in ("New", "Mail"):
                sent = await alpha.send(replace(document(number), action=action))
                assert await alpha.wait(sent.message_id, 30) is OutgoingState.DELIVERED
        for handler, kind in ((alpha, Kind.NUMBERED), (beta, Kind.RECEIVED)):
            streams: dict[str | None, list[int | None]] = {}
            for row in journal(handler):
                if row.kind == kind:
                    streams.setdefault(row.channel, []).append(row.sequence_number)
            assert sorted(streams.values()) == [[0, 1, 2]] * 2, streams
            assert not check_journal(journal(handler), healed=False).violations


BOTH = """
cpa_id = "{partner}"
profile = "ebms2"
[own]
party_id = "urn:test:alpha"
http = "http://alpha/msh"
smtp = "mailto:alpha@alpha.example"
[partner]
party_id = "urn:test:{partner}"
http = "http://{partner}/msh"
smtp = "mailto:{partner}@{partner}.example"
[delivery]
transports = ["http", "smtp"]
retries = 0
"""


@pytest.mark.requirement("RTY-4", "RTY-15")
def test_a_transport_that_fails_to_one_partner_is_still_taken_to_the_others() -> None:
    def started() -> Engine:
        deals = Agreements([read_toml(BOTH.format(partner=name)) for name in ("beta", "gamma")])
        engine = Engine(HandlerContext("alpha", store, deals, world))
        engine.start()
        take_up(engine.context)
        return engine

    def way_of(partner: str) -> Post:
        payload = Payload.of("order", "text/plain", b"order")
        order = Submission(partner, Service("urn:test:orders"), "New", (payload,))
        engine.submit(order)
        (post,) = (action for action in engine.commit() if isinstance(action, Post))
        return post

    def fail(post: Post) -> None:
        lost = Transmission(post.message_id, post.attempt, sent=False, reason="the line is cut")
        engine.transmission_over(lost)
        world.time += HOUR
        engine.tick()
        engine.commit()

    store, world = MemoryStore("alpha"), TestWorld("alpha")
    engine = started()
    fail(way_of("beta"))
    for _ in range(2):
        assert way_of("beta").transport == "smtp"
        assert way_of("gamma").transport == "http"
        assert [way.peer for way in left_ways(engine.context)] == ["urn:test:beta"]
        engine = started()
    fail(way_of("gamma"))
    (beta, gamma) = left_ways(engine.context)
    take_again(engine.context, beta)
    assert left_ways(engine.context) == [gamma]
    assert way_of("beta").transport == "http"
    assert way_of("gamma").transport == "smtp"


def test_a_late_report_of_an_attempt_names_the_transport_that_it_was_made_on() -> None:
    pair = Network.pair("ebms2", TERMS)
    order = pair.send(0).message_id
    pair.alpha.transmission_over(
        Transmission(order, 1, sent=False, reason="no answer", transport="smtp")
    )
    pair.settle("alpha")
    assert [row.transport for row in pair.rows(Kind.SEND_FAILED)] == ["smtp"]
