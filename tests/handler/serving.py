"""Handlers with real sockets and a real database, in this process."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import Application
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.journal.row import Row
from oncewire.message.ids import Service
from oncewire.message.payload import Payload
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import Transport
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from tests.handler.network import agreement_text
from tests.ports import free_port as free_port

FAST = '[delivery]\ntimeout = "PT0.3S"\nretry_interval = "PT0.3S"\nretries = 40\n'


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
    agreement = read_toml(agreement_text(own, partner, profile, extra, ports))
    store = SqliteStore.open(folder / f"{own}.db", node=own, vfs=vfs)
    node = HandlerContext(own, store, Agreements([agreement]), RealWorld(), keys=keys)
    change(node)
    transport = HttpTransport(
        # A slow machine is no flood: who comes in does not depend on its speed here.
        HttpServerSettings(
            "127.0.0.1", listen or ports[own], "/msh", limits=HttpLimits(late=math.inf)
        ),
        HttpClientSettings(addresses=AddressRule.of(["loopback"])),
    )
    ways = {"http": transport, **(others or {})}
    handler = Handler(node, ways, application=application)
    await handler.start()
    try:
        yield handler
    finally:
        await handler.stop()


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
