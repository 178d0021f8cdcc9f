"""A party whose store is on PostgreSQL, and a store that moves there and back."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import apsw
import pytest
from deltalake import DeltaTable

from oncewire.entry.cli import output
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import open_store
from oncewire.entry.running import backup
from oncewire.errors import StoreProblem
from oncewire.store.sql.copying import TABLES
from oncewire.store.sqlite import connection as sqlite
from tests.buckets import Buckets, serving
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.ports import free_port
from tests.postgres import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.process


def keep_in(party: Path, url: str) -> None:
    """Have a party keep its messages there."""
    file = party / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {"store.url": f'"{url}"'}))


def seen(party: Path) -> list[Any]:
    """What commands show of a party's messages."""
    names = [one["message_id"] for one in run_json("outbox", "-c", party)["messages"]]
    names += [one["message_id"] for one in run_json("inbox", "-c", party)["messages"]]
    shown = [run_json("show", name, "-c", party) for name in names]
    raw = [run("show", name, "--raw", "-c", party, exit_code=None).output for name in names]
    status = run_json("status", "-c", party, exit_code=None)
    whys = [run_json("why", name, "-c", party) for name in names]
    return [names, shown, raw, whys, status["channels"], run_json("verify", "-c", party)]


def test_a_party_works_on_postgresql_as_on_a_file(
    pair: Path, postgres: Server, order: Path, tmp_path: Path
) -> None:
    for name in ("acme", "globex"):
        keep_in(pair / name, postgres.new_schema())
    assert run_json("outbox")["messages"] == []
    with Served(pair, "acme", "globex"):
        (sent,) = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")["messages"]
        assert sent["state"] == "delivered"
        (there,) = run_json("inbox", "-c", pair / "globex")["messages"]
        assert there["message_id"] == sent["message_id"]
        assert run_json("status")["running"]
        found = run_json("find", sent["message_id"][:9])["messages"]
        assert [one["message_id"] for one in found] == [sent["message_id"]]
    assert not (pair / "acme" / "data" / "oncewire.db").exists()
    # Without a handler, commands open the store themselves.
    (waiting,) = run_json("send", order, "--to", "globex")["messages"]
    assert run_json("show", waiting["message_id"])["state"] == "outstanding"
    assert "the version of this Oncewire" in run_json("upgrade", "--check")["summary"]
    assert "PostgreSQL" in run("doctor", exit_code=None).output
    run("verify")
    assert "pg_dump" in run("backup", tmp_path / "copy", exit_code=output.NOT_ALLOWED).stderr
    # What is said of the address has no secret in it.
    assert "[secret]" in run("config", "show").output


