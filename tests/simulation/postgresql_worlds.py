"""Worlds on PostgreSQL: each node keeps its messages in a schema, with one engine or with two.

`python -m tests.simulation.postgresql_worlds 10400000..10400999` runs a range of seeds: on those
that are even, a world has one engine for each party, and its journals are compared with those of
the same world in memory; on the others each party is two engines, which take turns by the seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, cast

import psycopg
import pytest

from oncewire.errors import StoreProblem
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
from oncewire.store.postgresql import connection as connecting
from oncewire.store.postgresql import fellows as beside
from oncewire.store.postgresql import reader as reading
from oncewire.store.postgresql import store as keeping
from oncewire.store.postgresql.fellows import PostgresFellows
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.transition.work import UnitOfWork
from tests.postgres import Server

LEASE = 1e6
"""Seconds: the clock of leases is no world's. An engine that falls is found dead instead."""

VACUUMED_EACH = 20
"""Worlds after which the rows that earlier ones left in a schema are removed from its files."""

Connection = psycopg.Connection[tuple[object, ...]]
Words = list[tuple[str, ...]]


# --- the server, used by one world after the other ---


class Ground:
    """Schemas and connections of a server. To make them costs more than most worlds do, so the next
    world gets those of the one before it: the schemas emptied, the connections without a
    transaction and without locks, as the server leaves them when a process is gone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []
        self._lent: list[str] = []
        self._uses: dict[str, int] = {}
        self._idle: dict[str, list[Connection]] = {}
        self._urls: dict[int, str] = {}

    def schema(self) -> str:
        """The address of a schema that holds nothing, or the tables of an empty store."""
        if self._free:
            url = self._free.pop()
            self._empty(url)
        else:
            url = self._server.new_schema()
        self._lent.append(url)
        return url

    def take_back(self) -> None:
        """Take back all schemas: the world that had them is over."""
        self._free += self._lent
        self._lent.clear()

    def _empty(self, url: str) -> None:
        connection = self.connect(url)
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = {str(row[0]) for row in connection.execute(listed).fetchall()} - {"migration"}
        deletes = "; ".join(f"DELETE FROM {table}" for table in sorted(tables))
        script = (
            f"SET session_replication_role = replica; {deletes}; "
            "INSERT INTO counter (id) VALUES (1); SELECT setval('handler_number', 1, false); "
            "SET session_replication_role = DEFAULT"
        )
        connection.execute(script.encode())
        self._uses[url] = self._uses.get(url, 0) + 1
        if self._uses[url] % VACUUMED_EACH == 0:
            connection.execute(f"VACUUM {', '.join(sorted(tables))}".encode())
        self.disconnect(connection)

    def connect(self, url: str) -> Connection:
        """A connection as `connection.connect` opens one."""
        idle = self._idle.setdefault(url, [])
        if idle:
            connection = idle.pop()
            connecting._settle(connection, url)
        else:
            connection = connecting.connect(url)
            self._urls[id(connection)] = url
        return connection

    def disconnect(self, connection: Connection | None) -> None:
        """End the session of a connection."""
        if connection is None:
            return
        if connection.closed or connection.broken:
            self._urls.pop(id(connection), None)
            return
        connection.execute(b"ROLLBACK; SELECT pg_advisory_unlock_all()")
        self._idle[self._urls[id(connection)]].append(connection)

    def close(self) -> None:
        """Close every connection."""
        for idle in self._idle.values():
            while idle:
                connecting.disconnect(idle.pop())


# --- one engine for each party ---


class WorldStore(PostgresStore):
    """A store on PostgreSQL whose process can die, and whose disk can be full."""

    def __init__(self, url: str, node: str, folder: Path) -> None:
        super().__init__(url, node=node, spool=folder, alone=False)
        self.spool = MemorySpool()  # type: ignore[assignment]
        self._refusal: StoreProblem | None = None
        self.commits = 0

    def crash(self) -> None:
        """The process died: the server hears that its connection is gone."""
        self._open = self._lost = self._work = None
        self._connect(None)
        self.spool.crash()  # type: ignore[attr-defined]

    def fail_next_commit(self, error: StoreProblem) -> None:
        """Let the next commit that has something to do fail with this error."""
        self._refusal = error

    def _commit(self, work: UnitOfWork) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        self.commits += 1
        super()._commit(work)


class WorldMachine(Machine):
    """A machine that asks the server for new rows of its journal where it has committed any."""

    store: Any
    around: Any
    noted = 0

    def _note_rows(self) -> list[Row]:
        if self.store.commits == self.noted:
            return []
        self.noted = self.store.commits
        return super()._note_rows()


# --- two engines for each party ---


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
        super().__init__(url, node, folder)
        self.spool = spool  # type: ignore[assignment]
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


class Twin(WorldMachine):
    """One of the two engines of a party."""

    twin: Twin | None = None
    numbered = False
    # Rows that it wrote about messages.
    worked = 0

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
        self.worked += sum(row.message_id is not None for row in rows)
        for each in self.both():
            each._read = max(each._read, self._read)
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

    def fall(self, lasts: Duration, where: str) -> None:
        """The other one cannot know at once, and may give a request whose connection is gone."""
        known = {key: list(gone) for key, gone in self.ledger.left_alone.items()}
        super().fall(lasts, where)
        if self.twin is not None and self.twin.up:
            self.ledger.left_alone.clear()
            self.ledger.left_alone.update(known)

    def set_clock(self, by: Duration) -> None:
        for each in self.both():
            Machine.set_clock(each, by)

    def accept_clock(self) -> None:
        """At one that is in doubt; where the other is so too, the operator is called again."""
        doubting = [each for each in self.both() if each.up and each.engine.context.in_doubt]
        Machine.accept_clock(doubting[0] if doubting else self)


class Beside(World):
    """A world in which every name stands for two machines."""

    def __init__(self, plan: Plan) -> None:
        self.choice = random.Random(f"beside {plan.seed}")
        self.twins: dict[str, Twin] = {}
        self.known: set[str] = set()
        self.met = 0
        super().__init__(plan)
        for name in plan.setting.nodes:
            first, second = cast(Twin, self._machines[name]), Twin(name, self)
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

    def took_turns(self) -> bool:
        """Whether both engines of a party have worked at messages."""
        return any(twin.worked and twin.twin and twin.twin.worked for twin in self.twins.values())

    def _is_quiet(self) -> bool:
        busy = any(not each.up or each.application.busy for each in self.twins.values())
        return not busy and super()._is_quiet()


# --- worlds there ---


@contextmanager
def on(ground: Ground, folder: Path, *, twins: bool = False) -> Iterator[list[WorldStore]]:
    """Have worlds keep their messages on a server; yields the stores that they open."""
    stores: list[WorldStore] = []
    places: dict[str, tuple[str, MemorySpool]] = {}

    def make(node: str) -> WorldStore:
        if not twins:
            stores.append(WorldStore(ground.schema(), node, folder / node))
            return stores[-1]
        if node not in places:
            places[node] = ground.schema(), MemorySpool()
        url, spool = places[node]
        stores.append(SharedStore(url, node, folder / node, spool))
        return stores[-1]

    with pytest.MonkeyPatch.context() as patch:
        for module in (keeping, reading, beside):
            patch.setattr(module, "connect", ground.connect)
            patch.setattr(module, "disconnect", ground.disconnect)
        patch.setattr(machines, "MemoryStore", make)
        patch.setattr(worlds, "Machine", Twin if twins else WorldMachine)
        if twins:
            # A world has many idle hours.
            patch.setattr(running, "LOOK_EVERY", MINUTE)
        try:
            yield stores
        finally:
            for store in stores:
                store.close()
            ground.take_back()


def history(world: World) -> list[list[Row]]:
    """Run a world to its end; returns the journal of each node."""
    result = world.run()
    assert not result.violations, f"{result.plan.command}: {result.violations}"
    return [each.rows() for each in world.machines]


def run_alone(ground: Ground, folder: Path, seed: int) -> None:
    """Run a world there and in memory, and compare what happened."""
    expected = history(World(draw(seed)))
    with on(ground, folder):
        found = history(World(draw(seed)))
    assert any(expected)
    assert found == expected, f"seed {seed}: the journals differ from those in memory"


def run_beside(ground: Ground, folder: Path, seed: int) -> Beside:
    """Run a world there in which each party is two engines."""
    with on(ground, folder, twins=True) as stores:
        world = Beside(draw(seed))
        result = world.run()
        assert not result.violations, f"{result.plan.command}: {result.violations}"
        # Both of a party have worked, unless hardly anything happened.
        assert world.met or not result.plan.orders
        assert len(stores) == 2 * len(world.machines)
    return world


def main(arguments: list[str]) -> int:
    """Run a range of seeds, and say how many worlds were clean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("seeds", help="FIRST..LAST")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no world after so long")
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(".."))
    clean = beside_each_other = took_turns = 0
    found: list[int] = []
    seed, began = first, monotonic()

    def say(**more: Any) -> None:
        print(
            f"seeds {first}..{seed - 1}: {clean} clean, {len(found)} with a finding; each party "
            f"two engines in {beside_each_other}, which took turns in {took_turns}; "
            f"{monotonic() - began:.0f} s",
            flush=True,
            **more,
        )

    server = Server()
    ground = Ground(server)
    try:
        with tempfile.TemporaryDirectory(prefix="oncewire-worlds-") as folder:
            while seed <= last and monotonic() - began < given.minutes * 60:
                try:
                    if seed % 2:
                        beside_each_other += 1
                        took_turns += run_beside(ground, Path(folder), seed).took_turns()
                    else:
                        run_alone(ground, Path(folder), seed)
                    clean += 1
                except Exception as problem:  # noqa: BLE001  (whatever it is, it is a finding)
                    found.append(seed)
                    print(f"seed {seed}: {type(problem).__name__}: {problem}", flush=True)
                seed += 1
                if seed % 50 == 0:
                    say()
    finally:
        ground.close()
        server.close()
    say()
    if found:
        print("seeds with a finding:", *found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
