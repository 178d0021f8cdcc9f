"""While the event loop is late, strangers are sent away as they come, all but a few."""

from __future__ import annotations

import asyncio

from oncewire.transport.budget import FEW, Lag
from oncewire.transport.contract import Peer
from tests.transport.exchange import Receiver, endpoint, port_of


def taken(lag: Lag, count: int, now: float) -> int:
    return sum(lag.takes_stranger(now) for _ in range(count))


def test_in_time_everybody_comes_in_and_late_only_a_few() -> None:
    lag = Lag(0.05)
    assert taken(lag, 1000, 0.0) == 1000
    lag.saw(0.5)
    # All of a second's were taken already.
    assert taken(lag, 1000, 0.0) == 0
    assert taken(lag, 1000, 0.5) == FEW / 2
    assert taken(lag, 1000, 100.0) == FEW
    # A clock that goes backwards brings nobody in, and keeps nobody out for ever.
    assert taken(lag, 1000, 50.0) == 0
    assert taken(lag, 1000, 51.0) == FEW


def test_a_loop_that_is_in_time_again_is_believed_after_a_while() -> None:
    lag = Lag(0.05)
    lag.saw(0.2)
    lag.saw(0.0)
    assert lag.is_late
    lag.saw(0.0)
    lag.saw(0.0)
    assert not lag.is_late


async def test_a_partner_is_let_in_where_strangers_are_not() -> None:
    async def line(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n")
        said = await asyncio.wait_for(reader.readline(), 20)
        writer.close()
        return said

    # A loop is never so early that this would not be late.
    async with endpoint(Receiver(), late=-1.0) as transport:
        server = transport._server
        assert server is not None
        assert server._listener is not None
        server._listener._lag._few = 0.0
        server._listener._lag._counted_at = float("inf")
        assert b"503" in await line(port_of(transport.url))
        server._budgets.meet(Peer("127.0.0.1"))
        assert b"404" in await line(port_of(transport.url))
