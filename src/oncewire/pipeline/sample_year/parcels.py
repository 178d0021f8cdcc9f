"""Raw messages of the year: some of its messages as a handler would have archived them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncewire.message import Dialect, Header, Message, MessageKind, Party, Payload, Service
from oncewire.message.acknowledgment import AckRequested
from oncewire.message.form import Form
from oncewire.message.header import DeliverySemantics
from oncewire.pipeline.sample_year.plan import YEAR_START, Plan, make_plan
from oncewire.wire import codec

if TYPE_CHECKING:
    import pyarrow as pa

PER_BUNDLE = 5_000
_FORM = Form(dialect=Dialect.EBMS2)


def write_parcels(spark: SparkSession, folder: Path, plan: Plan, wanted: int) -> int:
    """Write that many messages into tar bundles; returns how many were written."""
    wanted = min(wanted, plan.messages)
    folder.mkdir(parents=True, exist_ok=True)
    bundles = -(-wanted // PER_BUNDLE)
    frame = spark.range(0, bundles, 1, bundles).mapInArrow(
        _bundles(str(folder), (plan.messages, plan.seed, plan.days), wanted), "written long"
    )
    return int(frame.agg(f.sum("written")).collect()[0][0])


def _bundles(
    folder: str, made_from: tuple[int, int, int], wanted: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        plan = make_plan(*made_from)
        for batch in batches:
            for bundle in batch.column(0).to_pylist():
                first = bundle * PER_BUNDLE
                last = min(first + PER_BUNDLE, wanted)
                _write_bundle(Path(folder) / f"messages-{bundle:05d}.tar", plan, first, last)
                yield pa.RecordBatch.from_pydict({"written": [last - first]})

    return write


def _write_bundle(path: Path, plan: Plan, first: int, last: int) -> None:
    beside = path.with_name(f".{path.name}.new")
    with tarfile.open(beside, "w") as bundle:
        for number in range(first, last):
            data = parcel(plan, number)
            entry = tarfile.TarInfo(f"{number:09d}.mime")
            entry.size = len(data)
            entry.mtime = YEAR_START // 1_000_000
            bundle.addfile(entry, io.BytesIO(data))
    beside.replace(path)


def parcel(plan: Plan, number: int) -> bytes:
    """The number-th message of the year, as the bytes of a mail."""
    stream = plan.streams[number % len(plan.streams)]
    index = number // len(plan.streams)
    message_id = plan.message_id(stream.index, index)
    content = f"<order id='{message_id}'>{'<line/>' * (5 + number % 200)}</order>".encode()
    message = Message(
        Dialect.EBMS2,
        MessageKind.NORMAL,
        Header(
            from_party=Party.of(stream.sender.party, role="buyer"),
            to_party=Party.of(stream.receiver.party, role="seller"),
            cpa_id=stream.cpa_id,
            conversation_id=f"c-{message_id[:10]}",
            service=Service("urn:service:orders"),
            action="NewOrder",
            message_id=message_id,
            timestamp=YEAR_START + number * 1_000_000,
            semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
            duplicate_elimination=True,
        ),
        ack_requested=(AckRequested(),),
        payloads=(Payload.of(f"order-{number}@oncewire", "application/xml", content),),
    )
    written = codec.write(message, _FORM)
    head = f"MIME-Version: 1.0\r\nContent-Type: {written.content_type}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in written.headers)
    return head.encode() + b"\r\n" + written.body
