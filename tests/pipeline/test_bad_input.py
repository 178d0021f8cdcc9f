"""What cannot be used is refused by name or kept with its reason; nothing else suffers from it.

Each is shown through the command line, as a user meets it: status 2, one sentence of what is
wrong, one of what to do, and no word of Java.
"""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from oncewire.journal.row import COLUMNS, Row
from oncewire.lab.sample_year.generate import parcel
from oncewire.lab.sample_year.plan import make_plan
from oncewire.message.instant import DAY, HOUR
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.columns import ENVELOPES, JOURNAL, QUARANTINE
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.version import write_node_file
from oncewire.pipeline.sources.journal_source import open_book
from tests.entry.terminal import command_line
from tests.journal.scenarios import SCENARIOS
from tests.pipeline.books import make_export, make_store, make_stores, small_year
from tests.pipeline.published import read_ledger

pytestmark = pytest.mark.spark

ROWS = small_year()[1]["globex"][:60]


def command(*words: str | Path) -> tuple[int, dict]:
    """A command's exit status and what it answers as JSON."""
    answer = CliRunner().invoke(command_line(), ["pipeline", *map(str, words), "--json"])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    assert answer.stdout, answer.output
    return answer.exit_code, json.loads(answer.stdout)


def refused(*words: str | Path) -> str:
    """The sentence with which a command refuses its input."""
    status, said = command(*words)
    assert status == 2, said
    (problem,) = said["problems"]
    assert problem["next"]
    for sign in ("Traceback", "java", "py4j", "org.apache"):
        assert sign not in json.dumps(said)
    return problem["problem"]


# --- a truncated envelope -----------------------------------------------------------------------


def test_a_truncated_envelope_is_a_row_with_its_reason(spark, tmp_path: Path) -> None:
    whole = parcel(make_plan(100, 3), 1)
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "whole.mime").write_bytes(whole)
    cuts = [0, 20, len(whole) // 3, len(whole) // 2, len(whole) - 60]
    for cut in cuts:
        (archive / f"cut-{cut}.mime").write_bytes(whole[:cut])
    lake = Lake(tmp_path / "lake")
    status, said = command("run", "--lake", lake.root, "--archive", archive)
    assert status == 0
    assert (said["envelopes"], said["unreadable"], said["cut_off"]) == (len(cuts) + 1, 4, 1)
    rows = lake.read(spark, lake.current(), ENVELOPES, "envelopes").collect()
    found = {Path(row["file"]).name: row for row in rows}
    assert found.keys() == {path.name for path in archive.iterdir()}
    assert found["whole.mime"]["readable"]
    assert found["whole.mime"]["closed"]
    for cut in cuts[:-1]:
        row = found[f"cut-{cut}.mime"]
        assert not row["readable"]
        assert row["problem"]
        assert row["file_size"] == cut
    # Cut inside its last payload it still has a header; some handlers never close, so it is told.
    last = found[f"cut-{cuts[-1]}.mime"]
    assert (last["readable"], last["closed"]) == (True, False)
    assert last["notes"] == ["the closing boundary is missing"]
    assert last["message_id"] == found["whole.mime"]["message_id"]
    assert last["digest"] != found["whole.mime"]["digest"]


# --- a journal of another version, a missing column ---------------------------------------------


def _newer_store(folder: Path) -> Path:
    path = make_store(folder / "globex.db", "globex", ROWS)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE node SET journal_version = 99")
    return path


def _newer_export(folder: Path) -> Path:
    write_node_file(make_export(folder / "globex", "globex", ROWS), "globex", 99)
    return folder / "globex"


def _newer_lake(folder: Path) -> Path:
    Lake(folder / "old").publish(Lake(folder / "old").current_or_new())
    file = folder / "old" / "versions" / "00000001.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "journal_version": 99}), encoding="utf-8")
    return folder / "old"


@pytest.mark.parametrize("make", [_newer_store, _newer_export, _newer_lake])
@pytest.mark.parametrize("job", ["run", "stream"])
def test_a_journal_of_another_version_is_refused(
    spark, tmp_path: Path, make: Callable[[Path], Path], job: str
) -> None:
    good = make_store(tmp_path / "acme.db", "acme", [row._replace(node="acme") for row in ROWS])
    lake = tmp_path / "lake"
    said = refused(job, "--lake", lake, "--store", good, "--store", make(tmp_path))
    assert "version 99" in said
    assert not Lake(lake).exists  # Not even what could be read: it is all or nothing.


def _store_without(folder: Path) -> Path:
    path = folder / "old.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE node (name TEXT, journal_version INTEGER)")
        connection.execute("INSERT INTO node VALUES ('old', 1)")
        columns = ", ".join(name for name in COLUMNS if name != "digest")
        connection.execute(f"CREATE TABLE journal ({columns})")
    return path


