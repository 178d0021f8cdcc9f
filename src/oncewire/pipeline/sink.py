"""The sink of `format("oncewire")`: each row of a table becomes a reliable message.

    frame.write.format("oncewire").mode("append").options(
        url="https://acme.example:8443", token=token, to="globex",
        source="orders", id_columns="order_id", rejects="rejected/",
    ).save()
    frame.writeStream.format("oncewire").options(...).option("checkpointLocation", ...).start()

The document is the column `payload` (binary or string). `OPTIONS` lists the options. Those of
`SAID` may be columns of the same name instead, where they differ from row to row.

`source` and `id_columns` (names with commas) make the MessageId: a UUIDv5 of the source and the
row's values in these columns. Batch, partition and position play no part, so a task that is tried
again, a batch that is played again, a lost checkpoint or another partitioning sends nothing twice.

`rejects` names a folder: rows that are refused are written there as Parquet, with the reason, and
the others are sent. Without it the first refused row ends the write. A write that ends early has
sent some of its rows; run it again, and the rest follows.

`order_by` (names with commas) keeps an order: `in_order(frame, names)` makes the frame for it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import NAMESPACE_URL, uuid4, uuid5

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import AtomicType, BinaryType, StringType, StructType

from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
)
from oncewire.pipeline.lake.version import local_path

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from oncewire import SendOptions

PAYLOAD = "payload"
PLACE = "_place"
"""The column of `in_order`: which row of its partner this is, from 1."""

SAID = (
    "to", "media_type", "service", "action", "conversation_id", "ref_to_message_id", "time_to_live",
)  # fmt: skip
"""What an option says of all rows, or a column of each."""

OPTIONS = {
    "path": (
        "",
        "The folder of a party of this machine, whose handler runs; `save(...)` gives it.",
    ),
    "url": ("", "Instead of a folder: the address of the party's admin port."),
    "token": ("", "With `url`: a token of the role `submit`."),
    "ca": ("", "With `url`: the certificate that vouches for the port, if the machines lack it."),
    "source": (
        "",
        "The name of the table or system that rows come from; a part of each MessageId.",
    ),
    "id_columns": ("", "Columns, between commas, whose values a row has alone; they make its id."),
    "to": ("", "The partner's name, its PartyId, or the CPAId of the agreement with it."),
    "media_type": ("application/octet-stream", "The media type of the documents."),
    "service": ("", "The Service; without it, the agreed one, as in `oncewire send`."),
    "action": ("", "The Action; without it, the agreed one, as in `oncewire send`."),
    "conversation_id": ("", "The ConversationId; without it, each message has its own."),
    "ref_to_message_id": ("", "The message that this one answers."),
    "time_to_live": ("", "How long the document is worth delivering, as in `oncewire send`."),
    "rejects": ("", "A folder for refused rows. Without it, the first refused row ends the write."),
    "order_by": ("", "Columns, between commas, of the order that `in_order` made."),
}
"""The options of a write: what holds where one is not given, and what it means."""

NAMESPACE = uuid5(NAMESPACE_URL, "urn:oncewire:sink")
AT_ONCE = 16
"""Messages of one task that are handed in at the same time, where no order is asked for."""

REFUSALS = (InvalidValue, AgreementProblem, EbxmlError, NotHere)
"""Errors that say something about a row; any other one is trouble, and the task is tried again."""

WHY = ("reject_message_id", "reject_reason", "reject_next")
"""The columns that a refused row has beside its own."""

Refused = tuple[str | None, OncewireError]
"""The MessageId of a refused row, where it has one, and the reason."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_order(frame: DataFrame, order_by: list[str]) -> DataFrame:
    """The frame with all rows of a partner in one partition, in that order, and numbered, so that
    the sink sees a row that is out of its place before it sends it."""
    partner = ["to"] if "to" in frame.columns else []
    window = Window.partitionBy(*partner).orderBy(*order_by)
    return frame.withColumn(PLACE, f.row_number().over(window))


def message_id(source: str, values: list[Any]) -> str:
    """The MessageId of a row: a UUIDv5 of the source and of the row's identifying values."""
    name = json.dumps([source, [_canonical(value) for value in values]], ensure_ascii=True)
    return f"{uuid5(NAMESPACE, name)}@oncewire"


