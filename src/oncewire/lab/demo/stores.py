"""Where the parties of the demo keep their messages: in files, on a PostgreSQL server that the demo
starts, or on one that runs already. Tests start that
server, too: the programs of an installation, over files in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from oncewire.errors import InvalidValue, NotAllowed, NotHere, StoreGone, StoreProblem
from oncewire.store.postgresql.connection import check_address, connect, disconnect, place, told_as

USER = "oncewire"
"""The role that owns its database; whoever reaches the socket is let in."""

SYSTEM_USER = "postgres"
"""The account that runs the programs where we are root: they refuse to be run by root."""

START_SECONDS = 120.0
LOOK_EVERY = 0.05

_OPTIONS = re.compile(r"[?&]options=[^&]*")


def find_programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None: no server is installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def check_programs() -> Path:
    """The folder of `initdb` and `postgres`; NotHere where no server is installed."""
    programs = find_programs()
    if programs is None:
        raise NotHere(
            "no PostgreSQL server is installed on this machine",
            remedy="install one (Debian: apt install postgresql), or name one that runs: "
            "--store postgresql://USER@HOST/DATABASE",
        )
    return programs


class PostgresServer:
    """A server that listens on a socket and on no port. Its socket is in a folder of its own, which
    nobody else can enter: the paths of sockets are short."""

    def __init__(self, folder: Path) -> None:
        """Make its files in a folder that is not there yet, and start it."""
        self._programs = check_programs()
        self._folder = folder.resolve()
        self._account = _account()
        self._sockets = Path(tempfile.mkdtemp(prefix="oncewire-postgres-"))
        try:
            self._folder.mkdir(parents=True)
            for place in (self._folder, self._sockets):
                self._hand_over(place)
            options = ("--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={USER}")
            made = self._run("initdb", f"--pgdata={self._data}", "--no-sync", *options)
            if made.wait():
                raise self._failed("could not be made")
            self.start()
        except BaseException:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _hand_over(self, place: Path) -> None:
        """Have the account that runs the server own a folder, and see that it can reach it."""
        if self._account is None:
            return
        closed = next((one for one in place.parents if not one.stat().st_mode & 0o001), None)
        if closed is not None:
            raise NotAllowed(
                f"PostgreSQL does not run as root, and the user {SYSTEM_USER} cannot enter "
                f"{closed}",
                remedy="choose a folder that every user can reach, or do it as another user than "
                "root",
            )
        os.chown(place, *self._account)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        user, group = self._account or (None, None)
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - a program of the installation
                [str(self._programs / program), *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                group=group,
                extra_groups=None if self._account is None else (),
                # Ctrl-C is for whoever started it, who stops it when nothing uses it any more.
                start_new_session=True,
            )

    def _failed(self, how: str) -> StoreProblem:
        return StoreProblem(
            f"the PostgreSQL server {how}", remedy=f"look into {self._folder / 'log'}"
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ("-c", "listen_addresses=", "-c", "max_connections=200")
        self.process = self._run(
            "postgres", "-D", str(self._data), "-k", str(self._sockets), *options
        )
        try:
            for _ in range(int(START_SECONDS / LOOK_EVERY)):
                with contextlib.suppress(StoreGone):
                    self.ask("SELECT 1")
                    return
                if self.process.poll() is not None:
                    break
                time.sleep(LOOK_EVERY)
            raise self._failed("did not start")
        except BaseException:
            self.stop()
            raise

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; SIGINT: without waiting for its clients, SIGQUIT: at once, as in a crash."""
        self.process.send_signal(how)
        self.process.wait()

    def close(self) -> None:
        """Stop it for good; its files stay."""
        self.stop()
        shutil.rmtree(self._sockets)

    def url(self, schema: str = "public") -> str:
        """The address of a schema in its database."""
        return with_schema(f"postgresql:///postgres?host={self._sockets}&user={USER}", schema)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement beside all others."""
        return ask(self.url(), statement)


def with_schema(url: str, schema: str) -> str:
    """The address of a database, with a schema of it as the place of all tables."""
    path = f"-csearch_path%3D{schema}"
    said = _OPTIONS.search(url)
    if said is not None:
        return f"{url[: said.end()]}%20{path}{url[said.end() :]}"
    return f"{url}{'&' if '?' in url else '?'}options={path}"


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in a transaction of its own; returns the rows of its answer."""
    import psycopg

    with told_as(url), psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _account() -> tuple[int, int] | None:
    """The account that runs the programs, as numbers of user and group; None: our own."""
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise NotHere(
            f"PostgreSQL does not run as root, and there is no user {SYSTEM_USER}",
            remedy="do it as another user than root",
        ) from None
    return found.pw_uid, found.pw_gid


# --- the stores of the demo ---

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
