"""Pulse: what the last minutes of the journal say, second by second, for plots and counts.

The journal is read onwards from where it was read last, so that a page costs what is new. Whoever
comes after a long time gets the newest rows only: their number is bounded, and so is what is
remembered of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from oncewire.journal import trace
from oncewire.journal.row import Row
from oncewire.message.instant import SECOND, Instant
from oncewire.protocol import notes

SECONDS = 300
"""Seconds that are kept."""

ROWS_MAX = 5_000
"""Rows that are read at once; what is older is skipped."""

REMEMBERED = 20_000
"""Messages whose submission is remembered until they are acknowledged."""

Journal = Callable[[int, int], Awaitable[list[Row]]]


class Beat(Struct):
    """What happened in one second."""

    second: int
    # Messages by their first attempt, and all attempts.
    sent: int = 0
    attempts: int = 0
    # By the receiver; what a hub or a reliable transport acknowledged is taken over.
    acknowledged: int = 0
    taken_over: int = 0
    received: int = 0
    confirmed: int = 0
    duplicates: int = 0
    failed: int = 0


_COUNTED = {
    trace.RECEIVED: "received",
    trace.CONFIRMED: "confirmed",
    trace.DUPLICATE: "duplicates",
    trace.SEND_FAILED: "failed",
}


class Pulse:
    """The last minutes of one party."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position = 0
        self._beats: deque[Beat] = deque()
        # (second, microseconds from submission to acknowledgement), newest last.
        self._waits: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._begun: OrderedDict[str, Instant] = OrderedDict()
        self._reading = asyncio.Lock()

    async def read(self, newest: int) -> None:
        """Read on to the newest row of the journal."""
        async with self._reading:
            after = max(self._position, newest - ROWS_MAX)
            if newest > after:
                for row in await self._journal(after, ROWS_MAX):
                    self._take(row)
                    self._position = row.seq

    def _take(self, row: Row) -> None:
        second = row.at // SECOND
        if not self._beats or self._beats[-1].second < second:
            self._beats.append(Beat(second))
            while self._beats[0].second < second - SECONDS:
                self._beats.popleft()
        beat = self._beats[-1]
        name = _COUNTED.get(row.kind)
        if name is not None:
            setattr(beat, name, getattr(beat, name) + 1)
        elif row.kind == trace.ACKNOWLEDGED:
            final = notes.Acknowledged.read(row.detail).final
            beat.acknowledged += final
            beat.taken_over += not final
        elif row.kind == trace.SENT:
            beat.attempts += 1
            beat.sent += (row.attempt or 1) == 1
        if row.message_id is None:
            return
        if row.kind == trace.SUBMITTED:
            self._begun[row.message_id] = row.at
            if len(self._begun) > REMEMBERED:
                self._begun.popitem(last=False)
        elif row.kind == trace.ACKNOWLEDGED:
            begun = self._begun.pop(row.message_id, None)
            if begun is not None:
                self._waits.append((second, row.at - begun))

    def totals(self, now: Instant) -> dict[str, Any]:
        """Counts of the last minutes, and how long acknowledgements took."""
        first = now // SECOND - SECONDS
        beats = [beat for beat in self._beats if beat.second >= first]
        found: dict[str, Any] = {
            name: sum(getattr(beat, name) for beat in beats)
            for name in Beat.__struct_fields__
            if name != "second"
        }
        waits = sorted(wait for second, wait in self._waits if second >= first)
        for share in (50, 95, 99):
            found[f"p{share}"] = waits[(len(waits) - 1) * share // 100] if waits else None
        return found

    def lines(self, now: Instant) -> dict[str, list[float | None]]:
        """The plots: one value for each second."""
        last = now // SECOND
        seconds = range(last - SECONDS + 1, last + 1)
        beats = {beat.second: beat for beat in self._beats}
        slowest: dict[int, int] = {}
        for second, wait in self._waits:
            slowest[second] = max(wait, slowest.get(second, 0))
        empty = Beat(0)
        found: dict[str, list[float | None]] = {"seconds": list(map(float, seconds))}
        for name in ("sent", "acknowledged", "received", "duplicates", "failed"):
            found[name] = [float(getattr(beats.get(each, empty), name)) for each in seconds]
        found["slowest_ms"] = [
            slowest[each] / 1000 if each in slowest else None for each in seconds
        ]
        return found
