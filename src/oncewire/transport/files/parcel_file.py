"""Parcel file: a parcel as one file, headers first, and the names that such files go by.

A name says where a file stands: `.ID.part` is being written, `ID.parcel` may be taken,
`ID.claimed-READER` is being taken by that reader, `ID.refused` was not taken and never will be. A
rename moves it on, at one instant, so that no reader sees half of one and two never have the same.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.contract import Cargo
from oncewire.transport.header_block import BLOCK_MAX, read_block, write_block

_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_READY = re.compile(rf"({_ID})\.parcel")
_CLAIMED = re.compile(rf"({_ID})\.claimed-([A-Za-z0-9_-]{{1,64}})")
_READER = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_id() -> str:
    """A name that no other file has; those of one sender sort as they were made."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex}"


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
    head = bytearray()
    async for piece in pieces:
        head += piece
        if b"\r\n\r\n" in head[-len(piece) - 4 :] or len(head) > BLOCK_MAX:
            break
    block, ended, rest = bytes(head).partition(b"\r\n\r\n")
    if not ended:
        if len(head) > BLOCK_MAX:
            raise MimeProblem("the file does not begin with headers", location="MIME")
        raise _cut_off()
    headers = read_block(block + b"\r\n")
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

    def __aiter__(self) -> ParcelBody:
        return self

    async def __anext__(self) -> bytes:
        while True:
            piece, self._first = self._first, b""
            if not piece:
                piece = await anext(self._pieces, b"")
            if not piece:
                if self._left > 0:
                    raise _cut_off()
                raise StopAsyncIteration
            # What follows the parcel is nobody's.
            wanted, self._left = piece[: self._left], max(0, self._left - len(piece))
            if wanted:
                return wanted


def _cut_off() -> TransportProblem:
    return TransportProblem(
        "the file ends before its parcel does", remedy="write it under another name, then rename it"
    )
