"""One connection to our endpoint: requests one after the other, each answered before the next.

What a peer sends ahead waits in the connection, and beyond a bound in the peer. An answer to a
request that was not heard to its end closes the connection, but not at once: what is still on its
way is let in and dropped for a moment, or the peer would lose our answer with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from oncewire.transport.contract import Peer
from oncewire.transport.http.body import HELD_MAX, BadBody, Cutter, Stream, cutter_of
from oncewire.transport.http.head import BadHead, HeadLimits, RequestHead, find_end, read_request

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("oncewire.transport.http.transport")

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
        request = Request(self, head, Stream(self._set_reading), self._met(transport), gone)
        if self._cutter.over:
            request.body.end()
        self._request = request
        self._task = loop.create_task(self._serve(request))

    def _met(self, transport: asyncio.Transport) -> Peer:
        """The peer of this connection; its certificate does not change."""
        if self._peer is None:
            where = transport.get_extra_info("peername")
            tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
            certificate = tls.getpeercert(binary_form=True) if tls is not None else None
            self._peer = Peer(str(where[0]) if where else "", certificate)
        return self._peer

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
