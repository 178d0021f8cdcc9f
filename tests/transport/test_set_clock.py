"""At the endpoint everything goes by the steady clock, and not by the one that people set."""

from __future__ import annotations

import asyncio
import time

import pytest

from oncewire.transport.budget import WINDOW, BudgetLimits, TurnedAway
from oncewire.transport.contract import Peer
from oncewire.transport.http.server import HttpServer
from oncewire.transport.http.transport import HttpTransport
from tests.transport.exchange import Receiver, endpoint, port_of

HERE = Peer("127.0.0.1")
YEARS = 10 * 365 * 86_400
LIMITS = BudgetLimits(refusals=3, known_for=3600.0)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seconds by which somebody has set the clock."""
    by = [0]
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + by[0])
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + by[0] * 10**9)
    return by


def server_of(transport: HttpTransport) -> HttpServer:
    assert transport._server is not None
    return transport._server


async def status(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return line[9:12].decode()


@pytest.mark.parametrize("by", [YEARS, -YEARS, 3600, -3600])
async def test_who_is_sent_away_comes_in_again_when_the_time_is_over(
    wall: list[int], by: int
) -> None:
    async with endpoint(Receiver(), budget=LIMITS) as transport:
        steady = [1000.0]
        server_of(transport)._budgets._clock = lambda: steady[0]
        port = port_of(transport.url)
        assert [await status(port) for _ in range(4)] == ["404", "404", "404", "429"]
        wall[0] = by
        assert await status(port) == "429"
        steady[0] += WINDOW
        assert await status(port) == "404"


@pytest.mark.parametrize("by", [YEARS, -YEARS])
async def test_who_is_known_is_known_for_its_hour(wall: list[int], by: int) -> None:
    async with endpoint(Receiver(), budget=LIMITS) as transport:
        budgets, steady = server_of(transport)._budgets, [1000.0]
        budgets._clock = lambda: steady[0]
        budgets.meet(HERE)
        wall[0] = by
        assert budgets.is_known(HERE)
        steady[0] += 3599.0
        assert budgets.is_known(HERE)
        wall[0] = 0
        steady[0] += 2.0
        assert not budgets.is_known(HERE)


@pytest.mark.parametrize("by", [YEARS, -YEARS])
async def test_a_connection_that_was_open_is_served_on(wall: list[int], by: int) -> None:
    async with endpoint(Receiver()) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        for set_by in (0, by, 0):
            wall[0] = set_by
            writer.write(b"POST /msh HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n<a/>")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert head.startswith(b"HTTP/1.1 2")
            length = [
                int(line.split(b":")[1])
                for line in head.splitlines()
                if line.lower().startswith(b"content-length")
            ]
            await reader.readexactly(length[0] if length else 0)
        writer.close()


def test_nothing_at_the_endpoint_reads_the_clock_that_people_set() -> None:
    """What is told now and then goes by the steady one too."""
    from oncewire.transport import budget, listener
    from oncewire.transport.http import server

    for module in (budget, listener, server):
        assert not {"time", "time_ns", "datetime"} & set(vars(module)), module
    assert HttpServer().turned_away._seldom._now is time.monotonic
    assert isinstance(HttpServer().turned_away, TurnedAway)
