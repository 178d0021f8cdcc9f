"""Places where a handler looks for parcels, and what strangers leave there.

    python -m bench._places imap|sftp|ftp|nats FOLDER

The server of one such place, as a process of its own. It prints one JSON object that says where
it is. Then a line `fill` on standard input has strangers fill it, a line `clear` empties it, and
the end of standard input ends it. Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bench._strangers import TYPE, bombs, envelope, multipart
from oncewire.transport.contract import write_block
from oncewire.transport.smtp.relay import write_mail
from tests.transport.brokers import Broker
from tests.transport.file_servers import ftp_server, sftp_server
from tests.transport.test_hostile_mailbox import Liar

PARCELS = 3000
NAMES = 20_000

Fill = Callable[[bool], Awaitable[None]]
"""Fills the place, or empties it."""


def bodies() -> list[bytes]:
    """What nobody takes: forgeries, what is hard to read, what is no message, what is large."""
    forged = [multipart(envelope(number), b"order") for number in range(20)]
    return [*forged, *bombs(), b"", b"x" * 100_000, multipart(envelope(0), b"a b\r\n" * 500_000)]


def parcel_file(number: int, body: bytes) -> bytes:
    """One file; now and then one of headers without end, or one that is cut off."""
    if number % 50 == 7:
        return b"X: y\r\n" * 200_000
    length = len(body) + (1000 if number % 50 == 8 else 0)
    said = (("Content-Type", TYPE), ("Content-Length", str(length)))
    return write_block(said) + b"\r\n" + body


@contextlib.asynccontextmanager
async def imap(_folder: Path) -> AsyncIterator[tuple[dict[str, object], Fill]]:
    """A mailbox; what is flagged stays in it, so there is always more."""
    box = Liar("")
    box.mails = {}
    content = bodies()

    async def fill(full: bool) -> None:
        box.mails = {}
        for number in range(3, PARCELS if full else 3):
            body = content[number % len(content)]
            box.mails[number] = (
                b"X: y\r\n" * 200_000
                if number % 50 == 7
                else write_mail(
                    TYPE,
                    (),
                    body,
                    sender="a@a.test",
                    recipient="b@b.test",
                    message_id=f"{number}@a",
                )
            )

    async with box.running() as port:
        yield {"port": port}, fill


def _files(root: Path) -> Fill:
    inbox = root / "beta"
    inbox.mkdir(parents=True)
    content = bodies()

    def write() -> None:
        for number in range(NAMES):
            (inbox / f"junk-{number}").touch()
        for number in range(PARCELS):
            half = inbox / f".{number}"
            half.write_bytes(parcel_file(number, content[number % len(content)]))
            half.rename(inbox / f"{number:06}.parcel")

    async def fill(full: bool) -> None:
        if full:
            await asyncio.to_thread(write)
            return
        for path in inbox.iterdir():
            path.unlink(missing_ok=True)

    return fill


@contextlib.asynccontextmanager
async def sftp(folder: Path) -> AsyncIterator[tuple[dict[str, object], Fill]]:
    """A folder over SSH."""
    root = folder / "sftp"
    fill = _files(root)
    async with sftp_server(root, folder) as (port, known):
        yield {"port": port, "known": str(known)}, fill


@contextlib.asynccontextmanager
async def ftp(folder: Path) -> AsyncIterator[tuple[dict[str, object], Fill]]:
    """A folder over FTP."""
    root = folder / "ftp"
    fill = _files(root)
    # A line for each command, of which there are thousands.
    logging.getLogger("pyftpdlib").setLevel(logging.WARNING)
    with ftp_server(root) as port:
        yield {"port": port}, fill


@contextlib.asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[tuple[dict[str, object], Fill]]:
    """A subject at a broker, to which anybody publishes."""
    from nats.aio.client import Client

    place = folder / "nats"
    place.mkdir()
    server = Broker(place)
    server.start()
    content = bodies()
    client = Client()
    await client.connect(f"nats://127.0.0.1:{server.port}")

    async def fill(full: bool) -> None:
        if not full:
            return
        js = client.jetstream()
        headers = {"Content-Type": TYPE, "SOAPAction": '"ebXML"'}
        for number in range(PARCELS // 3):
            body = content[number % len(content)]
            await js.publish("oncewire.beta", body, headers=headers, timeout=60)

    try:
        yield {"port": server.port, "monitor": server.monitor}, fill
    finally:
        await client.close()
        server.kill()
        shutil.rmtree(place, ignore_errors=True)


PLACES = {"imap": imap, "sftp": sftp, "ftp": ftp, "nats": nats}


async def main(way: str, folder: str) -> None:
    """Serve one place until standard input ends."""
    async with PLACES[way](Path(folder)) as (where, fill):
        print(json.dumps(where), flush=True)
        while word := await asyncio.to_thread(sys.stdin.readline):
            await fill(word.strip() == "fill")
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
