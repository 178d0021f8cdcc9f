"""Servers of files for tests: SFTP by asyncssh, FTP and FTPS by pyftpdlib, each on a folder."""

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncssh

from oncewire.transport.files.ftp import FtpSettings
from oncewire.transport.files.sftp import SftpSettings
from oncewire.transport.http_tls import Identity
from tests.transport.exchange import LOOPBACK

USER, PASSWORD = "oncewire", "a word that nobody knows"


class _Ssh(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


@contextlib.asynccontextmanager
async def sftp_server(root: Path, folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """A server whose files are those of `root`; yields its port and the file of known hosts."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    chrooted = functools.partial(asyncssh.SFTPServer, chroot=os.fsencode(root))
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=_Ssh,
        server_host_keys=[key],
        sftp_factory=chrooted,
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


def sftp_settings(known: Path, **more: Any) -> SftpSettings:
    return SftpSettings(
        USER, known, password=PASSWORD, addresses=LOOPBACK, **({"every": 0.02} | more)
    )


@contextlib.contextmanager
def ftp_server(root: Path, identity: Identity | None = None) -> Iterator[int]:
    """The same with FTP, or FTPS where it has an identity; yields its port."""
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
    from pyftpdlib.ioloop import IOLoop
    from pyftpdlib.servers import FTPServer

    people = DummyAuthorizer()
    people.add_user(USER, PASSWORD, str(root), perm="elradfmwMT")
    loop = IOLoop()
    base = FTPHandler if identity is None else TLS_FTPHandler
    more: dict[str, Any] = {"authorizer": people}
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


def ftp_settings(**more: Any) -> FtpSettings:
    return FtpSettings(USER, PASSWORD, addresses=LOOPBACK, **({"every": 0.02} | more))


async def gone(folder: Path) -> None:
    """Until nothing is left in a folder."""
    while any(folder.iterdir()):
        await asyncio.sleep(0.02)
