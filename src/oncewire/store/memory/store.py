"""The store in memory, for tests and the simulator.

It keeps what is committed and what is not apart, as a disk would: `crash()` loses exactly
the latter, and the same object then serves the restarted node. It draws no chance and
reads no clock, so one seed replays one run.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO

from oncewire.errors import NotAllowed, StoreProblem
from oncewire.message.instant import Instant
from oncewire.store.contract import Reader, Transaction
from oncewire.store.memory.reader import MemoryReader
from oncewire.store.memory.tables import Tables
from oncewire.store.memory.transaction import MemoryTransaction
from oncewire.store.spool import check_name


class MemorySpool:
    """Large payloads in a dictionary; a put is durable at once, as a file is after fsync."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._in_use: Counter[str] = Counter()
        self._made: set[str] = set()

    def begin(self) -> MemorySpoolFile:
        """See `contract.Spool`."""
        return MemorySpoolFile(self.put)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """See `contract.Spool`."""
        content = b"".join(chunks)
        name = hashlib.sha256(content).hexdigest()
        self.use(name)
        if self._in_use[name] == 1 and name not in self._files:
            self._made.add(name)
        self._files[name] = content
        return name, len(content)

    def use(self, name: str) -> None:
        """See `contract.Spool`."""
        self._in_use[name] += 1

    def let_go(self, name: str) -> None:
        """See `contract.Spool`."""
        self._made.discard(name)
        if self._in_use[name] > 0:
            self._in_use[name] -= 1

    def give_back(self, name: str) -> None:
        """See `contract.Spool`."""
        made = name in self._made
        self.let_go(name)
        if made and self._in_use[name] > 0:
            self._made.add(name)
        elif made:
            del self._files[name]

    def crash(self) -> None:
        """The process that used them died."""
        self._in_use.clear()
        self._made.clear()

    def open(self, name: str) -> BinaryIO:
        """See `contract.Spool`."""
        check_name(name)
        if name not in self._files:
            raise StoreProblem(f"spool file {name} is missing", remedy="restore it from a copy")
        return io.BytesIO(self._files[name])

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """See `contract.Spool`."""
        loose = sorted(self._files.keys() - referenced)
        gone = [name for name in loose if self._in_use[name] <= 0][:limit]
        for name in gone:
            del self._files[name]
        return len(gone)


class MemorySpoolFile:
    """See `contract.SpoolFile`."""

    def __init__(self, put: Callable[[Iterable[bytes]], tuple[str, int]]) -> None:
        self._put = put
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """See `contract.SpoolFile`."""
        self._pieces.append(data)

    def finish(self) -> tuple[str, int]:
        """See `contract.SpoolFile`."""
        return self._put(self._pieces)

    def abandon(self) -> None:
        """See `contract.SpoolFile`."""
        self._pieces.clear()


class MemoryStore:
    """See `contract.Store`, whose docstrings hold here."""

    def __init__(self, node: str = "node") -> None:
        self.spool = MemorySpool()
        self._node = node
        self._tables = Tables()
        self._open: _MemoryTransition | None = None
        self._readers: list[MemoryReader] = []
        self._commit_failure: StoreProblem | None = None
        self._transition_failure: StoreProblem | None = None
        # A failure inside a transition lost what was kept before it; commit() has to say so.
        self._lost: StoreProblem | None = None

    def transition(self) -> AbstractContextManager[Transaction]:
        """See `contract.Store`."""
        return _MemoryTransition(self)

    def commit(self) -> None:
        """See `contract.Store`."""
        if self._open is not None:
            raise NotAllowed(
                "a transition is open", remedy="leave it before committing what it did"
            )
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost
        if not self._tables.log:
            return
        failure, self._commit_failure = self._commit_failure, None
        if failure is not None:
            self._tables.undo_to(0)
            raise failure
        self._tables.log.clear()

    def pending(self) -> bool:
        """See `contract.Store`."""
        return bool(self._tables.log) or self._lost is not None

    def next_wake(self) -> Instant | None:
        """See `contract.Store`."""
        sent, received = self._tables.outgoing, self._tables.incoming
        firsts = (sent.due.first, sent.expiring.first, received.leases.first)
        return min((first[0] for first in firsts if first is not None), default=None)

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
        self._tables.undo_to(0)
        self._open = None
        self._lost = None
        self.spool.crash()
        for reader in self._readers:
            reader.detach()
        self._readers.clear()

    def fail_next_commit(self, error: StoreProblem) -> None:
        """Let the next commit that has something to do fail with this error."""
        self._commit_failure = error

    def fail_next_transition(self, error: StoreProblem) -> None:
        """Let the store fail with this error when the next transition begins."""
        self._transition_failure = error

    # --- for its transitions ---

    def enter(self, transition: _MemoryTransition) -> tuple[MemoryTransaction, int]:
        """Begin a transition; its changes start at the mark that is returned."""
        if self._open is not None:
            raise NotAllowed("a transition is open already", remedy="leave it first")
        if self._lost is not None:
            raise self._lost
        failure, self._transition_failure = self._transition_failure, None
        if failure is not None:
            self._lost = failure if self._tables.log else None
            self._tables.undo_to(0)
            raise failure
        for reader in self._readers:
            reader.detach()
        self._open = transition
        return MemoryTransaction(self._tables), len(self._tables.log)

    def leave(self, transition: _MemoryTransition, mark: int, error: BaseException | None) -> None:
        """End a transition. After a crash the old process's transition has no say."""
        if self._open is not transition:
            return
        self._open = None
        if error is not None:
            self._tables.undo_to(mark)


class _MemoryTransition(AbstractContextManager[Transaction]):
    __slots__ = ("_mark", "_store")

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._mark = 0

    def __enter__(self) -> Transaction:
        transaction, self._mark = self._store.enter(self)
        return transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.leave(self, self._mark, error)


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
