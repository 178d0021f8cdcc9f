"""Standstills: when a node rightly sends nothing to a receiver, or on a channel.

One message causes them and all others of its receiver or its channel wait: a receiver that asks
for a pause is left alone (RTY-8), and a channel that is suspended stands until somebody decides.
So the rows of a message alone do not say when its next attempt was due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    EPOCH_ENDED,
    RESOLVED,
    RESUMED,
    SUSPENDED,
    TRANSIENT,
)
from oncewire.message.instant import Duration, Instant
from oncewire.protocol import notes

_LIFTS = (RESUMED, ABANDONED, EPOCH_ENDED, RESOLVED)


@dataclass(frozen=True, slots=True)
class _Standstill:
    begin: Instant
    # None: it lasts.
    end: Instant | None

    def ended(self, at: Instant) -> _Standstill:
        return self if self.end is not None and self.end <= at else replace(self, end=at)


class Standstills:
    """Those of all nodes, by the true time that `at` tells of a row."""

    def __init__(self, rows: Iterable[Row], at: Callable[[Row], Instant]) -> None:
        self._of: dict[tuple[str, str, str], list[_Standstill]] = defaultdict(list)
        for row in sorted(rows, key=lambda standstill: (standstill.node, standstill.seq)):
            if row.kind == TRANSIENT and row.peer is not None:
                # Both instants are of the node's own clock, so what lies between them is true.
                lasts = notes.Transient.read(row.detail).until - row.at
                self._begin(row.node, "peer", row.peer, at(row), at(row) + max(0, lasts))
            elif row.kind == SUSPENDED and row.channel is not None:
                self._begin(row.node, "channel", row.channel, at(row), None)
            elif row.kind in _LIFTS and row.channel is not None:
                self._lift(row.node, "channel", row.channel, at(row))
            elif row.kind == RESUMED and row.message_id is None and row.peer is not None:
                self._lift(row.node, "peer", row.peer, at(row))

    def _begin(self, node: str, of: str, name: str, at: Instant, end: Instant | None) -> None:
        self._of[node, of, name].append(_Standstill(at, end))

    def _lift(self, node: str, of: str, name: str, at: Instant) -> None:
        found = self._of[node, of, name]
        found[:] = [standstill.ended(at) for standstill in found]

    def due(self, row: Row, due: Instant, slack: Duration) -> Instant | None:
        """When a timer that runs out at `due` is heeded for a message of this row's receiver
        and channel; None: not before somebody decides.

        What is due is done a moment later (`slack`), and the next standstill may come first: of
        all that wait for the end of one, the first whose retries are used up stops the others.
        """
        keys = ((row.node, "peer", row.peer or ""), (row.node, "channel", row.channel or ""))
        found = [standstill for key in keys for standstill in self._of.get(key, ())]
        for standstill in sorted(found, key=lambda standstill: standstill.begin):
            if standstill.begin > due + slack:
                break
            if standstill.end is None:
                return None
            due = max(due, standstill.end)
        return due
