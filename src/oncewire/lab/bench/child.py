"""Child: a process of a benchmark, and the tasks that it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import apsw

from oncewire.entry.party.settings import PREFIX
from oncewire.errors import TransportProblem

START_SECONDS = 60.0
END_SECONDS = 30.0
Task = dict[str, Any]


class Child:
    """Runs a module that answers lines of JSON; see `side`. Use it in a `with` block."""

    def __init__(self, module: str, *arguments: object) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        self._name = module.rpartition(".")[2]
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            [sys.executable, "-P", "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        # Begins with the first answer; a child that says nothing is ended.
        self._first = self._heard(START_SECONDS)

    @property
    def first(self) -> Task:
        """The first line of the child, which says that it is ready."""
        return self._first

    def ask(self, what: str, *, patience: float = 600.0, **more: object) -> Task:
        """Give the child a task and return its result."""
        if self._process.stdin is None:
            raise TransportProblem("the benchmark's process has no input")
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._heard(patience)

    def _heard(self, patience: float) -> Task:
        if self._process.stdout is None:
            raise TransportProblem("the benchmark's process has no output")
        alarm = threading.Timer(patience, self._process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise TransportProblem(
                f"the process {self._name} of the benchmark ended before it answered",
                remedy="what it wrote to the terminal says why",
            )
        found: Task = json.loads(line)
        return found

    def kill(self) -> None:
        """Kill the child, as a crash would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


# Turns: what several works cost, taken by turns, so that what disturbs one disturbs all.

Works = Mapping[str, Callable[[], object]]


def by_turns(works: Works, seconds: float, repeats: int = 1) -> list[dict[str, float]]:
    """Microseconds of each work, the best of many short turns; once for each repeat.

    Counted is the processor's time of this thread, so that a busy machine costs precision only.
    """
    return [_round(works, seconds / repeats) for _ in range(repeats)]


def _round(works: Works, seconds: float) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + seconds
    while True:
        for name, work in works.items():
            begin = time.thread_time()
            for _ in range(5):
                work()
            best[name] = min(best[name], (time.thread_time() - begin) / 5 * 1e6)
        if time.perf_counter() >= end:
            return best


# Counting: what a process asks of SQLite and of the disk, whatever the store is made of.
#
# It costs time, so what is counted is never what is timed.

_TROUBLES = (
    "SELECT ifnull(sum(kind = 'sent' AND attempt > 1), 0), "
    "ifnull(sum(kind IN ('send_failed', 'transient')), 0) FROM journal_row"
)


def _troubles(connection: apsw.Connection) -> tuple[int, int]:
    """Attempts beyond the first, and failed attempts, by the journal."""
    try:
        retries, failed = next(iter(connection.execute(_TROUBLES)))
    except apsw.SQLError:
        # It is no store's.
        return 0, 0
    return int(retries), int(failed)


class Counting:
    """Statements, rows written and commits of every connection that is opened from now on.

    A commit is an fsync: the log is written through at each of them (`synchronous=FULL`).
    """

    def __init__(self) -> None:
        self._statements = self._commits = 0
        self._connections: list[apsw.Connection] = []
        apsw.connection_hooks.append(self._connections.append)

    def begin(self) -> None:
        """Count statements and commits from now on."""
        for connection in self._open():
            connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._statement)
            connection.set_commit_hook(self._commit)

    def totals(self) -> dict[str, int]:
        """All counts so far."""
        rows = sum(connection.total_changes() for connection in self._open())
        troubles = [_troubles(connection) for connection in self._open()]
        return {
            "statements": self._statements,
            "rows": rows,
            "fsyncs": self._commits,
            "retries": sum(found[0] for found in troubles),
            "failed_attempts": sum(found[1] for found in troubles),
        }

    def _open(self) -> list[apsw.Connection]:
        found = []
        for connection in self._connections:
            try:
                connection.total_changes()
            except apsw.ConnectionClosedError:
                continue
            found.append(connection)
        return found

    def _statement(self, _: dict[str, Any]) -> None:
        self._statements += 1

    def _commit(self) -> bool:
        self._commits += 1
        return False
