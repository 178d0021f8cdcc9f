"""The writer: writes journal rows of any node, each on the clock and in the boot of that node."""

from __future__ import annotations

from typing import Any, NamedTuple

from oncewire.message.instant import Instant
from oncewire.pipeline.sample_year.stream import Handler
from oncewire.protocol.kinds import Kind


class Place(NamedTuple):
    """A message's channel, epoch and number on one node."""

    channel: str | None
    epoch: int | None = None
    number: int | None = None


NOWHERE = Place(None)

Draft = tuple[Any, ...]
"""(true instant, unit, ordinal, at, mono, boot, node, kind, ..., detail): a row without its seq,
and what orders it among the rows of its node."""

KEYS = 3
"""How many values of a draft only say its order."""


class RowWriter:
    """Collects what one stream leaves in the journals of its nodes."""

    __slots__ = ("_end", "_unit", "rows")

    def __init__(self, unit: int, end: Instant) -> None:
        self._unit, self._end = unit, end
        self.rows: list[Draft] = []

    def write(
        self,
        handler: Handler,
        when: Instant,
        kind: Kind,
        message_id: str | None = None,
        *,
        ref_to: str | None = None,
        terms_id: str | None = None,
        place: Place = NOWHERE,
        attempt: int | None = None,
        hop: int | None = None,
        peer: str | None = None,
        transport: str | None = None,
        digest: str | None = None,
        size: int | None = None,
        detail: str | None = None,
    ) -> None:
        """One row; the books are closed at the end of the year, whatever is under way."""
        if when > self._end:
            return
        boot = handler.boot_at(when)
        self.rows.append(
            (
                when,
                self._unit,
                len(self.rows),
                when + handler.skew,
                when - handler.boots[boot],
                f"{handler.name}-{boot + 1}",
                handler.name,
                kind.value,
                message_id,
                ref_to,
                terms_id,
                *place,
                attempt,
                hop,
                peer,
                transport,
                digest,
                size,
                detail,
            )
        )
