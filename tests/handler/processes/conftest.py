"""The nursery and the wires are shared by all tests of this folder; each test has its own stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.handler.processes.proxy import Wires
from tests.handler.processes.stage import Nursery, Stage

SEED = 20010129


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where parties come from."""
    nursery = Nursery()
    yield nursery
    nursery.end()


@pytest.fixture(scope="session")
def wires() -> Iterator[Wires]:
    """Where proxies run."""
    wires = Wires()
    yield wires
    wires.end()


@pytest.fixture
def stage(nursery: Nursery, wires: Wires, tmp_path: Path) -> Iterator[Stage]:
    """A stage with nobody on it yet."""
    print(f"seed {SEED}")
    stage = Stage(nursery, wires, tmp_path, SEED)
    yield stage
    stage.close()
