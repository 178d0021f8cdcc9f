"""Generate: the journals and messages of a plausible year, written in parallel by Spark.

Each stream of the year is one unit of work, so the result does not depend on how the units are
divided among tasks. Positions are given afterwards: rows are sorted within (node, day), and each
day's first position follows from how many rows came before it.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from oncewire import __version__
from oncewire.errors import NotAllowed
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION, Row
from oncewire.lab.sample_year.plan import YEAR, YEAR_START, Plan, make_plan, submissions
from oncewire.lab.sample_year.sides import Journey, ReceivingSide, SendingSide, ack_of
from oncewire.lab.sample_year.world import (
    AGREED,
    KEYS,
    NEVER,
    PLAIN,
    Draft,
    Force,
    Handler,
    Letter,
    Place,
    RowWriter,
    Stream,
    Trouble,
    World,
    draw_way,
    trouble_of,
)
from oncewire.message.envelope import (
    AckRequested,
    DeliverySemantics,
    Error,
    Header,
    Message,
    MessageKind,
    Payload,
    Severity,
)
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, Service
from oncewire.message.instant import DAY, MILLISECOND, MINUTE, SECOND, Instant
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import batch_of, rows_of_batch
from oncewire.pipeline.lake.version import Entry, NodeState, Version, safe_name, write_node_file
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.ingest import Progress, Silver, quiet
from oncewire.pipeline.tasks import run_each
from oncewire.protocol import notes
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    part_failed,
    part_id,
    parts_arrived,
)
from oncewire.protocol.notes import Note, Notify
from oncewire.protocol.sender import SenderStep, enter_window
from oncewire.protocol.states import Outgoing, OutgoingState, Proof
from oncewire.wire import codec

if TYPE_CHECKING:
    import pyarrow as pa


# One stream's year: its messages are handed in, and both ends do what the protocol says.


# An intermediary of the year: it takes responsibility at once, and carries on by itself.


class Hub:
    """One hub between the two ends of one stream."""

    def __init__(self, world: World, stream: Stream, handler: Handler) -> None:
        self._world, self._stream, self._handler = world, stream, handler
        terms_id = stream.terms.terms_id
        self._near = Place(handler, terms_id, 1, stream.sender.party)
        self._far = Place(handler, terms_id, 2, stream.receiver.party)
        self._journeys: dict[str, Journey] = {}
        self.onward = SendingSide(world, handler, stream.receiver, stream.terms, hop=2)
        self.onward.tell = self._report
        self.onward.heard = self._relay

    def arrive(self, when: Instant, journey: Journey) -> None:
        """An attempt of the From Party's handler gets through."""
        letter, write = journey.letter, self._world.writer.note
        journey.arrived += 1
        if letter.message_id in self._journeys:
            what = notes.Duplicate(self._stream.terms.duplicate_answer.value)
            copy = Note(what, letter.message_id)
            write(self._near, when, copy, letter.digest, letter.size)
        else:
            self._journeys[letter.message_id] = journey
            sender, receiver = self._stream.sender.party, self._stream.receiver.party
            received = Note(notes.Received(), letter.message_id, transport="http")
            write(self._near, when, received, letter.digest, letter.size, letter.received)
            ack_id = ack_of(letter.message_id, self._handler)
            acked = Note(notes.AckSent(hop=True), letter.message_id, ack_id)
            write(self._near, when, acked)
            forwarded = Note(
                notes.Forwarded(sender, receiver, letter.expires_at), letter.message_id
            )
            write(self._far, when, forwarded, letter.digest, letter.size)
            if not letter.does("not_passed_on"):
                self.onward.submit(when, letter)
        if journey.arrived > journey.trouble.acks_lost:
            back = when + 5 * MILLISECOND + self._world.latency(letter)
            self._world.at(back, partial(journey.side.acknowledged, hop=True), journey)

    def _report(self, when: Instant, onward: Journey, severity: Severity) -> None:
        """The From Party, whose handler had its word, is told that it was in vain (HOP-9)."""
        self.onward.notify(when, onward, severity)
        journey = self._journeys[onward.letter.message_id]
        report = Error("DeliveryFailure", severity, "", onward.outgoing.reason)
        self._world.at(when + SECOND, journey.side.refused, journey, report)

    def _relay(self, when: Instant, onward: Journey) -> None:
        """The receipt of the To Party itself travels back through the hub."""
        if onward.outgoing.state is OutgoingState.DELIVERED:
            journey = self._journeys[onward.letter.message_id]
            back = when + 50 * MILLISECOND
            self._world.at(back, journey.side.acknowledged, journey, self._stream.receiver)


