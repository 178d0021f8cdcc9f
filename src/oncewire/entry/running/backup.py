"""Backup: a copy of a party that is whole, taken while its handler runs, and checked; and a copy of
its store in another database.

The database is copied by SQLite's own means, so the copy is the state of one instant; a plain
copy of the file while it is written is not. The spool's files that this state names follow. A
sweep may have removed one meanwhile: then the copy is taken again. Settings, keys, certificates
and agreements go with it, under the modes they have. The folder gets its name when everything in
it is on the disk and was read back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncewire.entry.files import PRIVATE, PRIVATE_FOLDER, make_folder
from oncewire.entry.party.settings import FILE, Settings
from oncewire.entry.party.store import (
    MANIFEST,
    find_replaced,
    put_record,
    store_path,
    store_versions,
)
from oncewire.errors import NotAllowed, NotHere, StoreProblem
from oncewire.message.instant import Instant, format_instant
from oncewire.store.postgresql import connection as postgresql
from oncewire.store.postgresql.session import PostgresSession
from oncewire.store.records import StoreMark
from oncewire.store.spool import sync_folder
from oncewire.store.sql.copying import Tally, copy
from oncewire.store.sql.reader import LAYOUTS
from oncewire.store.sql.rows import spool_names
from oncewire.store.sql.session import Session
from oncewire.store.sqlite import connection as sqlite
from oncewire.store.sqlite.connection import connect_reader, read_mark
from oncewire.store.sqlite.reader import view
from oncewire.store.sqlite.session import SqliteSession

TRIES = 5


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    folder: Path
    # Messages, as `status` counts what is kept: a document is one, its parts and trials are none.
    kept: int
    journal: int
    files: int
    size: int


def take_backup(settings: Settings, target: Path, now: Instant) -> Backup:
    """Copy a party into a new folder; NotAllowed if there is something there already."""
    replaced = find_replaced(settings)
    if replaced is not None:
        raise replaced
    source = store_path(settings)
    if settings.store.url:
        raise NotAllowed(
            "the store is on a database server, which has its own backups",
            remedy="stop the handler, then copy the database with pg_dump and this folder with it",
        )
    if not source.is_file():
        raise NotHere(f"there is no store at {source} yet", remedy="send or receive something")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NotAllowed(f"{target} is there already", remedy="name a folder that is not there yet")
    half = _begun(target)
    try:
        _copy_papers(settings, half)
        data = make_folder(half / "data", PRIVATE_FOLDER)
        spool = make_folder(data / "spool", PRIVATE_FOLDER)
        mark = _copy_store(settings, data / "oncewire.db", spool)
        # Put in the party's place, the backup is the store that this record knows.
        put_record(half, mark)
        _write_manifest(settings, half, now, mark.journal)
        found = check_backup(half)
        for path in half.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        for path in (half, *(each_path for each_path in half.rglob("*") if each_path.is_dir())):
            sync_folder(path)
        if target.exists():
            target.rmdir()
        half.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreProblem(
            f"the backup cannot be written: {error.strerror}", remedy="check the disk it goes to"
        ) from error
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return Backup(target, found.kept, found.journal, found.files, found.size)


def _begun(target: Path) -> Path:
    """The new, empty folder in which a backup is made. Keys go into it, and others may write where
    it stands: it is never a link or a folder that another user put there."""
    half = target.with_name(f".{target.name}.part")
    try:
        make_folder(target.parent)
        if half.is_symlink():
            half.unlink()
        # What a backup that was killed left.
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(PRIVATE_FOLDER)
    except OSError as error:
        raise NotAllowed(
            f"the backup cannot be begun in {half}: {error.strerror}",
            remedy="remove what lies there, or choose another folder",
        ) from error
    return half


def check_backup(folder: Path) -> Backup:
    """Read a backup back; StoreProblem says what of it is not whole."""
    import apsw

    problem = ""
    if not folder.exists():
        problem = f"there is no folder {folder}"
    elif not folder.is_dir():
        problem = f"{folder} is no folder, so it is no backup"
    elif not (folder / MANIFEST).exists():
        problem = f"{folder} is no backup: it has no {MANIFEST}"
    if problem:
        raise NotHere(problem, remedy="name a folder that `oncewire backup` made")
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _broken(f"{folder / MANIFEST} cannot be read") from None
    size = 0
    for name, digest in listed.items():
        path = folder / name
        if not path.is_file() or _digest(path) != digest:
            raise _broken(f"{path} is missing or has changed")
        size += path.stat().st_size
    database = folder / "data" / "oncewire.db"
    connection = apsw.Connection(
        f"file:{database}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        verdict = connection.execute("PRAGMA integrity_check(1)").fetchall()[0][0]
        if verdict != "ok":
            raise _broken(f"{database} is damaged: {verdict}")
        kept = sum(view(connection, database).counts().values())
        (rows,) = connection.execute("SELECT journal FROM counter").fetchall()[0]
        journal = int(str(rows))
        for name in _spooled(connection):
            # Named by its digest: what has changed before it was copied is told, too.
            if listed.get(f"data/spool/{name}") != name:
                raise _broken(f"the spool file {name} is missing or has changed")
    except apsw.Error as error:
        raise _broken(f"{database} cannot be read: {error}") from error
    finally:
        connection.close(True)
    return Backup(folder, kept, journal, len(listed), size)


def _broken(problem: str) -> StoreProblem:
    return StoreProblem(problem, remedy="take another backup; do not restore from this one")


def _copy_store(settings: Settings, database: Path, spool: Path) -> StoreMark:
    """Copy the database and the spool; returns which store it is and how far it had come."""
    for _ in range(TRIES):
        names, mark = _copy_database(store_path(settings), database)
        if all(_copy_spooled(settings, spool, name) for name in names):
            return mark
    raise StoreProblem(
        "files of the spool went away while they were copied, again and again",
        remedy="`oncewire doctor` says whether any is missing; then try again",
    )


def _copy_database(source: Path, target: Path) -> tuple[set[str], StoreMark]:
    """Copy the database as of one instant; returns the files of the spool that it names, and which
    store it is."""
    import apsw

    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
    try:
        reading = connect_reader(source, None)
        writing = apsw.Connection(str(target))
        try:
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)
            # The copy stands alone, without a log beside it.
            writing.pragma("journal_mode", "delete")
            mark = read_mark(writing)
            if mark is None:
                raise StoreProblem(f"{source} is empty", remedy="`oncewire doctor` looks at it")
            return _spooled(writing), mark
        finally:
            writing.close(True)
            reading.close(True)
    except apsw.Error as error:
        raise StoreProblem(
            f"the database cannot be copied: {error}", remedy="`oncewire doctor` looks at it"
        ) from error


def _spooled(connection: object) -> set[str]:
    names: set[str] = set()
    for (layout,) in connection.execute(LAYOUTS):  # type: ignore[attr-defined]
        names |= spool_names(layout)
    return names


def _copy_spooled(settings: Settings, spool: Path, name: str) -> bool:
    """Copy one file of the spool, which is named by its digest; False: it is not there."""
    target = spool / name
    if target.is_file():
        return True
    try:
        shutil.copyfile(settings.path(settings.store.spool) / name, target)
    except FileNotFoundError:
        return False
    target.chmod(PRIVATE)
    return True


def _copy_papers(settings: Settings, folder: Path) -> None:
    """Settings, keys, certificates and agreements, where a party's folder has them."""
    shutil.copy2(settings.folder / FILE, folder / FILE)
    keys = make_folder(folder / "keys", PRIVATE_FOLDER)
    for file in settings.key_files:
        for path in sorted(file.parent.glob(f"{file.stem}*{file.suffix}")):
            shutil.copy2(path, keys / path.name)
    for source, name in (
        (settings.path(settings.keys.partners), "keys/partners"),
        (settings.path(settings.agreements.folder), "agreements"),
    ):
        target = make_folder(folder / name)
        for file in sorted(source.iterdir()) if source.is_dir() else ():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, target / file.name)


