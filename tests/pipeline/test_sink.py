"""The sink: each row of a table arrives once, whatever fails on the way."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncewire.entry.admin.server import admin_port
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue, NotAllowed
from oncewire.handler.world import RealWorld
from oncewire.pipeline.session import own_error
from oncewire.pipeline.sink import in_order, message_id
from oncewire.pipeline.sources.oncewire import oncewire_source_for
from tests.entry.conftest import made_partners
from tests.entry.served import Served
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = 300
READ = """
import sqlite3, sys
rows = "SELECT message_id FROM journal WHERE kind = ? ORDER BY seq"
print(*(one for one, in sqlite3.connect(sys.argv[1]).execute(rows, sys.argv[2:])))
"""


class Target:
    """acme with its admin port, and globex, which receives."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.folder = folder
        self.rest = {"url": url, "token": token, "to": "globex", "media_type": "application/xml"}
        self.local = {"path": str(folder / "acme"), "to": "globex"}

    def rows(self, party: str, kind: str) -> list[str]:
        """The MessageIds of a party's journal rows of a kind, in their order."""
        # Another process reads: two libraries of SQLite in one process break each other's locks.
        store = self.folder / party / "data" / "oncewire.db"
        asked = [sys.executable, "-c", READ, str(store), kind]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()

    def check_once(self, source: str, numbers: range) -> None:
        """Each row was stored by globex once, and nothing else of that source."""
        wanted = {message_id(source, [number]) for number in numbers}
        wait_until(lambda: wanted <= set(self.rows("globex", "received")))
        received = Counter(self.rows("globex", "received"))
        assert {received[one] for one in wanted} == {1}
        submitted = Counter(self.rows("acme", "submitted"))
        assert {submitted[one] for one in wanted} == {1}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("sink")
    for name in ("acme", "globex"):
        make_party(folder / name, name, now=RealWorld().now(), port=1, key_kind=KeyKind.EC)
    made_partners(folder)
    flags = {"admin.port": free_port()}
    settings = load(folder / "acme", environ={}, flags=flags).settings
    token = TokenFile(settings.path(settings.admin.tokens)).add("spark", (Permission.SUBMIT,))
    with Served(folder, "acme", "globex") as served:
        door = admin_port(settings, flags)
        served.do(door.__aenter__())
        try:
            yield Target(folder, f"http://127.0.0.1:{settings.admin.port}", token)
        finally:
            served.do(door.__aexit__(None, None, None))


def orders(spark, count: int = ROWS, parts: int = 3) -> DataFrame:
    frame = spark.range(0, count, numPartitions=parts).withColumnRenamed("id", "order_id")
    return frame.withColumn("payload", f.format_string("<order n='%d'/>", "order_id"))