# Documents of the year that travel in parts: cut at one end, put together at the other.

PARTS = 4
"""Parts of every split document of the year."""


class DocumentsSent:
    """The documents of one stream at their sender: each has the outcome that its parts give it."""

    def __init__(self, side: SendingSide) -> None:
        self._side = side
        self._documents: dict[str, tuple[SplitDocument, Outgoing]] = {}
        # Nobody is told of parts; of their document, yes.
        side.tell = lambda _when, _journey, _severity: None
        side.heard = self._part_ended

    def submit(self, when: Instant, whole: Letter, parts: list[Letter]) -> None:
        """All parts go at once: there are few."""
        now, terms = when + self._side.handler.skew, self._side.terms
        waiting = Outgoing(whole.message_id, self._side.terms_id, now, expires_at=whole.expires_at)
        entered = enter_window(waiting, None, terms, now).outgoing
        document = SplitDocument("", whole.message_id, len(parts), self._side.terms_id, now)
        self._documents[whole.message_id] = document, entered
        for part in parts:
            self._side.submit(when, part)

    def _part_ended(self, when: Instant, journey: Journey) -> None:
        split_id, number = journey.letter.document or "", journey.letter.part or 0
        document, whole = self._documents[split_id]
        state = journey.outgoing.state
        if state is OutgoingState.DELIVERED:
            document = document.add(number)
            self._documents[split_id] = document, whole
            if document.complete and document.state is not DocumentState.WHOLE:
                done = document.moved(DocumentState.WHOLE)
                self._end(when, done, parts_arrived(whole, Proof.TO_PARTY))
        elif document.state is DocumentState.OPEN:
            certain = state is OutgoingState.NOT_DELIVERED
            step = part_failed(whole, journey.outgoing.reason, certain=certain)
            self._end(when, document.moved(DocumentState.FAILED), step)

    def _end(self, when: Instant, document: SplitDocument, step: SenderStep) -> None:
        self._documents[document.split_id] = document, step.outgoing
        for effect in step.effects:
            if isinstance(effect, Note):
                self._side.write(when, effect)
            elif isinstance(effect, Notify):
                told = notes.Notified(effect.severity.value)
                self._side.write(when + 2 * MILLISECOND, Note(told, document.split_id))


class DocumentsReceived:
    """The documents of one stream at their receiver: each is handed over when it is whole."""

    def __init__(self, world: World, side: ReceivingSide) -> None:
        self._world, self._side = world, side
        self._documents: dict[str, SplitDocument] = {}
        self.wholes: dict[str, Letter] = {}
        """The documents as they were cut, by their id."""
        side.gather = self._gather

    def _gather(self, when: Instant, journey: Journey) -> None:
        """A part is stored. The last one is acknowledged when the document is whole."""
        letter, side = journey.letter, self._side
        whole = self.wholes[letter.document or ""]
        split_id = whole.message_id
        document = self._documents.get(split_id)
        if document is None:
            document = SplitDocument(split_id, split_id, PARTS, side.terms_id, when)
            self._world.at(when + side.terms.persist_duration, self._give_up, split_id)
        document = replace(document.add(letter.part or 0, letter.size), latest_at=when)
        side.give_to_document(when, letter)
        missing = 1 if whole.does("missing_part") else 0
        if document.count + missing < document.total:
            self._documents[split_id] = document
            side.write_ack(when, letter)
            side.acknowledge(when, journey)
            return
        self._documents[split_id] = document.moved(DocumentState.WHOLE)
        joined = when + 10 * MILLISECOND
        note = Note(notes.Joined(document.total), split_id)
        side.write(joined, note, whole.digest, whole.size)
        side.write_ack(joined, letter)
        side.acknowledge(joined, journey)
        side.hand_over(joined + MILLISECOND, whole, split_id)

    def _give_up(self, when: Instant, split_id: str) -> None:
        """No part came for persistDuration, and one is missing."""
        document, persist = self._documents[split_id], self._side.terms.persist_duration
        if document.state is not DocumentState.OPEN:
            return
        if document.latest_at + persist > when:
            self._world.at(document.latest_at + persist, self._give_up, split_id)
            return
        self._documents[split_id] = document.moved(DocumentState.FAILED)
        problem = f"{document.total - document.count} of its parts never came"
        what = notes.Refused(
            "DeliveryFailure", location="//SplitId", problem=problem, split_id=split_id
        )
        self._side.write(when, Note(what, split_id))


