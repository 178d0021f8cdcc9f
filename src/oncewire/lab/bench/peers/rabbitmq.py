"""RabbitMQ: a durable queue, persistent messages, publisher confirms.

Nobody consumes meanwhile: a message that was consumed before it was written is confirmed without.

python -m oncewire.lab.bench.peers.rabbitmq FOLDER
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oncewire.lab.bench.side import Task, obey
from oncewire.lab.demo.ways import free_port

_QUEUE = "bench"
_START_SECONDS = 60.0
# The package's own script; the one on the path insists on another user.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def missing() -> str:
    """What is not installed; empty: everything is there."""
    if find_spec("pika") is None or not _PROGRAM.is_file():
        return "not installed: `make bench-setup` installs rabbitmq-server and pika"
    return ""


def environment(folder: Path, port: int) -> dict[str, str]:
    """A node of its own, with its own name server, that nobody else on this machine meets."""
    return os.environ | {
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


async def run(folder: Path) -> None:
    """Start a broker, and push on demand."""
    port = free_port()
    environ = environment(folder, port)
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        str(_PROGRAM), env=environ, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        if await _answers(port):
            await obey(Publisher(port).push)
        else:
            await obey(_nothing, missing="the RabbitMQ broker did not start")
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await _end_name_server(environ)


async def _end_name_server(environ: dict[str, str]) -> None:
    epmd = shutil.which("epmd")
    if epmd is not None:
        quiet = asyncio.subprocess.DEVNULL
        ending = await asyncio.create_subprocess_exec(
            epmd, "-kill", env=environ, stdout=quiet, stderr=quiet
        )
        await ending.wait()


async def _answers(port: int) -> bool:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        await asyncio.sleep(0.2)
    return False


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


async def _nothing(_: Task) -> Task:
    return {}


def main(arguments: list[str]) -> None:
    """The process."""
    why = missing()
    asyncio.run(obey(_nothing, missing=why) if why else run(Path(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
