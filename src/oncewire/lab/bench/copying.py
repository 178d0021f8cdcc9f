"""The limit of a document: its file copied through the same two HTTP stacks.

    python -m oncewire.lab.bench.copying FOLDER [PORT]

No message, no digest, no agreement: the sender writes a copy of the file and has it on the disk,
posts it with the product's HTTP client, and the receiver behind the product's HTTP server writes it
and has it on the disk before it answers. Without a port it is the receiver and says its
own; with one it is the sender.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from oncewire.entry.running import serving
from oncewire.lab.bench.side import Task, obey
from oncewire.lab.demo.ways import free_port
from oncewire.store.spool import Removal
from oncewire.transport.contract import Cargo, Delivery, Reply
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpServerSettings
from oncewire.transport.http.transport import HttpTransport

PIECE = 256 * 1024
PATIENCE = 600.0


def copied(source: Path, target: Path) -> None:
    """Copy a file and sync the copy to the disk."""
    with source.open("rb") as read, target.open("wb") as written:
        while piece := read.read(4 * PIECE):
            written.write(piece)
        _synced(written)


def _synced(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class Copying:
    """One end of the copying; see the module."""

    def __init__(self, folder: Path, port: int | None) -> None:
        self._folder, self._port = folder, port
        self.own_port = free_port()
        self._removal = Removal()
        self.transport = HttpTransport(
            HttpServerSettings("127.0.0.1", self.own_port, "/copy"),
            HttpClientSettings(addresses=AddressRule.of(["loopback"])),
        )

    async def take(self, delivery: Delivery) -> Reply:
        """Write the body of a request to the disk; it is answered when it is synced."""
        received = self._folder / "received"
        self._removal.remove(received)
        with received.open("wb") as file:
            pieces: list[bytes] = []
            size = 0
            async for piece in delivery.body:
                pieces.append(piece)
                size += len(piece)
                if size >= PIECE:
                    await asyncio.to_thread(file.write, b"".join(pieces))
                    pieces, size = [], 0
            file.write(b"".join(pieces))
            await asyncio.to_thread(_synced, file)
        return Reply(200)

    async def do(self, task: Task) -> Task:
        """Copy a file to the other end."""
        began = time.perf_counter()
        own = self._folder / "sent"
        self._removal.remove(own)
        await asyncio.to_thread(copied, Path(task["path"]), own)
        size = own.stat().st_size

        async def chunks() -> AsyncIterator[bytes]:
            with own.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, PIECE):
                    yield piece

        cargo = Cargo("application/octet-stream", (), size, chunks)
        address = f"http://127.0.0.1:{self._port}/copy"
        outcome = await self.transport.send(cargo, address, timeout=PATIENCE)
        if outcome.reply is None or outcome.reply.status != 200:
            raise RuntimeError(f"the copy was not taken: {outcome}")
        return {"seconds": time.perf_counter() - began}


async def run(folder: Path, port: int | None) -> None:
    """Run one end until standard input ends."""
    copying = Copying(folder, port)
    await copying.transport.start(copying.take)
    try:
        await obey(copying.do, port=copying.own_port)
    finally:
        await copying.transport.stop()


def main(arguments: list[str]) -> None:
    """The entry point of the process."""
    port = int(arguments[1]) if len(arguments) > 1 else None
    serving.run(run(Path(arguments[0]), port))


if __name__ == "__main__":
    main(sys.argv[1:])
