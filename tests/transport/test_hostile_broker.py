"""A broker that lies, and strangers who publish to our subject: memory and time have an end."""

import asyncio
import contextlib
import json
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from oncewire.errors import TransportProblem
from oncewire.transport.broker import transport
from oncewire.transport.broker.transport import BrokerAccount, BrokerTransport, Connection
from oncewire.transport.contract import Delivery, Reply
from tests.transport.brokers import broker
from tests.transport.exchange import Receiver, listening
from tests.waiting import until

INFO = json.dumps({"server_id": "x", "max_payload": 2**40, "headers": True}).encode()


class Liar:
    """Speaks just enough NATS to be connected to, and then without end."""

    def __init__(self, begin: bytes, each: bytes) -> None:
        self.begin, self.each = begin, each
        self.told = 0
        self.left = asyncio.Event()

    def running(self) -> AbstractAsyncContextManager[int]:
        return listening(self._talk)

    async def _talk(self, lines: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(b"INFO " + INFO + b"\r\n")
        with contextlib.suppress(OSError):
            while line := await lines.readline():
                if line.startswith(b"PING"):
                    out.write(b"PONG\r\n")
                    break
            out.write(self.begin)
            while not self.left.is_set():
                self.told += len(self.each)
                out.write(self.each)
                await out.drain()
                await asyncio.sleep(0)
        self.left.set()
        out.close()


@pytest.mark.parametrize(
    ("begin", "each"),
    [
        pytest.param(b"MSG x 1 99999999999\r\n", b"x" * 65536, id="message"),
        pytest.param(b"HMSG x 1 10 99999999999\r\n", b"x" * 65536, id="headers"),
        pytest.param(b"INFO ", b"x" * 65536, id="line"),
    ],
)
@pytest.mark.within(30)
async def test_a_broker_without_end_is_left(begin: bytes, each: bytes) -> None:
    liar = Liar(begin, each)
    async with liar.running() as port:
        connection = Connection(BrokerAccount(f"nats://127.0.0.1:{port}", "http://127.0.0.1:1"))
        with contextlib.suppress(TransportProblem):
            await connection._connect()
        await liar.left.wait()
        await connection.close()
    assert liar.told < 20_000_000


@pytest.mark.within(30)
async def test_monitoring_without_end_is_left() -> None:
    told = 0

    async def talk(lines: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        nonlocal told
        await lines.readuntil(b"\r\n\r\n")
        out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        with contextlib.suppress(OSError):
            while told < 100_000_000:
                told += 65536
                out.write(b" " * 65536)
                await out.drain()
        out.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TransportProblem, match="does not say how it stores"):
        await transport.check_server(f"http://127.0.0.1:{port}")
    server.close()
    assert told < 20_000_000


@pytest.mark.process
async def test_forged_parcels_leave_the_processor_to_others(tmp_path: Path) -> None:
    receiver = Receiver(Reply(400, body=b"no", refused=True))
    with broker(tmp_path) as server:
        taking = BrokerTransport(server.settings("oncewire.beta"))
        await taking.start(receiver)
        js = await taking._connection.until_ready()
        for number in range(60):
            await js.publish("oncewire.beta", b"forged %d" % number)
        before, began = len(receiver.taken), time.monotonic()
        await until(lambda: len(receiver.taken) >= before + 15)
        assert time.monotonic() - began > 0.5
        await taking.stop()


@pytest.mark.process
async def test_large_parcels_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How large one is nobody knows before it comes: so there is one more than fits."""
    monkeypatch.setattr(transport, "_MEMORY", 100_000)

    at_once = most = taken = 0

    async def slow(delivery: Delivery) -> Reply:
        nonlocal at_once, most, taken
        at_once += 1
        most = max(most, at_once)
        async for _ in delivery.body:
            pass
        await asyncio.sleep(0.05)
        at_once -= 1
        taken += 1
        return Reply(204, known=True)

    with broker(tmp_path) as server:
        taking = BrokerTransport(server.settings("oncewire.beta"))
        await taking.start(slow)
        js = await taking._connection.until_ready()
        for _ in range(12):
            await js.publish("oncewire.beta", b"x" * 60_000)
        await until(lambda: taken == 12)
        await taking.stop()
    assert most <= 2
