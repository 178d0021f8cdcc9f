"""Schema versions: numbered SQL files, each applied in one transaction.

A new store is an empty one that all of them were applied to, so a migrated store and a
fresh one cannot differ. A file that was released is never edited; the next one changes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from oncewire.errors import StoreProblem

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x4F4E4357
"""Says of a SQLite file that it is a store of ours ("ONCW")."""

_FILE = re.compile(r"\d{3}_[a-z_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from version - 1 to version."""

    version: int
    name: str
    script: str


@cache
def known_migrations() -> tuple[Migration, ...]:
    """The steps this version of Oncewire knows, in order."""
    folder = resources.files("oncewire.store.sqlite").joinpath("migrations")
    files = {file.name: file for file in folder.iterdir() if _FILE.fullmatch(file.name)}
    return tuple(
        Migration(int(name[:3]), name, files[name].read_text(encoding="utf-8"))
        for name in sorted(files)
    )


def migrate(connection: apsw.Connection, migrations: tuple[Migration, ...]) -> int:
    """Bring the database to the newest version; returns how many steps were needed."""
    application, version = check_origin(connection, migrations)
    if application != APPLICATION_ID:
        connection.pragma("application_id", APPLICATION_ID)
    steps = [step for step in migrations if step.version > version]
    for step in steps:
        # Either the whole step and its number are there afterwards, or nothing of it.
        with connection:
            connection.execute(step.script)
            connection.pragma("user_version", step.version)
    return len(steps)


def check_origin(connection: apsw.Connection, migrations: tuple[Migration, ...]) -> tuple[int, int]:
    """Application id and version, if the database is empty or a store we understand."""
    application = int(connection.pragma("application_id"))
    version = int(connection.pragma("user_version"))
    empty = connection.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)").get
    if application != APPLICATION_ID and not empty:
        raise StoreProblem(
            f"{connection.filename} is a database of another program",
            remedy="name another file for the store",
        )
    newest = migrations[-1].version
    if version > newest:
        raise StoreProblem(
            f"{connection.filename} has version {version}, this Oncewire knows up to {newest}",
            remedy="open it with the version of Oncewire that wrote it, or a newer one",
        )
    return application, version
