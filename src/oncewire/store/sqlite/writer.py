"""The writing side of one SQLite connection: statements, numbers and what is remembered.

A transition is a savepoint in a transaction that all transitions since the last commit
share. What the writer remembers in memory (counters, terms, channels, the numbers of
MessageIds) follows the savepoints: what a transition changed is forgotten or put back
when it is undone. Channels and counters are written once, just before the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oncewire.errors import NotAllowed, StoreDamaged, StoreFull, StoreGone, StoreProblem
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.schedule import not_kept
from oncewire.store.sqlite.connection import damaged_page, failure
from oncewire.store.sqlite.rows import (
    RECEIVING,
    SENDING,
    Values,
    read_receiving,
    read_sending,
    receiving_values,
    sending_values,
)

if TYPE_CHECKING:
    import apsw

REMEMBERED = 50_000
"""How many MessageIds and channels are remembered at most; beyond it, all are read anew."""


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


C = TypeVar("C", bound=_Keyed)


COUNTERS = ("journal", "outgoing", "entered", "incoming", "ready", "incident")
_SELECT_COUNTERS = f"SELECT {', '.join(COUNTERS)} FROM counter"  # noqa: S608
_UPDATE_COUNTERS = f"UPDATE counter SET {', '.join(f'{name} = ?' for name in COUNTERS)}"  # noqa: S608


_KEEP_TERMS = (
    "INSERT INTO terms (terms_id, content) VALUES (?, ?) "
    "ON CONFLICT (terms_id) DO UPDATE SET content = excluded.content"
)


def _read_terms(terms_id: str, content: str) -> Terms:
    try:
        terms = Terms.from_dict(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged_terms(terms_id, str(error)) from error
    if terms.terms_id != terms_id:
        raise _damaged_terms(terms_id, "they say something else than when they were kept")
    return terms


def _damaged_terms(terms_id: str, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"the stored terms {terms_id} are damaged: {why}"[:300],
        remedy="put their row back from a backup, or give the messages under them up with "
        "`oncewire abandon`",
    )


class Channels(Generic[C]):
    """Channels of one direction; saved ones are written with the next commit."""

    def __init__(
        self,
        writer: SqliteWriter,
        table: str,
        columns: tuple[str, ...],
        values: Callable[[C], Values],
        read: Callable[[Values], C],
    ) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self._select = f"SELECT {names} FROM {table} WHERE key = ?"  # noqa: S608
        self._insert = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
        self._writer, self._values, self._read = writer, values, read
        self._known: dict[str, C | None] = {}
        self._unwritten: set[str] = set()
        self._undo: list[tuple[str, C | None, bool]] = []

    def get(self, key: str) -> C | None:
        """The channel as this transition sees it."""
        if key in self._known:
            return self._known[key]
        rows = self._writer.run(self._select, (key,))
        channel = self._read(rows[0]) if rows else None
        self._known[key] = channel
        return channel

    def save(self, channel: C) -> C | None:
        """Insert or replace; returns what was there before."""
        key = channel.key
        before = self.get(key)
        self._undo.append((key, before, key in self._unwritten))
        self._known[key] = channel
        self._unwritten.add(key)
        return before

    def forget(self, key: str) -> None:
        """Its row was changed from elsewhere."""
        self._known.pop(key, None)

    @property
    def unwritten(self) -> frozenset[str]:
        """Keys of those that were saved since the last commit."""
        return frozenset(self._unwritten)

    @property
    def changed(self) -> bool:
        """Whether the present transition saved any."""
        return bool(self._undo)

    def keep(self) -> None:
        """The transition ended well."""
        self._undo.clear()

    def undo(self) -> None:
        """The transition is undone."""
        while self._undo:
            key, before, unwritten = self._undo.pop()
            self._known[key] = before
            if not unwritten:
                self._unwritten.discard(key)

    def write(self) -> None:
        """Write what was saved since the last commit."""
        saved = (self._known[key] for key in sorted(self._unwritten))
        rows = (self._values(channel) for channel in saved if channel is not None)
        self._writer.run_all(self._insert, rows)

    def written(self) -> None:
        """The commit succeeded."""
        self._unwritten.clear()
        if len(self._known) > REMEMBERED:
            self._known.clear()


class SqliteWriter:
    """One connection and all that is remembered of its database."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        import apsw

        self._error, self._corrupt = apsw.Error, apsw.CorruptError
        faults = (apsw.ConstraintError, apsw.SQLError, OverflowError, UnicodeError, TypeError)
        self._refused = faults
        self._connection, self._path = connection, path
        self._cursor = connection.cursor()
        # Set once SQLite failed: nothing since the last commit can be relied on then.
        self.failure: StoreFull | StoreGone | None = None
        # What SQLite itself counts, to see whether a transition changed anything.
        self.changes = connection.total_changes
        self.changed_rows = connection.changes
        # Pages of the log, as of the last commit.
        self.pages = 0
        connection.set_wal_hook(self._count_pages)
        counted = self.run(_SELECT_COUNTERS)[0]
        self._counters: dict[str, int] = dict(zip(COUNTERS, counted, strict=True))
        self._counters_before = self._counters_written = dict(self._counters)
        self.sending: Channels[SendingChannel] = Channels(
            self, "sending_channel", SENDING, sending_values, read_sending
        )
        self.receiving: Channels[ReceivingChannel] = Channels(
            self, "receiving_channel", RECEIVING, receiving_values, read_receiving
        )
        self._terms: dict[str, Terms] = {}
        self._new_terms: list[str] = []
        # Ids of agreements that are kept; their texts are long and seldom asked for.
        self._agreements: set[str] = set()
        self._new_agreements: list[str] = []
        self._numbers: dict[str, int] = {}
        self._new_numbers: list[str] = []

    def _count_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return 0

    # --- statements ---

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        """Run one statement to its end. SQLite's trouble becomes StoreFull or StoreGone."""
        try:
            return self._cursor.execute(statement, values).fetchall()
        except self._refused as error:
            raise StoreProblem(
                f"a value cannot be kept: {error}", remedy="this is a fault of Oncewire: report it"
            ) from error
        except self._corrupt as error:
            if statement.startswith(("SELECT", "WITH")):
                # The transaction stands: only this question has no answer.
                raise damaged_page(error, self._path) from error
            self.failure = failure(error, self._path)
            raise self.failure from error
        except self._error as error:
            self.failure = failure(error, self._path)
            raise self.failure from error

    def run_all(self, statement: str, rows: Iterable[Values]) -> None:
        """Run one statement for every row of values."""
        for values in rows:
            self.run(statement, values)

    # --- transitions ---

    def begin(self) -> None:
        """Begin a transition."""
        if not self._connection.in_transaction:
            self.run("BEGIN IMMEDIATE")
        self.run("SAVEPOINT transition")
        self._counters_before = dict(self._counters)
        self._changes_before = self.changes()

    def keep(self) -> bool:
        """End the transition and keep what it did; False if it did nothing."""
        changed = (
            self.changes() != self._changes_before or self.sending.changed or self.receiving.changed
        )
        self.run("RELEASE transition")
        self.sending.keep()
        self.receiving.keep()
        self._new_terms.clear()
        self._new_agreements.clear()
        self._new_numbers.clear()
        return changed

    def undo(self) -> None:
        """Undo the transition and nothing else."""
        self.run("ROLLBACK TO transition")
        self.run("RELEASE transition")
        self._counters = self._counters_before
        self.sending.undo()
        self.receiving.undo()
        for terms_id in self._new_terms:
            del self._terms[terms_id]
        self._agreements.difference_update(self._new_agreements)
        for message_id in self._new_numbers:
            self._numbers.pop(message_id, None)
        self._new_terms.clear()
        self._new_agreements.clear()
        self._new_numbers.clear()

    def commit(self) -> None:
        """Write what was put off, and commit."""
        self.sending.write()
        self.receiving.write()
        if self._counters != self._counters_written:
            self.run(_UPDATE_COUNTERS, tuple(self._counters.values()))
        self.run("COMMIT")
        self._counters_written = dict(self._counters)
        self.sending.written()
        self.receiving.written()
        if len(self._numbers) > REMEMBERED:
            self._numbers.clear()

    def rollback(self) -> None:
        """End a transaction in which nothing was kept."""
        self.run("ROLLBACK")

    def abandon(self) -> None:
        """End the transaction after a failure, if SQLite has not done so itself."""
        with suppress(StoreFull, StoreGone):
            if self._connection.in_transaction:
                self.run("ROLLBACK")

    # --- what is remembered ---

    def terms(self, terms_id: str) -> Terms | None:
        """Terms by their id."""
        known = self._terms.get(terms_id)
        if known is None:
            rows = self.run("SELECT content FROM terms WHERE terms_id = ?", (terms_id,))
            if rows:
                known = self._terms[terms_id] = _read_terms(terms_id, rows[0][0])
        return known

    def known_terms(self, terms_id: str) -> Terms:
        """Terms that a message is filed under."""
        terms = self._terms.get(terms_id) or self.terms(terms_id)
        if terms is None:
            raise NotAllowed(
                f"terms {terms_id} are not kept here", remedy="call remember_terms first"
            )
        return terms

    def remember_terms(self, terms_id: str, terms: Terms) -> None:
        """Keep terms that were not kept before."""
        content = json.dumps(terms.as_dict(), separators=(",", ":"))
        # Those that were damaged are replaced: the id is the digest of what they say.
        self.run(_KEEP_TERMS, (terms_id, content))
        self._terms[terms_id] = terms
        self._new_terms.append(terms_id)

    def agreement(self, agreement_id: str) -> str | None:
        """An agreement's text by its id."""
        select = "SELECT content FROM agreement WHERE agreement_id = ?"
        for row in self.run(select, (agreement_id,)):
            self._agreements.add(agreement_id)
            return str(row[0])
        return None

    def keeps_agreement(self, agreement_id: str) -> bool:
        """Whether an agreement is kept under that id."""
        return agreement_id in self._agreements or self.agreement(agreement_id) is not None

    def check_agreement(self, agreement_id: str | None) -> None:
        """Refuse to file a message under an agreement that is not kept."""
        if agreement_id is not None and not self.keeps_agreement(agreement_id):
            raise not_kept(agreement_id)

    def remember_agreement(self, agreement_id: str, content: str) -> None:
        """Keep an agreement that was not kept before."""
        self.run(
            "INSERT INTO agreement (agreement_id, content) VALUES (?, ?)", (agreement_id, content)
        )
        self._agreements.add(agreement_id)
        self._new_agreements.append(agreement_id)

    def find_number(self, message_id: str) -> int | None:
        """The number that the tables know a MessageId by, if any of them does."""
        number = self._numbers.get(message_id)
        if number is None:
            rows = self.run("SELECT id FROM message WHERE message_id = ?", (message_id,))
            if rows:
                number = self._numbers[message_id] = rows[0][0]
        return number

    def number_of(self, message_id: str) -> int:
        """The number of a MessageId, which is given here if it has none."""
        number = self.find_number(message_id)
        if number is None:
            self.run("INSERT INTO message (message_id) VALUES (?)", (message_id,))
            number = self._numbers[message_id] = self._connection.last_insert_rowid()
            self._new_numbers.append(message_id)
        return number

    def forget_numbers(self) -> None:
        """Numbers were removed; what is remembered of them no longer holds."""
        self._numbers.clear()

    def count(self, name: str) -> int:
        """The next number of a kind."""
        self._counters[name] += 1
        return self._counters[name]

    def next(self, name: str) -> int:
        """The number that `count` would give."""
        return self._counters[name] + 1
