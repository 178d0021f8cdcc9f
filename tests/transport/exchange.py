"""What the transport tests share: cargo, a recording receiver, raw sockets, certificates."""

import asyncio
import contextlib
import datetime
import hashlib
import itertools
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trustme

from oncewire.errors import OncewireError
from oncewire.transport.budget import BudgetLimits
from oncewire.transport.contract import AttemptOutcome, Cargo, Delivery, Peer, Reply
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClient, HttpClientSettings
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.tls import ClientCertificates, Identity, PeerTls, ServerTls
from oncewire.transport.http.transport import HttpTransport

LOOPBACK = AddressRule.of(["loopback"])
SETTINGS = HttpClientSettings(addresses=LOOPBACK, max_reply=100_000)


def leap(seconds: float) -> None:
    """The event loop's clock goes on by so much at once: whoever waits for that long has waited."""
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = lambda: real() + seconds  # type: ignore[method-assign]


class TransactionManager:
    """The longest that anything kept the loop, in seconds of a processor."""

    longest = 0.0

    async def watch(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - began)
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def turns() -> AsyncIterator[TransactionManager]:
    watched = TransactionManager()
    task = asyncio.ensure_future(watched.watch())
    try:
        yield watched
    finally:
        task.cancel()


def cargo(*pieces: bytes, content_type: str = "text/xml", **headers: str) -> Cargo:
    """A cargo that yields these pieces each time it is asked."""

    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Cargo(content_type, named, sum(map(len, pieces)), chunks)


@dataclass
class Taken:
    """A delivery as the receiver saw it."""

    content_type: str
    headers: dict[str, str]
    body: bytes
    length: int | None
    peer: Peer
    transport: str
    can_answer: bool

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass
class Receiver:
    """An `on_delivery` that keeps what came and answers as told."""

    reply: Reply | Callable[[Taken], Reply | Awaitable[Reply]] = field(
        default_factory=lambda: Reply(204)
    )
    # Deliveries whose first bytes are here.
    begun: int = 0
    taken: list[Taken] = field(default_factory=list)
    broken: list[OncewireError] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> Reply:
        body = bytearray()
        self.begun += 1
        try:
            async for piece in delivery.body:
                body += piece
        except OncewireError as error:
            self.broken.append(error)
            return Reply(500, "text/plain", body=b"should not be seen by the peer")
        taken = Taken(
            delivery.content_type,
            dict(delivery.headers),
            bytes(body),
            delivery.length,
            delivery.peer,
            delivery.transport,
            delivery.can_answer,
        )
        self.taken.append(taken)
        if isinstance(self.reply, Reply):
            return self.reply
        answer = self.reply(taken)
        return answer if isinstance(answer, Reply) else await answer


@contextlib.asynccontextmanager
async def endpoint(
    receiver: Callable[[Delivery], Awaitable[Reply]],
    *,
    limits: HttpLimits | None = None,
    tls: ServerTls | None = None,
    client: HttpClientSettings | None = None,
    budget: BudgetLimits | None = None,
    late: float = math.inf,
) -> AsyncIterator[HttpTransport]:
    """A started HTTP transport on a free loopback port, which may also send to itself.

    However slow the machine is, its loop counts as in time, unless a test says otherwise.
    """
    chosen = replace(limits or HttpLimits(), late=late)
    transport = HttpTransport(
        HttpServerSettings(limits=chosen, tls=tls, budget=budget or BudgetLimits()),
        client or HttpClientSettings(addresses=LOOPBACK),
    )
    await transport.start(receiver)
    try:
        yield transport
    finally:
        await transport.stop()


async def once(
    url: str,
    *,
    sent: Cargo | None = None,
    timeout: float = 30,
    settings: HttpClientSettings = SETTINGS,
) -> AttemptOutcome:
    """What comes of one POST by a client of its own."""
    client = HttpClient(settings)
    await client.start()
    try:
        return await client.send(sent or cargo(b"<a/>"), url, timeout=timeout)
    finally:
        await client.close()


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


async def talk(
    url: str, *pieces: bytes, pause: float = 0.0, close: bool = False, heeding: bool = False
) -> bytes:
    """Write raw bytes to an endpoint and return everything it says until it closes.

    Whoever is heeding writes no more once something was said: an endpoint does not wait long
    for those who talk on, and what it said is lost with the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
    try:
        with contextlib.suppress(ConnectionError):
            first = asyncio.ensure_future(reader.read(1))
            for piece in pieces:
                if heeding and first.done():
                    break
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            if close:
                writer.write_eof()
            return await first + await reader.read()
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def post(body: bytes, *headers: str, path: str = "/msh", length: int | None = None) -> bytes:
    """A request as bytes, announced length and all."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


Peer2 = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(talk: Peer2, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server whose every connection is the test's; yields its port."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def fake_peer(answer: Peer2, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that does exactly what the test says, good HTTP or not; yields its URL."""

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await answer(reader, writer)
        writer.close()

    async with listening(each, context) as port:
        yield f"{'https' if context else 'http'}://127.0.0.1:{port}/msh"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request with a Content-Length, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    return head + await reader.readexactly(length)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, as a crashed peer or a cut line does."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()


class Certificates:
    """A small world of certificates on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.stranger = trustme.CA()
        self._numbers = itertools.count(1)

    def identity(
        self, name: str, *, authority: trustme.CA | None = None, expired: bool = False
    ) -> Identity:
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
        made = (authority or self.authority).issue_cert(name, "127.0.0.1", not_after=past)
        # Counted: what is gone may leave its place in memory, and so its id(), to the next one.
        place = self.folder / f"{name}-{next(self._numbers)}"
        certificate, key = place.with_suffix(".crt"), place.with_suffix(".key")
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        return Identity(certificate, key)

    @property
    def pem(self) -> str:
        return self.authority.cert_pem.bytes().decode()

    def server(
        self,
        *,
        identity: Identity | None = None,
        clients: ClientCertificates = ClientCertificates.IGNORED,
    ) -> ServerTls:
        trusted = () if clients is ClientCertificates.IGNORED else (self.pem,)
        return ServerTls(identity or self.identity("localhost"), clients, trusted)

    def client(self, **more: Any) -> HttpClientSettings:
        tls = PeerTls(**{"trusted": (self.pem,), **more})
        return HttpClientSettings(addresses=LOOPBACK, default_tls=tls)


def der(identity: Identity) -> bytes:
    text = identity.certificate.read_text()
    end = "-----END CERTIFICATE-----\n"
    return ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])
