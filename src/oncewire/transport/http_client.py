"""HTTP out: POST a cargo to an address and say honestly how it ended (ebMS 2.0 Appendix B.2).

The line between REFUSED and UNKNOWN is the first byte: whatever fails before it (no such name,
address not allowed, connection refused, TLS not agreed) certainly did not get across; whatever
fails after it may have. A 503 counts as UNKNOWN too, because proxies answer 503 for a server
that died after it had stored the message; the time to come back travels with the outcome.
"""

from __future__ import annotations

import asyncio
import functools
import select
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeAlias

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from oncewire.errors import TransportProblem
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Reply
from oncewire.transport.http_address import AddressRule, AllowedResolver, allowed_socket
from oncewire.transport.http_tls import PeerTls, client_context, pins

# How often a pooled connection that turned out to be closed is replaced before we give up.
_STALE_TRIES = 3
_REASON_LENGTH = 300
_TARGETS_MAX = 10_000
# Nobody waits longer than a day because a peer said so.
_LONGEST_RETRY_AFTER = 86_400

# Alerts by which a TLS 1.3 server ends a handshake that we believed finished: it had not taken
# our certificate, so it has not read the request either.
_HANDSHAKE_ALERTS = (
    "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
    "HANDSHAKE_FAILURE",
)  # fmt: skip


Target: TypeAlias = tuple[URL, ssl.SSLContext, frozenset[bytes]]
"""A checked URL, the TLS context for it, and the certificates pinned there."""


def nobody(_certificate: bytes) -> bool:
    """No certificate is withdrawn."""
    return False


