"""Strangers at our mail server: what each may take of connections, memory, lines and time, and that
partners keep their share of it."""

import asyncio
import contextlib
import math
import random
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncewire.transport.budget import BudgetLimits
from oncewire.transport.contract import Delivery, Reply
from oncewire.transport.http.tls import server_context
from oncewire.transport.smtp import listener as smtp_listener
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.transport import SmtpTransport
from tests.transport.exchange import Certificates, Receiver, run, turns

MAILBOX = "beta@beta.example"
GOOD = b"Content-Type: text/xml\r\n\r\n<a/>\r\n"


@contextlib.asynccontextmanager
async def listening(
    receiver: Callable[[Delivery], Awaitable[Reply]],
    *,
    budget: BudgetLimits | None = None,
    max_size: int = 64 * 1024 * 1024,
    tls: ssl.SSLContext | None = None,
    **limits: Any,
) -> AsyncIterator[int]:
    """A mail server; its port. However slow the machine is, its loop counts as in time."""
    settings = ListenerSettings(MAILBOX, max_size=max_size, tls=tls)
    settings = replace(
        settings,
        limits=replace(settings.limits, **{"late": math.inf} | limits),
        budget=budget or BudgetLimits(),
    )
    transport = SmtpTransport(listener=settings)
    await transport.start(receiver)
    try:
        yield transport.port
    finally:
        await transport.stop()


