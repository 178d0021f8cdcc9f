"""A file that is sent is read a piece ahead of its transport, and never closed under a reader."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
from typing import BinaryIO

import pytest

from oncewire.handler.runtime import handler
from oncewire.handler.runtime.handler import CHUNK, Carrier
from oncewire.store.memory.store import MemorySpool
from oncewire.store.records import SpoolSlice, StoredParcel

PIECES = 4


class Watched(io.BytesIO):
    """A file that notes its reads, and whether it was closed under one of them."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.reads = 0
        self.torn = False
        self.may_read = threading.Event()
        self.may_read.set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        assert self.may_read.wait(60)
        self.torn = self.torn or self.closed
        return b"" if self.closed else super().read(size)


class WatchedSpool(MemorySpool):
    """Gives that file, whatever is asked for."""

    def __init__(self, file: Watched) -> None:
        super().__init__()
        self._watched = file

    def open(self, name: str) -> BinaryIO:
        return self._watched


def of_file(length: int, offset: int = 0) -> StoredParcel:
    return StoredParcel("text/plain", (), (b"before", SpoolSlice("0" * 64, offset, length), b"!"))


async def until_read(file: Watched, times: int) -> None:
    async with asyncio.timeout(60):
        while file.reads < times:
            await asyncio.sleep(0.001)


async def test_the_next_piece_is_read_while_one_is_sent() -> None:
    file = Watched(bytes(range(256)) * (PIECES * CHUNK // 256))
    chunks = handler.Carrier(WatchedSpool(file), {})._chunks(of_file(PIECES * CHUNK), "")
    assert await anext(chunks) == b"before"
    for number in range(PIECES):
        assert len(await anext(chunks)) == CHUNK
        # Nobody has asked for the next one.
        await until_read(file, min(number + 2, PIECES))
        assert file.reads == min(number + 2, PIECES)
    assert [piece async for piece in chunks] == [b"!"]
    assert file.closed


async def test_a_range_gives_its_own_bytes_and_no_others() -> None:
    content = bytes(range(256)) * (2 * CHUNK // 256) + b"tail"
    parcel = of_file(CHUNK + 10, offset=7)
    pieces = [
        piece async for piece in Carrier(WatchedSpool(Watched(content)), {})._chunks(parcel, "")
    ]
    assert b"".join(pieces) == b"before" + content[7 : 7 + CHUNK + 10] + b"!"


async def test_a_file_that_ends_too_soon_ends() -> None:
    parcel = of_file(3 * CHUNK)
    pieces = [
        piece async for piece in Carrier(WatchedSpool(Watched(b"short")), {})._chunks(parcel, "")
    ]
    assert pieces == [b"before", b"short", b"!"]


async def test_who_stops_in_the_middle_does_not_close_the_file_under_its_reader() -> None:
    file = Watched(bytes(PIECES * CHUNK))
    chunks = Carrier(WatchedSpool(file), {})._chunks(of_file(PIECES * CHUNK), "")
    await anext(chunks)
    await anext(chunks)
    await until_read(file, 2)
    file.may_read.clear()
    await anext(chunks)
    await until_read(file, 3)
    leaving = asyncio.ensure_future(chunks.aclose())  # type: ignore[attr-defined]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not file.closed
    file.may_read.set()
    await leaving
    assert file.closed
    assert not file.torn


async def test_who_is_stopped_while_he_waits_does_not_close_the_file_under_its_reader() -> None:
    file = Watched(bytes(PIECES * CHUNK))
    file.may_read.clear()
    chunks = Carrier(WatchedSpool(file), {})._chunks(of_file(PIECES * CHUNK), "")

    async def take() -> list[bytes]:
        return [piece async for piece in chunks]

    taking = asyncio.ensure_future(take())
    await until_read(file, 1)
    taking.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    closed = file.closed
    file.may_read.set()
    await asyncio.wait((taking,))
    assert not closed
    assert taking.cancelled()
    assert file.closed
    assert not file.torn


async def test_a_read_ahead_that_fails_is_nobodys_when_nobody_takes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Watched):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.reads:
                self.reads += 1
                raise OSError(5, "Input/output error")
            return super().read(size)

    file = Failing(bytes(PIECES * CHUNK))
    chunks = Carrier(WatchedSpool(file), {})._chunks(of_file(PIECES * CHUNK), "")
    await anext(chunks)
    await anext(chunks)
    await until_read(file, 2)
    await chunks.aclose()  # type: ignore[attr-defined]
    del chunks
    gc.collect()
    assert file.closed
    assert "never retrieved" not in caplog.text
