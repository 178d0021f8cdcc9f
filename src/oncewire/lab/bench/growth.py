"""Growth: the exchange beside itself with more kept, more agreements and wider windows, and the
start of a handler with many messages outstanding.

A handler that has been at work for a year must not be slower than on its first day. What it holds
is not made up: a real exchange is multiplied in both stores, row by row, under other MessageIds.
The limit of every figure is the same exchange between two parties that have nothing of it, pushed
by turns.

    python -m oncewire.lab.bench.growth SECONDS

is the network of the windows, on loopback: it loses nothing, and every byte comes out so many
seconds after it went in, in order, however many are under way. It opens two doors, and is told
later where each of them leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw

from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import RECORD, store_path
from oncewire.entry.running.serving import make_engine
from oncewire.errors import TransportProblem
from oncewire.lab.bench.exchange import (
    RECEIVER,
    SENDER,
    SIDE,
    Child,
    Pair,
    Task,
    add_agreements,
    make_pair,
    obey,
    open_pair,
    open_sides,
    rate_of,
)
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.message.envelope import Payload

FEW = 1_000
"""Messages that a party has exchanged where it is said to hold few."""
AGREEMENTS = (100, 1_000)
WINDOWS = (1, 16, 64, 256, 1_024)
ROUND_TRIPS = (0.0, 0.020, 0.100)
AIM = 0.9
PATIENCE = 120.0

NUMBERED = {
    "message": {"id": "message"},
    "outgoing": {"position": "outgoing", "message": "message", "entered": "outgoing"},
    "outgoing_bytes": {"position": "outgoing"},
    "receipt": {"position": "outgoing"},
    "outgoing_term": {"position": "outgoing"},
    "incoming": {"row": "incoming", "message": "message", "position": "incoming"},
    "incoming_bytes": {"row": "incoming"},
    "incoming_term": {"row": "incoming"},
    "journal_row": {"seq": "journal_row", "message": "message"},
}
"""Columns that number the rows of a table, their own or another's; copies are numbered on."""
KEYS = {"message": "id", "outgoing": "position", "incoming": "row", "journal_row": "seq"}
COPIES = "WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < ?)"
COUNTED = (
    ("outgoing", "outgoing"),
    ("entered", "outgoing"),
    ("incoming", "incoming"),
    ("ready", "incoming"),
    ("journal", "journal_row"),
    ("outgoing_filed", "outgoing"),
    ("incoming_filed", "incoming"),
)
"""Columns of the counter, and the tables that they count."""


def multiply(database: Path, times: int) -> None:
    """Have everything that a closed store holds so many times, under MessageIds of their own."""
    connection = apsw.Connection(str(database))
    try:
        connection.pragma("synchronous", "OFF")
        spans = {
            table: connection.execute(f"SELECT ifnull(max({key}), 0) FROM {table}").get  # noqa: S608
            for table, key in KEYS.items()
        }
        with connection:
            for table, numbered in NUMBERED.items():
                columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
                values = copied(columns, numbered, spans)
                insert = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"
                every = f"{COPIES} {insert} FROM copy CROSS JOIN (SELECT * FROM {table})"  # noqa: S608
                connection.execute(every, (times - 1,))
            for counted, table in COUNTED:
                connection.execute(
                    f"UPDATE counter SET {counted} = {counted} + ?",  # noqa: S608
                    (spans[table] * (times - 1),),
                )
    finally:
        connection.close()


def copied(columns: list[str], numbered: dict[str, str], spans: dict[str, int]) -> list[str]:
    """The columns of copy number `copy.n` of a row, in SQL."""
    changed = {
        column: f"{column} + copy.n * {spans[table]}" for column, table in numbered.items()
    } | {"message_id": "message_id || '-' || copy.n"}
    return [changed.get(column, column) for column in columns]


def exchange(pair: Pair, messages: int) -> int:
    """Exchange at least so many messages, all of them taken; how many there were."""
    sent = 0
    while sent < messages:
        sent += pair.push(0.2)["messages"]
    end = time.monotonic() + PATIENCE
    while pair.spent()[RECEIVER]["taken"] < sent:
        if time.monotonic() > end:
            raise TransportProblem("the receiver's program did not take what arrived")
        time.sleep(0.05)
    return sent


