"""Connections of the HTTP client: one exchange at a time on each, and those that wait for one."""

from __future__ import annotations

import asyncio
import select
import ssl
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import cast

from oncewire.transport.http.head import (
    BadBody,
    BadHead,
    Cutter,
    HeadLimits,
    ResponseHead,
    cutter_of,
    find_end,
    read_response,
)

_LIMITS = HeadLimits(line=8190, field=8190, fields=128)
# Answers before the answer ("100 Continue"): more of them mean nothing.
_INTERIM_MAX = 8


class BrokenAnswer(ConnectionError):
    """What came back is no answer, or not all of one."""


class AnswerTooLong(BrokenAnswer):
    """A reply of more bytes than are taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    head: ResponseHead
    body: bytes


class ClientConnection(asyncio.Protocol):
    """One connection to a peer."""

    def __init__(self, max_reply: int) -> None:
        self._max_reply = max_reply
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: ResponseHead | None = None
        self._cutter: Cutter | None = None
        self._pieces: list[bytes] = []
        self._size = self._interim = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._writable: asyncio.Future[None] | None = None
        # Whether it has carried a request: only then can it be stale.
        self.used = False
        self.idle_since = 0.0

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._answer is None or self._answer.done():
            # No request is open: these bytes must not be taken for the answer to the next one.
            self.abort()
            return
        self._buffer += data
        try:
            self._read()
        except (BadHead, BadBody) as problem:
            self._fail(BrokenAnswer(f"the answer cannot be read: {problem}"))

    def eof_received(self) -> None:
        """See `asyncio.Protocol`."""
        head, cutter = self._head, self._cutter
        if head is not None and cutter is not None and self._ends_with_connection(head):
            self._finish(head)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        why = f": {exc}" if exc is not None else ""
        lost = BrokenAnswer(f"the connection ended before the answer was there{why}")
        lost.__cause__ = exc
        self._fail(lost)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # --- an exchange ---

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to, as far as the loop knows."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the peer has shown."""
        if self._transport is None:
            return None
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return tls.getpeercert(binary_form=True) if tls is not None else None

    def has_news(self) -> bool:
        """Whether an idle connection has something to read: in HTTP that can only be its end."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def begin(self, data: bytes) -> asyncio.Future[Answer]:
        """Write the first bytes of a request; the answer to it comes later."""
        self.used = True
        self._head = self._cutter = None
        self._pieces, self._size, self._interim = [], 0, 0
        self._answer = asyncio.get_running_loop().create_future()
        self._write(data)
        return self._answer

    async def go_on(self, data: bytes) -> None:
        """Write more, when there is room for it; nothing once the answer has come."""
        waiting, answer = self._writable, self._answer
        if waiting is not None and answer is not None:
            await asyncio.wait((waiting, answer), return_when=asyncio.FIRST_COMPLETED)
        if answer is None or not answer.done():
            self._write(data)

    def abort(self) -> None:
        """Close the connection without waiting."""
        if self._transport is not None:
            self._transport.abort()

    def is_reusable(self) -> bool:
        """Whether the next request may go this way."""
        return self.is_open and self._head is not None and self._head.keeps_alive

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _read(self) -> None:
        while self._cutter is None:
            end = find_end(self._buffer, _LIMITS)
            if end < 0:
                return
            head = read_response(bytes(memoryview(self._buffer)[:end]), _LIMITS)
            del self._buffer[: end + 4]
            if head.status >= 200:
                self._head, self._cutter = head, cutter_of(head.framing)
            elif head.status == 101 or self._interim >= _INTERIM_MAX:
                raise BadHead("it is no answer to a POST")
            else:
                self._interim += 1
        head_of = self._head
        for piece in self._cutter.cut(self._buffer):
            self._pieces.append(piece)
            self._size += len(piece)
        if self._size > self._max_reply:
            status = head_of.status if head_of is not None else 0
            self._fail(
                AnswerTooLong(f"HTTP {status} with a reply of more than {self._max_reply} bytes")
            )
        elif self._cutter.over and head_of is not None:
            self._finish(head_of)

    @staticmethod
    def _ends_with_connection(head: ResponseHead) -> bool:
        return head.framing.length is None and not head.framing.chunked

    def _finish(self, head: ResponseHead) -> None:
        body, self._pieces = b"".join(self._pieces), []
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(head, body))
        if self._buffer or self._ends_with_connection(head) or not head.keeps_alive:
            # Bytes follow that answer no request, or the peer keeps the connection no longer.
            self.close()

    def close(self) -> None:
        """Close the connection when everything is written."""
        if self._transport is not None:
            self._transport.close()

    def _fail(self, problem: Exception) -> None:
        self._pieces = []
        self.resume_writing()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(problem)
        self.abort()


class Pool:
    """Idle connections, and how many may be in use at once."""

    def __init__(self, most: int, most_each: int, idle: float) -> None:
        self._most, self._most_each, self._idle_for = most, most_each, idle
        self._idle: dict[Hashable, list[ClientConnection]] = {}
        # How many wait, at all places together.
        self._kept = 0
        self._busy: dict[Hashable, int] = {}
        self._all_busy = 0
        self._waiting: deque[tuple[Hashable, asyncio.Future[None]]] = deque()
        self._tidying: asyncio.TimerHandle | None = None

    async def enter(self, place: Hashable) -> None:
        """Wait for one of the turns for a place, and take it."""
        if not self._has_room(place):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((place, turn))
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    # The turn was given at the moment this caller was cancelled.
                    self.leave(place)
                else:
                    self._waiting.remove((place, turn))
                raise
            return
        self._take(place)

    def leave(self, place: Hashable) -> None:
        """Give the turn back, to the next caller that waits for one."""
        self._all_busy -= 1
        self._busy[place] -= 1
        if not self._busy[place]:
            del self._busy[place]
        for waiting in self._waiting:
            # A caller that was just cancelled removes itself.
            if not waiting[1].done() and self._has_room(waiting[0]):
                self._waiting.remove(waiting)
                self._take(waiting[0])
                waiting[1].set_result(None)
                return

    def find(self, place: Hashable) -> ClientConnection | None:
        """The idle connection that was used last, taken out of the pool; None: there is none."""
        waiting = self._idle.get(place, [])
        while waiting:
            found = waiting.pop()
            self._kept -= 1
            if found.is_open and not found.has_news():
                return found
            found.abort()
        return None

    def keep(self, place: Hashable, connection: ClientConnection) -> None:
        """Put a connection back into the pool."""
        if self._kept >= self._most:
            connection.close()
            return
        self._kept += 1
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(place, []).append(connection)
        if self._tidying is None:
            self._tidying = loop.call_later(self._idle_for, self._tidy, loop)

    def _tidy(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for too long."""
        limit, found = loop.time() - self._idle_for, self._idle
        self._idle, self._tidying = {}, None
        for place, waiting in found.items():
            for one in waiting:
                if one.is_open and one.idle_since > limit:
                    self._idle.setdefault(place, []).append(one)
                else:
                    self._kept -= 1
                    one.close()
        if self._idle:
            self._tidying = loop.call_later(self._idle_for / 2, self._tidy, loop)

    def close(self) -> None:
        """Close all idle connections."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        for waiting in self._idle.values():
            for one in waiting:
                one.close()
        self._idle.clear()
        self._kept = 0

    def _has_room(self, place: Hashable) -> bool:
        return self._all_busy < self._most and self._busy.get(place, 0) < self._most_each

    def _take(self, place: Hashable) -> None:
        self._all_busy += 1
        self._busy[place] = self._busy.get(place, 0) + 1
