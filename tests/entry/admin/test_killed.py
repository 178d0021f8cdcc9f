"""A handler that is killed between an upload and its answer: the same key is sent once.

`KILLS=200` in the environment kills as often as a release must show.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import open_readers
from tests.entry.admin.dying import SERVER, admin_alone, serve_alone
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.long]

KILLS = int(os.environ.get("KILLS", "10"))
"""Kills of a handler that is forked, so that many cost little."""
POINTS = ("submit before commit", "submit after commit")
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


class Forked(Killed):
    """acme's handler as a forked process, beside an admin port that stays."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begin()
        self.admin = SERVER.Process(target=admin_alone, args=(folder, self.port), daemon=True)
        self.admin.start()

    def begin(self, point: str = "") -> None:
        """Run it."""
        here, there = SERVER.Pipe()
        self.handler = SERVER.Process(target=serve_alone, args=(self.folder, there, point))
        self.handler.start()
        there.close()
        assert here.recv() == "ready"

    def end(self) -> None:
        """kill -9."""
        self.handler.kill()
        self.handler.join()

    def repeated(self, key: str) -> str:
        """Upload again, until there is an answer."""
        found: list[str] = []

        def answered() -> bool:
            if not self.handler.is_alive():
                # It shared its turn with another step, whose commit was the point of its death.
                self.begin()
            found.extend(filter(None, [self.upload(key)]))
            return bool(found)

        wait_until(answered)
        return found[0]


@pytest.mark.parametrize("point", POINTS)
def test_a_repeated_upload_is_sent_once_when_all_dies(pair: Path, point: str) -> None:
    served = Served(pair)
    served.start("globex")
    acme = Killed(pair / "acme")
    try:
        acme.start(point)
        assert acme.upload("order-17") is None
        assert acme.process is not None
        acme.process.wait()
        acme.start()
        again = acme.upload("order-17")
        assert again is not None
        _check_once(pair, acme, {"order-17": again})
    finally:
        acme.kill()
        served.close()


def test_a_repeated_upload_is_sent_once_whenever_the_handler_dies(pair: Path) -> None:
    """Each life of the handler answers the repeated upload of the life before, and dies in the
    next one: before its commit, after it, or whenever a timer says so."""
    rng = random.Random(SEED)
    print("seed", SEED)
    served = Served(pair)
    served.start("globex")
    acme = Forked(pair / "acme")
    given, lost, kept = {"first": acme.repeated("first")}, 0, 0
    acme.end()
    try:
        for number in range(KILLS):
            before = _last(given)
            # What is repeated comes first, and is committed unless the store has it already.
            count = 1 if _is_kept(pair, before) else 2
            point = rng.choice(["", *(f"{point}:{count}" for point in POINTS)])
            acme.begin(point)
            first, given[before] = given[before], acme.repeated(before)
            assert first in ("", given[before])
            key = f"order-{number}"
            given[key] = ""
            timer = threading.Timer(60 if point else rng.uniform(0, 0.3), acme.end)
            timer.start()
            answered = acme.upload(key)
            if answered is not None:
                acme.end()
            timer.cancel()
            timer.join()
            acme.handler.join()
            lost += answered is None
            kept += answered is None and _is_kept(pair, key)
            given[key] = answered or ""
            print(number, point, "answered" if answered else "lost", flush=True)
        print(f"{KILLS} kills: {lost} answers lost, of which {kept} after the commit", flush=True)
        acme.begin()
        given[_last(given)] = acme.repeated(_last(given))
        _check_once(pair, acme, given)
    finally:
        acme.end()
        acme.admin.kill()
        served.close()


@pytest.fixture(autouse=True)
def _patient(pair: Path) -> None:
    """Retries that outlast every death: none of them may end as unknown meanwhile."""
    agree(pair, {"delivery.retries": "10000"})


def _last(given: dict[str, str]) -> str:
    return next(reversed(given))


def _is_kept(pair: Path, key: str) -> bool:
    """Whether the store has the message of a key, before it is repeated."""
    digest = sha256(f"acme\0app\0{key}".encode()).hexdigest()[:40]
    with open_readers(load(pair / "acme", environ={}).settings).reader() as reader:
        return reader.outgoing(f"{digest}@acme") is not None


def _check_once(pair: Path, acme: Killed, given: dict[str, str]) -> None:
    """Each is delivered, was submitted once here, and received once there."""
    headers = {"Authorization": f"Bearer {acme.secret}"}
    for message_id in given.values():
        where = f"http://127.0.0.1:{acme.port}/messages/{message_id}/wait?timeout=60"
        assert httpx.get(where, headers=headers, timeout=90).json() == {"result": "delivered"}
    assert len(set(given.values())) == len(given)
    for name, kind in (("acme", "submitted"), ("globex", "received")):
        with open_readers(load(pair / name, environ={}).settings).reader() as reader:
            rows = reader.journal_since(0, 1_000_000)
        counted = Counter(row.message_id for row in rows if row.kind == kind)
        assert counted == dict.fromkeys(given.values(), 1)
