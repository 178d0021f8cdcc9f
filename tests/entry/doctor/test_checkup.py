"""What `doctor` finds, with its fix."""

import asyncio
import os
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.entry.cli.doctor import _answers
from oncewire.entry.doctor import checkup, ping
from oncewire.entry.doctor.checkup import Finding, Grade
from oncewire.entry.doctor.ping import Echo, Reached
from oncewire.entry.files import size_of
from oncewire.entry.party.folder import describe_keys
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import Settings, load
from oncewire.handler.world import RealWorld
from oncewire.message.instant import DAY, SECOND
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import AttemptOutcome, OutcomeKind, Reply
from tests.entry.terminal import run_json

NOW = RealWorld().now()


@pytest.fixture
def settings(pair: Path) -> Settings:
    return load(pair / "acme", environ={}).settings


def by_name(found: Iterable[Finding]) -> dict[str, Finding]:
    return {one.what: one for one in found}


def test_a_sound_store(settings: Settings) -> None:
    SqliteStore(settings.path(settings.store.path), node="acme").close()
    found = by_name(checkup.check_store(settings))
    assert found["database"].grade is Grade.GOOD
    assert found["fsync"].grade is Grade.GOOD
    assert "not the loss of its disk" in found["resilience"].finding
    assert re.search(r", [1-9][0-9]* kB, SQLite", found["database"].finding)
    assert not list(settings.path(settings.store.path).parent.glob(".fsync*"))


