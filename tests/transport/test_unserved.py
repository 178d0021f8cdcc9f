"""Who comes and is not served is counted, by reason: the metrics tell of it."""

from __future__ import annotations

from pathlib import Path

from oncewire.transport.budget import BudgetLimits, TurnsAway, Unserved
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpLimits
from oncewire.transport.http.transport import HttpTransport
from oncewire.transport.smtp.transport import SmtpTransport
from tests.transport.exchange import LOOPBACK, Certificates, Receiver, endpoint, post, talk
from tests.waiting import until


async def test_who_is_slow_or_over_his_budget() -> None:
    limits, budget = HttpLimits(body_pause=0.1, header_wait=0.2), BudgetLimits(refusals=2)
    async with endpoint(Receiver(), limits=limits, budget=budget) as transport:
        assert isinstance(transport, TurnsAway)
        assert b" 408 " in await talk(transport.url, post(b"<a", length=100))
        assert transport.unserved() == {Unserved.SLOW: 1}
        # One who says nothing at all.
        assert await talk(transport.url) == b""
        assert transport.unserved() == {Unserved.SLOW: 2}
        answers = [await talk(transport.url, post(b"", path="/else")) for _ in range(4)]
        waits = sum(b" 429 " in answer for answer in answers)
        assert waits
        assert transport.unserved()[Unserved.TOLD_TO_WAIT] == waits


async def test_a_handshake_that_fails(tmp_path: Path) -> None:
    async with endpoint(Receiver(), tls=Certificates(tmp_path).server()) as transport:
        await talk(transport.url, b"GET / HTTP/1.0\r\n\r\n")
        await until(lambda: transport.unserved() == {Unserved.HANDSHAKE: 1})


def test_a_transport_that_does_not_listen_turns_nobody_away() -> None:
    assert not HttpTransport(None, HttpClientSettings(addresses=LOOPBACK)).unserved()
    assert not SmtpTransport(None, None, None).unserved()
