"""Stores for the handlers of a test: `Network.pair(store=stores)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.network import Stores


@pytest.fixture
def on_disk(tmp_path: Path) -> Stores:
    """Opens the SQLite store of a handler by its name."""
    return lambda name: SqliteStore(tmp_path / f"{name}.db", node=name)


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, on_disk: Stores) -> Stores:
    """Opens stores of either kind."""
    return MemoryStore if request.param == "memory" else on_disk