def test_an_admin_port_without_its_libraries_is_told_of(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(pair / "acme", environ={}, flags={"admin.port": 8099}).settings
    assert not by_name(checkup.check_address(settings))
    monkeypatch.setattr(checkup, "is_installed", lambda extra: extra != "admin")
    found = by_name(checkup.check_address(settings))["address"]
    assert "admin.port is 8099" in found.finding
    assert found.fix == "pip install 'oncewire[admin]'"


def test_what_is_still_in_its_log_counts_as_the_database(settings: Settings) -> None:
    path = settings.path(settings.store.path)
    store = SqliteStore(path, node="acme")
    try:
        with store.transition() as transaction:
            transaction.remember_agreement("large", "x" * 3_000_000)
        store.commit()
        on_disk = path.stat().st_size + Path(f"{path}-wal").stat().st_size
        assert on_disk > 3_000_000
        found = by_name(checkup.check_store(settings))["database"].finding
        assert found.startswith(f"whole, {size_of(on_disk)} with its log, SQLite ")
    finally:
        store.close()


def test_an_fsync_that_does_nothing_is_noticed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    found = by_name(checkup.check_store(settings))["fsync"]
    assert found.grade is Grade.BAD
    assert found.fix


def test_a_damaged_database_is_noticed(settings: Settings) -> None:
    path = settings.path(settings.store.path)
    SqliteStore(path, node="acme").close()
    data = bytearray(path.read_bytes())
    data[4096:12288] = b"\xff" * 8192
    path.write_bytes(bytes(data))
    path.chmod(0o644)
    findings = [one for one in checkup.check_store(settings) if one.what == "database"]
    assert [one.grade for one in findings] == [Grade.BAD] or findings[0].grade is Grade.BAD
    assert findings[0].fix == "restore it from a backup"


def test_a_volatile_or_remote_disk_is_bad(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("tmpfs", "nfs4"):
        monkeypatch.setattr(checkup, "file_system", lambda _folder, kind=kind: kind)
        assert by_name(checkup.check_store(settings))["disk"].grade is Grade.BAD
    monkeypatch.undo()
    assert checkup.file_system(Path("/proc")) == "proc"


def test_little_space_is_bad(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "SPACE_LOW", 2**60)
    assert by_name(checkup.check_store(settings))["space"].grade is Grade.BAD


def test_a_missing_folder_is_bad(settings: Settings) -> None:
    elsewhere = replace(settings, store=replace(settings.store, path=Path("none/x.db")))
    assert by_name(checkup.check_store(elsewhere))["store"].grade is Grade.BAD


def own_files(settings: Settings) -> tuple[Path, Path]:
    return settings.path(settings.keys.certificate), settings.path(settings.keys.key)


def test_certificates_with_days_left(settings: Settings) -> None:
    found = by_name(checkup.check_certificates(settings, NOW))
    assert {one.grade for one in found.values()} == {Grade.GOOD}
    soon = by_name(checkup.check_certificates(settings, NOW + 715 * DAY))
    assert {one.grade for one in soon.values()} == {Grade.WARNING}
    late = by_name(checkup.check_certificates(settings, NOW + 800 * DAY))
    assert late["our certificate"].grade is late["certificate of globex"].grade is Grade.BAD
    assert "days ago" in late["certificate of globex"].finding
    ended = describe_keys(*own_files(settings)).not_after
    for past, said in ((SECOND, "less than a day ago"), (DAY + SECOND, "1 day ago")):
        just = by_name(checkup.check_certificates(settings, ended + past))["our certificate"]
        assert f"ended {said}, on" in just.finding
    settings.path(settings.keys.key).chmod(0o644)
    (settings.path(settings.keys.partners) / "globex.crt").write_text("rubbish")
    worse = by_name(checkup.check_certificates(settings, NOW))
    assert worse["our key"].grade is worse["certificate of globex"].grade is Grade.BAD


def test_a_clock_that_went_back_is_noticed(settings: Settings, tmp_path: Path) -> None:
    assert by_name(checkup.check_clock(settings, NOW))["clock"].grade is Grade.GOOD
    order = tmp_path / "order"
    order.write_text("x")
    run_json("send", order, "--to", "globex")
    assert by_name(checkup.check_clock(settings, RealWorld().now()))["clock"].grade is Grade.GOOD
    back = by_name(checkup.check_clock(settings, NOW - 60 * SECOND))["clock"]
    assert back.grade is Grade.BAD


def test_what_a_ping_means() -> None:
    def judged(reached: Reached, skew: int | None = None) -> list[Grade]:
        echo = Echo("globex", "cpa", "http://x", reached, "words", 5, skew)
        return [one.grade for one in checkup.judged(echo)]

    assert judged(Reached.ANSWERED, 0) == [Grade.GOOD]
    assert judged(Reached.TAKEN) == [Grade.GOOD]
    assert judged(Reached.REFUSED) == [Grade.BAD]
    assert judged(Reached.UNREACHABLE) == [Grade.WARNING]
    assert judged(Reached.ANSWERED, -90 * SECOND) == [Grade.GOOD, Grade.WARNING]


def test_broken_agreements_are_bad_and_none_a_warning(settings: Settings) -> None:
    file = settings.path(settings.agreements.folder) / "globex.toml"
    file.write_text("nonsense = 1")
    assert [one.grade for one in checkup.check_agreements(settings)[1]] == [Grade.BAD]
    file.unlink()
    assert [one.grade for one in checkup.check_agreements(settings)[1]] == [Grade.WARNING]


@pytest.mark.parametrize(
    ("finding", "step"),
    [
        ("cannot connect: CERTIFICATE_VERIFY_FAILED self-signed", "ask for its new card"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "its certificate has run out"),
        ("the peer's certificate is not the pinned one", "ask for its new card"),
        ("the peer's certificate was revoked", "we have revoked it"),
        ("the connection ended before the answer was there", "give it our card"),
        ("cannot connect to localhost port 1: Connection refused", "check that it runs"),
    ],
)
def test_whose_certificate_was_not_taken_says_who_needs_whose_card(finding: str, step: str) -> None:
    echo = Echo("globex", "cpa", "https://x", Reached.UNREACHABLE, finding, 5, None)
    (found,) = checkup.judged(echo)
    assert step in found.fix


def test_an_address_where_no_handler_answers_is_not_called_a_partner_that_refuses() -> None:
    reply = Reply(404, "text/plain", body=b"not found")
    outcome = AttemptOutcome(OutcomeKind.REFUSED, "HTTP 404 Not Found", reply)
    reached, said, _ = ping._judged(outcome, "https://x/nope")
    assert "HTTP 404 Not Found from https://x/nope" in said
    (found,) = checkup.judged(Echo("globex", "cpa", "https://x/nope", reached, said, 5, None))
    assert found.grade is Grade.BAD
    assert "refuses us" not in found.finding
    assert "https://x/nope is right" in found.fix


def test_the_certificate_of_a_proxy_before_us_is_for_partners_to_judge() -> None:
    said = "cannot connect to b2b.example port 443: CERTIFICATE_VERIFY_FAILED self-signed"
    echo = Echo("acme", "itself", "https://b2b.example/msh", Reached.UNREACHABLE, said, 5, None)
    found = checkup.judged_itself(echo, proxied=True)
    assert found.grade is Grade.WARNING
    assert "https://b2b.example/msh" in found.fix
    assert "partners cannot reach it" not in found.fix
    assert checkup.judged_itself(echo).grade is Grade.BAD
    gone = Echo("acme", "itself", "https://b2b.example/msh", Reached.UNREACHABLE, "refused")
    assert checkup.judged_itself(gone, proxied=True).grade is Grade.BAD


@pytest.mark.parametrize(
    ("proxied", "grade"), [({"http.public_url": "https://b2b.example/msh"}, "warning"), ({}, "bad")]
)
def test_doctor_knows_that_a_proxy_is_before_us(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, proxied: dict[str, object], grade: str
) -> None:
    said = "CERTIFICATE_VERIFY_FAILED self-signed"

    async def pinged(*_given: object) -> list[Echo]:
        return [Echo("acme", "itself", "https://x/msh", Reached.UNREACHABLE, said, 5, None)]

    monkeypatch.setattr("oncewire.entry.doctor.ping.ping", pinged)
    behind = load(settings.folder, environ={}, flags=proxied).settings
    (found,) = _answers(behind, [], None, runs=True)
    assert found.grade.value == grade


def test_look_ups_that_hang_keep_no_other_check_waiting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging: list[int] = []

    def look_up() -> None:
        time.sleep(0.2)
        hanging.pop()

    async def pinged(*_given: object) -> list[Echo]:
        for number in range(3):
            hanging.append(number)
            asyncio.get_running_loop().run_in_executor(None, look_up)
        return []

    async def probed(*_given: object) -> list[Echo]:
        said = f"{len(hanging)} hang"
        return [Echo("globex", "cpa", "mailto:globex@x", Reached.UNREACHABLE, said)]

    monkeypatch.setattr("oncewire.entry.doctor.ping.ping", pinged)
    monkeypatch.setattr("oncewire.entry.doctor.ping.probe_ways", probed)
    kept, _ = checkup.check_agreements(settings)
    assert kept
    assert "0 hang" in _answers(settings, kept, 0.1, runs=False)[-1].finding


@pytest.mark.parametrize(
    ("address", "setting"),
    [
        ("mailto:globex@localhost", "smtp.relay"),
        ("sftp://files.example/globex", "sftp.known_hosts"),
        ("ftp://files.example/globex", "ftp.user"),
        ("ftps://files.example/globex", "ftp.authorities"),
        ("nats:oncewire.globex", "broker.url"),
    ],
)
def test_a_way_over_a_server_of_ours_is_mended_in_our_settings(address: str, setting: str) -> None:
    """The partner has no part in it: nobody there could see why our relay does not answer."""
    echo = Echo("globex", "cpa", address, Reached.UNREACHABLE, "Connection refused")
    (found,) = checkup.judged(echo)
    assert setting in found.fix
    assert address in found.fix
    assert "check that it runs" not in found.fix


def test_a_key_that_is_agreed_for_connections_alone_is_not_agreed_for_signatures(
    pair: Path,
) -> None:
    agreement = pair / "acme" / "agreements" / "globex.toml"
    named = {
        "security.sign": "true",
        "partner.http": '"https://127.0.0.1:1/msh"',
        "own.certificates": '["../keys/acme.crt"]',
        "own.signing_certificates": '["../keys/partners/globex.crt"]',
    }
    agreement.write_text(with_values(agreement.read_text(), named))
    found = run_json("doctor", "--no-partners", exit_code=None)["checks"]
    (bad,) = [each for each in found if each["what"] == "agreement globex"]
    assert bad["grade"] == "bad"
    assert "our signatures are known by the certificate sha256:" in bad["finding"]
    agreement.write_text(
        with_values(agreement.read_text(), {"own.signing_certificates": '["../keys/acme.crt"]'})
    )
    found = run_json("doctor", "--no-partners", exit_code=None)["checks"]
    assert [each for each in found if each["what"] == "agreement globex"] == []
