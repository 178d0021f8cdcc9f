"""Wild worlds in which each party is two engines on one PostgreSQL, which take turns by the seed:
whichever of them a parcel, a timer or the application meets, every promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.postgresql_worlds import Ground, run_beside

SAMPLE, SOAK = 20, 2_000


@pytest.mark.parametrize(
    "seed",
    [
        *range(SAMPLE),
        # The clock of one engine was accepted, and the other one stayed in doubt.
        10400647,
        10401479,
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(SAMPLE, SOAK)),
    ],
)
def test_two_engines_of_a_party_keep_every_promise(
    ground: Ground, tmp_path: Path, seed: int
) -> None:
    run_beside(ground, tmp_path, seed)