def cut(whole: Letter, details: tuple[str, str]) -> list[Letter]:
    """The parts of a document; `details`: what rows of a part tell, but for its number."""
    submitted, received = details
    parts = []
    for number in range(1, PARTS + 1):
        name = part_id(whole.message_id, number, PARTS)
        said = f',"split_id":"{whole.message_id}","split_number":{number},"split_total":{PARTS}}}'
        part = Letter(
            name,
            f"{number:02x}{whole.digest[2:]}",
            whole.size // PARTS,
            f"{submitted[:-1]}{said}",
            f"{received[:-1]}{said}",
            document=whole.message_id,
            part=number,
        )
        part.expires_at = whole.expires_at
        parts.append(part)
    return parts


_SUBMITTED = notes.Submitted()


def write_stream(plan: Plan, stream: Stream) -> list[Draft]:
    """All rows of one stream, in the order in which they came to be."""
    return _Exchange(plan, stream).rows()


class _Exchange:
    def __init__(self, plan: Plan, stream: Stream) -> None:
        self._plan, self._stream = plan, stream
        self._rng = Random(f"{plan.seed}/{stream.index}")
        self._writer = RowWriter(stream.index, plan.end)
        self._world = World(self._writer, self._rng, plan.end)
        to = stream.hub or stream.receiver
        self._sending = SendingSide(
            self._world, stream.sender, to, stream.terms, channel=stream.channel
        )
        self._receiving = ReceivingSide(self._world, stream)
        self._sending.deliver = self._receiving.arrive
        if stream.hub is not None:
            hub = Hub(self._world, stream, stream.hub)
            hub.onward.deliver = self._receiving.arrive
            self._sending.deliver = hub.arrive
        if stream.split:
            self._sent = DocumentsSent(self._sending)
            self._received = DocumentsReceived(self._world, self._receiving)
        self._details = self._facts()
        self._place = Place(stream.sender, stream.terms.terms_id, peer=stream.receiver.party)

    def rows(self) -> list[Draft]:
        for index, when in enumerate(submissions(self._plan, self._stream, self._rng)):
            self._world.at(when, self._submit, index)
        self._world.run()
        return self._writer.rows

    def _facts(self) -> tuple[str, str]:
        """The details of submission and arrival, with a place for what differs."""
        stream = self._stream
        facts: dict[str, Any] = {
            "from_party": stream.sender.party,
            "to_party": stream.receiver.party,
            "cpa_id": stream.cpa_id,
            "conversation_id": "{conversation}",
            "service": "urn:service:orders",
            "action": "NewOrder",
            "best_effort": not stream.terms.reliable,
        }
        submitted = notes.Submitted(**facts).write() or ""
        received = notes.Received(
            **facts,
            signature_required=stream.signed,
            signature="verified" if stream.signed else "none",
        ).write()
        return submitted, received or ""

    def _submit(self, when: Instant, index: int) -> None:
        letter = self._letter(when, index)
        if letter.twist is not None:
            self._writer.twists[letter.message_id] = letter.twist
        if letter.does("invented"):
            # The receiver hands over what was never submitted.
            message_id = self._plan.message_id(self._stream.index, -index)
            digest = hashlib.sha256(message_id.encode()).hexdigest()
            self._world.at(
                when + MINUTE,
                self._receiving.invent,
                Letter(message_id, digest, letter.size, "", letter.received),
            )
        if not self._stream.split:
            self._write_submitted(when, letter)
            self._send(when, letter)
            return
        parts = cut(letter, (letter.submitted, letter.received))
        whole = f'"split_id":"{letter.message_id}","split_total":{PARTS}'
        whole += f',"document_digest":"{letter.digest}"'
        letter.submitted = f"{letter.submitted[:-1]},{whole}}}"
        self._write_submitted(when, letter)
        self._received.wholes[letter.message_id] = letter
        for part in parts:
            part.troubles = self._troubles(when, part, letter.force)
            self._write_submitted(when, part)
        if letter.does("missing_part"):
            parts[1].troubles[1] = Trouble(lost=NEVER)
        self._sent.submit(when, letter, parts)

    def _send(self, when: Instant, letter: Letter) -> None:
        sending, world = self._sending, self._world
        if self._stream.hub is not None or not sending.goes_plainly(when, letter):
            sending.submit(when, letter)
            return
        arrived = when + world.latency(letter)
        sending.send_plainly(when, letter)
        self._receiving.arrive_plainly(arrived, letter)
        if self._stream.terms.reliable:
            back = arrived + 5 * MILLISECOND + world.latency(letter)
            sending.acknowledge_plainly(back, letter)

    def _letter(self, when: Instant, index: int) -> Letter:
        stream = self._stream
        force = stream.forces.get(index)
        message_id = self._plan.message_id(stream.index, index)
        conversation = f"c-{message_id[:10]}"
        submitted = self._details[0].replace("{conversation}", conversation)
        received = self._details[1].replace("{conversation}", conversation)
        digest = hashlib.sha256(message_id.encode()).hexdigest()
        letter = Letter(
            message_id, digest, self._world.between(400, 40_000), submitted, received, force=force
        )
        lifetime = stream.terms.time_to_live
        if stream.split:
            letter.expires_at = None if lifetime is None else when + stream.sender.skew + lifetime
        else:
            letter.troubles = self._troubles(when, letter, force)
        if letter.expires_at is not None:
            letter.submitted = f'{submitted[:-1]},"time_to_live":{letter.expires_at}}}'
        begins = index - 1 not in stream.forces
        letter.waits = letter.does("number_left_out") or (force is not None and begins)
        return letter

    def _troubles(self, when: Instant, letter: Letter, force: Force | None) -> dict[int, Trouble]:
        """What is in store for it on which hop, and how long it lives."""
        stream, terms = self._stream, self._stream.terms
        lifetime, hop = terms.time_to_live, 1
        if force is not None:
            trouble = PLAIN if force.ack_after == 0 else Trouble(ack_after=force.ack_after)
            twist = letter.twist
            if twist is not None:
                lost = 1 + terms.resends if twist.lost == AGREED else twist.lost
                trouble = Trouble(lost, twist.acks_lost, answer=twist.answer)
        else:
            way = draw_way(self._rng)
            if way == "expired" and not stream.split and stream.hub is None and terms.resends:
                lifetime = terms.timeout + terms.retry_interval // 2
            elif way == "expired":
                way = "plain"
            trouble = trouble_of(way, terms, self._rng)
            hop = 2 if stream.hub is not None and way != "resend" else 1
        if lifetime is not None:
            letter.expires_at = when + stream.sender.skew + lifetime
        return {hop: trouble}

    def _write_submitted(self, when: Instant, letter: Letter) -> None:
        note = Note(_SUBMITTED, letter.message_id, channel=self._stream.channel)
        self._writer.note(self._place, when, note, letter.digest, letter.size, letter.submitted)


