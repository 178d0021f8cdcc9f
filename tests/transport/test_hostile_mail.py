"""Strangers at our mail server: what each may take of connections, memory, lines and time, and that
partners keep their share of it."""

import asyncio
import contextlib
import logging
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
from oncewire.transport.contract import Delivery, Peer, Reply
from oncewire.transport.http.tls import server_context
from oncewire.transport.listener import ListenerLimits
from oncewire.transport.smtp import listener as smtp_connection
from oncewire.transport.smtp.listener import ListenerSettings, SmtpListener
from oncewire.transport.smtp.transport import SmtpTransport
from tests.transport.exchange import Certificates, Receiver, leap, turns

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


async def test_one_address_does_not_close_the_listener_to_others() -> None:
    async with listening(Receiver()) as port, contextlib.AsyncExitStack() as held:
        for _ in range(250):
            silent = await held.enter_async_context(sender(port))
            if not (await silent.hear()).startswith(b"220"):
                break
        async with sender(port, "127.0.0.7") as other:
            assert (await other.hear()).startswith(b"220")
            assert (await other.mail(GOOD)).startswith(b"250")


async def test_a_connection_that_brings_no_mail_is_closed_whatever_it_says() -> None:
    async with listening(Receiver(), header_wait=0.4) as port, sender(port) as chatty:
        await chatty.hear()
        began = time.monotonic()
        while (await chatty.say(b"NOOP\r\n")).startswith(b"250"):
            await asyncio.sleep(0.05)
        assert time.monotonic() - began < 20


async def test_who_asks_without_end_is_hung_up_on_and_holds_nobody_up() -> None:
    async with listening(Receiver()) as port, sender(port) as chatty, turns() as watched:
        await chatty.hear()
        hostile = b'MAIL FROM:<"\\a\\a\\a\\a\\a\\a\\a\\a"@' + b"(" * 400 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            chatty.writer.write(b"EHLO x\r\n" + hostile * 3000)
            await chatty.writer.drain()
        answers = 0
        while answers < 1000 and await chatty.hear():
            answers += 1
        assert 0 < answers < 1000
        assert watched.longest < 0.1


async def test_a_partner_comes_in_when_strangers_have_every_place() -> None:
    """Who proved to be a partner comes in for one of them, also while all of them send mails."""

    async def known(delivery: Delivery) -> Reply:
        await drop(delivery)
        return Reply(204, known=True)

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


async def test_strangers_wait_for_a_place_before_their_mail_is_heard() -> None:
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


async def test_who_says_no_more_while_he_waits_for_a_place_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = SmtpListener(ListenerSettings(MAILBOX, budget=BudgetLimits(strangers=1)))
    await listener.start(drop)
    async with sender(listener.port) as first, sender(listener.port) as second:
        await first.hear()
        await second.hear()
        assert (await first.begin()).startswith(b"354")
        heard = asyncio.ensure_future(second.begin())
        while len(listener._working) < 2:
            await asyncio.sleep(0)
        second.writer.write_eof()
        assert await heard == b""
        assert (await first.say(GOOD, b".\r\n")).startswith(b"250")
        while listener._working:
            await asyncio.sleep(0)
        assert (await first.mail(GOOD)).startswith(b"250")
    await listener.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_who_is_refused_too_often_is_told_to_come_back() -> None:
    budget = BudgetLimits(refusals=3)
    receiver = Receiver(Reply(400, body=b"no", refused=True))
    async with listening(receiver, budget=budget) as port, sender(port) as one:
        await one.hear()
        answers = [await one.mail(GOOD) for _ in range(4)]
        assert (await one.begin()).startswith(b"451")
    assert all(answer.startswith(b"554") for answer in answers)


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
async def test_a_mail_of_many_lines_holds_nobody_up_and_costs_no_memory(text: bytes) -> None:
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


