"""What strangers leave behind at the HTTP endpoint: no place, no bytes; over real sockets."""

import asyncio
import contextlib
import gc
import socket
import tracemalloc

from oncewire.transport.contract import Delivery, Reply
from oncewire.transport.http import HttpTransport
from oncewire.transport.http_listener import HttpLimits
from tests.transport.exchange import Receiver, endpoint, port_of, post, run, talk

MEGABYTE = 1024 * 1024


async def gone(transport: HttpTransport) -> int:
    """How many places are still taken once everybody has left, and the loop had its time."""
    for _ in range(200):
        if not transport.connections:
            break
        await asyncio.sleep(0.01)
    return transport.connections


# --- places ------------------------------------------------------------------------------------


def test_a_connection_that_asks_while_it_is_thrown_out_gives_its_place_back() -> None:
    """In Python 3.11 a request's task begins a turn after its connection may be gone."""
    places = 8

    async def work() -> None:
        async with endpoint(Receiver(), limits=HttpLimits(connections=places)) as transport:
            where = ("127.0.0.1", port_of(transport.url))
            for _ in range(3):
                old = [socket.create_connection(where) for _ in range(places)]
                # Old enough to be thrown out.
                await asyncio.sleep(1.1)
                # Somebody wants a place, and at the same moment each asks something.
                new = [socket.create_connection(where) for _ in range(places)]
                for one in old:
                    one.sendall(post(b"<a/>"))
                await asyncio.sleep(0.1)
                for one in (*old, *new):
                    one.close()
                assert await gone(transport) == 0
            assert b" 204 " in await talk(transport.url, post(b"<a/>", "Connection: close"))

    run(work())


# --- bytes -------------------------------------------------------------------------------------


async def _keeps(delivery: Delivery) -> Reply:
    """A handler that holds what came so far, as one must that wants the whole."""
    pieces = []
    async for piece in delivery.body:
        pieces.append(piece)  # noqa: PERF401 - a name for it, as a frame has that is kept alive
    return Reply(204)


def test_what_came_of_an_aborted_body_is_freed_at_once() -> None:
    """No garbage collection is waited for: what is gone is not referred to any more."""

    async def work() -> int:
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
                assert await gone(transport) == 0
            return tracemalloc.get_traced_memory()[0]

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        assert run(work()) < 4 * MEGABYTE
    finally:
        tracemalloc.stop()
        gc.enable()
