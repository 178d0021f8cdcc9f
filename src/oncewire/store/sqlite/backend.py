"""The backend on SQLite: what is loaded, found, applied and done to many rows at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.store.sqlite.applying import Applying
from oncewire.store.sqlite.keeping import Keeping
from oncewire.store.sqlite.mending import Mending
from oncewire.store.sqlite.numbers import Numbers

if TYPE_CHECKING:
    import apsw


class SqliteBackend(Mending, Applying, Keeping):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._numbers = Numbers(self)
        self._learn_columns()

    def commit(self) -> None:
        super().commit()
        self._numbers.bound()

    def changed_elsewhere(self) -> bool:
        """Whether somebody else has written; then nothing that was read holds."""
        changed = super().changed_elsewhere()
        if changed:
            self._numbers.forget()
            self.forget_head()
        return changed

    def undo_steps(self) -> None:
        super().undo_steps()
        self._numbers.forget()
        self.forget_head()
