"""HTTP out: POST a cargo to an address and say honestly how it ended (ebMS 2.0 Appendix B.2).

The line between REFUSED and UNKNOWN is the first byte: whatever fails before it (no such name,
address not allowed, connection refused, TLS not agreed) certainly did not get across; whatever
fails after it may have. A 503 counts as UNKNOWN too, because proxies answer 503 for a server
that died after it had stored the message; the time to come back travels with the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import aiohappyeyeballs
from yarl import URL

from oncewire.errors import OncewireError, TransportProblem
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Reply
from oncewire.transport.http.address import (
    AddressRule,
    AllowedResolver,
    SocketAddress,
    allowed_socket,
)
from oncewire.transport.http.head import write_headers
from oncewire.transport.http.pool import Answer, ClientConnection, Pool
from oncewire.transport.http.tls import PeerTls, client_context, pins

# What an HTTP attempt says of itself: from an answer, or from what went wrong instead of one.


_REASON_LENGTH = 300
# A peer's Retry-After is kept to at most a day.
_LONGEST_RETRY_AFTER = 86_400

# Alerts by which a TLS 1.3 server ends a handshake that we believed finished: it had not taken
# our certificate, so it has not read the request either.
_HANDSHAKE_ALERTS = (
    "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
    "HANDSHAKE_FAILURE",
)  # fmt: skip


def judge(answer: Answer) -> AttemptOutcome:
    """What a whole answer says of the attempt."""
    headers = answer.head.headers
    reply = Reply(
        status=answer.head.status,
        content_type=headers.get("Content-Type", ""),
        headers=headers.pairs,
        body=answer.body,
        retry_after=retry_after(headers),
    )
    return outcome_of(reply, answer.head.phrase)


def outcome_of(reply: Reply, phrase: str = "") -> AttemptOutcome:
    """What an HTTP answer says of the attempt (ebMS 2.0 Appendix B.2)."""
    status = reply.status
    if 200 <= status < 300:
        return AttemptOutcome(OutcomeKind.SENT, reply=reply)
    reason = f"HTTP {status} {phrase}".strip()[:_REASON_LENGTH]
    # A redirect is not followed: the agreement names the address, not the server that answers.
    refused = 300 <= status < 500
    kind = OutcomeKind.REFUSED if refused else OutcomeKind.UNKNOWN
    return AttemptOutcome(kind, reason, reply, reply.retry_after)


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Seconds to wait, from seconds or from a date (measured against the answer's own Date)."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text[:10]), _LONGEST_RETRY_AFTER)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(int(wait.total_seconds()), 0), _LONGEST_RETRY_AFTER)


def failed(error: Exception, *, sent: bool) -> AttemptOutcome:
    """What a failure says of the attempt; `sent`: a byte of it may have left."""
    reason = _error_text(error)[:_REASON_LENGTH]
    if not sent or _ended_handshake(error):
        return AttemptOutcome(OutcomeKind.REFUSED, reason)
    return AttemptOutcome(OutcomeKind.UNKNOWN, reason)


def unconnected(host: str, port: int | None, error: OSError) -> str:
    """In words, that no connection was made, and why."""
    words = "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)
    words = "connection refused" if isinstance(error, ConnectionRefusedError) else words
    # An end of the connection within the handshake of TLS is raised without a word.
    words = words or "it closed the connection before it was made"
    return f"cannot connect to {host} port {port}: {words}"


def _error_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out: {error}" if str(error) else "timed out"
    return str(error) or type(error).__name__


def _ended_handshake(error: BaseException) -> bool:
    return any(
        isinstance(cause, ssl.SSLError)
        and "ALERT" in (cause.reason or "")
        and any(alert in (cause.reason or "") for alert in _HANDSHAKE_ALERTS)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen = 0
    while current is not None and seen < 10:
        yield current
        current = current.__cause__ or current.__context__
        seen += 1


# How often a connection that was closed before the first byte is made anew.
_STALE_TRIES = 3
# Seconds after which another address of the same name is tried beside the first (RFC 8305).
_NEXT_ADDRESS = 0.25
_TARGETS_MAX = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A checked address, how to speak TLS to it, and the beginning of every request to it."""

    url: URL
    host: str
    port: int
    context: ssl.SSLContext | None
    pinned: frozenset[bytes]
    head: str

    @property
    def place(self) -> tuple[str, int, ssl.SSLContext | None]:
        """Whose connections may be used: same peer, same identity, same trust."""
        return self.host, self.port, self.context


