"""The chain that a store keeps over its journal: with each row the head before it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncewire.journal.identity import START, links
from oncewire.journal.row import COLUMNS, Row
from oncewire.store.sqlite.store import SqliteStore
from tests.store.samples import row, undone


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, node="node")


def asked(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def check(path: Path, expected: int) -> None:
    """Every row has the head before it, and the counter the one behind the last."""
    rows = [Row(*values) for values in asked(path, f"SELECT {', '.join(COLUMNS)} FROM journal")]
    kept = [head for (head,) in asked(path, "SELECT since FROM journal_row ORDER BY seq")]
    assert len(rows) == expected
    assert [*kept, asked(path, "SELECT head FROM counter")[0][0]] == links(kept[0], rows)


def wrote(store: SqliteStore, *times: int) -> None:
    with store.transition() as tx:
        tx.journal([row("sent", at=at) for at in times])


def test_every_row_is_chained_turn_by_turn_and_after_a_restart(path: Path) -> None:
    store = opened(path)
    wrote(store, 1, 2)
    wrote(store, 3)
    store.commit()
    wrote(store, 4)
    store.commit()
    store.close()
    check(path, 4)
    assert asked(path, "SELECT since FROM journal_row WHERE seq = 1") == [(START,)]
    store = opened(path)
    wrote(store, 5)
    store.commit()
    store.close()
    check(path, 5)


def test_an_undone_transition_leaves_no_mark_in_the_chain(path: Path) -> None:
    store = opened(path)
    wrote(store, 1)
    with undone(store) as tx:
        tx.journal([row("sent", at=2)])
    # This one is undone where the rows are: a step over many rows came after its own.
    with undone(store) as tx:
        tx.journal([row("sent", at=3)])
        tx.trim_journal(0, 0)
    wrote(store, 4)
    store.commit()
    store.close()
    check(path, 2)


def test_trimming_leaves_the_head_before_the_first_row_that_is_left(path: Path) -> None:
    store = opened(path)
    wrote(store, *range(1, 11))
    store.commit()
    with store.transition() as tx:
        assert tx.trim_journal(5, 100) == 4
    wrote(store, 11)
    store.commit()
    store.close()
    check(path, 7)
    assert asked(path, "SELECT since FROM journal_row ORDER BY seq LIMIT 1") != [(START,)]


def test_the_chain_begins_where_rows_were_not_chained_before(path: Path) -> None:
    store = opened(path)
    wrote(store, 1, 2)
    store.commit()
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE journal_row SET since = NULL")
        connection.execute("UPDATE counter SET head = NULL")
        connection.commit()
    store = opened(path)
    wrote(store, 3)
    store.commit()
    store.close()
    assert asked(path, "SELECT since FROM journal_row") == [(None,), (None,), (START,)]


def test_what_another_connection_wrote_is_chained_on(path: Path) -> None:
    store = opened(path)
    wrote(store, 1)
    store.commit()
    other = asked(path, "SELECT head FROM counter")[0][0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE counter SET head = ?", (bytes(31) + b"x",))
        connection.commit()
    wrote(store, 2)
    store.commit()
    store.close()
    assert other != bytes(31) + b"x"
    assert asked(path, "SELECT since FROM journal_row WHERE seq = 2") == [(bytes(31) + b"x",)]
