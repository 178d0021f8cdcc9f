"""`format("oncewire")`: the journal and the messages of a store as Spark tables.

    spark.read.format("oncewire").load("acme.db")                          the journal
    spark.read.format("oncewire").option("table", "messages").load(...)    what the store holds now
    spark.readStream.format("oncewire").option("maxRowsPerBatch", "50000").load(...)
    spark.read.format("oncewire").option("table", "ledger").load("lake")   any table of a lake
    spark.read.format("oncewire").option("url", "postgresql://...").load() a store on PostgreSQL
    spark.read.format("oncewire").options(url="https://...", token=...).load() at an admin port

`OPTIONS` lists the options. The offset of a stream is the journal's own `seq`. Driver methods plan
ranges; `read` runs on executors and is told all it needs.

What is written to it is sent: see `oncewire.pipeline.sink`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oncewire.errors import InvalidValue, NotAllowed
from oncewire.pipeline import sink
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.columns import (
    JOURNAL,
    STORED_MESSAGES,
    V1,
    Former,
    arrow,
    former,
    former_schema,
    nullable,
    only,
)
from oncewire.pipeline.lake.lake import Lake, input_at
from oncewire.pipeline.lake.tables import EVERY
from oncewire.pipeline.lake.version import BATCH_ROWS, CURRENT_FILE, Book
from oncewire.pipeline.sources.admin_port import AdminPortBook, is_admin_port
from oncewire.pipeline.sources.journal_source import SqlBook, is_database, open_book

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = {"journal": JOURNAL, "messages": STORED_MESSAGES}
ROWS_PER_PARTITION = 250_000
TASKS_OF_TABLE = 16
MAX_ROWS_PER_BATCH = 1_000_000

OPTIONS = {
    "path": (
        "",
        "The store, export or lake; `load(...)` gives it. `store` means the same.",
    ),
    "url": (
        "",
        "The address of a store's database, or of a party's admin port; Spark does not show it.",
    ),
    "token": ("", "With an admin port: a token of the role `read`; Spark does not show it."),
    "ca": ("", "With an admin port: the certificate that vouches for it, if the machines lack it."),
    "table": (
        "journal",
        "Of a store: `journal`, or `messages`, which it holds now. Of a lake: any table.",
    ),
    "version": ("", "Of a lake: the number of a published version; without it the current one."),
    "node": ("", "Whose journal, where the place holds several."),
    "columns": (
        "",
        "Names between commas: only these are read. `v1`: all of a lake's, by their former names.",
    ),
    "startingSeq": ("0", "Only journal rows behind this `seq`."),
    "endingSeq": ("", "Only journal rows up to this `seq`; without it, up to the last."),
    "rowsPerPartition": (str(ROWS_PER_PARTITION), "Journal rows of one task, at most."),
    "maxRowsPerBatch": (
        str(MAX_ROWS_PER_BATCH),
        "Of a stream: journal rows of one batch, at most.",
    ),
}
"""The options of a read: what holds where one is not given, and what it means."""


def is_lake(path: str) -> bool:
    """Whether a lake was published there."""
    return (Path(path) / CURRENT_FILE).is_file()


def is_local(master: str) -> bool:
    """Whether every task runs on the driver's machine, on the driver's own files."""
    return master == "local" or master.startswith("local[")


def store_out_of_reach(path: str | Path, master: str) -> NotAllowed:
    """The refusal of a SQLite store in a session whose tasks run elsewhere."""
    return NotAllowed(
        f"{path} is a SQLite store, and this session's master is "
        f"{master or 'not known'}: its executors do not have that file",
        remedy=(
            "take it into a lake on shared storage with a local master "
            "(`oncewire pipeline run`) and let the cluster read the lake; in a session "
            "of your own call oncewire.pipeline.session.register(spark) first"
        ),
    )


def oncewire_source_for(master: str | None) -> type[OncewireSource]:
    """The source for a session with that master.

    A source is planned in a process that cannot ask for the session's master, so the class
    itself carries it there.
    """
    return type("SessionOncewireSource", (OncewireSource,), {"master": master or ""})


@dataclass(frozen=True, slots=True)
class Request:
    """The options of one read, checked."""

    path: str
    node: str | None
    table: str
    columns: tuple[str, ...]
    start: int
    end: int | None
    rows_per_partition: int
    rows_per_batch: int
    whole: StructType
    """All columns of the table."""
    version: int | None = None
    """Of a lake: which published version; None: the current one."""
    former: tuple[Former, ...] = ()
    """Of a lake: its columns by the names of the first version, where they are asked for."""
    url: str = field(default="", repr=False)
    """The address of a store's database or of an admin port; then there is no path."""
    token: str = field(default="", repr=False)
    ca: str | None = None
    """For an admin port."""

    @property
    def place(self) -> str | Book:
        """Where the book is."""
        if is_admin_port(self.url):
            return AdminPortBook(self.url, self.token, self.ca)
        return self.url or self.path

    @property
    def schema(self) -> StructType:
        """The columns asked for."""
        return nullable(only(self.whole, list(self.columns)))

    @property
    def of_lake(self) -> bool:
        """Whether a table of a lake is asked for, and not a journal in it."""
        return not self.url and is_lake(self.path) and self.table != "journal"


