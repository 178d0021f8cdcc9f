"""Keys in order, for rows that are found by something else than their own key."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

from oncewire.message.instant import Instant


class Sorted:
    """Keys in order. Inserting near the end and reading from the front are the usual steps."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def add(self, key: Any) -> None:
        """Insert where it belongs."""
        keys = self.keys
        if not keys or key > keys[-1]:
            keys.append(key)
        else:
            insort(keys, key)

    def remove(self, key: Any) -> None:
        """Remove a key that is there."""
        del self.keys[bisect_left(self.keys, key)]

    def up_to(self, bound: Instant, limit: int | None = None) -> list[Any]:
        """Keys (tuples that begin with an instant) at most `bound`, at most `limit` of them."""
        end = bisect_left(self.keys, (bound + 1,))
        return self.keys[: end if limit is None else min(end, limit)]

    def beyond(self, bound: Instant) -> list[Any]:
        """Keys (tuples that begin with an instant) later than `bound`."""
        return self.keys[bisect_left(self.keys, (bound + 1,)) :]

    def after(self, number: int, limit: int) -> list[Any]:
        """Keys (tuples that begin with a number) beyond that number, at most `limit` of them."""
        start = bisect_left(self.keys, (number + 1,))
        return self.keys[start : start + limit]

    @property
    def first(self) -> Any:
        """The smallest key, or None."""
        return self.keys[0] if self.keys else None


class Groups:
    """Sorted keys per group, without empty groups; what is added begins with the group."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[Any, Sorted] = {}

    def add(self, key: Any) -> None:
        """Insert into the group that the key begins with."""
        members = self._groups.get(key[0])
        if members is None:
            members = self._groups[key[0]] = Sorted()
        members.add(key)

    def remove(self, key: Any) -> None:
        """Remove from the group that the key begins with."""
        members = self._groups[key[0]]
        members.remove(key)
        if not members.keys:
            del self._groups[key[0]]

    def of(self, group: Any) -> list[Any]:
        """The group's keys in order; do not change the list."""
        members = self._groups.get(group)
        return members.keys if members is not None else []