def nobody(_certificate: bytes) -> bool:
    """No certificate is withdrawn."""
    return False


@dataclass(frozen=True, slots=True)
class HttpClientSettings:
    """Settings of outgoing HTTP."""

    addresses: AddressRule = field(default_factory=AddressRule)
    # TLS per address: the whole URL, or its origin (`https://host:port`); else `default_tls`.
    peers: Mapping[str, PeerTls] = field(default_factory=dict)
    default_tls: PeerTls = field(default_factory=PeerTls)
    # Whether a certificate, as DER, was revoked: a server that shows it gets nothing.
    withdrawn: Callable[[bytes], bool] = nobody
    connect_timeout: float = 20.0
    # Shorter than most servers' patience, so that few pooled connections go stale.
    pool_idle: float = 15.0
    connections: int = 256
    connections_per_host: int = 64
    max_reply: int = 16 * 1024 * 1024
    user_agent: str = "Oncewire"


class HttpClient:
    """POSTs cargo; connections are kept and reused per address and TLS identity."""

    def __init__(self, settings: HttpClientSettings | None = None) -> None:
        self.settings = settings or HttpClientSettings()
        self._peers = dict(self.settings.peers)
        self._tls: dict[PeerTls, tuple[ssl.SSLContext, frozenset[bytes]]] = {}
        self._targets: dict[str, Target] = {}
        self._pool: Pool | None = None
        self._under_way: set[ClientConnection] = set()

    def set_peer(self, address: str, tls: PeerTls) -> None:
        """Use these certificates for an address from now on (a new partner, a roll-over)."""
        self._peers[address] = tls
        self._targets.clear()

    def renew(self, settings: HttpClientSettings) -> None:
        """Use other certificates from now on; TransportProblem if one of them cannot be used."""
        made = {
            tls: (client_context(tls), pins(tls))
            for tls in _named(settings.default_tls, settings.peers)
        }
        self.settings, self._peers, self._tls = settings, dict(settings.peers), made
        self._targets.clear()

    async def start(self) -> None:
        """Open the pool; TransportProblem if a certificate of the settings cannot be used."""
        for tls in _named(self.settings.default_tls, self._peers):
            self._context(tls)
        made = self.settings
        self._pool = Pool(made.connections, made.connections_per_host, made.pool_idle)

    async def close(self) -> None:
        """Close every connection; what is under way on one ends with it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        for connection in list(self._under_way):
            connection.abort()

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """POST the cargo; never raises for trouble on the way."""
        pool = self._pool
        if pool is None:
            return AttemptOutcome(OutcomeKind.REFUSED, "the HTTP client is not started")
        attempt = _Attempt(cargo)
        try:
            target = self._target(address)
            # The whole head of a request; ValueError where a header of the cargo would not be one.
            headers = [
                *cargo.headers,
                ("Content-Type", cargo.content_type),
                ("Content-Length", str(cargo.size)),
            ]
            head = write_headers(target.head, headers)
            async with asyncio.timeout(timeout) as limit:
                attempt.patience = limit, timeout
                await pool.enter(target.place)
                try:
                    answer = await self._exchange(pool, target, head, attempt)
                finally:
                    pool.leave(target.place)
        except (TransportProblem, OSError, ValueError) as error:
            return failed(error, sent=attempt.sent)
        return judge(answer)

    async def _exchange(self, pool: Pool, target: Target, head: bytes, attempt: _Attempt) -> Answer:
        """One request, and its answer."""
        whole = attempt.whole
        if whole is not None:
            return await self._carry(pool, target, head, attempt, whole, None)
        async with contextlib.aclosing(attempt.pieces()) as pieces:
            # Before anything else: a cargo that cannot be read is never begun.
            first = await anext(pieces, b"")
            return await self._carry(pool, target, head, attempt, first, pieces)

    async def _carry(
        self,
        pool: Pool,
        target: Target,
        head: bytes,
        attempt: _Attempt,
        first: bytes,
        rest: AsyncIterator[bytes] | None,
    ) -> Answer:
        connection = await self._connection(pool, target)
        self._under_way.add(connection)
        try:
            answer = await attempt.over(connection, head, first, rest)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._under_way.discard(connection)
        if attempt.complete and connection.is_reusable() and self._pool is pool:
            pool.keep(target.place, connection)
        else:
            connection.close()
        return answer

    async def _connection(self, pool: Pool, target: Target) -> ClientConnection:
        """A connection that is known to be open. RTY-5: a stale connection is the transport's own
        trouble, as long as no byte of the request has left."""
        # Whatever the loop has put off is done first: it may be the end of such a connection.
        await asyncio.sleep(0)
        for _ in range(_STALE_TRIES):
            connection = pool.find(target.place) or await self._connect(target)
            if connection.is_open:
                return connection
        raise ConnectionError("every connection was closed by the peer before anything was sent")

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Ask an endpoint for nothing. Whatever it says of that, it is there; what a proxy says
        for one that is not does not count."""
        if self._pool is None:
            return AttemptOutcome(OutcomeKind.REFUSED, "the HTTP client is not started")
        try:
            target = self._target(address)
            asking = target.head.replace("POST", "GET", 1)
            async with asyncio.timeout(timeout):
                connection = await self._connect(target)
                try:
                    answer = await connection.begin(
                        write_headers(asking, [("Connection", "close")])
                    )
                finally:
                    connection.close()
        except (TransportProblem, OSError, ValueError) as error:
            return failed(error, sent=False)
        kind = OutcomeKind.SENT if answer.head.status < 500 else OutcomeKind.REFUSED
        return AttemptOutcome(kind, f"HTTP {answer.head.status}")

    async def _connect(self, target: Target) -> ClientConnection:
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                connection = await self._connected(target)
        except OSError as error:
            raise ConnectionError(unconnected(target.host, target.port, error)) from error
        try:
            shown = connection.certificate
            if target.pinned and shown not in target.pinned:
                raise TransportProblem("the peer's certificate is not the pinned one")
            if shown is not None and self.settings.withdrawn(shown):
                raise TransportProblem("the peer's certificate was revoked")
        except TransportProblem:
            connection.abort()
            raise
        return connection

    async def _connected(self, target: Target) -> ClientConnection:
        loop, rule = asyncio.get_running_loop(), self.settings.addresses
        made = await aiohappyeyeballs.start_connection(
            await _addresses(target, rule),
            happy_eyeballs_delay=_NEXT_ADDRESS,
            interleave=1,
            loop=loop,
            socket_factory=functools.partial(allowed_socket, rule),
        )
        try:
            _, connection = await loop.create_connection(
                lambda: ClientConnection(self.settings.max_reply),
                sock=made,
                ssl=target.context,
                server_hostname=target.host if target.context is not None else None,
            )
        except BaseException:
            made.close()
            raise
        return connection

    def _target(self, address: str) -> Target:
        """An address as it is used; the few that partners have are worked out once."""
        known = self._targets.get(address)
        if known is None:
            url = _checked(address)
            known = self._made(url)
            if len(self._targets) < _TARGETS_MAX:
                self._targets[address] = known
        return known

    def _made(self, url: URL) -> Target:
        context: ssl.SSLContext | None = None
        pinned: frozenset[bytes] = frozenset()
        if url.scheme == "https":
            context, pinned = self._context(self._tls_for(url))
        head = "\r\n".join(
            (
                f"POST {url.raw_path_qs} HTTP/1.1",
                f"Host: {url.host_port_subcomponent}",
                f"User-Agent: {self.settings.user_agent}",
                "Accept: */*",
                # Replies are handed up as they came; a compressed one could be a bomb.
                "Accept-Encoding: identity",
            )
        )
        return Target(url, str(url.raw_host), int(url.port or 0), context, pinned, head)

    def _tls_for(self, url: URL) -> PeerTls:
        for name in (str(url), str(url.origin())):
            if name in self._peers:
                return self._peers[name]
        return self.settings.default_tls

    def _context(self, tls: PeerTls) -> tuple[ssl.SSLContext, frozenset[bytes]]:
        # One context per identity and trust: the pool keeps connections of different ones apart.
        if tls not in self._tls:
            self._tls[tls] = (client_context(tls), pins(tls))
        return self._tls[tls]


