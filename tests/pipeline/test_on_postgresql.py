"""A store on PostgreSQL as the pipeline reads it: every row once, and never its password."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from oncewire.entry.party.partners import with_values
from oncewire.errors import InvalidValue, JournalProblem, NotAllowed, StoreGone, StoreProblem
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import own_error
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.pipeline.sources.oncewire import oncewire_source_for
from oncewire.store.postgresql.store import PostgresStore
from tests.entry.terminal import run, run_json
from tests.journal.scenarios import SCENARIOS
from tests.pipeline.books import files_with, make_store, small_year, tables
from tests.postgres import Server
from tests.store.samples import add, prepare, received, row, sent

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = small_year()[1]["globex"]
COUNT = len(ROWS)
PASSWORD = "not-for-eyes"
"""One that the server does not ask for."""


@pytest.fixture
def url(postgres: Server) -> str:
    return f"{postgres.new_schema()}&password={PASSWORD}"


def fill(url: str, spool: Path, rows=ROWS, node: str = "globex") -> str:
    store = PostgresStore(url, node=node, spool=spool)
    with store.transition() as tx:
        tx.journal(rows)
    store.commit()
    store.close()
    return url


# --- every row once -----------------------------------------------------------------------------


class Follower:
    """A stream over a journal, as Spark drives it: what it has read, in its order."""

    def __init__(self, url: str) -> None:
        made = oncewire_source_for("spark://somewhere:7077")({"url": url, "rowsPerPartition": "7"})
        self._reader = made.streamReader(made.schema())
        self._offset = self._reader.initialOffset()
        self.seen: list[int] = []

    def follow(self) -> list[int]:
        """What is new."""
        end = self._reader.latestOffset(self._offset, ReadAllAvailable())
        parts = self._reader.partitions(self._offset, end)
        batches = [batch for part in parts for batch in self._reader.read(part)]
        self._offset = end
        new = [seq for batch in batches for seq in batch.column("seq").to_pylist()]
        self.seen += new
        return new


@pytest.fixture
def handlers(url: str, tmp_path: Path) -> Iterator[list[PostgresStore]]:
    """Three beside each other on one store."""
    with ExitStack() as stack:
        made = [
            PostgresStore(url, node="node", spool=tmp_path / "spool", lease=60) for _ in range(3)
        ]
        for store in made:
            stack.callback(store.close)
        yield made


def test_an_open_transaction_hides_no_row_for_ever(url: str, handlers: list[PostgresStore]) -> None:
    """One turn stays open for seconds while others want to commit: what they write comes behind
    it, and a reader that looks all the time meets every row once."""
    first, *others = handlers
    follower = Follower(url)
    slow = first.transition()
    tx = slow.__enter__()
    tx.journal([row("sent", f"slow-{number}") for number in range(20)])

    def write(store: PostgresStore) -> None:
        for turn in range(15):
            with store.transition() as other:
                other.journal([row("sent", f"{id(store)}-{turn}-{number}") for number in range(3)])
            store.commit()

    threads = [threading.Thread(target=write, args=(store,)) for store in others]
    for thread in threads:
        thread.start()
    # The lock of a turn is given up by the server after five seconds.
    for _ in range(10):
        assert follower.follow() == []
        time.sleep(0.1)
    slow.__exit__(None, None, None)
    first.commit()
    while any(thread.is_alive() for thread in threads):
        follower.follow()
    for thread in threads:
        thread.join()
    follower.follow()
    assert follower.seen == list(range(1, 20 + 2 * 15 * 3 + 1))


def test_a_transaction_that_takes_no_turn_holds_nobody_up(
    url: str, handlers: list[PostgresStore]
) -> None:
    """Somebody else's transaction in the same database, open and with a number of its own."""
    follower = Follower(url)
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE elsewhere (id bigint)")
        for number, store in enumerate(handlers * 3, 1):
            with store.transition() as tx:
                tx.journal([row("sent", f"m{number}")])
            store.commit()
            assert follower.follow() == [number]
        other.rollback()
    assert follower.follow() == []


