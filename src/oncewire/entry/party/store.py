"""The store of a party: where it is, which one it is, who has it open, and views of it.

The one place that picks a store. Commands that only read import nothing of a handler by it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oncewire.entry.files import PRIVATE, PRIVATE_FOLDER, make_folder, write_new
from oncewire.entry.party.settings import Settings, party_name
from oncewire.errors import InvalidValue, NotHere, OncewireError, StoreProblem, StoreReplaced
from oncewire.message.instant import Instant, format_instant, parse_instant
from oncewire.store.contract import Reader
from oncewire.store.postgresql import connection as postgresql
from oncewire.store.postgresql.reader import PostgresReaders
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.records import StoreMark
from oncewire.store.sqlite.connection import Owner, check_mark, versions_at
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.store import SqliteStore

# The record of a party's store: a file beside its settings that knows which store the party has.
#
# A party whose database was emptied, lost or replaced looks like a new one, and would hand over
# again what was confirmed. So its folder notes the mark of its store
# (`oncewire.store.sqlite.connection`) when it is opened, every few seconds while it works and when
# it is closed, each time after the commit and by a rename: a death on the way leaves a record
# that is behind the store, never ahead of it. A backup has the record of the store that is in it,
# so a backup put in the folder's place is right.
#
# The record lies outside the folder of the data, which may be a disk of its own that was not
# mounted.

logger = logging.getLogger("oncewire.serve")

RECORD = "store.json"
UNREADABLE = StoreMark("", 0, "")


def read_record(settings: Settings) -> StoreMark | None:
    """The mark that was noted last; None where no store was ever opened. A file that cannot be
    read says at least that there was one."""
    path = settings.folder / RECORD
    if not path.exists():
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return StoreMark(str(said["store"]), int(said["journal"]), str(said["head"]))
    except (OSError, ValueError, KeyError, TypeError):
        return UNREADABLE


def write_record(settings: Settings, mark: StoreMark) -> None:
    """Note a mark. A folder that cannot be written stops no party: the log says so, and
    `oncewire doctor`."""
    try:
        put_record(settings.folder, mark)
    except OncewireError as error:
        said = {"problem": error.problem, "remedy": "`oncewire doctor` says what to do"}
        logger.warning("the party's folder cannot remember which store it has", extra=said)


def put_record(folder: Path, mark: StoreMark) -> None:
    """Write a record into a folder; NotAllowed where that cannot be."""
    said = {"store": mark.store_id, "journal": mark.journal, "head": mark.head}
    write_new(folder / RECORD, json.dumps(said) + "\n", PRIVATE, replace=True)


def find_replaced(settings: Settings) -> StoreReplaced | None:
    """Why the store that is there is not the party's, without changing anything; None if it is,
    or if it cannot be read, which is for others to tell."""
    import apsw

    known, path = read_record(settings), store_path(settings)
    try:
        if settings.store.url:
            if known is not None:
                with postgresql.opened(settings.store.url) as connection:
                    postgresql.check_mark(connection, settings.store.url, known)
        elif known is not None:
            check_mark(path, known)
        elif not path.exists() and socket_path(settings).exists() and is_owned(path):
            raise StoreReplaced(f"{path} is gone, and its handler runs")
    except StoreReplaced as replaced:
        return with_ways_out(replaced, settings)
    except (apsw.Error, StoreProblem):
        return None
    return None


def with_ways_out(replaced: StoreReplaced, settings: Settings) -> StoreReplaced:
    """The same with what its reader can do, in this folder."""
    # A handler that has lost its store takes no other one while it runs.
    first = "stop the handler, then " if is_owned(store_path(settings)) else ""
    return StoreReplaced(
        replaced.problem,
        remedy=f"{first}put the right file back, or restore the party from a backup "
        "(docs/howto/backup.md); to go on without what it knew, so that partners' messages may be "
        f"handed over a second time, remove {settings.folder / RECORD}",
    )


def store_path(settings: Settings) -> Path:
    """Where the party's database is; where it is on a server, what belongs to its handler on this
    machine is beside this path."""
    return settings.path(settings.store.path)


def socket_path(settings: Settings) -> Path:
    """Where the handler of a party listens for commands."""
    return settings.path(settings.store.path).with_suffix(".sock")


def store_place(settings: Settings) -> str:
    """Where the party's database is, for people."""
    url = settings.store.url
    return postgresql.place(url) if url else str(store_path(settings))