def _export_without(folder: Path) -> Path:
    export = make_export(folder / "globex", "globex", ROWS)
    file = next(export.glob("*.parquet"))
    pq.write_table(pq.read_table(file).drop_columns(["digest"]), file)
    return export


@pytest.mark.parametrize("make", [_store_without, _export_without])
def test_a_missing_column_is_named(spark, tmp_path: Path, make: Callable[[Path], Path]) -> None:
    said = refused("run", "--lake", tmp_path / "lake", "--store", make(tmp_path))
    assert "lacks" in said
    assert "digest" in said


# --- two stores with one name -------------------------------------------------------------------


def test_two_stores_of_one_name_are_refused_together_and_one_after_the_other(
    spark, tmp_path: Path
) -> None:
    first = make_store(tmp_path / "1.db", "globex", ROWS)
    other = [row._replace(boot="another", at=row.at + 7) for row in ROWS]
    second = make_store(tmp_path / "2.db", "globex", other)
    lake = Lake(tmp_path / "lake")
    for job in ("run", "stream"):
        said = refused(job, "--lake", lake.root, "--store", first, "--store", second)
        assert "two stores call themselves globex" in said
        assert str(first) in said
        assert str(second) in said
    assert not lake.exists
    assert command("run", "--lake", lake.root, "--store", first)[0] == 0
    before = lake.current()
    assert "not the store that the lake knows" in refused(
        "run", "--lake", lake.root, "--store", second
    )
    assert "both books are of node globex" in refused("reconcile", first, second)
    assert lake.current() == before
    rows = lake.read(spark, before, JOURNAL, "journal").collect()
    assert sorted(tuple(row) for row in rows) == [tuple(row) for row in ROWS]


# --- a clock that jumps -------------------------------------------------------------------------


def _window() -> dict[str, list[Row]]:
    return {name: list(node.rows) for name, node in SCENARIOS["window"]().nodes.items()}


def test_clocks_that_jump_back_are_a_finding_each_and_accuse_nobody(spark, tmp_path: Path) -> None:
    """In the middle of their business one clock is set a year on and later right; the other
    one a year back. No row says so."""
    nodes, year = _window(), 400 * DAY
    for name, jump in (("acme", year), ("globex", -year)):
        rows = nodes[name]
        third = len(rows) // 3
        rows[third:-third] = [row._replace(at=row.at + jump) for row in rows[third:-third]]
    stores = make_stores(tmp_path / "stores", nodes)
    lake = Lake(tmp_path / "lake")
    options = [word for store in stores for word in ("--store", store)]
    status, done = command("run", "--lake", lake.root, *options, "--ended")
    assert status == 0
    assert (done["rows"], done["quarantined"]) == (sum(map(len, nodes.values())), 0)
    assert [one["verdict"] for one in done["verdicts"]] == ["delivered"]
    waits = read_ledger(spark, lake, lake.current()).select("latency_us").collect()
    assert all(0 <= row["latency_us"] < HOUR for row in waits)
    status, checked = command("verify", "--lake", lake.root, "--ended")
    assert (status, checked["violations"]) == (1, [])
    found = [(each["node"], each["kind"]) for each in checked["findings"]]
    assert found == [("acme", "clock"), ("globex", "clock")]
    status, joined = command("reconcile", *stores)
    assert (status, joined["disagreements"]) == (0, [])


