"""Handlers at work on the event loop of a test: over sockets on this machine, or in memory.

`serving` is one handler with a real database that listens on a port, `line` are the handlers from
buyer to seller over a network in memory, and `Wire` is a transport whose other end is the test.
Handlers in processes of their own (`tests.handler.processes`) are made of the same parts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import Application, GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.journal.row import Row
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OnDelivery,
    OutcomeKind,
    Reply,
    Transport,
)
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings, outcome_of
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, agreement_text
from tests.ports import free_port as free_port
from tests.simulation.given import CPA_ID, agreements_of, names

FAST = '[delivery]\ntimeout = "PT0.3S"\nretry_interval = "PT0.3S"\nretries = 40\n'
SYNC = '[sync]\nmode = "mshSignalsOnly"\n'

# A slow machine is no flood: who comes in does not depend on its speed.
PATIENT = HttpLimits(late=math.inf)


def order(number: int, **more: object) -> Submission:
    """A small business document."""
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        (Payload.of(f"order-{number}", "text/plain", f"order {number}".encode()),),
        conversation_id="talk",
        **more,  # type: ignore[arg-type]
    )


def order_parcel(number: int = 1, extra: str = SYNC) -> Parcel:
    """An order of alpha to beta, as it would be on its way now."""
    return Network.pair("ebms2", extra, carrying=False).order(number)


def context_of(
    own: str,
    store: Store | Path,
    extra: str = "",
    *,
    profile: str = "ebms2",
    ports: dict[str, int] | None = None,
    keys: Keys | None = None,
    partner: str = "",
) -> HandlerContext:
    """What alpha or beta has under their agreement, with a store or the path of one."""
    partner = partner or ("beta" if own == "alpha" else "alpha")
    agreement = read_toml(agreement_text(own, partner, profile, extra, ports))
    opened = SqliteStore(store, node=own) if isinstance(store, Path) else store
    return HandlerContext(own, opened, Agreements([agreement]), RealWorld(), keys=keys)


def http_on(port: int, limits: HttpLimits | None = None) -> HttpTransport:
    """HTTP on this machine: a server on that port, and a client."""
    server = HttpServerSettings("127.0.0.1", port, "/msh", limits=limits or HttpLimits())
    return HttpTransport(server, HttpClientSettings(addresses=AddressRule.of(["loopback"])))


@asynccontextmanager
async def serving(
    folder: Path,
    own: str,
    partner: str,
    ports: dict[str, int],
    *,
    profile: str = "ebms2",
    extra: str = FAST,
    listen: int | None = None,
    vfs: str | None = None,
    keys: Keys | None = None,
    change: Callable[[HandlerContext], None] = lambda node: None,
    application: Application | None = None,
    others: Mapping[str, Transport] | None = None,
) -> AsyncIterator[Handler]:
    """One handler that listens on its port, or on `listen` behind a proxy; `others` are what it
    travels by beside HTTP."""
    store = SqliteStore(folder / f"{own}.db", node=own, vfs=vfs)
    node = context_of(own, store, extra, profile=profile, ports=ports, keys=keys, partner=partner)
    change(node)
    ways = {"http": http_on(listen or ports[own], PATIENT), **(others or {})}
    async with Handler(node, ways, application=application) as handler:
        yield handler


async def post(
    port: int, body: bytes, content_type: str, headers: dict[str, str] | None = None
) -> tuple[int, str, bytes]:
    """A raw POST, as anybody may send one."""
    url = f"http://127.0.0.1:{port}/msh"
    said = {"Content-Type": content_type, "SOAPAction": '"ebXML"', **(headers or {})}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=said) as response,
    ):
        return response.status, response.content_type, await response.read()


def journal(handler: Handler) -> list[Row]:
    """Everything a running handler recorded."""
    with handler.engine.context.store.reader() as reader:
        return reader.journal_since(0, 10_000_000)


def stored_bytes(handler: Handler, message_id: str) -> Parcel:
    """A message as the handler that sends it stored it."""
    node = handler.engine.context
    with node.store.reader() as reader:
        stored = reader.outgoing_parcel(message_id)
    assert stored is not None
    return whole_parcel(node, stored)


# --- applications ---


def response_to(taken: GivenMessage, text: str = "accepted") -> Submission:
    """What an application answers to an order."""
    return Submission(
        taken.header.cpa_id,
        taken.header.service,  # type: ignore[arg-type]
        "Accepted",
        (Payload.of("response", "text/plain", f"{text} {taken.message_id}".encode()),),
        conversation_id=taken.header.conversation_id,
        ref_to_message_id=taken.message_id,
    )


class Clerk:
    """An application that is called: answers each order, once its desk is open."""

    hears = True

    def __init__(self, *, answers: bool = True, open_desk: bool = True, batch: int = 4) -> None:
        self.answers, self.batch = answers, batch
        self.asked: list[str] = []
        self.notices: list[Notice] = []
        self.called, self.desk = asyncio.Event(), asyncio.Event()
        if open_desk:
            self.desk.set()

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission]:
        self.asked.append(taken.message_id)
        self.called.set()
        await self.desk.wait()
        return [response_to(taken)] if self.answers else []

    async def notify(self, notice: Notice) -> None:
        self.notices.append(notice)


# --- in memory ---


def delivery_of(parcel: Parcel) -> Delivery:
    """A parcel as a transport hands it in."""

    async def body() -> AsyncIterator[bytes]:
        yield parcel.body

    headers = dict(parcel.headers)
    return Delivery("http", parcel.content_type, headers, body(), can_answer=True)


class Wire:
    """A transport whose other end is the test: what is sent is read whole, and not answered."""

    name, can_answer = "http", True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.gate = asyncio.Event()

    async def start(self, on_delivery: OnDelivery) -> None:
        self.deliver = on_delivery

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        await self.gate.wait()
        self.sent.append(b"".join([chunk async for chunk in cargo.chunks()]))
        return AttemptOutcome(OutcomeKind.SENT)

    async def stop(self) -> None:
        return


@dataclass
class Net:
    """Who listens, which ways are cut, and what was said on every connection."""

    doors: dict[str, OnDelivery] = field(default_factory=dict)
    # (from, to): no connection can be made.
    cut: set[tuple[str, str]] = field(default_factory=set)
    # (from, to, request, reply), in the order in which the replies came.
    said: list[tuple[str, str, bytes, Reply]] = field(default_factory=list)
    # Called with (from, to) before a request is delivered; a test waits or raises there.
    before: Callable[[str, str], object] = lambda sender, receiver: None

    def posts(self, sender: str, receiver: str) -> int:
        return sum((one[0], one[1]) == (sender, receiver) for one in self.said)


@dataclass
class Port:
    """One handler's end of the network."""

    net: Net
    own: str
    name: str = "http"
    can_answer: bool = True

    async def start(self, on_delivery: OnDelivery) -> None:
        self.net.doors[self.own] = on_delivery

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        to = address.split("/")[2]
        body = b"".join([chunk async for chunk in cargo.chunks()])
        if (self.own, to) in self.net.cut or to not in self.net.doors:
            return AttemptOutcome(OutcomeKind.REFUSED, "connection refused")

        async def ask() -> Reply:
            waits = self.net.before(self.own, to)
            if isinstance(waits, asyncio.Event):
                await waits.wait()
            parcel = Parcel(cargo.content_type, body, tuple(cargo.headers))
            return await self.net.doors[to](delivery_of(parcel))

        try:
            reply = await asyncio.wait_for(ask(), timeout)
        except TimeoutError:
            return AttemptOutcome(OutcomeKind.UNKNOWN, "no response in time")
        self.net.said.append((self.own, to, body, reply))
        return outcome_of(reply)

    async def stop(self) -> None:
        self.net.doors.pop(self.own, None)


@dataclass
class Line:
    """The handlers by name, and the network between them."""

    net: Net
    handlers: dict[str, Handler]

    async def order(self, number: int = 0) -> str:
        document = Payload.of(f"order-{number}", "text/plain", f"order {number}".encode())
        accepted = await self.handlers["buyer"].send(
            Submission(
                CPA_ID,
                Service("urn:sim:orders"),
                "PlaceOrder",
                (document,),
                conversation_id="year",
                message_id=f"order-{number}@buyer",
            )
        )
        return accepted.message_id


@asynccontextmanager
async def line(
    options: Options,
    application: Clerk | None = None,
    *,
    without: Sequence[str] = (),
    store: Callable[[str], Store] = MemoryStore,
) -> AsyncIterator[Line]:
    """The handlers of the options' world; the seller's application may be one that is called."""
    net, handlers = Net(), {}
    async with AsyncExitStack() as stack:
        for name in names(options):
            if name in without:
                continue
            agreements = Agreements(agreements_of(name, options))
            node = HandlerContext(name, store(name), agreements, RealWorld())
            called = application if name == "seller" else None
            handler = Handler(node, {"http": Port(net, name)}, application=called)
            handlers[name] = await stack.enter_async_context(handler)
        yield Line(net, handlers)
