"""A PostgreSQL server of our own for tests: its programs over a folder that goes afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg

from tests import parts
from tests.waiting import wait_until

USER = "oncewire"


def find_programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None: no server is installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class Server:
    """A server, reached by a socket in its folder."""

    def __init__(self) -> None:
        programs = find_programs()
        if programs is None:
            parts.missing("no PostgreSQL server; `make setup` says how to install one")
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="oncewire-postgres-"))
        self._folder.chmod(0o755)
        self._data, self._socket = self._folder / "data", self._folder / "socket"
        # It refuses to be run by root.
        self._as = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        for folder in (self._data, self._socket):
            folder.mkdir()
            if self._as:
                shutil.chown(folder, **self._as)
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={USER}")
        self._run("initdb", f"--pgdata={self._data}", "--no-sync", *options).wait()
        self.start()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            command = [str(self._programs / program), *arguments]
            return subprocess.Popen(
                command,
                cwd="/",
                stdout=log,
                stderr=log,
                **self._as,  # type: ignore[call-overload]
            )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ("-c", "listen_addresses=", "-c", "max_connections=200")
        self.process = self._run(
            "postgres", "-D", str(self._data), "-k", str(self._socket), *options
        )
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; SIGINT: without waiting for its clients, SIGQUIT: at once, as in a crash."""
        self.process.send_signal(how)
        self.process.wait()

    def close(self) -> None:
        """Stop it, and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, schema: str = "public") -> str:
        """The address of a schema in its database."""
        options = f"options=-csearch_path%3D{schema}"
        return f"postgresql:///postgres?host={self._socket}&user={USER}&{options}"

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement beside all others."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_schema(self) -> str:
        """The address of a schema that nothing is in."""
        name = f"s{uuid.uuid4().hex}"
        self.ask(f"CREATE SCHEMA {name}")
        return self.url(name)
