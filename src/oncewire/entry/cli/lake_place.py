"""Which lake and which books a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli.place import loaded
from oncewire.entry.party.settings import FILE
from oncewire.errors import NotHere

if TYPE_CHECKING:
    from oncewire.pipeline.lake import Lake

LakePath = Annotated[Path, typer.Option("--lake", help="Folder of the tables.")]
BOOK = "A party's folder, its store, an export, or another lake; may be repeated."
Stores = Annotated[list[Path] | None, typer.Option("--store", help=BOOK)]


def book_at(path: Path) -> Path:
    """Where a book is: a party's folder stands for the store that its settings name, and a lake in
    a bucket for the copy of it."""
    from oncewire.pipeline.lake import input_at

    path = input_at(path)
    if path.name != FILE and not (path / FILE).is_file():
        return there(path, "store, export or lake")
    settings = loaded(path).settings
    return there(settings.path(settings.store.path), "store, export or lake")


def there(path: Path, what: str) -> Path:
    """The path, if something is there: Spark takes long to start, and is not needed to know."""
    if not path.exists():
        raise NotHere(f"there is no {what} at {path}", remedy="give the path of one")
    return path


def archive_at(path: Path) -> Path:
    """Where raw messages are; nothing but files is read."""
    from oncewire.pipeline.files import OF_AN_ARCHIVE, local_path

    return there(local_path(path, OF_AN_ARCHIVE), "archive")


def lake_at(path: Path) -> Lake:
    """The lake of that name; a place that cannot hold one is refused before Spark starts."""
    from oncewire.pipeline.lake import Lake

    return Lake(path)


def need_lake(lake: Path) -> None:
    """Refuse a place where nothing was published."""
    if not lake_at(lake).exists:
        raise NotHere(
            f"there is no lake at {lake}",
            remedy=f"make one with `oncewire pipeline run --store STORE --lake {lake}`",
        )
