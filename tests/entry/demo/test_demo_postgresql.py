"""The demo with every party on PostgreSQL: on a server of its own, and on one that runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncewire.entry.cli import output
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue, NotAllowed, NotHere, StoreProblem
from oncewire.lab.demo import stores
from oncewire.lab.demo.stores import OnServer, PostgresServer, stores_called, with_schema
from tests.entry.terminal import run, run_json
from tests.postgres import Server

MESSAGES = 12


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the account which runs a server for root can reach."""
    folder = Path(tempfile.mkdtemp(prefix="oncewire-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def play(folder: Path, store: str) -> dict[str, Any]:
    """A demo in `here`, as a user runs it; what it said."""
    environ = {name: value for name, value in os.environ.items() if "ONCEWIRE_" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "oncewire", "demo", "here", "--store", store, "--no-hub",
         "--no-spark", "--messages", str(MESSAGES), "--limit", "200", "--json"],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["sent"] == said["delivered_once"] == said["orders_in_directory"] == MESSAGES
    assert (said["lost"], said["twice"], said["out_of_order"], said["violations"]) == (0, 0, 0, 0)
    assert said["seller_killed"] is True
    for name in ("buyer", "seller"):
        settings = load(folder / "here" / name, environ={}).settings
        assert settings.store.url.endswith(name)
        assert not settings.path(settings.store.path).exists()
    return said


@pytest.mark.process
@pytest.mark.usefixtures("postgres")
def test_it_starts_a_server_of_its_own_and_stops_it(open_folder: Path) -> None:
    said = play(open_folder, "postgresql")
    server = open_folder / "here" / "postgresql"
    assert (server / "data" / "PG_VERSION").is_file()
    # A server that runs has this file, and one that died leaves it.
    assert not (server / "data" / "postmaster.pid").exists()
    # What it tells the reader to type next does not need the server.
    assert said["next"][0] == "oncewire demo here --store postgresql --keep"
    assert not any(hint.startswith("oncewire outbox") for hint in said["next"])


@pytest.mark.process
def test_on_a_server_that_runs_the_stores_stay(tmp_path: Path, postgres: Server) -> None:
    said = play(tmp_path, postgres.url())
    assert [name.rpartition("_")[2] for name in said["schemas"]] == ["seller", "buyer"]
    here = tmp_path / "here"
    there = run("why", "PO-0003", "-c", here / "buyer", "--with", here / "seller")
    assert "Delivered on attempt" in there.stdout


def test_a_second_demo_in_a_folder_makes_its_schemas_anew(tmp_path: Path, postgres: Server) -> None:
    one, other = OnServer(postgres.url()), OnServer(postgres.url())
    one.start(tmp_path / "one", ("buyer",))
    other.start(tmp_path / "other", ("buyer",))
    for made in (one, other):
        postgres.ask(f"CREATE TABLE {made.schemas[0]}.kept (one int)")
    again = OnServer(postgres.url())
    again.start(tmp_path / "one", ("buyer",))
    assert again.url("buyer") == one.url("buyer")
    found = postgres.ask("SELECT schemaname FROM pg_tables WHERE tablename = 'kept'")
    assert found == [(other.schemas[0],)]


def test_a_machine_without_a_server_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "find_programs", lambda: None)
    said = run_json(
        "demo", tmp_path / "d", "--store", "postgresql", "--no-spark", exit_code=output.NOT_FOUND
    )
    (problem,) = said["problems"]
    assert problem["problem"] == "no PostgreSQL server is installed on this machine"
    assert "apt install postgresql" in problem["next"]
    assert not (tmp_path / "d").exists()


def test_a_machine_without_the_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "find_spec", lambda _name: None)
    with pytest.raises(NotHere, match="not installed") as refused:
        stores_called("postgresql")
    assert "oncewire[postgres]" in refused.value.remedy


def test_another_word_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidValue) as refused:
        stores_called("postgresql:/me:secret@host/db")
    assert "secret" not in str(refused.value) + refused.value.remedy
    with pytest.raises(StoreProblem) as unreadable:
        stores_called("postgresql://me:sec@ret@host/db")
    assert "ret" not in str(unreadable.value)


def test_a_server_that_is_not_there_ends_it_with_a_sentence(tmp_path: Path) -> None:
    address = f"postgresql:///postgres?host={tmp_path}"
    said = run_json(
        "demo", tmp_path / "d", "--store", address, "--no-spark", exit_code=output.TROUBLE
    )
    assert "fails" in said["problems"][0]["problem"]
    assert said["problems"][0]["next"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a server as somebody else")
@pytest.mark.usefixtures("postgres")
def test_root_is_told_which_folder_the_server_cannot_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(NotAllowed, match="cannot enter") as refused:
        PostgresServer(tmp_path / "server")
    assert "every user can reach" in refused.value.remedy


@pytest.mark.usefixtures("postgres")
def test_a_server_that_cannot_be_made_is_told_with_its_log(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "USER", "pg_reserved")
    before = set(Path(tempfile.gettempdir()).glob("oncewire-postgres-*"))
    with pytest.raises(StoreProblem, match="could not be made") as refused:
        PostgresServer(open_folder / "server")
    assert "disallowed" in (open_folder / "server" / "log").read_text()
    assert str(open_folder / "server" / "log") in refused.value.remedy
    assert set(Path(tempfile.gettempdir()).glob("oncewire-postgres-*")) <= before


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://h/db", "postgresql://h/db?options=-csearch_path%3Ds"),
        ("postgresql:///db?host=/x", "postgresql:///db?host=/x&options=-csearch_path%3Ds"),
        (
            "postgresql://h/db?options=-cwork_mem%3D8MB&sslmode=require",
            "postgresql://h/db?options=-cwork_mem%3D8MB%20-csearch_path%3Ds&sslmode=require",
        ),
    ],
)
def test_a_schema_joins_what_an_address_says_already(address: str, expected: str) -> None:
    assert with_schema(address, "s") == expected
