"""A journal at an admin port as the pipeline reads it: every row once, and never its token."""

import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from oncewire.entry.cli.lake import books_at
from oncewire.entry.party.folder import make_keys
from oncewire.errors import InvalidValue, JournalProblem, NotAllowed, StoreGone
from oncewire.handler.world import RealWorld
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.proof import check_book
from oncewire.pipeline.lake.tables import rows_of
from oncewire.pipeline.session import own_error
from oncewire.pipeline.sources import admin_port as module
from oncewire.pipeline.sources.admin_port import AdminPortBook
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.pipeline.sources.oncewire import oncewire_source_for
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.terminal import run, run_json
from tests.pipeline.admin_ports import Opened, Port, opening
from tests.pipeline.books import files_with, make_store, small_year, tables, take_in_here
from tests.ports import free_port
from tests.store.samples import row

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = small_year()[1]["globex"]
COUNT = len(ROWS)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Opens the admin port of a new party with the journal of globex."""
    with opening(tmp_path_factory.mktemp("ports")) as made:
        yield made


@pytest.fixture(scope="module")
def port(opened: Opened) -> Port:
    """Nobody writes into its store."""
    return opened("still", ROWS)


def read(book: AdminPortBook, start: int, end: int, columns=COLUMNS) -> list[Row]:
    return list(rows_of(book.batches(start, end, columns)))


# --- a book like the others ----------------------------------------------------------------------


def test_it_answers_what_the_store_itself_does(port: Port) -> None:
    store, book = open_book(port.store), port.book()
    assert (book.node, book.bounds(), book.chained_from()) == ("globex", (1, COUNT), 1)
    for seq in (0, 1, 7, COUNT - 1, COUNT, COUNT + 1):
        assert book.head(seq) == store.head(seq)
        assert book.mark(seq) == store.mark(seq)
        assert book.next_seq(seq) == store.next_seq(seq)
        assert book.count(seq, COUNT) == store.count(seq, COUNT) == max(0, COUNT - seq)
    assert book.head(0) == ""
    assert len(book.head(COUNT) or "") == 64
    assert book.head(COUNT + 1) is None


@pytest.mark.parametrize("size", [7, 40, 10_000])
def test_ranges_share_the_rows_without_gap_or_overlap(
    port: Port, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 16)
    book = port.book()
    splits = book.splits(3, COUNT - 4, size)
    assert all(one[1] == other[0] for one, other in pairwise(splits))
    assert [each for start, end in splits for each in read(book, start, end)] == ROWS[3:-4]
    assert max(batch.num_rows for batch in book.batches(0, COUNT, COLUMNS)) == 16
    assert read(book, -1, 0) == []


def test_chosen_columns_only(port: Port) -> None:
    batch = next(port.book().batches(0, COUNT, ["seq", "kind"]))
    assert batch.schema.names == ["seq", "kind"]


def test_a_stream_meets_every_row_once_while_the_store_is_written(opened: Opened) -> None:
    written = opened("written", [])
    options = {**written.rest, "rowsPerPartition": "7"}
    made = oncewire_source_for("spark://somewhere:7077")(options)
    reader = made.streamReader(made.schema())
    offset, seen = reader.initialOffset(), []
    wait, turns = threading.Event(), 40

    def write() -> None:
        store = SqliteStore(written.store, node="globex")
        for turn in range(turns):
            with store.transition() as tx:
                tx.journal([row("sent", f"{turn}-{number}") for number in range(5)])
            store.commit()
            wait.wait(0.02)
        store.close()

    writing = threading.Thread(target=write)
    writing.start()
    looks = 0
    while len(seen) < 5 * turns and looks < 2_000:
        end, looks = reader.latestOffset(offset, ReadAllAvailable()), looks + 1
        for part in reader.partitions(offset, end):
            seen += [seq for batch in reader.read(part) for seq in batch["seq"].to_pylist()]
        offset = end
    writing.join()
    assert seen == list(range(1, 5 * turns + 1))
    assert looks > 3


def test_a_journal_that_was_trimmed_begins_later(opened: Opened, tmp_path: Path) -> None:
    trimmed = opened("trimmed", ROWS[:100])
    lake = Lake(tmp_path / "lake")
    with lake.writing() as before:
        lake.publish(take_in_here(lake, before, trimmed.book()))
    make_store(trimmed.store, "globex", ROWS[100:140])

    def trim(up_to: int) -> None:
        store = SqliteStore(trimmed.store, node="globex")
        with store.transition() as tx:
            assert tx.trim_journal(2**60, up_to)
        store.commit()
        store.close()

    trim(90)
    book = trimmed.book()
    assert (book.bounds(), book.next_seq(0), book.mark(90)) == ((91, 140), 91, None)
    assert book.splits(0, 140, 1_000) == [(90, 140)]
    assert [each.seq for each in read(book, 0, 95)] == [91, 92, 93, 94, 95]
    assert book.head(90) == open_book(trimmed.store).head(90)
    assert check_book(lake, lake.current(), book).unchanged
    trim(120)
    with pytest.raises(JournalProblem, match="removed before the lake took them"):
        take_in_here(lake, lake.current(), trimmed.book())


# --- what is refused -----------------------------------------------------------------------------


def test_each_refusal_names_the_next_step(port: Port, tmp_path: Path) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("")
    for kind, said, remedy, made in (
        (NotAllowed, "does not know the token", "token add", (port.url, "x" * 43)),
        (NotAllowed, "does not have the role", "--role read", (port.url, port.taker)),
        (InvalidValue, "no token", "token add", (port.url, "")),
        (InvalidValue, "cannot be one", "token add", (port.url, "a\r\nb")),
        (InvalidValue, "not the address", "https://", (f"{port.url}/admin", port.token)),
        (InvalidValue, "not the address", "https://", ("http://me:pw@127.0.0.1", port.token)),
        (StoreGone, "does not answer", "oncewire serve", (gone, port.token)),
        (InvalidValue, "cannot be used", "PEM", ("https://127.0.0.1:1", "t", str(nothing))),
    ):
        with pytest.raises(kind, match=said) as refused:
            AdminPortBook(*made)
        assert remedy in refused.value.remedy
        assert not {made[1], "me:pw"} & set(str(refused.value).split()) - {""}
        assert port.token not in str(refused.value)


class Stranger(BaseHTTPRequestHandler):
    """Answers as some other server might."""

    protocol_version = "HTTP/1.1"
    answers: tuple[bytes, ...] = ()

    def do_GET(self) -> None:
        self.close_connection = True
        self.wfile.write(self.server.answers[self.path.startswith("/journal?")])  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        """Nothing."""


_SPAN = (
    b'{"result": {"node": "n", "journal_version": "%s", "first": 1, "last": 2, '
    b'"chained_from": 0, "rows": 2, "head": null}}'
)


def http(body: bytes, status: bytes = b"200 OK", size: int | None = None) -> bytes:
    length = len(body) if size is None else size
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, length, body)


@pytest.mark.parametrize(
    ("span", "rows", "kind", "said"),
    [
        (http(b"<html>"), b"", JournalProblem, "no rows"),
        (http(b"[]"), b"", JournalProblem, "no rows"),
        (http(b"{}"), b"", JournalProblem, "serves no journal"),
        (http(b"", b"404 Not Found"), b"", JournalProblem, "404"),
        (http(b"{}", b"302 Found"), b"", JournalProblem, "302"),
        (http(b"{}", b"503 Unavailable"), b"", StoreGone, "503"),
        (http(_SPAN % b"99.0"), b"", JournalProblem, "99.0"),
        (b"", b"", StoreGone, "does not answer"),
        ("good", http(b'{"seq": 1}\n', size=99), StoreGone, "not to the end"),
        ("good", http(b'{"seq": 1}\n{"seq": 1}\n'), JournalProblem, "row 1 where one behind 1"),
        ("good", http(b'{"at": 1}\n'), JournalProblem, "row None"),
        ("good", http(b'{"seq": 1, "at": "noon"}\n'), JournalProblem, "does not fit"),
    ],
)
def test_an_answer_that_is_none_is_no_end_of_the_journal(
    span: bytes | str, rows: bytes, kind: type[Exception], said: str
) -> None:
    from oncewire.journal.row import JOURNAL_VERSION

    good = http(_SPAN % str(JOURNAL_VERSION).encode())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    server.answers = (good if span == "good" else span, rows)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(kind, match=said):
            read(AdminPortBook(f"http://127.0.0.1:{server.server_port}", "secret"), 0, 2)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_row_that_the_port_cannot_give_does_not_pass_for_the_end(opened: Opened) -> None:
    odd = opened("odd", ROWS)
    with sqlite3.connect(odd.store) as connection:
        connection.execute(
            "UPDATE journal_row SET detail = CAST(? AS TEXT) WHERE seq = 550", (b'"\xff"',)
        )
    book = odd.book()
    assert read(book, 0, 500) == ROWS[:500]
    with pytest.raises(StoreGone, match="not to the end"):
        read(book, 0, COUNT)


def test_over_tls_the_port_must_be_the_one_that_was_meant(opened: Opened, tmp_path: Path) -> None:
    ours, other = (make_keys(tmp_path, name, now=RealWorld().now()) for name in ("admin", "other"))
    more = {"admin.certificate": str(ours.certificate), "admin.key": str(ours.key)}
    port = opened("tls", ROWS[:20], **more)
    book = AdminPortBook(port.url, port.token, str(ours.certificate))
    assert read(book, 0, 20) == ROWS[:20]
    assert book.options["ca"] == str(ours.certificate)
    for stranger in (None, str(other.certificate)):
        with pytest.raises(StoreGone, match="not trusted") as refused:
            AdminPortBook(port.url, port.token, stranger)
        assert "option ca" in refused.value.remedy


def test_each_address_of_a_command_has_its_token(
    opened: Opened, port: Port, tmp_path: Path
) -> None:
    other = opened("other", ROWS[:5])
    files = [tmp_path / "one", tmp_path / "other"]
    for file, token in zip(files, (port.token, other.token), strict=True):
        file.write_text(f"{token}\n")
    places = [Path(port.url), port.store, Path(other.url)]
    found = books_at(places, files, None)
    assert [getattr(book, "path", book) for book in found] == [port.url, port.store, other.url]
    assert [open_book(book).bounds()[1] for book in found] == [COUNT, COUNT, 5]
    assert books_at([port.store], None, None) == [port.store]
    assert len(books_at([Path(port.url)] * 2, files[:1], None)) == 2
    for wrong, given in ((places, []), (places, files * 2), ([port.store], files), (None, files)):
        with pytest.raises(InvalidValue, match="--store names"):
            books_at(wrong, given, None)
    with pytest.raises(NotAllowed, match="does not know the token"):
        books_at(places, files[::-1], None)


# --- on Spark ------------------------------------------------------------------------------------


def test_a_lake_of_it_is_that_of_the_store(spark, port: Port, tmp_path: Path) -> None:
    reading = spark.read.format("oncewire").options(**port.rest, rowsPerPartition="100")
    frame = reading.load()
    assert sorted(tuple(one) for one in frame.collect()) == [tuple(one) for one in ROWS]
    assert frame.rdd.getNumPartitions() == -(-COUNT // 100)
    some = frame.where("kind = 'sent' and seq > 20").select("at").count()
    assert some == sum(one.kind == "sent" and one.seq > 20 for one in ROWS)
    lakes = {}
    for name, place in (("of the store", port.store), ("of the port", port.book())):
        lake = Lake(tmp_path / name)
        jobs.run(spark, lake, [place], ended=True)
        lakes[name] = tables(spark, lake)
    assert lakes["of the port"] == lakes["of the store"]
    assert lakes["of the port"]["journal"]


def test_nothing_shows_the_token(spark, port: Port, tmp_path: Path) -> None:
    file, lake = tmp_path / "token", tmp_path / "lake"
    file.write_text(port.token + "\n")
    at = ("--store", port.url, "--lake", lake)
    said = [run("pipeline", "stream", *at, "--token-file", file)]
    said.append(run("pipeline", "run", *at, "--token-file", file))
    file.rename(tmp_path.parent / "token-of-globex")
    file = tmp_path.parent / "token-of-globex"
    assert run_json("pipeline", "prove", *at, "--token-file", file)["unchanged"]
    assert run_json("pipeline", "verify", "--lake", lake)["rows"] == COUNT
    said.append(run("pipeline", "run", *at, exit_code=2))
    assert "--token-file" in said[-1].stderr
    query = (
        spark.readStream.format("oncewire").options(**port.rest).load()
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    frame = spark.read.format("oncewire").options(**port.rest).load()
    plans = [
        frame._jdf.queryExecution().toString(),
        frame.groupBy("kind").count()._jdf.queryExecution().stringWithStats(),
        repr(frame), repr(port.book()), query._jsq.explainInternal(True),
        *map(str, query.recentProgress), *(each.output + each.stderr for each in said),
    ]  # fmt: skip
    with pytest.raises(AnalysisException) as told:
        spark.read.format("oncewire").options(url=port.url, token=port.taker).load().collect()
    assert type(own_error(told.value)) is NotAllowed
    with pytest.raises(AnalysisException) as other:
        spark.read.format("oncewire").options(**port.rest, table="messages").load().collect()
    assert "journal only" in str(other.value)
    plans += [str(told.value), str(other.value)]
    for plan in plans:
        assert port.token not in plan
        assert port.taker not in plan
    assert any("oncewire" in plan for plan in plans)
    assert files_with(port.token, tmp_path) == []
    # Such a search finds what is there.
    assert files_with("journal", lake)
