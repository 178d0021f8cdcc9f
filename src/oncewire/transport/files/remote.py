"""Remote: a folder on a server, as far as parcels need one, and the connections to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import thread_time
from typing import Protocol
from urllib.parse import unquote, urlsplit

from oncewire.errors import TransportProblem

LISTED_MAX = 10_000
"""Names that are taken from one look at a folder; the others come when these are gone."""

SCANNED_MAX = 200_000
"""Names that a server may tell of a folder, ours or not, before nobody listens any more."""


AT_A_STRETCH = 64
"""Names that are heard before anybody else has a turn."""

REST_FOR_EACH = 3.0
"""Seconds of rest for each second that names took."""

REST_MAX = 0.05


class ServerRefused(Exception):
    """The server heard the command and did not do it; the connection is as good as before."""


class Remote(Protocol):
    """One connection to a server of files. Trouble is `ServerRefused`, or an `OSError` where
    nobody knows what the server heard."""

    async def alive(self) -> bool:
        """Whether the server still listens on this connection."""

    async def names(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        """The plain files of a folder, neither folders nor links, whose names are wanted; no more
        than LISTED_MAX."""

    def read(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file; closed before its end, the connection is of no more use."""

    async def write(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Make a file of these bytes."""

    async def rename(self, old: str, new: str) -> None:
        """Give a file another name, at one instant: of two who try, one succeeds."""

    async def remove(self, path: str) -> None:
        """Take a file away."""

    async def close(self) -> None:
        """End the connection; never raises."""


class Listing:
    """What a server tells of a folder, as far as somebody wants to know it."""

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
        """A file of the folder."""
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
    """A few connections to each server, used again as long as they are good."""

    def __init__(self, connect: Connect, each: int = 4) -> None:
        self._connect, self._each = connect, each
        self._places: dict[tuple[str, str, int], asyncio.Semaphore] = {}
        self._idle: dict[tuple[str, str, int], list[Remote]] = {}

    @contextlib.asynccontextmanager
    async def to(self, place: Place) -> AsyncIterator[Remote]:
        """A connection, for as long as it takes; one that broke is not used again."""
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
        """End those that nobody uses."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()
