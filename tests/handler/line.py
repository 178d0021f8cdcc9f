"""Handlers in a line, buyer to seller, over a network in memory: real shells, no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from oncewire.agreement.agreement import Agreements
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.lab.simulation.options import Options
from oncewire.message.ids import Service
from oncewire.message.payload import Payload
from oncewire.store.memory.store import MemoryStore
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OnDelivery,
    OutcomeKind,
    Reply,
)
from oncewire.transport.http.client import outcome_of
from tests.simulation.given import CPA_ID, agreements_of, names


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

        async def pieces() -> AsyncIterator[bytes]:
            yield body

        async def ask() -> Reply:
            waits = self.net.before(self.own, to)
            if isinstance(waits, asyncio.Event):
                await waits.wait()
            delivery = Delivery(
                "http", cargo.content_type, dict(cargo.headers), pieces(), can_answer=True
            )
            return await self.net.doors[to](delivery)

        try:
            reply = await asyncio.wait_for(ask(), timeout)
        except TimeoutError:
            return AttemptOutcome(OutcomeKind.UNKNOWN, "no response in time")
        self.net.said.append((self.own, to, body, reply))
        return outcome_of(reply)

    async def stop(self) -> None:
        self.net.doors.pop(self.own, None)


class Clerk:
    """An application that is called and answers each order, once its desk is open."""

    batch = 4
    hears = True

    def __init__(self, *, open_desk: bool = True) -> None:
        self.asked: list[str] = []
        self.notices: list[Notice] = []
        self.called, self.desk = asyncio.Event(), asyncio.Event()
        if open_desk:
            self.desk.set()

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission]:
        self.asked.append(taken.message_id)
        self.called.set()
        await self.desk.wait()
        response = Submission(
            CPA_ID,
            taken.header.service,  # type: ignore[arg-type]
            "Accepted",
            (Payload.of("response", "text/plain", f"accepted {taken.message_id}".encode()),),
            conversation_id=taken.header.conversation_id,
            ref_to_message_id=taken.message_id,
        )
        return [response]

    async def notify(self, notice: Notice) -> None:
        self.notices.append(notice)


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
async def line(options: Options, application: Clerk | None = None) -> AsyncIterator[Line]:
    """All handlers of the options' world; the seller's application may be one that is called."""
    net, handlers = Net(), {}
    async with AsyncExitStack() as stack:
        for name in names(options):
            agreements = Agreements(agreements_of(name, options))
            node = HandlerContext(name, MemoryStore(name), agreements, RealWorld())
            called = application if name == "seller" else None
            handler = Handler(node, {"http": Port(net, name)}, application=called)
            handlers[name] = await stack.enter_async_context(handler)
        yield Line(net, handlers)
