"""A party's handler as a process of its own, with a fault put into it where a test wants one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.parts import ROOT
from tests.waiting import PATIENCE, wait_until

_START = """
import sys
sys.argv = ["oncewire", "serve", "--json", "-c", {folder!r}]
{fault}
from oncewire.entry.cli.main import main
main()
"""


class Driven:
    """A handler that runs until the test ends it."""

    def __init__(self, folder: Path, fault: str = "", **environ: str) -> None:
        self.folder, self.log = folder, folder / "driven.log"
        script = _START.format(folder=str(folder), fault=textwrap.dedent(fault))
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": path, **environ},
            )

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert '"ready"' in line, line + self.log.read_text()
        return dict(json.loads(line))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def lines(self, level: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line["level"] == level]

    def wait_for(self, event: str) -> None:
        wait_until(lambda: event in self.log.read_text())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Manager:
    """What a service manager hears."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(PATIENCE)

    def word(self) -> str:
        return self._socket.recv(4096).decode()

    def silent(self, seconds: float) -> bool:
        """Whether nothing is said for so long, after what was said before."""
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(4096)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(PATIENCE)
        return False

    def close(self) -> None:
        self._socket.close()


def ask(folder: Path, *words: str) -> dict[str, Any]:
    """What a command answers in JSON."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "oncewire", *words, "-c", str(folder), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    return dict(json.loads(done.stdout))
