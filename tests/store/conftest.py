"""Every test that asks for `backend` or `store` runs once on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.store.contract import Store
from tests.store.backends import Backend, MemoryBackend, SqliteBackend
from tests.store.samples import prepare


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A backend whose store knows the samples' terms."""
    made: Backend = MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path)
    prepare(made.store)
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    """The backend's store, where nothing else of it is needed."""
    return backend.store
