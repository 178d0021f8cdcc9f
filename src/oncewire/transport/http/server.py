"""HTTP in: one endpoint that takes POSTs, streams the body in and answers as the handler says.

Everything that can be refused without reading the body is refused first: path, method, coding,
announced length. The body is handed on piece by piece under a deadline; when it breaks (too long,
too slow, cut off) the endpoint answers for it, whatever the handler made of the fragment.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from typing import cast

from oncewire.errors import TransportProblem
from oncewire.transport.budget import BudgetLimits, Budgets, OverBudget, TurnedAway, Unserved, Visit
from oncewire.transport.contract import Delivery, OnDelivery, Peer, Reply
from oncewire.transport.http.head import (
    HELD_MAX,
    BadBody,
    BadHead,
    Cutter,
    HeadLimits,
    RequestHead,
    Stream,
    cutter_of,
    date_now,
    find_end,
    read_request,
    write_headers,
)
from oncewire.transport.http.tls import ServerTls, server_context
from oncewire.transport.listener import Listener, ListenerLimits, Lost, Patience

# One connection to our endpoint: requests one after the other, each answered before the next.
#
# What a peer sends ahead waits in the connection, and beyond a bound in the peer. An answer to a
# request that was not heard to its end closes the connection, but not at once: what is still on its
# way is let in and dropped for a moment, or the peer would lose our answer with its connection.


LINGER_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Request:
    """One request, whose body may still be on its way."""

    connection: ServerConnection
    head: RequestHead
    body: Stream
    peer: Peer
    # Done when the connection is lost before the answer.
    gone: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Response:
    """Bytes to write, and whether the connection ends with them."""

    data: bytes
    close: bool = False


Answer = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[BadHead], bytes]


class ServerConnection(asyncio.Protocol):
    """The asyncio protocol of one connection; see the module."""

    def __init__(
        self,
        answer: Answer,
        refuse: Refuse,
        lost: Callable[[ServerConnection], object],
        limits: HeadLimits,
    ) -> None:
        self._answer, self._refuse, self._lost, self._limits = answer, refuse, lost, limits
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._request: Request | None = None
        self._cutter: Cutter | None = None
        self._task: asyncio.Task[None] | None = None
        self._peer: Peer | None = None
        self._reading = True
        self._writable = True
        # Whatever still comes is dropped.
        self._leaving = False
        self._linger: asyncio.TimerHandle | None = None

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._leaving:
            return
        self._buffer += data
        self._go_on()

    def connection_lost(self, _exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._linger is not None:
            self._linger.cancel()
        if self._request is not None:
            self._request.body.end("the body was cut off")
            self._request.gone.set_result(None)
        self._leaving = True
        self._transport = self._linger = self._request = self._cutter = self._task = None
        self._buffer = bytearray()
        self._lost(self)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = True
        if not self._leaving:
            self._go_on()

    def shut(self) -> None:
        """End the connection now, and the task that answers its request."""
        task, transport = self._task, self._transport
        if task is not None:
            task.cancel()
        if transport is not None:
            transport.abort()

    def write(self, data: bytes) -> None:
        """Write bytes to the peer: an answer, or `100 Continue` before it."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # --- requests ---

    def _go_on(self) -> None:
        """Process the bytes that have arrived, as far as possible."""
        try:
            if self._request is None:
                self._begin()
            if self._cutter is not None and self._request is not None:
                self._cut(self._request, self._cutter)
        except BadHead as problem:
            self.write(self._refuse(problem))
            self._leave(heard=False)
            return
        self._set_reading()

    def _begin(self) -> None:
        """Begin with the next request, if its head is there and the last answer has left."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self._writable or not self._buffer:
            return
        end = find_end(self._buffer, self._limits)
        if end < 0:
            return
        head = read_request(bytes(memoryview(self._buffer)[:end]), self._limits)
        del self._buffer[: end + 4]
        self._cutter = cutter_of(head.framing)
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        # The certificate of a connection does not change.
        if self._peer is None:
            where = transport.get_extra_info("peername")
            tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
            certificate = tls.getpeercert(binary_form=True) if tls is not None else None
            self._peer = Peer(str(where[0]) if where else "", certificate)
        request = Request(self, head, Stream(self._set_reading), self._peer, gone)
        if self._cutter.over:
            request.body.end()
        self._request = request
        self._task = loop.create_task(self._serve(request))

    def _cut(self, request: Request, cutter: Cutter) -> None:
        if request.body.over:
            return
        try:
            request.body.put(cutter.cut(self._buffer))
        except BadBody as problem:
            request.body.end(str(problem))
            return
        if cutter.over:
            request.body.end()

    def _set_reading(self) -> None:
        """Pause or resume reading, by how full the body's stream is."""
        transport, request = self._transport, self._request
        if transport is None or transport.is_closing():
            return
        full = len(self._buffer) > HELD_MAX or (request is not None and request.body.full)
        if full and self._reading:
            self._reading = False
            transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            transport.resume_reading()

    async def _serve(self, request: Request) -> None:
        try:
            response = await self._answer(request)
        except Exception:
            # Close the connection: the peer would wait for an answer that never comes.
            log.exception("a request could not be answered")
            self.shut()
            return
        if self._transport is None or self._request is not request:
            return
        self.write(response.data)
        heard = self._cutter is not None and self._cutter.over
        self._request = self._cutter = self._task = None
        if response.close or not request.head.keeps_alive or not heard:
            self._leave(heard=heard)
            return
        self._go_on()

    def _leave(self, *, heard: bool) -> None:
        """Close when everything is written; `heard`: the peer sends nothing more."""
        transport = self._transport
        self._leaving = True
        self._buffer = bytearray()
        if transport is None or transport.is_closing():
            return
        if heard:
            transport.close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)


