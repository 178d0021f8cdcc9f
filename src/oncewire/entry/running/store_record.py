"""The record of a party's store: a file beside its settings that knows which store the party has.

A party whose database was emptied, lost or replaced looks like a new one, and would hand over again
what was confirmed. So its folder notes the mark of its store (`oncewire.store.sqlite.mark`) when it
is opened, every few seconds while it works and when it is closed, each time after the commit and by
a rename: whoever dies on the way leaves a record that is behind the store, never ahead of it. A
backup has the record of the store that is in it, so a backup put in the folder's place is right.

The record lies outside the folder of the data, which may be a disk of its own that was not mounted.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import PRIVATE, write_new
from oncewire.errors import OncewireError, StoreProblem, StoreReplaced
from oncewire.store.records import StoreMark
from oncewire.store.sqlite.mark import check_mark

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

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
    """Note a mark. A folder that cannot be written keeps nobody from working: the log says so, and
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

    known, path = read_record(settings), settings.path(settings.store.path)
    if known is None:
        return None
    try:
        check_mark(path, known)
    except StoreReplaced as replaced:
        return with_ways_out(replaced, settings)
    except (apsw.Error, StoreProblem):
        return None
    return None


def with_ways_out(replaced: StoreReplaced, settings: Settings) -> StoreReplaced:
    """The same with what its reader can do, in this folder."""
    return StoreReplaced(
        replaced.problem,
        remedy="put the right file back, or restore the party from a backup (docs/backup.md); to "
        "go on without what it knew, so that partners' messages may be handed over a second time, "
        f"remove {settings.folder / RECORD}",
    )
