"""A handler that is killed between an upload and its answer: the same key is sent once.

`KILLS=200` in the environment makes as many real kills as the step must show.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import load
from oncewire.entry.running.assemble import open_readers
from tests.entry.served import Served
from tests.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.long]

KILLS = int(os.environ.get("KILLS", "3"))
POINTS = ("submit before commit", "submit after commit", "post before send", "post after send")
SEED = int(os.environ.get("SEED", "28"))


class Killed:
    """acme's handler as a process, which dies and comes back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        settings = load(folder, environ={}).settings
        self.secret = TokenFile(settings.path(settings.admin.tokens)).add("app", list(Permission))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, point: str = "") -> None:
        """Run it; it dies when it reaches the point."""
        environ = dict(os.environ)
        if point:
            environ["ONCEWIRE_KILL_AT"] = f"{point}:1"
        command = [sys.executable, "-m", "oncewire", "serve", "-c", str(self.folder), "--json"]
        self.process = subprocess.Popen(
            [*command, "--set", f"admin.port={self.port}"], stdout=subprocess.PIPE, env=environ
        )
        assert self.process.stdout is not None
        assert b'"ready"' in self.process.stdout.readline()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def upload(self, key: str) -> str | None:
        """The MessageId under which it was taken; None: there was no answer, or it was not."""
        headers = {"Authorization": f"Bearer {self.secret}", "Idempotency-Key": key}
        where = f"http://127.0.0.1:{self.port}/messages?to=globex"
        try:
            found = httpx.post(where, content=key.encode(), headers=headers, timeout=60)
        except httpx.TransportError:
            return None
        if found.status_code == 503:
            return None
        assert found.status_code == 201, found.text
        return str(found.json()["result"]["message_id"])

    def interrupted(self, key: str, after: float) -> str | None:
        """Upload, and kill the handler so many seconds later."""
        answers: list[str | None] = []
        thread = threading.Thread(target=lambda: answers.append(self.upload(key)))
        thread.start()
        time.sleep(after)
        self.kill()
        thread.join()
        return answers[0]


def test_the_same_key_is_sent_once_whatever_dies(pair: Path) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    served = Served(pair)
    served.start("globex")
    acme = Killed(pair / "acme")
    given: dict[str, str] = {}
    lost = 0
    try:
        for point in POINTS:
            acme.start(point)
            first = acme.upload(f"at {point}")
            assert acme.process is not None
            acme.process.wait()
            acme.start()
            again = acme.upload(f"at {point}")
            assert again is not None
            assert first in (None, again)
            given[f"at {point}"] = again
            acme.kill()
        acme.start()
        for number in range(KILLS):
            key = f"order-{number}"
            first = acme.interrupted(key, rng.uniform(0.0, 0.12))
            lost += first is None
            acme.start()
            again = acme.upload(key)
            assert again is not None
            assert first in (None, again)
            given[key] = again
        print("answers lost:", lost, "of", KILLS)
        headers = {"Authorization": f"Bearer {acme.secret}"}
        for message_id in given.values():
            where = f"http://127.0.0.1:{acme.port}/messages/{message_id}/wait?timeout=60"
            found = httpx.get(where, headers=headers, timeout=90)
            assert found.json() == {"result": "delivered"}
        acme.kill()
        _check_once(pair, given)
    finally:
        if acme.process is not None and acme.process.poll() is None:
            acme.kill()
        served.close()


def _check_once(pair: Path, given: dict[str, str]) -> None:
    """Each was submitted once here, and received once there."""
    assert len(set(given.values())) == len(given)
    for name, kind in (("acme", "submitted"), ("globex", "received")):
        with open_readers(load(pair / name, environ={}).settings).reader() as reader:
            rows = reader.journal_since(0, 1_000_000)
        counted = Counter(row.message_id for row in rows if row.kind == kind)
        assert counted == dict.fromkeys(given.values(), 1), json.dumps(counted)
