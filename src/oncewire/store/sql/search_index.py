"""The index of what messages are found by: filing them under their terms, and finding.

Filing each message as it comes would write into as many pages as it has terms, and cost the
exchange more than all else that is written of it. So messages are filed when many wait for it:
their terms are sorted and written together. The few that are not filed yet are looked at one by
one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from oncewire.errors import StoreDamaged
from oncewire.message.envelope import TRIAL_SERVICE
from oncewire.message.instant import Instant
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import Proof
from oncewire.store.search import ID_SEARCHED, LOOKED_AT, TAKEN_OVER, Place, Search, Tally, terms_of
from oncewire.store.sql.rows import FROM_INCOMING, FROM_OUTGOING, INCOMING_VALUES, OUTGOING_VALUES
from oncewire.store.sql.session import Dialect, Each, Insert, Session, Values

FILED_AT_ONCE = 1024
"""So many messages wait at most to be filed."""

CANDIDATES = 5_000
"""More messages than these, found by a term or a state, are not gone through: then the newest of
all are."""

PAGE = 1_000
"""So many are gone through at a time."""

SEGMENT_BITS = 15
"""2 ** 15 messages that came one after the other have their terms together."""

_LATEST: Instant = 2**62


class Side(NamedTuple):
    """One of the two tables of messages, in the words of SQL."""

    # Also the kind of numbers that its rows have.
    table: str
    # The column with a row's number, and that of when it came.
    number: str
    at: str
    partner: str
    values: str
    source: str
    # What holds of a part that its document stands for.
    behind: str
    # What holds of a message that was sent, or that came, more than once.
    again: str
    # The state of a message as lists have it.
    state: str

    @property
    def filed(self) -> str:
        """The column that says how far its rows are filed."""
        return f"{self.table}_filed"


SENT = Side(
    "outgoing",
    "position",
    "submitted_at",
    "to_party",
    OUTGOING_VALUES,
    FROM_OUTGOING,
    "split_number IS NOT NULL AND relayed_from IS NULL",
    "attempts > 1",
    f"CASE WHEN state = 'delivered' AND proved_by = '{Proof.HOP.value}' "
    f"THEN '{TAKEN_OVER}' ELSE state END",
)
RECEIVED = Side(
    "incoming",
    "row",
    "received_at",
    "from_party",
    INCOMING_VALUES,
    FROM_INCOMING,
    "split_number IS NOT NULL AND state IN ('confirmed', 'gathered')",
    "EXISTS (SELECT 1 FROM journal_row AS copy WHERE copy.message = incoming.message "  # noqa: S608
    f"AND copy.kind = '{Kind.DUPLICATE.value}')",
    "state",
)
SIDES = (SENT, RECEIVED)

Run = Callable[[str, Values], list[Values]]


# Every statement is put together from constants of this module; values are always bound.


class SearchIndex:
    """The index, as its one writer keeps it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # The last that are filed, by table; None: to be read.
        self._filed: dict[str, int] | None = None

    def forget(self) -> None:
        """What was written may have been undone."""
        self._filed = None

    def follow(self, counters: Mapping[str, int]) -> None:
        """File the next ones, if there are enough of them; `counters`: the last numbers given."""
        filed = self._known()
        for side in SIDES:
            first = filed[side.table]
            if counters[side.table] - first >= FILED_AT_ONCE:
                self._file(side, first, first + FILED_AT_ONCE)

    def file_next(self) -> bool:
        """File the next ones, if there are enough of them; False: there are not."""
        before = dict(self._known())
        tables = [side.table for side in SIDES]
        last = self._session.run(f"SELECT {', '.join(tables)} FROM counter")[0]  # noqa: S608
        self.follow(dict(zip(tables, last, strict=True)))
        return before != self._known()

    def _known(self) -> dict[str, int]:
        if self._filed is None:
            columns = ", ".join(side.filed for side in SIDES)
            values = self._session.run(f"SELECT {columns} FROM counter")[0]  # noqa: S608
            self._filed = {side.table: value for side, value in zip(SIDES, values, strict=True)}
        return self._filed

    def _file(self, side: Side, first: int, last: int) -> None:
        """File those after the first, up to the last. What is damaged is left out: it must
        not fail the commit that files the others."""
        rows: list[Values] = []
        with suppress(StoreDamaged):
            rows = sorted(self._rows(side, "{0} > ? AND {0} <= ?", (first, last)))
        known = f"UPDATE counter SET {side.filed} = ?"  # noqa: S608
        terms = Insert(f"{side.table}_term", ("slot", side.number), rows)
        self._session.write([terms, Each(known, [(last,)])])
        self._known()[side.table] = last

    def remove(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Remove what messages are filed under, before they go; their words go with them."""
        for side, numbers in ((SENT, sent), (RECEIVED, received)):
            if numbers:
                named = f"{{0}} {self._session.dialect.numbers}"
                rows = self._rows(side, named, (json.dumps(list(numbers)),))
                delete = f"DELETE FROM {side.table}_term WHERE slot = ? AND {side.number} = ?"  # noqa: S608
                self._session.write([Each(delete, rows)])

    def _rows(self, side: Side, which: str, values: Values) -> list[Values]:
        """(slot, number) of each term of some messages; `which` says of their number which."""
        key, words = f"{side.table}.{side.number}", f"{side.table}_word"
        texts: dict[int, list[str]] = {}
        select = f"SELECT {side.number}, text FROM {words} WHERE {which.format(side.number)}"  # noqa: S608
        for number, text in self._session.run(select, values):
            texts.setdefault(number, []).append(text)
        select = f"SELECT {key}, message_id, conversation_id {side.source} WHERE "
        return [
            (number >> SEGMENT_BITS << 32 | term, number)
            for number, message_id, talk in self._session.run(select + which.format(key), values)
            for term in terms_of(message_id, talk, texts.get(number, ()))
        ]


class Finding:
    """One question to one side, on a view of what is committed."""

    def __init__(self, run: Run, dialect: Dialect, side: Side, search: Search) -> None:
        self._run, self._dialect, self._side, self._search = run, dialect, side, search
        self._key = f"{side.table}.{side.number}"

    def page(self, limit: int, after: Place | None) -> tuple[list[Values], Place | None]:
        """The rows that are meant, newest first, and where the next page begins."""
        end = after or Place(_LATEST, _LATEST)
        found = self._candidates()
        if found is None:
            rows, looked_at = self._through_all(limit, end)
        else:
            rows, looked_at = self._meant(found, end, limit + 1), None
        if len(rows) > limit:
            rows, looked_at = rows[:limit], Place(*rows[limit - 1][-2:])
        return [row[:-2] for row in rows], looked_at

    def tally(self, most: int) -> Tally:
        """How many are meant, by state; so many are looked at, at most."""
        found, counted = self._candidates(), dict[str, int]()
        end = Place(_LATEST, _LATEST)
        if found is not None:
            self._count(found, counted)
            return Tally(counted)
        for _ in range(0, most, PAGE):
            looked_at = self._newest(end)
            self._count([number for _, number in looked_at], counted)
            if len(looked_at) < PAGE:
                return Tally(counted)
            end = Place(*looked_at[-1])
        return Tally(counted, whole=False)

    def _count(self, numbers: Iterable[int], counted: dict[str, int]) -> None:
        conditions, values = self._conditions()
        statement = (
            f"SELECT {self._side.state} AS listed, count(*) {self._side.source} "
            f"WHERE {self._key} {self._dialect.numbers} {conditions}GROUP BY listed"
        )
        for state, count in self._run(statement, (json.dumps(list(numbers)), *values)):
            counted[state] = counted.get(state, 0) + count

    # --- the few that an index knows ---

    def _candidates(self) -> list[int] | None:
        """Numbers of all that can be meant; None: they are many, or no index knows them."""
        search = self._search
        terms = search.terms()
        if terms:
            found = self._under(terms)
            if found is not None and search.text and not search.is_part:
                # Those whose MessageId begins with the text: the ids themselves are in order.
                side, text = self._side, self._search.text
                rows = self._run(
                    f"SELECT {self._key} FROM message JOIN {side.table} "  # noqa: S608
                    f"ON {side.table}.message = message.id "
                    "WHERE message_id >= ? AND message_id < ? LIMIT ?",
                    (text, text + "\U0010ffff", CANDIDATES + 1),
                )
                found = _both(found, _few(rows))
            return found
        if search.states:
            return self._in_states()
        return None

    def _under(self, terms: frozenset[int]) -> list[int] | None:
        """Those that are filed under one of the terms, and those that are not filed yet."""
        side = self._side
        ((filed, first),) = self._run(
            f"SELECT {side.filed}, (SELECT min({side.number}) FROM {side.table}) FROM counter",  # noqa: S608
            (),
        )
        if first is None:
            return []
        segments = range(first >> SEGMENT_BITS, (filed >> SEGMENT_BITS) + 1)
        slots = [segment << 32 | term for segment in segments for term in sorted(terms)]
        known = f"SELECT {side.number} FROM {side.table}_term"  # noqa: S608
        rows = self._run(
            f"{known} WHERE slot {self._dialect.numbers} LIMIT ?",
            (json.dumps(slots), CANDIDATES + 1),
        )
        rows += self._run(
            f"SELECT {side.number} FROM {side.table} WHERE {side.number} > ? LIMIT ?",  # noqa: S608
            (filed, CANDIDATES + 1),
        )
        return _few(rows)

    def _in_states(self) -> list[int] | None:
        side, rows = self._side, []
        # The index knows what was taken over among all that is delivered.
        meant = {"delivered" if each == TAKEN_OVER else each for each in self._search.states}
        for state in sorted(meant):
            rows += self._run(
                f"SELECT {side.number} FROM {side.table} WHERE state = ? LIMIT ?",  # noqa: S608
                (state, CANDIDATES + 1),
            )
        return _few(rows)

    # --- or the newest of all ---

    def _through_all(self, limit: int, end: Place) -> tuple[list[Values], Place | None]:
        """Go through the newest, of the partner alone if one is named: those that are meant, and
        where that ended if not with them."""
        found: list[Values] = []
        for _ in range(0, LOOKED_AT, PAGE):
            looked_at = self._newest(end)
            numbers = [number for _, number in looked_at]
            found += self._meant(numbers, end, limit + 1 - len(found))
            if len(found) > limit or len(looked_at) < PAGE:
                return found, None
            end = Place(*looked_at[-1])
        return found, end

    def _newest(self, end: Place) -> list[Values]:
        side, search = self._side, self._search
        since = -_LATEST if search.since is None else search.since
        until = end if search.until is None else min(end, Place(search.until, -1), key=tuple_of)
        within = f"{side.at} >= ? AND ({side.at}, {side.number}) < (?, ?)"
        order = f"ORDER BY {side.at} DESC, {side.number} DESC LIMIT {PAGE}"
        select = f"SELECT {side.at}, {side.number} FROM {side.table}"  # noqa: S608
        bounds = (since, *tuple_of(until))
        if not search.partners:
            return self._run(f"{select} WHERE {within} {order}", bounds)
        part = f"SELECT * FROM ({select} WHERE {side.partner} = ? AND {within} {order}) AS part"  # noqa: S608
        partners = sorted(set(search.partners))
        values = [value for partner in partners for value in (partner, *bounds)]
        parts = " UNION ALL ".join([part] * len(partners))
        return self._run(f"SELECT * FROM ({parts}) AS parts {order}", tuple(values))  # noqa: S608

    # --- what is meant ---

    def _meant(self, numbers: Iterable[int], end: Place, limit: int) -> list[Values]:
        """Of some messages those that are meant, each with its place behind its values."""
        side = self._side
        conditions, values = self._conditions()
        statement = (
            f"SELECT {side.values}, {side.at}, {self._key} {side.source} "
            f"WHERE {self._key} {self._dialect.numbers} "
            f"AND ({side.at}, {self._key}) < (?, ?) {conditions}"
            f"ORDER BY {side.at} DESC, {self._key} DESC LIMIT ?"
        )
        bounds = (json.dumps(list(numbers)), *tuple_of(end))
        return self._run(statement, (*bounds, *values, limit))

    def _conditions(self) -> tuple[str, Values]:
        """What has to hold, as SQL, and its values."""
        search, side = self._search, self._side
        found: list[tuple[str, Values]] = [("service <> ?", (str(TRIAL_SERVICE),))]
        if not search.parts:
            found.append((f"NOT ({side.behind})", ()))
        if search.again:
            found.append((side.again, ()))
        word = f"EXISTS (SELECT 1 FROM {side.table}_word AS w WHERE w.{side.number} = {self._key} "  # noqa: S608
        if search.text:
            # Where in a MessageId the text may begin at the latest: before its `@`.
            text, most = search.text, ID_SEARCHED if search.is_part else 1
            in_id = (
                f"instr(message_id, ?) BETWEEN 1 AND CASE WHEN instr(message_id, '@') BETWEEN 2 "
                f"AND {most} THEN instr(message_id, '@') - 1 ELSE {most} END"
            )
            anywhere = f"({in_id} OR conversation_id = ? OR {word} AND w.text = ?))"
            found.append((anywhere, (text, text, text)))
        if search.file_name:
            found.append((f"{word} AND w.path = '' AND w.text = ?)", (search.file_name,)))
        if search.value:
            found.append((f"{word} AND w.path <> '' AND w.text = ?)", (search.value,)))
        found += [
            (f"{column} = ?", (getattr(search, column),))
            for column in ("conversation_id", "service", "action")
            if getattr(search, column)
        ]
        for column, wanted in ((side.partner, search.partners), (side.state, search.states)):
            if wanted:
                named = json.dumps(list(wanted), ensure_ascii=False)
                found.append((f"{column} {self._dialect.texts}", (named,)))
        if search.since is not None:
            found.append((f"{side.at} >= ?", (search.since,)))
        if search.until is not None:
            found.append((f"{side.at} < ?", (search.until,)))
        conditions = "".join(f"AND {condition} " for condition, _ in found)
        return conditions, tuple(value for _, values in found for value in values)


def tuple_of(place: Place) -> tuple[Instant, int]:
    """A place as SQL compares it."""
    return place.at, place.number


def _few(rows: list[Values]) -> list[int] | None:
    return [number for (number,) in rows] if len(rows) <= CANDIDATES else None


def _both(some: list[int], others: list[int] | None) -> list[int] | None:
    return None if others is None else [*some, *others]
