"""Where the parties of the demo keep their messages: in files, on a PostgreSQL server that the demo
starts, or on one that runs already."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from oncewire.errors import InvalidValue, NotHere
from oncewire.lab.postgres_server import PostgresServer, ask, check_programs, with_schema
from oncewire.store.postgresql.connection import check_address, connect, disconnect, place

POSTGRESQL = "postgresql"
"""What asks for a server of the demo's own, and the folder of that server's files."""


class DemoStores:
    """A file of SQLite for each party, in its folder."""

    # Said of it before the demo begins; empty: nothing.
    told = ""
    # Whether the stores can be read when the demo has ended.
    stay = True
    # The schemas that the demo leaves in a database of somebody else's.
    schemas: tuple[str, ...] = ()

    def start(self, folder: Path, names: Sequence[str]) -> None:
        """Make the stores of a demo in this folder ready."""

    def url(self, _name: str) -> str:
        """The address of a party's store; empty: a file."""
        return ""

    def close(self) -> None:
        """Stop what was started; after the last reader."""


class OnServer(DemoStores):
    """A schema for each party, in a database that is there."""

    def __init__(self, address: str) -> None:
        check_address(address)
        self._address = address
        self._names: dict[str, str] = {}
        self.told = f"Every party keeps its messages on {place(address)}, in a schema of its own."

    def start(self, folder: Path, names: Sequence[str]) -> None:
        """See `DemoStores`. The schemas of an earlier demo in the same folder are made anew."""
        # Refuses a server that would not do for a store.
        disconnect(connect(self._address))
        where = f"{socket.gethostname()} {folder.resolve()}"
        mark = hashlib.sha256(where.encode()).hexdigest()[:12]
        self._names = {name: f"oncewire_demo_{mark}_{name}" for name in names}
        for schema in self._names.values():
            ask(self._address, f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            ask(self._address, f"CREATE SCHEMA {schema}")
        self.schemas = tuple(self._names.values())

    def url(self, name: str) -> str:
        """See `DemoStores`."""
        return with_schema(self._address, self._names[name])


class OnOwnServer(DemoStores):
    """A schema for each party, on a server that the demo starts in its folder."""

    told = (
        "Every party keeps its messages on a PostgreSQL server, in a schema of its own; the server "
        "is started and stopped here."
    )
    stay = False
    _server: PostgresServer | None = None

    def __init__(self) -> None:
        check_programs()

    def start(self, folder: Path, names: Sequence[str]) -> None:
        """See `DemoStores`."""
        self._server = PostgresServer(folder / POSTGRESQL)
        for name in names:
            self._server.ask(f"CREATE SCHEMA {name}")

    def url(self, name: str) -> str:
        """See `DemoStores`."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        return self._server.url(name)

    def close(self) -> None:
        """See `DemoStores`."""
        if self._server is not None:
            self._server.close()


def stores_called(said: str) -> DemoStores:
    """The stores that `--store` asks for; refused where what they need is not there."""
    if not said:
        return DemoStores()
    own = said == POSTGRESQL
    if not own and not said.startswith(("postgresql://", "postgres://")):
        # The value may be a mistyped address with a password, so it is not repeated.
        raise InvalidValue(
            "the demo has no such store",
            remedy="use --store postgresql, or --store postgresql://USER@HOST/DATABASE",
        )
    if find_spec("psycopg") is None:
        raise NotHere(
            "what PostgreSQL needs is not installed", remedy="pip install 'oncewire[postgres]'"
        )
    return OnOwnServer() if own else OnServer(said)