class OncewireSource(DataSource):
    """See the module's docstring."""

    master: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "oncewire"

    def schema(self) -> StructType:
        """The table's columns, or those that `columns` names."""
        return self._request().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        request = self._checked(schema)
        return LakeTableReader(request) if request.of_lake else OncewireReader(request)

    def streamReader(self, schema: StructType) -> OncewireStreamReader:  # noqa: N802
        """For `spark.readStream`; only the journal grows at its end, so only it can stream."""
        request = self._checked(schema)
        if request.table == "messages":
            raise NotAllowed(
                f"table {request.table} cannot be streamed: its rows change in place",
                remedy="stream the journal, or read the table as a batch",
            )
        return OncewireStreamReader(request)

    def writer(self, schema: StructType, overwrite: bool) -> sink.OncewireWriter:
        """For `frame.write`, and for `frame.writeStream`."""
        return sink.OncewireWriter(self._plan(schema, overwrite))

    streamWriter = writer  # noqa: N815

    def _plan(self, schema: StructType, overwrite: bool) -> sink.Plan:
        if overwrite:
            raise NotAllowed(
                "what was sent cannot be overwritten",
                remedy='use mode("append"), or outputMode("append")',
            )
        return sink.plan(self.options, schema, local=is_local(self.master))

    def _checked(self, schema: StructType) -> Request:
        request = self._request()
        known = set(request.whole.fieldNames())
        unknown = sorted(set(schema.fieldNames()) - known)
        if unknown:
            raise InvalidValue(
                f"table {request.table} has no {', '.join(unknown)}",
                remedy="leave the schema to the source, or choose with option columns",
            )
        if request.of_lake:
            return request
        # Of the books only a SQLite store is a file; it is refused before it is opened.
        if not request.url and Path(request.path).is_file() and not is_local(self.master):
            raise store_out_of_reach(request.path, self.master)
        open_book(request.place, request.node)
        return request

    def _request(self) -> Request:
        options = self.options
        path = options.get("path") or options.get("store")
        url = options.get("url")
        if not path and not url:
            raise InvalidValue(
                "no store is named", remedy="give its path to load(), or its address as option url"
            )
        if path and url:
            raise InvalidValue("both a path and a url are named", remedy="name one store")
        if url and not is_database(url) and not is_admin_port(url):
            raise InvalidValue(
                "the url is not the address of a database or an admin port",
                remedy="write it as postgresql://... or https://HOST:PORT",
            )
        path, url = (str(input_at(path)) if path else ""), url or ""
        table, known = options.get("table", OPTIONS["table"][0]), TABLES
        if not url and is_lake(path):
            known = {each_table.name: each_table.schema for each_table in EVERY.values()}
        if table not in known:
            names = ", ".join(known)
            raise InvalidValue(
                f"{path or 'a store'} has no table {table!r}", remedy=f"choose one of {names}"
            )
        whole, chosen, older = known[table], options.get("columns"), tuple[Former, ...]()
        if chosen == V1 and not url and is_lake(path) and table != "journal":
            whole, chosen, older = former_schema(whole), None, tuple(former(whole))
        return Request(
            path=path,
            url=url,
            token=options.get("token", ""),
            ca=options.get("ca"),
            node=options.get("node") or None,
            table=table,
            columns=_columns(chosen, whole),
            whole=whole,
            former=older,
            version=self._number("version", 1) if "version" in options else None,
            start=self._number("startingSeq", 0),
            end=self._number("endingSeq", 0) if "endingSeq" in options else None,
            rows_per_partition=self._number("rowsPerPartition", 1),
            rows_per_batch=self._number("maxRowsPerBatch", 1),
        )

    def _number(self, option: str, least: int) -> int:
        text = self.options.get(option, OPTIONS[option][0])
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise InvalidValue(f"{option} is {text!r}", remedy=f"give a number of {least} or more")
        return value


class Range(InputPartition):
    """Rows `(start, end]` of one table, for one task."""

    def __init__(self, table: str, start: int, end: int) -> None:
        self.table, self.start, self.end = table, start, end


class Files(InputPartition):
    """Files of a lake's table, for one task."""

    def __init__(self, files: list[str]) -> None:
        self.files = files


