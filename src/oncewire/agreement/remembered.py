"""Remembered: what was worked out under an agreement, for the next message that is like the last.

An agreement and its bindings never change, and the headers of one partner differ in ids and moments
alone. So what a header means under them is worked out once for all headers that ask the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

O = TypeVar("O")  # noqa: E741
V = TypeVar("V")

OBJECTS_MAX = 4_096
"""Agreements, or bindings, of which something is remembered."""

KEYS_MAX = 64
"""What is remembered of one: headers may say what they like, and nobody's may fill the memory."""


class Remembered(Generic[O, V]):
    """Values by an object and a key. The object is known by being the same one: what it says would
    take longer to compare than the value to work out."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # Each object stays with its values: an id is only good for what is alive.
        self._known: dict[int, tuple[O, dict[Hashable, V]]] = {}

    def get(self, of: O, key: Hashable) -> V | None:
        """What is remembered; None: nothing."""
        known = self._known.get(id(of))
        return None if known is None else known[1].get(key)

    def keep(self, of: O, key: Hashable, value: V) -> V:
        """Remember a value, which is handed back."""
        known = self._known.get(id(of))
        if known is None:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            known = self._known[id(of)] = (of, {})
        # Handlers in other threads remember here too, and may have cleared it meanwhile.
        values = known[1]
        if len(values) >= KEYS_MAX:
            values.clear()
        values[key] = value
        return value
