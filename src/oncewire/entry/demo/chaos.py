"""Chaos: a bad network on loopback. A proxy that loses, repeats, delays, reorders and cuts.

It reads one HTTP exchange after the other and decides what becomes of each. The fate of the
n-th transmission of a message follows from the seed, the proxy's name, the message's id and n,
so one seed is one kind of trouble, however fast the machine is.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum

_ID = re.compile(rb"<(?:[\w.-]+:)?(?:RefTo)?MessageId>([^<]{1,255})<")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_HEAD_MAX = 64 * 1024
_WAIT_FOR_ANSWER = 30.0


class Fate(StrEnum):
    """What becomes of one exchange."""

    PASSED = "passed"
    LOST = "lost"  # the request never arrives
    ANSWER_LOST = "answer_lost"  # it arrives, and the sender never hears of it
    REPEATED = "repeated"  # it arrives twice
    CUT = "cut"  # the connection breaks in the middle of the request
    HELD = "held"  # a later one overtakes it


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each misfortune is; at most one of these happens to an exchange."""

    lost: float = 0.0
    answer_lost: float = 0.0
    repeated: float = 0.0
    cut: float = 0.0
    held: float = 0.0
    # Besides: how often an exchange comes late, and by how many seconds at most.
    late: float = 0.0
    late_by: float = 0.3


FAIR = Weather()
STORM = Weather(
    lost=0.10, answer_lost=0.10, repeated=0.10, cut=0.05, held=0.10, late=0.3, late_by=0.2
)
"""A third of all exchanges go wrong; a third of the rest come late."""


class ChaosProxy:
    """One direction of a network: from a port of its own to the port of a handler."""

    def __init__(self, name: str, target: int, seed: int, weather: Weather) -> None:
        self.name, self.target, self.weather = name, target, weather
        self.fates: Counter[str] = Counter()
        self._seed = seed
        self._seen: Counter[bytes] = Counter()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Set whenever an exchange has passed: what is held may follow.
        self._passed = asyncio.Event()

    async def start(self, port: int = 0) -> int:
        """Begin to listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(asyncio.current_task())
        try:
            while True:
                request = await read_http(reader)
                if request is None or not await self._exchange(request, writer):
                    return
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return
        finally:
            writer.close()

    def _keep(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _exchange(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer, or what becomes of them; False ends the connection."""
        chance = self._chance(request)
        fate = self._fate(chance)
        self.fates[fate.value] += 1
        if chance.random() < self.weather.late:
            self.fates["late"] += 1
            await asyncio.sleep(chance.random() * self.weather.late_by)
        if fate is Fate.LOST:
            return False
        if fate is Fate.CUT:
            await self._forward(request[: chance.randrange(len(request))], whole=False)
            return False
        if fate is Fate.HELD:
            await self._hold()
        answer = await self._forward(request)
        self._passed.set()
        if fate is Fate.REPEATED:
            again = self._repeat(request, chance.random() * self.weather.late_by)
            self._keep(asyncio.get_running_loop().create_task(again))
        if answer is None or fate is Fate.ANSWER_LOST:
            return False
        writer.write(answer)
        await writer.drain()
        return True

    def _chance(self, request: bytes) -> random.Random:
        key = b" ".join(sorted(set(_ID.findall(request)))) or b"-"
        self._seen[key] += 1
        name = f"{self._seed} {self.name} {key.decode('utf-8', 'replace')} {self._seen[key]}"
        # Chance that can be drawn again from its seed is the point; nothing is secret here.
        return random.Random(name)  # noqa: S311

    def _fate(self, chance: random.Random) -> Fate:
        drawn = chance.random()
        for field in fields(self.weather)[:5]:
            drawn -= getattr(self.weather, field.name)
            if drawn < 0:
                return Fate(field.name)
        return Fate.PASSED

    async def _hold(self) -> None:
        """Until another exchange has overtaken it, or nobody comes."""
        self._passed.clear()
        try:
            await asyncio.wait_for(self._passed.wait(), self.weather.late_by * 2)
        except TimeoutError:
            return

    async def _repeat(self, request: bytes, pause: float) -> None:
        await asyncio.sleep(pause)
        await self._forward(request)

    async def _forward(self, request: bytes, *, whole: bool = True) -> bytes | None:
        """To the handler on a connection of its own; None when it gave no whole answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            self.fates["nobody_there"] += 1
            return None
        try:
            writer.write(request)
            await writer.drain()
            if not whole:
                return None
            return await asyncio.wait_for(read_http(reader), _WAIT_FOR_ANSWER)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            return None
        finally:
            writer.close()


async def read_http(reader: asyncio.StreamReader) -> bytes | None:
    """One request or answer as bytes, with its body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ValueError(f"a head has more than {_HEAD_MAX} bytes") from None
    if _CHUNKED.search(head):
        return head + await _chunks(reader)
    length = _LENGTH.search(head)
    return head + await reader.readexactly(int(length.group(1))) if length else head


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        found += line + await reader.readexactly(size + 2)
        if size == 0:
            return found
