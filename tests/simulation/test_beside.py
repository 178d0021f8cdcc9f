"""Wild worlds in which each party is two engines on one PostgreSQL, which take turns by the seed:
whichever of them a parcel, a timer or the application meets, every promise holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncewire.handler.runtime import engine as running
from oncewire.handler.runtime.beside import Hearing
from oncewire.handler.runtime.engine import Engine
from oncewire.journal.row import Row
from oncewire.lab.simulation import machine as machines
from oncewire.lab.simulation import world as worlds
from oncewire.lab.simulation.draw import draw
from oncewire.lab.simulation.machine import Machine
from oncewire.lab.simulation.plan import Plan
from oncewire.lab.simulation.world import World
from oncewire.message.instant import MILLISECOND, MINUTE, Duration
from oncewire.store.memory.store import MemorySpool
from oncewire.store.postgresql.fellows import PostgresFellows
from tests.postgres import Server
from tests.simulation.test_on_postgresql import WorldStore

SAMPLE, SOAK = 20, 2_000
LEASE = 1e6
"""Seconds: the clock of leases is no world's. An engine that falls is found dead instead."""

Words = list[tuple[str, ...]]


class WorldFellows(PostgresFellows):
    """Tells the other engine in the world's time, and not whenever the server comes to it."""

    said_to: Callable[[Words], None] | None = None

    def committed(self) -> None:
        said = self._said
        super().committed()
        if said and self.said_to is not None:
            self.said_to(said)


class SharedStore(WorldStore):
    """The store of one of two engines."""

    def __init__(self, url: str, node: str, folder: Path, spool: MemorySpool) -> None:
        self.begun = False
        super().__init__(url, node, folder)
        self.spool = spool  # type: ignore[assignment]
        self.begun = True
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Be another process: with a name, a lease and claims of its own."""
        self._fellows = WorldFellows(self._url, LEASE)
        self.fellows = self._fellows
        self._connect(None)

    def crash(self) -> None:
        """The process died: whoever looks finds that it is gone."""
        self._open = self._lost = self._work = None
        gone = self._fellows
        self._begin_anew()
        if gone is not None and self._connection is not None:
            dead = "UPDATE handler SET born = '' WHERE name = $1"
            self._connection.execute(dead, (gone.name,))


class Twin(Machine):
    """One of the two engines of a party."""

    twin: Twin | None = None
    numbered = False

    def _process(self) -> Engine:
        if not self.numbered:
            # No two processes give the same id.
            self.world._ids = 1_000_000 * (self.name in self.around.known)
            self.around.known.add(self.name)
            self.numbered = True
        return super()._process()

    def both(self) -> list[Machine]:
        return [self] if self.twin is None else [self, self.twin]

    def _note_rows(self) -> list[Row]:
        rows = super()._note_rows()
        for each in self.both():
            each._read = self._read
        return rows

    def boot(self) -> None:
        super().boot()
        self.store.fellows.said_to = self._tell

    def _tell(self, said: Words) -> None:
        """What the other one hears, a moment later."""
        twin = self.twin
        if twin is None:
            return

        def hear() -> None:
            if twin.up:
                Hearing(twin.store.fellows, twin._perform, twin.wake).take(said)

        self.clock.after(MILLISECOND, hear)

    def restart(self) -> None:
        """Files that change are read by both."""
        for each in self.both():
            Machine.restart(each)

    def set_clock(self, by: Duration) -> None:
        for each in self.both():
            Machine.set_clock(each, by)


class Beside(World):
    """A world in which every name stands for two machines."""

    def __init__(self, plan: Plan) -> None:
        self.choice = random.Random(f"beside {plan.seed}")
        self.twins: dict[str, Twin] = {}
        self.known: set[str] = set()
        self.met = 0
        super().__init__(plan)
        for name in plan.setting.nodes:
            first, second = self._machines[name], Twin(name, self)
            second.papers = first.papers
            first.twin, second.twin = second, first
            self.twins[name] = second

    def machine(self, name: str) -> Machine:
        """Whoever the balancer gives it to; it knows who is down."""
        first, second = self._machines[name], self.twins.get(name)
        if second is None or not second.up:
            return first
        chosen = second if not first.up or self.choice.random() < 0.5 else first
        self.met += chosen is second
        return chosen

    def _is_quiet(self) -> bool:
        busy = any(not each.up or each.application.busy for each in self.twins.values())
        return not busy and super()._is_quiet()


@pytest.fixture
def stores(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[SharedStore]]:
    """Those of a world, two for each node."""
    made: list[SharedStore] = []
    places: dict[str, tuple[str, MemorySpool]] = {}

    def make(node: str) -> SharedStore:
        if node not in places:
            places[node] = postgres.new_schema(), MemorySpool()
        url, spool = places[node]
        made.append(SharedStore(url, node, tmp_path / node, spool))
        return made[-1]

    monkeypatch.setattr(machines, "MemoryStore", make)
    monkeypatch.setattr(worlds, "Machine", Twin)
    # A world has many idle hours.
    monkeypatch.setattr(running, "LOOK_EVERY", MINUTE)
    yield made
    for store in made:
        store.close()


@pytest.mark.parametrize(
    "seed",
    [
        *range(SAMPLE),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(SAMPLE, SOAK)),
    ],
)
def test_two_engines_of_a_party_keep_every_promise(stores: list[SharedStore], seed: int) -> None:
    world = Beside(draw(seed))
    result = world.run()
    assert not result.violations, result.plan.command
    # Both of a party have worked, unless hardly anything happened.
    assert world.met or not result.plan.orders
    assert len(stores) == 2 * len(world.machines)
