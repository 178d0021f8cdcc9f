"""Fuzz the whole way: bytes on a socket, or a body in this process, to a stored message.

Whatever comes, the handler gives an answer within a deadline, raises nothing, stores only what an
unharmed message says, and the next honest message gets through.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Source
from oncewire.handler.context import HandlerContext
from oncewire.handler.receiving.inbound import Intake
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.message.form import Form
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.budget import BudgetLimits
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.fuzz.cases import Broken, chance_of
from tests.fuzz.mutations import mutated
from tests.handler.network import agreement_text
from tests.handler.test_http import message

DEADLINE = 10.0
"""Seconds of this process's work for one case; a millisecond is usual. Those of a clock would ask
how busy the machine is."""
HANGING = 600.0
"""Seconds of a clock after which nobody works on a case any more."""
RENEWED_EVERY = 2_000
"""Cases until the store in memory begins anew."""
AT_ONCE = 64
SYNC = '[sync]\nmode = "mshSignalsOnly"\n'
# Everything comes from one address here, and nearly all of it is refused.
UNBOUNDED = BudgetLimits(
    refusals=10**9, processor=1e9, processor_per_address=1e9, strangers=256, per_address=256
)


class Escaped(logging.Handler):
    """Keeps what a handler logged as an error: that is where an exception ends that escaped."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


def honest(number: int, seed: int) -> Parcel:
    """A message that is as it should be."""
    small = message(number, message_id=f"good-{seed}-{number}@alpha")
    return codec.write(small, Form(), boundary="fuzz")


def body_of(seed: int, number: int) -> tuple[random.Random, Parcel]:
    """The body of a case; now and then it is not harmed at all."""
    chance = chance_of(seed, number)
    good = honest(number, seed)
    if chance.random() < 0.02:
        return chance, good
    body = mutated(chance, good.body)
    kind = (
        good.content_type
        if chance.random() < 0.9
        else _text(mutated(chance, good.content_type.encode()))
    )
    return chance, Parcel(kind, body, good.headers)


def _text(data: bytes) -> str:
    return "".join(chr(byte) for byte in data if 32 <= byte < 127)[:2000]


# --- in process --------------------------------------------------------------------------------


class InProcess:
    """Bodies that go straight to the engine, whole or in pieces."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self._engine = self._fresh()

    def _fresh(self) -> Engine:
        agreement = read_toml(agreement_text("beta", "alpha", "ebms2", SYNC))
        node = HandlerContext("beta", MemoryStore("beta"), Agreements([agreement]), RealWorld())
        engine = Engine(node)
        engine.start()
        engine.commit()
        return engine

    def run(self, number: int) -> None:
        """Judge one case."""
        if number % RENEWED_EVERY == 0:
            self._engine = self._fresh()
        chance, parcel = body_of(self._seed, number)
        began = time.process_time()
        self._receive(chance, parcel)
        took = time.process_time() - began
        self.slowest = max(self.slowest, took)
        if took > DEADLINE:
            raise Broken(f"it took {took:.1f} seconds")

    def _receive(self, chance: random.Random, parcel: Parcel) -> None:
        engine = self._engine
        source = Source("http", can_answer=True, address="192.0.2.1")
        if chance.random() < 0.5:
            answer = engine.receive(parcel, source)
        else:
            spool = engine.context.store.spool
            intake = Intake(spool, parcel.content_type, parcel.headers, engine.context.limits)
            intake.begin()
            intake.feed(pieces(chance, parcel.body))
            stored, reading, spooled = intake.finish()
            answer = engine.receive(spooled, source, stored, reading)
            for name in stored.spooled:
                spool.let_go(name)
        engine.commit()
        if answer.status not in (200, 204, 400, 500):
            raise Broken(f"it was answered with {answer.status}")
        if answer.partner_is_there and answer.refused:
            raise Broken("it shows a partner, and is refused")
        self.outcomes["refused" if answer.refused else "taken"] += 1


def pieces(chance: random.Random, body: bytes) -> list[bytes]:
    """The body in a few pieces."""
    cuts = sorted(chance.randint(0, len(body)) for _ in range(chance.choice((0, 1, 3, 20))))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


# --- over sockets ------------------------------------------------------------------------------


class OverSockets:
    """Bytes on connections to a handler with a real store and a real listener."""

    def __init__(self, seed: int, handler: Handler, port: int) -> None:
        self._seed, self._handler, self._port = seed, handler, port
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, numbers: range) -> None:
        """Judge many cases, some at a time; at the end an honest message gets through."""
        await asyncio.gather(*(self._one(number) for number in numbers))
        good = honest(numbers.stop + 10**9, self._seed)
        answer = await self._ask(request(good))
        if b"Acknowledgment" not in answer:
            raise Broken(f"an honest message got {answer[:200]!r}")
        for taken in await self._handler.take(10_000):
            await self._handler.confirm(taken.sender, taken.message_id)

    async def _one(self, number: int) -> None:
        chance, parcel = body_of(self._seed, number)
        data = request(parcel)
        if chance.random() < 0.3:
            data = mutated(chance, data)
        async with self._turns:
            worked = time.process_time()
            asking = asyncio.ensure_future(self._ask(data, chance))
            end = time.monotonic() + HANGING
            while not (await asyncio.wait((asking,), timeout=1.0))[0]:
                if time.process_time() - worked > DEADLINE or time.monotonic() > end:
                    asking.cancel()
                    raise Broken(f"case {number} of seed {self._seed} got no answer in time")
            answer = asking.result()
            self.slowest = max(self.slowest, time.process_time() - worked)
        self.outcomes[answer[9:12].decode("latin-1") or "closed"] += 1

    async def _ask(self, data: bytes, chance: random.Random | None = None) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for piece in [data] if chance is None else pieces(chance, data):
                writer.write(piece)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


def request(parcel: Parcel) -> bytes:
    """A POST of a parcel."""
    head = "POST /msh HTTP/1.1\r\nHost: beta\r\nConnection: close\r\n"
    head += f"Content-Type: {parcel.content_type}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in parcel.headers)
    return f"{head}Content-Length: {len(parcel.body)}\r\n\r\n".encode() + parcel.body


@asynccontextmanager
async def over_sockets(folder: Path, seed: int) -> AsyncIterator[OverSockets]:
    """A handler to fuzz; whatever escaped in it is raised at the end."""
    agreement = read_toml(agreement_text("beta", "alpha", "ebms2", SYNC))
    store = SqliteStore(folder / "beta.db", node="beta")
    node = HandlerContext("beta", store, Agreements([agreement]), RealWorld())
    # What is not all there is not waited for.
    limits = HttpLimits(
        header_wait=0.4,
        idle_wait=0.4,
        body_pause=0.4,
        body_grace=0.4,
        per_address=1000,
        late=math.inf,
    )
    transport = HttpTransport(HttpServerSettings(limits=limits, budget=UNBOUNDED))
    escaped = Escaped()
    logging.getLogger("oncewire").addHandler(escaped)
    try:
        async with Handler(node, {"http": transport}) as handler:
            yield OverSockets(seed, handler, int(transport.url.split(":")[2].split("/")[0]))
    finally:
        logging.getLogger("oncewire").removeHandler(escaped)
    if escaped.said:
        raise Broken(f"an exception escaped: {escaped.said[0][:2000]}")
