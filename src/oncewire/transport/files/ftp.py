"""FTP and FTPS: parcels as files over FTP, with TLS (RFC 4217) where the address says `ftps`."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from oncewire.errors import TransportProblem
from oncewire.transport.files.remote import Listing, Place, Remote, ServerRefused
from oncewire.transport.files.transport import FileTransport
from oncewire.transport.http.address import AddressRule, AllowedResolver

if TYPE_CHECKING:
    import aioftp

SCHEMES = {"ftps": 21, "ftp": 21}
"""`ftps` begins TLS before it says who we are (RFC 4217); `ftp` never does."""

PATIENCE = 60.0
"""Seconds that a server has for one answer, however many lines it has, and for a list of files."""

LINES_MAX = 1000
"""Lines of one answer."""

_PIECE = 128 * 1024


def ftp_transport(
    user: str,
    password: str = "",
    *,
    context: ssl.SSLContext | None = None,
    addresses: AddressRule | None = None,
    patience: float = 30.0,
    inbox: str = "",
    reader: str = "oncewire",
    every: float = 5.0,
) -> FileTransport:
    """Files over FTP and FTPS: who we are to servers, and which of them we believe.

    `context`: whom to believe; None: the system's authorities.
    """
    rule = addresses or AddressRule()

    async def connect(place: Place) -> Remote:
        client = _client(rule, patience)
        try:
            with _told():
                await client.connect(place.host, place.port)
                if place.scheme == "ftps":
                    await client.upgrade_to_tls(context)
                await client.login(user, password)
        except ServerRefused as refusal:
            client.close()
            raise OSError(str(refusal)) from refusal
        except BaseException:
            client.close()
            raise
        return _Ftp(client)

    return FileTransport("ftp", SCHEMES, connect, inbox=inbox, reader=reader, every=every)


def _client(rule: AddressRule, patience: float) -> aioftp.Client:
    """The library's client with stricter checks of what a server says."""
    import aioftp

    class Client(aioftp.Client):
        async def _open_connection(
            self, host: str, port: int
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            # Each connection resolves and checks its host, and goes to the address that was
            # checked: a server must not lead us to an address of our own network.
            found = await AllowedResolver(rule).resolve(host, port)
            if self._stream is not None and self._stream.writer.get_extra_info("ssl_object"):
                self._siosocks_asyncio_kwargs = {"server_hostname": host}
            return await super()._open_connection(found[0]["host"], port)

        async def parse_line(self) -> tuple[aioftp.Code, str]:
            self._lines += 1
            if self._lines > LINES_MAX:
                raise OSError("FTP: an answer without end")
            return await super().parse_line()

        async def parse_response(self) -> tuple[aioftp.Code, list[str]]:
            self._lines = 0
            async with asyncio.timeout(PATIENCE):
                return await super().parse_response()

        def parse_mlsx_line(self, b: bytes | str) -> Any:
            try:
                name, facts = super().parse_mlsx_line(b)
            except ValueError:
                # Others may give names to files that are no text.
                name, facts = PurePosixPath(), cast("Any", {})
            return name, {"type": "", **facts}

    return Client(
        socket_timeout=patience,
        connection_timeout=patience,
        # PASV lets a server send us to any other machine; EPSV names a port of its own.
        passive_commands=("epsv",),
    )


class _Ftp:
    """One FTP connection; it runs one command at a time."""

    def __init__(self, client: aioftp.Client) -> None:
        self._client = client
        # Something was left in the middle: what comes next is still its rest.
        self._spent = False

    async def alive(self) -> bool:
        """See `Remote`."""
        if self._spent:
            return False
        try:
            with _told():
                await self._client.command("NOOP", "2xx")
        except (ServerRefused, OSError):
            return False
        return True

    async def names(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        """See `Remote`."""
        with _told():
            async with asyncio.timeout(PATIENCE) as limit:
                listing = Listing(wanted, limit)
                await self._client.change_directory(_safe(folder))
                async for path, info in self._client.list("", raw_command="MLSD"):
                    if not await listing.add(path.name, is_file=info["type"].lower() == "file"):
                        self._leave()
                        break
        return listing.names

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """See `Remote`."""
        whole = False
        try:
            with _told():
                async with self._client.download_stream(_safe(path)) as stream:
                    async for piece in stream.iter_by_block(_PIECE):
                        yield piece
            whole = True
        finally:
            if not whole:
                self._leave()

    def _leave(self) -> None:
        self._spent = True
        self._client.close()

    async def write(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        """See `Remote`."""
        with _told():
            async with self._client.upload_stream(_safe(path)) as stream:
                async for piece in pieces:
                    await stream.write(piece)

    async def rename(self, old: str, new: str) -> None:
        """See `Remote`."""
        with _told():
            await self._client.rename(_safe(old), _safe(new))

    async def remove(self, path: str) -> None:
        """See `Remote`."""
        with _told():
            await self._client.remove_file(_safe(path))

    async def close(self) -> None:
        """See `Remote`."""
        self._client.close()


def _safe(path: str) -> str:
    """The path, if it stays one argument of one command; otherwise an error."""
    if not path.isprintable():
        raise TransportProblem("a path holds a control character")
    return path


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn errors of the library into those of `Remote`."""
    import aioftp

    try:
        yield
    except aioftp.StatusCodeError as error:
        said = " ".join(line.strip() for line in error.info)
        raise ServerRefused(f"FTP: {error.received_codes[-1]} {said}"[:300]) from error
    except aioftp.AIOFTPException as error:
        raise OSError(f"FTP: {error}") from error
    except (EOFError, asyncio.IncompleteReadError) as error:
        raise OSError("FTP: the server ended the connection") from error
    except (ValueError, LookupError, TypeError) as error:
        # Not the text that it should be, or a line without end; the library takes it apart as if
        # it were.
        raise OSError("FTP: the server says what nobody can read") from error
