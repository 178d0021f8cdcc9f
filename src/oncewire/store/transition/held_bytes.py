"""Bytes of messages held in memory: those of a turn, and of live messages while they fit."""

from __future__ import annotations

from typing import Any

from oncewire.store.records import StoredParcel
from oncewire.store.transition.rows import (
    AnswerBytes,
    IncomingBytes,
    IncomingKey,
    OutgoingBytes,
)
from oncewire.store.transition.tables import Change, Table

BYTES_MAX = 32 * 1024 * 1024
"""So much is held between turns; beyond it, what was held longest is read back when needed."""

LARGE = 64 * 1024
"""What is larger and only read is not held at all."""


class HeldBytes:
    """Three tables and how much is in them."""

    def __init__(self, log: list[Change]) -> None:
        self.outgoing: Table[str, OutgoingBytes] = Table(log)
        self.incoming: Table[IncomingKey, IncomingBytes] = Table(log)
        self.answers: Table[IncomingKey, AnswerBytes] = Table(log)
        self._sizes: dict[tuple[Table[Any, Any], Any], int] = {}
        self._total = 0

    def learn(self, table: Table[Any, Any], key: Any, content: Any) -> None:
        """It was read; hold it if it is small."""
        size = _size(content)
        if size <= LARGE:
            table.learn(key, content)
            self._note(table, key, size)

    def written(self) -> None:
        """What changed is written down: from now on it may go."""
        tables: tuple[Table[Any, Any], ...] = (self.outgoing, self.incoming, self.answers)
        for table in tables:
            for key in table.before:
                content = table.rows[key]
                self._note(table, key, 0 if content is None else _size(content))
            table.before.clear()

    def forget_outgoing(self, message_id: str) -> None:
        """Nobody waits for that message any more."""
        self._forget(self.outgoing, message_id)

    def forget_incoming(self, key: IncomingKey) -> None:
        """Nobody waits for that message any more."""
        self._forget(self.incoming, key)
        self._forget(self.answers, key)

    def bound(self) -> None:
        """Hold no more than fits."""
        while self._total > BYTES_MAX and self._sizes:
            self._forget(*next(iter(self._sizes)))

    def _note(self, table: Table[Any, Any], key: Any, size: int) -> None:
        self._total += size - self._sizes.pop((table, key), 0)
        self._sizes[table, key] = size

    def _forget(self, table: Table[Any, Any], key: Any) -> None:
        self._total -= self._sizes.pop((table, key), 0)
        table.forget(key)


def _size(content: OutgoingBytes | IncomingBytes | AnswerBytes) -> int:
    size = _inline(content.parcel)
    if isinstance(content, OutgoingBytes):
        return size + len(content.draft or b"")
    return size + len(content.view or b"") if isinstance(content, IncomingBytes) else size


def _inline(parcel: StoredParcel | None) -> int:
    if parcel is None:
        return 0
    return sum([len(part) for part in parcel.body if isinstance(part, bytes)])
