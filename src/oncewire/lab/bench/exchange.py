"""Exchange: documents from one handler to another, both on this machine, until acknowledged.

Both are processes of their own with all that a party has: agreement, journal, duplicate check, a
commit before anything leaves. The limit runs by turns with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from oncewire.entry.files import read_text, write_new
from oncewire.entry.party.folder import KeyKind, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner, change_file
from oncewire.entry.party.settings import PREFIX, load
from oncewire.errors import TransportProblem
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, PeerFigure, Plan
from oncewire.lab.demo.ways import free_port

START_SECONDS = 60.0
END_SECONDS = 30.0
Task = dict[str, Any]


class Child:
    """Runs a module that answers lines of JSON; see `side`. Use it in a `with` block."""

    def __init__(self, module: str, *arguments: object) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        self._name = module.rpartition(".")[2]
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            [sys.executable, "-P", "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        # Begins with the first answer; a child that says nothing is ended.
        self._first = self._heard(START_SECONDS)

    @property
    def first(self) -> Task:
        """The first line of the child, which says that it is ready."""
        return self._first

    def ask(self, what: str, *, patience: float = 600.0, **more: object) -> Task:
        """Give the child a task and return its result."""
        if self._process.stdin is None:
            raise TransportProblem("the benchmark's process has no input")
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._heard(patience)

    def _heard(self, patience: float) -> Task:
        if self._process.stdout is None:
            raise TransportProblem("the benchmark's process has no output")
        alarm = threading.Timer(patience, self._process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise TransportProblem(
                f"the process {self._name} of the benchmark ended before it answered",
                remedy="what it wrote to the terminal says why",
            )
        found: Task = json.loads(line)
        return found

    def kill(self) -> None:
        """Kill the child, as a crash would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


SIDE = "oncewire.lab.bench.side"
LIMIT = "oncewire.lab.bench.limit"
PEER = "oncewire.lab.bench.peers"
_COUNTED = ("statements", "rows", "fsyncs")
_TROUBLES = ("retries", "failed_attempts")
"""Retries and failed attempts, counted beside the rate."""
LIMIT_WORDS = (
    "a thin POST of the same bytes, and one row with a random id committed on each side before it"
)

# Two parties, made as a person makes them, with the product's own commands.

SENDER, RECEIVER = "sender", "receiver"

# Who neither signs nor uses TLS is a stranger to the endpoint, and strangers get little.
_BUDGETS = {
    "budget.strangers": "2000",
    "budget.per_address": "2000",
    "budget.spool": "68719476736",
    "budget.processor": '"PT60000S"',
    "budget.processor_per_address": '"PT60000S"',
}


