"""What is new is looked for where it can be: no run reads a directory that has nothing of it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from oncewire.journal.row import Row
from oncewire.pipeline import jobs
from oncewire.pipeline.judging import gold
from oncewire.pipeline.lake import lake as names
from oncewire.pipeline.lake.lake import Lake, Names
from oncewire.pipeline.lake.version import Entry
from tests.pipeline.books import make_stores, small_year, take_in_here

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
    assert Names(OLD[:1]).among(tmp_path, "ledger_closed", entry)
    asked.clear()
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


@pytest.mark.spark
def test_tasks_read_only_what_is_about_new_rows(spark, tmp_path: Path, asked: list[str]) -> None:
    _, nodes = small_year()
    lake, steps = Lake(tmp_path / "lake"), 8
    for step in range(steps - 1):
        jobs.run(spark, lake, make_stores(tmp_path / "stores", portion(nodes, step, steps)))
    rest = portion(nodes, steps - 1, steps)
    stores = make_stores(tmp_path / "stores", rest)
    before = lake.current()
    version = take_in_here(lake, before, *stores)
    new = frozenset(entry.path for entry in version.journal) - before.paths
    asked.clear()
    made = gold.opened_by_rows(gold.Setting(lake.root, "v", version, new), sorted(new), "0")
    read = {Path(each) for each in asked}
    ids = {row.message_id for rows in rest.values() for row in rows}
    closed, opened = set(), set()
    for entry in before.tables["ledger_closed"]:
        found = set(column(lake, entry)) & ids
        opened |= found
        if found:
            closed.add(entry.path)
    assert opened, "nothing was opened again"
    assert made.opened == closed
    holding = {entry.path for entry in before.journal if set(column(lake, entry)) & opened}
    assert made.having["journal"] == holding
    assert 0 < len(holding) < len(before.journal)
    others = {entry.path for entry in before.tables["ledger_closed"]} - closed
    assert others
    assert not {path for path in (*others, *before.paths - closed) if lake.root / path in read}


def portion(nodes: dict[str, list[Row]], step: int, steps: int) -> dict[str, list[Row]]:
    return {
        node: rows[len(rows) * step // steps : len(rows) * (step + 1) // steps]
        for node, rows in nodes.items()
    }


def column(lake: Lake, entry: Entry) -> list[str]:
    files = sorted((lake.root / entry.path).rglob("*.parquet"))
    return [
        name for file in files for name in pq.read_table(file)["message_id"].to_pylist() if name
    ]