@dataclass(frozen=True, slots=True)
class HttpClientSettings:
    """How we go out."""

    addresses: AddressRule = field(default_factory=AddressRule)
    # TLS per address: the whole URL, or its origin (`https://host:port`); else `default_tls`.
    peers: Mapping[str, PeerTls] = field(default_factory=dict)
    default_tls: PeerTls = field(default_factory=PeerTls)
    # Whether a certificate, as DER, was revoked: whoever shows it gets nothing, at any address.
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
        self._session: aiohttp.ClientSession | None = None
        # Connections that have carried a request: only those can be stale.
        self._used: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    def set_peer(self, address: str, tls: PeerTls) -> None:
        """Use these certificates for an address from now on (a new partner, a roll-over)."""
        self._peers[address] = tls
        self._targets.clear()

    def renew(self, settings: HttpClientSettings) -> None:
        """Use other certificates from now on; TransportProblem if one of them cannot be used."""
        made = {tls: (client_context(tls), pins(tls)) for tls in settings.peers.values()}
        made[settings.default_tls] = (
            client_context(settings.default_tls),
            pins(settings.default_tls),
        )
        self.settings, self._peers, self._tls = settings, dict(settings.peers), made
        self._targets.clear()

    async def start(self) -> None:
        """Open the pool; TransportProblem if a certificate of the settings cannot be used."""
        for tls in (self.settings.default_tls, *self._peers.values()):
            self._context(tls)
        rule = self.settings.addresses
        connector = aiohttp.TCPConnector(
            limit=self.settings.connections,
            limit_per_host=self.settings.connections_per_host,
            keepalive_timeout=self.settings.pool_idle,
            resolver=AllowedResolver(rule),
            socket_factory=functools.partial(allowed_socket, rule),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Replies are handed up as they came; a compressed one could be a bomb.
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": self.settings.user_agent, "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close every connection of the pool."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """POST the cargo; never raises for trouble on the way."""
        if self._session is None:
            return AttemptOutcome(OutcomeKind.REFUSED, "the HTTP client is not started")
        try:
            url, context, pinned = self._target(address)
        except TransportProblem as error:
            return AttemptOutcome(OutcomeKind.REFUSED, str(error)[:_REASON_LENGTH])
        outcome = AttemptOutcome(
            OutcomeKind.REFUSED, "every pooled connection was closed by the peer"
        )
        for _ in range(_STALE_TRIES):
            body = _Body(cargo, pinned, self._used, self.settings.withdrawn)
            outcome = await self._post(self._session, url, cargo, body, context, timeout)
            # RTY-5: a stale connection is the transport's own trouble, as long as nothing left.
            if not body.stale:
                break
        return outcome

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Ask an endpoint for nothing. Whatever it says of that, it is there; what a proxy says
        for one that is not does not count."""
        if self._session is None:
            return AttemptOutcome(OutcomeKind.REFUSED, "the HTTP client is not started")
        limits = aiohttp.ClientTimeout(total=timeout)
        try:
            url, context, _ = self._target(address)
            async with self._session.head(
                url, allow_redirects=False, ssl=context, timeout=limits
            ) as response:
                open_ = response.status < 500
                reason = f"HTTP {response.status}"
        except (TransportProblem, aiohttp.ClientError, OSError, ValueError) as error:
            open_, reason = False, _error_text(error)
        kind = OutcomeKind.SENT if open_ else OutcomeKind.REFUSED
        return AttemptOutcome(kind, reason[:_REASON_LENGTH])

    async def _post(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        cargo: Cargo,
        body: _Body,
        context: ssl.SSLContext,
        timeout: float,
    ) -> AttemptOutcome:
        limits = aiohttp.ClientTimeout(
            total=timeout, sock_connect=min(timeout, self.settings.connect_timeout)
        )
        headers = [*cargo.headers, ("Content-Type", cargo.content_type)]
        try:
            async with session.post(
                url, data=body, headers=headers, allow_redirects=False, ssl=context, timeout=limits
            ) as response:
                return await self._judge(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return _failed(error, body)

    async def _judge(self, response: aiohttp.ClientResponse) -> AttemptOutcome:
        content = bytearray()
        async for piece in response.content.iter_any():
            content += piece
            if len(content) > self.settings.max_reply:
                # Its start is not its meaning: better an honest "unknown" than half a reply.
                response.close()
                return AttemptOutcome(
                    OutcomeKind.UNKNOWN,
                    f"HTTP {response.status} with a reply of more than "
                    f"{self.settings.max_reply} bytes",
                )
        reply = Reply(
            status=response.status,
            content_type=response.headers.get("Content-Type", ""),
            headers=tuple((name, value) for name, value in response.headers.items()),
            body=bytes(content),
            retry_after=retry_after(response.headers),
        )
        return outcome_of(reply, response.reason or "")

    def _target(self, address: str) -> Target:
        """An address as it is used; the few that partners have are worked out once."""
        known = self._targets.get(address)
        if known is None:
            url = _checked(address)
            known = (url, *self._context(self._tls_for(url)))
            if len(self._targets) < _TARGETS_MAX:
                self._targets[address] = known
        return known

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


class _NotSent(Exception):
    """Raised while a cargo is written: this connection must not be used any further."""


class _Body(aiohttp.Payload):
    """A cargo on its way, which knows whether any byte of the request has left.

    aiohttp holds the request's header back until the body's first piece, so that the moment
    before that piece is the moment before the first byte. All last checks stand there.
    """

    def __init__(
        self,
        cargo: Cargo,
        pinned: frozenset[bytes],
        used: weakref.WeakSet[asyncio.BaseTransport],
        withdrawn: Callable[[bytes], bool],
    ) -> None:
        super().__init__(cargo, content_type=cargo.content_type)
        self._size = cargo.size
        self._cargo = cargo
        self._pinned = pinned
        self._used = used
        self._withdrawn = withdrawn
        self.sent = False
        self.stale = False
        self.trouble = ""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Never asked for: a cargo is bytes."""
        raise NotImplementedError

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the whole cargo."""
        await self.write_with_length(writer, None)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Send the whole cargo; a cargo that is not as long as it said is cut off."""
        left = self._cargo.size if content_length is None else content_length
        async for piece in self._cargo.chunks():
            if not piece:
                continue
            if not self.sent:
                self._before_first_byte(writer)
            left -= len(piece)
            if left < 0:
                break
            await writer.write(piece)
        if not self.sent:
            self._before_first_byte(writer)
        if left:
            # The peer must not take a short body for a whole one: fail, which cuts the connection.
            self.trouble = f"the cargo is not {self._cargo.size} bytes long as it said"
            raise _NotSent(self.trouble)

    def _before_first_byte(self, writer: AbstractStreamWriter) -> None:
        transport = getattr(writer, "transport", None)
        if transport is None or transport.is_closing():
            self.stale = True
            raise _NotSent("the connection was closed before anything was sent")
        if transport in self._used:
            if _has_news(transport):
                self.stale = True
                raise _NotSent("the pooled connection was closed by the peer")
        else:
            self._used.add(transport)
            self._check_certificate(transport)
        self.sent = True

    def _check_certificate(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        if self._pinned and shown not in self._pinned:
            self.trouble = "the peer's certificate is not the pinned one"
        elif shown is not None and self._withdrawn(shown):
            self.trouble = "the peer's certificate was revoked"
        if self.trouble:
            raise _NotSent(self.trouble)


def _has_news(transport: asyncio.BaseTransport) -> bool:
    """Whether an idle connection has something to read: on HTTP that can only be its end."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


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


def outcome_of(reply: Reply, phrase: str = "") -> AttemptOutcome:
    """What an HTTP answer says of the attempt (ebMS 2.0 Appendix B.2)."""
    status = reply.status
    if 200 <= status < 300:
        return AttemptOutcome(OutcomeKind.SENT, reply=reply)
    reason = f"HTTP {status} {phrase}".strip()[:_REASON_LENGTH]
    # A redirect is not followed: the agreement names the address, not whoever answers there.
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


def _failed(error: Exception, body: _Body) -> AttemptOutcome:
    reason = body.trouble or _error_text(error)
    if not body.sent or _ended_handshake(error):
        return AttemptOutcome(OutcomeKind.REFUSED, reason[:_REASON_LENGTH])
    return AttemptOutcome(OutcomeKind.UNKNOWN, reason[:_REASON_LENGTH])


def _error_text(error: Exception) -> str:
    text = str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        # The library's own text names objects of ours; the cause is what a reader can act on.
        cause = error.os_error
        return f"cannot connect to {error.host} port {error.port}: {cause.strerror or cause}"
    if isinstance(error, TimeoutError):
        return f"timed out: {text}" if text else "timed out"
    return text or type(error).__name__


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
        nested = getattr(current, "os_error", None)
        if isinstance(nested, BaseException):
            yield nested
        current = current.__cause__ or current.__context__
        seen += 1