# Raw messages of the year: some of its messages as a handler would have archived them.

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


# The journals of the year: every stream's rows, what nodes write about themselves, positions.


def units(plan: Plan) -> int:
    """How many pieces the year is written in: one for each stream, and one for the nodes."""
    return len(plan.streams) + 1


def write_unit(plan: Plan, unit: int) -> list[Draft]:
    """The rows of one piece."""
    if unit < len(plan.streams):
        return write_stream(plan, plan.streams[unit])
    return _write_nodes(plan, unit)


def _write_nodes(plan: Plan, unit: int) -> list[Draft]:
    """Boots, terms, and the end of the year."""
    writer = RowWriter(unit, plan.end)
    terms = {
        handler.name: {
            stream.terms.terms_id: stream.terms
            for stream in plan.streams
            if handler in (stream.sender, stream.receiver, stream.hub)
        }
        for handler in plan.handlers
    }
    for handler in plan.handlers:
        said = notes.Started(__version__, JOURNAL_VERSION, (handler.party,))
        place = Place(handler)
        for boot in handler.boots:
            writer.note(place, boot, Note(said))
        first = handler.boots[0] + 1
        for _, values in sorted(terms[handler.name].items()):
            writer.terms(handler, first, values)
        writer.note(place, plan.end, Note(notes.Stopped()))
    return writer.rows


