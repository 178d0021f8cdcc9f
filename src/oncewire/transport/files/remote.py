"""Remote: a folder on a server, as far as parcels need one, and the connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import thread_time
from typing import Protocol
from urllib.parse import unquote, urlsplit

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.budget import REST_FOR_EACH
from oncewire.transport.contract import Cargo, gather_block, read_block, write_block

LISTED_MAX = 10_000
"""Names that are taken from one look at a folder; the others come when these are gone."""

SCANNED_MAX = 200_000
"""Names of a folder, ours or not, that a server may tell before a listing is ended."""


AT_A_STRETCH = 64
"""Names that are read before other tasks of the loop have a turn."""

REST_MAX = 0.05


class ServerRefused(Exception):
    """The server refused the command; the connection can still be used."""


class Remote(Protocol):
    """One connection to a server of files. Raises `ServerRefused`, or an `OSError` where it is
    unknown whether the server heard the command."""

    async def alive(self) -> bool:
        """Whether the server still listens on this connection."""

    async def names(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        """The plain files of a folder, neither folders nor links, whose names are wanted; no more
        than LISTED_MAX."""

    def read(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file; closed before the end, it makes the connection unusable."""

    async def write(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Make a file of these bytes."""

    async def rename(self, old: str, new: str) -> None:
        """Rename a file atomically: of two readers that try, one succeeds."""

    async def remove(self, path: str) -> None:
        """Remove a file."""

    async def close(self) -> None:
        """End the connection; never raises."""


class Listing:
    """The wanted names of a folder, gathered while the server tells them."""

    def __init__(self, wanted: Callable[[str], bool], limit: asyncio.Timeout) -> None:
        self.names: list[str] = []
        self._wanted, self._limit, self._told = wanted, limit, 0
        self._began = thread_time()

    async def add(self, name: bytes | str, *, is_file: bool) -> bool:
        """Hear one name; False: that is enough. A name that is no ASCII is none of ours.

        Libraries take names apart as long as some are there. So that others have their turns, and
        most of the processor, we rest in between, for longer than the last names took. The server
        has that much more time.
        """
        self._told += 1
        if self._told % AT_A_STRETCH == 0:
            rest = min((thread_time() - self._began) * REST_FOR_EACH, REST_MAX)
            until = self._limit.when()
            if until is not None:
                self._limit.reschedule(until + rest)
            await asyncio.sleep(rest)
            self._began = thread_time()
        if is_file and name.isascii():
            text = name if isinstance(name, str) else name.decode("ascii")
            if self._wanted(text):
                self.names.append(text)
        return len(self.names) < LISTED_MAX and self._told < SCANNED_MAX


@dataclass(frozen=True, slots=True)
class Place:
    """A folder on a server."""

    scheme: str
    host: str
    port: int
    folder: str

    def path(self, name: str) -> str:
        """The path of a file in the folder."""
        return f"{self.folder}/{name}" if self.folder != "/" else f"/{name}"


def place_of(address: str, schemes: dict[str, int]) -> Place:
    """The folder that an address names; `schemes` have their usual ports. TransportProblem where
    it names none, or more than a folder."""
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise TransportProblem(f"the address is no URL: {error}") from error
    if url.scheme not in schemes or not host:
        raise TransportProblem(
            f"{address[:128]!r} is no address for files",
            remedy=f"write {' or '.join(f'{name}://host/folder' for name in schemes)}",
        )
    if url.username is not None or url.password is not None:
        raise TransportProblem(
            "the address carries a user name or password", remedy="set them in oncewire.toml"
        )
    folder = unquote(url.path)
    parts = [part for part in folder.split("/") if part]
    if url.query or url.fragment or ".." in parts or not folder.isprintable():
        raise TransportProblem(
            f"{address[:128]!r} names no folder",
            remedy="write its path without .., ?, # and control characters",
        )
    return Place(url.scheme, host, port or schemes[url.scheme], "/" + "/".join(parts))


Connect = Callable[[Place], Awaitable[Remote]]
"""Opens a connection; an OSError or a TransportProblem says why it cannot."""


class Connections:
    """A few connections to each server, reused as long as they work."""

    def __init__(self, connect: Connect, each: int = 4) -> None:
        self._connect, self._each = connect, each
        self._places: dict[tuple[str, str, int], asyncio.Semaphore] = {}
        self._idle: dict[tuple[str, str, int], list[Remote]] = {}

    @contextlib.asynccontextmanager
    async def to(self, place: Place) -> AsyncIterator[Remote]:
        """A connection to the server for the length of a `with`; one that broke is not reused."""
        server = (place.scheme, place.host, place.port)
        free = self._places.setdefault(server, asyncio.Semaphore(self._each))
        async with free:
            remote = await self._idle_or_new(server, place)
            try:
                yield remote
            except ServerRefused:
                self._idle.setdefault(server, []).append(remote)
                raise
            except BaseException:
                await remote.close()
                raise
            self._idle.setdefault(server, []).append(remote)

    async def _idle_or_new(self, server: tuple[str, str, int], place: Place) -> Remote:
        idle = self._idle.setdefault(server, [])
        while idle:
            # RTY-5: a connection that went stale is the transport's own trouble.
            remote = idle.pop()
            if await remote.alive():
                return remote
            await remote.close()
        return await self._connect(place)

    async def close(self) -> None:
        """End the idle connections."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()


# Parcel file: a parcel as one file, headers first, and the names that such files go by.
#
# A name says where a file stands: `.ID.part` is being written, `ID.parcel` may be taken,
# `ID.claimed-READER` is being taken by that reader, `ID.refused` was not taken and never will be.
# A rename moves it on, at one instant, so that no reader sees half of one and two never have the
# same.


FOLLOWING_MAX = 64 * 1024
"""Bytes behind a parcel that are skipped; a longer file is not read to its end."""

_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_READY = re.compile(rf"({_ID})\.parcel")
_CLAIMED = re.compile(rf"({_ID})\.claimed-([A-Za-z0-9_-]{{1,64}})")
_PART = re.compile(r"\.(([0-9]{16})-[0-9a-f]{32}-([0-9a-f]{16}))\.part")
_READER = re.compile(r"[A-Za-z0-9_-]{1,64}")


def writer_mark(writer: str) -> str:
    """The part of a file's name by which a writer recognises its own files."""
    return hashlib.sha256(writer.encode()).hexdigest()[:16]


def new_id(mark: str) -> str:
    """A new id for a file; the ids of one writer sort in the order in which they were made."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex}-{mark}"


def part_of(name: str, mark: str) -> tuple[str, int] | None:
    """The id of a file that this writer began, and the microsecond of that; None for any other
    name."""
    found = _PART.fullmatch(name)
    if found is None or found.group(3) != mark:
        return None
    return found.group(1), int(found.group(2))


def part_name(file_id: str) -> str:
    """The name of a file while it is written."""
    return f".{file_id}.part"


def ready_name(file_id: str) -> str:
    """The name of a file that may be taken."""
    return f"{file_id}.parcel"


def claimed_name(file_id: str, reader: str) -> str:
    """The name of a file while that reader takes it."""
    return f"{file_id}.claimed-{reader}"


def refused_name(file_id: str) -> str:
    """The name of a file that was refused for good."""
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
    """The reader's name, if it can be part of a file's name."""
    if not _READER.fullmatch(reader):
        raise TransportProblem(
            f"{reader[:64]!r} cannot be the name of a reader",
            remedy="use up to 64 letters, digits, - and _",
        )
    return reader


async def file_pieces(cargo: Cargo) -> AsyncIterator[bytes]:
    """The file of a cargo, piece by piece; TransportProblem where the cargo is not as long as it
    said."""
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
    """The body of a parcel file as it is read; it ends without an error only if it was whole."""

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
            # What follows the parcel is ignored.
            wanted, self._left = piece[: self._left], max(0, self._left - len(piece))
            if wanted:
                return wanted

    def check(self) -> None:
        """Raise the error that ended the reading, if one did."""
        if self._trouble is not None:
            raise self._trouble

    async def _next(self) -> bytes:
        """The next piece. An error of the server is raised again at every call, so that it is never
        taken for the end of the file."""
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
