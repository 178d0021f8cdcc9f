"""Checking on SQLite: whether a row can be kept, before a whole turn depends on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from oncewire.errors import StoreProblem
from oncewire.journal.row import COLUMNS
from oncewire.store.sqlite.numbers import Numbers
from oncewire.store.sqlite.rows import (
    FACTS,
    INCOMING_STATE,
    OUTGOING_STATE,
    Values,
    facts_values,
    incoming_state,
    outgoing_state,
)
from oncewire.store.sqlite.statements import Statements
from oncewire.store.transition.rows import IncomingRow, OutgoingRow

_LARGEST = 2**63 - 1
_MESSAGE = COLUMNS.index("message_id")
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,)}
Kinds = list[tuple[str, str, bool]]
Pick = Callable[[Values], Values]
"""Takes some of a row's values out of it."""


class Checking(Statements):
    """See `transition.backend.Backend.check`."""

    _numbers: Numbers

    def _learn_columns(self) -> None:
        """Ask which values each column takes."""
        columns = self.columns
        outgoing = columns("outgoing")
        self._outgoing_kinds = _kinds(outgoing, OUTGOING_STATE)
        self._facts_kinds = _kinds(outgoing, FACTS)
        self._incoming_kinds = _kinds(columns("incoming"), INCOMING_STATE)
        journal = columns("journal_row")
        journal["message_id"] = ("TEXT", False)
        self._journal_kinds = _kinds(journal, COLUMNS)
        # Types of rows that were found good, and how texts and numbers are taken out of such a
        # row; there are few different ones.
        self._good: dict[tuple[type, ...], tuple[Pick, Pick]] = {}

    def check(
        self,
        added: Sequence[OutgoingRow | IncomingRow],
        saved: Sequence[OutgoingRow | IncomingRow],
        journal: Sequence[Values],
    ) -> None:
        texts: list[str] = []
        numbers: list[int] = []
        for row in added:
            self._sort_state(row, texts, numbers)
            self._sort(self._facts_kinds, facts_values(row.stored.facts), texts, numbers)
        for row in saved:
            self._sort_state(row, texts, numbers)
        for written in journal:
            self._sort(self._journal_kinds, written, texts, numbers)
        if texts or numbers:
            _check_sizes(texts, numbers)
            # Whom a row names must be found before the commit, too: only this transition fails.
            named = {values[_MESSAGE] for values in journal}
            named.discard(None)
            self._numbers.find(named)

    def _sort_state(
        self, row: OutgoingRow | IncomingRow, texts: list[str], numbers: list[int]
    ) -> None:
        if isinstance(row, OutgoingRow):
            outgoing = row.stored.outgoing
            self._sort(self._outgoing_kinds, outgoing_state(outgoing), texts, numbers)
            texts += (outgoing.message_id, row.stored.peer)
        else:
            incoming = row.stored.incoming
            self._sort(self._incoming_kinds, incoming_state(incoming), texts, numbers)
            texts += (incoming.message_id, incoming.sender, row.stored.peer)

    def _sort(self, kinds: Kinds, values: Values, texts: list[str], numbers: list[int]) -> None:
        """Add the texts and the numbers among values, if each is of a type that its column
        takes."""
        signature = tuple(map(type, values))
        known = self._good.get(signature)
        if known is None:
            _check_types(kinds, values)
            known = self._good[signature] = (
                _pick([place for place, kind in enumerate(signature) if issubclass(kind, str)]),
                _pick([place for place, kind in enumerate(signature) if kind is int]),
            )
        texts += known[0](values)
        numbers += known[1](values)


def _pick(places: list[int]) -> Pick:
    # One alone would not be given as a row.
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple([row[place] for place in places])


def _check_sizes(texts: Sequence[str], numbers: Sequence[int]) -> None:
    if numbers and (max(numbers) > _LARGEST or min(numbers) < -_LARGEST):
        raise _cannot("a number is too large")
    text = "".join(texts)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeError as error:
            raise _cannot(str(error)) from error


def _check_types(kinds: Kinds, values: Values) -> None:
    for (name, kind, needed), value in zip(kinds, values, strict=True):
        good = not needed if value is None else isinstance(value, _TYPES[kind])
        if not good:
            raise _cannot(f"{name} is {value!r}"[:100])


def _kinds(columns: dict[str, tuple[str, bool]], names: Sequence[str]) -> Kinds:
    return [(name, *columns[name]) for name in names]


def _cannot(why: str) -> StoreProblem:
    return StoreProblem(
        f"a value cannot be kept: {why}", remedy="this is a fault of Oncewire: report it"
    )
