"""Connections that fail before they are made leave a line, one for each address and hour."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from oncewire.transport.budget import HANDSHAKE_ADDRESSES_MAX, HOUR, Handshakes
from oncewire.transport.contract import Peer
from oncewire.transport.http.tls import ClientCertificates
from tests.transport.exchange import Certificates, Receiver, endpoint, once, talk


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "no TLS" in record.message]


def test_one_line_for_each_address_and_hour(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    handshakes = Handshakes(lambda: now[0])
    for _ in range(500):
        handshakes.failed(Peer("192.0.2.1"), ConnectionResetError("bytes of a stranger"))
    handshakes.failed(Peer("192.0.2.2"), ssl.SSLError(1, "[SSL: WRONG_VERSION] words"))
    assert [record.address for record in lines(caplog)] == ["192.0.2.1", "192.0.2.2"]  # type: ignore[attr-defined]
    now[0] += HOUR
    handshakes.failed(Peer("192.0.2.1"), TimeoutError())
    assert lines(caplog)[-1].repeats == 499  # type: ignore[attr-defined]
    assert "bytes of a stranger" not in caplog.text


def test_however_many_addresses_there_are_the_lines_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    handshakes = Handshakes(lambda: now[0])
    for number in range(10 * HANDSHAKE_ADDRESSES_MAX):
        handshakes.failed(Peer(f"10.1.{number // 256}.{number % 256}"), OSError())
    assert len(lines(caplog)) == HANDSHAKE_ADDRESSES_MAX + 1
    assert len(handshakes._told) <= HANDSHAKE_ADDRESSES_MAX + 1
    now[0] += HOUR
    handshakes.failed(Peer("192.0.2.9"), OSError())
    assert lines(caplog)[-1].address == "192.0.2.9"  # type: ignore[attr-defined]


@pytest.mark.parametrize("who", ["a scanner", "a stranger's certificate"])
async def test_the_endpoint_tells_of_a_handshake_that_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    world = Certificates(tmp_path)
    stranger = world.identity("buyer.example", authority=world.stranger)

    server = world.server(clients=ClientCertificates.REQUIRED)
    with caplog.at_level(logging.WARNING):
        async with endpoint(Receiver(), tls=server) as transport:
            for _ in range(5):
                if who == "a scanner":
                    await talk(transport.url, b"GET / HTTP/1.0\r\n\r\n")
                else:
                    await once(transport.url, settings=world.client(identity=stranger))
            while not lines(caplog):
                await asyncio.sleep(0.01)
    (told,) = lines(caplog)
    assert told.address == "127.0.0.1"  # type: ignore[attr-defined]
    wanted = "http request" if who == "a scanner" else "certificate"
    assert wanted in told.problem  # type: ignore[attr-defined]
