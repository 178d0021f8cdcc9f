"""A party on PostgreSQL, restored from a dump of its database and a copy of its documents."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from oncewire.entry.cli import output
from oncewire.entry.party.partners import with_values
from oncewire.lab.demo.stores import check_programs
from tests.buckets import serving
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.postgres import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.process


class Restored:
    """Acme on PostgreSQL, and its backup: a dump of its schema and a copy of its folder."""

    def __init__(self, pair: Path, server: Server, bucket: str) -> None:
        self.pair, self.acme, self._server = pair, pair / "acme", server
        self.url = server.new_schema()
        self._schema = self.url.rpartition("%3D")[2]
        self.set_values(url=self.url, bucket=bucket)
        self._dump, self._copy = pair / "dump.sql", pair / "copy"

    def set_values(self, **said: str) -> None:
        file = self.acme / "oncewire.toml"
        values = {f"store.{name}": f'"{value}"' for name, value in said.items() if value}
        file.write_text(with_values(file.read_text(), values))

    def back_up(self) -> None:
        """As the page says it: the handler has ended."""
        asked = ["-d", self._server.url(), "-n", self._schema, "-f", self._dump]
        subprocess.run([check_programs() / "pg_dump", *asked], check=True)
        shutil.copytree(self.acme, self._copy)

    def restore_database(self) -> None:
        """The database is lost, and made anew from the dump."""
        self._server.ask(f"DROP SCHEMA {self._schema} CASCADE")
        asked = ["-q", "-v", "ON_ERROR_STOP=1", "-d", self._server.url(), "-f", self._dump]
        subprocess.run([check_programs() / "psql", *asked], check=True, stdout=subprocess.DEVNULL)

    def restore_folder(self) -> None:
        shutil.rmtree(self.acme)
        shutil.copytree(self._copy, self.acme)


def exchange(pair: Path, document: Path) -> list[str]:
    """Send the document in both directions; the MessageIds."""
    sent = []
    for name, other in (("acme", "globex"), ("globex", "acme")):
        asked = ("send", document, "--to", other, "--wait", "--timeout", "60", "-c", pair / name)
        (message,) = run_json(*asked)["messages"]
        assert message["state"] == "delivered"
        sent.append(message["message_id"])
    return sent


def seen(party: Path) -> list[Any]:
    """What is known of all messages of a party."""
    listed = [run_json(name, "-c", party)["messages"] for name in ("outbox", "inbox")]
    return [run_json("show", one["message_id"], "-c", party) for each in listed for one in each]


def taken(party: Path, folder: Path) -> list[bytes]:
    """The documents that a party has not taken yet."""
    run("inbox", "take", "--output", folder, "-c", party)
    return [file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()]


@pytest.mark.parametrize("bucket", ["", "s3://spools/acme"])
def test_a_party_is_restored_with_its_spool(
    pair: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    document = tmp_path / "document.bin"
    document.write_bytes(random.Random(3).randbytes(3_000_000))
    with serving() as buckets:
        buckets.empty("spools")
        for variable, value in buckets.environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.chdir(pair)
        party = Restored(pair, postgres, bucket)
        with Served(pair, "acme", "globex"):
            kept = exchange(pair, document)
        party.back_up()
        assert bucket or len([*(pair / "copy" / "data" / "spool").iterdir()]) >= 2
        before = seen(party.acme)
        with Served(pair, "acme", "globex"):
            lost = exchange(pair, document)
        party.restore_database()
        # The folder remembers what the database has forgotten.
        said = run("serve", "-c", party.acme, exit_code=output.TROUBLE).stderr
        assert "older than what was done here" in said
        party.restore_folder()
        assert seen(party.acme) == before
        run("verify", "-c", party.acme)
        run("doctor", "--no-partners", "-c", party.acme, exit_code=None)
        with Served(pair, "acme", "globex"):
            more = exchange(pair, document)
            assert document.read_bytes() in taken(party.acme, tmp_path / "in")
        names = {one["message_id"] for one in seen(party.acme)}
        assert names == {*kept, *more}
        assert not names & {*lost}
        # What the partner knows as delivered, and this store no longer has.
        said = run("verify", "--ended", party.acme, pair / "globex", exit_code=output.WRONG).output
        assert "restored" in said


def test_a_document_that_the_restored_spool_lacks_is_told_of_and_stops_no_other(
    pair: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair)
    first, second = tmp_path / "first.bin", tmp_path / "second.bin"
    for number, document in enumerate((first, second)):
        document.write_bytes(random.Random(number).randbytes(3_000_000))
    party = Restored(pair, postgres, "")
    with Served(pair, "acme", "globex"):
        lost, _ = reversed(exchange(pair, first))
    party.back_up()
    spool = party.acme / "data" / "spool"
    # Without its mark the spool is another one.
    party.restore_database()
    shutil.rmtree(spool)
    assert "no file spool-" in run("serve", "-c", party.acme, exit_code=output.TROUBLE).stderr
    copied = pair / "copy" / "data" / "spool"
    (mark,) = copied.glob("spool-*")
    shutil.copy(mark, spool)
    with Served(pair, "acme", "globex"):
        exchange(pair, second)
        assert second.read_bytes() in taken(party.acme, tmp_path / "in")
        listed = run_json("incidents", "-c", party.acme, exit_code=output.WRONG)
        (called,) = listed["incidents"]
        assert called["message_id"] == lost
        assert "put its bytes back" in called["problem"]
        for file in copied.iterdir():
            shutil.copy(file, spool)
        wait_until(lambda: first.read_bytes() in taken(party.acme, tmp_path / "again"))
