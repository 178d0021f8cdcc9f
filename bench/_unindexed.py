"""A side of the exchange whose store keeps no search index: `bench.find` measures beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.find import ONLY_FOR_SEARCH
from oncewire.lab.bench import side
from oncewire.store.sql import search_index
from oncewire.store.sqlite.store import SqliteStore

_open = SqliteStore.__init__


def _unindexed(store: SqliteStore, path: Path, **options: Any) -> None:
    _open(store, path, **options)
    for index in ONLY_FOR_SEARCH:
        store._connection.execute(f"DROP INDEX IF EXISTS {index}")  # type: ignore[union-attr]


if __name__ == "__main__":
    search_index.FILED_AT_ONCE = 2**62
    SqliteStore.__init__ = _unindexed  # type: ignore[method-assign]
    side.main(sys.argv[1:])
