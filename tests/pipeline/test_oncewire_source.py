"""`format("oncewire")`: stores as tables, in bounded pieces, as a batch and as a stream."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from oncewire.errors import InvalidValue, NotAllowed
from oncewire.pipeline.session import own_error
from oncewire.pipeline.sources.oncewire import (
    OncewireStreamReader,
    is_local,
    oncewire_source_for,
)
from tests.pipeline.books import make_export, make_store, small_year
from tests.store.samples import add, prepare, received, sent

pytestmark = pytest.mark.spark

ROWS = small_year()[1]["globex"]
COUNT = len(ROWS)
LOCAL = oncewire_source_for("local[2]")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("source") / "globex.db", "globex", ROWS)


def source(path: Path, **options: str):
    made = LOCAL({"path": str(path), **options})
    return made, made.schema()


def test_a_batch_has_every_row_once(spark, store: Path) -> None:
    frame = spark.read.format("oncewire").option("rowsPerPartition", "100").load(str(store))
    found = sorted(tuple(row) for row in frame.collect())
    assert found == [tuple(row) for row in ROWS]
    assert frame.rdd.getNumPartitions() == -(-COUNT // 100)


def test_filters_and_columns(spark, store: Path) -> None:
    frame = spark.read.format("oncewire").option("columns", "kind,seq,message_id").load(str(store))
    assert frame.columns == ["seq", "kind", "message_id"]
    kinds = frame.where("kind in ('sent', 'received') and seq > 20 and message_id like '%@%'")
    expected = [row.seq for row in ROWS if row.kind in ("sent", "received") and row.seq > 20]
    assert sorted(row["seq"] for row in kinds.collect()) == expected


def test_a_frame_that_is_used_twice_reads_its_own_rows_each_time(spark, store: Path) -> None:
    frame = spark.read.format("oncewire").load(str(store))
    sent = [row.seq for row in ROWS if row.kind == "sent"]
    few, many = frame.where("seq < 3"), frame.where("kind = 'sent'")
    assert few.union(many).count() == 2 + len(sent)
    assert frame.where(f"seq < 3 or seq > {COUNT - 2}").count() == 4
    assert frame.count() == COUNT


def test_an_export_reads_as_the_store_does(spark, tmp_path: Path) -> None:
    folder = make_export(tmp_path / "globex", "globex", ROWS)
    frame = spark.read.format("oncewire").load(str(folder))
    assert sorted(tuple(row) for row in frame.collect()) == [tuple(row) for row in ROWS]


def test_what_a_store_holds_now(spark, tmp_path: Path) -> None:
    from oncewire.store.sqlite.store import SqliteStore

    path = tmp_path / "acme.db"
    store = SqliteStore(path, node="acme")
    prepare(store)
    with store.transition() as tx:
        add(tx, sent("m1"))
        add(tx, sent("m2"))
        tx.add_incoming(received("m3"))
    store.commit()
    store.close()
    frame = spark.read.format("oncewire").option("table", "messages").load(str(path))
    rows = {row["message_id"]: row for row in frame.collect()}
    assert set(rows) == {"m1", "m2", "m3"}
    assert rows["m1"]["direction"] == "out"
    assert rows["m3"]["direction"] == "in"
    assert {row["node"] for row in rows.values()} == {"acme"}


# --- streams ------------------------------------------------------------------------------------


def test_a_stream_is_bounded_and_complete(spark, store: Path, tmp_path: Path) -> None:
    frame = spark.readStream.format("oncewire").option("maxRowsPerBatch", "500").load(str(store))
    query = (
        frame.writeStream.format("memory")
        .queryName("bounded")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sizes = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    assert sum(sizes) == COUNT
    assert max(sizes) <= 500
    assert len(sizes) == -(-COUNT // 500)
    assert sorted(row["seq"] for row in spark.table("bounded").collect()) == list(
        range(1, COUNT + 1)
    )


def test_admission_and_the_target_of_available_now(tmp_path: Path) -> None:
    path = make_store(tmp_path / "globex.db", "globex", ROWS[:100])
    made, schema = source(path, maxRowsPerBatch="30", startingSeq="10")
    reader = made.streamReader(schema)
    assert isinstance(reader, OncewireStreamReader)
    assert reader.initialOffset() == {"seq": 10}
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert reader.latestOffset({"seq": 10}, ReadMaxRows(30)) == {"seq": 40}
    assert reader.latestOffset({"seq": 10}, ReadAllAvailable()) == {"seq": 100}
    reader.prepareForTriggerAvailableNow()
    make_store(path, "globex", ROWS[100:150])
    assert reader.latestOffset({"seq": 90}, ReadMaxRows(30)) == {"seq": 100}
    assert reader.latestOffset({"seq": 100}, ReadMaxRows(30)) == {"seq": 100}
    assert reader.reportLatestOffset() == {"seq": 150}
    # A new query sees what came since.
    assert made.streamReader(schema).latestOffset({"seq": 100}, ReadMaxRows(30)) == {"seq": 130}
    assert reader.partitions({"seq": 100}, {"seq": 100}) == []


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]", ""])
def test_a_cluster_is_told_what_to_read_instead(store: Path, master: str) -> None:
    made = oncewire_source_for(master)({"path": str(store)})
    with pytest.raises(NotAllowed, match="SQLite store") as refused:
        made.reader(made.schema())
    assert "oncewire pipeline run" in refused.value.remedy
    with pytest.raises(NotAllowed):
        made.streamReader(made.schema())


def test_a_cluster_s_refusal_comes_before_the_store_is_read(tmp_path: Path) -> None:
    store = tmp_path / "acme.db"
    store.write_bytes(b"SQLite format 3\0, and damaged from here on")
    made = oncewire_source_for("yarn")({"path": str(store)})
    with pytest.raises(NotAllowed, match="SQLite store"):
        made.reader(made.schema())


def test_masters_that_are_local() -> None:
    assert [is_local(one) for one in ("local", "local[2]", "local[*,4]")] == [True] * 3
    assert not is_local("local-cluster[2,1,1024]")


def test_a_cluster_reads_an_export(tmp_path: Path) -> None:
    folder = make_export(tmp_path / "globex", "globex", ROWS[:20])
    made = oncewire_source_for("spark://host:7077")({"path": str(folder)})
    assert made.reader(made.schema()).partitions()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "cakes"}, "no table 'cakes'"),
        ({"columns": "kind,colour"}, "columns names colour"),
        ({"startingSeq": "x"}, "startingSeq is 'x'"),
        ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch is '0'"),
        ({"path": ""}, "no store is named"),
    ],
)
def test_bad_options_are_named(store: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        LOCAL({"path": str(store), **options}).schema()


def test_state_rows_cannot_be_streamed(store: Path) -> None:
    made, schema = source(store, table="messages")
    with pytest.raises(NotAllowed, match="cannot be streamed"):
        made.streamReader(schema)


def test_an_error_on_the_way_is_found_again(spark, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        spark.read.format("oncewire").load(str(tmp_path / "nowhere")).collect()
    error = own_error(raised.value)
    assert "no store, export or lake" in error.problem
    assert error.remedy == "give the path of one"
