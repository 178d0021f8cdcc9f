"""Two versions of Oncewire beside each other on one database, while it is upgraded under load."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import oncewire
from oncewire import open_party_blocking
from oncewire.entry.cli import output
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.store.postgresql.connection import known_migrations
from tests.entry.terminal import process, run, run_json
from tests.handler.processes.balancer import Balancer
from tests.ports import free_port
from tests.postgres import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.long]

NEXT = known_migrations()[-1].version + 1
ADDS = """\
ALTER TABLE outgoing ADD COLUMN colour text;
ALTER TABLE incoming ADD COLUMN colour text;
ALTER TABLE counter ADD COLUMN colours bigint NOT NULL DEFAULT 0;
CREATE INDEX incoming_colour ON incoming (colour) WHERE colour IS NOT NULL;
"""
BREAKS = "-- Breaking: messages have no colours any more\nDROP INDEX incoming_colour;\n"


def build(folder: Path, *scripts: str) -> Path:
    """A copy of this version with further steps of the schema."""
    shutil.copytree(
        Path(oncewire.__file__).parent,
        folder / "oncewire",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    steps = folder / "oncewire" / "store" / "postgresql" / "migrations"
    for number, script in enumerate(scripts, NEXT):
        (steps / f"{number:03d}_of_a_test.sql").write_text(script)
    return folder


class Company:
    """Acme as two handlers behind a balancer, and globex, which sends to it all the time."""

    def __init__(self, pair: Path, url: str) -> None:
        self._asking = psycopg.connect(url, autocommit=True)
        self.globex = pair / "globex"
        self.folders = [pair / "acme", pair / "second"]
        ports = [free_port() for _ in self.folders]
        file = pair / "acme" / "oncewire.toml"
        agreed = load(pair / "acme", environ={}).settings.http.port
        values = {"store.url": f'"{url}"', "store.spool": f'"{pair / "spool"}"'}
        file.write_text(with_values(file.read_text(), values))
        for agreement in pair.glob("*/agreements/*.toml"):
            # However long a restart takes on a busy machine.
            patient = {"delivery.retries": "200", "delivery.retry_interval": '"PT0.5S"'}
            agreement.write_text(with_values(agreement.read_text(), patient))
        shutil.copytree(self.folders[0], self.folders[1])
        for folder, port in zip(self.folders, ports, strict=True):
            file = folder / "oncewire.toml"
            file.write_text(with_values(file.read_text(), {"http.port": str(port)}))
        self._balancer = Balancer(pair / "balancer.cfg", agreed, ports)
        self.sent: list[str] = []
        self._over = threading.Event()
        self._sending = threading.Thread(target=self._send)

    def serve(self, number: int, version: Path, exit_code: int = 0) -> str:
        """Start one of the handlers in that version; what it says."""
        folder = self.folders[number]
        said = process("serve", "--detach", "-c", folder, PYTHONPATH=str(version))
        assert said.returncode == exit_code, said.stdout + said.stderr
        return " ".join((said.stdout + said.stderr).split())

    def drain(self, number: int) -> None:
        """End one of them as before an upgrade."""
        assert run_json("serve", "--drain", "-c", self.folders[number])["stopped"]

    def begin(self) -> None:
        """Begin to send."""
        run("serve", "--detach", "-c", self.globex)
        self._sending.start()

    def _send(self) -> None:
        with open_party_blocking(self.globex) as party:
            while not self._over.is_set():
                sent = party.send("acme", b"<order/>", media_type="application/xml")
                self.sent.append(sent.message_id)
                self._over.wait(0.1)

    def more(self) -> None:
        """Until some that are sent from now on have arrived."""
        first = len(self.sent)
        wait_until(lambda: len(self.sent) > first + 10)
        wait_until(lambda: set(self.sent[first : first + 10]) <= set(self.arrived()))

    def arrived(self) -> list[str]:
        """What acme has."""
        rows = self.ask("SELECT message_id FROM incoming JOIN message ON id = message")
        return [str(row[0]) for row in rows]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """What is in acme's database."""
        return self._asking.execute(statement.encode()).fetchall()

    def end(self) -> None:
        """Send no more."""
        self._over.set()
        if self._sending.ident is not None:
            self._sending.join()

    def close(self) -> None:
        self.end()
        run("stop", *self.folders, self.globex, exit_code=None)
        self._balancer.close()
        self._asking.close()


def test_a_rolling_upgrade_under_load(pair: Path, postgres: Server, tmp_path: Path) -> None:
    now = build(tmp_path / "now")
    adding = build(tmp_path / "adding", ADDS)
    breaking = build(tmp_path / "breaking", ADDS, BREAKS)
    with closing(Company(pair, postgres.new_schema())) as company:
        for number in (0, 1):
            company.serve(number, now)
        company.begin()
        company.more()
        # One of them is new, and the other, in its old version, works on beside it.
        company.drain(0)
        company.serve(0, adding)
        assert company.ask("SELECT max(version) FROM migration") == [(NEXT,)]
        company.more()
        assert len(run_json("status", "-c", company.folders[1])["handlers"]) == 2
        # The old one can also begin anew.
        company.drain(1)
        company.serve(1, now)
        company.more()
        # What the other cannot live with is refused, and nobody notices.
        company.drain(1)
        said = company.serve(1, breaking, output.TROUBLE)
        assert "in use by handlers of an older version" in said
        assert "messages have no colours any more" in said
        company.more()
        company.drain(0)
        company.serve(1, breaking)
        company.more()
        assert "this Oncewire knows up to" in company.serve(0, adding, output.TROUBLE)
        company.end()
        wait_until(lambda: set(company.arrived()) == set(company.sent))
        assert len(company.arrived()) == len(company.sent) == len(set(company.sent))
        states = "SELECT count(*) FROM incoming WHERE state <> 'ready'"
        assert company.ask(states) == [(0,)]
        print(f"{len(company.sent)} messages")
    outbox = run_json("outbox", "-c", company.globex, "--limit", "5000")["messages"]
    assert {one["message_id"] for one in outbox} == set(company.sent)
    assert {one["state"] for one in outbox} == {"delivered"}