def make_pair(
    folder: Path, configuration: Configuration, public: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Make both in a new folder; the ports that they listen on. `public`: ports that partners
    are told instead, where something stands in between."""
    ports = {name: free_port() for name in (SENDER, RECEIVER)}
    for name, port in ports.items():
        make_party(
            folder / name,
            name,
            now=RealWorld().now(),
            port=port,
            tls=configuration.tls,
            key_kind=KeyKind.EC,
        )
        said = dict(_BUDGETS)
        if public is not None:
            scheme = "https" if configuration.tls else "http"
            said["http.public_url"] = f'"{scheme}://127.0.0.1:{public[name]}/msh"'
        change_file(folder / name / "oncewire.toml", said)
    for own, partner in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
        options = PartnerOptions(
            "ebms2",
            sign=configuration.signed,
            ordered=configuration.ordered,
            insecure=not configuration.tls,
        )
        settings = load(folder / own, environ={}).settings
        added = add_partner(settings, read_card(folder / partner), options)
        change_file(added.agreement, configuration.agreed())
    return ports


def add_agreements(folder: Path, count: int) -> None:
    """Have so many agreements with the one partner of a party, each under a CPAId of its own."""
    settings = load(folder, environ={}).settings
    (first,) = settings.path(settings.agreements.folder).glob("*.toml")
    text = read_text(first, "agreement")
    for number in range(1, count):
        named = re.sub(r"(?m)^cpa_id = .*$", f'cpa_id = "{number}@bench"', text)
        write_new(first.with_stem(name_of(first.stem, number)), named)


def name_of(partner: str, number: int) -> str:
    """What the agreements with one partner are called."""
    return partner if number == 0 else f"{partner}-{number}"


class Pair:
    """Two open parties, and the process that pushes."""

    def __init__(
        self,
        configuration: Configuration,
        sides: Mapping[str, Child],
        pusher: Child,
        ports: Mapping[str, int],
    ) -> None:
        self._configuration = configuration
        self._sides, self._pusher = sides, pusher
        self.ports = ports

    def push(self, seconds: float, *, partners: int = 1) -> Task:
        """Exchange documents for that many seconds, under that many agreements in turn."""
        wanted = self._configuration
        return self._pusher.ask(
            "push", seconds=seconds, size=wanted.size, in_flight=wanted.in_flight, partners=partners
        )

    def count(self) -> None:
        """Count the statements of the stores from now on, which slows them down."""
        for side in self._sides.values():
            side.ask("count")

    def spent(self) -> dict[str, Task]:
        """What both sides have cost so far."""
        return {name: side.ask("spent") for name, side in self._sides.items()}


@contextlib.contextmanager
def open_pair(
    folder: Path, configuration: Configuration, *, public: dict[str, int] | None = None
) -> Iterator[Pair]:
    """Make two parties in the folder and open them."""
    ports = make_pair(folder, configuration, public)
    with open_sides(folder, configuration, ports) as pair:
        yield pair


@contextlib.contextmanager
def open_sides(
    folder: Path, configuration: Configuration, ports: Mapping[str, int]
) -> Iterator[Pair]:
    """Open two parties that are there."""
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Child(SIDE, folder / RECEIVER))
        sender = stack.enter_context(Child(SIDE, folder / SENDER))
        pusher = sender
        if configuration.by_socket:
            pusher = stack.enter_context(Child(SIDE, folder / SENDER))
        if configuration.taken:
            receiver.ask("take")
        yield Pair(configuration, {SENDER: sender, RECEIVER: receiver}, pusher, ports)


@contextlib.contextmanager
def open_limit(folder: Path, module: str = LIMIT) -> Iterator[Child]:
    """The sender of a limit, with its receiver behind it."""
    with Child(module, folder) as receiver, Child(module, folder, receiver.first["port"]) as sender:
        yield sender


def rate_of(pushed: Task) -> float:
    """Messages a second."""
    return float(pushed["messages"] / pushed["seconds"])


def measure(configuration: Configuration, plan: Plan, limit: Child) -> Figure:
    """One configuration, by turns with its limit; then once more, counting."""
    plan.tell(configuration.words())
    rates, limits = [], []
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name,
        open_pair(Path(name), configuration) as pair,
    ):
        asked = {"size": configuration.size, "in_flight": configuration.in_flight}
        limit.ask("push", seconds=plan.warming, **asked)
        pair.push(plan.warming)
        before, messages = pair.spent(), 0
        for _ in range(plan.repeats):
            limits.append(rate_of(limit.ask("push", seconds=plan.seconds, **asked)))
            pushed = pair.push(plan.seconds)
            rates.append(rate_of(pushed))
            messages += pushed["messages"]
        after = pair.spent()
        counted = count(pair, plan)
    more = {"p50_ms": round(pushed["p50_ms"], 2), "p99_ms": round(pushed["p99_ms"], 2)}
    for what in _TROUBLES:
        more[what] = after[SENDER][what] - before[SENDER][what]
    for side in (SENDER, RECEIVER):
        used = after[side]["processor"] - before[side]["processor"]
        more[f"{side}_us"] = round(used / messages * 1e6, 1)
        more[f"{side}_peak_mb"] = after[side]["peak_mb"]
    return Figure(configuration.words(), tuple(rates), tuple(limits), more | counted)


def count(pair: Pair, plan: Plan) -> dict[str, float]:
    """Statements, rows and fsyncs of each message, of both sides and of the sender alone."""
    pair.count()
    before = pair.spent()
    messages = pair.push(plan.seconds / 2)["messages"]
    after = pair.spent()
    found = {}
    for what in _COUNTED:
        each = [(after[side][what] - before[side][what]) / messages for side in (SENDER, RECEIVER)]
        found[what] = round(sum(each), 2)
        found[f"sender_{what}"] = round(each[0], 2)
    return found


@dataclass(frozen=True, slots=True)
class Peer:
    """One product, and what of it is measured."""

    name: str
    product: str
    remark: str
    arguments: tuple[str, ...] = ()


PEERS = (
    Peer("rabbitmq", "rabbitmq", "durable queue, persistent messages, confirmed when stored"),
    Peer("nats", "nats", "JetStream on file, sync_interval always, acknowledged when stored"),
    Peer("as2", "as2", "pyas2lib over HTTP, synchronous MDN, unsigned; no store at all"),
    Peer("as2 signed", "as2", "the same, message and MDN signed (RSA)", ("--signed",)),
)


def measure_peer(peer: Peer, plan: Plan, in_flight: int, size: int) -> PeerFigure:
    """Measure one of the other products; without rates where it is not installed."""
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-peer-", ignore_cleanup_errors=True) as folder,
        Child(PEER, peer.product, folder, *peer.arguments) as child,
    ):
        missing = child.first.get("missing")
        if missing:
            return PeerFigure(peer.name, remark=str(missing))
        rates = []
        child.ask("push", seconds=plan.warming, in_flight=in_flight, size=size)
        for _ in range(plan.repeats):
            pushed = child.ask("push", seconds=plan.seconds, in_flight=in_flight, size=size)
            rates.append(pushed["messages"] / pushed["seconds"])
    return PeerFigure(peer.name, tuple(rates), peer.remark)


def run(configurations: Sequence[Configuration], plan: Plan) -> Outcome:
    """Every configuration that is asked for, the default one, and the peers."""
    first, default = configurations[0], None
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name,
        open_limit(Path(name)) as limit,
    ):
        figures = tuple(measure(each, plan, limit) for each in configurations)
        if plan.default and first.default not in configurations:
            default = measure(first.default, plan, limit)
    peers: tuple[PeerFigure, ...] = ()
    if plan.peers:
        plan.tell("others, where they are installed")
        peers = tuple(measure_peer(peer, plan, first.in_flight, first.size) for peer in PEERS)
    return Outcome("exchange", "messages", LIMIT_WORDS, figures, default, peers)


# A child's end: what every process of a benchmark does with its tasks.


async def push_for(task: Task, one: Callable[[], Awaitable[None]]) -> Task:
    """Do `one` over and over for the task's seconds, as many of them at a time as it asks for."""
    began = time.perf_counter()
    end, took = began + task["seconds"], []

    async def repeat() -> None:
        while (start := time.perf_counter()) < end:
            await one()
            took.append(time.perf_counter() - start)

    await asyncio.gather(*(repeat() for _ in range(task["in_flight"])))
    seconds = time.perf_counter() - began
    return {"messages": len(took), "seconds": seconds, **latency(took)}


def latency(took: list[float]) -> Task:
    """The median, and what one in a hundred exceeds, in milliseconds."""
    took = sorted(took)
    return {"p50_ms": 1e3 * took[len(took) // 2], "p99_ms": 1e3 * took[int(0.99 * (len(took) - 1))]}


def peak_mb() -> float:
    """The most memory that this process ever held. `getrusage` would count its parent's peak, which
    survives the start of another program."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0.0
    return round(int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024, 1)


async def obey(do: Callable[[Task], Awaitable[Task]], **facts: object) -> None:
    """Do the tasks of standard input until it ends; `facts` are told at once."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    _tell({"ready": True, **facts})
    try:
        while line := await reader.readline():
            _tell(await do(json.loads(line)))
    finally:
        pipe.close()


def _tell(result: Task) -> None:
    """Write one line to the parent process."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
