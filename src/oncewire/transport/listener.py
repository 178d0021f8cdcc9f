"""Listener: who may connect to us, how many at once, and how long a connection may be idle.

HTTP and mail use it alike: their connections speak the protocol, the listener decides about the
connections. It accepts them one by one, so that a TLS handshake in progress counts as well, closes
those that send no request for too long (which also ends a header that drips in byte by byte), and
when all places are taken makes room by closing the connection that has been idle the longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol, cast

from oncewire.errors import TransportProblem
from oncewire.transport.budget import Handshakes, Lag, TurnedAway, Unserved, address_of
from oncewire.transport.contract import Peer

log = logging.getLogger("oncewire.transport.listener")

_PORT_MAX = 65_535

_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
_BACKLOG = 1024
_AT_ONCE = 64
# A connection this young has not had its chance to send a request: it is not thrown out.
_YOUNG_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What a peer may take before a byte is parsed; each figure has its reason."""

    # A body may pause so long, and must on the whole come at this rate after a grace period.
    body_pause: float = 30.0
    body_grace: float = 30.0
    body_rate: int = 4096
    # From the connection (or the end of TLS) to a complete header.
    header_wait: float = 20.0
    # Between requests; the reply must have been read by then as well.
    idle_wait: float = 75.0
    handshake_wait: float = 15.0
    connections: int = 1000
    # From one address that no partner came from lately: more than any client opens.
    per_address: int = 256
    # A loop that is behind by more than that has no time for strangers: a message passes it ten
    # times or so on its way.
    late: float = 0.05


class Patience:
    """How long a sender may still let us wait for the body of his request.

    A steady body of any size is welcome; one that drips holds a place for nothing. What comes earns
    time at the agreed rate, but never more than the grace period: who was quick at first has not
    earned hours of waiting.
    """

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        # Seconds that he may still let us wait.
        self._credit = limits.body_grace

    def came(self, count: int) -> None:
        """Count bytes that arrived: they extend the time."""
        earned = count / self._limits.body_rate
        self._credit = min(self._credit + earned, self._limits.body_grace)

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait for what comes next; TimeoutError where it does not come in time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(max(min(self._limits.body_pause, self._credit), 0.0)):
            yield
        self._credit -= loop.time() - began


class Connection(Protocol):
    """What speaks on a connection: a protocol of asyncio, told whom to call when it is lost."""

    def shut(self) -> None:
        """End the connection now, and the work that is done for it."""


Lost = Callable[[Connection], object]


@dataclass(slots=True, eq=False)
class Guest:
    """One connection: since when it waits, and whether a request of it is being answered."""

    since: float
    peer: Peer = field(default_factory=Peer)
    transport: asyncio.BaseTransport | None = None
    requests: int = 0
    busy: bool = False
    # It ends with the request it is at.
    leaving: bool = False

    @property
    def place(self) -> str:
        """The address under which it is counted."""
        return address_of(self.peer)

    def drop(self) -> None:
        """Cut the connection; a graceful close would wait for a peer that does not read."""
        if self.transport is not None:
            # Other loops have transports of their own kind.
            cast(asyncio.WriteTransport, self.transport).abort()


