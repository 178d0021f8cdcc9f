"""A PostgreSQL server of our own for tests, over a folder that goes afterwards."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

from oncewire.lab.demo.stores import PostgresServer, find_programs
from tests import parts

MEMORY = Path("/dev/shm")
"""A file system that is kept in memory, on Linux."""

ROOM = 2 * 1024**3
"""Bytes that have to be free there."""


class Server(PostgresServer):
    """A server for tests."""

    def __init__(self) -> None:
        if find_programs() is None:
            parts.missing("no PostgreSQL server; `make setup` says how to install one")
        # The folders of a test are closed to the account that runs the server for root. In memory
        # its disk is never waited for, and what a crash of the server loses is the same.
        memory = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else None
        self._parent = Path(tempfile.mkdtemp(prefix="oncewire-postgres-", dir=memory))
        self._parent.chmod(0o755)
        super().__init__(self._parent / "server")

    def close(self) -> None:
        """Stop it, and remove its folder."""
        super().close()
        shutil.rmtree(self._parent)

    def new_schema(self) -> str:
        """The address of a schema that nothing is in."""
        name = f"s{uuid.uuid4().hex}"
        self.ask(f"CREATE SCHEMA {name}")
        return self.url(name)