async def test_headers_are_refused_by_their_lines_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncewire.transport import contract

    def never(_lines: list[bytes]) -> None:
        raise AssertionError("they were taken apart")

    monkeypatch.setattr(contract, "header_lines", never)

    receiver = Receiver()
    async with listening(receiver) as port, sender(port) as one:
        await one.hear()
        assert (await one.mail(b"X: y\r\n" * 501)).startswith(b"554")
        # On the same connection: its sender knows that it will never be taken.
        assert (await one.mail(b"X: y\r\n" * 600, b"\r\n", b"x\r\n")).startswith(b"554")
    assert not receiver.taken


async def test_a_mail_that_is_too_large_is_refused_and_one_without_end_is_left() -> None:
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


async def test_a_mail_that_drips_gives_its_place_back() -> None:
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


async def test_half_a_mail_is_handed_over_to_nobody() -> None:
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


async def test_what_comes_before_it_is_asked_for_is_no_mail_and_no_command() -> None:
    """Commands that were put behind DATA by somebody else must not become the text of a mail, nor
    what stands in a mail a command."""

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


@pytest.mark.requirement("TRN-3")
@pytest.mark.parametrize("seed", range(3))
async def test_the_text_of_a_mail_is_what_was_sent_however_it_is_cut(seed: int) -> None:
    """Dots are put before dots, and only a dot that is a line ends it."""
    chance = random.Random(seed)
    bits = (b"\r\n", b".", b"..", b"\n", b"\r", b"\n.\n", b"\r\n..", b"x", b"y" * 3000)

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


async def test_a_handshake_that_never_ends_gives_its_place_back(tmp_path: Path) -> None:
    tls = server_context(Certificates(tmp_path).server())
    async with listening(Receiver(), tls=tls, connections=2, header_wait=0.4) as port:
        for _ in range(6):
            async with sender(port) as silent:
                assert (await silent.hear()).startswith(b"220")
                await silent.say(b"EHLO x\r\n")
                assert (await silent.say(b"STARTTLS\r\n")).startswith(b"220")
                # It says nothing more, and is still there when the next one comes.
                assert await silent.reader.read() == b""


# --- what strangers cost -------------------------------------------------------------------------

FREE = dict.fromkeys(("CONNECTION", "HANDSHAKE", "READ", "BYTE"), 0.0)


@contextlib.asynccontextmanager
async def costly(
    monkeypatch: pytest.MonkeyPatch,
    tls: ssl.SSLContext | None = None,
    receiver: Callable[[Delivery], Awaitable[Reply]] | None = None,
    **costs: float,
) -> AsyncIterator[tuple[SmtpListener, Sender]]:
    """A mail server where a stranger's address has a thousandth of a second in each minute, and
    what cannot be measured costs what is given; and a partner of it."""
    for name, seconds in {**FREE, **costs}.items():
        monkeypatch.setattr(smtp_connection, f"SECONDS_FOR_A_{name}", seconds)
    limits = ListenerLimits(late=math.inf, header_wait=math.inf, idle_wait=math.inf)
    budget = BudgetLimits(processor=math.inf, processor_per_address=0.001)
    listener = SmtpListener(ListenerSettings(MAILBOX, tls=tls, limits=limits, budget=budget))
    listener.budgets._clock = lambda: asyncio.get_running_loop().time()
    listener.budgets.meet(Peer("127.0.0.9"))
    await listener.start(receiver or drop)
    try:
        async with sender(listener.port, "127.0.0.9") as partner:
            assert (await partner.hear()).startswith(b"220")
            yield listener, partner
    finally:
        await listener.stop()


async def kept_waiting(heard: asyncio.Future[Any], partner: Sender) -> bool:
    """Whether he hears nothing while a partner has turn after turn; then an hour goes by."""
    for _ in range(80):
        assert (await partner.say(b"NOOP\r\n")).startswith(b"250")
    waits = not heard.done()
    leap(3600.0)
    return waits


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"NOOP\r\n" * 90, id="NOOP"),
        pytest.param(b"VRFY a@a.example\r\n" * 90, id="VRFY"),
        pytest.param(
            b"MAIL FROM:<a@a.example>\r\nRCPT TO:<beta@beta.example>\r\nRSET\r\n" * 30, id="RSET"
        ),
        pytest.param(b"x" * 24_000_000 + b"\r\n", id="a line without end"),
    ],
)
@pytest.mark.within(math.inf)
async def test_who_says_too_much_waits_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch, words: bytes
) -> None:
    async def hear_all(one: Sender) -> bytes:
        answers = [await one.hear() for _ in range(words.count(b"\n"))]
        return answers[-1]

    async with costly(monkeypatch) as (server, partner), sender(server.port) as one:
        await one.hear()
        await one.say(b"HELO x\r\n")
        one.writer.write(words)
        heard = asyncio.ensure_future(hear_all(one))
        assert await kept_waiting(heard, partner)
        # He is not sent away.
        while not heard.done():
            leap(20.0)
            await asyncio.sleep(0)
        assert (await heard)[:3] in {b"250", b"252", b"500"}


