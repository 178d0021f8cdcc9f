"""Where a lake is kept: a folder, or a bucket of an object store that a folder is a copy of.

A lake works on files in a folder, whatever it is kept in. What differs is how a version becomes the
published one so that all of it is there or nothing, and how there is but one writer; that is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from oncewire.pipeline.version import Version

VERSIONS = "versions"
"""The folder of the versions' own files."""

LAYERS = ("bronze", "silver", "gold")
"""The folders of the tables."""

READABLE_FOR = 60.0
"""So many seconds a version can be read after another took its place, however many follow: a read
that loses its files begins anew, and one that takes longer than two publishes would never end."""


class Storage(Protocol):
    """What keeps one lake."""

    name: str
    """As people call it."""
    root: Path
    """The folder in which its files are read and written."""

    def refresh(self) -> None:
        """See that what is published is in the folder."""

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The only writer, as far as that can be known beforehand; NotAllowed for a second one."""
        yield

    def publish(self, version: Version, before: Version) -> None:
        """Make a version the current one. NotAllowed if another writer was quicker: then nothing
        has happened."""

    def shown(self) -> None:
        """Other tools' logs of the version are in the folder."""

    def keep(self, path: str) -> None:
        """Keep one more small file of the folder."""

    def bring(self, path: str) -> None:
        """See that such a file is in the folder, if it is kept."""

    def sweep(self, version: Version) -> None:
        """Remove what only earlier versions had, beyond what is removed in the folder."""


def made_since(version: Version, before: Version) -> set[str]:
    """The directories that a version has and the one before has not."""
    return version.paths - before.paths


def version_name(version: Version) -> str:
    """The file of a version."""
    return f"{version.number:08d}.json"
