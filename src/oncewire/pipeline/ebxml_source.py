"""`format("ebxml")`: archives of raw messages, of any handler and any dialect, as a table.

    spark.read.format("ebxml").load("archive/")

reads `.mime .msg .eml .http .xml` files, folders of them, and tar and zip bundles. Each message
is a row with its header's facts and digests; a file that cannot be read is a row with its error
(`readable` false; `code`, `location`, `problem`), never a failed job.

Options: `payloads` (true adds the payload bytes), `validation` (report, off), `extensions` (names
with commas), `bytesPerPartition`, `maxBytes` (of one message), `known` (folders of an earlier
result, as a JSON list: files that are in it unchanged are passed over). Files are named by their
whole path, however it was spelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncewire.errors import InvalidValue, JournalProblem
from oncewire.message.form import Validation
from oncewire.pipeline.archive import (
    BYTES_PER_PIECE,
    MESSAGE_SUFFIXES,
    TOO_LARGE,
    FileKey,
    Piece,
    contents,
    pieces,
)
from oncewire.pipeline.envelopes import rows_of_content
from oncewire.pipeline.files import OF_AN_ARCHIVE, local_path
from oncewire.pipeline.rows import batches_of
from oncewire.pipeline.schemas import ENVELOPES, ENVELOPES_WITH_PAYLOADS, arrow

if TYPE_CHECKING:
    import pyarrow as pa

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
            validation = Validation(self.options.get("validation", Validation.REPORT.value))
        except ValueError:
            raise InvalidValue(
                f"validation is {self.options['validation']!r}", remedy="give report or off"
            ) from None
        return EbxmlReader(
            str(_there(path)),
            payloads=self._flag("payloads"),
            validation=validation,
            suffixes=_suffixes(extensions) if extensions else MESSAGE_SUFFIXES,
            piece_bytes=self._number("bytesPerPartition", BYTES_PER_PIECE),
            largest=self._number("maxBytes", TOO_LARGE),
            known=json.loads(self.options.get("known", "[]")),
        )

    def _flag(self, option: str) -> bool:
        return self.options.get(option, "false").strip().lower() == "true"

    def _number(self, option: str, default: int) -> int:
        text = self.options.get(option, str(default))
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


def _there(path: str) -> Path:
    """The archive, by its one true path."""
    found = local_path(path, OF_AN_ARCHIVE)
    if not found.exists():
        raise JournalProblem(
            f"there is no archive at {found}",
            remedy="give the path of a folder, of a file, or of a tar or zip bundle",
        )
    return found.resolve()


def _suffixes(text: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return tuple(name if name.startswith(".") else f".{name}" for name in names)
