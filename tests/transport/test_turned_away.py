"""Nobody is sent away in silence, and nobody fills a log by being sent away."""

import asyncio
import logging

import pytest

from oncewire.transport.budget import AGAIN, BudgetLimits, TurnedAway
from oncewire.transport.contract import Peer
from oncewire.transport.http.server import HttpLimits
from tests.transport.exchange import Receiver, endpoint, port_of

HERE = Peer("192.0.2.1")


def test_each_reason_is_told_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    time, called = [0.0], []
    turned = TurnedAway(lambda: time[0])
    turned.call = called.append
    with caplog.at_level(logging.WARNING):
        for known in (False, True, True, False, False):
            turned.count(HERE, "too many at once", known=known)
        time[0] += AGAIN
        turned.count(HERE, "too many at once", known=False)
        for number in range(1000):
            turned.count(HERE, f"reason {number}", known=False)
    told = [(one.message, one.repeats) for one in caplog.records[:3]]  # type: ignore[attr-defined]
    assert told == [
        ("strangers are sent away for a while", 0),
        ("partners are sent away for a while", 0),
        ("strangers are sent away for a while", 2),
    ]
    assert len(called) == 1
    assert "too many at once" in called[0]


@pytest.mark.parametrize("full", ["requests", "connections"])
async def test_the_endpoint_tells_of_those_it_sends_away(
    caplog: pytest.LogCaptureFixture, full: str
) -> None:
    requests = full == "requests"
    limits = HttpLimits(connections=1000 if requests else 1)
    budget = BudgetLimits(strangers=1, patience=0.05)

    with caplog.at_level(logging.WARNING):
        async with endpoint(Receiver(), limits=limits, budget=budget) as transport:
            lines, writers = [], []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
                writer.write(b"POST /msh HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
                lines.append(asyncio.ensure_future(reader.readline()))
                writers.append(writer)
            # One of them is let in, and says no more.
            (sent_away,), _ = await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
            for writer in writers:
                writer.close()
            assert b" 503 " in await sent_away
    (line,) = [one for one in caplog.records if "sent away" in one.message]
    assert line.message.startswith("strangers")
