"""The columns as data, from which every backend derives its own schema, and rows from plain values.

The types are Python's `int` (64 bits, signed) and `str`; instants and durations are `int`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION, Row

INT64_MAX = 2**63 - 1


class Column(NamedTuple):
    """One column: its name, `int` or `str`, and whether it may be empty."""

    name: str
    type: type[int] | type[str]
    nullable: bool


_INTEGERS = {"seq", "at", "mono", "epoch", "sequence_number", "attempt", "hop", "size"}
_ALWAYS = {"seq", "at", "mono", "boot", "node", "kind"}

SCHEMA: tuple[Column, ...] = tuple(
    Column(name, int if name in _INTEGERS else str, name not in _ALWAYS) for name in COLUMNS
)
"""Every column in the order that all backends store and all readers see."""


def check_version(version: int | str | None) -> None:
    """Refuse a journal that another version wrote; `version` is what stands beside the rows."""
    if str(version) != str(JOURNAL_VERSION):
        raise JournalProblem(
            f"the journal has version {version}, this is a reader of version {JOURNAL_VERSION}",
            remedy="read it with the version of Oncewire that wrote it, or export it again",
        )


def rows_from_columns(columns: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    """Rows of a batch that is held by column, as Arrow does; a column left out is empty.

    Nothing is checked: this is the way of millions of rows whose schema was checked once.
    """
    missing = sorted(_ALWAYS - set(columns))
    if missing:
        raise JournalProblem(
            f"a batch of journal rows lacks {', '.join(missing)}",
            remedy="select every column that a journal row always has",
        )
    given = [columns.get(name, repeat(None)) for name in COLUMNS]
    return map(Row._make, zip(*given, strict=False))
