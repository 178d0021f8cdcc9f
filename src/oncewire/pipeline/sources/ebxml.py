"""`format("ebxml")`: archives of raw messages, of any handler and any dialect, as a table.

    spark.read.format("ebxml").load("archive/")

reads `.mime .msg .eml .http .xml` files, folders of them, and tar and zip bundles. Each message
is a row with its header's facts and digests; a file that cannot be read is a row with its error
(`readable` false; `code`, `location`, `problem`), never a failed job.

`OPTIONS` lists the options. Files are named by their whole path, however it was spelled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncewire.errors import EbxmlError, InvalidValue, JournalProblem, SoapFault
from oncewire.journal.identity import identity_digest
from oncewire.message.form import Validation
from oncewire.pipeline.lake.columns import ENVELOPES, ENVELOPES_WITH_PAYLOADS, arrow
from oncewire.pipeline.lake.tables import batches_of
from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, local_path
from oncewire.pipeline.sources.archive import (
    BYTES_PER_PIECE,
    MESSAGE_SUFFIXES,
    TOO_LARGE,
    Content,
    FileKey,
    Piece,
    contents,
    pieces,
)
from oncewire.wire import codec
from oncewire.wire.inspection import Capture, CaptureKind, open_capture
from oncewire.wire.parcel import ReadFault, Received

if TYPE_CHECKING:
    import pyarrow as pa


# Rows of the table `envelopes`: what a raw message says, or why it cannot be read.
#
# Plain Python: bytes in, values out. Whatever is in a file, it becomes at least one row.


Values = tuple[Any, ...]

UNREADABLE = "Unreadable"
"""The code of what is no message at all: a file that cannot be opened, a damaged bundle."""

OPTIONS = {
    "path": ("", "The archive: a file, a folder or a bundle; `load(...)` gives it."),
    "payloads": ("false", "`true` adds a column with the bytes of the payloads."),
    "validation": (
        Validation.REPORT.value,
        "`report` compares each message with the schema and says what differs; `off` does not.",
    ),
    "extensions": (
        ",".join(sorted(MESSAGE_SUFFIXES)),
        "Names of files that are read, by their ends, between commas.",
    ),
    "bytesPerPartition": (str(BYTES_PER_PIECE), "Bytes of one task, about."),
    "maxBytes": (str(TOO_LARGE), "A larger message is a row with an error."),
    "known": (
        "[]",
        "Folders of an earlier result, as a JSON list: a file that is in it unchanged is left out.",
    ),
}
"""The options of a read: what holds where one is not given, and what it means."""

_EMPTY: dict[str, Any] = dict.fromkeys(ENVELOPES.fieldNames())
_TEXT_MAX = 1_000


def rows_of_content(
    content: Content, *, payloads: bool = False, validation: Validation = Validation.REPORT
) -> Iterator[Values]:
    """One row for each message in the bytes, or one that says what is wrong with them."""
    row = _where(content)
    if content.problem:
        yield _values(row | _fault(UNREADABLE, "", content.problem), payloads)
        return
    try:
        capture = open_capture(content.data)
        row["capture"] = capture.kind.value
        found = read_capture(capture, validation)
    except ReadFault as fault:
        yield _values(row | _of_fault(fault), payloads)
        return
    except Exception as error:  # noqa: BLE001 - an archive holds anything, and no file may stop a job
        problem = f"{type(error).__name__}: {error}"
        yield _values(row | _fault(UNREADABLE, "", problem), payloads)
        return
    for position, received in enumerate(found):
        yield _values(row | {"position": position} | _of_received(received), payloads, received)


def read_capture(capture: Capture, validation: Validation) -> tuple[Received, ...]:
    """Every message of a capture."""
    if capture.kind is CaptureKind.XML:
        # A bare header: its payloads were never in this file.
        return (codec.read_header(capture.parcel.body, None, validation=validation),)
    return codec.read_all(capture.parcel, validation=validation)


def _where(content: Content) -> dict[str, Any]:
    found = content.found
    return _EMPTY | {
        "file": found.path,
        "member": content.member,
        "position": 0,
        "file_size": found.size,
        "modified": found.modified,
        "size": len(content.data),
        "sha256": hashlib.sha256(content.data).hexdigest(),
        "readable": False,
    }


def _fault(code: str, location: str, problem: str) -> dict[str, Any]:
    return {"code": code, "location": location or None, "problem": problem[:_TEXT_MAX]}


def _of_fault(fault: ReadFault) -> dict[str, Any]:
    error = fault.error
    return (
        _fault(_code(error), getattr(error, "location", ""), error.problem)
        | {
            "dialect": fault.known.dialect.value if fault.known.dialect else None,
            "kind": fault.known.kind.value if fault.known.kind else None,
            "message_id": fault.known.message_id,
            "ref_to": fault.known.ref_to_message_id,
            "conversation_id": fault.known.conversation_id,
            "cpa_id": fault.known.cpa_id,
            "from_party": str(fault.known.from_party) if fault.known.from_party else None,
            "to_party": str(fault.known.to_party) if fault.known.to_party else None,
            "service": str(fault.known.service) if fault.known.service else None,
            "action": fault.known.action,
        }
        | {"notes": list(fault.notes), "errors": [_code(each_error) for each_error in fault.errors]}
    )


def _code(error: EbxmlError | SoapFault) -> str:
    return error.faultcode if isinstance(error, SoapFault) else error.code


def _of_received(received: Received) -> dict[str, Any]:
    message = received.message
    header, split, sequence = message.header, message.header.split, message.sequence
    return {
        "readable": True,
        "dialect": message.dialect.value,
        "kind": message.kind.value,
        "message_id": header.message_id,
        "ref_to": header.ref_to_message_id,
        "conversation_id": header.conversation_id,
        "cpa_id": header.cpa_id,
        "from_party": str(header.from_party),
        "from_role": header.from_party.role,
        "to_party": str(header.to_party),
        "to_role": header.to_party.role,
        "service": str(header.service) if header.service else None,
        "action": header.action,
        "sent_at": header.timestamp,
        "time_to_live": header.time_to_live,
        "semantics": header.semantics.value if header.semantics else None,
        "reliable": message.reliable,
        "sequence_number": sequence.number if sequence else None,
        "sequence_status": sequence.status.value if sequence and sequence.status else None,
        "hops": len(message.routing),
        "split_id": split.split_id if split else None,
        "split_number": split.number if split else None,
        "split_total": split.total if split else None,
        "ack_requested": bool(message.ack_requested),
        "acknowledges": (
            message.acknowledgments[0].ref_to_message_id if message.acknowledgments else None
        ),
        "errors": [error.code for error in message.error_list.errors] if message.error_list else [],
        "signed": received.signed,
        "closed": received.closed,
        "payload_count": len(message.payloads),
        "payload_bytes": sum(payload.size for payload in message.payloads),
        # Without its payloads a bare header cannot say what makes the message itself.
        "digest": identity_digest(message) if received.complete else None,
        "schema_problems": len(received.schema_problems),
        "notes": list(received.notes),
    }


def _values(row: dict[str, Any], payloads: bool, received: Received | None = None) -> Values:
    values = tuple(row.values())
    if not payloads:
        return values
    found = received.message.payloads if received is not None else ()
    return (
        *values,
        [
            (payload.content_id, payload.media_type, payload.size, payload.digest, payload.data)
            for payload in found
        ],
    )


ROWS_PER_BATCH = 1_000
"""Envelope rows are wide, and payloads may hang on them."""


class EbxmlSource(DataSource):
    """See the module's docstring."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ebxml"

    def schema(self) -> StructType:
        """One row for each message."""
        return ENVELOPES_WITH_PAYLOADS if self._flag("payloads") else ENVELOPES

    def reader(self, schema: StructType) -> EbxmlReader:
        """For `spark.read`."""
        own = self.schema()
        if schema.fieldNames() != own.fieldNames():
            raise InvalidValue(
                "the columns of an archive are fixed",
                remedy="leave the schema to the source and select from the result",
            )
        path = self.options.get("path")
        if not path:
            raise InvalidValue("no archive is named", remedy="give its path to load()")
        extensions = self.options.get("extensions")
        try:
            validation = Validation(self.options.get("validation", OPTIONS["validation"][0]))
        except ValueError:
            raise InvalidValue(
                f"validation is {self.options['validation']!r}", remedy="give report or off"
            ) from None
        found = local_path(path, OF_AN_ARCHIVE)
        if not found.exists():
            raise JournalProblem(
                f"there is no archive at {found}",
                remedy="give the path of a folder, of a file, or of a tar or zip bundle",
            )
        return EbxmlReader(
            str(found.resolve()),
            payloads=self._flag("payloads"),
            validation=validation,
            suffixes=_suffixes(extensions) if extensions else MESSAGE_SUFFIXES,
            piece_bytes=self._number("bytesPerPartition"),
            largest=self._number("maxBytes"),
            known=json.loads(self.options.get("known", OPTIONS["known"][0])),
        )

    def _flag(self, option: str) -> bool:
        return self.options.get(option, OPTIONS[option][0]).strip().lower() == "true"

    def _number(self, option: str) -> int:
        text = self.options.get(option, OPTIONS[option][0])
        if not text.isdigit() or int(text) < 1:
            raise InvalidValue(f"{option} is {text!r}", remedy="give a number of 1 or more")
        return int(text)