def test_a_batch_has_every_row_once_by_ranges(spark, url: str, tmp_path: Path) -> None:
    fill(url, tmp_path)
    reading = spark.read.format("oncewire").option("url", url)
    frame = reading.option("rowsPerPartition", "100").load()
    assert sorted(tuple(one) for one in frame.collect()) == [tuple(one) for one in ROWS]
    assert frame.rdd.getNumPartitions() == -(-COUNT // 100)
    some = frame.where("kind in ('sent', 'received') and seq > 20 and ref_to is null")
    expected = [
        one.seq
        for one in ROWS
        if one.kind in ("sent", "received") and one.seq > 20 and one.ref_to is None
    ]
    assert sorted(one["seq"] for one in some.collect()) == expected
    assert frame.where("message_id = 'a\\0b'").collect() == []


def test_what_a_store_holds_now(spark, url: str, tmp_path: Path) -> None:
    store = PostgresStore(url, node="acme", spool=tmp_path)
    prepare(store)
    with store.transition() as tx:
        add(tx, sent("m1"))
        tx.add_incoming(received("m2"))
    store.commit()
    store.close()
    frame = spark.read.format("oncewire").option("url", url).option("table", "messages").load()
    rows = {one["message_id"]: one["direction"] for one in frame.collect()}
    assert rows == {"m1": "out", "m2": "in"}
    assert frame.where("attempts is null and direction = 'in'").count() == 1
    assert frame.where("attempts = 7").count() == 0


def test_a_lake_of_it_is_that_of_the_same_store_in_a_file(spark, url: str, tmp_path: Path) -> None:
    file = make_store(tmp_path / "globex.db", "globex", ROWS)
    fill(url, tmp_path / "spool")
    lakes = {}
    for name, place in (("of a file", file), ("of a database", url)):
        lake = Lake(tmp_path / name)
        jobs.run(spark, lake, [place], ended=True)
        lakes[name] = tables(spark, lake)
    assert lakes["of a database"] == lakes["of a file"]
    assert lakes["of a database"]["journal"]


# --- never its password -------------------------------------------------------------------------


def test_no_plan_and_no_file_of_a_stream_shows_the_password(
    spark, url: str, tmp_path: Path
) -> None:
    fill(url, tmp_path / "spool", ROWS[:50])
    read = spark.read.format("oncewire").option("url", url).load()
    plans = [
        read._jdf.queryExecution().toString(),
        read._jdf.queryExecution().stringWithStats(),
        read.groupBy("kind").count()._jdf.queryExecution().toString(),
        repr(read),
    ]
    lake = Lake(tmp_path / "lake")
    done = jobs.stream(spark, lake, [url], checkpoint=tmp_path / "checkpoint")
    assert done.rows == 50
    query = (
        spark.readStream.format("oncewire").option("url", url).load()
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    plans += [query._jsq.explainInternal(True), *map(str, query.recentProgress)]
    for plan in plans:
        assert PASSWORD not in plan
    assert any("oncewire" in plan for plan in plans)
    assert files_with(PASSWORD, tmp_path) == []
    # Such a search finds what is there.
    assert files_with("journal", tmp_path / "lake")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("postgresql://me:{}@127.0.0.1:1/acme", StoreGone),
        ("postgresql://me:@{}@127.0.0.1:1/acme", StoreProblem),
        ("{url}", JournalProblem),
    ],
)
def test_no_error_shows_it(spark, url: str, address: str, kind: type[Exception]) -> None:
    place = address.format(PASSWORD, url=url)
    with pytest.raises(AnalysisException) as told:
        spark.read.format("oncewire").option("url", place).load().collect()
    assert PASSWORD not in str(told.value)
    assert PASSWORD not in str(own_error(told.value))
    assert type(own_error(told.value)) is kind


def test_an_address_in_the_wrong_place_is_refused_without_being_shown(
    tmp_path: Path, url: str
) -> None:
    source = oncewire_source_for("local[2]")
    for options, kind in (
        ({"path": f"postgresql://me:{PASSWORD}@db/acme"}, NotAllowed),
        ({"url": f"mysql://me:{PASSWORD}@db/acme"}, InvalidValue),
        ({"url": url, "path": str(tmp_path)}, InvalidValue),
        ({"url": url, "table": "nothing"}, InvalidValue),
        ({}, InvalidValue),
    ):
        with pytest.raises(kind) as refused:
            source(options).schema()
        assert PASSWORD not in str(refused.value)
    with pytest.raises(JournalProblem, match="no store of Oncewire") as empty:
        open_book(url)
    assert PASSWORD not in str(empty.value)
    said = run("pipeline", "prove", "--store", url, "--lake", tmp_path, exit_code=None)
    assert PASSWORD not in said.output + said.stderr


def test_commands_take_the_store_of_a_partys_folder(spark, url: str, tmp_path: Path) -> None:
    party, lake = tmp_path / "globex", tmp_path / "lake"
    run("init", party, "--store", url)
    fill(url, tmp_path / "spool", ROWS[:200])
    made = run("pipeline", "run", "--store", party, "--lake", lake)
    assert PASSWORD not in made.output + made.stderr
    assert run_json("pipeline", "prove", "--store", party, "--lake", lake)["unchanged"]
    asked = run_json("pipeline", "sql", "SELECT count(*) AS rows FROM journal", "--lake", lake)
    assert asked["answer"] == [{"rows": 200}]
    assert files_with(PASSWORD, lake) == []


def test_a_store_that_moved_is_the_one_that_the_lake_took_in(
    spark, postgres: Server, tmp_path: Path
) -> None:
    party, lake, file = tmp_path / "globex", tmp_path / "lake", tmp_path / "globex.db"
    run("init", party, "--store", (first := postgres.new_schema()))
    fill(first, tmp_path / "spool", ROWS[:200])
    run("pipeline", "run", "--store", party, "--lake", lake)
    run("store", "copy", file, "-c", party)
    assert run_json("pipeline", "prove", "--store", file, "--lake", lake)["unchanged"]
    settings = party / "oncewire.toml"
    there = {"store.url": '""', "store.path": f'"{file}"'}
    settings.write_text(with_values(settings.read_text(), there))
    run("store", "copy", (second := postgres.new_schema()), "-c", party)
    settings.write_text(with_values(settings.read_text(), {"store.url": f'"{second}"'}))
    found = run_json("pipeline", "prove", "--store", party, "--lake", lake)
    assert found["unchanged"]
    assert found["rows"] >= 400
    # Were it another store, it would say so.
    postgres.ask(f"UPDATE {second.rpartition('%3D')[2]}.journal_row SET at = at + 1 WHERE seq = 9")
    run("pipeline", "prove", "--store", party, "--lake", lake, exit_code=1)


def test_the_books_of_two_parties_are_joined(spark, postgres: Server, tmp_path: Path) -> None:
    world = SCENARIOS["window"]()
    for name, node in world.nodes.items():
        address = f"{postgres.new_schema()}&password={PASSWORD}"
        run("init", tmp_path / name, "--store", address)
        fill(address, tmp_path / f"spool-{name}", list(node.rows), name)
    rows = world.nodes["acme"].rows
    sent = {row.message_id for row in rows if row.kind == "submitted"}
    said = run_json("pipeline", "reconcile", *(tmp_path / name for name in world.nodes))
    assert (said["compared"], said["agreed"]) == (len(sent), len(sent))
    assert PASSWORD not in str(said)
