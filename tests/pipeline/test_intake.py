"""Taking journals in: only what is new, each row once, and no store mistaken for another."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncewire.errors import JournalProblem
from oncewire.message.instant import DAY
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.columns import JOURNAL, QUARANTINE, VIOLATIONS
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.version import NodeState, Version
from oncewire.pipeline.sources.ingest import Range, new_range, silver_name, write_ranges
from oncewire.pipeline.sources.journal_source import ExportBook, open_book
from tests.pipeline.books import (
    differences,
    make_export,
    make_store,
    make_stores,
    small_year,
    tables,
)

ROWS = small_year()[1]["globex"]
COUNT = len(ROWS)


def state(seq: int) -> Version:
    row = ROWS[seq - 1]
    return Version().with_node("globex", NodeState(seq, row.at, row.boot))


def test_only_what_is_new(tmp_path: Path) -> None:
    book = open_book(make_store(tmp_path / "globex.db", "globex", ROWS))
    assert new_range(Version(), book) == (0, COUNT)
    assert new_range(state(40), book) == (40, COUNT)
    assert new_range(state(COUNT), book) == (COUNT, COUNT)


def test_another_store_of_the_same_name_is_refused(tmp_path: Path) -> None:
    other = [row._replace(boot="another", at=row.at + 7) for row in ROWS[:60]]
    book = open_book(make_store(tmp_path / "globex.db", "globex", other))
    with pytest.raises(JournalProblem, match="not the store that the lake knows"):
        new_range(state(40), book)


def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    book = open_book(make_store(tmp_path / "globex.db", "globex", ROWS[:30]))
    with pytest.raises(JournalProblem, match="ends with row 30"):
        new_range(state(40), book)


def test_rows_removed_before_they_were_taken_are_told(tmp_path: Path) -> None:
    path = make_store(tmp_path / "globex.db", "globex", ROWS)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM journal_row WHERE seq <= 50")
    with pytest.raises(JournalProblem, match="removed before the lake took them"):
        new_range(state(40), open_book(path))
    assert new_range(state(50), open_book(path)) == (50, COUNT)
    assert new_range(Version(), open_book(path)) == (50, COUNT)


@pytest.mark.spark
def test_every_stage_says_how_much_there_is_to_do(spark, tmp_path: Path) -> None:
    stages = list[str]()
    nodes = {node: rows for node, rows in small_year()[1].items() if len(rows) > 50}
    stores = make_stores(tmp_path / "stores", nodes)
    rows = sum(map(len, nodes.values()))
    jobs.run(spark, Lake(tmp_path / "lake"), stores, tell=stages.append)
    assert len(stages) == len(stores) + 3
    first, last = stages[0], stages[len(stores) - 1]
    assert first.endswith(f"(1 of {len(stores)}, {rows:,} rows in all)")
    assert last.endswith(f"({len(stores)} of {len(stores)}, {rows:,} rows in all)")
    for number, stage in enumerate(stages[len(stores) :], 1):
        assert stage.startswith(f"{number} of 3: ")
        assert any(each.isdigit() for each in stage.partition(": ")[2])


def test_a_replay_takes_the_same_place() -> None:
    one, other = "acme-1/1-9", "globex-1/1-7"
    assert silver_name([one]) == one
    assert silver_name([one, other]) == silver_name([other, one])
    assert silver_name([one, other]) != silver_name([one])


@pytest.mark.spark
def test_a_second_run_reads_only_what_is_new(spark, tmp_path: Path) -> None:
    path = make_store(tmp_path / "globex.db", "globex", ROWS[:100])
    lake = Lake(tmp_path / "lake")
    first = jobs.run(spark, lake, [path])
    assert (first.rows, first.version) == (100, 1)
    again = jobs.run(spark, lake, [path])
    assert (again.rows, again.version) == (0, 1)  # Nothing new: nothing is published.
    make_store(path, "globex", ROWS[100:160])
    second = jobs.run(spark, lake, [path])
    assert (second.rows, second.version) == (60, 2)
    version = lake.current()
    assert [(one.first, one.last) for one in version.journal] == [(1, 100), (101, 160)]
    rows = lake.read(spark, version, JOURNAL, "journal").collect()
    assert sorted(tuple(row) for row in rows) == [tuple(row) for row in ROWS[:160]]


@pytest.mark.parametrize(
    ("by", "kind", "jumps", "whole"),
    [(0, None, 0, False), (400 * DAY, None, 1, True), (400 * DAY, "nonsense", 0, True)],
)
def test_a_jump_between_two_runs_is_found_and_calm_clocks_cost_few_columns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: int,
    kind: str | None,
    jumps: int,
    whole: bool,
) -> None:
    """The row before a range is one of a file's many, and all of its columns are read only where
    they decide. A row that breaks the contract says nothing of the clock."""
    last = next(row.seq for row in ROWS if row.seq > 30 and row.boot == ROWS[row.seq].boot)
    rows = [row._replace(at=row.at - by * (row.seq > last)) for row in ROWS[: last + 20]]
    rows[last - 1] = rows[last - 1]._replace(kind=kind or rows[last - 1].kind)
    folder, asked = make_export(tmp_path / "globex", "globex", rows, per_file=1_000), []
    ask = ExportBook.batches

    def batches(self, start, end, columns):
        asked.append((start, end, len(columns)))
        return ask(self, start, end, columns)

    monkeypatch.setattr(ExportBook, "batches", batches)
    book = open_book(folder)
    (part,) = write_ranges(tmp_path / "lake", [Range(book, last, last + 20)]).parts
    assert [jump.seq for jump in part.jumps] == [last + 1] * jumps
    before = [columns for start, end, columns in asked if (start, end) == (last - 1, last)]
    assert (len(JOURNAL.fields) in before) == whole


@pytest.mark.spark
def test_rows_that_break_the_contract_are_kept_with_their_reason(spark, tmp_path: Path) -> None:
    folder = make_export(tmp_path / "globex", "globex", ROWS[:60], per_file=60)
    file = next(folder.glob("*.parquet"))
    values = pq.read_table(file).to_pylist()
    values[3]["boot"] = None
    values[7]["kind"] = None
    values[9]["node"] = "somebody-else"
    pq.write_table(pa.Table.from_pylist(values, schema=pq.read_schema(file)), file)
    lake = Lake(tmp_path / "lake")
    done = jobs.run(spark, lake, [folder])
    assert (done.rows, done.quarantined) == (57, 3)
    rows = lake.read(spark, lake.current(), QUARANTINE, "quarantine").collect()
    problems = {row["seq"]: row["problem"] for row in rows}
    assert problems == {
        4: "boot is missing",
        8: "kind is missing",
        10: "it is a row of node somebody-else",
    }
    assert all(row["raw"].startswith("{") and row["source"] == str(folder) for row in rows)


@pytest.mark.spark
def test_two_journals_in_one_export_are_told(spark, tmp_path: Path) -> None:
    folder = make_export(tmp_path / "globex", "globex", ROWS[:50], per_file=50)
    make_export(tmp_path / "other", "globex", [row._replace(at=row.at + 1) for row in ROWS[20:40]])
    next((tmp_path / "other").glob("*.parquet")).rename(folder / "other.parquet")
    with pytest.raises(JournalProblem, match="two rows 21 of globex"):
        jobs.run(spark, Lake(tmp_path / "lake"), [folder])


@pytest.mark.spark
def test_archives_are_read_once(spark, tmp_path: Path) -> None:
    from oncewire.lab.sample_year.generate import parcel
    from oncewire.lab.sample_year.plan import make_plan

    folder = tmp_path / "archive"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.mime").write_bytes(parcel(make_plan(100, 3), number))
    (folder / "broken.mime").write_bytes(b"nothing like it")
    lake = Lake(tmp_path / "lake")
    assert jobs.run(spark, lake, archives=[folder]).envelopes == 6
    assert jobs.run(spark, lake, archives=[folder]).envelopes == 0
    (folder / "late.mime").write_bytes(parcel(make_plan(100, 3), 9))
    assert jobs.run(spark, lake, archives=[folder]).envelopes == 1
    assert lake.current().rows("envelopes") == 7


def test_a_file_that_comes_late_is_taken_in(spark, tmp_path: Path) -> None:
    """What is missing in the middle is told, and filled when it comes."""
    folder = make_export(tmp_path / "globex", "globex", ROWS, per_file=50)
    late = folder / "part-000100.parquet"
    away = late.rename(tmp_path / "late.parquet")
    lake = Lake(tmp_path / "lake")
    done = jobs.run(spark, lake, [folder], ended=True)
    assert done.rows == COUNT - 50
    (hole,) = lake.current().nodes["globex"].holes
    assert (hole.first, hole.last) == (101, 150)
    assert (hole.before, hole.after) == (ROWS[99].at, ROWS[150].at)
    found = lake.read(spark, lake.current(), VIOLATIONS, "violations").collect()
    assert [row["kind"] for row in found if row["predicate"] == "journal"] == ["hole"]

    away.rename(late)
    assert jobs.run(spark, lake, [folder], ended=True).rows == 50
    assert lake.current().nodes["globex"].holes == ()
    whole = Lake(tmp_path / "whole")
    jobs.run(spark, whole, [folder], ended=True)
    assert not differences(tables(spark, whole), tables(spark, lake))
    assert jobs.run(spark, lake, [folder], ended=True).rows == 0


def test_two_journals_whose_rows_add_up_are_told_apart(spark, tmp_path: Path) -> None:
    """Twenty rows are missing and twenty are there twice."""
    folder = make_export(tmp_path / "globex", "globex", [*ROWS[:40], *ROWS[60:80]], per_file=20)
    make_export(tmp_path / "other", "globex", [row._replace(at=row.at + 1) for row in ROWS[20:40]])
    next((tmp_path / "other").glob("*.parquet")).rename(folder / "other.parquet")
    with pytest.raises(JournalProblem, match="two rows 21 of globex"):
        jobs.run(spark, Lake(tmp_path / "lake"), [folder])
