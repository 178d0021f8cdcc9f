"""The bad network of the demo: it does each harm it promises, and the same with the same seed."""

import asyncio
from collections import Counter

import pytest

from oncewire.lab.demo.ways import FAIR, STORM, ChaosProxy, Weather, read_http

REQUEST = b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n<MessageId>%s</MessageId>"


def request(name: str) -> bytes:
    return REQUEST % (len(name) + 23, name.encode())


class Upstream:
    """A server that answers everything and remembers what arrived whole."""

    def __init__(self) -> None:
        self.arrived: Counter[bytes] = Counter()
        self.broken = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            found = await read_http(reader)
        except asyncio.IncompleteReadError:
            found = None
        if found is None:
            self.broken += 1
        else:
            self.arrived[found.rpartition(b"\r\n\r\n")[2]] += 1
            writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    def stop(self) -> None:
        self._server.close()


async def exchange(weather: Weather, count: int, seed: int = 7) -> tuple[int, Upstream, ChaosProxy]:
    """So many requests, each on a connection of its own; how many were answered."""
    upstream = Upstream()
    proxy = ChaosProxy("test", await upstream.start(), seed, weather)
    port = await proxy.start()

    async def one(number: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(f"m-{number}"))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer.startswith(b"HTTP/1.1 204")

    async def gentle(number: int) -> bool:
        async with slots:
            return await one(number)

    slots = asyncio.Semaphore(20)
    answered = await asyncio.gather(*(asyncio.wait_for(gentle(n), 60) for n in range(count)))
    # Repetitions may still be on their way.
    while proxy._tasks:
        await asyncio.sleep(0.01)
    await proxy.stop()
    upstream.stop()
    return sum(answered), upstream, proxy


async def test_in_fair_weather_everything_passes() -> None:
    upstream = Upstream()
    proxy = ChaosProxy("test", await upstream.start(), 1, FAIR)
    port = await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(3):
        # One connection serves several exchanges, as a client's pool wants it.
        writer.write(request(f"m-{number}"))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 204")
    writer.close()
    await proxy.stop()
    upstream.stop()
    assert proxy.fates == {"passed": 3}


@pytest.mark.long
def test_each_harm_is_done() -> None:
    def fate(weather: Weather) -> tuple[int, Upstream, ChaosProxy]:
        return asyncio.run(exchange(weather, 10))

    answered, upstream, _ = fate(Weather(lost=1.0))
    assert (answered, sum(upstream.arrived.values())) == (0, 0)
    answered, upstream, _ = fate(Weather(answer_lost=1.0))
    assert (answered, sum(upstream.arrived.values())) == (0, 10)
    answered, upstream, _ = fate(Weather(repeated=1.0, late_by=0.05))
    assert (answered, set(upstream.arrived.values())) == (10, {2})
    answered, upstream, proxy = fate(Weather(cut=1.0))
    assert (answered, sum(upstream.arrived.values())) == (0, 0)
    assert proxy.fates["cut"] == 10
    answered, upstream, proxy = fate(Weather(held=1.0, late=1.0, late_by=0.05))
    assert (answered, proxy.fates["held"], proxy.fates["late"]) == (10, 10, 10)


@pytest.mark.long
def test_one_seed_is_one_kind_of_trouble() -> None:
    def fates(seed: int) -> Counter[str]:
        return asyncio.run(exchange(STORM, 60, seed))[2].fates

    assert fates(3) == fates(3)
    assert fates(3) != fates(4)


async def test_chunked_bodies_are_read_whole() -> None:
    reader = asyncio.StreamReader()
    text = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    reader.feed_data(text + b"next")
    found = await read_http(reader)
    assert found == text


async def test_nobody_behind_it_is_a_lost_exchange() -> None:
    proxy = ChaosProxy("test", 9, 1, FAIR)
    reader, writer = await asyncio.open_connection("127.0.0.1", await proxy.start())
    writer.write(request("m"))
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    await proxy.stop()
    assert proxy.fates["nobody_there"] == 1