log = logging.getLogger("oncewire.transport.http.transport")

_SERVER = "Oncewire"
# A stopping endpoint is usually back soon.
_STOPPING_RETRY_AFTER = 5
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class HttpLimits(ListenerLimits):
    """What a peer may take of the endpoint before a byte is parsed."""

    # More headers or longer ones have no use in this protocol and cost memory per connection.
    max_line: int = 8190
    max_field: int = 8190
    max_headers: int = 64
    # Above any agreed document; agreements set smaller limits once the header is read.
    max_body: int = 16 * 1024**3
    # Requests that are worked on when the endpoint stops may take so long to finish.
    stop_grace: float = 10.0


@dataclass(frozen=True, slots=True)
class HttpServerSettings:
    """Where we listen."""

    host: str = "127.0.0.1"
    # 0 lets the system choose; `HttpServer.url` tells which.
    port: int = 0
    path: str = "/msh"
    tls: ServerTls | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    # Other paths by which partners know the same endpoint.
    also: frozenset[str] = frozenset()


class BrokenBody(TransportProblem):
    """A body that did not arrive whole; the endpoint answers its sender with `status`."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem, remedy="send the whole message again")
        self.status = status


class HttpServer:
    """One endpoint path on one address."""

    def __init__(self, settings: HttpServerSettings | None = None) -> None:
        self.settings = settings or HttpServerSettings()
        self._also = self.settings.also
        self._budgets = Budgets(self.settings.budget)
        self.turned_away = TurnedAway(monotonic)
        self._listener: Listener | None = None
        # Whose certificates are believed now.
        self._tls = self.settings.tls
        self._on_delivery: OnDelivery | None = None
        self._stopping = False
        self._working = 0
        self._all_done = asyncio.Event()

    @property
    def url(self) -> str:
        """The endpoint's address as a partner on this machine would write it."""
        if self._listener is None or not self._listener.addresses:
            raise TransportProblem(
                "the endpoint does not listen", remedy="start the transport first"
            )
        host, port = self._listener.addresses[0]
        scheme = "https" if self.settings.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{self.settings.path}"

    @property
    def connections(self) -> int:
        """How many connections are open or being opened."""
        return self._listener.connections if self._listener else 0

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to listen; TransportProblem if address or certificate cannot be used."""
        tls: ssl.SSLContext | None = None
        if self._tls is not None:
            tls = server_context(self._tls)
        self._on_delivery = on_delivery
        self._stopping = False
        listener = Listener(
            self.settings.host,
            self.settings.port,
            tls=tls,
            limits=self.settings.limits,
            full=_FULL,
            is_known=self._budgets.is_known,
            turned_away=self.turned_away,
        )
        await listener.start(self._connection)
        self._listener = listener

    def _connection(self, lost: Lost) -> ServerConnection:
        limits = self.settings.limits
        head = HeadLimits(limits.max_line, limits.max_field, limits.max_headers)
        return ServerConnection(self._answer, _refused, lost, head)

    def renew(self, settings: HttpServerSettings) -> None:
        """Use another certificate, other trusted certificates and other paths from the next
        connection on. Where a certificate is no longer trusted, every connection is closed that
        may have been made with it."""
        self._also, tls = settings.also, settings.tls
        if self._listener is None or self._tls is None or tls is None:
            return
        context = server_context(tls)
        gone = set(self._tls.trusted) - set(tls.trusted)
        self._tls = tls
        self._listener.renew(context, afresh=bool(gone))

    async def stop(self) -> None:
        """Answer newcomers with 503 while requests in work finish, then close everything."""
        if self._listener is None:
            return
        self._stopping = True
        if self._working:
            self._all_done.clear()
            try:
                async with asyncio.timeout(self.settings.limits.stop_grace):
                    await self._all_done.wait()
            except TimeoutError:
                log.warning("stopped with %d requests still in work", self._working)
        await self._listener.stop()
        self._listener = None

    async def _answer(self, request: Request) -> Response:
        if self._listener is None:
            return _response(request, Reply(503, retry_after=_STOPPING_RETRY_AFTER), close=True)
        loop = asyncio.get_running_loop()
        guest = self._listener.guest(request.connection)
        if guest is None:
            # Its connection was closed before its task began: the answer goes nowhere.
            return _response(request, Reply(503), close=True)
        guest.requests += 1
        guest.busy = True
        self._working += 1
        try:
            response = await self._serve(request)
            return Response(response.data, close=True) if guest.leaving else response
        finally:
            guest.busy = False
            guest.since = loop.time()
            self._working -= 1
            if not self._working:
                self._all_done.set()

    async def _serve(self, request: Request) -> Response:
        """Answer within the budgets of the peer."""
        peer = request.peer
        try:
            visit = await self._budgets.enter(peer)
        except OverBudget as over:
            return self._over(request, over)
        try:
            refusal = self._refusal(request)
            if refusal is not None:
                self._budgets.refused(peer)
                return _response(request, refusal, close=True)
            return await self._serve_within(request, peer, visit)
        except OverBudget as over:
            return self._over(request, over)
        finally:
            visit.leave()

    def _over(self, request: Request, over: OverBudget) -> Response:
        peer = request.peer
        known = self._budgets.is_known(peer)
        self.turned_away.count(peer, over.problem, known=known, status=over.status)
        words = over.problem.encode()
        reply = Reply(over.status, "text/plain", body=words, retry_after=over.retry_after)
        return _response(request, reply, close=True)

    async def _serve_within(self, request: Request, peer: Peer, visit: Visit) -> Response:
        if request.head.expects == "100-continue":
            request.connection.write(_CONTINUE)
        body = _Body(request, self.settings.limits)
        try:
            reply = await self._hand_in(request, body, peer, visit)
            if body.broken is None:
                self._budgets.note(peer, reply, visit)
                # Whose body was not heard to its end cannot be heard again on this connection.
                return _response(request, reply, close=not body.over)
        except OverBudget:
            self._budgets.refused(peer)
            raise
        except Exception:
            # Whatever it is, the peer gets a bare 500 and our log the rest; a broken body that
            # the handler let pass through is no fault of ours.
            if body.broken is None:
                log.exception("the handler failed while it took a delivery")
                return _response(request, Reply(500), close=True)
        self._budgets.refused(peer, visit.spent)
        if body.broken[0] == 408:
            self.turned_away.counts[Unserved.SLOW] += 1
        return _response(request, _plain(*body.broken), close=True)

    async def _hand_in(self, request: Request, body: _Body, peer: Peer, visit: Visit) -> Reply:
        if self._on_delivery is None:
            return Reply(503, retry_after=_STOPPING_RETRY_AFTER)
        delivery = Delivery(
            transport="http",
            content_type=request.head.headers.get("Content-Type", ""),
            headers=request.head.headers,
            body=body,
            length=request.head.framing.length,
            peer=peer,
            can_answer=True,
            allowance=visit,
            gone=request.gone,
        )
        return await self._on_delivery(delivery)

    def _refusal(self, request: Request) -> Reply | None:
        """The refusal that needs no body, if there is one: path, method, coding, length."""
        head = request.head
        if head.path != self.settings.path and head.path not in self._also:
            return _plain(404, "no such endpoint")
        if head.method != "POST":
            return _plain(405, "this endpoint takes POST only", ("Allow", "POST"))
        if self._stopping:
            return Reply(503, retry_after=_STOPPING_RETRY_AFTER)
        if head.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _plain(415, "send the body without Content-Encoding")
        if head.expects not in ("", "100-continue"):
            return _plain(417, "only 100-continue can be expected")
        if (head.framing.length or 0) > self.settings.limits.max_body:
            return _plain(413, f"a body may have {self.settings.limits.max_body} bytes")
        return None


class _Body:
    """The request's body as it arrives, under the length cap and the deadlines."""

    def __init__(self, request: Request, limits: HttpLimits) -> None:
        self._content = request.body
        self._limits = limits
        self._taken = 0
        self._patience = Patience(limits)
        self.over = False
        # Status and words, and not the error itself: that would refer to its frames and they to
        # this body, a cycle that keeps the body in memory until the garbage collector runs.
        self.broken: tuple[int, str] | None = None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        if self.broken is None:
            piece = await self._next()
            if piece:
                return piece
        if self.broken is not None:
            raise BrokenBody(*self.broken)
        self.over = True
        raise StopAsyncIteration

    async def _next(self) -> bytes:
        """The next piece; nothing at the end, and where the body breaks."""
        content = self._content
        try:
            # Most messages are here already when they are asked for: no timer for those.
            piece = content.take()
            if not piece and not content.over:
                async with self._patience.waiting():
                    await content.wait()
                piece = content.take()
        except TimeoutError:
            self.broken = 408, "the body came too slowly"
            return b""
        if not piece and content.broken:
            self.broken = 400, content.broken
            return b""
        self._taken += len(piece)
        self._patience.came(len(piece))
        if self._taken > self._limits.max_body:
            self.broken = 413, f"a body may have {self._limits.max_body} bytes"
            return b""
        return piece


