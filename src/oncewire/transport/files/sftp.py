"""SFTP: files over SSH, to servers whose keys we know."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import TransportProblem
from oncewire.transport.files.remote import Listing, Place, Remote, ServerRefused
from oncewire.transport.files.transport import FileTransport
from oncewire.transport.http.address import AddressRule, AllowedResolver, allowed_socket

if TYPE_CHECKING:
    import asyncssh

SCHEMES = {"sftp": 22}
_PIECE = 128 * 1024

PATIENCE = 60.0
"""Seconds that a server has for one step: it may be slow, and may not keep us for ever."""


def sftp_transport(
    user: str,
    known_hosts: Path,
    *,
    key: Path | None = None,
    password: str = "",
    addresses: AddressRule | None = None,
    inbox: str = "",
    reader: str = "oncewire",
    every: float = 5.0,
) -> FileTransport:
    """Files over SSH: who we are to servers, and which of them we believe.

    `known_hosts`: lines as OpenSSH keeps them; a server that is not in it gets nothing.
    """
    rule = addresses or AddressRule()

    async def connect(place: Place) -> Remote:
        import asyncssh

        if not known_hosts.is_file():
            raise TransportProblem(
                f"there is no file {known_hosts} with the keys of servers",
                remedy="put the server's line of ssh-keyscan into it, once compared",
            )
        line = await connected_socket(rule, place.host, place.port)
        try:
            connection = await asyncssh.connect(
                place.host,
                place.port,
                sock=line,
                username=user,
                password=password or None,
                client_keys=[str(key)] if key is not None else None,
                known_hosts=str(known_hosts),
                config=None,
                agent_path=None,
                keepalive_interval=30,
            )
        except asyncssh.Error as error:
            line.close()
            raise OSError(f"SSH: {error.reason}") from error
        except (OSError, ValueError) as error:
            line.close()
            raise OSError(str(error)) from error
        try:
            return _Sftp(connection, await connection.start_sftp_client())
        except asyncssh.Error as error:
            connection.abort()
            raise OSError(f"SSH: {error.reason}") from error
        except BaseException:
            connection.abort()
            raise

    return FileTransport("sftp", SCHEMES, connect, inbox=inbox, reader=reader, every=every)


async def connected_socket(rule: AddressRule, host: str, port: int) -> socket.socket:
    """A connection to an address that may be connected to."""
    found = await AllowedResolver(rule).resolve(host, port)
    loop, trouble = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for where in found:
        info = (where["family"], socket.SOCK_STREAM, 0, "", (where["host"], where["port"]))
        made = allowed_socket(rule, info)
        try:
            await loop.sock_connect(made, (where["host"], where["port"]))
        except OSError as error:
            made.close()
            trouble = error
            continue
        return made
    raise trouble


class _Sftp:
    """One connection."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, client: asyncssh.SFTPClient
    ) -> None:
        self._connection, self._client = connection, client

    async def alive(self) -> bool:
        """See `Remote`."""
        return not self._connection.is_closed()

    async def names(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        """See `Remote`."""
        import asyncssh

        # As bytes: others may give names to files that are no text.
        entries = self._client.scandir(folder.encode())
        async with _told() as limit, contextlib.aclosing(entries):  # type: ignore[type-var]
            listing = Listing(wanted, limit)
            async for entry in entries:
                is_file = entry.attrs.type == asyncssh.FILEXFER_TYPE_REGULAR
                if not await listing.add(entry.filename, is_file=is_file):
                    break
        return listing.names

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """See `Remote`."""
        async with _told():
            # Without an encoding it hands out bytes, whatever its annotation says of text; without
            # blocks it asks for one piece at a time, and for none behind the end.
            file = await self._client.open(path, "rb", encoding=None, block_size=0)
        try:
            while True:
                async with _told():
                    piece = memoryview(await file.read(_PIECE)).tobytes()  # type: ignore[arg-type]
                if not piece:
                    return
                yield piece
        finally:
            async with _told():
                await file.close()

    async def write(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        """See `Remote`."""
        async with _told():
            # "x": a file that has that name already belongs to another writer, or is a link.
            file = await self._client.open(path, "xb")
        try:
            async for piece in pieces:
                async with _told():
                    await file.write(piece)
        finally:
            async with _told():
                await file.close()

    async def rename(self, old: str, new: str) -> None:
        """See `Remote`."""
        async with _told():
            await self._client.rename(old, new)

    async def remove(self, path: str) -> None:
        """See `Remote`."""
        async with _told():
            await self._client.remove(path)

    async def close(self) -> None:
        """See `Remote`."""
        self._connection.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                await self._connection.wait_closed()


@contextlib.asynccontextmanager
async def _told() -> AsyncIterator[asyncio.Timeout]:
    """Run one step within a time limit, and turn errors of the library into those of `Remote`."""
    import asyncssh

    try:
        async with asyncio.timeout(PATIENCE) as limit:
            yield limit
    except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
        raise OSError(f"SFTP: {error.reason}") from error
    except asyncssh.SFTPError as error:
        raise ServerRefused(f"SFTP: {error.reason}") from error
    except asyncssh.Error as error:
        raise OSError(f"SSH: {error.reason}") from error