class Listener:
    """Listening sockets and the connections that came through them."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        limits: ListenerLimits,
        full: bytes,
        is_known: Callable[[Peer], bool] = lambda _: False,
        turned_away: TurnedAway | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._limits = limits
        # Said to whom there is no room for, where it can be said without TLS.
        self._full = full
        self._is_known = is_known
        self._turned_away = turned_away or TurnedAway(monotonic)
        self._make: Callable[[Lost], Connection] | None = None
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._guests: dict[Connection, Guest] = {}
        # How many of them come from each place.
        self._from: Counter[str] = Counter()
        self._lag = Lag(limits.late)
        self._handshakes = Handshakes(monotonic)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where it listens, with the port the system chose when 0 was asked for."""
        return tuple(made.getsockname()[:2] for made in self._sockets)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._guests)

    def guest(self, connection: Connection) -> Guest | None:
        """The listener's record of a connection; None when the connection is gone."""
        return self._guests.get(connection)

    async def start(self, make: Callable[[Lost], Connection]) -> None:
        """Begin to accept, and make a connection of each; TransportProblem if the address cannot
        be had."""
        self._make = make
        self._sockets = await _bind(self._host, self._port)
        for made in self._sockets:
            self._listen(made)
        self._lag.start()
        self._begin(self._sweep())

    def renew(self, tls: ssl.SSLContext, *, afresh: bool) -> None:
        """Use other certificates for new connections; `afresh`: also close those that are open,
        busy ones after their answer."""
        self._tls = tls
        for guest in list(self._guests.values()) if afresh else ():
            guest.leaving = True
            if not guest.busy:
                guest.drop()

    async def stop(self) -> None:
        """Accept no more, let requests finish within the grace period, close everything."""
        self._lag.stop()
        for made in self._sockets:
            asyncio.get_running_loop().remove_reader(made)
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for made in self._sockets:
            made.close()
        self._sockets = []
        self._make = None
        for connection in list(self._guests):
            connection.shut()
        self._guests.clear()
        self._from.clear()

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _forget(self, protocol: Connection) -> Guest | None:
        guest = self._guests.pop(protocol, None)
        if guest is not None:
            self._from[guest.place] -= 1
            if not self._from[guest.place]:
                del self._from[guest.place]
        return guest

    def _show_out(self, protocol: Connection) -> bool:
        guest = self._forget(protocol)
        if guest is not None:
            guest.drop()
        return guest is not None

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept waiting connections, many at a time: a partner may be behind strangers."""
        for _ in range(_AT_ONCE):
            try:
                came, where = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file handles, mostly: those in work will give some back.
                log.warning("cannot accept connections for now: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(0.2, self._listen, listening)
                return
            came.setblocking(False)
            peer = Peer(str(where[0]))
            if not self._is_known(peer) and not self._lag.takes_stranger(self._now()):
                self._turn_away(came, peer, "this endpoint is busy")
            elif self._room(peer):
                self._begin(self._admit(came, peer))
            else:
                self._turn_away(came, peer, "all connections are taken")

    async def _admit(self, came: socket.socket, peer: Peer) -> None:
        if self._make is None:
            came.close()
            return
        protocol = self._make(self._forget)
        guest = self._guests[protocol] = Guest(self._now(), peer)
        self._from[guest.place] += 1
        wait = self._limits.handshake_wait if self._tls else None
        try:
            guest.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast(asyncio.Protocol, protocol),
                came,
                ssl=self._tls,
                ssl_handshake_timeout=wait,
            )
        except (OSError, TimeoutError) as error:
            if self._tls is not None:
                self._handshakes.failed(peer, error)
                self._turned_away.counts[Unserved.HANDSHAKE] += 1
            self._forget(protocol)
        except BaseException:
            # On any other error too, or the place would never be free again.
            self._forget(protocol)
            raise
        else:
            if guest.transport.is_closing():
                self._forget(protocol)

    def _room(self, peer: Peer) -> bool:
        """Whether there is room for one more connection; closes another one if need be."""
        known = self._is_known(peer)
        place = address_of(peer)
        if not known and self._from[place] >= self._limits.per_address:
            # An address at its limit has one of its own connections closed.
            return self._throw_out(place)
        if len(self._guests) < self._limits.connections:
            return True
        return self._throw_out() or (known and self._throw_out_stranger())

    def _throw_out(self, place: str | None = None) -> bool:
        """Close the least needed connection, of all or of one address; False: all are at work."""
        old = self._now() - _YOUNG_SECONDS
        waiting = [
            (guest.requests > 0, guest.since, protocol)
            for protocol, guest in self._guests.items()
            if not guest.busy and guest.transport is not None and guest.since < old
            if place is None or guest.place == place
        ]
        if not waiting:
            return False
        # Connections without any request go first, then the one that has been idle the longest.
        return self._show_out(min(waiting, key=lambda item: item[:2])[2])

    def _throw_out_stranger(self) -> bool:
        """Make room for a partner: close the oldest connection of a stranger, even one that is at
        work."""
        strangers = [
            (guest.since, protocol)
            for protocol, guest in self._guests.items()
            if guest.transport is not None and not self._is_known(guest.peer)
        ]
        if not strangers:
            return False
        return self._show_out(min(strangers, key=lambda item: item[0])[1])

    def _turn_away(self, came: socket.socket, peer: Peer, problem: str) -> None:
        self._turned_away.count(peer, problem, known=self._is_known(peer))
        if self._tls is None:
            try:
                came.setblocking(False)
                came.send(self._full)
            except OSError:
                log.debug("a peer left before it could be told that there is no room")
        came.close()

    async def _sweep(self) -> None:
        limits = self._limits
        pause = min(1.0, limits.header_wait / 4, limits.idle_wait / 4)
        while True:
            await asyncio.sleep(pause)
            now = self._now()
            for guest in list(self._guests.values()):
                patience = limits.idle_wait if guest.requests else limits.header_wait
                if not guest.busy and guest.transport is not None and now - guest.since > patience:
                    # Who is idle between two requests owes us nothing.
                    self._turned_away.counts[Unserved.SLOW] += not guest.requests
                    guest.drop()


async def _bind(host: str, port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    if port > _PORT_MAX:
        # The system takes what is left of it, and listens somewhere else.
        raise TransportProblem(
            f"cannot listen on {host} port {port}: there is no such port",
            remedy="choose a free port from 1 to 65535",
        )
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, proto, _, where in dict.fromkeys(found):
            listening = socket.socket(family, kind, proto)
            made.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(where)
            listening.listen(_BACKLOG)
    except OSError as error:
        for listening in made:
            listening.close()
        owner = _owner_of(port) if error.errno == errno.EADDRINUSE else ""
        raise TransportProblem(
            f"cannot listen on {host} port {port}: {error.strerror or error}{owner}",
            remedy="choose a free port and an address of this machine",
        ) from error
    return made


def _owner_of(port: int) -> str:
    """Which process has a port, where Linux tells us; else nothing."""
    sockets: set[str] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTENS and int(local.partition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        # Processes end while they are looked at, and not all of them are ours to look at.
        with contextlib.suppress(OSError):
            if link.readlink().name in sockets:
                process = link.parents[1]
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                return f" by process {process.name} ({' '.join(words)[:80].strip()})"
    return ""
