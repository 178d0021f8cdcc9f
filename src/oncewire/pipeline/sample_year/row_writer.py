"""The writer: notes become journal rows of any node, on the clock and in the boot of that node.

What a handler does wrong on purpose is done here where it only has to be told: rows that a twisted
message leaves out, repeats, tells too early or tells otherwise.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.pipeline.sample_year.stream import Handler
from oncewire.pipeline.sample_year.twists import Twist
from oncewire.protocol.detail import Detail, write_terms
from oncewire.protocol.effects import Note
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import Terms

Draft = tuple[Any, ...]
"""(true instant, unit, ordinal, at, mono, boot, node, kind, ..., detail): a row without its seq,
and what orders it among the rows of its node."""

KEYS = 3
"""How many values of a draft only say its order."""

_COLUMNS = Row._fields[Row._fields.index("kind") + 1 :]


@lru_cache(maxsize=4_096)
def _text(what: Detail) -> str | None:
    """Most notes say what others said."""
    return what.write()


class RowWriter:
    """Collects what one stream leaves in the journals of its nodes."""

    __slots__ = ("_end", "_unit", "rows", "twists")

    def __init__(self, unit: int, end: Instant) -> None:
        self._unit, self._end = unit, end
        self.rows: list[Draft] = []
        self.twists: dict[str | None, Twist] = {}
        """What is told otherwise, by the message's id."""

    def note(
        self,
        handler: Handler,
        when: Instant,
        note: Note,
        *,
        terms_id: str | None = None,
        hop: int | None = None,
        peer: str | None = None,
        digest: str | None = None,
        size: int | None = None,
        detail: str | None = None,
    ) -> None:
        """The row of a note; the keywords fill columns that the protocol does not know, and
        `detail` is what the note tells, where that was written before."""
        message_id, what = note.message_id, note.what
        told = (
            message_id,
            note.ref_to,
            terms_id,
            note.channel,
            note.epoch,
            note.number,
            note.attempt,
            hop,
            peer,
            note.transport,
            digest,
            size,
            detail or _text(what),
        )
        twist = self.twists.get(message_id) if self.twists else None
        if twist is None:
            self._keep(handler, when, what.KIND, told)
            return
        columns = dict(zip(_COLUMNS, told, strict=True))
        for moment, said in twist.rows(when, what.KIND, columns):
            self._keep(handler, moment, what.KIND, tuple(said.values()))

    def terms(self, handler: Handler, when: Instant, terms: Terms) -> None:
        """The row that tells once what other rows mean by the id of these terms."""
        said = {"terms_id": terms.terms_id, "detail": write_terms(terms)}
        self._keep(handler, when, Kind.TERMS, tuple(map(said.get, _COLUMNS)))

    def _keep(self, handler: Handler, when: Instant, kind: Kind, told: tuple[Any, ...]) -> None:
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
                handler.boot_names[boot],
                handler.name,
                kind.value,
                *told,
            )
        )