class Sender:
    """One connection that says what a test tells it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self) -> bytes:
        """The last line of an answer; nothing: the connection has ended."""
        with contextlib.suppress(ConnectionError):
            while (line := await self.reader.readline())[3:4] == b"-":
                pass
            return line
        return b""

    async def say(self, *words: bytes) -> bytes:
        with contextlib.suppress(ConnectionError):
            for word in words:
                self.writer.write(word)
                await self.writer.drain()
        return await self.hear()

    async def begin(self) -> bytes:
        """As far as DATA."""
        for word in (b"EHLO x\r\n", b"MAIL FROM:<a@a.example>\r\n", b"RCPT TO:<%s>\r\n"):
            told = await self.say(word % MAILBOX.encode() if b"%s" in word else word)
            assert told.startswith(b"250"), told
        return await self.say(b"DATA\r\n")

    async def mail(self, *text: bytes) -> bytes:
        told = await self.begin()
        assert told.startswith(b"354"), told
        return await self.say(*text, b".\r\n")


@contextlib.asynccontextmanager
async def sender(port: int, address: str = "127.0.0.1") -> AsyncIterator[Sender]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield Sender(reader, writer)
    finally:
        writer.transport.abort()


async def drop(delivery: Delivery) -> Reply:
    """A handler that keeps nothing."""
    async for _ in delivery.body:
        pass
    return Reply(204)


# --- connections ---------------------------------------------------------------------------------


def test_one_address_does_not_close_the_listener_to_others() -> None:
    async def work() -> None:
        async with listening(Receiver()) as port, contextlib.AsyncExitStack() as held:
            for _ in range(250):
                silent = await held.enter_async_context(sender(port))
                if not (await silent.hear()).startswith(b"220"):
                    break
            async with sender(port, "127.0.0.7") as other:
                assert (await other.hear()).startswith(b"220")
                assert (await other.mail(GOOD)).startswith(b"250")

    run(work())


def test_a_connection_that_brings_no_mail_is_closed_whatever_it_says() -> None:
    async def work() -> None:
        async with listening(Receiver(), header_wait=0.4) as port, sender(port) as chatty:
            await chatty.hear()
            began = time.monotonic()
            while (await chatty.say(b"NOOP\r\n")).startswith(b"250"):
                await asyncio.sleep(0.05)
            assert time.monotonic() - began < 20

    run(work())


def test_who_asks_without_end_is_hung_up_on_and_holds_nobody_up() -> None:
    async def work() -> None:
        async with listening(Receiver()) as port, sender(port) as chatty, turns() as watched:
            await chatty.hear()
            hostile = b'MAIL FROM:<"\\a\\a\\a\\a\\a\\a\\a\\a"@' + b"(" * 400 + b"\r\n"
            with contextlib.suppress(ConnectionError):
                chatty.writer.write(b"EHLO x\r\n" + hostile * 3000)
                await chatty.writer.drain()
            answers = 0
            while await chatty.hear():
                answers += 1
            assert 0 < answers < 1000
            assert watched.longest < 0.1

    run(work())


def test_a_partner_comes_in_when_strangers_have_every_place() -> None:
    """Who proved to be a partner comes in for one of them, also while all of them send mails."""

    async def known(delivery: Delivery) -> Reply:
        await drop(delivery)
        return Reply(204, known=True)

    async def work() -> None:
        async with listening(known, connections=6) as port, contextlib.AsyncExitStack() as held:
            async with sender(port, "127.0.0.9") as partner:
                assert (await partner.hear()).startswith(b"220")
                assert (await partner.mail(GOOD)).startswith(b"250")
            for number in range(6):
                busy = await held.enter_async_context(sender(port, f"127.0.1.{number + 1}"))
                await busy.hear()
                assert (await busy.begin()).startswith(b"354")
            async with sender(port, "127.0.2.1") as stranger:
                assert (await stranger.hear()).startswith(b"421")
            async with sender(port, "127.0.0.9") as partner:
                assert (await partner.hear()).startswith(b"220")
                assert (await partner.mail(GOOD)).startswith(b"250")

    run(work())


def test_strangers_wait_for_a_place_before_their_mail_is_heard() -> None:
    async def work() -> None:
        budget = BudgetLimits(strangers=1, patience=0.2)
        async with (
            listening(Receiver(), budget=budget) as port,
            sender(port) as first,
            sender(port, "127.0.0.7") as second,
        ):
            await first.hear()
            await second.hear()
            assert (await first.begin()).startswith(b"354")
            assert (await second.begin()).startswith(b"451")
            assert (await first.say(GOOD, b".\r\n")).startswith(b"250")
            assert (await second.mail(GOOD)).startswith(b"250")

    run(work())


def test_who_is_refused_too_often_is_told_to_come_back() -> None:
    async def work() -> None:
        budget = BudgetLimits(refusals=3)
        receiver = Receiver(Reply(400, body=b"no", refused=True))
        async with listening(receiver, budget=budget) as port, sender(port) as one:
            await one.hear()
            answers = [await one.mail(GOOD) for _ in range(4)]
            assert (await one.begin()).startswith(b"451")
        assert all(answer.startswith(b"554") for answer in answers)

    run(work())


# --- one mail ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"X: y\r\n" * 200_000, id="headers"),
        pytest.param(b"X: y\r\n\r\n" + b"a\r\n" * 400_000, id="body"),
        pytest.param(b"X: y\r\n\r\n" + b"." * 1_200_000 + b"\r\n", id="dots"),
        pytest.param(b"X: y\r\n\r\n" + b"..\r\n" * 300_000, id="dotted lines"),
    ],
)
def test_a_mail_of_many_lines_holds_nobody_up_and_costs_no_memory(text: bytes) -> None:
    async def work() -> None:
        async with listening(drop) as port, sender(port) as one:
            await one.hear()
            await one.begin()
            async with turns() as watched:
                await one.say(text, b".\r\n")
            assert watched.longest < 0.1
            await one.begin()
            tracemalloc.start()
            try:
                answer = await one.say(text, b".\r\n")
                assert tracemalloc.get_traced_memory()[1] < 8 * 1024**2
            finally:
                tracemalloc.stop()
            assert answer[:3] == (b"554" if text[-3:] == b"y\r\n" else b"250")

    run(work())


def test_headers_are_refused_by_their_lines_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncewire.transport import contract

    def never(_lines: list[bytes]) -> None:
        raise AssertionError("they were taken apart")

    monkeypatch.setattr(contract, "header_lines", never)

    async def work() -> None:
        receiver = Receiver()
        async with listening(receiver) as port, sender(port) as one:
            await one.hear()
            assert (await one.mail(b"X: y\r\n" * 501)).startswith(b"554")
            # On the same connection: its sender knows that it will never be taken.
            assert (await one.mail(b"X: y\r\n" * 600, b"\r\n", b"x\r\n")).startswith(b"554")
        assert not receiver.taken

    run(work())


def test_a_mail_that_is_too_large_is_refused_and_one_without_end_is_left() -> None:
    async def work() -> None:
        async with listening(drop, max_size=1_000_000) as port:
            async with sender(port) as one:
                await one.hear()
                body = [b"x" * 998 + b"\r\n"] * 1600
                assert (await one.mail(b"X: y\r\n\r\n", *body)).startswith(b"552")
            async with sender(port) as one:
                await one.hear()
                await one.begin()
                with contextlib.suppress(ConnectionError):
                    for _ in range(50_000):
                        one.writer.write(b"x" * 998 + b"\r\n")
                        await one.writer.drain()
                    raise AssertionError("it listens for ever")

    run(work())


def test_a_mail_that_drips_gives_its_place_back() -> None:
    async def work() -> None:
        receiver = Receiver()
        budget = BudgetLimits(strangers=1, patience=0.01)
        limits = {"body_pause": 60.0, "body_grace": 0.4, "body_rate": 1000}
        async with listening(receiver, budget=budget, **limits) as port, sender(port) as slow:
            await slow.hear()
            await slow.begin()
            heard = asyncio.ensure_future(slow.hear())
            slow.writer.write(GOOD)
            while not heard.done():
                slow.writer.write(b"x")
                await asyncio.sleep(0.02)
            assert (await heard)[:3] in (b"421", b"")
            assert not receiver.taken
            async with sender(port) as other:
                await other.hear()
                assert (await other.mail(GOOD)).startswith(b"250")

    run(work())


def test_half_a_mail_is_handed_over_to_nobody() -> None:
    async def work() -> None:
        receiver = Receiver()
        async with listening(receiver) as port:
            for cut in (b"", b"X: y", GOOD, GOOD + b".\r", GOOD + b"\n.\n", GOOD + b".\n"):
                async with sender(port) as one:
                    await one.hear()
                    await one.begin()
                    one.writer.write(cut)
                    await one.writer.drain()
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert not receiver.taken
            async with sender(port) as one:
                await one.hear()
                assert (await one.mail(GOOD)).startswith(b"250")
        assert [taken.body for taken in receiver.taken] == [b"<a/>\r\n"]

    run(work())


def test_what_comes_before_it_is_asked_for_is_no_mail_and_no_command() -> None:
    """Commands that were put behind DATA by somebody else must not become the text of a mail, nor
    what stands in a mail a command."""

    async def work() -> None:
        receiver = Receiver()
        async with listening(receiver) as port, sender(port) as one:
            await one.hear()
            for word in (b"EHLO x\r\n", b"MAIL FROM:<a@a.example>\r\n"):
                await one.say(word)
            await one.say(b"RCPT TO:<%s>\r\n" % MAILBOX.encode())
            told = await one.say(b"DATA\r\n" + GOOD + b".\r\n")
            assert told.startswith(b"503")
            assert await one.hear() == b""
        assert not receiver.taken

    run(work())


@pytest.mark.requirement("TRN-3")
@pytest.mark.parametrize("seed", range(3))
def test_the_text_of_a_mail_is_what_was_sent_however_it_is_cut(seed: int) -> None:
    """Dots are put before dots, and only a dot that is a line ends it."""
    chance = random.Random(seed)
    bits = (b"\r\n", b".", b"..", b"\n", b"\r", b"\n.\n", b"\r\n..", b"x", b"y" * 3000)

    async def work() -> None:
        receiver = Receiver()
        async with listening(receiver) as port, sender(port) as one:
            await one.hear()
            for _ in range(60):
                text = b"".join(chance.choices(bits, k=chance.randint(0, 12))) + b"\r\n"
                stuffed = (b"\r\n" + text).replace(b"\r\n.", b"\r\n..")[2:]
                assert (await one.begin()).startswith(b"354")
                whole = b"X: y\r\n\r\n" + stuffed + b".\r\n"
                while whole:
                    cut = chance.choice((1, 2, 3, 5, 900, 1100, 5000))
                    one.writer.write(whole[:cut])
                    whole = whole[cut:]
                    await asyncio.sleep(0)
                assert (await one.hear()).startswith(b"250")
                assert receiver.taken.pop().body == text

    run(work())


def test_a_handshake_that_never_ends_gives_its_place_back(tmp_path: Path) -> None:
    async def work() -> None:
        tls = server_context(Certificates(tmp_path).server())
        async with listening(Receiver(), tls=tls, connections=2, header_wait=0.4) as port:
            for _ in range(6):
                async with sender(port) as silent:
                    assert (await silent.hear()).startswith(b"220")
                    await silent.say(b"EHLO x\r\n")
                    assert (await silent.say(b"STARTTLS\r\n")).startswith(b"220")
                    # It says nothing more, and is still there when the next one comes.
                    assert await silent.reader.read() == b""

    run(work())


def test_bytes_of_strangers_count_as_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has sent enough of what nobody wants is told so before his next mail is heard."""
    monkeypatch.setattr(smtp_listener, "SECONDS_FOR_A_BYTE", 1e-6)

    async def work() -> None:
        budget = BudgetLimits(processor=2.0, processor_per_address=1.0)
        async with listening(drop, budget=budget) as port, sender(port) as one:
            await one.hear()
            body = b"X: y\r\n\r\n" + b"a\r\n" * 400_000
            # It was taken, and what it cost counts against the next.
            assert (await one.mail(body)).startswith(b"250")
            assert (await one.begin()).startswith(b"451")

    run(work())


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"MAIL FROM:<>\r\n", b"250"),
        (b"MAIL FROM: <a@a.example> SIZE=1000\r\n", b"250"),
        (b"MAIL FROM:a@a.example\r\n", b"250"),
        (b"MAIL FROM:<a@a.example> SIZE=99999999999\r\n", b"552"),
        (b"MAIL FROM:<a b@a.example>\r\n", b"553"),
        (b"MAIL FROM:<" + b"(" * 450 + b"\r\n", b"553"),
        (b"MAIL FROM:\r\n", b"5"),
    ],
)
def test_senders_are_understood_as_mail_servers_write_them(sent: bytes, answer: bytes) -> None:
    async def work() -> None:
        async with listening(Receiver()) as port, sender(port) as one:
            await one.hear()
            await one.say(b"EHLO x\r\n")
            assert (await one.say(sent)).startswith(answer)

    run(work())
