"""A bad network of real sockets: a proxy between two handlers that loses, cuts, delays, repeats.

It reads one HTTP request after the other and decides the fate of each. What happens to the
n-th transmission of a message depends on the seed, the proxy's name, the message's id and n,
and on nothing else; so one seed is one kind of trouble, however the processes are scheduled.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

_OWN_ID = re.compile(rb"<(?:\w+:)?MessageId>([^<]+)<")
_ID = re.compile(rb"<(?:\w+:)?(?:RefTo)?MessageId>([^<]+)<")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Luck:
    """The chance of each misfortune of one exchange; at most one of them happens to it."""

    lose: float = 0.0
    lose_answer: float = 0.0
    cut_request: float = 0.0
    cut_answer: float = 0.0
    repeat: float = 0.0
    stall: float = 0.0
    # Besides: how often an exchange is delayed, and for how many seconds at most.
    delay: float = 0.0
    delay_max: float = 0.2


GOOD = Luck()
"""Nothing goes wrong, but the proxy is there and can be taken down."""

BAD = Luck(0.04, 0.04, 0.04, 0.04, 0.08, 0.01, 0.2)
"""A quarter of all exchanges go wrong, a fifth come late."""

FATES = ("lose", "lose_answer", "cut_request", "cut_answer", "repeat", "stall")


class Proxy:
    """One direction of the network, from its own port to the port of a handler."""

    def __init__(self, name: str, port: int, target: int, seed: int, luck: Luck) -> None:
        self.name, self.port, self.target = name, port, target
        self.luck = luck
        # While it is down, whatever comes is lost.
        self.down = False
        self.faults: Counter[str] = Counter()
        self.busy = 0
        self._seed = seed
        self._seen: Counter[bytes] = Counter()
        # Which document came in which transmission, from when to when. Signals are not in it: each
        # copy of a message is answered, and a signal that comes twice is one signal.
        self.book: list[tuple[bytes, float, float]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Stop listening and cut what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        gone = _note_end(reader)
        try:
            going = True
            while going:
                request = await _read_message(reader)
                if request is None:
                    return
                self.busy += 1
                began = time.monotonic()
                try:
                    going = await self._exchange(request, writer)
                finally:
                    self.busy -= 1
                    if (name := _OWN_ID.search(request)) and b"Manifest" in request:
                        # A sender that hangs up before its answer sends no more.
                        self.book.append((name[1], began, min([time.monotonic(), *gone])))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Cancelled by `close` alone; the streams of this Python log it as an error otherwise.
            return
        finally:
            writer.close()

    def at_once(self) -> list[bytes]:
        """Messages of which two transmissions were under way at one moment."""
        found, until = [], dict[bytes, float]()
        for name, began, ended in sorted(self.book, key=lambda entry: entry[1]):
            if began < until.get(name, 0.0):
                found.append(name)
            until[name] = max(ended, until.get(name, 0.0))
        return found

    async def _exchange(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer, or what becomes of them; False ends the connection."""
        chance = self._chance(request)
        fate = self._fate(chance)
        self.faults[fate] += 1
        if chance.random() < self.luck.delay:
            self.faults["delay"] += 1
            await asyncio.sleep(chance.random() * self.luck.delay_max)
        if fate == "lose" or self._is_down():
            return False
        if fate == "stall":
            await asyncio.sleep(1.0)
            return False
        if fate == "cut_request":
            await self._send(request[: chance.randrange(len(request))], answered=False)
            return False
        answer = await self._send(request)
        if fate == "repeat":
            self._later(chance.random() * self.luck.delay_max * 3, request)
        if answer is None or fate == "lose_answer" or self._is_down():
            return False
        if fate == "cut_answer":
            answer = answer[: chance.randrange(len(answer))]
        writer.write(answer)
        await writer.drain()
        return fate != "cut_answer"

    def _is_down(self) -> bool:
        """Looked at anew each time: it changes while an exchange is under way."""
        return self.down

    def _chance(self, request: bytes) -> random.Random:
        ids = _ID.findall(request)
        key = b" ".join(sorted(one for one in ids if one.startswith(b"order"))) or b"other"
        self._seen[key] += 1
        return random.Random(f"{self._seed} {self.name} {key.decode()} {self._seen[key]}")

    def _fate(self, chance: random.Random) -> str:
        drawn = chance.random()
        for name in FATES:
            drawn -= getattr(self.luck, name)
            if drawn < 0:
                return name
        return "pass"

    async def _send(self, request: bytes, *, answered: bool = True) -> bytes | None:
        """To the handler, on a connection of its own; None when it gave no whole answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            self.faults["nobody there"] += 1
            return None
        try:
            writer.write(request)
            await writer.drain()
            return await _read_message(reader) if answered else None
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()

    def _later(self, seconds: float, request: bytes) -> None:
        """A copy that comes when its original may long be settled."""

        async def again() -> None:
            self.busy += 1
            try:
                await asyncio.sleep(seconds)
                if not self.down:
                    await self._send(request)
            finally:
                self.busy -= 1

        task = asyncio.get_running_loop().create_task(again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _note_end(reader: asyncio.StreamReader) -> list[float]:
    """When the other side hung up, as soon as it does."""
    gone: list[float] = []
    feed_eof, set_exception = reader.feed_eof, reader.set_exception

    def ended() -> None:
        gone.append(time.monotonic())
        feed_eof()

    def failed(problem: Exception) -> None:
        gone.append(time.monotonic())
        set_exception(problem)

    reader.feed_eof, reader.set_exception = ended, failed  # type: ignore[method-assign]
    return gone


async def _read_message(reader: asyncio.StreamReader) -> bytes | None:
    """A whole request or response; None when the connection ended before it began."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    found = _LENGTH.search(head)
    return head + (await reader.readexactly(int(found[1])) if found else b"")


class Wires:
    """The thread in which all proxies run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, proxy: Proxy) -> None:
        """Begin to listen."""
        self._do(proxy.open())

    def close(self, proxy: Proxy) -> None:
        """Stop listening."""
        self._do(proxy.close())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def end(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
