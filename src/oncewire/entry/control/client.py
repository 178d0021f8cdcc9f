"""A command's end of the control socket: the verbs of a handler that runs elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from inspect import BoundArguments
from pathlib import Path
from typing import TypeVar

from oncewire.entry.control import language as control
from oncewire.entry.control import values
from oncewire.entry.control.arguments import checked
from oncewire.entry.control.language import ControlFrame
from oncewire.entry.control.verb import Method, Permission
from oncewire.entry.control.verbs import TABLE, Verbs
from oncewire.errors import TransportProblem

R = TypeVar("R")

CONNECTIONS = 64
"""Requests under way at once; the handler's commit serves all of them together."""

BUSY_SECONDS = 10.0
"""How long a handler may take to let somebody in: others came first."""

LONGEST_PAUSE = 0.5
"""Seconds between two tries to get in, at most."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


_UNSURE = (
    "look with `oncewire outbox` whether it was done; a message that is sent again under the same "
    "MessageId cannot arrive twice"
)
_REMEDY = {
    Permission.LOOK: "ask again",
    Permission.EXCHANGE: _UNSURE,
    Permission.OPERATE: _UNSURE,
}


class Remote(Verbs):
    """The handler behind a control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[_Streams] = []
        self._turns = asyncio.Semaphore(CONNECTIONS)

    @classmethod
    async def connect(cls, path: Path) -> Remote | None:
        """The handler at that path, or None if none listens there."""
        remote = cls(path)
        try:
            remote._idle.append(await remote._open())
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise TransportProblem(
                f"the control socket {path} cannot be used: {error.strerror}",
                remedy="run the command as the user whose handler it is",
            ) from None
        return remote

    async def close(self) -> None:
        """Close every connection."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _open(self) -> _Streams:
        loop, pause = asyncio.get_running_loop(), 0.01
        until = loop.time() + BUSY_SECONDS
        while True:
            try:
                connection = self._connected()
                break
            except BlockingIOError:
                # So many wait to be let in that the kernel keeps no more of them.
                if loop.time() >= until:
                    raise TransportProblem(
                        f"the handler is busy: it let nobody in for {BUSY_SECONDS:.0f} seconds",
                        remedy="nothing was asked of it yet; try again",
                    ) from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return await asyncio.open_unix_connection(sock=connection, limit=control.LINE_MAX)

    def _connected(self) -> socket.socket:
        # A Unix socket is connected at once or not at all, so nobody waits here; the event loop
        # would take "not now" for "under way", and a full queue for a connection.
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with control.short_name(self._path) as name:
                connection.connect(name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Have it done by the handler."""
        verb = TABLE[method.name]
        request = values.request_frame(verb, checked(verb, given))
        answer = await self._exchange(request, _REMEDY[verb.permission])
        result: R = values.read_answer(verb, answer)
        return result

    async def _exchange(self, request: ControlFrame, remedy: str) -> ControlFrame:
        """One question, one answer, on a connection that nobody else uses meanwhile."""
        async with self._turns:
            try:
                streams = self._idle.pop() if self._idle else await self._open()
                answer = await self._over(streams, request)
            except (OSError, asyncio.IncompleteReadError):
                answer = None
            if answer is None:
                raise TransportProblem("the handler stopped before it answered", remedy=remedy)
            self._idle.append(streams)
        if answer.values.get("ok") is not True:
            raise control.read_error(answer.values)
        return answer

    async def _over(self, streams: _Streams, request: ControlFrame) -> ControlFrame | None:
        reader, writer = streams
        try:
            await control.write_frame(writer, request)
            return await control.read_frame(reader)
        except BaseException:
            # An answer that comes later must not be taken for that of the next question.
            writer.close()
            raise