def kept_in(
    buckets: Buckets, pair: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parties on PostgreSQL, with their documents in a bucket."""
    buckets.empty("spools")
    for variable, value in buckets.environment.items():
        monkeypatch.setenv(variable, value)
    for name in ("acme", "globex"):
        file = pair / name / "oncewire.toml"
        values = {"store.url": f'"{postgres.new_schema()}"'}
        values["store.bucket"] = f'"s3://spools/{name}"'
        file.write_text(with_values(file.read_text(), values))


def test_large_documents_are_kept_in_a_bucket(
    pair: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has a folder of its own for the copies: another handler, or the same one later."""

    def forget() -> None:
        copies = [*pair.glob("*/data/spool/*")]
        assert copies
        for copy in copies:
            copy.unlink()

    document = tmp_path / "document.bin"
    document.write_bytes(random.Random(1).randbytes(3_000_000))
    with serving() as buckets:
        kept_in(buckets, pair, postgres, monkeypatch)
        with Served(pair, "acme", "globex"):
            said = run_json("send", document, "--to", "globex", "--wait", "--timeout", "60")
            (sent,) = said["messages"]
            assert sent["state"] == "delivered"
            forget()
            run("inbox", "take", "--output", tmp_path / "in", "-c", pair / "globex")
            taken = [file.read_bytes() for file in (tmp_path / "in").rglob("*") if file.is_file()]
            assert document.read_bytes() in taken
        # A command that opens the store itself finds them too.
        forget()
        raw = tmp_path / "raw"
        run("show", sent["message_id"], "--raw", "--output", raw, "-c", pair / "globex")
        assert document.read_bytes() in raw.read_bytes()
    # Without its bucket nothing starts, and nothing is taken for lost.
    assert "cannot be reached" in run("doctor", "-c", pair / "acme", exit_code=None).output


def test_parts_of_a_document_are_put_into_a_bucket(
    pair: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in memory and are put in a turn, which is taken again when they are there."""
    document = tmp_path / "document.bin"
    document.write_bytes(random.Random(2).randbytes(500_000))
    with serving() as buckets:
        kept_in(buckets, pair, postgres, monkeypatch)
        for name in ("acme", "globex"):
            (agreement,) = (pair / name / "agreements").glob("*.toml")
            parts = {"payload.max_size": "100_000", "wire.extensions": '["split"]'}
            agreement.write_text(with_values(agreement.read_text(), parts))
        with Served(pair, "acme", "globex"):
            said = run_json("send", document, "--to", "globex", "--wait", "--timeout", "60")
            assert said["messages"][0]["state"] == "delivered"
            run("inbox", "take", "--output", tmp_path / "in", "-c", pair / "globex")
            taken = [file.read_bytes() for file in (tmp_path / "in").rglob("*") if file.is_file()]
            assert document.read_bytes() in taken
    run("verify", pair / "acme", pair / "globex", "--ended")


@pytest.mark.spark
@pytest.mark.long
def test_the_table_of_documents_reads_stores_on_postgresql_and_their_buckets(
    pair: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small document, one that lies in the bucket, and one that travelled in parts; the machine
    has no copy of any."""
    sizes = {"small": 2_000, "large": 90_000, "parts": 500_000}
    with serving() as buckets:
        kept_in(buckets, pair, postgres, monkeypatch)
        for name in ("acme", "globex"):
            (agreement,) = (pair / name / "agreements").glob("*.toml")
            parts = {"payload.max_size": "100_000", "wire.extensions": '["split"]'}
            agreement.write_text(with_values(agreement.read_text(), parts))
        with Served(pair, "acme", "globex"):
            for number, (what, size) in enumerate(sizes.items()):
                document = tmp_path / what
                document.write_bytes(random.Random(number).randbytes(size))
                run_json("send", document, "--to", "globex", "--wait", "--timeout", "120")
        for copy in pair.glob("*/data/spool/*"):
            copy.unlink()
        stores = [word for name in ("acme", "globex") for word in ("--store", pair / name)]
        run("pipeline", "run", "--lake", tmp_path / "lake", *stores)
        # Tasks of a session that runs already would look for the bucket of an earlier test.
        words = ["pipeline", "documents", "--lake", tmp_path / "lake", *stores, "--json"]
        command = [sys.executable, "-m", "oncewire", *words]
        said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert said["verdicts"] == {"whole": 2 * len(sizes)}
    rows = DeltaTable(str(tmp_path / "lake/silver/documents")).to_pyarrow_table().to_pylist()
    digests = [hashlib.sha256((tmp_path / what).read_bytes()).hexdigest() for what in sizes]
    for direction in ("out", "in"):
        found = [row["sha256_stored"] for row in rows if row["direction"] == direction]
        assert sorted(found) == sorted(digests)


def test_a_bucket_is_for_a_store_on_postgresql(pair: Path, order: Path) -> None:
    file = pair / "acme" / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {"store.bucket": '"s3://spools"'}))
    said = run("send", order, "--to", "globex", exit_code=output.BAD_INPUT).stderr
    assert "set store.url too" in said


