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
    for condition in filters:
        (taken if _understood(condition, columns) else left).append(condition)
    return taken, left


def _understood(condition: Filter, columns: set[str]) -> bool:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns:
        return False
    if isinstance(condition, IsNull | IsNotNull):
        return True
    values = condition.value if isinstance(condition, In) else (getattr(condition, "value", None),)
    if len(values) > IN_MAX or not all(type(value) in (int, str) for value in values):
        return False
    return type(condition) in _COMPARED or isinstance(condition, In)


def where(filters: Sequence[Filter]) -> tuple[str, tuple[Any, ...]]:
    """` AND ...` for a SQL statement that has a condition already, and its parameters."""
    parts: list[str] = []
    values: list[Any] = []
    for condition in filters:
        column: str = condition.attribute[0]  # type: ignore[attr-defined]
        if isinstance(condition, IsNull):
            parts.append(f"{column} IS NULL")
        elif isinstance(condition, IsNotNull):
            parts.append(f"{column} IS NOT NULL")
        elif isinstance(condition, In):
            parts.append(f"{column} IN ({', '.join('?' * len(condition.value))})")
            values.extend(condition.value)
        else:
            parts.append(f"{column} {_COMPARED[type(condition)]} ?")
            values.append(condition.value)  # type: ignore[attr-defined]
    return "".join(f" AND {part}" for part in parts), tuple(values)


def expression(filters: Sequence[Filter]) -> pc.Expression | None:
    """The same as one Arrow expression; None when there is no filter."""
    import pyarrow.compute as pc

    whole: pc.Expression | None = None
    for condition in filters:
        column = pc.field(condition.attribute[0])  # type: ignore[attr-defined]
        if isinstance(condition, IsNull):
            part = column.is_null()
        elif isinstance(condition, IsNotNull):
            part = column.is_valid()
        elif isinstance(condition, In):
            part = column.isin(list(condition.value))
        else:
            part = _compare(column, type(condition), condition.value)  # type: ignore[attr-defined]
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
    for condition in filters:
        if getattr(condition, "attribute", ()) != ("seq",):
            continue
        if isinstance(condition, GreaterThan | GreaterThanOrEqual | EqualTo):
            low = condition.value if isinstance(condition, GreaterThan) else condition.value - 1
            start = low if start is None else max(start, low)
        if isinstance(condition, LessThan | LessThanOrEqual | EqualTo):
            high = condition.value - 1 if isinstance(condition, LessThan) else condition.value
            end = high if end is None else min(end, high)
    return start, end
