"""HTTP in: one endpoint that takes POSTs, streams the body in and answers as the handler says.

Everything that can be refused without reading the body is refused first: path, method, coding,
announced length. The body is handed on piece by piece under a deadline; when it breaks (too long,
too slow, cut off) the endpoint answers for it, whatever the handler made of the fragment.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from time import monotonic

from oncewire.errors import TransportProblem
from oncewire.transport.budget import BudgetLimits, Budgets, OverBudget, TurnedAway, Unserved, Visit
from oncewire.transport.contract import Delivery, OnDelivery, Peer, Reply
from oncewire.transport.http.connection import Request, Response, ServerConnection
from oncewire.transport.http.head import BadHead, HeadLimits, date_now, write_headers
from oncewire.transport.http.tls import ServerTls, server_context
from oncewire.transport.listener import Listener, ListenerLimits, Lost, Patience

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
        if request.head.headers.get("Expect", "").lower() == "100-continue":
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
        if head.headers.get("Expect", "100-continue").lower() != "100-continue":
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
