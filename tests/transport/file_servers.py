"""Servers of files for tests: SFTP by asyncssh, FTP and FTPS by pyftpdlib, each on a folder."""

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from oncewire.transport.http.tls import Identity
from tests.transport.exchange import LOOPBACK

USER, PASSWORD = "oncewire", "a word that nobody knows"


@dataclass
class Mood:
    """What a server does to those who write to it, from one moment to the next."""

    # There is no room left on its disk.
    full: bool = False
    # It breaks the connection in the middle of a file.
    breaks: bool = False
    # Seconds that each piece of a file takes.
    slow: float = 0.0


class _Sftp(asyncssh.SFTPServer):
    """The library's own server, with a mood."""

    def __init__(self, chan: Any, root: Path, mood: Mood) -> None:
        super().__init__(chan, chroot=os.fsencode(root))
        self._mood = mood

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        await asyncio.sleep(self._mood.slow)
        if self._mood.full:
            raise asyncssh.SFTPFailure("No space left on device")
        if self._mood.breaks:
            super().write(file_obj, offset, data[: len(data) // 2])
            self.channel.get_connection().abort()
        return int(super().write(file_obj, offset, data))  # type: ignore[arg-type]


def _on_a_disk(mood: Mood) -> type:
    """Files as an FTP server writes them, with a mood."""
    from pyftpdlib.filesystems import AbstractedFS

    class File:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> int:
            time.sleep(mood.slow)
            if mood.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(self._file.write(data))

    class Disk(AbstractedFS):  # type: ignore[misc]
        def open(self, filename: str, mode: str) -> Any:
            return File(super().open(filename, mode))

    return Disk


class _Ssh(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


@contextlib.asynccontextmanager
async def sftp_server(
    root: Path, folder: Path, mood: Mood | None = None
) -> AsyncIterator[tuple[int, Path]]:
    """A server whose files are those of `root`; yields its port and the file of known hosts."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    chosen = mood or Mood()
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=_Ssh,
        server_host_keys=[key],
        sftp_factory=lambda chan: _Sftp(chan, root, chosen),
        allow_scp=False,
    )
    port = server.sockets[0].getsockname()[1]
    known = folder / f"known_hosts-{port}"
    line = key.export_public_key().decode().strip()
    known.write_text(f"[127.0.0.1]:{port} {line}\n")
    try:
        yield port, known
    finally:
        server.close()
        await server.wait_closed()


def sftp_settings(known: Path, **more: Any) -> dict[str, Any]:
    who = {"user": USER, "known_hosts": known, "password": PASSWORD}
    return {**who, "addresses": LOOPBACK, "every": 0.02, **more}


@contextlib.contextmanager
def ftp_server(
    root: Path, identity: Identity | None = None, mood: Mood | None = None
) -> Iterator[int]:
    """The same with FTP, or FTPS where it has an identity; yields its port."""
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import DTPHandler, FTPHandler, TLS_DTPHandler, TLS_FTPHandler
    from pyftpdlib.ioloop import IOLoop
    from pyftpdlib.servers import FTPServer

    people = DummyAuthorizer()
    people.add_user(USER, PASSWORD, str(root), perm="elradfmwMT")
    loop = IOLoop()
    base = FTPHandler if identity is None else TLS_FTPHandler
    chosen = mood or Mood()

    class Data(DTPHandler if identity is None else TLS_DTPHandler):  # type: ignore[misc]
        def handle_read(self) -> None:
            if chosen.breaks:
                self.cmd_channel.close()
                self.close()
                return
            super().handle_read()

        handle_read_event = handle_read

    more: dict[str, Any] = {
        "authorizer": people,
        "abstracted_fs": _on_a_disk(chosen),
        "dtp_handler": Data,
    }
    if identity is not None:
        pem = root.parent / f"{identity.certificate.stem}.pem"
        pem.write_bytes(identity.key.read_bytes() + identity.certificate.read_bytes())
        more |= {"certfile": str(pem), "tls_control_required": True, "tls_data_required": True}
    made = type("Handler", (base,), more)
    server = FTPServer(("127.0.0.1", 0), made, ioloop=loop)
    server.max_cons_per_ip = 0
    port = server.address[1]
    ending = threading.Event()

    def serve() -> None:
        while not ending.is_set():
            loop.loop(timeout=0.01, blocking=False)
        server.close_all()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield port
    finally:
        ending.set()
        thread.join(10)


def ftp_settings(**more: Any) -> dict[str, Any]:
    return {"user": USER, "password": PASSWORD, "addresses": LOOPBACK, "every": 0.02, **more}


async def gone(folder: Path) -> None:
    """Until nothing is left in a folder."""
    while any(folder.iterdir()):
        await asyncio.sleep(0.02)
