"""Values on their way to PostgreSQL: whole columns as arrays, in the server's binary form.

One statement writes all the rows of a table, and gets each column as one array. The driver writes
an array element by element, at ten times the cost of what is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

_head = Struct("!iiIii").pack
_length = Struct("!i").pack
_number = Struct("!iq").pack
_NULL = _length(-1)


class Column:
    """The values of one column, in the order of the rows."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values


class Numbers(Column):
    """Whole numbers and flags."""

    __slots__ = ()


class Texts(Column):
    """Texts."""

    __slots__ = ()


class Blobs(Column):
    """Bytes."""

    __slots__ = ()


def _numbers(values: Sequence[int | None]) -> list[bytes]:
    return [_NULL if value is None else _number(8, value) for value in values]


def _texts(values: Sequence[str | None]) -> list[bytes]:
    found: list[bytes] = []
    for value in values:
        if value is None:
            found.append(_NULL)
        else:
            data = value.encode()
            found += (_length(len(data)), data)
    return found


def _blobs(values: Sequence[bytes | None]) -> list[bytes]:
    found: list[bytes] = []
    for value in values:
        if value is None:
            found.append(_NULL)
        else:
            found += (_length(len(value)), value)
    return found


def _dumper(
    array: int, element: int, write: Callable[[Sequence[Any]], list[bytes]]
) -> type[Dumper]:
    """What writes a column; `array`, `element`: the server's numbers of these types."""

    class ColumnDumper(Dumper):
        format = Format.BINARY
        oid = array

        def dump(self, obj: Column) -> bytes:
            values = obj.values
            return b"".join([_head(1, 1, element, len(values), 1), *write(values)])

    return ColumnDumper


KINDS: dict[str, tuple[type[Column], str]] = {
    "INTEGER": (Numbers, "bigint[]"),
    "TEXT": (Texts, "text[]"),
    "BLOB": (Blobs, "bytea[]"),
}
"""Of each kind of column how its values are given, and the server's name of that."""

_DUMPERS = {
    Numbers: _dumper(1016, 20, _numbers),
    Texts: _dumper(1009, 25, _texts),
    Blobs: _dumper(1001, 17, _blobs),
}


def register(adapters: AdaptersMap) -> None:
    """Have a connection write values like this. Every number is a bigint, flags too: the columns
    are, and a statement that got other types each time would be planned anew each time."""
    for kind, dumper in _DUMPERS.items():
        adapters.register_dumper(kind, dumper)
    for plain in (int, bool):
        adapters.register_dumper(plain, Int8BinaryDumper)
