"""A backup is whole, is taken while the handler works, and is a party when it is put back."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.delivery.directory import Directory
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import MANIFEST
from oncewire.entry.running.backup import check_backup, take_backup
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.errors import NotAllowed, OncewireError, StoreProblem
from oncewire.handler.world import RealWorld
from tests.entry.served import Served
from tests.entry.terminal import run, run_json

LARGE = b"x" * 1_200_000


def settings_of(pair: Path, name: str):
    return load(pair / name, environ={}).settings


@pytest.mark.long
def test_a_backup_taken_under_load_is_whole_and_a_party(
    pair: Path, served: Served, tmp_path: Path
) -> None:
    sent: list[str] = []
    stop = threading.Event()

    def work() -> None:
        with open_party_blocking(pair / "acme") as party:
            while not stop.is_set():
                data = LARGE if len(sent) % 5 == 0 else b"<order/>"
                sent.append(party.send("globex", data).message_id)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(4):
            while len(sent) < 10 * (number + 1):
                assert thread.is_alive()
            found = take_backup(settings_of(pair, "acme"), tmp_path / str(number), 1)
            assert check_backup(tmp_path / str(number)).kept == found.kept
            assert found.kept >= 5 * number
    finally:
        stop.set()
        thread.join()
    served.stop("acme")
    shutil.rmtree(pair / "acme")
    shutil.copytree(tmp_path / "3", pair / "acme")
    for name, mode in (("keys/acme.key", 0o600), ("data/oncewire.db", 0o600), ("data", 0o700)):
        assert (pair / "acme" / name).stat().st_mode & 0o777 == mode
    served.start("acme")
    with open_party_blocking(pair / "acme") as party:
        again = party.send("globex", b"<after/>")
        assert str(party.wait(again.message_id, 30)) == "delivered"


def test_a_backup_that_is_not_whole_is_told(pair: Path, served: Served, tmp_path: Path) -> None:
    with open_party_blocking(pair / "acme") as party:
        party.send("globex", LARGE)
    target = tmp_path / "copy"
    take_backup(settings_of(pair, "acme"), target, RealWorld().now())
    with pytest.raises(NotAllowed):
        take_backup(settings_of(pair, "acme"), target, 1)
    for file in [path for path in target.rglob("*") if path.is_file()]:
        kept = file.read_bytes()
        middle = len(kept) // 2
        file.write_bytes(kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :])
        if file.name == MANIFEST:
            file.write_bytes(b"{")
        with pytest.raises(StoreProblem):
            check_backup(target)
        file.unlink()
        with pytest.raises(OncewireError):
            check_backup(target)
        file.write_bytes(kept)
    check_backup(target)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_what_is_no_backup_is_told_as_that(pair: Path, tmp_path: Path) -> None:
    file = tmp_path / "order.xml"
    file.write_text("<order/>")
    for place, said in (
        (tmp_path / "none", "there is no folder"),
        (file, "is no folder"),
        (tmp_path, f"has no {MANIFEST}"),
    ):
        found = run_json("backup", place, "--check", exit_code=output.NOT_FOUND)
        (problem,) = found["problems"]
        assert said in problem["problem"]
        assert str(place) in problem["problem"]
        assert problem["next"] == "name a folder that `oncewire backup` made"


def test_a_damaged_file_of_the_spool_is_told_by_the_backup(
    pair: Path, served: Served, tmp_path: Path
) -> None:
    with open_party_blocking(pair / "acme") as party:
        party.send("globex", LARGE)
    (file,) = (pair / "acme" / "data" / "spool").iterdir()
    file.write_bytes(b"y" + file.read_bytes()[1:])
    with pytest.raises(StoreProblem, match="has changed"):
        take_backup(settings_of(pair, "acme"), tmp_path / "copy", 1)
    assert list(tmp_path.glob("*copy*")) == []


def test_a_restored_party_says_so_until_its_manifest_goes(
    pair: Path, served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_party_blocking(pair / "acme") as party:
        party.send("globex", b"<order/>")
    assert "restored" not in run_json("status")
    run("backup", tmp_path / "copy")
    taken = json.loads((tmp_path / "copy" / MANIFEST).read_text())["taken"]
    served.stop("acme")
    shutil.rmtree(pair / "acme" / "data")
    shutil.copytree(tmp_path / "copy", pair / "acme", dirs_exist_ok=True)
    said = run_json("status")["restored"]
    assert said.startswith(f"from the backup of {taken}")
    assert "in use since" not in said
    served.start("acme")
    assert "the party was restored from a backup" in caplog.messages
    found = run_json("status")
    since = found["restored"].partition("in use since ")[2]
    assert since[:10] == taken[:10]
    assert "oncewire doctor" in found["next"]
    checks = {row["what"]: row for row in run_json("doctor", "--no-partners")["checks"]}
    assert checks["restored"]["grade"] == "warning"
    assert taken in checks["restored"]["finding"]
    assert "--to PARTNER" in checks["restored"]["fix"]
    assert f"remove {pair / 'acme' / MANIFEST}" in checks["restored"]["fix"]
    # A look does not end it, and neither does another start.
    served.stop("acme")
    served.start("acme")
    assert run_json("status")["restored"] == found["restored"]
    (pair / "acme" / MANIFEST).unlink()
    assert "restored" not in run_json("status")
    checks = {row["what"]: row for row in run_json("doctor", "--no-partners")["checks"]}
    assert "restored" not in checks


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"taken": 7, "journal": "x"}'])
def test_a_manifest_that_cannot_be_read_still_says_that_the_party_was_restored(
    pair: Path, served: Served, content: bytes
) -> None:
    (pair / "acme" / MANIFEST).write_bytes(content)
    assert run_json("status")["restored"] == "from a backup that does not say when it was taken"


def test_what_a_killed_process_had_begun_to_write_goes(tmp_path: Path) -> None:
    left = tmp_path / ".abc.1.xml.4711.part"
    left.write_bytes(b"half")
    other = tmp_path / "abc.1.xml"
    other.write_bytes(b"whole")
    Directory(tmp_path)
    assert not left.exists()
    assert other.exists()


@pytest.mark.parametrize("plant", ["link", "file"])
def test_a_backup_is_not_made_where_somebody_elses_link_leads(
    plant: str, pair: Path, served: Served, tmp_path: Path
) -> None:
    """Keys go into a backup."""
    assert served
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "copy"
    elsewhere.mkdir(0o755)
    half = tmp_path / ".copy.part"
    if plant == "link":
        half.symlink_to(elsewhere)
        take_backup(settings_of(pair, "acme"), target, 1)
        assert check_backup(target)
        assert target.stat().st_mode & 0o777 == 0o700
    else:
        half.write_text("somebody's")
        with pytest.raises(NotAllowed, match=r"copy\.part"):
            take_backup(settings_of(pair, "acme"), target, 1)
        assert half.read_text() == "somebody's"
    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o755
