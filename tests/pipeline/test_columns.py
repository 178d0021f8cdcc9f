"""Every column has a comment and follows one convention; other tools and older queries find it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import BooleanType, DateType, TimestampType
from typer.main import get_command

from oncewire.entry.cli.main import build
from oncewire.errors import InvalidValue
from oncewire.pipeline.lake.columns import COMMENT, former, former_schema
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import EVERY, OPEN, Table
from oncewire.pipeline.reports.sql import ask
from tests.parts import ROOT
from tests.pipeline import reads
from tests.pipeline.books import COMPARED, lake_of, small_year

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "howto" / "pipeline.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BARE = {"size", "bytes", "latency", "duration", "missing", "handed_over", "confirmed", "timeout"}
"""Names that hide a unit, or whether something is counted."""


@pytest.mark.parametrize("table", EVERY.values(), ids=lambda table: table.name)
def test_every_column_has_a_comment(table: Table) -> None:
    for column in table.schema.fields:
        assert re.fullmatch(r"\w.*\.", column.metadata[COMMENT]), column.name
    assert table.says.endswith(".")


@pytest.mark.parametrize("table", OPEN.values(), ids=lambda table: table.name)
def test_a_name_says_its_unit(table: Table) -> None:
    for column in table.schema.fields:
        name, kind = column.name, column.dataType
        assert name not in BARE
        assert isinstance(kind, TimestampType) == (name.endswith("_at") or name in ("at", "hour"))
        assert isinstance(kind, DateType) == name.endswith("_on")
        if isinstance(kind, BooleanType):
            assert not name.endswith(("_count", "s"))


def test_the_page_of_tables_has_every_column(tmp_path: Path) -> None:
    made = [sys.executable, "scripts/reference.py", str(tmp_path)]
    subprocess.run(made, cwd=ROOT, check=True, timeout=300, env=None)
    page = (tmp_path / "tables.md").read_text(encoding="utf-8")
    sections = dict(
        re.findall(r"^## (\w+) \(\w+\)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    )
    assert sections.keys() == EVERY.keys()
    for name, text in sections.items():
        named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert named == EVERY[name].schema.fieldNames()


def test_the_page_of_the_pipeline_names_every_table() -> None:
    text = PAGE[PAGE.index("## The tables") : PAGE.index("## How a version")]
    assert set(EVERY) <= set(re.findall(r"`(\w+)`", text))


def test_every_table_that_a_run_makes_is_compared_and_read_meanwhile() -> None:
    of_runs = {name for name, table in OPEN.items() if table.layer == "gold"}
    of_runs -= {"retention", "evidence"}
    assert set(reads.SHOWN) == {*of_runs, "messages", "attempts", "hops"}
    # How far was judged depends on when.
    assert of_runs - set(COMPARED) == {"judged"}


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(spark, tmp_path_factory.mktemp("columns"), small_year(200, 7)[1])


@pytest.mark.parametrize("table", OPEN.values(), ids=lambda table: table.name)
def test_every_tool_finds_the_comments(spark, lake: Lake, table: Table) -> None:
    expected = {column.name: column.metadata[COMMENT] for column in table.schema.fields}
    log = json.loads(DeltaTable(str(lake.root / table.root)).schema().to_json())
    assert {one["name"]: one["metadata"][COMMENT] for one in log["fields"]} == expected
    described = ask(spark, lake, f"DESCRIBE {table.name}").rows
    assert {row[0]: row[2] for row in described} == expected
    plain = spark.read.parquet(str(lake.root / table.root / "current"))
    assert {one.name: one.metadata[COMMENT] for one in plain.schema.fields} == expected
    files = f"{lake.root / table.root}/current/*.parquet"
    with duckdb.connect() as connection:
        footers = dict(
            connection.execute(f"SELECT key, value FROM parquet_kv_metadata('{files}')").fetchall()
        )
    (schema,) = (json.loads(value) for key, value in footers.items() if b"spark" in key)
    assert {one["name"]: one["metadata"][COMMENT] for one in schema["fields"]} == expected


def test_every_hop_through_an_intermediary_is_a_row(lake: Lake) -> None:
    found = DeltaTable(str(lake.root / "silver" / "hops")).to_pyarrow_table().to_pylist()
    expected = {
        (row.node, row.seq, row.kind, row.message_id, row.hop, row.peer)
        for rows in small_year(200, 7)[1].values()
        for row in rows
        if row.kind in ("forwarded", "passed_on")
    }
    names = ("node", "seq", "event", "message_id", "hop", "peer")
    assert {tuple(row[name] for name in names) for row in found} == expected
    assert len(found) == len(expected) > 0
    assert all(row["from_party"] for row in found if row["event"] == "forwarded")


def test_the_names_of_the_first_version_are_kept(spark, lake: Lake) -> None:
    question = "SELECT message_id, latency, extent, size FROM ledger ORDER BY 1"
    old = ask(spark, lake, question, v1=True)
    now = ask(spark, lake, question.replace("latency", "latency_us").replace(
        "extent", "judgement").replace("size", "size_bytes"))  # fmt: skip
    assert old.rows == now.rows
    assert old.rows
    with pytest.raises(InvalidValue, match="latency"):
        ask(spark, lake, question)
    seconds = ask(spark, lake, "SELECT sum(latency_p99) FROM partner_service", v1=True).rows[0][0]
    micros = ask(spark, lake, "SELECT sum(latency_p99_us) FROM partner_service").rows[0][0]
    assert seconds == pytest.approx(micros / 1e6)


@pytest.mark.parametrize("table", OPEN.values(), ids=lambda table: table.name)
def test_the_source_reads_by_the_names_of_the_first_version(
    spark, lake: Lake, table: Table
) -> None:
    frame = spark.read.format("oncewire").option("table", table.name).option("columns", "v1")
    found = frame.load(str(lake.root)).toArrow()
    assert found.column_names == former_schema(table.schema).fieldNames()
    files = lake.files(lake.current(), table.entries(lake.current()))
    if not files:
        return
    kept = ds.dataset(files, format="parquet").to_table()
    assert len(found) == len(kept)
    for one in former(table.schema):
        if one.per != 1:
            was, now = pc.sum(found[one.name]).as_py(), pc.sum(kept[one.column]).as_py()
            assert was == pytest.approx(now / one.per)
        elif kept[one.column].type.num_fields == 0:
            was, now = found[one.name].to_pylist(), kept[one.column].to_pylist()
            assert sorted(map(str, was)) == sorted(map(str, now))


def test_every_command_is_explained() -> None:
    group = get_command(build()).commands["pipeline"]  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `(\w+)` \| [a-z]+ ", PAGE, re.MULTILINE)) >= set(group.commands)
    shown = re.findall(r"^oncewire pipeline (.*?)(?:\s+#.*)?$", PAGE + README, re.MULTILINE)
    assert len(shown) > 8
    for words in shown:
        name, *rest = words.split()
        options = {word for one in group.commands[name].params for word in one.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words
