"""The backends that the contract's tests run on: how each is opened, crashed and broken."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from oncewire.errors import StoreGone
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.sqlite.store import SqliteStore
from tests.postgres import Server
from tests.store.faulty_vfs import FaultyVfs


class Backend(Protocol):
    """One store, and what can happen to it."""

    store: Store

    def crash(self) -> Store:
        """The process dies and is started again; nothing is closed before."""

    def reopen(self) -> Store:
        """Close it properly and open it again."""

    def break_commit(self) -> None:
        """The next commit fails."""

    def break_transition(self) -> None:
        """The store fails in the next transition, when it begins or opens an incident."""

    def close(self) -> None:
        """The test is over."""


class MemoryBackend:
    """The store in memory."""

    def __init__(self) -> None:
        self.memory = MemoryStore("node")
        self.store: Store = self.memory

    def crash(self) -> Store:
        self.memory.crash()
        return self.store

    def reopen(self) -> Store:
        self.store.close()
        return self.store

    def break_commit(self) -> None:
        self.memory.fail_next_commit(StoreGone("broken"))

    def break_transition(self) -> None:
        self.memory.fail_next_transition(StoreGone("broken"))

    def close(self) -> None:
        self.store.close()


class SqliteBackend:
    """The store on SQLite, on a file system that can be told to fail."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._crashes = 0
        self.vfs = FaultyVfs()
        self.path = folder / "store.db"
        self.store: Store = self._open()

    def _open(self) -> Store:
        return SqliteStore(self.path, node="node", vfs=self.vfs.name)

    def crash(self) -> Store:
        # What a killed process leaves is what its files hold at that moment.
        self._crashes += 1
        folder = self._folder / f"after-crash-{self._crashes}"
        folder.mkdir()
        for path in self.path.parent.glob(self.path.name + "*"):
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            elif not path.name.endswith(("-shm", ".owner")):
                shutil.copy(path, folder / path.name)
        self.store.close()
        self.path = folder / self.path.name
        self.store = self._open()
        return self.store

    def reopen(self) -> Store:
        self.store.close()
        self.store = self._open()
        return self.store

    def break_commit(self) -> None:
        self.vfs.fail("sync", 1)

    def break_transition(self) -> None:
        # Pages that are not changed must be read again, and cannot be.
        assert isinstance(self.store, SqliteStore)
        assert self.store._connection is not None
        self.store._connection.pragma("shrink_memory")
        self.vfs.fail("read", 1)

    def close(self) -> None:
        self.vfs.heal()
        self.store.close()
        self.vfs.unregister()


class PostgresBackend:
    """The store on PostgreSQL, in a schema of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.url = server.new_schema()
        self.store: Store = self._open()

    def _open(self) -> PostgresStore:
        return PostgresStore(self.url, node="node", spool=self._folder / "spool")

    @property
    def postgres(self) -> PostgresStore:
        assert isinstance(self.store, PostgresStore)
        return self.store

    def crash(self) -> Store:
        # Of a killed process the server hears that its connection is gone, and nothing else.
        assert self.postgres._connection is not None
        self.postgres._connection.close()
        self.store.close()
        self.store = self._open()
        return self.store

    def reopen(self) -> Store:
        self.store.close()
        self.store = self._open()
        return self.store

    def cut(self) -> None:
        """The server ends the connection that writes."""
        assert self.postgres._connection is not None
        pid = self.postgres._connection.info.backend_pid
        self._server.ask(f"SELECT pg_terminate_backend({pid}, 10000)")

    break_commit = break_transition = cut

    def close(self) -> None:
        self.store.close()
