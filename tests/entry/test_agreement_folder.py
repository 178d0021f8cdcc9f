"""Agreements are read once and kept; a file that has changed is read again."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party import agreements as module
from oncewire.entry.party.agreements import (
    AgreementFolder,
    Kept,
    load_all,
    load_readable,
    read_file,
)
from oncewire.entry.party.folder import read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner, with_values
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.transports import client_settings, server_settings
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.instant import SECOND


@pytest.fixture
def acme(pair: Path) -> Settings:
    return load(pair / "acme", environ={}).settings


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, in their order."""
    found: list[str] = []

    def counted(path: Path, **how: object) -> Agreement:
        found.append(path.name)
        return read_file(path, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "read_file", counted)
    return found


def the_file(settings: Settings) -> Path:
    return settings.path(settings.agreements.folder) / "globex.toml"


def test_what_has_not_changed_is_read_once(acme: Settings, reads: list[str]) -> None:
    folder = AgreementFolder(acme)
    first, second = folder.readable(), folder.readable()
    assert reads == ["globex.toml"]
    assert first.kept[0].agreement is second.kept[0].agreement


def test_a_folder_that_rests_is_not_listed_again(
    acme: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = AgreementFolder(acme), the_file(acme)
    monkeypatch.setattr(module, "SETTLED_NS", -1)
    first = folder.readable()
    listed: list[Path] = []
    monkeypatch.setattr(module, "files_in", lambda place: listed.append(place) or (file,))
    assert folder.readable() is first
    assert not listed
    folder.forget()
    assert folder.readable() is not first
    assert listed


def test_of_many_partners_only_the_one_that_is_asked_for_is_looked_at(
    acme: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = the_file(acme)
    other = file.with_stem("initech")
    other.write_text(file.read_text().replace('cpa_id = "', 'cpa_id = "other-', 1))
    monkeypatch.setattr(module, "SETTLED_NS", -1)
    folder = AgreementFolder(acme)
    first = folder.readable()
    assert find_agreement(first, "initech") is not find_agreement(first, "globex")
    look, looked = module._stamp, []
    monkeypatch.setattr(module, "_stamp", lambda name: looked.append(Path(name)) or look(name))
    assert folder.readable("globex") is first
    assert other not in looked
    for changed in (file, other):
        changed.write_text(with_values(changed.read_text(), {"delivery.retries": "77"}))
        found = find_agreement(folder.readable(changed.stem), changed.stem)
        assert found.sending.terms.retries == 77


def test_a_file_that_comes_within_one_tick_is_found(
    acme: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that has just changed may change again without looking so."""
    monkeypatch.setattr(module, "stamp_of", lambda file: (1, 2, time.time_ns(), 4))
    monkeypatch.setattr(module, "_stamp", lambda name: (1, 2, time.time_ns(), 4))
    folder, file = AgreementFolder(acme), the_file(acme)
    assert len(folder.readable().kept) == 1
    assert folder._found is None
    file.rename(file.with_suffix(".off"))
    assert not folder.readable().kept


def test_what_has_changed_is_read_again(acme: Settings, reads: list[str]) -> None:
    folder, file = AgreementFolder(acme), the_file(acme)
    before = find_agreement(folder.readable(), "globex")
    file.write_text(with_values(file.read_text(), {"delivery.retries": "77"}))
    after = find_agreement(folder.readable(), "globex")
    assert (before.sending.terms.retries, after.sending.terms.retries) != (77, 77)
    assert after.sending.terms.retries == 77
    assert len(reads) == 2


def test_a_certificate_that_it_names_counts_as_part_of_it(acme: Settings, reads: list[str]) -> None:
    folder = AgreementFolder(acme)
    folder.readable()
    (certificate,) = acme.path(acme.keys.partners).glob("*.crt")
    certificate.write_text(certificate.read_text() + "\n# renewed\n")
    folder.readable()
    assert reads == ["globex.toml"] * 2


def test_a_time_that_is_put_back_hides_no_change(acme: Settings) -> None:
    """An edit of the same length, whose file then has the time that it had before."""
    folder, file = AgreementFolder(acme), the_file(acme)
    folder.readable()
    before, text = file.stat(), file.read_text()
    edited = text.replace("PT0.5S", "PT0.6S")
    assert len(edited) == len(text) != 0
    assert edited != text
    file.write_text(edited)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder.has_changed()
    assert folder.readable().kept[0].agreement.sending.terms.timeout == SECOND * 6 // 10
    assert not folder.has_changed()


def test_what_changes_while_it_is_read_is_found_the_next_time(
    acme: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (certificate,) = acme.path(acme.keys.partners).glob("*.crt")
    real = Path.read_bytes

    def overtaken(path: Path) -> bytes:
        data = real(path)
        if path.name == certificate.name:
            monkeypatch.undo()
            certificate.write_text(certificate.read_text() + "# another\n")
        return data

    monkeypatch.setattr(Path, "read_bytes", overtaken)
    folder = AgreementFolder(acme)
    folder.readable()
    assert folder.has_changed()


def test_what_comes_and_goes_is_a_change(acme: Settings) -> None:
    folder, file = AgreementFolder(acme), the_file(acme)
    folder.readable()
    assert not folder.has_changed()
    twin = file.with_name("twin.toml")
    twin.write_text("cpa_id = 1\n")
    assert folder.has_changed()
    folder.readable()
    assert not folder.has_changed()
    twin.unlink()
    assert folder.has_changed()


def test_a_file_that_is_mended_is_read_again(acme: Settings) -> None:
    folder, file = AgreementFolder(acme), the_file(acme)
    good = file.read_text()
    file.write_text("cpa_id = 1\n")
    bad = folder.readable()
    assert (bad.kept, list(bad.problems)) == ([], [file])
    file.write_text(good)
    assert [kept.file for kept in folder.readable().kept] == [file]
    file.unlink()
    assert folder.readable().kept == []


def test_the_second_of_two_of_one_name_is_the_trouble(acme: Settings) -> None:
    file = the_file(acme)
    twin = file.with_name("twin.toml")
    twin.write_text(file.read_text())
    found = load_readable(acme)
    assert [kept.file for kept in found.kept] == [file]
    assert "two agreements are called" in found.problems[twin].problem


MAIL = 'smtp = "mailto:msh@globex.example"\n'


def by_mail(settings: Settings, table: str) -> None:
    file = the_file(settings)
    text = file.read_text().replace("[partner]\n", f"[partner]\n{MAIL}")
    file.write_text(text.replace("[own]\n", f"[own]\n{MAIL}") + table)


def test_an_agreement_that_can_only_go_by_mail_is_not_served(acme: Settings) -> None:
    text = the_file(acme).read_text()
    the_file(acme).write_text(with_values(text, {"delivery.transports": '["smtp"]'}))
    by_mail(acme, "")
    found = load_readable(acme)
    assert found.kept == []
    with pytest.raises(AgreementProblem, match="goes over smtp, which cannot be used yet"):
        find_agreement(found, "globex")
    # It can be read and shown all the same.
    assert [kept.file for kept in load_all(acme)] == [the_file(acme)]


def test_an_action_that_can_only_go_by_mail_is_not_sent(acme: Settings) -> None:
    by_mail(
        acme,
        '\n[[actions]]\ndirection = "send"\nservice = "urn:test:orders"\naction = "Mail"\n'
        'delivery.transports = ["smtp"]\n',
    )
    agreement = find_agreement(load_readable(acme), "globex")
    options = SendOptions(service="urn:test:orders", action="Mail")
    with pytest.raises(InvalidValue, match="Mail goes over smtp, which cannot be used yet"):
        submission_of(agreement, (), options, acme.transports)
    assert submission_of(agreement, (), SendOptions(service="urn:test:other", action="Post")).cpa_id


BROKEN = ("https://[::1", "https://[x]/msh", "https://globex.example:99999/msh")


@pytest.mark.parametrize("address", BROKEN)
@pytest.mark.parametrize("side", ["partner", "own"])
def test_an_address_that_is_no_url_harms_its_own_agreement_alone(
    acme: Settings, side: str, address: str
) -> None:
    file = the_file(acme)
    twin = file.with_name("initech.toml")
    twin.write_text(file.read_text().replace("acme-globex", "acme-initech"))
    file.write_text(with_values(file.read_text(), {f"{side}.http": f'"{address}"'}))
    found = load_readable(acme)
    assert [kept.file for kept in found.kept] == [twin]
    (problem,) = found.problems.values()
    assert f"{side}.http" in problem.problem
    assert "no URL" in problem.problem
    # What looks at an agreement that was read otherwise comes to no harm either.
    kept = Kept(file, read_file(file))
    assert client_settings(acme, [kept])
    assert server_settings(acme, [kept])
    assert any(each.severity is Severity.ERROR for each in check(kept.agreement))


@pytest.mark.parametrize("address", BROKEN)
def test_a_card_with_such_an_address_is_refused(parties: Path, address: str) -> None:
    settings = load(parties / "acme", environ={}).settings
    card = replace(read_card(parties / "globex"), url=address)
    with pytest.raises(AgreementProblem, match="no URL"):
        add_partner(settings, card, PartnerOptions())
    assert list(settings.path(settings.agreements.folder).iterdir()) == []
