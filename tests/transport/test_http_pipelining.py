"""Several messages on one HTTP connection: each is answered in its turn, and none is smuggled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from oncewire.transport.contract import Cargo, Delivery, OutcomeKind, Reply
from oncewire.transport.http import server
from oncewire.transport.http.client import HttpClient, HttpClientSettings
from oncewire.transport.http.head import HELD_MAX
from oncewire.transport.http.server import HttpLimits
from tests.transport.exchange import (
    LOOPBACK,
    Receiver,
    Taken,
    cargo,
    endpoint,
    fake_peer,
    port_of,
    post,
    read_request,
    talk,
)

MEGABYTE = 1024 * 1024


def alive(body: bytes, *headers: str) -> bytes:
    return post(body, *headers).replace(b"Connection: close\r\n", b"")


async def written_until_nobody_reads(writer: asyncio.StreamWriter, block: bytes, most: int) -> int:
    """How many bytes went away before the other side stopped to read them.

    Counted in turns of the loop, which both sides share, so that a slow machine changes nothing.
    """
    sent = 0
    while sent < most:
        writer.write(block)
        sent += len(block)
        draining = asyncio.ensure_future(writer.drain())
        for turn in range(200):
            await asyncio.sleep(0 if turn < 100 else 0.002)
            if draining.done():
                break
        else:
            draining.cancel()
            break
    return sent


# --- the endpoint ------------------------------------------------------------------------------


async def test_requests_that_come_together_are_answered_in_order() -> None:
    async def slower_first(taken: Taken) -> Reply:
        await asyncio.sleep(0.05 if taken.body == b"1" else 0)
        return Reply(200, "text/plain", body=b"re:" + taken.body)

    receiver = Receiver(slower_first)
    async with endpoint(receiver) as transport:
        answer = await talk(
            transport.url, alive(b"1") + b"\r\n" + alive(b"2") + post(b"3") + post(b"4")
        )
    # The third asked to close: whatever follows was not asked.
    assert [part[:4] for part in answer.split(b"\r\n\r\n")[1:]] == [b"re:1", b"re:2", b"re:3"]
    assert [taken.body for taken in receiver.taken] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "first",
    [
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 4\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\n",
        b"POST /msh HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
        b"GET /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\n",
        b"POST /other HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_nothing_is_served_behind_a_request_that_is_refused(first: bytes) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        answer = await talk(transport.url, first + alive(b"<smuggled/>"))
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answer
        assert answer.split(b" ")[1] in {b"400", b"404", b"405"}
    assert not receiver.taken


async def test_who_sends_ahead_without_end_waits() -> None:
    """Beyond a bound it is not read, so it stays with its sender."""
    gate = asyncio.Event()

    async def slow(_: Taken) -> Reply:
        await gate.wait()
        return Reply(204)

    async with endpoint(Receiver(slow)) as transport:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        ahead = alive(b"x" * 1000) * 100
        sent = await written_until_nobody_reads(writer, ahead, 60 * MEGABYTE)
        # The kernel's own buffers are a few megabytes.
        assert sent < 50 * MEGABYTE
        writer.transport.abort()
        gate.set()


async def test_a_body_that_nobody_takes_waits_with_its_sender() -> None:
    gate = asyncio.Event()

    async def later(delivery: Delivery) -> Reply:
        await gate.wait()
        async for _ in delivery.body:
            pass
        return Reply(204)

    async with endpoint(later) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"", length=60 * MEGABYTE))
        block = bytes(HELD_MAX)
        sent = await written_until_nobody_reads(writer, block, 60 * MEGABYTE)
        assert sent < 50 * MEGABYTE
        gate.set()
        while sent < 60 * MEGABYTE:
            writer.write(block)
            sent += len(block)
            await writer.drain()
        assert b" 204 " in await reader.read()
        writer.close()


async def test_whoever_does_not_read_his_answers_gets_no_more_of_them() -> None:
    receiver = Receiver(Reply(200, "text/plain", body=bytes(4 * MEGABYTE)))
    async with endpoint(receiver) as transport:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(alive(b"x") * 100)
        seen = -1
        while len(receiver.taken) != seen:
            seen = len(receiver.taken)
            await asyncio.sleep(0.3)
        assert seen < 20
        writer.transport.abort()


async def test_an_answer_before_the_end_of_a_body_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "LINGER_SECONDS", 30.0)

    async with endpoint(Receiver(), limits=HttpLimits(max_body=1000)) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"", length=5 * MEGABYTE))
        for _ in range(5):
            # A client that writes everything before it reads anything.
            writer.write(bytes(MEGABYTE))
            await writer.drain()
        assert b" 413 " in await reader.read()
        writer.close()


async def test_who_talks_on_after_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.2)

    async with endpoint(Receiver(), limits=HttpLimits(max_body=1000)) as transport:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"", length=5 * MEGABYTE))
        with contextlib.suppress(ConnectionError):
            while transport.connections or not writer.transport.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
                if not transport.connections:
                    break
        writer.close()


# --- the client --------------------------------------------------------------------------------


async def talking(answer: bytes, *, more: bytes = b"", count: int = 1) -> list[OutcomeKind]:
    """How attempts end at a peer that answers each with these bytes, and says more later."""
    asked_again_soon, all_said = asyncio.Event(), asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(answer)
            if more:
                await asked_again_soon.wait()
                writer.write(more)
            all_said.set()
            await writer.drain()

    client = HttpClient(HttpClientSettings(addresses=LOOPBACK))
    await client.start()
    kinds = []
    async with fake_peer(peer) as url:
        for _ in range(count):
            kinds.append((await client.send(cargo(b"<a/>"), url, timeout=10)).kind)
            # What is said meanwhile has come before the next attempt: by turns of the loop.
            asked_again_soon.set()
            await all_said.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            asked_again_soon.clear()
            all_said.clear()
    await client.close()
    return kinds


async def test_an_answer_before_the_answer_is_passed_over() -> None:
    first = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert await talking(first + last) == [OutcomeKind.SENT]
    assert await talking(first * 50 + last) == [OutcomeKind.UNKNOWN]
    assert await talking(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + last) == [
        OutcomeKind.UNKNOWN
    ]


@pytest.mark.parametrize("later", [False, True])
async def test_an_answer_that_nobody_asked_for_is_nobodys(later: bool) -> None:
    """The second attempt would believe what was said before it was made."""
    good = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    if later:
        found = await talking(good, more=forged, count=3)
    else:
        found = await talking(good + forged, count=3)
    assert found == [OutcomeKind.UNKNOWN] * 3


async def test_an_answer_may_end_with_its_connection() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/xml\r\n\r\n<ack/>")
        await writer.drain()

    client = HttpClient(HttpClientSettings(addresses=LOOPBACK))
    await client.start()
    async with fake_peer(peer) as url:
        outcome = await client.send(cargo(b"<a/>"), url, timeout=10)
    await client.close()
    assert outcome.reply is not None
    assert (outcome.reply.status, outcome.reply.body) == (200, b"<ack/>")


async def test_who_is_answered_early_sends_no_more() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(5)

    given = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(10_000):
            given += 1
            yield bytes(100_000)

    client = HttpClient(HttpClientSettings(addresses=LOOPBACK))
    await client.start()
    async with fake_peer(peer) as url:
        big = Cargo("text/xml", (), 1_000_000_000, pieces)
        outcome = await client.send(big, url, timeout=10)
    await client.close()
    assert outcome.kind is OutcomeKind.REFUSED
    assert outcome.reply is not None
    assert outcome.reply.status == 413
    assert given < 1000


async def test_turns_are_waited_for_and_given_back() -> None:
    open_now = most = 0

    async def slow(_: Taken) -> Reply:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.02)
        open_now -= 1
        return Reply(204)

    settings = HttpClientSettings(addresses=LOOPBACK, connections_per_host=3)
    async with endpoint(Receiver(slow), client=settings) as transport:
        url = transport.url
        gone = [
            asyncio.ensure_future(transport.send(cargo(b"x"), url, timeout=10)) for _ in range(10)
        ]
        await asyncio.sleep(0.01)
        for one in gone[1:8]:
            one.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        # Whoever waited too long leaves no turn behind him either.
        late = await asyncio.gather(
            *(transport.send(cargo(b"x"), url, timeout=0.001) for _ in range(10))
        )
        assert {one.kind for one in late} <= {OutcomeKind.REFUSED, OutcomeKind.UNKNOWN}
        # The endpoint goes on with what nobody waits for any more.
        while open_now:
            await asyncio.sleep(0.01)
        most = 0
        all_of_them = await asyncio.gather(
            *(transport.send(cargo(b"x"), url, timeout=30) for _ in range(20))
        )
        assert {one.kind for one in all_of_them} == {OutcomeKind.SENT}
    assert most <= 3


@pytest.mark.within(10)
async def test_what_is_under_way_ends_with_the_client() -> None:
    async def peer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await asyncio.sleep(30)

    closed: list[int] = []
    asked = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"<a/>"
            yield b"<b/>"
        finally:
            closed.append(1)

    client = HttpClient(HttpClientSettings(addresses=LOOPBACK))
    await client.start()
    async with fake_peer(peer) as url:
        sent = Cargo("text/xml", (), 8, pieces)
        sending = asyncio.ensure_future(client.send(sent, url, timeout=30))
        await asked.wait()
        await client.close()
        outcome = await sending
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert closed == [1]


@pytest.mark.within(10)
async def test_a_request_that_nobody_can_answer_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("oncewire.transport.http.server._response", broken)

    async with endpoint(Receiver()) as transport:
        assert await talk(transport.url, post(b"<a/>")) == b""
    assert "a request could not be answered" in caplog.text


async def test_an_idle_connection_of_ours_is_closed() -> None:
    settings = HttpClientSettings(addresses=LOOPBACK, pool_idle=0.1)
    async with endpoint(Receiver(), client=settings) as transport:
        await transport.send(cargo(b"x"), transport.url, timeout=10)
        assert transport.connections == 1
        while transport.connections:
            await asyncio.sleep(0.01)
        outcome = await transport.send(cargo(b"x"), transport.url, timeout=10)
        assert outcome.kind is OutcomeKind.SENT
