"""A thousand hostile connections of every kind, from many addresses of this machine.

    python -m bench._strangers PORT CONNECTIONS SECONDS SEED [http|mail]

Each connection has one way to be a nuisance, and comes back when it is thrown out. It paces itself,
so that the generator costs about the same whether it is heard or not; loopback only, and it ends
by itself. Prints one JSON object: how often each kind came, and what it was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "127.0.0.1"
ADDRESSES = 200
PAUSE = 0.5
"""Seconds until one that was thrown out comes again."""

TYPE = 'multipart/related; type="text/xml"; boundary="b"'
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"


def envelope(number: int, extra: str = "") -> bytes:
    """A message that names an agreement which is really there, and is signed by nobody."""
    return f"""<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/" xmlns:eb="{EB}"
 xmlns:xlink="http://www.w3.org/1999/xlink"><SOAP:Header>
<eb:MessageHeader SOAP:mustUnderstand="1" eb:version="2.0">
<eb:From><eb:PartyId>urn:test:alpha</eb:PartyId></eb:From>
<eb:To><eb:PartyId>urn:test:beta</eb:PartyId></eb:To>
<eb:CPAId>alpha-beta</eb:CPAId><eb:ConversationId>talk</eb:ConversationId>
<eb:Service>urn:test:orders</eb:Service><eb:Action>New</eb:Action>
<eb:MessageData><eb:MessageId>forged-{number}@alpha</eb:MessageId>
<eb:Timestamp>2026-01-05T10:00:00Z</eb:Timestamp></eb:MessageData><eb:DuplicateElimination/>
</eb:MessageHeader>{extra}</SOAP:Header><SOAP:Body><eb:Manifest eb:version="2.0">
<eb:Reference xlink:type="simple" xlink:href="cid:doc"/></eb:Manifest></SOAP:Body>
</SOAP:Envelope>""".encode()


def multipart(root: bytes, content: bytes, end: bytes = b"\r\n--b--\r\n") -> bytes:
    return (
        b"--b\r\nContent-Type: text/xml\r\n\r\n" + root + b"\r\n--b\r\nContent-ID: <doc>\r\n"
        b"Content-Type: text/plain\r\n\r\n" + content + end
    )


def head(length: int, content_type: str = TYPE, more: str = "") -> bytes:
    return (
        f"POST /msh HTTP/1.1\r\nHost: beta\r\nContent-Type: {content_type}\r\n"
        f'SOAPAction: "ebXML"\r\n{more}Content-Length: {length}\r\n\r\n'
    ).encode()


def bombs() -> list[bytes]:
    """Small bodies that were expensive to somebody once."""
    spaces = " ".join(f'xmlns:n{n}="u:{n}"' for n in range(60))
    deep = "".join(f"<d {spaces.replace(':n', f':n{level}x')}>" for level in range(40))
    ids = "".join(f'<x id="{n}"/>' for n in range(900))
    wide = f'<f xmlns="u:f">{"".join(f"<g>{ids}</g>" for _ in range(10))}</f>'
    entities = b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 1000 + b'">]><a>' + b"&b;" * 5000 + b"</a>"
    parts = b"".join(b"--b\r\nContent-ID: <p%d>\r\n\r\nx\r\n" % n for n in range(3000))
    almost = b"\r\n--b-\r\n--bb" * 30_000
    return [
        multipart(envelope(1, f"{deep}{'</d>' * 40}"), b"x"),
        multipart(envelope(2, wide), b"x"),
        entities,
        multipart(envelope(3), b"x\r\n" + parts),
        multipart(envelope(4), almost),
        b"<a>" * 100_000,
        multipart(envelope(5), b"=" * 200_000),
    ]


class Strangers:
    """The connections, and what became of them."""

    def __init__(
        self, port: int, count: int, seconds: float, seed: int, kinds: dict[str, Kind]
    ) -> None:
        self._port, self._count, self._kinds = port, count, kinds
        self._until = time.monotonic() + seconds
        self._chance = random.Random(seed)
        self._bombs = bombs()
        self.came: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.open = self.most = 0
        self._number = 0

    async def run(self) -> None:
        """Be a nuisance until time is up."""
        kinds = list(self._kinds.items())
        work = []
        for number in range(self._count):
            name, kind = kinds[number % len(kinds)]
            address = f"127.1.{number % ADDRESSES // 100}.{1 + number % 100}"
            work.append(self._keep_at_it(name, kind, address, number / self._count))
        await asyncio.gather(*work)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

    def message(self) -> bytes:
        self._number += 1
        return multipart(envelope(self._number), b"order")

    async def _keep_at_it(self, name: str, kind: Kind, address: str, delay: float) -> None:
        await asyncio.sleep(delay)
        while not self.over:
            self.came[name] += 1
            try:
                async with asyncio.timeout(max(0.1, self._until - time.monotonic())):
                    reader, writer = await asyncio.open_connection(
                        HOST, self._port, local_addr=(address, 0)
                    )
                    self.open += 1
                    self.most = max(self.most, self.open)
                    try:
                        await kind(self, reader, writer)
                    finally:
                        self.open -= 1
                        writer.transport.abort()
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                self.told["closed"] += 1
            await asyncio.sleep(PAUSE)

    async def hear(self, reader: asyncio.StreamReader) -> None:
        """What the endpoint says, if it says anything."""
        line = await reader.readline()
        self.told[line[9:12].decode("latin-1") or "closed"] += 1
        if not line:
            return
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        await reader.readexactly(length)

    @contextlib.asynccontextmanager
    async def hearing(self, reader: asyncio.StreamReader) -> AsyncIterator[asyncio.Future[None]]:
        """Listen while something is still being said."""
        heard = asyncio.ensure_future(self.hear(reader))
        try:
            yield heard
        finally:
            heard.cancel()
            await asyncio.gather(heard, return_exceptions=True)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, max(0.0, self._until - time.monotonic())))


Kind = Callable[[Strangers, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def slow_header(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A header that comes line by line, and never ends."""
    writer.write(b"POST /msh HTTP/1.1\r\n")
    number = 0
    while not one.over and not reader.at_eof():
        writer.write(b"X-%d: y\r\n" % number)
        await writer.drain()
        number += 1
        await one.wait(2.0)


