"""The origin of a database: by which versions of the schema it was made, and which store it is.

Versions are numbered SQL files, each applied in one transaction. A new store is an empty one that
all of them were applied to, so a migrated store and a fresh one cannot differ. A file that was
released is never edited; the next one changes it. On PostgreSQL a step is taken while handlers of
an older version work, and they go on; one that they cannot live with begins with `-- Breaking:` and
the reason, and waits until none of them runs.

The mark of a store says which one it is and how far its journal has come, as noted outside of it.
A database can be emptied, lost, mixed up with another or replaced by an older copy, and opens each
time without an error. A mark kept elsewhere shows it: a store still is the one that was marked if
it has the same id, at least as many rows of the journal, and at the marked row the same head of the
chain over the journal (`oncewire.journal.identity`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from oncewire.errors import StoreProblem, StoreReplaced
from oncewire.journal.row import check_version
from oncewire.store.records import StoreMark

_FILE = re.compile(r"\d{3}_[a-z_]+\.sql")
_BREAKING = re.compile(r"-- Breaking: (.+)")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from version - 1 to version."""

    version: int
    name: str
    script: str

    @property
    def breaking(self) -> str:
        """Why processes of an older version cannot live with it, as its first line says; empty:
        they can."""
        found = _BREAKING.match(self.script)
        return found[1].strip() if found is not None else ""


def migrations_of(package: str) -> tuple[Migration, ...]:
    """The steps in the folder `migrations` of a package, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = {file.name: file for file in folder.iterdir() if _FILE.fullmatch(file.name)}
    return tuple(
        Migration(int(name[:3]), name, files[name].read_text(encoding="utf-8"))
        for name in sorted(files)
    )


def check_known(place: str, version: int, newest: int) -> None:
    """Refuse a store that a newer version of Oncewire has written."""
    if version > newest:
        raise StoreProblem(
            f"{place} has version {version}, this Oncewire knows up to {newest}",
            remedy="open it with the version of Oncewire that wrote it, or a newer one",
        )


NODE = "SELECT name, journal_version FROM node"
"""Whose store it is, and by which version of the journal."""


def new_node(place: object, node: str | None) -> str:
    """The node that a store without one is made for."""
    if node is None:
        raise StoreProblem(f"{place} has no node yet", remedy="open it with its name")
    return node


def known_node(place: object, wanted: str | None, found: Sequence[object], kind: str) -> str:
    """The node whose store it is; refused where another is wanted, or its journal is newer."""
    node, version = map(str, found)
    check_version(version)
    if wanted is not None and wanted != node:
        raise StoreProblem(
            f"{place} belongs to node {node}, not to {wanted}",
            remedy=f"name another {kind}, or correct the node's name",
        )
    return node


def compare(place: object, known: StoreMark, found: StoreMark | None, head: str) -> None:
    """Raise StoreReplaced unless the store that was found there is the one that was marked, as it
    was then or further on. `head`: its chain head at the row of the known mark; empty: that cannot
    be told any more."""
    if found is None:
        raise replaced(f"{place} is empty, and {once(known)}")
    if not known.store_id:
        raise replaced(
            f"whether {place} is the store that was used here cannot be told: the record of it "
            "cannot be read"
        )
    if found.store_id != known.store_id:
        raise replaced(f"{place} is another store than the one that was used here")
    if found.journal < known.journal:
        raise replaced(
            f"{place} is older than what was done here: its journal has {found.journal} rows, "
            f"and {known.journal} were written"
        )
    if head and known.head and head != known.head:
        raise replaced(
            f"{place} holds another history than the one here: they differ before row "
            f"{known.journal} of the journal"
        )


def replaced(problem: str) -> StoreReplaced:
    """The error for a store that is not the marked one."""
    return StoreReplaced(problem, remedy="restore the party from a backup (docs/howto/backup.md)")


def once(known: StoreMark) -> str:
    """What is known of the store that was there."""
    if not known.store_id:
        return "there was a store"
    return f"there was a store whose journal had {known.journal} rows"