def rows_of_year(plan: Plan, streams: Sequence[int] | None = None) -> Iterator[Row]:
    """All journals, node by node, in plain Python: what Spark writes in parallel.

    With some streams only: as if nothing else had happened in the year.
    """
    chosen = range(units(plan)) if streams is None else [*streams, units(plan) - 1]
    drafts = [draft for unit in chosen for draft in write_unit(plan, unit)]
    node = KEYS + 3
    drafts.sort(key=lambda draft: (draft[node], *draft[:KEYS]))
    seq, current = 0, ""
    for draft in drafts:
        seq = seq + 1 if draft[node] == current else 1
        current = draft[node]
        yield Row(seq, *draft[KEYS:])


DRAFTS = StructType(
    [
        StructField("true_at", LongType(), True),
        StructField("unit", LongType(), True),
        StructField("ordinal", LongType(), True),
        *nullable(JOURNAL).fields[1:],
    ]
)
"""Rows without their position, and what orders them."""

PLACED = StructType([*nullable(JOURNAL).fields, StructField("day", LongType(), True)])
ROWS_PER_BATCH = 10_000
WORK = "gold/work/drafts"


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written."""

    messages: int
    rows: int
    nodes: int
    violations: int
    envelopes: int


def generate(
    spark: SparkSession,
    lake: Lake,
    *,
    messages: int,
    seed: int,
    days: int = YEAR,
    violations: Path | None = None,
    envelopes: int = 0,
    tell: Progress = quiet,
) -> Generated:
    """Write a year of so many messages into a new lake, and the answer key beside it.

    `envelopes` of the messages are also written as raw messages, into `LAKE/archive`.
    """
    if lake.exists:
        raise NotAllowed(f"there is a lake at {lake.root} already", remedy="name a new folder")
    plan = make_plan(messages, seed, days)
    if violations is not None:
        key = [{"kind": kind, "message_id": message_id} for kind, message_id in plan.violations]
        violations.write_text(json.dumps(key, indent=1) + "\n", encoding="utf-8")
    with lake.writing() as empty:
        tell(f"writing a year of {messages:,} messages in {len(plan.streams):,} streams")
        # Every row of the year, on disk, in no order.
        count = units(plan)
        # Units differ in size, so there are more tasks than cores, and not one for each unit.
        tasks = max(1, min(count, max(cores_of(spark) * 4, count // 40)))
        frame = spark.range(0, count, 1, tasks).mapInArrow(
            _write(plan.messages, plan.seed, plan.days), DRAFTS
        )
        frame.write.mode("overwrite").parquet(str(lake.root / WORK))
        drafts = lake.read_folders(spark, DRAFTS, [str(lake.root / WORK)])
        tell("giving positions")
        version = lake.publish(_journals(spark, lake, empty, drafts))
        shutil.rmtree(lake.root / WORK, ignore_errors=True)
    written = 0
    if envelopes:
        tell("writing raw messages")
        written = write_parcels(spark, lake.root / "archive", plan, envelopes)
    return Generated(
        messages, version.rows("journal"), len(version.nodes), len(plan.violations), written
    )


def _write(
    messages: int, seed: int, days: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, schema = make_plan(messages, seed, days), arrow(DRAFTS)
        pending: list[tuple[Any, ...]] = []
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                pending += write_unit(plan, unit)
                if len(pending) >= ROWS_PER_BATCH:
                    yield batch_of(list(zip(*pending, strict=True)), schema)
                    pending = []
        if pending:
            yield batch_of(list(zip(*pending, strict=True)), schema)

    return write


def _journals(spark: SparkSession, lake: Lake, version: Version, drafts: DataFrame) -> Version:
    """The journals in order, one directory for each node, and the silver tables they make."""
    day = f.floor((f.col("true_at") - YEAR_START) / DAY).cast("long")
    dated = drafts.withColumn("day", day)
    offsets, ends = _offsets(dated)
    rows = sum(ends.values())
    tasks = max(cores_of(spark), -(-rows // 250_000))
    placed = (
        dated.repartition(tasks, "node", "day")
        .sortWithinPartitions("node", "day", "true_at", "unit", "ordinal")
        .mapInArrow(_place(offsets), PLACED)
    )
    folder = lake.root / "bronze/journal/year"
    divided = placed.drop("day").withColumn("part", f.col("node")).repartition("part")
    divided.write.mode("overwrite").partitionBy("part").parquet(str(folder))
    entries = [
        _moved(lake, part, unquote(part.name.removeprefix("part=")), ends)
        for part in sorted(folder.glob("part=*"))
    ]
    calls = [partial(_write_silver, lake.root, entry.path) for entry in entries]
    for tables in run_each(spark, calls):
        for table, entry in tables.items():
            version = version.adding(table, entry)
    version = version.adding("journal", *entries)
    # The last row of each node, as the lake remembers it.
    last = f.max_by(f.struct("seq", "at", "boot"), "seq").alias("last")
    for row in lake.read(spark, version, JOURNAL, "journal").groupBy("node").agg(last).collect():
        version = version.with_node(row["node"], NodeState(*row["last"]))
    return version


def _write_silver(root: Path, path: str) -> dict[str, Entry]:
    """The silver tables of one node's journal."""
    import pyarrow.dataset as ds

    silver = Silver(root, path.removeprefix("bronze/journal/"))
    for batch in ds.dataset(root / path, format="parquet").to_batches(columns=list(COLUMNS)):
        silver.add(rows_of_batch(batch))
    return silver.close()