@pytest.mark.within(math.inf)
async def test_a_connection_costs_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        costly(monkeypatch, CONNECTION=0.01) as (server, partner),
        sender(server.port) as one,
    ):
        heard = asyncio.ensure_future(one.hear())
        assert await kept_waiting(heard, partner)
        assert (await heard).startswith(b"220")


@pytest.mark.parametrize("costs", [{"READ": 0.01}, {"BYTE": 0.001}])
@pytest.mark.within(math.inf)
async def test_what_is_heard_costs_its_address(
    monkeypatch: pytest.MonkeyPatch, costs: dict[str, float]
) -> None:
    async with costly(monkeypatch, **costs) as (server, partner), sender(server.port) as one:
        await one.hear()
        heard = asyncio.ensure_future(one.say(b"NOOP\r\n"))
        assert await kept_waiting(heard, partner)
        assert (await heard).startswith(b"250")


@pytest.mark.within(math.inf)
async def test_a_handshake_costs_its_address_and_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a client says when it is told that we are ready is TLS already."""

    tls, trust = server_context(Certificates(tmp_path).server()), ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with (
        costly(monkeypatch, tls, HANDSHAKE=0.01) as (server, partner),
        sender(server.port) as one,
    ):
        await one.hear()
        assert (await one.say(b"STARTTLS\r\n")).startswith(b"220")
        await one.writer.start_tls(trust)
        heard = asyncio.ensure_future(one.say(b"EHLO x\r\n"))
        assert await kept_waiting(heard, partner)
        assert (await heard).startswith(b"250")
        # There is no TLS within TLS.
        assert (await one.say(b"STARTTLS\r\n")).startswith(b"503")
        assert (await one.say(b"NOOP\r\n")).startswith(b"250")


async def overdrawn(
    monkeypatch: pytest.MonkeyPatch, one: Sender, cost: float
) -> asyncio.Future[bytes]:
    """Somebody sends a mail of which each byte costs so much; what he will hear."""
    await one.hear()
    assert (await one.begin()).startswith(b"354")
    monkeypatch.setattr(smtp_connection, "SECONDS_FOR_A_BYTE", cost)
    # More than is heard at once.
    return asyncio.ensure_future(one.say(GOOD + b"<!-- -->" * 500 + b"\r\n", b".\r\n"))


@pytest.mark.within(math.inf)
async def test_who_waits_for_us_is_not_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    async with (
        costly(monkeypatch, receiver=receiver) as (server, partner),
        sender(server.port) as one,
    ):
        heard = await overdrawn(monkeypatch, one, 1e-5)
        assert await kept_waiting(heard, partner)
        assert not receiver.taken
        assert (await heard).startswith(b"250")


@pytest.mark.within(math.inf)
async def test_who_waits_when_the_server_stops_is_not_heard_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with costly(monkeypatch) as (server, partner), sender(server.port) as one:
        heard = await overdrawn(monkeypatch, one, 1e-3)
        assert await kept_waiting(heard, partner)
        stopped = asyncio.ensure_future(server.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        leap(10.0)
        await stopped
        assert not server._working
        assert await heard == b""


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
async def test_senders_are_understood_as_mail_servers_write_them(
    sent: bytes, answer: bytes
) -> None:
    async with listening(Receiver()) as port, sender(port) as one:
        await one.hear()
        await one.say(b"EHLO x\r\n")
        assert (await one.say(sent)).startswith(answer)