def store_versions(settings: Settings) -> tuple[int, int]:
    """The version of the store that is there, and the newest that this Oncewire knows; zeros: there
    is none."""
    url, path = settings.store.url, store_path(settings)
    if not url:
        return versions_at(path) if path.is_file() else (0, 0)
    with postgresql.opened(url) as connection:
        found = postgresql.version_of(connection, url)
    return found, postgresql.known_migrations()[-1].version if found else 0


def open_store(settings: Settings, *, at_rest: bool = False) -> SqliteStore | PostgresStore:
    """The party's store, opened as its only writer on this machine; made where the party never had
    one. `at_rest`: what is opened on PostgreSQL is none of its handlers."""
    path, node = store_path(settings), party_name(settings)
    spool, known = settings.path(settings.store.spool), read_record(settings)
    note = partial(write_record, settings)
    if not path.parent.is_dir():
        make_folder(path.parent, PRIVATE_FOLDER)
    try:
        if not settings.store.url:
            if settings.store.bucket:
                raise InvalidValue(
                    "store.bucket is set, but the store is in a file",
                    remedy="set store.url too, or remove store.bucket",
                )
            return SqliteStore(path, node=node, spool=spool, known=known, note=note)
        # Commands on this machine find its handler by the same lock as one on SQLite.
        owner = Owner(path)
        try:
            return PostgresStore(
                settings.store.url,
                node=node,
                spool=spool,
                bucket=settings.store.bucket,
                lease=0 if at_rest else max(1, settings.store.lease),
                known=known,
                note=note,
                closed=owner.release,
            )
        except BaseException:
            owner.release()
            raise
    except StoreReplaced as replaced:
        raise with_ways_out(replaced, settings) from None


def open_readers(settings: Settings) -> SqliteReaders | PostgresReaders:
    """Views of the party's store, whoever writes it."""
    path, url = store_path(settings), settings.store.url
    replaced = find_replaced(settings)
    if replaced is not None:
        raise replaced
    if url and read_record(settings) is not None:
        return PostgresReaders(url)
    if url or not path.is_file():
        raise NotHere(
            f"{settings.party.name or 'this party'} has sent and received nothing yet",
            remedy="start its handler with `oncewire serve`, or send something",
        )
    return SqliteReaders(path)


@contextmanager
def reading(settings: Settings) -> Iterator[Reader]:
    """One view of the party's store, as `open_readers` has many."""
    with closing(open_readers(settings)) as readers, readers.reader() as reader:
        yield reader


# Ownership: which process has the party's store open for writing. There are never two.


def owner_of(path: Path) -> int:
    """The process that says it has the store open for writing; 0: it cannot be read."""
    try:
        return int(path.with_name(path.name + ".owner").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def is_owned(path: Path) -> bool:
    """Whether a process has the store open for writing."""
    try:
        handle = os.open(path.with_name(path.name + ".owner"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


MANIFEST = "backup.json"


@dataclass(frozen=True, slots=True)
class Restored:
    """Which backup a party was restored from."""

    # When that backup was taken; empty if its manifest does not say so.
    taken: str
    # When something first happened here after that: the handler started; None if nothing did.
    since: Instant | None

    def __str__(self) -> str:
        if not self.taken:
            return "from a backup that does not say when it was taken"
        since = "" if self.since is None else f", in use since {format_instant(self.since)}"
        return f"from the backup of {self.taken}{since}"


def find_restored(settings: Settings) -> Restored | None:
    """Which backup this party is; None if it is none, or an operator removed the mark."""
    path = settings.folder / MANIFEST
    if not path.is_file():
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        taken, rows = str(said["taken"]), said.get("journal")
        parse_instant(taken)
    except (OSError, InvalidValue, ValueError, KeyError, TypeError):
        return Restored("", None)
    # Backups of earlier versions do not say how long the journal was.
    return Restored(taken, _first_after(settings, rows) if isinstance(rows, int) else None)


def _first_after(settings: Settings, seq: int) -> Instant | None:
    try:
        with reading(settings) as reader:
            rows = reader.journal_since(seq, 1)
    except (NotHere, StoreProblem):
        # The process that opens it says what is wrong with it.
        return None
    return rows[0].at if rows else None
