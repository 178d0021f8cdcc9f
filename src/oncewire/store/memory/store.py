"""The store in memory, for tests and the simulator.

It keeps what is committed and what is not apart, as a disk would: `crash()` loses exactly
the latter, and the same object then serves the restarted node. It draws no chance and
reads no clock, so one seed replays one run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from oncewire.errors import StoreFull, StoreGone, StoreProblem
from oncewire.store.contract import Reader, Transaction
from oncewire.store.memory.backend import MemoryBackend
from oncewire.store.memory.reader import MemoryReader
from oncewire.store.memory.spool import MemorySpool
from oncewire.store.memory.tables import Tables
from oncewire.store.transition.turns import Turns
from oncewire.store.transition.work import Work


class MemoryStore(Turns):
    """See `contract.Store`, whose docstrings hold here."""

    def __init__(self, node: str = "node") -> None:
        super().__init__()
        self.spool = MemorySpool()
        self._node = node
        self._tables = Tables()
        self._readers: list[MemoryReader] = []
        self._commit_failure: StoreProblem | None = None
        self._transition_failure: StoreFull | StoreGone | None = None

    def reader(self) -> AbstractContextManager[Reader]:
        """See `contract.Store`."""
        return _OpenReader(self._tables, self._readers)

    def node(self) -> str:
        """See `contract.Store`."""
        return self._node

    def close(self) -> None:
        """Undo what is not committed; the object may be used again, like a file reopened."""
        self.crash()

    # --- for tests and the simulator ---

    def crash(self) -> None:
        """The process died: everything since the last commit is gone, even a transition
        that is open. The same object then serves the restarted node."""
        self._open = self._lost = None
        self._detach()
        self._readers.clear()
        self._abandon()
        self.spool.crash()

    def fail_next_commit(self, error: StoreProblem) -> None:
        """Let the next commit that has something to do fail with this error."""
        self._commit_failure = error

    def fail_next_transition(self, error: StoreFull | StoreGone) -> None:
        """Let the store fail with this error when the next transition begins."""
        self._transition_failure = error

    # --- for its transitions ---

    def enter(self, transition: AbstractContextManager[Transaction]) -> Transaction:
        """See `Turns`."""
        failure, self._transition_failure = self._transition_failure, None
        if failure is not None:
            self._lose(failure, kept=self.pending())
            raise failure
        return super().enter(transition)

    def _begin(self) -> Work:
        return Work(MemoryBackend(self._tables, self._detach))

    def _abandon(self) -> None:
        self._tables.undo_to(0)
        self._work = None

    def _commit(self, work: Work) -> None:
        failure, self._commit_failure = self._commit_failure, None
        if failure is not None:
            raise failure
        work.write()
        work.backend.commit()
        work.rest()

    def _detach(self) -> None:
        for reader in self._readers:
            reader.detach()


class _OpenReader(AbstractContextManager[Reader]):
    __slots__ = ("_reader", "_readers", "_tables")

    def __init__(self, tables: Tables, readers: list[MemoryReader]) -> None:
        self._tables, self._readers = tables, readers

    def __enter__(self) -> Reader:
        self._reader = MemoryReader(self._tables)
        self._readers.append(self._reader)
        return self._reader

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reader in self._readers:
            self._readers.remove(self._reader)