def test_an_instant_that_no_calendar_has_is_kept_with_its_reason(spark, tmp_path: Path) -> None:
    nodes = _window()
    rows = nodes["globex"]
    chosen = [row for row in rows if row.kind == "ack_sent"][-3:]
    odd = dict(zip((row.seq for row in chosen), (-1, 10**18, 2**63 - 1), strict=True))
    nodes["globex"] = [row._replace(at=odd.get(row.seq, row.at)) for row in rows]
    stores = make_stores(tmp_path / "stores", nodes)
    lake = Lake(tmp_path / "lake")
    options = [word for store in stores for word in ("--store", store)]
    status, done = command("run", "--lake", lake.root, *options, "--ended")
    assert status == 0
    assert (done["rows"], done["quarantined"]) == (sum(map(len, nodes.values())) - 3, 3)
    kept = lake.read(spark, lake.current(), QUARANTINE, "quarantine").collect()
    assert {row["seq"]: row["problem"] for row in kept} == {
        seq: f"at is {at}, which no calendar has" for seq, at in odd.items()
    }
    messages = {json.loads(row["raw"])["message_id"] for row in kept}
    assert messages == {row.message_id for row in chosen}
    status, checked = command("verify", "--lake", lake.root, "--ended")
    assert (status, checked["rows_quarantined"]) == (1, 3)


@pytest.mark.parametrize("by_export", [False, True])
def test_text_that_cannot_be_read_is_set_aside_and_the_rest_goes_on(
    spark, tmp_path: Path, by_export: bool
) -> None:
    """A detail of 100,000 brackets, and one that is not UTF-8."""
    nodes = _window()
    rows = nodes["globex"]
    deep, odd = [row for row in rows if row.kind == "ack_sent"][-2:]
    brackets = "[" * 100_000 + "]" * 100_000
    nodes["globex"] = [row._replace(detail=brackets) if row is deep else row for row in rows]
    if by_export:
        places = [make_export(tmp_path / name, name, some) for name, some in nodes.items()]
        for file in (tmp_path / "globex").glob("*.parquet"):
            table = pq.read_table(file)
            values = table["detail"].cast(pa.binary()).to_pylist()
            for number, seq in enumerate(table["seq"].to_pylist()):
                if seq == odd.seq:
                    values[number] = b'{"at": "\xff"}'
            column = pa.array(values, pa.binary()).cast(pa.string(), safe=False)
            position = table.schema.get_field_index("detail")
            pq.write_table(table.set_column(position, "detail", column), file)
    else:
        places = make_stores(tmp_path / "stores", nodes)
        with sqlite3.connect(places[1]) as connection:
            connection.execute(
                "UPDATE journal_row SET detail = CAST(? AS TEXT) WHERE seq = ?",
                (b'{"at": "\xff"}', odd.seq),
            )
    lake = Lake(tmp_path / "lake")
    done = jobs.run(spark, lake, places, ended=True)
    assert (done.rows, done.quarantined) == (sum(map(len, nodes.values())) - 2, 2)
    kept = lake.read(spark, lake.current(), QUARANTINE, "quarantine").collect()
    problems = {row["seq"]: row["problem"] for row in kept}
    assert problems[odd.seq] == "its detail is not UTF-8"
    assert problems[deep.seq].startswith("the detail of a 'ack_sent' row cannot be read")
    raw = {row["seq"]: json.loads(row["raw"]) for row in kept}
    assert raw[odd.seq]["detail"] == '{"at": "\\xff"}'
    assert raw[deep.seq]["detail"] == brackets
    assert done.verdicts.keys() == {"delivered"}


# --- damage that only a task meets --------------------------------------------------------------


def test_damage_in_the_middle_of_a_store_is_named(spark, tmp_path: Path) -> None:
    """The file opens, and its first rows can be read; the error comes from an executor."""
    rows = small_year(600, 11)[1]["globex"]
    path = make_store(tmp_path / "globex.db", "globex", rows)
    with sqlite3.connect(path) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'journal_row'"
        ).fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    # Leaf pages of a table are of type 13. The first and the last rows stay whole, because
    # they are looked at before any task begins.
    leaves = [page for page in range(root, len(data) // size) if data[page * size] == 13]
    middle = leaves[len(leaves) // 2] * size
    data[middle : middle + size] = b"\xff" * size
    path.write_bytes(data)
    assert open_book(path).bounds() == (1, len(rows))
    lake = Lake(tmp_path / "lake")
    said = refused("run", "--lake", lake.root, "--store", path)
    assert "is damaged" in said
    assert not lake.exists