def write(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    chosen = {"id_columns": "order_id", **options, **more}
    frame.write.format("oncewire").mode("append").options(**chosen).save()


def failing(frame: DataFrame, folder: Path) -> DataFrame:
    """The same rows; the worker of each partition dies once, in the middle of it."""
    marks = str(folder)

    def some(batches):
        from pyspark import TaskContext

        mark = Path(marks) / str(TaskContext.get().partitionId())
        for batch in batches:
            for start in range(0, batch.num_rows, 20):
                yield batch.slice(start, 20)
                if start >= 40 and not mark.exists():
                    mark.touch()
                    os._exit(1)

    return frame.mapInArrow(some, frame.schema)


def test_a_stream_sends_each_row_once_whatever_fails(spark, target: Target, tmp_path: Path) -> None:
    files, marks = tmp_path / "orders", tmp_path / "marks"
    marks.mkdir()
    orders(spark, parts=3).write.parquet(str(files))

    def stream(checkpoint: str, parts: int) -> None:
        frame = spark.readStream.schema(orders(spark).schema).option("maxFilesPerTrigger", 1)
        frame = failing(frame.parquet(str(files)).repartition(parts), marks)
        chosen = {**target.rest, "source": "stream", "id_columns": "order_id"}
        query = (
            frame.writeStream.format("oncewire").options(**chosen)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    stream("first", 2)
    assert list(marks.iterdir()), "no task has failed"
    target.check_once("stream", range(ROWS))
    commits = tmp_path / "first" / "commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdigit())
    for one in (commits / str(last), commits / f".{last}.crc"):
        one.unlink()
    stream("first", 2)  # The last batch is played again.
    assert (commits / str(last)).exists()
    stream("lost", 5)  # Another checkpoint, another partitioning.
    target.check_once("stream", range(ROWS))


def test_refused_rows_are_a_table_and_the_others_are_sent(
    spark, target: Target, tmp_path: Path
) -> None:
    rejects = str(tmp_path / "rejects")
    good = orders(spark, 30)
    write(good, target.rest, source="rejects")
    write(good, target.rest, source="rejects", rejects=rejects)
    assert not Path(rejects).exists(), "the same id and content has the same answer"
    number = f.col("order_id")
    changed = f.when(number == 7, "<other/>").when(number != 8, f.col("payload"))
    mixed = orders(spark, 40).withColumn("payload", changed)
    write(mixed, target.rest, source="rejects", rejects=rejects)
    found = {row["order_id"]: row for row in spark.read.parquet(rejects).collect()}
    assert set(found) == {7, 8}
    assert found[7]["payload"] == "<other/>"
    assert found[7]["reject_message_id"] == message_id("rejects", [7])
    assert found[7]["reject_reason"]
    assert found[8]["reject_reason"] == "payload is empty"
    target.check_once("rejects", range(40))
    with pytest.raises(PySparkException) as refused:
        write(mixed, target.rest, source="rejects")
    assert isinstance(own_error(refused.value), InvalidValue)
    assert target.rest["token"] not in str(refused.value)


def test_rows_of_a_local_party_leave_in_their_order(spark, target: Target) -> None:
    frame = orders(spark, 60).withColumn("rank", -f.col("order_id")).repartition(4)
    write(in_order(frame, ["rank"]), target.local, source="ordered", order_by="rank")
    wanted = [message_id("ordered", [number]) for number in reversed(range(60))]
    submitted = target.rows("acme", "submitted")
    assert [one for one in submitted if one in set(wanted)] == wanted
    target.check_once("ordered", range(60))
    torn = in_order(frame, ["rank"]).repartition(4)
    with pytest.raises(PySparkException) as refused:
        write(torn, target.local, source="torn", order_by="rank")
    assert isinstance(own_error(refused.value), NotAllowed)


def test_an_id_depends_on_the_values_alone() -> None:
    noon = datetime(2026, 11, 17, 12, tzinfo=UTC)
    assert message_id("a", [1, "x"]) == message_id("a", [Decimal("1.00"), "x"])
    different = [["1"], [1], [True], [1.5], [b"1"], [noon], [noon.replace(tzinfo=None)],
                 [noon.date()], ["1", ""], ["", "1"]]  # fmt: skip
    ids = {message_id(source, values) for source in ("a", "b") for values in different}
    assert len(ids) == 2 * len(different)
    for nothing in (None, float("nan"), Decimal("nan")):
        with pytest.raises(InvalidValue):
            message_id("a", [nothing])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"url": ""}, "either a url"),
        ({"path": "acme"}, "either a url"),
        ({"token": ""}, "no token"),
        ({"source": ""}, "which row is which"),
        ({"id_columns": "nothing"}, "no column nothing"),
        ({"to": ""}, "to whom"),
        ({"order_by": "order_id"}, "one partition"),
        ({"url": "", "path": "acme", "master": "spark://there"}, "one machine"),
    ],
)
def test_options_are_checked_before_anything_is_sent(spark, change, word: str) -> None:
    given = {"url": "http://127.0.0.1:1", "token": "t", "to": "b", "source": "s"}
    chosen = {**given, "id_columns": "order_id", **change}
    made = oncewire_source_for(chosen.pop("master", "local[2]"))(chosen)
    with pytest.raises((InvalidValue, NotAllowed), match=word):
        made.writer(orders(spark).schema, False)
    with pytest.raises(NotAllowed, match="overwritten"):
        made.writer(orders(spark).schema, True)
