"""Child: a process of a benchmark, and the tasks that it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

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
        """What it said when it was ready."""
        return self._first

    def ask(self, what: str, *, patience: float = 600.0, **more: object) -> Task:
        """Have a task done."""
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
        """End it at once, as a crash would."""
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