def _write_manifest(settings: Settings, folder: Path, now: Instant, rows: int) -> None:
    """What is in the backup, and how far its party had come: what it restores says so."""
    files = {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    said = {
        "party": settings.party.name,
        "taken": format_instant(now),
        "journal": rows,
        "files": files,
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    path.chmod(PRIVATE)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Restored: whether a party's folder is a backup that was put in its place, and since when.
#
# A backup carries its manifest, and so does the party that is made of it: nothing else tells that
# what is kept here is older than what partners know. It is said until the manifest goes.


# A store copied to a database server, or back into a file.


def is_server(place: str) -> bool:
    """Whether a store is named by the address of a database server, and not by a file."""
    return place.startswith(("postgresql://", "postgres://"))


def copy_store(settings: Settings, to: str) -> dict[str, Tally]:
    """Copy the party's store into an empty database; returns what each table holds. No handler can
    run meanwhile. The files of the spool stay where they are: both stores name the same."""
    replaced = find_replaced(settings)
    if replaced is not None:
        raise replaced
    if store_versions(settings) == (0, 0):
        raise NotHere("there is no store to copy yet", remedy="send or receive something")
    path = store_path(settings)
    if not is_server(to) and Path(to).exists():
        raise NotAllowed(f"{to} is there already", remedy="name a file that is not there yet")
    owner = sqlite.Owner(path)
    try:
        with _session(settings.store.url or str(path)) as source, _session(to) as target:
            return copy(source, target)
    finally:
        owner.release()


@contextmanager
def _session(place: str) -> Iterator[Session]:
    """A session of the database there, with the tables of this version."""
    if is_server(place):
        server = postgresql.connect(place)
        try:
            with postgresql.told_as(place):
                postgresql.migrate(server, place, postgresql.known_migrations())
                # Handlers on other machines, too, must have ended.
                postgresql.own(server, place, alone=True)
            yield PostgresSession(server, place)
        finally:
            postgresql.disconnect(server)
        return
    file = Path(place)
    # Other users may not read the messages.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite.connect(file, None)
    try:
        sqlite.migrate(connection, sqlite.known_migrations())
        yield SqliteSession(connection, file)
    finally:
        sqlite.disconnect(connection)