def _plain(status: int, words: str, *headers: tuple[str, str]) -> Reply:
    return Reply(status, "text/plain", headers, words.encode())


def _refused(problem: BadHead) -> bytes:
    """The answer to bytes that are no HTTP request."""
    return _written(_plain(problem.status, str(problem)), close=True)


def _response(request: Request, reply: Reply, *, close: bool = False) -> Response:
    close = close or not request.head.keeps_alive
    return Response(_written(reply, close=close, bare=request.head.method == "HEAD"), close)


def _written(reply: Reply, *, close: bool, bare: bool = False) -> bytes:
    """A reply as bytes; ValueError where one of its headers would not be one."""
    headers = [*reply.headers, ("Server", _SERVER), ("Date", date_now())]
    if reply.content_type:
        headers.append(("Content-Type", reply.content_type))
    if reply.retry_after is not None:
        headers.append(("Retry-After", str(reply.retry_after)))
    if reply.status not in (204, 304):
        headers.append(("Content-Length", str(len(reply.body))))
    if close:
        headers.append(("Connection", "close"))
    head = write_headers(f"HTTP/1.1 {reply.status} {_phrase(reply.status)}", headers)
    return head if bare or reply.status in (204, 304) else head + reply.body


@lru_cache(maxsize=64)
def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
