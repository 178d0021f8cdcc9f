"""What is new is looked for where it can be: no run reads a directory that has nothing of it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from oncewire.pipeline import jobs
from oncewire.pipeline.judging import refresh
from oncewire.pipeline.lake import lake as names
from oncewire.pipeline.lake.lake import Days, Lake, Names
from oncewire.pipeline.lake.version import Entry, Version
from tests.pipeline.books import make_stores, small_year

OLD = [f"old-{number}@acme" for number in range(2_000)]
NEW = [f"new-{number}@acme" for number in range(50)]


def directory(root: Path, ids: list[str | None], path: str = "gold/ledger/_data/closed/1") -> Entry:
    (root / path).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"message_id": pa.array(ids, pa.string())}), root / path / "a.parquet")
    return Entry(path, len(ids))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every directory that is read; those of a few rows are asked too."""
    monkeypatch.setattr(names, "FEW", 1)
    found: list[str] = []
    real = ds.dataset

    def dataset(source: object, *args: object, **more: object) -> object:
        found.extend(map(str, source if isinstance(source, list) else [source]))
        return real(source, *args, **more)

    monkeypatch.setattr(ds, "dataset", dataset)
    return found


def test_a_directory_is_asked_without_being_read(tmp_path: Path, asked: list[str]) -> None:
    entry = directory(tmp_path, [*OLD, None])
    version = Version().adding("ledger_closed", entry)
    names.note(tmp_path, version, Version())
    asked.clear()
    names.note(tmp_path, version, version)
    assert not Names(NEW).among(tmp_path, "ledger_closed", entry)
    assert sorted(Names([*NEW, *OLD[::3]]).among(tmp_path, "ledger_closed", entry)) == sorted(
        OLD[::3]
    )
    assert not asked


def test_names_of_other_files_are_not_believed(tmp_path: Path, asked: list[str]) -> None:
    """What a writer left that lost is fetched again, under the same path."""
    entry = directory(tmp_path, OLD)
    assert not Names(NEW).among(tmp_path, "ledger_closed", entry)
    directory(tmp_path, [*OLD, *NEW])
    assert sorted(Names(NEW).among(tmp_path, "ledger_closed", entry)) == sorted(NEW)
    assert len(list((tmp_path / entry.path).glob("_names-*"))) == 1


def test_a_directory_without_names_and_one_of_few_rows(tmp_path: Path, asked: list[str]) -> None:
    entry = directory(tmp_path, [None, None])
    assert not Names(NEW).among(tmp_path, "ledger_closed", entry)
    names.FEW = 3
    assert sorted(Names(NEW).among(tmp_path, "ledger_closed", entry)) == sorted(NEW)


def test_documents_that_are_settled_make_no_run_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million messages have more rows of documents than the driver takes; few are open."""
    monkeypatch.setattr(refresh, "SMALL", 100)
    path = "silver/documents/_data/1"
    (tmp_path / path).mkdir(parents=True)
    pq.write_table(pa.table({"at": list(range(1_000))}), tmp_path / path / "a.parquet")
    lake, version = Lake(tmp_path), Version().adding("documents", Entry(path, 1_000))
    for settled, little in ((950, True), (850, False), (None, True)):
        judged = Version(tables=version.tables, judged={"settled_before": settled})
        assert refresh._is_little(lake, judged) is little


@pytest.mark.spark
def test_a_run_reads_only_what_is_about_its_new_rows(
    spark, tmp_path: Path, asked: list[str]
) -> None:
    _, nodes = small_year()
    lake, steps = Lake(tmp_path / "lake"), 8
    for step in range(steps):
        asked.clear()
        before = lake.current_or_new()
        part = {
            node: rows[len(rows) * step // steps : len(rows) * (step + 1) // steps]
            for node, rows in nodes.items()
        }
        jobs.run(spark, lake, make_stores(tmp_path / "stores", part))
    new = {row.message_id for rows in part.values() for row in rows}
    read = {Path(each) for each in asked}
    closed, opened = set(), set()
    for entry in before.tables["ledger_closed"]:
        ids = set(column(lake, entry)) & new
        opened |= ids
        if ids:
            closed.add(entry.path)
    assert opened, "nothing was opened again"
    holding = {entry.path for entry in before.journal if set(column(lake, entry)) & opened}
    assert 0 < len(holding) < len(before.journal)
    looked = {entry.path for entry in before.journal if lake.root / entry.path in read}
    assert looked == holding
    # Partner service is counted again for the days of what is new; those lie late in the year.
    untouched = {
        entry.path
        for entry in before.tables["ledger_closed"]
        if entry.path not in closed and Days.of_entry(entry).last < "2025-01-10"
    }
    assert untouched
    assert not {path for path in untouched if lake.root / path in read}


def column(lake: Lake, entry: Entry) -> list[str]:
    files = sorted((lake.root / entry.path).rglob("*.parquet"))
    return [
        name for file in files for name in pq.read_table(file)["message_id"].to_pylist() if name
    ]
