"""Wild worlds whose nodes keep their messages on PostgreSQL: what happens there is what happens in
memory, row for row of every journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.errors import StoreProblem
from oncewire.journal.row import Row
from oncewire.lab.simulation import machine
from oncewire.lab.simulation.draw import draw
from oncewire.lab.simulation.world import World
from oncewire.store.memory.store import MemorySpool
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.transition.work import UnitOfWork
from tests.postgres import Server

SAMPLE, SOAK = 6, 2_000


class WorldStore(PostgresStore):
    """A store on PostgreSQL whose process can die, and whose disk can be full."""

    def __init__(self, url: str, node: str, folder: Path) -> None:
        super().__init__(url, node, folder, "", False, None, None, None, None)
        self.spool = MemorySpool()  # type: ignore[assignment]
        self._refusal: StoreProblem | None = None

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
        super()._commit(work)


def history(world: World) -> list[list[Row]]:
    """Run a world to its end; returns the journal of each node."""
    result = world.run()
    assert not result.violations, result.plan.command
    journals = []
    for each in world.machines:
        with each.store.reader() as reader:
            journals.append(reader.journal_since(0, 10_000_000))
    return journals


@pytest.mark.parametrize(
    "seed",
    [
        *range(SAMPLE),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(SAMPLE, SOAK)),
    ],
)
def test_a_wild_world_is_the_same_on_postgresql(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    expected = history(World(draw(seed)))
    stores: list[WorldStore] = []

    def make(node: str) -> WorldStore:
        stores.append(WorldStore(postgres.new_schema(), node, tmp_path / node))
        return stores[-1]

    monkeypatch.setattr(machine, "MemoryStore", make)
    try:
        found = history(World(draw(seed)))
    finally:
        for store in stores:
            store.close()
    assert any(expected)
    assert found == expected
