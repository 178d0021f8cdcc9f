"""Whoever reads a lake reads one whole version: by Spark, by Delta's log, or as plain files."""

import csv
import dataclasses
import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lxml import html

from oncewire.errors import InvalidValue, JournalProblem, NotAllowed
from oncewire.journal.row import Row
from oncewire.pipeline import jobs
from oncewire.pipeline.judging import extent, refresh
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.judging.evidence import Signers, prove_archive
from oncewire.pipeline.lake import compact, delta
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import EVERY, OPEN
from oncewire.pipeline.lake.version import safe_name
from oncewire.pipeline.reports import report
from oncewire.pipeline.reports.documents import Asked, Kept, check_documents
from oncewire.pipeline.reports.retention import report_retention
from oncewire.pipeline.reports.sql import ask
from oncewire.pipeline.session import own_error, spoken
from oncewire.pipeline.sources import ingest
from oncewire.protocol.states import Outcome
from tests.journal.scenarios import SCENARIOS
from tests.pipeline.books import (
    differences,
    executions,
    make_export,
    make_stores,
    small_year,
    tables,
)
from tests.pipeline.exchanges import PARTIES, exchanges
from tests.pipeline.reads import read_meanwhile

pytestmark = pytest.mark.spark

PLAN, NODES = small_year(200, 7)
TOLD = len({row.message_id for rows in NODES.values() for row in rows if row.message_id})
"""Messages, parts of documents among them: the ledger has a row for each."""


def nothing_kept(asked: Iterable[Asked]) -> Iterator[tuple[Asked, list[Kept]]]:
    """A store that has lost every document."""
    for each in asked:
        yield each, [Kept("missing")]


