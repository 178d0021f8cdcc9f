"""Every test that asks for `backend` or `store` runs once on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.store.contract import Store
from oncewire.store.transition import tables, work
from tests.store.backends import Backend, MemoryBackend, PostgresBackend, SqliteBackend
from tests.store.samples import prepare

KINDS = [
    *("memory", "sqlite", "memory without room", "sqlite without room"),
    # It runs as a process of its own.
    *(
        pytest.param(name, marks=pytest.mark.process)
        for name in ("postgresql", "postgresql without room")
    ),
]


@pytest.fixture(params=KINDS)
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    """A backend whose store knows the samples' terms; also where next to nothing fits into
    memory, so that everything is read back again and again."""
    if request.param.endswith("without room"):
        for name in ("LIVE_MAX", "REMEMBERED", "PAGE"):
            monkeypatch.setattr(work, name, 1)
        monkeypatch.setattr(tables, "BYTES_MAX", 0)
        monkeypatch.setattr(tables, "LARGE", -1)
    made: Backend
    if request.param.startswith("postgresql"):
        made = PostgresBackend(request.getfixturevalue("postgres"), tmp_path)
    elif request.param.startswith("sqlite"):
        made = SqliteBackend(tmp_path)
    else:
        made = MemoryBackend()
    prepare(made.store)
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    """The backend's store, where nothing else of it is needed."""
    return backend.store