def _offsets(dated: DataFrame) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """How many rows each node has before each day, and in all."""
    offsets: dict[tuple[str, int], int] = {}
    ends: dict[str, int] = {}
    counts = dated.groupBy("node", "day").count().orderBy("node", "day").collect()
    for row in counts:
        offsets[row["node"], row["day"]] = ends.get(row["node"], 0)
        ends[row["node"]] = ends.get(row["node"], 0) + row["count"]
    return offsets, ends


def _place(
    offsets: dict[tuple[str, int], int],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow(PLACED)
        current, position = ("", -1), 0
        for batch in batches:
            positions = []
            keys = zip(batch["node"].to_pylist(), batch["day"].to_pylist(), strict=True)
            for key in keys:
                if key != current:
                    current, position = key, offsets[key]
                position += 1
                positions.append(position)
            columns = [pa.array(positions, pa.int64())]
            columns += [batch[name] for name in schema.names[1:]]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return place


def _moved(lake: Lake, part: Path, node: str, ends: dict[str, int]) -> Entry:
    """A node's directory under the name that a journal's rows have in every lake."""
    rows = ends[node]
    path = f"bronze/journal/{safe_name(node)}/1-{rows}"
    target: Path = lake.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    part.rename(target)
    write_node_file(target.parent, node, JOURNAL_VERSION)
    return Entry(path, rows, node, 1, rows)
