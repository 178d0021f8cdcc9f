"""The mark of a store: which one it is and how far its journal has come, as noted outside of it.

A database file can be emptied, lost, mixed up with another or replaced by an older copy, and SQLite
opens each of them without a word. Whoever noted a mark finds out: a store still is the one that was
marked if it has the same id, at least as many rows of the journal, and at the marked row the same
head of the chain over the journal (`oncewire.journal.chain`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import StoreGone, StoreReplaced
from oncewire.journal.chain import START
from oncewire.store.records import StoreMark
from oncewire.store.sqlite.connection import connect_reader, disconnect
from oncewire.store.sqlite.migrate import check_origin, known_migrations

if TYPE_CHECKING:
    import apsw


def read_mark(connection: apsw.Connection) -> StoreMark | None:
    """The mark of the store as it is committed; None: there is nothing in it."""
    node, counter = _columns(connection, "node"), _columns(connection, "counter")
    # Stores of earlier versions have no id and no chain yet.
    chosen = ("store_id" if "store_id" in node else "''", "head" if "head" in counter else "NULL")
    if not node or not counter:
        return None
    rows = connection.execute(
        f"SELECT {chosen[0]}, journal, {chosen[1]} FROM node, counter"  # noqa: S608
    ).fetchall()
    if not rows:
        return None
    store_id, journal, head = rows[0]
    return StoreMark(str(store_id or ""), int(str(journal)), _hex(head))


def check_mark(path: Path, known: StoreMark, vfs: str | None = None) -> None:
    """See that the store is the one that was marked, as it was then or further on. Nothing is made
    or changed, so that whatever lies there can be looked at and put right."""
    try:
        empty = not path.stat().st_size
    except FileNotFoundError:
        raise _replaced(f"{path} is gone, and {_once(known)}") from None
    except OSError as error:
        raise StoreGone(f"{path}: {error.strerror}", remedy="check its disk") from None
    found, head = (None, "") if empty else _look(path, known, vfs)
    if found is None:
        raise _replaced(f"{path} is empty, and {_once(known)}")
    if not known.store_id:
        # That there was one is all that is known.
        return
    if found.store_id != known.store_id:
        raise _replaced(f"{path} is another store than the one that was used here")
    if found.journal < known.journal:
        raise _replaced(
            f"{path} is older than what was done here: its journal has {found.journal} rows, "
            f"and {known.journal} were written"
        )
    if head and known.head and head != known.head:
        raise _replaced(
            f"{path} holds another history than the one here: they differ before row "
            f"{known.journal} of the journal"
        )


def _look(path: Path, known: StoreMark, vfs: str | None) -> tuple[StoreMark | None, str]:
    """The mark of what lies there, and the head that it has where the known one was noted."""
    connection = connect_reader(path, vfs)
    try:
        check_origin(connection, known_migrations())
        found = read_mark(connection)
        return found, "" if found is None else _head_at(connection, known.journal, found)
    finally:
        disconnect(connection)


def _replaced(problem: str) -> StoreReplaced:
    return StoreReplaced(problem, remedy="restore the party from a backup (docs/backup.md)")


def _once(known: StoreMark) -> str:
    if not known.store_id:
        return "there was a store"
    return f"there was a store whose journal had {known.journal} rows"


def _head_at(connection: apsw.Connection, seq: int, found: StoreMark) -> str:
    """The head behind a row; empty where that cannot be known any more."""
    if found.journal == seq:
        return found.head
    if "since" not in _columns(connection, "journal_row"):
        return ""
    rows = connection.execute("SELECT since FROM journal_row WHERE seq = ?", (seq + 1,)).fetchall()
    return _hex(rows[0][0]) if rows and rows[0][0] is not None else ""


def _hex(head: object) -> str:
    return (head if isinstance(head, bytes) else START).hex()


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    return {str(name) for (name,) in rows}
