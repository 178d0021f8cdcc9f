"""A lake in a folder: a lock for its writer, files forced to disk, and a pointer that is renamed.

The lock, the force and the rename are the file system's: one that is shared over a network must
know them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncewire.errors import NotAllowed
from oncewire.pipeline import crash
from oncewire.pipeline.book import CURRENT_FILE
from oncewire.pipeline.files import force_to_disk, write_forced
from oncewire.pipeline.storage import VERSIONS, made_since, version_name
from oncewire.pipeline.version import Version

LOCK = ".lock"


class Folder:
    """A folder on a file system; see `Storage`, whose docstrings hold here."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, str(root)

    def refresh(self) -> None:
        pass

    @contextmanager
    def claimed(self) -> Iterator[None]:
        # The system lifts the lock when the process dies, however it does.
        (self.root / VERSIONS).mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NotAllowed(
                    f"another run writes to the lake at {self.name}",
                    remedy="wait for it; one lake has one writer",
                ) from None
            yield
        finally:
            os.close(handle)

    def publish(self, version: Version, before: Version) -> None:
        force_to_disk(self.root, made_since(version, before))
        name = version_name(version)
        (self.root / VERSIONS).mkdir(parents=True, exist_ok=True)
        write_forced(self.root / VERSIONS / name, version.as_text())
        crash.reached("before_publishing")
        write_forced(self.root / CURRENT_FILE, name + "\n")
        crash.reached("after_publishing")

    def shown(self) -> None:
        pass

    def keep(self, path: str) -> None:
        pass

    def bring(self, path: str) -> None:
        pass

    def sweep(self, version: Version) -> None:
        pass
