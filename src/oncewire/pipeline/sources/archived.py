"""Archived: the raw messages that another handler left, as rows of its journal.

A raw message shows what travelled: who sent what to whom, when, under which number, how often, and
what was acknowledged or refused. What its handler did inside (stored it, handed it over, gave it
up) no message shows. So the journal says of itself that it is an archive, and the judge calls
nothing broken because a row of it is missing.

Each file of an archive is one transmission. Its instant is the one that the record around it tells
(the mail, the HTTP exchange), else the Timestamp of the message itself.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from oncewire.errors import InvalidValue, JournalProblem, NotAllowed
from oncewire.journal.identity import identity_digest
from oncewire.journal.row import JOURNAL_VERSION, NO_INSTANT, Row
from oncewire.message.envelope import Actor, Message, MessageKind, Severity
from oncewire.message.form import Validation
from oncewire.message.instant import SECOND, Instant
from oncewire.pipeline.lake.columns import JOURNAL, arrow
from oncewire.pipeline.lake.tables import batches_of, rows_of
from oncewire.pipeline.lake.version import NODE_FILE, write_node_file
from oncewire.pipeline.sources.archive import TOO_LARGE, Content, contents, pieces
from oncewire.pipeline.sources.ebxml import read_capture
from oncewire.pipeline.sources.ingest import Progress, quiet
from oncewire.pipeline.tasks import Batches
from oncewire.protocol import notes
from oncewire.protocol.notes import write_terms
from oncewire.protocol.terms import Terms
from oncewire.wire.inspection import Capture, CaptureKind, open_capture
from oncewire.wire.parcel import Received
from oncewire.wire.security import smime

TRANSPORTS = ("http", "smtp", "unknown")
_TERMS = {reliable: Terms(reliable=reliable, transports=TRANSPORTS) for reliable in (True, False)}
"""What was agreed no message says; whether an acknowledgement was asked for, it does."""

_UNREAD, _STRANGE, _OTHER = "unread", "strange", "other"
"""What no row is made of: what cannot be read, what is between others, and pings and the like."""
_SENT, _CAME, _ACK_OUT, _ACK_IN, _ERROR_OUT, _ERROR_IN = (
    "sent", "came", "ack out", "ack in", "error out", "error in",
)  # fmt: skip
_ENCRYPTED = b"EncryptedData"
_HEAD_BYTES = 4_096
_TEXT_MAX = 300


class Seen(NamedTuple):
    """One thing that a raw message shows, ready to be sorted by the message that it is about."""

    what: str
    about: str | None
    """The MessageId of the business message."""
    at: Instant
    place: str
    """Which file, member and position: what is of one instant keeps its order."""
    signal: str | None = None
    """The MessageId of the acknowledgement or error."""
    peer: str | None = None
    transport: str = "unknown"
    digest: str | None = None
    terms_id: str | None = None
    ref_to: str | None = None
    channel: str | None = None
    number: int | None = None
    detail: str | None = None
    """Of the row that is made of it; of what is unread, why."""
    status: str | None = None


_NUMBERS = {"at", "number"}
SEEN = StructType(
    [StructField(name, LongType() if name in _NUMBERS else StringType()) for name in Seen._fields]
)
PLACED = StructType([*JOURNAL.fields, StructField("rank", LongType())])
"""A row without its position, and its rank among those of one instant."""


# --- what one file shows ----------------------------------------------------------------------


def seen_in(content: Content, parties: frozenset[str]) -> Iterator[Seen]:
    """Everything that one file shows of a party; whatever is in it, it is at least one thing."""
    place = f"{content.found.path}\0{content.member or ''}\0"
    at = content.found.modified
    if content.problem:
        yield Seen(_UNREAD, None, at, place, detail=content.problem)
        return
    try:
        capture = open_capture(content.data)
        found = read_capture(capture, Validation.OFF)
        for position, received in enumerate(found):
            yield from _seen(received, capture, at, f"{place}{position:04d}", parties)
    except Exception as error:  # noqa: BLE001 - an archive holds anything, and no file may stop a job
        problem = str(error) or type(error).__name__
        yield Seen(_UNREAD, None, at, place, detail=problem[:_TEXT_MAX])


def _seen(
    received: Received, capture: Capture, modified: Instant, place: str, parties: frozenset[str]
) -> Iterator[Seen]:
    message, header = received.message, received.message.header
    sent_by = not parties.isdisjoint(map(str, header.from_party.ids))
    came_to = not parties.isdisjoint(map(str, header.to_party.ids))
    if not sent_by and not came_to:
        between = f"{header.from_party} to {header.to_party}"
        yield Seen(_STRANGE, header.message_id, modified, place, detail=between)
        return
    transport = _transport(capture)
    for outgoing in [way for way, ours in ((True, sent_by), (False, came_to)) if ours]:
        at = _instant(capture, header.timestamp, modified, outgoing=outgoing)
        peer = str(header.to_party if outgoing else header.from_party)
        told = Seen("", None, at, place, header.message_id, peer, transport)
        signals = list(_signals(message, told, outgoing))
        yield from signals
        if message.kind is MessageKind.NORMAL:
            yield _business(received, told, outgoing)
        elif not signals:
            yield told._replace(what=_OTHER)


def _signals(message: Message, told: Seen, outgoing: bool) -> Iterator[Seen]:
    """Acknowledgements and errors, which may ride on a business message."""
    for each in message.acknowledgments:
        hop = each.actor is Actor.NEXT_MSH
        said = notes.AckSent(hop=hop) if outgoing else notes.Acknowledged(hop=hop)
        what = _ACK_OUT if outgoing else _ACK_IN
        yield told._replace(what=what, about=each.ref_to_message_id, detail=said.write())
    errors, about = message.error_list, message.header.ref_to_message_id
    if errors is not None and about is not None:
        worst = max(errors.errors, key=lambda error: error.severity is Severity.ERROR)
        facts = (worst.code, worst.severity.value)
        place, text = worst.location or None, worst.description or None
        detail = (
            notes.Refused(*facts, place, text).write()
            if outgoing
            else notes.Rejected(*facts, text, place, told.peer).write()
        )
        what = _ERROR_OUT if outgoing else _ERROR_IN
        yield told._replace(what=what, about=about, detail=detail, status=worst.severity.value)


def _business(received: Received, told: Seen, outgoing: bool) -> Seen:
    message, header = received.message, received.message.header
    if not received.complete:
        why = "its payloads are not in the file, so its content cannot be compared"
        return told._replace(what=_UNREAD, about=None, detail=why)
    if any(
        smime.is_enveloped(payload.media_type) or _ENCRYPTED in (payload.data or b"")[:_HEAD_BYTES]
        for payload in message.payloads
    ):
        why = "its payloads are encrypted, so its content cannot be compared"
        return told._replace(what=_UNREAD, about=None, detail=why)
    reliable = message.reliable or bool(message.ack_requested)
    facts = notes.Submitted if outgoing else notes.Received
    split, sequence = header.split, message.sequence
    detail = facts(
        from_party=str(header.from_party),
        to_party=str(header.to_party),
        cpa_id=header.cpa_id,
        conversation_id=header.conversation_id,
        service=str(header.service) if header.service else None,
        action=header.action,
        best_effort=not reliable,
        split_id=split.split_id if split else None,
        split_number=split.number if split else None,
        split_total=split.total if split else None,
    )
    stream = f"{header.cpa_id} {header.conversation_id} {header.from_party} {header.to_party}"
    return told._replace(
        what=_SENT if outgoing else _CAME,
        about=header.message_id,
        digest=identity_digest(message),
        terms_id=_TERMS[reliable].terms_id,
        ref_to=header.ref_to_message_id,
        channel=stream if sequence else None,
        number=sequence.number if sequence else None,
        status=sequence.status.value if sequence and sequence.status else None,
        detail=detail.write(),
    )


def _transport(capture: Capture) -> str:
    if capture.kind in (CaptureKind.HTTP_REQUEST, CaptureKind.HTTP_RESPONSE):
        return "http"
    header = capture.parcel.header
    return "smtp" if header("received") or (header("from") and header("to")) else "unknown"


def _instant(capture: Capture, timestamp: Instant, modified: Instant, *, outgoing: bool) -> Instant:
    """When it travelled: by the record around it, else by itself, else by its file."""
    header = capture.parcel.header
    # The last server that took a mail wrote the first of these lines.
    passed = None if outgoing else header("received")
    for text in ((passed or "").rpartition(";")[2], header("date") or ""):
        try:
            at = int(parsedate_to_datetime(text).timestamp()) * SECOND
        except (ValueError, TypeError, OverflowError):
            continue
        if 0 < at < NO_INSTANT:
            return at
    return timestamp if 0 < timestamp < NO_INSTANT else modified


# --- what a message's transmissions are as rows -----------------------------------------------


def rows_about(about: str, seen: Sequence[Seen], node: str) -> Iterator[tuple[Row, int]]:
    """The rows of one message, each with its rank among those of one instant; the position of a
    row is not known yet."""
    fold = _Fold(about, node, seen)
    # What a message is answered with goes by another clock, and is looked at behind it.
    for each in sorted(seen, key=lambda one: (one.what in _ANSWERS, one.at, one.place)):
        yield from fold.take(each)


_ANSWERS = {
    _ACK_OUT: notes.Kind.ACK_SENT,
    _ACK_IN: notes.Kind.ACKNOWLEDGED,
    _ERROR_OUT: notes.Kind.REFUSED,
    _ERROR_IN: notes.Kind.REJECTED,
}
_BEHIND = 9
"""The rank of answers."""


class _Fold:
    """What is known so far of one message."""

    def __init__(self, about: str, node: str, seen: Sequence[Seen]) -> None:
        self._about, self._node = about, node
        answers = {one.what for one in seen if one.status != Severity.WARNING.value}
        self._refused = _ERROR_OUT in answers and _ACK_OUT not in answers
        self._attempts = 0
        self._submitted: set[str | None] = set()
        self._signals: set[tuple[str, str | None]] = set()
        self._sent: Seen | None = None
        self._came: Seen | None = None

    def take(self, seen: Seen) -> Iterator[tuple[Row, int]]:
        """The rows of one more transmission."""
        if seen.what == _SENT:
            yield from self._take_sent(seen)
        elif seen.what == _CAME:
            yield from self._take_came(seen)
        elif (seen.what, seen.signal) not in self._signals:
            # A signal that travelled again says nothing new.
            self._signals.add((seen.what, seen.signal))
            yield self._signal(seen), _BEHIND

    def _take_sent(self, seen: Seen) -> Iterator[tuple[Row, int]]:
        if seen.digest not in self._submitted:
            # Other content under one id was another message for whoever submitted it.
            self._submitted.add(seen.digest)
            yield self._first(seen, notes.Kind.SUBMITTED), 0
            if seen.number is not None:
                said = notes.Numbered(seen.status or "silent").write()
                yield _placed(self._row(seen, notes.Kind.NUMBERED), seen)._replace(detail=said), 1
        self._attempts += 1
        self._sent = self._sent or seen
        row = _placed(self._row(seen, notes.Kind.SENT), seen)
        yield row._replace(attempt=self._attempts, transport=seen.transport), 2

    def _take_came(self, seen: Seen) -> Iterator[tuple[Row, int]]:
        first, self._came = self._came is None, self._came or seen
        if self._refused:
            return  # The refusal says that it came, and that it was not taken.
        if first:
            row = _placed(self._first(seen, notes.Kind.RECEIVED), seen)
            yield row._replace(transport=seen.transport), 0
        else:
            yield self._row(seen, notes.Kind.DUPLICATE)._replace(digest=seen.digest), 1

    def _signal(self, seen: Seen) -> Row:
        kind = _ANSWERS[seen.what]
        if seen.status == Severity.WARNING.value:
            kind = notes.Kind.WARNING_SENT if seen.what == _ERROR_OUT else notes.Kind.WARNED
        # It cannot have been before what it answers.
        answered = self._came if seen.what in (_ACK_OUT, _ERROR_OUT) else self._sent
        at = max(seen.at, answered.at if answered is not None else 0)
        row = self._row(seen, kind)._replace(at=at, mono=at, ref_to=seen.signal)
        if kind is notes.Kind.REFUSED and self._came is not None:
            row = row._replace(digest=self._came.digest)
        return row._replace(detail=seen.detail)

    def _first(self, seen: Seen, kind: notes.Kind) -> Row:
        return self._row(seen, kind)._replace(
            terms_id=seen.terms_id, digest=seen.digest, ref_to=seen.ref_to, detail=seen.detail
        )

    def _row(self, seen: Seen, kind: notes.Kind) -> Row:
        about, node, at = self._about, self._node, seen.at
        return Row(0, at, at, _boot(node), node, kind.value, about, peer=seen.peer)


def _placed(row: Row, seen: Seen) -> Row:
    """With its number; how often a stream began anew no single message shows."""
    row = row._replace(terms_id=seen.terms_id)
    if seen.number is None:
        return row
    return row._replace(channel=seen.channel, epoch=0, sequence_number=seen.number)


def _boot(node: str) -> str:
    return f"archive of {node}"


def beginning(node: str, parties: frozenset[str], at: Instant) -> Iterator[Row]:
    """The rows that a journal begins with: whose it is, and under which terms."""
    started = notes.Started("", JOURNAL_VERSION, tuple(sorted(parties)), archive=True)
    yield Row(0, at, at, _boot(node), node, notes.Kind.STARTED.value, detail=started.write())
    for terms in _TERMS.values():
        row = Row(0, at, at, _boot(node), node, notes.Kind.TERMS.value, terms_id=terms.terms_id)
        yield row._replace(detail=write_terms(terms))


# --- on Spark ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Journaled:
    """What became of an archive."""

    node: str
    rows: int
    kinds: dict[str, int] = field(default_factory=dict)
    """How many rows of each kind."""
    messages: int = 0
    strange: int = 0
    """Messages between other parties."""
    other: int = 0
    """Pings, status requests and the like, which are about no message."""
    unread: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    """The first of those that cannot be read, and why."""


UNREADABLE_SHOWN = 1_000


def journal(
    spark: SparkSession,
    archives: Sequence[Path],
    folder: Path,
    parties: Sequence[str],
    *,
    node: str | None = None,
    largest: int = TOO_LARGE,
    tell: Progress = quiet,
) -> Journaled:
    """Write the journal of a party's handler, as far as its archives show it, into a new folder."""
    if not parties:
        raise InvalidValue("no party is named", remedy="say whose archive it is")
    if folder.exists() and any(folder.iterdir()):
        raise NotAllowed(f"{folder} is not empty", remedy="name a new folder")
    names, whose = frozenset(parties), node or parties[0]
    work = folder / f"_seen-{uuid.uuid4().hex}"
    try:
        tell("1 of 2: reading the archive")
        _read(spark, archives, names, largest).write.parquet(str(work))
        seen = spark.read.schema(SEEN).parquet(str(work))
        counts = {row["what"]: row["count"] for row in seen.groupBy("what").count().collect()}
        _check_of_party(seen, counts, names)
        tell(f"2 of 2: writing the journal of {whose}")
        _rows(seen, whose, names).write.parquet(str(folder / "rows"))
        written = spark.read.parquet(str(folder / "rows"))
        kinds = Counter(
            {row["kind"]: row["count"] for row in written.groupBy("kind").count().collect()}
        )
        unread = seen.where("what = 'unread'").orderBy("place").limit(UNREADABLE_SHOWN).collect()
        found = Journaled(
            whose,
            sum(kinds.values()),
            dict(sorted(kinds.items())),
            written.select("message_id").distinct().where("message_id IS NOT NULL").count(),
            counts.get(_STRANGE, 0),
            counts.get(_OTHER, 0),
            counts.get(_UNREAD, 0),
            tuple(
                (" ".join(part for part in row["place"].split("\0")[:2] if part), row["detail"])
                for row in unread
            ),
        )
        # A folder is a book from here on.
        write_node_file(folder, whose, JOURNAL_VERSION)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not (folder / NODE_FILE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _read(
    spark: SparkSession, archives: Sequence[Path], parties: frozenset[str], largest: int
) -> DataFrame:
    """What was seen, one task for each piece of an archive."""
    shares = [piece for archive in archives for piece in pieces(str(archive))]

    def read(batches: Batches) -> Batches:
        found = (
            each
            for batch in batches
            for number in batch.column(0).to_pylist()
            for content in contents(shares[number], largest)
            for each in seen_in(content, parties)
        )
        return batches_of(found, arrow(SEEN))

    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, SEEN)


