"""Bodies of HTTP/1.1: cut out of what the connection brought, and kept until they are taken.

A `Cutter` knows where a body ends; a `Stream` holds what was cut out until the request's handler
reads it, and says when the connection should wait.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Protocol

from oncewire.transport.http.head import Framing

HELD_MAX = 64 * 1024
"""Bytes that are cut out before the connection is read no further."""

_LINE_MAX = 4096
_TRAILERS_MAX = 8190
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class BadBody(Exception):
    """A body whose frame is not HTTP."""


class Cutter(Protocol):
    """Cuts a body out of a connection's bytes."""

    over: bool

    def cut(self, buffer: bytearray) -> list[bytes]:
        """The pieces of the body at the front of the buffer, which are taken out of it."""


def cutter_of(framing: Framing) -> Cutter:
    """The cutter for a head's framing."""
    if framing.chunked:
        return ChunkCutter()
    return LengthCutter(framing.length)


class LengthCutter:
    """A body of a known length; None: as long as the connection."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.over = length == 0

    def cut(self, buffer: bytearray) -> list[bytes]:
        """See `Cutter`."""
        if self.over or not buffer:
            return []
        if self._left is None or len(buffer) <= self._left:
            piece = bytes(buffer)
            buffer.clear()
        else:
            piece = bytes(memoryview(buffer)[: self._left])
            del buffer[: self._left]
        if self._left is not None:
            self._left -= len(piece)
            self.over = self._left == 0
        return [piece]


class ChunkCutter:
    """A body in chunks (RFC 9112 7.1); what follows the last of them is read and dropped."""

    def __init__(self) -> None:
        self.over = False
        # Bytes of the chunk that are still to come; None: its first line is.
        self._left: int | None = None
        self._trailers: int | None = None

    def cut(self, buffer: bytearray) -> list[bytes]:
        """See `Cutter`."""
        pieces: list[bytes] = []
        while buffer and not self.over and self._step(buffer, pieces):
            pass
        return pieces

    def _step(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        """Take the next part; False: it is not whole yet."""
        if self._trailers is not None:
            return self._trailer(buffer)
        if self._left is None:
            return self._size(buffer)
        if self._left == 0:
            return self._end(buffer)
        piece = bytes(memoryview(buffer)[: self._left])
        del buffer[: len(piece)]
        self._left -= len(piece)
        pieces.append(piece)
        return True

    def _size(self, buffer: bytearray) -> bool:
        line = _line(buffer, _LINE_MAX)
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise BadBody("the size of a chunk is no number")
        self._left = int(found[1], 16)
        if self._left == 0:
            self._trailers = 0
        return True

    def _end(self, buffer: bytearray) -> bool:
        if len(buffer) < 2:
            if buffer[:1] != b"\r":
                raise BadBody("a chunk is longer than it said")
            return False
        if buffer[:2] != b"\r\n":
            raise BadBody("a chunk is longer than it said")
        del buffer[:2]
        self._left = None
        return True

    def _trailer(self, buffer: bytearray) -> bool:
        line = _line(buffer, _TRAILERS_MAX)
        if line is None:
            return False
        if not line:
            self.over = True
            return True
        self._trailers = (self._trailers or 0) + len(line)
        if self._trailers > _TRAILERS_MAX or not _TRAILER.fullmatch(line):
            raise BadBody("what follows the last chunk is no header")
        return True


def _line(buffer: bytearray, most: int) -> bytes | None:
    """The next line, taken out of the buffer; None: it is not whole yet."""
    end = buffer.find(b"\n", 0, most)
    if end < 0:
        if len(buffer) >= most:
            raise BadBody("a line is too long")
        return None
    if end == 0 or buffer[end - 1] != 0x0D:
        raise BadBody("a line does not end with CR LF")
    line = bytes(memoryview(buffer)[: end - 1])
    del buffer[: end + 1]
    return line


class Stream:
    """The part of a body that has arrived and was not taken yet."""

    __slots__ = ("_held", "_pieces", "_resume", "_waiter", "broken", "over")

    def __init__(self, resume: Callable[[], None]) -> None:
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None
        self._resume: Callable[[], None] | None = resume
        # Nothing more will come.
        self.over = False
        # Why nothing more will come although it is not whole.
        self.broken = ""

    @property
    def full(self) -> bool:
        """Whether the connection should stop reading."""
        return self._held > HELD_MAX

    def put(self, pieces: list[bytes]) -> None:
        """Add bytes that arrived."""
        for piece in pieces:
            self._pieces.append(piece)
            self._held += len(piece)
        if pieces:
            self._wake()

    def end(self, broken: str = "") -> None:
        """Note that the body has ended."""
        if not self.over:
            self.over, self.broken = True, broken
            self._resume = None
            self._wake()

    def take(self) -> bytes:
        """The next piece, if one has arrived."""
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        was_full = self.full
        self._held -= len(piece)
        if was_full and not self.full and self._resume is not None:
            self._resume()
        return piece

    async def wait(self) -> None:
        """Wait until there is a piece, or the end."""
        if self._pieces or self.over:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
