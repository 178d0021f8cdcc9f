"""Delay: a network on loopback that loses nothing and takes its time.

    python -m oncewire.lab.bench.delay SECONDS

Every byte comes out so many seconds after it went in, in order, however many are under way. It
opens two doors, and is told later where each of them leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque

from oncewire.lab.bench.side import Task, obey

_PIECE = 256 * 1024


class Delay:
    """Doors to ports of this machine, each byte late by the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._targets: dict[int, int] = {}

    async def open(self) -> int:
        """Open one more door; returns its port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def do(self, task: Task) -> Task:
        """Lead a door to a port."""
        self._targets[task["door"]] = task["port"]
        return {}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        door = writer.get_extra_info("sockname")[1]
        with contextlib.suppress(OSError):
            far, away = await asyncio.open_connection("127.0.0.1", self._targets[door])
            await asyncio.gather(self._carry(reader, away), self._carry(far, writer))
            for end in (away, writer):
                end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: deque[tuple[float, bytes]] = deque()
        came = asyncio.Event()

        async def read() -> None:
            piece = b"?"
            while piece:
                try:
                    piece = await reader.read(_PIECE)
                except OSError:
                    piece = b""
                under_way.append((loop.time() + self._seconds, piece))
                came.set()

        reading = asyncio.ensure_future(read())
        self._tasks.add(reading)
        reading.add_done_callback(self._tasks.discard)
        while True:
            if not under_way:
                came.clear()
                await came.wait()
            due, piece = under_way.popleft()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                # The other direction may still have something to say.
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            with contextlib.suppress(OSError):
                writer.write(piece)
                await writer.drain()


async def run(seconds: float) -> None:
    """Run until standard input ends."""
    delay = Delay(seconds)
    await obey(delay.do, doors=[await delay.open(), await delay.open()])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(float(sys.argv[1])))