def _check_of_party(seen: DataFrame, counts: dict[str, int], parties: frozenset[str]) -> None:
    if set(counts) - {_STRANGE, _UNREAD}:
        return
    ways = seen.where(f"what = '{_STRANGE}'").select("detail").distinct().limit(5).collect()
    there = "; ".join(row["detail"] for row in ways)
    raise JournalProblem(
        f"no message of the archive is from or to {', '.join(sorted(parties))}"
        + (f", but {there}" if there else "")
        + (f"; {counts[_UNREAD]} files cannot be read" if _UNREAD in counts else ""),
        remedy="name a party with its type before it, as type:value, as the messages have it",
    )


def _rows(seen: DataFrame, node: str, parties: frozenset[str]) -> DataFrame:
    """The journal: messages are folded side by side, and then placed one behind the other, for a
    position is known only when all before it are."""

    def fold(batches: Batches) -> Batches:
        every = (
            Seen(*(row[name] for name in Seen._fields))
            for batch in batches
            for row in batch.to_pylist()
        )
        found = (
            (*row, rank)
            for about, group in groupby(every, attrgetter("about"))
            for row, rank in rows_about(about or "", list(group), node)
        )
        return batches_of(found, arrow(PLACED))

    def place(batches: Batches) -> Batches:
        return batches_of(_numbered(rows_of(batches), node, parties), arrow(JOURNAL))

    unplaced = f"what NOT IN ('{_UNREAD}', '{_STRANGE}', '{_OTHER}')"
    return (
        seen.where(unplaced)
        .repartition("about")
        .sortWithinPartitions("about")
        .mapInArrow(fold, PLACED)
        .repartition(1)
        .sortWithinPartitions("at", "rank", "message_id", "attempt")
        .mapInArrow(place, JOURNAL)
    )


def _numbered(rows: Iterator[Row], node: str, parties: frozenset[str]) -> Iterator[Row]:
    seq = 0
    for row in rows:
        if not seq:
            for first in beginning(node, parties, row.at):
                seq += 1
                yield first._replace(seq=seq)
        seq += 1
        yield row._replace(seq=seq)