def test_another_database_is_not_taken_for_the_partys(
    pair: Path, postgres: Server, order: Path
) -> None:
    keep_in(pair / "acme", postgres.new_schema())
    run("send", order, "--to", "globex")
    keep_in(pair / "acme", postgres.new_schema())
    assert "is empty" in run("outbox", exit_code=output.TROUBLE).stderr
    assert "is empty" in run("send", order, "--to", "globex", exit_code=output.TROUBLE).stderr


def evidence(party: Path, name: str, folder: Path) -> dict[str, bytes]:
    """The receipt of a message, with all that proves it."""
    file = folder / f"{len([*folder.glob('*.zip')])}.zip"
    run("evidence", name, "--output", file, "-c", party, exit_code=None)
    with ZipFile(file) as found:
        return {each: found.read(each) for each in found.namelist() if "README" not in each}


def test_a_store_moves_to_postgresql_and_back(
    pair: Path, postgres: Server, order: Path, tmp_path: Path
) -> None:
    acme = pair / "acme"
    parts = {"payload.max_size": "100_000", "wire.extensions": '["split"]'}
    for name in ("acme", "globex"):
        (agreement,) = (pair / name / "agreements").glob("*.toml")
        agreement.write_text(with_values(agreement.read_text(), parts))
    document = tmp_path / "document.bin"
    document.write_bytes(random.Random(5).randbytes(3_000_000))
    with Served(pair, "acme", "globex"):
        for sent in (order, document, order):
            for name, other in (("acme", "globex"), ("globex", "acme")):
                waits = ("--wait", "--timeout", "60", "-c", pair / name)
                run_json("send", sent, "--to", other, *waits)
        run("inbox", "take", "--output", tmp_path / "in", "-c", acme)
    held = run_json("outbox", "-c", acme)["messages"][0]["message_id"]
    run("hold", held, "-c", acme)
    receipt = evidence(acme, held, tmp_path)
    before = seen(acme)
    url = postgres.new_schema()
    first = run_json("store", "copy", url)
    assert {"outgoing", "journal_row", "node"} <= {one["table"] for one in first["tables"]}
    keep_in(acme, url)
    (acme / "data" / "oncewire.db").rename(acme / "data" / "was.db")
    assert seen(acme) == before
    assert evidence(acme, held, tmp_path) == receipt
    back = acme / "data" / "oncewire.db"
    second = run_json("store", "copy", back)
    assert second["tables"] == first["tables"]
    keep_in(acme, "")
    assert seen(acme) == before
    assert evidence(acme, held, tmp_path) == receipt
    with Served(pair, "acme", "globex"):
        (sent,) = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")["messages"]
        assert sent["state"] == "delivered"


