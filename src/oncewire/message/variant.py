"""Variant: a frozen value with some of its fields changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from oncewire.message.quick import opened

T = TypeVar("T")


def variant(value: T, **changes: object) -> T:
    """What `dataclasses.replace` gives, and as strict, in a fraction of its time where the value is
    a quick one: for those that every message changes several of."""
    made = opened(value)
    if made is None:
        return replace(value, **changes)  # type: ignore[type-var]
    for name, change in changes.items():
        setattr(made, name, change)
    made.__class__ = type(value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    closed: T = made
    return closed
