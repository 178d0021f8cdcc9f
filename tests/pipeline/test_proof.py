"""Whether a journal is as it was taken in: no row of a store, or of a lake, changes unnoticed.

And that directories which are written together hold the same rows.
"""

import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from oncewire.pipeline import proof
from oncewire.pipeline.books import open_book
from oncewire.pipeline.compact import compacted
from oncewire.pipeline.files import parquet_files
from oncewire.pipeline.intake import take_in
from oncewire.pipeline.lake import Lake
from tests.pipeline.books import make_export, make_store, small_year

ROWS = small_year()[1]["globex"]
NO_SPARK: Any = SimpleNamespace()
"""What is little is taken in without it."""


def taken_in(lake: Lake, book: Path) -> None:
    with lake.writing() as version:
        lake.publish(take_in(NO_SPARK, lake, version, [open_book(book)]).version)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "globex.db", "globex", ROWS[:200])


@pytest.fixture
def lake(tmp_path: Path, store: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    taken_in(made, store)
    make_store(store, "globex", ROWS[200:300])
    taken_in(made, store)
    return made


def changed(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement)


def found(lake: Lake, store: Path) -> list[tuple[int, str]]:
    told = proof.check_book(lake, lake.current(), open_book(store))
    return [(one.seq, one.what) for one in told.differences]


def test_what_is_as_it_was_is_proven(lake: Lake, store: Path) -> None:
    version = lake.current()
    assert proof.check_lake(lake, version) == proof.Proven(300, 2, ())
    assert proof.check_book(lake, version, open_book(store)) == proof.Proven(300, 2, ())
    assert len(version.nodes["globex"].head) == 64


def test_a_row_that_was_altered_after_it_was_taken_in_is_named(lake: Lake, store: Path) -> None:
    changed(store, "UPDATE journal_row SET at = at + 1 WHERE seq = 77")
    told = proof.check_book(lake, lake.current(), open_book(store)).differences
    assert [(one.node, one.seq, one.what) for one in told] == [("globex", 77, "changed")]
    assert told[0].sentence.endswith("has another at")


def test_a_row_that_was_taken_away_is_named_and_a_trimmed_one_is_not(
    lake: Lake, store: Path
) -> None:
    changed(store, "DELETE FROM journal_row WHERE seq = 120 OR seq <= 40")
    assert found(lake, store) == [(120, "gone")]


def test_rows_that_came_since_are_no_difference(lake: Lake, store: Path) -> None:
    make_store(store, "globex", ROWS[300:350])
    assert found(lake, store) == []


def test_a_lake_that_was_edited_is_told(lake: Lake) -> None:
    entry = lake.current().journal[1]
    (file,) = parquet_files(lake.root / entry.path)
    values = pq.read_table(file).to_pylist()
    values[5]["digest"] = "another"
    schema = pq.read_schema(file)
    pq.write_table(type(pq.read_table(file)).from_pylist(values, schema=schema), file)
    told = proof.check_lake(lake, lake.current())
    assert [(one.seq, one.what) for one in told.differences] == [(201, "rewritten")]
    assert not told.unchanged


def test_rows_that_were_set_aside_are_proven_too(tmp_path: Path) -> None:
    rows = [row._replace(kind="invented") if row.seq == 9 else row for row in ROWS[:60]]
    book = make_export(tmp_path / "globex", "globex", rows)
    lake = Lake(tmp_path / "lake")
    taken_in(lake, book)
    assert lake.current().rows("quarantine") == 1
    assert proof.check_lake(lake, lake.current()).unchanged
    assert proof.check_book(lake, lake.current(), open_book(book)).unchanged


def test_no_two_rows_are_written_alike() -> None:
    one, other = ROWS[0], ROWS[1]
    assert proof.digest_of([one, other]) != proof.digest_of([other, one])
    assert proof.digest_of([one._replace(peer="a", transport="b")]) != proof.digest_of(
        [one._replace(peer="ab", transport="")]
    )
    assert proof.chained("", "x") != proof.chained("x", "")


# --- written together -------------------------------------------------------------------------


@pytest.mark.long
def test_many_small_directories_become_few_with_the_same_rows(tmp_path: Path) -> None:
    lake, store = Lake(tmp_path / "lake"), tmp_path / "globex.db"
    step = 10
    for start in range(0, 200, step):
        make_store(store, "globex", ROWS[start : start + step])
        taken_in(lake, store)
    with lake.writing() as before:
        # Gold knows them, or they would be taken for new.
        nodes = {name: replace(state, folded=state.seq) for name, state in before.nodes.items()}
        before = replace(before, nodes=nodes)
        version = lake.publish(compacted(lake, before))
    assert [len(before.tables[name]) for name in ("journal", "boots")] == [20, 20]
    (entry,) = version.journal
    assert (entry.first, entry.last, entry.rows) == (1, 200, 200)
    assert len(version.tables["messages"]) == 1
    assert version.rows("messages") == before.rows("messages")
    assert list(proof.rows_in(lake, entry)) == ROWS[:200]
    assert proof.check_lake(lake, version).unchanged
    assert proof.check_book(lake, version, open_book(store)).unchanged
    assert compacted(lake, version) == version
    with lake.writing():
        pass
    make_store(store, "globex", ROWS[200:210])
    taken_in(lake, store)
    assert lake.current().rows("journal") == 210


def test_a_range_that_gold_does_not_know_is_left_alone(lake: Lake) -> None:
    version = lake.current()
    assert compacted(lake, version, many=2).journal == version.journal
