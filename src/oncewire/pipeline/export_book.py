"""A journal as a folder of Parquet files: what a cluster reads, and what a lake keeps.

Beside the files stands `_node.json`, which says whose journal it is and of which version. Files
appear whole (renamed into place) and are never changed, so their footers tell which rows they
hold without reading them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import JournalProblem
from oncewire.journal.schema import SCHEMA, check_version
from oncewire.pipeline.book import BATCH_ROWS, NODE_FILE, Mark
from oncewire.pipeline.filters import expression
from oncewire.pipeline.schemas import JOURNAL, arrow, nullable, only

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.datasource import Filter

    from oncewire.pipeline.version import Version


@dataclass(frozen=True, slots=True)
class _Piece:
    """One row group of one file, and the range of `seq` it holds."""

    file: str
    group: int
    rows: int
    first: int
    last: int


class ExportBook:
    """One node's journal in Parquet; see `Book`, whose docstrings hold here."""

    local_only = False

    def __init__(
        self,
        path: str,
        node: str,
        folders: Sequence[Path],
        read_at: int | None = None,
        heads: Mapping[int, str] | None = None,
    ) -> None:
        self.path, self.node = path, node
        self._read_at = read_at
        self._heads = dict(heads or {})
        self._folders = list(folders)
        self._pieces = sorted(
            (
                piece
                for folder in self._folders
                for file in sorted(folder.rglob("*.parquet"))
                if not _hidden(file, folder)
                for piece in _pieces(file)
            ),
            key=lambda piece: (piece.first, piece.last, piece.file, piece.group),
        )

    @classmethod
    def of_folder(cls, folder: Path) -> ExportBook:
        """The export in a folder; its `_node.json` is asked first."""
        said = _said(folder / NODE_FILE)
        check_version(said.get("journal_version"))
        return cls(str(folder), str(said.get("node")), [folder])

    def read_at(self, now: int) -> int:
        return now if self._read_at is None else self._read_at

    def bounds(self) -> tuple[int, int]:
        if not self._pieces:
            return 0, 0
        return self._pieces[0].first, max(piece.last for piece in self._pieces)

    def next_seq(self, start: int) -> int | None:
        for piece in self._overlapping(start, self.bounds()[1]):
            if piece.first > start:
                return piece.first
            found = self._column(piece, "seq", start, piece.last)
            if found:
                return int(min(found))
        return None

    def mark(self, seq: int) -> Mark | None:
        for batch in self.batches(seq - 1, seq, ["seq", "at", "boot"], []):
            for row in batch.to_pylist():
                return Mark(row["seq"], row["at"], row["boot"])
        return None

    def head(self, seq: int) -> str | None:
        return self._heads.get(seq)

    def chained_from(self) -> int:
        return min(self._heads, default=-1) + 1

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        """Cut where row groups end, so that no group is read by two tasks."""
        found: list[tuple[int, int]] = []
        begun, held = start, 0
        for piece in self._overlapping(start, end):
            last = min(piece.last, end)
            held += piece.rows
            if held >= rows and last > begun:
                found.append((begun, last))
                begun, held = last, 0
        if begun < end:
            found.append((begun, end))
        return found

    def count(self, start: int, end: int) -> int:
        whole = 0
        for piece in self._overlapping(start, end):
            if start < piece.first and piece.last <= end:
                whole += piece.rows
            else:
                whole += len(self._column(piece, "seq", start, end))
        return whole

    def batches(
        self, start: int, end: int, columns: Sequence[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        condition = (pc.field("seq") > start) & (pc.field("seq") <= end)
        wanted = expression(filters)
        if wanted is not None:
            condition &= wanted
        groups: dict[str, list[int]] = {}
        for piece in self._overlapping(start, end):
            groups.setdefault(piece.file, []).append(piece.group)
        for file, some in groups.items():
            yield from self._read(file, some, columns, condition)

    def _read(
        self, file: str, groups: list[int], columns: Sequence[str], condition: pc.Expression
    ) -> Iterator[pa.RecordBatch]:
        """Some row groups of a file, which is opened once for all of them."""
        import pyarrow.dataset as ds

        schema = arrow(nullable(only(JOURNAL, list(columns))))
        fragment = next(iter(ds.dataset(file, format="parquet").get_fragments()))
        table = fragment.subset(row_group_ids=groups).to_table(
            columns=list(schema.names), filter=condition
        )
        yield from table.cast(schema).to_batches(max_chunksize=BATCH_ROWS)

    def _overlapping(self, start: int, end: int) -> list[_Piece]:
        return [piece for piece in self._pieces if piece.last > start and piece.first <= end]

    def _column(self, piece: _Piece, name: str, start: int, end: int) -> list[Any]:
        import pyarrow.compute as pc

        condition = (pc.field("seq") > start) & (pc.field("seq") <= end)
        return [
            value
            for batch in self._read(piece.file, [piece.group], [name], condition)
            for value in batch.column(0).to_pylist()
        ]


def lake_books(lake: Path) -> Iterator[ExportBook]:
    """One book for each node of a published lake, of published directories only."""
    from oncewire.pipeline.lake import Lake

    version = Lake(lake).current()
    for node in sorted({entry.key for entry in version.journal}):
        folders = [lake / entry.path for entry in version.journal if entry.key == node]
        # Another lake's reader read it then; to read the lake is not to read the journal.
        state = version.nodes[node]
        yield ExportBook(str(lake), node, folders, state.read_at, _heads(version, node))


def _heads(version: Version, node: str) -> dict[int, str]:
    """The heads that a node kept itself, from where it began to."""
    state, heads = version.nodes[node], dict[int, str]()
    if not state.chain:
        return heads
    entries = [entry for entry in version.journal if entry.key == node]
    for entry in sorted(entries, key=lambda entry: entry.first):
        if not entry.since:
            heads.clear()
        heads[entry.first - 1] = entry.since
    return {**heads, state.seq: state.chain}


def _said(file: Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JournalProblem(
            f"{file} cannot be read: {error}", remedy="export the journal again"
        ) from None
    if not isinstance(said, dict) or not isinstance(said.get("node"), str):
        raise JournalProblem(
            f"{file} does not say whose journal it is",
            remedy='write {"node": ..., "journal_version": ...} there',
        )
    return said


def _hidden(file: Path, folder: Path) -> bool:
    """Names that begin with a dot or an underscore are work in progress, as Spark reads them."""
    return any(part[0] in "._" for part in file.relative_to(folder).parts)


def _pieces(file: Path) -> Iterator[_Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise JournalProblem(
            f"{file} cannot be read: {error}",
            remedy="a file must be renamed into place when it is whole; export it again",
        ) from None
    schema = metadata.schema.to_arrow_schema()
    _check_columns(file, schema)
    position = schema.get_field_index("seq")
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group)
        statistics = found.column(position).statistics
        if found.num_rows == 0:
            continue
        if statistics is None or not statistics.has_min_max:
            raise JournalProblem(
                f"{file} has no statistics of seq",
                remedy="write Parquet with statistics, as every common writer does",
            )
        if statistics.null_count:
            raise JournalProblem(
                f"{file} has {statistics.null_count} rows without seq",
                remedy="export the journal again; a row without its position cannot be placed",
            )
        yield _Piece(str(file), group, found.num_rows, statistics.min, statistics.max)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    import pyarrow as pa

    present = dict(zip(schema.names, schema.types, strict=True))
    missing = [column.name for column in SCHEMA if column.name not in present]
    if missing:
        raise JournalProblem(
            f"{file} lacks the journal's {', '.join(missing)}",
            remedy="export the journal again, with all its columns",
        )
    for column in SCHEMA:
        found = present[column.name]
        fits = pa.types.is_int64(found) if column.type is int else _is_text(found)
        if not fits and not pa.types.is_null(found):
            raise JournalProblem(
                f"column {column.name} of {file} is {found}, not {column.type.__name__}",
                remedy="export the journal again; instants are integer microseconds",
            )


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    value = found.value_type if pa.types.is_dictionary(found) else found
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))
