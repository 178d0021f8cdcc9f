"""A PostgreSQL server of our own, for the demo and for tests: the programs of an installation, over
files in a folder."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from oncewire.errors import NotAllowed, NotHere, StoreGone, StoreProblem
from oncewire.store.postgresql.connection import told_as

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
                if self._answers():
                    return
                if self.process.poll() is not None:
                    break
                time.sleep(LOOK_EVERY)
            raise self._failed("did not start")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except StoreGone:
            return False
        return True

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