@contextlib.contextmanager
def holding(configuration: Configuration, messages: int, agreements: int) -> Iterator[Pair]:
    """Two parties that hold about so many messages and agreements."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        ports = make_pair(folder, configuration)
        with open_sides(folder, configuration, ports) as pair:
            times = messages // exchange(pair, min(messages, FEW))
        for side in (SENDER, RECEIVER):
            if times > 1:
                multiply(store_path(load(folder / side, environ={}).settings), times)
                # It is not the store any more that the party had.
                (folder / side / RECORD).unlink()
            add_agreements(folder / side, agreements)
        with open_sides(folder, configuration, ports) as pair:
            yield pair


def measure(configuration: Configuration, plan: Plan, messages: int, agreements: int) -> Figure:
    """Parties that hold much, by turns with two that hold little."""
    rates, limits = [], []
    with (
        holding(configuration, FEW, 1) as small,
        holding(configuration, messages, agreements) as large,
    ):
        small.push(plan.warming)
        large.push(plan.warming, partners=agreements)
        for _ in range(plan.repeats):
            limits.append(rate_of(small.push(plan.seconds)))
            rates.append(rate_of(large.push(plan.seconds, partners=agreements)))
        peaks = {side: spent["peak_mb"] for side, spent in large.spent().items()}
    what = f"{messages:,} messages kept, {agreements:,} agreement{'s' * (agreements > 1)}"
    more = {f"{side}_peak_mb": peak for side, peak in peaks.items()}
    return Figure(f"{what}, {configuration.words()}", tuple(rates), tuple(limits), more)


def run(configuration: Configuration, plan: Plan) -> Outcome:
    """More kept, more agreements, and windows over networks that are late."""
    taken = replace(configuration, taken=True)
    kept = sorted({min(100 * FEW, plan.messages), plan.messages}, reverse=True)
    figures = [measure(taken, plan, messages, 1) for messages in kept]
    figures += [measure(taken, plan, FEW, agreements) for agreements in AGREEMENTS]
    short = replace(plan, repeats=1)
    for round_trip in ROUND_TRIPS:
        for window in WINDOWS:
            wide = replace(configuration, ordered=True, window=window, in_flight=window)
            figures.append(measure_window(wide, short, round_trip))
    first = figures[0]
    finding = f"{first.ratio:.2f} of the rate with {FEW:,} messages kept (aim >= {AIM})"
    limit = "the same exchange with little kept; of windows, one of them in each round trip"
    return Outcome("growth", "messages", limit, tuple(figures), findings=(finding,))


# --- restart: how soon a handler sends again that ended with many messages outstanding ---
#
# Its partner waits for the first document. The limit is the same start with a single message: what
# Python, the files and the connection take before anything can be sent.

GROUP = 512
RESTART_PATIENCE = 300.0
RESTART_SECONDS = 5.0


def fill(folder: Path, messages: int, size: int) -> None:
    """Submit so many messages to a party whose handler does not run."""
    settings = load(folder, environ={}).settings
    agreement = find_agreement(load_readable(settings), RECEIVER)
    payload = Payload.of("order@bench", "application/xml", b"x" * size)
    submission = submission_of(agreement, [payload], SendOptions(conversation_id="bench"))
    engine = make_engine(settings)
    try:
        for number in range(1, messages + 1):
            engine.submit(submission)
            if number % GROUP == 0:
                engine.commit()
        engine.commit()
    finally:
        engine.context.store.close()


def start(configuration: Configuration, messages: int, seconds: float) -> dict[str, float]:
    """Start a handler with so many outstanding; when the first is there, and what follows."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        make_pair(folder, configuration)
        fill(folder / SENDER, messages, configuration.size)
        with Child(SIDE, folder / RECEIVER) as receiver:
            receiver.ask("take")
            began = time.monotonic()
            with Child(SIDE, folder / SENDER) as sender:
                ready = time.monotonic() - began
                first = None
                while first is None and time.monotonic() - began < RESTART_PATIENCE:
                    time.sleep(0.02)
                    first = receiver.ask("spent")["first_at"]
                if first is None:
                    raise TransportProblem(
                        f"nothing was sent within {RESTART_PATIENCE:.0f} seconds of a restart"
                    )
                before = receiver.ask("spent")["taken"]
                time.sleep(seconds)
                taken = receiver.ask("spent")["taken"] - before
                peak = sender.ask("spent")["peak_mb"]
    return {"ready": ready, "first": first - began, "rate": taken / seconds, "peak_mb": peak}


def measure_restart(configuration: Configuration, plan: Plan) -> Figure:
    """Starts in a second, with many outstanding and with one."""
    full, single = [], []
    for number in range(plan.repeats):
        plan.tell(f"start {number + 1} of {plan.repeats}, with {plan.messages} outstanding")
        single.append(start(configuration, 1, 0.1))
        full.append(start(configuration, plan.messages, plan.seconds))
    more = {
        "seconds_until_ready": round(max(each["ready"] for each in full), 2),
        "seconds_until_first": round(max(each["first"] for each in full), 2),
        "then_messages_per_second": round(min(each["rate"] for each in full), 1),
        "sender_peak_mb": max(each["peak_mb"] for each in full),
    }
    return Figure(
        f"{plan.messages:,} outstanding, {configuration.words()}",
        tuple(1 / each["first"] for each in full),
        tuple(1 / each["first"] for each in single),
        more,
    )


def run_restart(configuration: Configuration, plan: Plan) -> Outcome:
    """One restart, of which a single one takes long enough."""
    once = replace(plan, repeats=1)
    figure = measure_restart(configuration, once)
    default = measure_restart(configuration.default, once) if plan.default else None
    took = figure.more["seconds_until_first"]
    finding = f"sending again {took} s after its start (aim <= {RESTART_SECONDS:.0f} s)"
    return Outcome(
        "restart", "starts", "the same start with one message outstanding", (figure,), default,
        findings=(finding,), messages=figure.more["then_messages_per_second"],
    )  # fmt: skip


# --- window: an ordered channel over a network that takes its time, against stop-and-wait ---
#
# Stop-and-wait is bounded by the way there and back, whatever the machine can do; a window by the
# machine. Both go through the same delaying network between real processes, in order. The limit
# is what the window could reach if the way were all that it waits for: a window of messages in
# each round trip.

DELAY = "oncewire.lab.bench.growth"
WINDOW_AIM = 40.0
_PIECE = 256 * 1024


def measure_window(configuration: Configuration, plan: Plan, round_trip: float) -> Figure:
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


def run_window(configuration: Configuration, plan: Plan, round_trip: float = 0.020) -> Outcome:
    """The window, and stop-and-wait, in one run."""
    wide = replace(configuration, ordered=True, window=configuration.in_flight)
    narrow = replace(wide, window=1)
    window, waiting = (measure_window(each, plan, round_trip) for each in (wide, narrow))
    default = None
    if plan.default:
        default = measure_window(replace(wide, signed=True, tls=True), plan, round_trip)
    times = window.rate / waiting.rate
    finding = f"window({wide.window}) is {times:.1f} times stop-and-wait (aim >= {WINDOW_AIM:.0f})"
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
