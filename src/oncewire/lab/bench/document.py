"""Document: one large file from the application of one handler to that of another.

The figure is megabytes in a second until its acknowledgement is stored; the limit is the same file
copied through the same HTTP stacks with an fsync at either end, by turns with it. Beside it stand
what either process held in memory, what lies in either data folder, and what small messages that
pass at the same time feel of it.

    python -m oncewire.lab.bench.document FOLDER [PORT]

is one end of that copying. No message, no digest, no agreement: the sender writes a copy of the
file and has it on the disk, posts it with the product's HTTP client, and the receiver behind the
product's HTTP server writes it and has it on the disk before it answers. Without a port it is the
receiver and says its own; with one it is the sender.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import BinaryIO

from oncewire.entry.running import serving
from oncewire.errors import StoreProblem
from oncewire.lab.bench.exchange import (
    RECEIVER,
    SENDER,
    SIDE,
    Child,
    Task,
    make_pair,
    obey,
    open_limit,
)
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.lab.demo.ways import free_port
from oncewire.store.spool import Removal
from oncewire.transport.contract import Cargo, Delivery, Reply
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpServerSettings
from oncewire.transport.http.transport import HttpTransport

COPYING = "oncewire.lab.bench.document"
PIECE = 256 * 1024
PATIENCE = 600.0
MEGABYTE = 1024 * 1024
SIZE = 1024 * MEGABYTE
"""Bytes of the document, unless another size is asked for."""

SMALL_RATE = 20
"""Small messages in a second."""

LIMIT_WORDS = "the same file copied through the same HTTP stacks, with an fsync at either end"


def make_document(path: Path, size: int) -> str:
    """Make a file of that many random bytes, which do not compress; returns its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        left = size
        while left > 0:
            piece = os.urandom(min(left, MEGABYTE))
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def bytes_in(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(
    folder: Path, document: Path, digest: str, configuration: Configuration, repeats: int
) -> Figure:
    """One configuration, by turns with its limit."""
    size = document.stat().st_size
    parties, copies = folder / configuration.words(), folder / "copies"
    copies.mkdir(exist_ok=True)
    make_pair(parties, configuration)
    rates, limits, largest = [], [], 0.0
    with (
        open_limit(copies, COPYING) as limit,
        Child(SIDE, parties / RECEIVER) as receiver,
        Child(SIDE, parties / SENDER) as sender,
    ):
        for number in range(1, repeats + 1):
            limits.append(size / MEGABYTE / limit.ask("copy", path=str(document))["seconds"])
            sent = sender.ask("document", path=str(document))
            rates.append(size / MEGABYTE / sent["seconds"])
            # The sender keeps what it sent until retention: one file, however often it is sent.
            kept = [bytes_in(parties / SENDER / "data") / size]
            kept.append(bytes_in(parties / RECEIVER / "data") / size / number)
            largest = max(largest, *kept)
            taken = receiver.ask("collect", folder=str(folder / "taken"))
            if taken["digests"] != [digest]:
                raise StoreProblem(
                    f"the document that arrived is another one: {taken['digests']}",
                    remedy="keep both parties' folders and report it",
                )
        held = {SENDER: sender.ask("spent"), RECEIVER: receiver.ask("spent")}
    more = {f"{side}_peak_mb": float(spent["peak_mb"]) for side, spent in held.items()}
    more["largest_folder"] = round(largest, 4)
    more["take_mb_per_s"] = round(size / MEGABYTE / taken["seconds"], 1)
    words = f"{size // MEGABYTE} MB, {'signed' if configuration.signed else 'unsigned'}"
    return Figure(words, tuple(rates), tuple(limits), more)


def small_beside(
    folder: Path, document: Path, configuration: Configuration, repeats: int
) -> dict[str, float]:
    """The p99 of small messages in milliseconds, alone and while documents pass, by turns; the
    middle ones of all turns, and how many times as long one was as the other in its turn."""
    parties = folder / "beside"
    make_pair(parties, configuration)
    alone, beside = [], []
    with (
        Child(SIDE, parties / RECEIVER) as receiver,
        Child(SIDE, parties / SENDER) as sender,
        Child(SIDE, parties / SENDER) as pusher,
    ):
        seconds = sender.ask("document", path=str(document))["seconds"]
        asked = {"rate": SMALL_RATE, "seconds": max(3.0, seconds)}
        for _ in range(repeats):
            alone.append(pusher.ask("trickle", **asked)["p99_ms"])
            with ThreadPoolExecutor(1) as pool:
                pushing = pool.submit(pusher.ask, "trickle", **asked)
                while not pushing.done():
                    sender.ask("document", path=str(document))
                    receiver.ask("collect", folder=str(folder / "taken"))
                beside.append(pushing.result()["p99_ms"])
    times = median(one / other for one, other in zip(beside, alone, strict=True))
    return {
        "small_p99_ms": round(median(alone), 1),
        "small_beside_p99_ms": round(median(beside), 1),
        "small_times": round(times, 1),
    }


def size_of(configuration: Configuration) -> int:
    """The size that was asked for, if it is a large one; else SIZE."""
    return configuration.size if configuration.size > MEGABYTE else SIZE


def run(configuration: Configuration, plan: Plan, size: int = SIZE) -> Outcome:
    """The document plain and signed, and small messages beside it."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        document = folder / "document.bin"
        digest = make_document(document, size)
        plain = measure(folder, document, digest, configuration, plan.repeats)
        signed = replace(configuration, signed=True)
        also = measure(folder, document, digest, signed, plan.repeats)
        beside = small_beside(folder, document, configuration, plan.repeats)
    plain.more.update(beside)
    told = (
        f"{SMALL_RATE} small messages a second: p99 {beside['small_p99_ms']} ms alone, "
        f"{beside['small_beside_p99_ms']} ms while documents pass, "
        f"{beside['small_times']} times as long"
    )
    figures = (plain, also)
    documents = plain.rate * MEGABYTE / size
    return Outcome("document", "megabytes", LIMIT_WORDS, figures, None, (), (told,), documents)


def copied(source: Path, target: Path) -> None:
    """Copy a file and sync the copy to the disk."""
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, 4 * PIECE)
        _synced(written)


def _synced(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class Copying:
    """One end of the copying that is the limit; see the module."""

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


async def serve_copying(folder: Path, port: int | None) -> None:
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
    serving.run(serve_copying(Path(arguments[0]), port))


if __name__ == "__main__":
    main(sys.argv[1:])