async def dripping_body(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A body of which a byte comes now and then."""
    body = one.message()
    writer.write(head(50_000_000) + body[:-20])
    async with one.hearing(reader) as heard:
        while not one.over and not heard.done():
            writer.write(b"x")
            await writer.drain()
            await one.wait(2.0)


async def big_body(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A body that comes steadily and does not stop."""
    writer.write(head(200_000_000) + multipart(envelope(0), b"", b""))
    block = b"0123456789abcdef" * 2048
    async with one.hearing(reader) as heard:
        while not one.over and not heard.done():
            writer.write(block)
            await writer.drain()
            await one.wait(0.25)


async def garbage(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """What is no HTTP, or no message."""
    chance = one._chance
    if chance.random() < 0.5:
        writer.write(chance.randbytes(chance.randrange(1, 4000)))
    else:
        body = chance.randbytes(chance.randrange(1, 30_000))
        writer.write(head(len(body), chance.choice((TYPE, "text/xml", "image/png"))) + body)
    await one.hear(reader)


async def bomb(one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What is expensive to read."""
    body = one._chance.choice(one._bombs)
    writer.write(head(len(body), "text/xml" if body[:2] in (b"<!", b"<a") else TYPE) + body)
    await writer.drain()
    await one.hear(reader)
    await one.wait(1.0)


async def flood(one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One refused message after the other on one connection."""
    while not one.over and not reader.at_eof():
        body = one.message()
        writer.write(head(len(body)) + body)
        await writer.drain()
        await one.hear(reader)
        await one.wait(0.5)


async def half_open(
    one: Strangers, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
) -> None:
    """Somebody who says nothing, and does not listen."""
    while not one.over and not reader.at_eof():
        await one.wait(1.0)


async def torn(one: Strangers, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A good beginning, and then nothing: cut off in the middle."""
    body = one.message()
    writer.write(head(len(body)) + body[: one._chance.randrange(len(body))])
    await writer.drain()
    await one.wait(0.5)


HTTP: dict[str, Kind] = {
    "slow header": slow_header,
    "dripping body": dripping_body,
    "big body": big_body,
    "garbage": garbage,
    "bomb": bomb,
    "flood": flood,
    "half open": half_open,
    "torn": torn,
}


# --- at the mail server ------------------------------------------------------------------------


async def told(one: Strangers, reader: asyncio.StreamReader) -> bytes:
    """The last line of an answer, which is counted; OSError where the connection ended."""
    while (line := await reader.readline())[3:4] == b"-":
        pass
    if not line:
        raise ConnectionResetError
    one.told[line[:3].decode("latin-1")] += 1
    return line[:3]


async def asked(one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As far as the text of a mail."""
    lines = (b"", b"EHLO x\r\n", b"MAIL FROM:<a@a.test>\r\n", b"RCPT TO:<beta@beta.test>\r\n")
    for line in (*lines, b"DATA\r\n"):
        writer.write(line)
        if await told(one, reader) not in {b"220", b"250", b"354"}:
            raise ConnectionResetError


def mail_of(*text: bytes) -> Kind:
    """Mails of that text, one after the other on one connection."""

    async def mailing(
        one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await asked(one, reader, writer)
        for piece in text:
            writer.write(piece)
            await writer.drain()
        writer.write(b"\r\n.\r\n")
        await told(one, reader)
        await one.wait(1.0)

    return mailing


async def dripping_mail(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A mail of which a byte comes now and then."""
    await asked(one, reader, writer)
    writer.write(b"Content-Type: text/xml\r\n\r\n")
    while not one.over and not reader.at_eof():
        writer.write(b"x")
        await writer.drain()
        await one.wait(2.0)


async def forged_mail(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A message that names an agreement which is really there, and is signed by nobody."""
    head = f'Content-Type: {TYPE}\r\nSOAPAction: "ebXML"\r\n\r\n'.encode()
    await mail_of(head, one.message())(one, reader, writer)


async def commands(
    one: Strangers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Commands without end, each of them hard to read."""
    await told(one, reader)
    hard = b'MAIL FROM:<"\\a\\a\\a\\a"@' + b"(" * 400 + b"\r\n"
    while not one.over and not reader.at_eof():
        writer.write(b"EHLO x\r\n" + hard * 20)
        await writer.drain()
        await one.wait(0.25)


_TEXT = b"Content-Type: text/xml\r\n\r\n"

MAIL: dict[str, Kind] = {
    "silent": half_open,
    "dripping mail": dripping_mail,
    "lines of headers": mail_of(b"X: y\r\n" * 200_000),
    "lines of text": mail_of(_TEXT, b"a b\r\n" * 400_000),
    "big mail": mail_of(_TEXT, *([b"0123456789abcd\r\n" * 4096] * 96)),
    "forged": forged_mail,
    "commands": commands,
    "no mail": mail_of(b"\xff\x00" * 2000),
}


def main(port: str, count: str, seconds: str, seed: str, way: str = "http") -> None:
    """Run against a port of this machine."""
    kinds = {"http": HTTP, "mail": MAIL}[way]
    strangers = Strangers(int(port), int(count), float(seconds), int(seed), kinds)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(strangers.run())
    print(
        json.dumps(
            {
                "came": dict(strangers.came),
                "told": dict(strangers.told),
                "most_at_once": strangers.most,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
