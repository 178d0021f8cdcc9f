"""The limit of an exchange: a POST of the message's bytes, and a commit on both sides before it.

    python -m oncewire.lab.bench.limit FOLDER [PORT]

No XML, no protocol, no agreement: a thin HTTP stack, and one row of the whole message with a random
unique id on each side, everything that waits in one fsync. Without a port it is the receiver and
says its own; with one it is the sender, which begins the next message when the last is answered.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw
import httptools

from oncewire.entry.running import serving
from oncewire.lab.bench.exchange import Task, obey, peak_mb

ENVELOPE = 2_752
"""Bytes of an envelope and of the frame around it: with a document of 2 KB it makes 4.8 KB."""

CONNECTIONS_MAX = 64
_HEAD = (
    b"POST /msh HTTP/1.1\r\nHost: limit\r\nContent-Type: text/xml\r\n"
    b"X-Id: %b\r\nContent-Length: %d\r\n\r\n"
)
_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Rows:
    """A table with a random unique id; one commit for all that wait."""

    def __init__(self, file: Path) -> None:
        self._connection = apsw.Connection(str(file))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "FULL")
        self._connection.wal_autocheckpoint(4_000)
        self._connection.execute("CREATE TABLE message (id TEXT UNIQUE, body BLOB)")
        self._waiting: list[tuple[bytes, bytes, Callable[[], None]]] = []

    def put(self, name: bytes, body: bytes, done: Callable[[], None]) -> None:
        """Store a row; `done` is called when it is durable."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._commit)
        self._waiting.append((name, body, done))

    def _commit(self) -> None:
        rows, self._waiting = self._waiting, []
        with self._connection:
            self._connection.executemany(
                "INSERT INTO message VALUES (?, ?)", [(row[0].decode(), row[1]) for row in rows]
            )
        for _, _, done in rows:
            done()


class Receiving(asyncio.Protocol):
    """One connection of the receiver."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._parser = httptools.HttpRequestParser(self)
        self._name, self._body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio calls it."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """asyncio calls it."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser calls it."""
        if name == b"X-Id":
            self._name = value

    def on_body(self, body: bytes) -> None:
        """The parser calls it."""
        self._body += body

    def on_message_complete(self) -> None:
        """The parser calls it."""
        body, self._body = self._body, b""
        self._rows.put(self._name, body, lambda: self._transport.write(_ANSWER))


class Sending(asyncio.Protocol):
    """One connection of the sender: it stores a message, posts it, and goes on when it is
    answered."""

    def __init__(self, rows: Rows, message: bytes, until: float, ended: Callable[[], None]) -> None:
        self._rows, self._message, self._until, self._ended = rows, message, until, ended
        self._parser = httptools.HttpResponseParser(self)
        self._name = b""
        self.done = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio calls it."""
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        """asyncio calls it."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """The parser calls it."""
        self.done += 1
        self._next()

    def _next(self) -> None:
        if time.perf_counter() >= self._until:
            self._transport.close()
            self._ended()
            return
        self._name = uuid.uuid4().hex.encode()
        self._rows.put(self._name, self._message, self._post)

    def _post(self) -> None:
        self._transport.write(_HEAD % (self._name, len(self._message)) + self._message)


async def receive(folder: Path) -> None:
    """The receiver."""
    rows = Rows(folder / "limit-receiver.db")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiving(rows), "127.0.0.1", 0, backlog=512)
    await obey(_spent, port=server.sockets[0].getsockname()[1])


async def send(folder: Path, port: int) -> None:
    """The sender."""
    rows = Rows(folder / f"limit-sender-{uuid.uuid4().hex}.db")
    loop = asyncio.get_running_loop()

    async def do(task: Task) -> Task:
        if task["do"] != "push":
            return await _spent(task)
        count = min(task["in_flight"], CONNECTIONS_MAX)
        began, left = time.perf_counter(), asyncio.Semaphore(0)
        until, message = began + task["seconds"], b"x" * (ENVELOPE + task["size"])
        made = [
            await loop.create_connection(
                lambda: Sending(rows, message, until, left.release), "127.0.0.1", port
            )
            for _ in range(count)
        ]
        for _ in made:
            await left.acquire()
        return {
            "messages": sum(sending.done for _, sending in made),
            "seconds": time.perf_counter() - began,
        }

    await obey(do)


async def _spent(_: Task) -> Task:
    return {"processor": time.process_time(), "peak_mb": peak_mb()}


def main(arguments: list[str]) -> None:
    """Run the sender or the receiver, on the fastest event loop that is installed."""
    folder, port = Path(arguments[0]), arguments[1:]
    work = send(folder, int(port[0])) if port else receive(folder)
    serving.run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
