"""Variant: a frozen value with some of its fields changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _shape(kind: Any) -> tuple[attrgetter[Any], dict[str, int]]:
    """How all values of a dataclass are read at once, and the place of each."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names), {name: place for place, name in enumerate(names)}


def variant(value: T, **changes: object) -> T:
    """What `dataclasses.replace` gives, and as strict, in a third of its time: for values that
    every message makes several of. They have two fields or more, none of them by keyword only."""
    kind: Callable[..., T] = type(value)
    read, places = _shape(kind)
    values = list(read(value))
    for name, change in changes.items():
        values[places[name]] = change
    return kind(*values)
