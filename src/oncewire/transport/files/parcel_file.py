"""Parcel file: a parcel as one file, headers first, and the names that such files go by.

A name says where a file stands: `.ID.part` is being written, `ID.parcel` may be taken,
`ID.claimed-READER` is being taken by that reader, `ID.refused` was not taken and never will be. A
rename moves it on, at one instant, so that no reader sees half of one and two never have the same.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.contract import Cargo
from oncewire.transport.header_block import gather_block, read_block, write_block

FOLLOWING_MAX = 64 * 1024
"""Bytes behind a parcel that are read over; nobody waits for the end of a longer file."""

_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_READY = re.compile(rf"({_ID})\.parcel")
_CLAIMED = re.compile(rf"({_ID})\.claimed-([A-Za-z0-9_-]{{1,64}})")
_PART = re.compile(r"\.(([0-9]{16})-[0-9a-f]{32}-([0-9a-f]{16}))\.part")
_READER = re.compile(r"[A-Za-z0-9_-]{1,64}")


def writer_mark(writer: str) -> str:
    """What stands in the names of a writer's files, so that it knows its own again."""
    return hashlib.sha256(writer.encode()).hexdigest()[:16]


def new_id(mark: str) -> str:
    """A name that no other file has; those of one sender sort as they were made."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex}-{mark}"


def part_of(name: str, mark: str) -> tuple[str, int] | None:
    """The id of a file that this writer began, and the microsecond of that; None for any other
    name."""
    found = _PART.fullmatch(name)
    if found is None or found.group(3) != mark:
        return None
    return found.group(1), int(found.group(2))


def part_name(file_id: str) -> str:
    """While it is written."""
    return f".{file_id}.part"


def ready_name(file_id: str) -> str:
    """When it may be taken."""
    return f"{file_id}.parcel"


def claimed_name(file_id: str, reader: str) -> str:
    """While that reader takes it."""
    return f"{file_id}.claimed-{reader}"


def refused_name(file_id: str) -> str:
    """When it was not taken."""
    return f"{file_id}.refused"


def ready_id(name: str) -> str | None:
    """The id of a file that may be taken; None for any other name."""
    found = _READY.fullmatch(name)
    return None if found is None else found.group(1)


def claimed_id(name: str, reader: str) -> str | None:
    """The id of a file that this reader has claimed; None for any other name."""
    found = _CLAIMED.fullmatch(name)
    return found.group(1) if found is not None and found.group(2) == reader else None


def check_reader(reader: str) -> str:
    """The name itself, if it can stand in the name of a file."""
    if not _READER.fullmatch(reader):
        raise TransportProblem(
            f"{reader[:64]!r} cannot be the name of a reader",
            remedy="use up to 64 letters, digits, - and _",
        )
    return reader


async def file_pieces(cargo: Cargo) -> AsyncIterator[bytes]:
    """The file of a cargo, piece by piece; one that is not as long as it said breaks off."""
    said = (("Content-Type", cargo.content_type), ("Content-Length", str(cargo.size)))
    own = {name.lower() for name, _ in said}
    rest = tuple(header for header in cargo.headers if header[0].lower() not in own)
    yield write_block((*said, *rest)) + b"\r\n"
    left = cargo.size
    async for piece in cargo.chunks():
        left -= len(piece)
        yield piece
    if left:
        raise TransportProblem(f"the cargo is not {cargo.size} bytes long as it said")


@dataclass(frozen=True, slots=True)
class Opened:
    """A file whose headers were read; its body is what follows."""

    content_type: str
    headers: dict[str, str]
    length: int
    body: ParcelBody


async def open_parcel(pieces: AsyncIterator[bytes]) -> Opened:
    """The parcel in a file. MimeProblem: there is none; TransportProblem, perhaps only while its
    body is read: the file ends before it does."""
    block, rest = await gather_block(pieces)
    if block is None:
        raise _cut_off()
    headers = read_block(block)
    written = headers.get("content-length", "")
    if not written.isascii() or not written.isdigit() or len(written) > 15:
        raise MimeProblem("the file does not say how long its parcel is", location="MIME")
    length = int(written)
    return Opened(
        headers.get("content-type", ""), headers, length, ParcelBody(rest, pieces, length)
    )


class ParcelBody:
    """The body of a file as it is read; whoever hears its end knows that it was whole."""

    def __init__(self, first: bytes, pieces: AsyncIterator[bytes], length: int) -> None:
        self._first, self._pieces, self._left = first, pieces, length
        self._over = 0
        self._trouble: Exception | None = None

    def __aiter__(self) -> ParcelBody:
        return self

    async def __anext__(self) -> bytes:
        while True:
            piece, self._first = self._first, b""
            if not piece:
                piece = await self._next()
            if self._left == 0:
                self._over += len(piece)
            if not piece or self._over > FOLLOWING_MAX:
                if self._left > 0:
                    self._trouble = _cut_off()
                    raise self._trouble
                raise StopAsyncIteration
            # What follows the parcel is nobody's.
            wanted, self._left = piece[: self._left], max(0, self._left - len(piece))
            if wanted:
                return wanted

    def check(self) -> None:
        """Raise what went wrong while it was read, if anything did."""
        if self._trouble is not None:
            raise self._trouble

    async def _next(self) -> bytes:
        """What comes next. What the server cannot give it cannot give however often it is asked:
        that is no end of the file."""
        self.check()
        try:
            return await anext(self._pieces, b"")
        except Exception as problem:
            self._trouble = problem
            raise


def _cut_off() -> TransportProblem:
    return TransportProblem(
        "the file ends before its parcel does", remedy="write it under another name, then rename it"
    )