class Share(InputPartition):
    """One piece of the archive, for one task."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece


class EbxmlReader(DataSourceReader):
    """Lists the archive on the driver, reads it on executors."""

    def __init__(
        self,
        path: str,
        *,
        payloads: bool,
        validation: Validation,
        suffixes: tuple[str, ...],
        piece_bytes: int,
        largest: int,
        known: list[str],
    ) -> None:
        self._path, self._payloads, self._validation = path, payloads, validation
        self._suffixes, self._piece_bytes, self._largest = suffixes, piece_bytes, largest
        self._known = known

    def partitions(self) -> list[InputPartition]:
        """Small files together, large bundles in parts."""
        return [
            Share(piece)
            for piece in pieces(
                self._path,
                known=known_files(self._known),
                piece_bytes=self._piece_bytes,
                suffixes=self._suffixes,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one piece."""
        if not isinstance(partition, Share):
            return iter(())  # Spark asks for one empty partition where there are none.
        schema = ENVELOPES_WITH_PAYLOADS if self._payloads else ENVELOPES
        rows = (
            row
            for content in contents(partition.piece, self._largest)
            for row in rows_of_content(
                content, payloads=self._payloads, validation=self._validation
            )
        )
        return batches_of(rows, arrow(schema), ROWS_PER_BATCH)


def known_files(folders: Iterable[str]) -> frozenset[FileKey]:
    """The files that an earlier result was made from."""
    import pyarrow.dataset as ds

    found: set[FileKey] = set()
    for folder in folders:
        table = ds.dataset(folder, format="parquet", exclude_invalid_files=False)
        for batch in table.to_batches(columns=["file", "file_size", "modified"]):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return frozenset(found)


def _suffixes(text: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return tuple(name if name.startswith(".") else f".{name}" for name in names)
