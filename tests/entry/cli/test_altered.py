"""`oncewire verify` on a store that was edited: the chain of its journal is made again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncewire.entry.party.settings import load
from oncewire.journal.row import Row
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.terminal import command_line
from tests.journal.worlds import rows_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a party that has sent."""
    made = CliRunner().invoke(command_line(), ["init", str(tmp_path / "acme"), "--insecure"])
    assert made.exit_code == 0, made.output
    settings = load(tmp_path / "acme", environ={}).settings
    node = rows_of("plain")[0].node
    path = settings.path(settings.store.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = SqliteStore(path, node="acme")
    with opened.transition() as tx:
        tx.journal(_own(row) for row in rows_of("plain") if row.node == node)
    opened.commit()
    opened.close()
    return path


def _own(row: Row) -> Row:
    return row._replace(node="acme")


def verified(store: Path) -> tuple[int, list[tuple[str, str]]]:
    words = ["verify", "--ended", "--json", "--config", str(store.parent.parent)]
    answer = CliRunner().invoke(command_line(), words)
    found = json.loads(answer.stdout)["found"]
    return answer.exit_code, [(each["kind"], each["sentence"]) for each in found]


def edit(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_store_that_nobody_edited_is_clean(store: Path) -> None:
    assert verified(store) == (0, [])


def test_an_edited_row_is_named(store: Path) -> None:
    edit(store, "UPDATE journal_row SET at = at + 1 WHERE seq = 17")
    code, found = verified(store)
    assert code == 1
    assert [kind for kind, _ in found] == ["unchained"]
    assert found[0][1].startswith("Row 17 of its journal is not the one")


def test_many_edited_rows_are_one_finding(store: Path) -> None:
    edit(store, "UPDATE journal_row SET at = at + 1 WHERE seq BETWEEN 11 AND 40")
    code, found = verified(store)
    assert (code, [kind for kind, _ in found]) == (1, ["unchained"])
    assert "30 rows of its journal (11, 12, 13, 14, 15 and others)" in found[0][1]


def test_the_last_row_is_held_to_the_head_behind_it(store: Path) -> None:
    edit(store, "UPDATE journal_row SET at = at + 1 WHERE seq = (SELECT max(seq) FROM journal_row)")
    assert [kind for kind, _ in verified(store)[1]] == ["unchained"]


def test_rows_that_were_removed_at_the_end_are_told_of(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM journal_row").fetchone()
    edit(store, f"DELETE FROM journal_row WHERE seq > {last - 2}")
    code, found = verified(store)
    assert code == 1
    (told,) = [sentence for kind, sentence in found if kind == "unchained"]
    assert told.startswith(
        f"Its journal ends with row {last - 2}, and its handler had written {last}"
    )
