"""`replace` for values of either kind: Structs and dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

V = TypeVar("V")


def replace(value: V, **changes: Any) -> V:
    """A copy of the value with other fields."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]
