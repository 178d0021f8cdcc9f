"""What strangers leave behind at the HTTP endpoint: no place, no bytes; over real sockets."""

import asyncio
import contextlib
import gc
import socket
import tracemalloc

import pytest

from oncewire.transport.budget import BudgetLimits
from oncewire.transport.contract import Delivery, Reply
from oncewire.transport.http.server import HttpLimits
from oncewire.transport.http.transport import HttpTransport
from tests.transport.exchange import Receiver, endpoint, leap, port_of, post, talk

MEGABYTE = 1024 * 1024


async def all_gone(transport: HttpTransport) -> None:
    """Wait until no place is taken any more, as it must be once everybody has left."""
    async with asyncio.timeout(20):
        while transport.connections:
            await asyncio.sleep(0.01)


# --- places ------------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_connection_that_asks_while_it_is_thrown_out_gives_its_place_back() -> None:
    """In Python 3.11 a request's task begins a turn after its connection may be gone."""
    places = 8

    async with endpoint(Receiver(), limits=HttpLimits(connections=places)) as transport:
        where = ("127.0.0.1", port_of(transport.url))
        for turn in range(4):
            old = [socket.create_connection(where) for _ in range(places)]
            while transport.connections < places:
                await asyncio.sleep(0.01)
            # Old enough to be thrown out.
            leap(1.1)
            # Each asks something, and at the same moment somebody wants his place.
            new = [] if turn % 2 else [socket.create_connection(where) for _ in old]
            for one in old:
                one.sendall(post(b"<a/>"))
            new = new or [socket.create_connection(where) for _ in old]
            await asyncio.sleep(0.1)
            for one in (*old, *new):
                one.close()
            await all_gone(transport)
        assert b" 204 " in await talk(transport.url, post(b"<a/>", "Connection: close"))


# --- bytes -------------------------------------------------------------------------------------


async def _keeps(delivery: Delivery) -> Reply:
    """A handler that holds what came so far, as one must that wants the whole."""
    pieces = []
    async for piece in delivery.body:
        pieces.append(piece)  # noqa: PERF401 - a name for it, as a frame has that is kept alive
    return Reply(204)


async def test_what_came_of_an_aborted_body_is_freed_at_once() -> None:
    """No garbage collection is waited for: what is gone is not referred to any more."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with endpoint(_keeps) as transport:
            head = f"POST /msh HTTP/1.1\r\nHost: h\r\nContent-Length: {64 * MEGABYTE}\r\n\r\n"
            for _ in range(6):
                _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
                writer.write(head.encode() + bytes(4 * MEGABYTE))
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.transport.abort()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                await all_gone(transport)
            assert tracemalloc.get_traced_memory()[0] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()
        gc.enable()


# --- budgets -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.within(20)
async def test_a_body_that_was_quick_at_first_may_not_drip_for_hours() -> None:
    """A megabyte at once had earned four minutes of a byte every now and then."""
    limits = HttpLimits(body_rate=4096, body_grace=0.5, body_pause=60.0)
    async with endpoint(Receiver(), limits=limits) as transport:
        head = post(b"x" * MEGABYTE, length=2 * MEGABYTE)
        drip = [b"y"] * 100
        # In less than the pause that is allowed, after which it would be refused too.
        assert b" 408 " in await talk(transport.url, head, *drip, pause=0.05, heeding=True)


async def test_who_is_refused_too_often_is_told_to_come_back() -> None:
    budget = BudgetLimits(refusals=5)

    refusing = Receiver(Reply(500, refused=True))
    async with endpoint(refusing, budget=budget) as transport:
        answers = [
            await talk(transport.url, post(b"<a/>", "Connection: close")) for _ in "abcdefgh"
        ]
    assert all(b" 500 " in one for one in answers[:5])
    # One more may slip in while time runs.
    assert all(b" 429 " in one and b"Retry-After: " in one for one in answers[6:])
    # Nobody read what they sent.
    assert len(refusing.taken) <= 6


async def test_what_the_handler_may_not_take_is_answered_by_the_endpoint() -> None:
    budget = BudgetLimits(spool=4 * MEGABYTE)

    async def spooling(delivery: Delivery) -> Reply:
        async for piece in delivery.body:
            delivery.allowance.spool(len(piece))
        return Reply(204)

    async with endpoint(spooling, budget=budget) as transport:
        small = post(bytes(MEGABYTE), "Connection: close")
        assert b" 204 " in await talk(transport.url, small)
        answer = await talk(transport.url, post(bytes(2 * MEGABYTE), "Connection: close"))
        assert b" 429 " in answer
        # What was counted is given back.
        assert b" 204 " in await talk(transport.url, small)


async def test_a_partner_comes_in_when_strangers_have_every_place() -> None:
    """They are at work, every one of them: each sends a body that never ends."""
    places = 12

    receiver = Receiver(Reply(204, known=True))
    limits = HttpLimits(connections=places)
    async with endpoint(receiver, limits=limits) as transport:
        port = port_of(transport.url)
        assert b" 204 " in await talk(transport.url, post(b"<a/>", "Connection: close"))
        strangers = [
            await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(f"127.0.0.{2 + number}", 0)
            )
            for number in range(places)
        ]
        for _, writer in strangers:
            writer.write(post(b"x", length=MEGABYTE))
        while receiver.begun < 1 + places:
            await asyncio.sleep(0.01)
        late, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.1.1", 0))
        assert b" 503 " in await late.read()
        writer.close()
        for _ in range(3):
            assert b" 204 " in await talk(transport.url, post(b"<a/>", "Connection: close"))
        for _, writer in strangers:
            writer.close()


async def test_one_address_does_not_take_every_place() -> None:
    limits = HttpLimits(connections=40, per_address=10)
    async with endpoint(Receiver(), limits=limits) as transport:
        port = port_of(transport.url)
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        async with asyncio.timeout(20):
            while transport.connections != 10:
                await asyncio.sleep(0.01)
        answer, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.9", 0)
        )
        writer.write(post(b"<a/>", "Connection: close"))
        assert b" 204 " in await answer.read()
        for _, one in (*many, (answer, writer)):
            one.close()
