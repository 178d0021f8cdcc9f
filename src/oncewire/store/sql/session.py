"""A session: the connection that a backend runs its statements on, and what it writes with them.

The text of a statement is the same on SQLite and on PostgreSQL, with `?` or `?1` for its values.
What differs is here: how many rows are written at once, how a list is given, and what an error
means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from oncewire.errors import StoreFull, StoreGone, StoreProblem

Values: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = Mapping[str, tuple[str, bool]]
"""Of each column of a table its kind, INTEGER, TEXT or BLOB, and whether it needs a value."""


class Insert(NamedTuple):
    """New rows; with a key, each takes the place of the row that has its key."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Values]
    key: tuple[str, ...] = ()


class Update(NamedTuple):
    """New values of some columns; each row ends with the key of the row that gets them."""

    table: str
    columns: tuple[str, ...]
    key: str
    rows: Sequence[Values]


class Each(NamedTuple):
    """A statement that is run for every row of values, one after the other."""

    statement: str
    rows: Sequence[Values]


Write: TypeAlias = Insert | Update | Each


class Dialect(NamedTuple):
    """The words that differ: how a column is compared with a list, given as JSON."""

    numbers: str
    texts: str


class Session(Protocol):
    """One connection that writes."""

    failure: StoreFull | StoreGone | None
    """How it failed, if it did: nothing since the last commit can be relied on then."""
    dialect: Dialect

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        """Run one statement to its end. The database's trouble becomes StoreFull or StoreGone."""

    def change(self, statement: str, values: Values = ()) -> int:
        """Run one statement; returns how many rows it changed."""

    def write(self, writes: Sequence[Write]) -> None:
        """Do each, in order; nothing where there are no rows."""

    def columns(self, table: str) -> Columns:
        """The columns of a table."""

    # --- transactions ---

    def begin_turn(self) -> None:
        """See `transition.backend.Backend`."""

    def let_go(self) -> None:
        """See `transition.backend.Backend`."""

    def changed_elsewhere(self) -> bool:
        """See `transition.backend.Backend`."""

    def applied(self) -> bool:
        """Whether anything was written that is not committed."""

    def begin_steps(self) -> None:
        """Set a savepoint: the steps that follow can be undone."""

    def keep_steps(self) -> None:
        """Keep the steps since `begin_steps`."""

    def undo_steps(self) -> None:
        """Undo everything since `begin_steps`."""

    def commit(self) -> None:
        """Commit what is open."""


def on_conflict(columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    """The end of a statement that inserts: what is done where a row has the key already."""
    if not key:
        return ""
    others = [name for name in columns if name not in key]
    settings = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {settings}"


def cannot_be_kept(error: object) -> StoreProblem:
    """The error for a value that its column does not take."""
    return StoreProblem(
        f"a value cannot be kept: {error}", remedy="this is a fault of Oncewire: report it"
    )
