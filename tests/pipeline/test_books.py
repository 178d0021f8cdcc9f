"""A journal reads the same from a store and from an export, and what is wrong is named."""

import sqlite3
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncewire.errors import JournalProblem
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.lake.tables import rows_of
from oncewire.pipeline.lake.version import Book, write_node_file
from oncewire.pipeline.sources.journal_source import check_distinct, open_book, open_books
from tests.pipeline.books import make_export, make_store, small_year

ROWS = small_year()[1]["globex"]
COUNT = len(ROWS)


@pytest.fixture(params=["store", "export"], scope="module")
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Nobody writes into it."""
    folder = tmp_path_factory.mktemp("books")
    if request.param == "store":
        return open_book(make_store(folder / "globex.db", "globex", ROWS))
    return open_book(make_export(folder / "globex", "globex", ROWS))


def read(book: Book, start: int, end: int, columns=COLUMNS) -> list[Row]:
    return sorted(rows_of(book.batches(start, end, columns)))


def test_it_knows_its_node_and_its_ends(book: Book) -> None:
    assert book.node == "globex"
    assert book.bounds() == (1, COUNT)
    assert book.next_seq(0) == 1
    assert book.next_seq(5) == 6
    assert book.next_seq(COUNT) is None
    mark = book.mark(7)
    assert mark is not None
    assert (mark.seq, mark.at, mark.boot) == (7, ROWS[6].at, ROWS[6].boot)
    assert book.mark(COUNT + 1) is None


def test_every_row_comes_once_and_unchanged(book: Book) -> None:
    assert read(book, 0, COUNT) == ROWS
    assert read(book, 10, 60) == ROWS[10:60]
    assert book.count(10, 60) == 50
    assert book.count(0, COUNT) == COUNT


@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
def test_ranges_share_the_rows_without_gap_or_overlap(book: Book, size: int) -> None:
    splits = book.splits(3, COUNT - 4, size)
    assert splits[0][0] >= 3 - 1
    assert all(one[1] == other[0] for one, other in pairwise(splits))
    found = [row for start, end in splits for row in read(book, start, end)]
    assert found == ROWS[3 : COUNT - 4]


def test_chosen_columns_only(book: Book) -> None:
    batch = next(iter(book.batches(0, COUNT, ["seq", "kind"])))
    assert batch.schema.names == ["seq", "kind"]


def test_a_store_that_was_trimmed_begins_later(tmp_path: Path) -> None:
    path = make_store(tmp_path / "globex.db", "globex", ROWS)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM journal_row WHERE seq <= 50")
    book = open_book(path)
    assert book.bounds() == (51, COUNT)
    assert book.splits(0, COUNT, 10)[0] == (50, 60)
    assert book.next_seq(0) == 51


# --- what is wrong is named -----------------------------------------------------------------


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = make_store(tmp_path / "globex.db", "globex", ROWS[:5])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE node SET journal_version = 99")
    with pytest.raises(JournalProblem, match="version 99"):
        open_book(path)
    folder = make_export(tmp_path / "export", "globex", ROWS[:5])
    write_node_file(folder, "globex", 99)
    with pytest.raises(JournalProblem, match="version 99"):
        open_book(folder)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE node (name TEXT, journal_version INTEGER)")
        connection.execute("INSERT INTO node VALUES ('old', 1)")
        columns = ", ".join(name for name in COLUMNS if name not in ("digest", "mono"))
        connection.execute(f"CREATE TABLE journal ({columns})")
    with pytest.raises(JournalProblem, match="lacks digest, mono"):
        open_book(path)
    folder = make_export(tmp_path / "export", "globex", ROWS[:5])
    file = next(folder.glob("*.parquet"))
    pq.write_table(pq.read_table(file).drop_columns(["boot"]), file)
    with pytest.raises(JournalProblem, match="lacks the journal's boot"):
        open_book(folder)


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    folder = make_export(tmp_path / "export", "globex", ROWS[:5])
    file = next(folder.glob("*.parquet"))
    table = pq.read_table(file)
    at = table.schema.get_field_index("at")
    changed = table.set_column(at, "at", table["at"].cast(pa.timestamp("us")))
    pq.write_table(changed, file)
    with pytest.raises(JournalProblem, match=r"column at of .* is timestamp"):
        open_book(folder)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 2_000, b"<xml/>"])
def test_what_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.db"
    path.write_bytes(content)
    with pytest.raises(JournalProblem):
        open_book(path)


def test_a_sqlite_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cakes (name TEXT)")
    with pytest.raises(JournalProblem, match="no store of Oncewire"):
        open_book(path)


def test_a_half_written_file_is_refused(tmp_path: Path) -> None:
    folder = make_export(tmp_path / "export", "globex", ROWS[:50])
    file = next(folder.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(JournalProblem, match="renamed into place"):
        open_book(folder)


def test_nothing_there_and_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(JournalProblem, match="no store, export or lake"):
        open_book(tmp_path / "nowhere")
    with pytest.raises(JournalProblem, match="holds no journal") as raised:
        open_book(tmp_path)
    assert f"{tmp_path}/data/oncewire.db" in str(raised.value.remedy)


def test_the_name_of_another_node_is_told_whose_journals_are_there(tmp_path: Path) -> None:
    make_store(tmp_path / "acme.db", "acme", ROWS[:3])
    make_export(tmp_path / "several" / "hub", "hub", ROWS[:50])
    make_export(tmp_path / "several" / "globex", "globex", ROWS[:50])
    for name, there in (("acme.db", "acme"), ("several", "globex, hub")):
        with pytest.raises(JournalProblem, match="holds no journal of node initech") as raised:
            open_book(tmp_path / name, "initech")
        assert raised.value.remedy == f"it has the journals of {there}"


def test_two_stores_of_one_name_are_refused(tmp_path: Path) -> None:
    books = [
        open_book(make_store(tmp_path / f"{number}.db", "globex", ROWS[:3])) for number in (1, 2)
    ]
    with pytest.raises(JournalProblem, match="two stores call themselves globex"):
        check_distinct(books)


def test_a_folder_of_exports_is_several_books(tmp_path: Path) -> None:
    make_export(tmp_path / "a", "acme", ROWS[:3])
    make_export(tmp_path / "b", "globex", ROWS[:3])
    assert [book.node for book in open_books(tmp_path)] == ["acme", "globex"]
    assert open_book(tmp_path, "globex").node == "globex"
    with pytest.raises(JournalProblem, match="say which"):
        open_book(tmp_path)
