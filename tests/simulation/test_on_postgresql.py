"""Wild worlds whose nodes keep their messages on PostgreSQL: what happens there is what happens in
memory, row for row of every journal."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from oncewire.lab.simulation.draw import draw
from tests.simulation.postgresql_worlds import Beside, Ground, WorldStore, on, run_alone

SAMPLE, SOAK = 6, 2_000


@pytest.mark.parametrize(
    "seed",
    [
        *range(SAMPLE),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(SAMPLE, SOAK)),
    ],
)
def test_a_wild_world_is_the_same_on_postgresql(ground: Ground, tmp_path: Path, seed: int) -> None:
    run_alone(ground, tmp_path, seed)


def content(url: str) -> dict[str, object]:
    """The rows of every table that has some, and the numbers of its sequences."""
    found: dict[str, object] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        kinds = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'S') AND relnamespace = "
        select = f"{kinds} current_schema()::regnamespace"
        for (name,) in connection.execute(select.encode()).fetchall():
            rows = connection.execute(f"SELECT * FROM {name}".encode()).fetchall()
            if rows:
                # Two stores never have the same node and the same mark of a spool.
                found[name] = [row for row in rows if name not in ("node", "spool")]
    return found


def test_the_next_world_finds_nothing_of_the_one_before_it(ground: Ground, tmp_path: Path) -> None:
    with on(ground, tmp_path):
        fresh = ground.schema()
        WorldStore(fresh, "node", tmp_path / "node").close()
        empty = content(fresh)
    with on(ground, tmp_path, twins=True) as stores:
        Beside(draw(1)).run()
        used = {store._url for store in stores}
    assert len(used) > 1
    with on(ground, tmp_path):
        for url in used:
            assert content(url).keys() > empty.keys()
        again = {ground.schema() for _ in range(len(ground._free))}
        assert again >= used
        for url in used:
            WorldStore(url, "node", tmp_path / "node").close()
            assert content(url) == empty
