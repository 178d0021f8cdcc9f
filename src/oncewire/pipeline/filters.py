"""Filters that Spark hands to a source, as SQL and as Arrow expressions.

Only comparisons that mean exactly the same in Spark, SQLite and Arrow are taken; Spark does
the rest itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc

_COMPARED: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
IN_MAX = 500
"""More values than this in one IN are left to Spark: SQLite bounds the parameters of a query."""


def split(filters: Iterable[Filter], columns: set[str]) -> tuple[list[Filter], list[Filter]]:
    """The filters that a source can take, and those that are left to Spark."""
    taken: list[Filter] = []
    left: list[Filter] = []
    for one in filters:
        (taken if _understood(one, columns) else left).append(one)
    return taken, left


def _understood(one: Filter, columns: set[str]) -> bool:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns:
        return False
    if isinstance(one, IsNull | IsNotNull):
        return True
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    if len(values) > IN_MAX or not all(type(value) in (int, str) for value in values):
        return False
    return type(one) in _COMPARED or isinstance(one, In)


def where(filters: Sequence[Filter]) -> tuple[str, tuple[Any, ...]]:
    """` AND ...` for a SQL statement that has a condition already, and its parameters."""
    parts: list[str] = []
    values: list[Any] = []
    for one in filters:
        column: str = one.attribute[0]  # type: ignore[attr-defined]
        if isinstance(one, IsNull):
            parts.append(f"{column} IS NULL")
        elif isinstance(one, IsNotNull):
            parts.append(f"{column} IS NOT NULL")
        elif isinstance(one, In):
            parts.append(f"{column} IN ({', '.join('?' * len(one.value))})")
            values.extend(one.value)
        else:
            parts.append(f"{column} {_COMPARED[type(one)]} ?")
            values.append(one.value)  # type: ignore[attr-defined]
    return "".join(f" AND {part}" for part in parts), tuple(values)


def expression(filters: Sequence[Filter]) -> pc.Expression | None:
    """The same as one Arrow expression; None when there is no filter."""
    import pyarrow.compute as pc

    whole: pc.Expression | None = None
    for one in filters:
        column = pc.field(one.attribute[0])  # type: ignore[attr-defined]
        if isinstance(one, IsNull):
            part = column.is_null()
        elif isinstance(one, IsNotNull):
            part = column.is_valid()
        elif isinstance(one, In):
            part = column.isin(list(one.value))
        else:
            part = _compare(column, type(one), one.value)  # type: ignore[attr-defined]
        whole = part if whole is None else whole & part
    return whole


def _compare(column: pc.Expression, kind: type[Filter], value: int | str) -> pc.Expression:
    if kind is EqualTo:
        return column == value
    if kind is GreaterThan:
        return column > value
    if kind is GreaterThanOrEqual:
        return column >= value
    return column < value if kind is LessThan else column <= value


def seq_bounds(filters: Sequence[Filter]) -> tuple[int | None, int | None]:
    """What filters on `seq` say of the range `(start, end]`."""
    start: int | None = None
    end: int | None = None
    for one in filters:
        if getattr(one, "attribute", ()) != ("seq",):
            continue
        if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
            low = one.value if isinstance(one, GreaterThan) else one.value - 1
            start = low if start is None else max(start, low)
        if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
            high = one.value - 1 if isinstance(one, LessThan) else one.value
            end = high if end is None else min(end, high)
    return start, end