class LakeTableReader(DataSourceReader):
    """A table of one published version; which one is settled when the read is planned."""

    def __init__(self, request: Request) -> None:
        self._request = request
        lake = Lake(request.path)
        version = lake.shown(request.version)
        entries = EVERY[request.table].entries(version)
        self._files = [str(file) for file in lake.files(version, entries)]

    def partitions(self) -> list[InputPartition]:
        """Some files for each task."""
        share = max(1, -(-len(self._files) // TASKS_OF_TABLE))
        return [
            Files(self._files[start : start + share]) for start in range(0, len(self._files), share)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files, on an executor."""
        import pyarrow.dataset as ds

        if not isinstance(partition, Files):
            return
        schema = arrow(self._request.schema)
        for file in partition.files:
            table = ds.dataset(file, format="parquet").to_table(columns=self._columns(schema.names))
            yield from table.cast(schema).to_batches(max_chunksize=BATCH_ROWS)

    def _columns(self, names: list[str]) -> list[str] | dict[str, Any]:
        """The columns of a file, by name or by what they are made of."""
        import pyarrow.compute as pc

        if not self._request.former:
            return names
        return {
            each.name: pc.field(each.column)
            if each.per == 1
            else pc.divide(pc.field(each.column), pc.scalar(float(each.per)))
            for each in self._request.former
        }


class OncewireReader(DataSourceReader):
    """A bounded read: everything there is, or what the options leave of it.

    It takes no filters: Spark keeps what it planned with the filters of one query for the next one
    over the same frame, which then gets the rows of the first.
    """

    def __init__(self, request: Request) -> None:
        self._request = request

    def partitions(self) -> list[InputPartition]:
        """Ranges of the journal's seq, or of the state tables' keys."""
        request = self._request
        book = open_book(request.place, request.node)
        if request.table == "messages":
            if not isinstance(book, SqlBook):
                raise NotAllowed(
                    f"{book.path} has the journal only",
                    remedy="read table messages from the store itself",
                )
            found: list[InputPartition] = []
            for table in ("outgoing", "incoming"):
                first, last = book.message_bounds(table)
                if last:
                    found += [
                        Range(table, start, min(start + request.rows_per_partition, last))
                        for start in range(first - 1, last, request.rows_per_partition)
                    ]
            return found
        ends = [end for end in (request.end, book.bounds()[1]) if end is not None]
        splits = book.splits(request.start, min(ends), request.rows_per_partition)
        return [Range("journal", first, last) for first, last in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        return _read(self._request, partition)


class OncewireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the journal: offset = seq, batches bounded in rows."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Where a new query begins: `startingSeq`, else the beginning."""
        return {"seq": self._request.start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerBatch`."""
        return ReadMaxRows(self._request.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is the end; rows that come meanwhile are for the next run."""
        self._target = self._last()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch: at most as many rows as the limit says."""
        begin = int(start["seq"])
        last = self._last() if self._target is None else self._target
        if self._request.end is not None:
            last = min(last, self._request.end)
        if last <= begin:
            return {"seq": begin}
        if not isinstance(limit, ReadAllAvailable):
            rows = getattr(limit, "max_rows", self._request.rows_per_batch)
            first = self._book().next_seq(begin)
            # Counted from the first row there is: a trimmed journal makes no empty batches.
            last = begin if first is None else min(last, first + rows - 1)
        crash.reached("before_offset_log")
        return {"seq": last}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """How far the journal goes, for the query's progress report."""
        return {"seq": self._last()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The ranges of one batch."""
        crash.reached("after_offset_log")
        request = self._request
        size = max(1, min(request.rows_per_partition, -(-request.rows_per_batch // 2)))
        splits = self._book().splits(int(start["seq"]), int(end["seq"]), size)
        return [Range("journal", first, last) for first, last in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        return _read(self._request, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the journal is not ours to shorten."""

    def _book(self) -> Book:
        return open_book(self._request.place, self._request.node)

    def _last(self) -> int:
        return self._book().bounds()[1]


def _read(request: Request, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Range):
        return  # Spark asks for one empty partition where there are none.
    book = open_book(request.place, request.node)
    ordered = request.schema.fieldNames()
    if partition.table == "journal":
        batches = book.batches(partition.start, partition.end, ordered)
    elif isinstance(book, SqlBook):
        batches = book.message_batches(partition.table, partition.start, partition.end, ordered)
    else:
        return
    for batch in batches:
        crash.reached("mid_task")
        yield batch


def _columns(text: str | None, table: StructType) -> tuple[str, ...]:
    if text is None:
        return tuple(table.fieldNames())
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(table.fieldNames()))
    if unknown or not names:
        raise InvalidValue(
            f"columns names {', '.join(unknown) or 'nothing'}",
            remedy=f"choose from {', '.join(table.fieldNames())}",
        )
    return tuple(names)