def test_a_copy_is_made_of_a_store_at_rest_and_into_nothing(
    pair: Path, postgres: Server, order: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no store" in run("store", "copy", tmp_path / "a.db", exit_code=output.NOT_FOUND).stderr
    run("send", order, "--to", "globex")
    store = open_store(load(pair / "acme", environ={}).settings)
    said = run("store", "copy", tmp_path / "a.db", exit_code=output.TROUBLE).stderr
    assert "in use by another handler" in said
    store.close()
    run("store", "copy", tmp_path / "a.db")
    assert "already" in run("store", "copy", tmp_path / "a.db", exit_code=output.NOT_ALLOWED).stderr
    url = postgres.new_schema()
    run("store", "copy", url)
    assert "a store already" in run("store", "copy", url, exit_code=output.TROUBLE).stderr
    # What was copied is compared with what is there.
    spoil = "INSERT INTO terms (terms_id, content) VALUES ('x', 'y')"
    copy, spoilt = backup.copy, postgres.new_schema()

    def disturbed(source: Any, target: Any) -> Any:
        write = target.write

        def twice(writes: Any) -> None:
            write(writes)
            if writes[0].table == "terms":
                target.change(spoil)

        target.write = twice
        return copy(source, target)

    monkeypatch.setattr(backup, "copy", disturbed)
    with pytest.raises(StoreProblem, match="is not what was copied"):
        backup.copy_store(load(pair / "acme", environ={}).settings, spoilt)


def test_every_table_is_copied() -> None:
    made = apsw.Connection(":memory:")
    sqlite.migrate(made, sqlite.known_migrations())
    names = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    assert {name for (name,) in names} == {*TABLES}
    for table, key in TABLES.items():
        columns = made.execute(f"PRAGMA table_info({table})").fetchall()
        assert {name for _, name, *_, place in columns if place} == {*key}, table


def test_a_party_is_made_with_its_database(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_schema()
    run("init", tmp_path / "acme", "--store", url)
    assert load(tmp_path / "acme", environ={}).settings.store.url == url
    wrong = run("init", tmp_path / "other", "--store", "mysql://db", exit_code=output.BAD_INPUT)
    assert "PostgreSQL" in wrong.stderr
    assert not (tmp_path / "other").exists()


def test_two_handlers_of_a_party_work_beside_each_other_and_one_drains(
    pair: Path, postgres: Server, order: Path
) -> None:
    acme, second, url = pair / "acme", pair / "second", postgres.new_schema()
    spool = {"store.spool": f'"{pair / "spool"}"'}
    keep_in(acme, url)
    file = acme / "oncewire.toml"
    file.write_text(with_values(file.read_text(), spool))
    shutil.copytree(acme, second)
    file = second / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    folders = (acme, second, pair / "globex")
    try:
        started = [run_json("serve", "--detach", "-c", folder) for folder in folders]
        shown = run_json("status", "-c", second)["handlers"]
        assert [one["pid"] for one in shown] == [one["pid"] for one in started[:2]]
        assert {one["state"] for one in shown} == {"running"}
        assert all(0 < one["lease_ms"] <= 15_000 for one in shown)
        for folder in (acme, second):
            # Its acknowledgement comes to the first one, whose address the partner has.
            (sent,) = run_json(
                *("send", order, "--to", "globex", "--wait", "--timeout", "60", "-c", folder)
            )["messages"]
            assert sent["state"] == "delivered"
            assert run_json("show", sent["message_id"], "-c", acme)["state"] == "delivered"
        # The answer to the question of the second comes there, too.
        assert "own" in run("ping", "globex", "-c", second).output
        said = run_json("serve", "--drain", "-c", second)
        assert said["pid"] == started[1]["pid"]
        assert said["stopped"]
        wait_until(lambda: len(run_json("status", "-c", acme)["handlers"]) == 1)
        # A command beside the handler that goes on, in the folder of the one that has ended.
        (waiting,) = run_json("send", order, "--to", "globex", "-c", second)["messages"]
        wait_until(lambda: run_json("show", waiting["message_id"])["state"] == "delivered")
    finally:
        run("stop", *folders)
    assert not run_json("serve", "--drain", "-c", second)["stopped"]
    run("verify", "-c", acme)


def test_a_handler_with_a_spool_of_its_own_is_refused_and_doctor_says_so(
    pair: Path, postgres: Server, order: Path
) -> None:
    acme, second = pair / "acme", pair / "second"
    keep_in(acme, postgres.new_schema())
    shutil.copytree(acme, second)
    run("send", order, "--to", "globex", "-c", acme)
    for command in (("send", order, "--to", "globex"), ("serve",)):
        said = run(*command, "-c", second, exit_code=output.TROUBLE).stderr
        assert "is not the one that" in said
        assert "set store.spool" in said

    def doubts(folder: Path) -> list[str]:
        checks = run_json("doctor", "--no-partners", "-c", folder, exit_code=None)["checks"]
        return [one["finding"] for one in checks if one["what"] == "spool"]

    assert doubts(acme) == []
    (said,) = doubts(second)
    assert "is not the one that" in said
