"""Places: where something is kept that was learned of documents, by their markup."""

from __future__ import annotations

from typing import Generic, TypeVar

from oncewire.wire.security.pattern import Perforated

OWNERS_MAX = 1024
OWNER_MAX = 16
"""Kinds of envelopes of one partner, each of some kilobytes."""

T = TypeVar("T")


class Places(Generic[T]):
    """What was learned of documents by their markup, a few for each owner. Who never sends alike
    costs little: only the first, the second, the fourth document and so on is learned of."""

    def __init__(self, owners: int = OWNERS_MAX, of_one: int = OWNER_MAX) -> None:
        self._owners, self._of_one = owners, of_one
        self._found: dict[str, dict[tuple[bytes, int, int], T]] = {}
        self._offered: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def find(self, owner: str, document: Perforated) -> T | None:
        """What is known of documents with that markup."""
        places = self._found.get(owner)
        return None if places is None else places.get(_key(document))

    def is_due(self, owner: str) -> bool:
        """Whether it is time to learn of another one."""
        offered = self._offered[owner] = self._offered.get(owner, 0) + 1
        return offered & (offered - 1) == 0

    def keep(self, owner: str, document: Perforated, learned: T) -> None:
        """Learn it; the oldest go where there is no room."""
        if owner not in self._found and len(self._found) >= self._owners:
            self._found.pop(next(iter(self._found)))
        places = self._found.setdefault(owner, {})
        if len(places) >= self._of_one:
            places.pop(next(iter(places)))
        places[_key(document)] = learned


def _key(document: Perforated) -> tuple[bytes, int, int]:
    return document.markup, document.texts, len(document.holes)