def _named(default: PeerTls, peers: Mapping[str, PeerTls]) -> list[PeerTls]:
    """The settings that name certificates, which a start checks. The system's authorities are read
    for the first address that needs them: that takes longer than the rest of a start."""
    return [tls for tls in (default, *peers.values()) if tls != PeerTls()]


class _Attempt:
    """A cargo on its way, which knows whether any byte of the request has left."""

    def __init__(self, cargo: Cargo) -> None:
        self._cargo = cargo
        self.whole = cargo.whole
        self.sent = False
        # Whether the peer has all of it.
        self.complete = False
        # What ends it, and after how long without a step forward.
        self.patience: tuple[asyncio.Timeout, float] | None = None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The cargo's bytes; whatever hinders them is a ConnectionError."""
        chunks = self._cargo.chunks()
        try:
            async for piece in chunks:
                if piece:
                    yield piece
        except (OSError, ValueError, OncewireError) as error:
            raise ConnectionError(f"the cargo cannot be read: {error}") from error
        finally:
            if isinstance(chunks, AsyncGenerator):
                # Whatever file it has open is closed now, and not some day.
                await chunks.aclose()

    async def over(
        self,
        connection: ClientConnection,
        head: bytes,
        first: bytes,
        rest: AsyncIterator[bytes] | None,
    ) -> Answer:
        """Send the whole request and return the answer; an early answer ends the sending. Without
        `rest` the first piece is all."""
        if self._cargo.may_leave is not None and not self._cargo.may_leave():
            raise ConnectionError("it may not leave any more")
        self.sent = True
        left = self._cargo.size - len(first)
        self._check(left >= 0)
        answer = connection.begin(head + first)
        try:
            if rest is not None:
                left = await self._go_on_with(connection, rest, left, answer)
            self.complete = left == 0
            # The peer must not take a short body for a whole one.
            self._check(self.complete or answer.done())
            return await answer
        finally:
            answer.cancel()

    async def _go_on_with(
        self,
        connection: ClientConnection,
        rest: AsyncIterator[bytes],
        left: int,
        answer: asyncio.Future[Answer],
    ) -> int:
        """Send the rest of the cargo; returns how many bytes of it were not sent."""
        async for piece in rest:
            if answer.done():
                break
            left -= len(piece)
            self._check(left >= 0)
            await connection.go_on(piece)
            # Extend the time limit after a piece that the peer took.
            if self.patience is not None:
                limit, seconds = self.patience
                limit.reschedule(asyncio.get_running_loop().time() + seconds)
        return left

    def _check(self, good: bool) -> None:
        if not good:
            raise ConnectionError(f"the cargo is not {self._cargo.size} bytes long as it said")


async def _addresses(target: Target, rule: AddressRule) -> list[SocketAddress]:
    """Addresses of the target; a numeric one needs no look-up, and is checked on connecting."""
    try:
        number = ipaddress.ip_address(target.host)
    except ValueError:
        found = await AllowedResolver(rule).resolve(target.host, target.port)
        places = [(one["family"], one["host"], one["proto"]) for one in found]
    else:
        family = socket.AF_INET if number.version == 4 else socket.AF_INET6
        places = [(family, target.host, socket.IPPROTO_TCP)]
    return [
        (
            family,
            socket.SOCK_STREAM,
            proto,
            "",
            (host, target.port) if family == socket.AF_INET else (host, target.port, 0, 0),
        )
        for family, host, proto in places
    ]


def _checked(address: str) -> URL:
    """The address as a URL we are willing to try."""
    try:
        url = URL(address)
        host = url.host
    except ValueError as error:
        raise TransportProblem(f"the address is no URL: {error}") from error
    if url.scheme not in {"http", "https"} or not host:
        raise TransportProblem("the address is no http or https URL with a host")
    if url.user is not None or url.password is not None:
        raise TransportProblem(
            "the address carries a user name or password",
            remedy="authenticate with a client certificate",
        )
    return url
