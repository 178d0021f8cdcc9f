"""Restored: whether a party's folder is a backup that was put in its place, and since when.

A backup carries its manifest, and so does the party that is made of it: nothing else tells that
what is kept here is older than what partners know. It is said until the manifest goes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncewire.entry.running.assemble import open_readers
from oncewire.entry.running.backup import MANIFEST
from oncewire.errors import InvalidValue, NotHere, StoreProblem
from oncewire.message.instant import Instant, format_instant, parse_instant

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


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
    """Which backup this party is; None if it is none, or somebody took note and removed that."""
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
        readers = open_readers(settings)
        with readers.reader() as reader:
            rows = reader.journal_since(seq, 1)
        readers.close()
    except (NotHere, StoreProblem):
        # Whoever opens it says what is wrong with it.
        return None
    return rows[0].at if rows else None