def halves(nodes: dict) -> dict:
    return {node: rows[: len(rows) // 2] for node, rows in nodes.items()}


@pytest.fixture(scope="module")
def grown(spark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in its second version."""
    folder = tmp_path_factory.mktemp("grown")
    lake, half = Lake(folder / "a,lake"), halves(NODES)
    stores = make_stores(folder / "stores", half)
    jobs.run(spark, lake, stores)
    make_stores(folder / "stores", {one: NODES[one][len(half[one]) :] for one in NODES})
    jobs.run(spark, lake, stores)
    report_retention(spark, lake, max(rows[-1].at for rows in NODES.values()))
    check_documents(spark, lake, {"globex": nothing_kept}, 1_700_000_000_000_000)
    raw = folder / "raw"
    raw.mkdir()
    for each in exchanges(range(1, 4)):
        each.write(raw)
    known = {party: (who.certificate_pem,) for party, who in PARTIES.items()}
    prove_archive(spark, lake, [raw], Signers(known))
    return lake


# --- other tools ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPEN)
def test_every_tool_reads_the_same_rows(spark, grown: Lake, name: str) -> None:
    table, version = OPEN[name], grown.current()
    path = str(grown.root / table.root)
    count = sum(entry.rows for entry in table.entries(version))
    # Nothing is wrong in this year.
    assert bool(count) == (name != "violations")
    by_delta = deltalake.DeltaTable(path).to_pyarrow_table()
    through = spark.read.format("oncewire").option("table", name).load(str(grown.root))
    assert through.columns == table.schema.fieldNames()
    read = {"Polars": pl.read_delta(path, use_pyarrow=True).to_arrow(), "Spark": through.toArrow()}
    if count:
        files = f"read_parquet('{path}/current/*.parquet')"
        read["DuckDB"] = duckdb.sql(f"SELECT * FROM {files}").arrow().read_all()
        frame = pd.read_parquet(path, dtype_backend="pyarrow")
        read["pandas"] = pa.Table.from_pandas(frame, preserve_index=False)
        read["files, by Spark"] = spark.read.parquet(f"{path}/current").toArrow()
    expected = rows_of(by_delta)
    assert len(expected) == count
    for tool, rows in read.items():
        assert rows_of(rows) == expected, tool


def rows_of(table: pa.Table) -> list[str]:
    """Every row with its columns by name, in one order; instants are microseconds."""
    instants = {
        field.name: field.type for field in table.schema if pa.types.is_timestamp(field.type)
    }
    for name in instants:
        at = table.schema.get_field_index(name)
        whole = table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        table = table.set_column(at, name, whole)
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


def test_the_version_before_is_there_by_its_number(spark, grown: Lake) -> None:
    before = grown.version(1)
    count = sum(entry.rows for entry in OPEN["ledger"].entries(before))
    assert count < sum(entry.rows for entry in OPEN["ledger"].entries(grown.current()))
    path = str(grown.root / "gold/ledger")
    assert deltalake.DeltaTable(path, version=0).to_pyarrow_table().num_rows == count
    older = spark.read.format("oncewire").option("table", "ledger").option("version", "1")
    assert older.load(str(grown.root)).count() == count
    with pytest.raises(JournalProblem, match="does not keep version 7"):
        grown.version(7)


def test_a_table_that_is_not_all_there_is_not_read_in_part(spark, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    jobs.run(spark, lake, make_stores(tmp_path / "stores", NODES))
    (lost, *_) = OPEN["ledger"].entries(lake.current())
    shutil.rmtree(lake.root / lost.path)
    ledger = spark.read.format("oncewire").option("table", "ledger").load(str(lake.root))
    with pytest.raises(JournalProblem, match=f"{lost.path} of version 1 is gone"), spoken():
        ledger.count()


def test_sql_sees_every_table_in_one_version(spark, grown: Lake) -> None:
    found = ask(spark, grown, "SELECT verdict, count(*) AS n FROM ledger GROUP BY ALL ORDER BY n")
    assert found.columns == ("verdict", "n")
    assert found.version == grown.current().number
    assert sum(row[1] for row in found.rows) == TOLD
    assert ask(spark, grown, "SELECT * FROM messages", rows=5).cut


def test_sql_tells_which_tables_there_are_and_their_columns(spark, grown: Lake) -> None:
    assert {row[1] for row in ask(spark, grown, "show tables").rows} >= set(EVERY)
    columns = {row[0] for row in ask(spark, grown, "DESCRIBE ledger;").rows}
    assert {"message_id", "verdict"} <= columns


def test_a_question_that_cannot_be_asked_is_answered_with_one_sentence(
    spark, grown: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidValue, match="cannot be asked"):
        ask(spark, grown, "SELECT colour FROM ledger")
    said = capfd.readouterr()
    assert "org.apache.spark" not in said.out + said.err


@pytest.mark.parametrize(
    "statement",
    [
        "DROP VIEW ledger",
        "CREATE TABLE copied USING parquet AS SELECT * FROM ledger",
        "INSERT OVERWRITE DIRECTORY 'copied' USING parquet SELECT * FROM ledger",
        "SET spark.sql.ansi.enabled = false",
    ],
)
def test_sql_asks_and_changes_nothing(spark, grown: Lake, statement: str) -> None:
    with pytest.raises(InvalidValue, match="only a SELECT"):
        ask(spark, grown, statement)


def test_a_run_that_was_killed_before_it_showed_its_version_is_followed(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, half = Lake(tmp_path / "lake"), halves(NODES)
    stores = make_stores(tmp_path / "stores", half)
    jobs.run(spark, lake, stores)
    make_stores(tmp_path / "stores", {one: NODES[one][len(half[one]) :] for one in NODES})
    with monkeypatch.context() as patched:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(delta, "switch", killed)
        patched.setattr(delta, "follow", killed)
        with pytest.raises(KeyboardInterrupt):
            jobs.run(spark, lake, stores)
    path = str(lake.root / "gold/ledger")
    behind = deltalake.DeltaTable(path).to_pyarrow_table().num_rows
    assert behind == sum(one.rows for one in OPEN["ledger"].entries(lake.version(1)))
    with lake.writing():
        pass
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == TOLD
    assert len(pd.read_parquet(path)) == TOLD


TOOLS = {"DuckDB", "pandas", "pandas through Delta", "Polars", "Spark"}


def test_every_read_is_one_version_whole_while_runs_publish(spark, tmp_path: Path) -> None:
    saw = read_meanwhile(spark, tmp_path, messages=200, steps=200, reads=40)
    assert {read.tool for read in saw.reads} == TOOLS
    assert saw.across()


@pytest.mark.soak
def test_a_thousand_reads_are_one_version_each(spark, tmp_path: Path) -> None:
    began = time.monotonic()
    saw = read_meanwhile(spark, tmp_path, messages=600, steps=800, reads=1_000)
    told = {tool: len(saw.reads_of(tool)) for tool in sorted(TOOLS)}
    print(
        f"{told}, {saw.versions} versions published meanwhile, {saw.across()} reads across one, "
        f"read again {dict(saw.gone)}, {time.monotonic() - began:.0f} s"
    )
    assert told == dict.fromkeys(TOOLS, 200)
    assert saw.versions > 50
    # One read at a time, so there are never more than versions; most must fall into one.
    assert saw.across() > saw.versions // 2
    for tool in TOOLS:
        assert len({(read.table, read.content) for read in saw.reads_of(tool)}) > 50, tool


# --- little and much --------------------------------------------------------------------------


def test_how_it_is_divided_makes_no_difference(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are one task of each pass; here they are many, with a shuffle between them."""
    half = halves(NODES)
    lakes = []
    for name, rows in (("one", extent.ROWS_PER_TASK), ("many", 150)):
        for module in (extent, refresh, ingest):
            monkeypatch.setattr(module, "ROWS_PER_TASK", rows)
        stores = make_stores(tmp_path / name, half)
        lakes.append(Lake(tmp_path / f"{name}-lake"))
        jobs.run(spark, lakes[-1], stores)
        make_stores(tmp_path / name, {one: NODES[one][len(half[one]) :] for one in NODES})
        jobs.run(spark, lakes[-1], stores)
    one, many = (each.current() for each in lakes)
    assert len(many.tables["ledger_closed"]) > 4 > len(one.tables["ledger_closed"])
    assert not differences(*(tables(spark, lake) for lake in lakes))


def test_a_run_is_six_passes_by_few_tasks(spark, tmp_path: Path) -> None:
    """As Spark itself counts them; a run that only finds nothing new makes two."""
    status = spark.sparkContext._jsc.sc().statusStore()
    lake, half = Lake(tmp_path / "lake"), halves(NODES)
    stores = make_stores(tmp_path / "stores", half)
    rest = {one: NODES[one][len(half[one]) :] for one in NODES}
    for passes, tasks, more in ((6, 12, rest), (6, 20, {}), (2, 6, {})):
        before, known = executions(spark), status.jobsList(None).size()
        done = jobs.run(spark, lake, stores)
        every = status.jobsList(None)
        new = [every.apply(number) for number in range(every.size() - known)]
        assert executions(spark) - before == passes
        assert done.spark_jobs == len(new)
        assert done.spark_tasks == sum(job.numCompletedTasks() for job in new) <= tasks
        make_stores(tmp_path / "stores", more)


@pytest.mark.soak
def test_many_small_runs_leave_a_lake_like_that_of_one(spark, tmp_path: Path) -> None:
    """A reader pays for every directory, so there are few of them however many runs there were."""
    runs, lake, fresh = 150, Lake(tmp_path / "lake"), Lake(tmp_path / "fresh")
    _, nodes = small_year(600, 7)
    for step in range(runs):
        part = {
            node: rows[len(rows) * step // runs : len(rows) * (step + 1) // runs]
            for node, rows in nodes.items()
        }
        stores = make_stores(tmp_path / "stores", part)
        jobs.run(spark, lake, stores)
    jobs.run(spark, fresh, stores)
    version = lake.current()
    assert len(version.journal) < len(nodes) * compact.MANY
    for table, entries in version.tables.items():
        assert table == "journal" or len(entries) <= compact.MANY, table
    found = [judge_lake(spark, each) for each in (lake, fresh)]
    assert found[0].violations == found[1].violations
    assert found[0].outcomes == found[1].outcomes
    assert not differences(*(tables(spark, each) for each in (lake, fresh)))


def test_other_rules_judge_again(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, stores = Lake(tmp_path / "lake"), make_stores(tmp_path / "stores", NODES)
    jobs.run(spark, lake, stores)
    number = lake.current().number
    assert jobs.run(spark, lake, stores).version == number
    for module in ("extent", "refresh"):
        monkeypatch.setattr(
            f"oncewire.pipeline.judging.{module}.rules_digest", lambda: "other rules"
        )
    assert jobs.run(spark, lake, stores).version == number + 1
    assert lake.current().judged["rules"] == "other rules"


def test_the_rules_are_every_module_that_decides(tmp_path: Path) -> None:
    names = extent.modules()
    for part in ("check", "row", "outcome", "predicates.sender", "predicates.context"):
        assert f"oncewire.journal.{part}" in names
    assert {"oncewire.protocol.terms", Outcome.__module__} <= set(names)


def test_silence_is_judged_by_the_time_of_reading(spark, tmp_path: Path) -> None:
    """A partner's journal ends months ago; what its sender still waits for is lost by now."""
    node = max(NODES, key=lambda name: len(NODES[name]))
    lake = Lake(tmp_path / "lake")
    nodes = {name: rows if name == node else rows[: len(rows) // 3] for name, rows in NODES.items()}
    stores = make_stores(tmp_path / "stores", nodes)
    last = max(rows[-1].at for rows in nodes.values())
    early = jobs.run(spark, lake, stores, now=last)
    waiting = [row for row in judged(lake) if row["not_yet_count"]]
    assert waiting
    later = jobs.run(spark, lake, stores, now=last + 300 * 86_400_000_000)
    assert later.rows == 0
    assert later.version == early.version + 1
    assert not [row for row in judged(lake) if row["not_yet_count"]]
    assert {row["clock"].partition(": ")[2] for row in judged(lake)} == {"time of reading"}
    assert later.violations > early.violations


def test_what_both_sides_agree_on_is_looked_at_again_when_its_time_is_over(
    spark, tmp_path: Path
) -> None:
    """How a message travelled is compared when nothing more of it can come."""
    nodes: dict[str, list[Row]] = {}
    for row in SCENARIOS["plain"]().rows:
        changed = row._replace(transport="smtp") if row.kind == "received" else row
        nodes.setdefault(row.node, []).append(changed)
    lake, stores = Lake(tmp_path / "lake"), make_stores(tmp_path / "stores", nodes)
    last = max(rows[-1].at for rows in nodes.values())
    early = jobs.run(spark, lake, stores, now=last)
    assert early.violations == 0
    later = jobs.run(spark, lake, stores, now=last + 300 * 86_400_000_000)
    assert later.violations > 0
    # What was looked at then is not looked at with every run.
    assert jobs.run(spark, lake, stores, now=last + 301 * 86_400_000_000).version == later.version


def judged(lake: Lake) -> list[dict]:
    return pl.read_delta(str(lake.root / "gold/judged")).to_dicts()


# --- in any session, and from any place --------------------------------------------------------


def test_another_time_zone_counts_nothing_twice(spark, tmp_path: Path) -> None:
    half = halves(NODES)
    lake = Lake(tmp_path / "lake")
    stores = make_stores(tmp_path / "stores", half)
    jobs.run(spark, lake, stores)
    make_stores(tmp_path / "stores", {one: NODES[one][len(half[one]) :] for one in NODES})
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        jobs.run(spark, lake, stores)
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    whole = Lake(tmp_path / "whole")
    jobs.run(spark, whole, stores)
    assert not differences(tables(spark, whole), tables(spark, lake))


def test_a_session_that_changes_plans_as_it_goes_runs_no_more_jobs(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that changes on the way is a job of Spark more for every shuffle."""
    setting, half = "spark.sql.adaptive.enabled", halves(NODES)
    for module in (extent, refresh, ingest):
        monkeypatch.setattr(module, "ROWS_PER_TASK", 150)
    rest = {one: NODES[one][len(half[one]) :] for one in NODES}
    before, counted = spark.conf.get(setting), []
    try:
        for chosen in ("false", "true"):
            spark.conf.set(setting, chosen)
            lake, stores = Lake(tmp_path / chosen), make_stores(tmp_path / f"of-{chosen}", half)
            done = [jobs.run(spark, lake, stores)]
            make_stores(tmp_path / f"of-{chosen}", rest)
            done.append(jobs.run(spark, lake, stores))
            counted.append([each.spark_jobs for each in (*done, judge_lake(spark, lake))])
            assert spark.conf.get(setting) == chosen
    finally:
        spark.conf.set(setting, before)
    assert counted[0] == counted[1]


def test_one_archive_is_one_archive_however_it_is_spelled(
    spark, tmp_path: Path, corpus_files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for file in corpus_files[:5]:
        (raw / file.name).write_bytes(file.read_bytes())
    lake = Lake(tmp_path / "lake, with a comma")
    monkeypatch.chdir(tmp_path)
    count = jobs.run(spark, lake, archives=["raw"]).envelopes
    assert count >= 5
    for spelled in ("./raw", raw, "raw/../raw"):
        assert jobs.run(spark, lake, archives=[spelled]).envelopes == 0
    for file in raw.iterdir():
        file.touch()
    assert jobs.run(spark, lake, archives=[raw]).envelopes == 0


def test_what_is_not_there_is_said_at_once(spark, tmp_path: Path) -> None:
    with pytest.raises(JournalProblem, match="no archive at"), spoken():
        spark.read.format("ebxml").load(str(tmp_path / "typo")).count()
    with pytest.raises(JournalProblem, match="nothing is named"):
        jobs.run(spark, Lake(tmp_path / "lake"))
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("place", ["s3a://bucket/lake", "s3a:/bucket/lake", "hdfs://host/lake"])
def test_a_place_that_is_no_folder_is_refused_and_none_is_made(place: str) -> None:
    with pytest.raises(NotAllowed, match="is not a folder"):
        Lake(place)
    assert not Path(place.partition(":")[0] + ":").exists()


def test_a_file_uri_is_a_folder(tmp_path: Path) -> None:
    assert Lake(f"file://{tmp_path}").root == tmp_path


def test_a_package_that_workers_lack_is_named() -> None:
    told = own_error(RuntimeError("...\nModuleNotFoundError: No module named 'lxml'\n..."))
    assert "'lxml'" in told.problem
    assert "spark.pyspark.python" in told.remedy


def test_the_log_of_a_table_says_which_version_it_shows(grown: Lake) -> None:
    commits = sorted((grown.root / "gold/ledger/_delta_log").glob("*.json"))
    said = [json.loads(commit.read_text().splitlines()[0])["commitInfo"] for commit in commits]
    assert [one["oncewire.version"] for one in said] == [1, 2]


# --- for people -------------------------------------------------------------------------------


def test_the_report_is_one_page_that_needs_nothing_else(grown: Lake, tmp_path: Path) -> None:
    facts = report.write(grown, tmp_path / "report.html", tmp_path / "csv")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = html.fromstring(text)
    assert [one.text for one in page.findall(".//h2")] == [
        "Outcomes",
        "Partners by day",
        "Latency",
        "Gaps in the numbers",
        "Causes by frequency",
        "Best effort",
        "What was judged, and what not",
        "Findings",
    ]
    assert report.sentence(facts) in page.find(".//p").text
    assert not page.findall(".//script")
    assert not re.search(r"https?:|url\(|@import|src=", text)
    assert len(page.findall(".//rect")) > 20
    partners = {row["partner"] for row in facts.service if row["partner"]}
    files = sorted((tmp_path / "csv").glob("*.csv"))
    assert len(files) == len(partners)
    lines = list(csv.DictReader(files[0].open(encoding="utf-8")))
    assert sum(int(line["messages"]) for line in lines) == sum(
        row["messages"] for row in facts.service if safe_name(row["partner"] or "") == files[0].stem
    )


def test_the_report_calls_no_promise_kept_that_was_not_judged(grown: Lake) -> None:
    facts = report.gather(grown)
    judged = {"not_yet_count": 3, "in_doubt_count": 0}

    def told(messages: int) -> str:
        one = dataclasses.replace(
            facts, verdicts={"delivered": messages}, findings=(), judged=(judged,)
        )
        return report.sentence(one)

    assert told(5) == "Every promise was kept for 2 messages. 3 messages are not judged yet."
    assert told(3) == "No promise was found broken. 3 messages are not judged yet."


def test_the_report_says_what_is_wrong_and_escapes_it(spark, tmp_path: Path) -> None:
    node = max(NODES)
    rows = [
        row._replace(kind="<b>told</b>") if row.seq == 60 else row
        for row in NODES[node]
        if not 20 <= row.seq <= 30
    ]
    lake = Lake(tmp_path / "lake")
    jobs.run(spark, lake, [make_export(tmp_path / "book", node, rows)], ended=True)
    facts = report.gather(lake)
    text = report.render(facts, "<Ledger>")
    assert "things are wrong with the journals" in report.sentence(facts)
    assert "&lt;b&gt;told&lt;/b&gt;" in text
    assert "<b>told" not in text
    assert "11 rows are missing" in text