def _canonical(value: Any) -> list[str]:
    """A value as it is spelled in an id: one spelling, whatever the width of its type is, and
    values of different kinds never alike."""
    match value:
        case bool():
            return ["bool", str(value).lower()]
        case int():
            return ["number", str(value)]
        case Decimal() if value.is_finite():
            return ["number", f"{value.normalize():f}" if value else "0"]
        case float() if math.isfinite(value):
            return ["float", repr(value + 0.0)]
        case str():
            return ["text", value]
        case bytes():
            return ["bytes", value.hex()]
        case datetime() if value.tzinfo is not None:
            return ["instant", str((value - _EPOCH) // timedelta(microseconds=1))]
        case datetime():
            return ["local", value.isoformat(timespec="microseconds")]
        case date():
            return ["date", value.isoformat()]
    raise InvalidValue(
        f"{value!r} identifies no row", remedy="fill the id columns with numbers, text or times"
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of one write, checked."""

    url: str
    token: str
    ca: str | None
    party: str
    source: str
    id_columns: tuple[str, ...]
    rejects: str | None
    ordered: bool
    defaults: Mapping[str, str]
    """What rows have where no column says it."""

    def __repr__(self) -> str:
        # A token does not belong into a log.
        return f"Plan(to {self.url or self.party}, from {self.source})"


def plan(options: Mapping[str, str], schema: StructType, *, local: bool) -> Plan:
    """Check the options against the columns; `local`: whether tasks run on this machine."""
    url, party = options.get("url", ""), options.get("path", "")
    if bool(url) == bool(party):
        raise InvalidValue(
            "the sink needs either a url or the folder of a party",
            remedy='give option("url", ...) and "token", or save("acme")',
        )
    if url and not options.get("token"):
        raise InvalidValue("there is no token", remedy="`oncewire token add NAME --role submit`")
    if party and not local:
        raise NotAllowed(
            f"{party} is a party of one machine, and this session's executors are elsewhere",
            remedy="give url and token of its admin port",
        )
    ids, order = _names(options.get("id_columns", "")), _names(options.get("order_by", ""))
    if not ids or not options.get("source"):
        raise InvalidValue(
            "source and id_columns do not say which row is which",
            remedy="name the source, and the columns whose values a row has alone",
        )
    columns = {field.name: field.dataType for field in schema.fields}
    lacking = [name for name in (PAYLOAD, *ids, *order) if name not in columns]
    if lacking:
        raise InvalidValue(
            f"there is no column {', '.join(lacking)}", remedy="add it, or rename one to it"
        )
    if not isinstance(columns[PAYLOAD], BinaryType | StringType):
        raise InvalidValue("payload is neither binary nor text", remedy="cast it, or use to_json")
    nested = [name for name in ids if not isinstance(columns[name], AtomicType)]
    if nested:
        raise InvalidValue(
            f"the id column {', '.join(nested)} is nested", remedy="name the fields in it instead"
        )
    if "to" not in columns and not options.get("to"):
        raise InvalidValue("it is not said to whom", remedy="give option or column `to`")
    if order and PLACE not in columns:
        raise NotAllowed(
            "order_by needs the rows of a partner in one partition",
            remedy="write oncewire.pipeline.sink.in_order(frame, names); of a stream in "
            "foreachBatch",
        )
    rejects = options.get("rejects")
    return Plan(
        url=url,
        token=options.get("token", ""),
        ca=options.get("ca"),
        party=str(local_path(party).resolve()) if party else "",
        source=options["source"],
        id_columns=ids,
        rejects=str(local_path(rejects).resolve()) if rejects else None,
        ordered=PLACE in columns,
        defaults={name: options[name] for name in SAID if options.get(name)},
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


class Sender(Protocol):
    """What the sink needs of a party."""

    async def send(
        self, to: str, *documents: bytes, media_type: str, options: SendOptions
    ) -> object:
        """See `oncewire.OpenParty`."""


@asynccontextmanager
async def _party(chosen: Plan) -> AsyncIterator[Sender]:
    """The party through the door for programs, as any other program has it."""
    from oncewire import connect, open_party

    if chosen.url:
        async with connect(chosen.url, chosen.token, ca=chosen.ca) as reached:
            yield reached
        return
    async with open_party(chosen.party) as opened:
        if (await opened.status()).passing:
            # A task comes and goes, and several run at once: none of them may be the handler.
            raise NotAllowed(
                f"the handler of {chosen.party} does not run", remedy="start `oncewire serve`"
            )
        yield opened


@dataclass(frozen=True, slots=True)
class Done(WriterCommitMessage):
    """What a task leaves: the file of its refused rows, where there are any."""

    rejected: str | None


class RejectFile:
    """The refused rows of one task: a file that no reader sees until the write is committed."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._writer: pq.ParquetWriter | None = None
        self._name = f"_pending-{uuid4()}.parquet"

    def add(
        self, batch: pa.RecordBatch, refused: Mapping[int, tuple[str | None, OncewireError]]
    ) -> None:
        """Write rows of a batch with their reasons; without a folder the first ends the task."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not refused:
            return
        if self._folder is None:
            raise next(iter(refused.values()))[1]
        table = pa.table(batch.take(pa.array(sorted(refused))))
        said = [refused[at] for at in sorted(refused)]
        columns = (
            [named for named, _ in said],
            [error.problem for _, error in said],
            [error.remedy for _, error in said],
        )
        for name, column in zip(WHY, columns, strict=True):
            table = table.append_column(name, pa.array(column, pa.string()))
        if self._writer is None:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(Path(self._folder) / self._name, table.schema)
        self._writer.write_table(table)

    def close(self) -> str | None:
        """The name of the file, if there is one."""
        if self._writer is None:
            return None
        self._writer.close()
        return self._name


def _pending(chosen: Plan, messages: list[WriterCommitMessage | None]) -> Iterator[Path]:
    for done in messages:
        if isinstance(done, Done) and done.rejected and chosen.rejects:
            yield Path(chosen.rejects) / done.rejected


async def _send_all(chosen: Plan, batches: Iterator[pa.RecordBatch]) -> Done:
    """Send the rows of a task; it ends when each is stored by the party, or refused."""
    rejected, places = RejectFile(chosen.rejects), dict[str, int]()
    async with _party(chosen) as party:
        for batch in batches:
            step = 1 if chosen.ordered else AT_ONCE
            for start in range(0, batch.num_rows, step):
                rows = batch.slice(start, step)
                values = rows.to_pylist()
                if chosen.ordered:
                    _check_place(values[0], places, chosen)
                sent = await asyncio.gather(*(_send(chosen, party, row) for row in values))
                refused = {at: why for at, why in enumerate(sent) if why is not None}
                rejected.add(rows, refused)
    return Done(rejected.close())


def _check_place(row: Mapping[str, Any], places: dict[str, int], chosen: Plan) -> None:
    to = _of(chosen, row, "to")
    places[to] = places.get(to, 0) + 1
    if row[PLACE] != places[to]:
        raise NotAllowed(
            f"row {row[PLACE]} for {to} comes where row {places[to]} is due",
            remedy="write what in_order gives as it is: no repartition, sort or filter behind it",
        )


async def _send(chosen: Plan, party: Sender, row: Mapping[str, Any]) -> Refused | None:
    """Hand one row in; returns why it is refused, if it is."""
    from oncewire import SendOptions

    named = None
    try:
        named = message_id(chosen.source, [row[name] for name in chosen.id_columns])
        document = row[PAYLOAD]
        if document is None:
            raise InvalidValue("payload is empty", remedy="give the row a document")
        await party.send(
            _of(chosen, row, "to"),
            document.encode() if isinstance(document, str) else document,
            media_type=_of(chosen, row, "media_type"),
            options=SendOptions(
                service=_of(chosen, row, "service"),
                action=_of(chosen, row, "action"),
                conversation_id=_of(chosen, row, "conversation_id"),
                ref_to_message_id=_of(chosen, row, "ref_to_message_id"),
                time_to_live=_of(chosen, row, "time_to_live") or None,
                message_id=named,
            ),
        )
    except REFUSALS as error:
        return named, error
    return None


def _of(chosen: Plan, row: Mapping[str, Any], name: str) -> str:
    """What a row says of itself, or the option says of all."""
    own = row.get(name)
    return chosen.defaults.get(name, OPTIONS[name][0]) if own is None else str(own)


class OncewireWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """For `frame.write` and `frame.writeStream`."""

    def __init__(self, chosen: Plan) -> None:
        self._plan = chosen

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        """Send the rows of one task, on an executor."""
        return asyncio.run(_send_all(self._plan, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803
        """Every row is stored by the party, or refused: readers may see the refused ones."""
        for pending in _pending(self._plan, messages):
            if pending.exists():
                pending.rename(pending.with_name(pending.name.removeprefix("_pending-")))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803
        """A task failed, and a batch is played again: what was sent stays sent, is not sent again,
        and refused rows are found again."""
        for pending in _pending(self._plan, messages):
            pending.unlink(missing_ok=True)
