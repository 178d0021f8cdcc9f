"""Window: an ordered channel over a network that takes its time, against stop-and-wait.

Stop-and-wait is bounded by the way there and back, whatever the machine can do; a window by the
machine. Both go through the same delaying network between real processes, in order. The limit is
what the window could reach if the way were all that it waits for: a window of messages in each
round trip.

    python -m oncewire.lab.bench.window SECONDS

is that network, on loopback: it loses nothing, and every byte comes out so many seconds after it
went in, in order, however many are under way. It opens two doors, and is told later where each of
them leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections import deque
from dataclasses import replace
from pathlib import Path

from oncewire.lab.bench.exchange import RECEIVER, SENDER, Child, Task, open_pair, rate_of
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.lab.bench.side import obey

DELAY = "oncewire.lab.bench.window"
AIM = 40.0
_PIECE = 256 * 1024


def measure(configuration: Configuration, plan: Plan, round_trip: float) -> Figure:
    """One flow over the network; half of the round trip is in each direction."""
    plan.tell(f"{round_trip * 1e3:.0f} ms, {configuration.words()}")
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name,
        Child(DELAY, round_trip / 2) as network,
    ):
        doors = dict(zip((SENDER, RECEIVER), network.first["doors"], strict=True))
        with open_pair(Path(name), configuration, public=doors) as pair:
            for side, door in doors.items():
                network.ask("lead", door=door, port=pair.ports[side])
            pair.push(plan.warming)
            rates = [rate_of(pair.push(plan.seconds)) for _ in range(plan.repeats)]
    # Over a way that takes no time, nothing but the machine is a limit.
    limit = configuration.window / round_trip if round_trip else 0.0
    what = f"{round_trip * 1e3:.0f} ms, {configuration.words()}"
    return Figure(what, tuple(rates), (limit,) * len(rates))


def run(configuration: Configuration, plan: Plan, round_trip: float = 0.020) -> Outcome:
    """The window, and stop-and-wait, in one run."""
    wide = replace(configuration, ordered=True, window=configuration.in_flight)
    narrow = replace(wide, window=1)
    window, waiting = (measure(each, plan, round_trip) for each in (wide, narrow))
    default = None
    if plan.default:
        default = measure(replace(wide, signed=True, tls=True), plan, round_trip)
    times = window.rate / waiting.rate
    finding = f"window({wide.window}) is {times:.1f} times stop-and-wait (aim >= {AIM:.0f})"
    more = {"times_stop_and_wait": round(times, 2)}
    first = replace(window, more=more)
    return Outcome(
        "window",
        "messages",
        "a window of messages in each round trip",
        (first, waiting),
        default,
        findings=(finding,),
    )


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


async def serve_doors(seconds: float) -> None:
    """Run until standard input ends."""
    delay = Delay(seconds)
    await obey(delay.do, doors=[await delay.open(), await delay.open()])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_doors(float(sys.argv[1])))
