"""A party's folder, cards, and agreements that two parties make from them."""

import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.cppa.writer import write_cpa
from oncewire.entry.party.agreements import load_all
from oncewire.entry.party.folder import Card, KeyKind, card_of, describe_keys, make_party, read_card
from oncewire.entry.party.partners import (
    PartnerOptions,
    add_partner,
    keys_of,
    make_next_keys,
    partner_file,
    revoke,
    switch_keys,
    with_values,
)
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.transports import client_settings, http_transport, server_settings
from oncewire.errors import AgreementProblem, InvalidValue, NotAllowed, NotHere
from oncewire.handler.world import RealWorld
from oncewire.message.form import AckRequest
from oncewire.transport.budget import BudgetLimits
from oncewire.transport.contract import OutcomeKind
from oncewire.transport.http.tls import ClientCertificates
from tests.transport.exchange import Receiver, cargo

NOW = RealWorld().now()


def settings_of(folder: Path) -> Settings:
    return load(folder, environ={}).settings


def test_a_new_party_is_whole(parties: Path) -> None:
    folder = parties / "acme"
    found = settings_of(folder)
    assert found.party.name == "acme"
    assert found.endpoint_url == "http://127.0.0.1:8601/msh"
    assert found.path(found.keys.key).stat().st_mode & 0o777 == 0o600
    assert (folder / "keys").stat().st_mode & 0o777 == 0o700
    assert (folder / "data").stat().st_mode & 0o777 == 0o700
    assert load_all(found) == ()
    assert "*.key" in (folder / ".gitignore").read_text()


def test_a_party_is_not_made_over_another(parties: Path) -> None:
    before = (parties / "acme" / "oncewire.toml").read_text()
    with pytest.raises(NotAllowed, match="holds a party already"):
        make_party(parties / "acme", "acme", now=NOW, key_kind=KeyKind.EC)
    assert (parties / "acme" / "oncewire.toml").read_text() == before


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "é", "x" * 64, "a\n"])
def test_a_name_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be a party's name"):
        make_party(tmp_path / "p", name, now=NOW)
    assert not (tmp_path / "p").exists()


def test_a_party_id_without_type_must_be_a_uri(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is no URI"):
        make_party(tmp_path / "p", "p", now=NOW, party_id="12345")
    made = make_party(
        tmp_path / "q", "q", now=NOW, party_id="12345", party_type="urn:x:duns", key_kind=KeyKind.EC
    )
    assert made.party_id == "12345"
    assert settings_of(tmp_path / "q").party.party_type == "urn:x:duns"


def test_a_party_open_to_the_world_does_not_call_inwards(tmp_path: Path) -> None:
    make_party(tmp_path / "p", "p", now=NOW, host="0.0.0.0", key_kind=KeyKind.EC)
    assert settings_of(tmp_path / "p").http.allow == ("public",)


# --- cards -------------------------------------------------------------------------------------


def test_a_card_survives_the_mail(parties: Path, tmp_path: Path) -> None:
    own = card_of(settings_of(parties / "acme"))
    file = tmp_path / "acme.card.toml"
    file.write_text(own.to_toml())
    assert read_card(file) == Card(own.name, own.party_id, own.url, own.certificate, own.party_type)
    assert read_card(parties / "acme") == own
    assert "PRIVATE" not in own.to_toml()


def test_a_card_with_odd_characters_is_still_toml(parties: Path) -> None:
    certificate = (parties / "acme" / "keys" / "acme.crt").read_text()
    own = Card("acme", 'urn:x:"quoted"\\back', "http://h/", certificate, "t")
    assert tomllib.loads(own.to_toml())["party_id"] == 'urn:x:"quoted"\\back'


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("version = 1", "version = 2"), "no card of version 1"),
        (("version = 1", "version = 1\nevil = 1"), "evil"),
        (('name = "acme"', 'name = "../../etc"'), "cannot be a party's name"),
        (('name = "acme"', ""), "name is missing"),
        (('name = "acme"', "name = 5"), "name is missing"),
        (("http://127", "file://127"), "url is no http address"),
        (("http://127", "http://user:pw@127"), "url is no http address"),
        (("BEGIN CERTIFICATE", "BEGIN NONSENSE"), "no certificate"),
        (("version = 1", "version = "), "is no card"),
    ],
)
def test_a_bad_card_is_refused(
    parties: Path, tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    text = card_of(settings_of(parties / "acme")).to_toml()
    file = tmp_path / "bad.card.toml"
    assert change[0] in text
    file.write_text(text.replace(*change))
    with pytest.raises(InvalidValue, match=sentence) as caught:
        read_card(file)
    assert caught.value.remedy


def test_a_card_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotHere):
        read_card(tmp_path / "none.card.toml")
    with pytest.raises(NotHere, match="no party's folder"):
        read_card(tmp_path)


def test_a_party_without_a_name_has_no_card(tmp_path: Path) -> None:
    (tmp_path / "oncewire.toml").write_text("")
    with pytest.raises(InvalidValue, match="who the party is"):
        card_of(settings_of(tmp_path))


# --- partners ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        PartnerOptions(),
        PartnerOptions(sign=True),
        PartnerOptions(ordered=True),
        PartnerOptions(profile="window"),
        PartnerOptions(profile="rm-0.78"),
        PartnerOptions(profile="ms-0.9x-typed", sign=True),
        PartnerOptions(cpa_id="urn:our:own:cpa"),
    ],
)
def test_both_sides_end_with_agreements_that_fit(parties: Path, options: PartnerOptions) -> None:
    acme, globex = settings_of(parties / "acme"), settings_of(parties / "globex")
    ours = add_partner(acme, card_of(globex), options)
    theirs = add_partner(globex, card_of(acme), options)
    assert ours.cpa_id == theirs.cpa_id == (options.cpa_id or "acme-globex")
    mine, other = (load_all(home)[0].agreement for home in (acme, globex))
    assert mine.own.party == other.partner.party
    assert mine.partner.party == other.own.party
    assert mine.sending.terms == other.receiving.terms
    assert mine.receiving.terms == other.sending.terms
    assert mine.form == other.form
    for agreement in (mine, other):
        bad = [one for one in check(agreement, now=NOW) if one.severity is Severity.ERROR]
        assert bad == []
        assert agreement.sending.security.sign is options.sign
        assert agreement.sending.security.require_signature is options.sign
        # The partner may ask for a signed acknowledgement where nothing else is signed.
        assert "#ecdsa-" in agreement.sending.security.signature_algorithm


def test_the_default_agreement_is_reliable(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    add_partner(acme, read_card(parties / "globex"), PartnerOptions())
    agreement = load_all(acme)[0].agreement
    terms = agreement.sending.terms
    assert terms.reliable
    assert terms.duplicate_elimination
    assert terms.ack_requested is not AckRequest.NONE
    assert agreement.partner.client_certificates == ()


def test_a_partner_is_not_overwritten_without_a_word(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    card = read_card(parties / "globex")
    added = add_partner(acme, card, PartnerOptions())
    added.agreement.write_text("# edited by hand\n" + added.agreement.read_text())
    with pytest.raises(NotAllowed, match="an agreement with globex already"):
        add_partner(acme, card, PartnerOptions())
    assert added.agreement.read_text().startswith("# edited by hand")
    add_partner(acme, card, PartnerOptions(), replace=True)
    assert not added.agreement.read_text().startswith("# edited by hand")


def test_nobody_is_its_own_partner(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    with pytest.raises(InvalidValue, match="this party itself"):
        add_partner(acme, card_of(acme), PartnerOptions())


def test_a_bad_profile_writes_nothing(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    with pytest.raises(AgreementProblem, match="no profile"):
        add_partner(acme, read_card(parties / "globex"), PartnerOptions(profile="ebsm2"))
    assert list((parties / "acme" / "agreements").iterdir()) == []


def test_a_partners_file_is_found_by_name(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    added = add_partner(acme, read_card(parties / "globex"), PartnerOptions())
    assert partner_file(acme, "globex") == added.agreement
    with pytest.raises(NotHere, match="no partner nobody"):
        partner_file(acme, "nobody")


def test_values_are_said_in_a_commented_file() -> None:
    text = "top = 1\n\n[a]\n# x = 1  # why\ny = 2\n\n[b]\n# x = 5\n"
    said = with_values(text, {"a.x": "7", "b.z": "8", "c.w": "9", "a.y": "3"})
    assert tomllib.loads(said) == {
        "top": 1, "a": {"x": 7, "y": 3}, "b": {"z": 8}, "c": {"w": 9},
    }  # fmt: skip


# --- agreements in the folder ------------------------------------------------------------------


def test_a_bad_agreement_is_named_with_its_file(parties: Path) -> None:
    acme = settings_of(parties / "acme")
    (parties / "acme" / "agreements" / "bad.toml").write_text("cpa_id = 1\n")
    with pytest.raises(AgreementProblem, match=r"bad\.toml"):
        load_all(acme)


def test_a_missing_agreements_folder_is_said(parties: Path) -> None:
    (parties / "acme" / "agreements").rmdir()
    with pytest.raises(NotHere, match="for agreements"):
        load_all(settings_of(parties / "acme"))


def test_a_cpa_in_the_folder_is_an_agreement_too(parties: Path, corpus: Path) -> None:
    cpa = corpus / "ebms-core" / "cpa" / "cpaStubEBF.rm.http.signed-sha256.xml"
    (parties / "acme" / "agreements" / "stub.xml").write_bytes(cpa.read_bytes())
    text = (parties / "acme" / "oncewire.toml").read_text()
    text = text.replace("urn:oncewire:party:acme", "00000000000000000000")
    (parties / "acme" / "oncewire.toml").write_text(text)
    (kept,) = load_all(settings_of(parties / "acme"))
    assert kept.agreement.cpa_id
    assert kept.file.name == "stub.xml"


# --- transports --------------------------------------------------------------------------------


async def test_two_folders_talk_over_mutual_tls(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("acme", "globex")]
    for folder in folders:
        make_party(folder, folder.name, now=NOW, port=0, tls=True, key_kind=KeyKind.EC)
    first, second = (settings_of(folder) for folder in folders)
    add_partner(second, card_of(first), PartnerOptions())

    receiver = Receiver()
    taking = http_transport(second, load_all(second))
    await taking.start(receiver)
    # The system chose the port: only now can the other side learn the address.
    card = card_of(second)
    add_partner(
        first, Card(card.name, card.party_id, taking.url, card.certificate), PartnerOptions()
    )
    sending = http_transport(first, load_all(first), listen=False)
    await sending.start(Receiver())
    stranger = http_transport(second, (), listen=False)
    await stranger.start(Receiver())
    outcome = await sending.send(cargo(b"<a/>"), taking.url, timeout=30)
    # A party whose certificate nobody was given does not get in.
    refused = await stranger.send(cargo(b"<b/>"), taking.url, timeout=30)
    for transport in (sending, stranger, taking):
        await transport.stop()
    assert outcome.kind is OutcomeKind.SENT, outcome
    assert refused.kind is not OutcomeKind.SENT
    assert [taken.body for taken in receiver.taken] == [b"<a/>"]
    agreement = load_all(second)[0].agreement
    shown = receiver.taken[0].peer.certificate
    assert shown is not None
    import hashlib

    assert hashlib.sha256(shown).hexdigest() in agreement.partner.client_certificates


def test_settings_reach_the_transport(parties: Path) -> None:
    found = load(
        parties / "acme",
        environ={},
        flags={
            "http.connections": "7",
            "http.max_body": "99",
            "http.tls": "true",
            "http.client_certificates": "optional",
            "http.allow": "10.0.0.0/8",
            "http.path": "/x",
            "budget.connections_per_address": "5",
            "budget.refusals": "3",
            "budget.processor": "PT7S",
        },
    ).settings
    add_partner(found, read_card(parties / "globex"), PartnerOptions())
    server = server_settings(found)
    assert server.limits.per_address == 5
    assert server.budget == BudgetLimits(refusals=3, processor=7.0)
    assert (server.limits.connections, server.limits.max_body, server.path) == (7, 99, "/x")
    assert server.tls is not None
    assert server.tls.client_certificates is ClientCertificates.OPTIONAL
    # The partner, and we ourselves.
    assert len(server.tls.trusted) == 2
    client = client_settings(found, load_all(found))
    assert client.addresses.permits("10.1.1.1")
    assert not client.addresses.permits("8.8.8.8")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("survived", range(3))
def test_a_kill_at_any_step_of_a_roll_over_leaves_a_party_that_starts(
    parties: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    settings = load(parties / "acme", environ={}).settings
    made, before = make_next_keys(settings, RealWorld().now()), keys_of(settings)
    assert before is not None
    left, replace = [survived], Path.replace

    def replaced(path: Path, target: Path) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replaced)
        with suppress(Killed):
            switch_keys(settings)
    # It starts, with one pair or the other.
    found = keys_of(settings)
    assert found is not None
    if found.certificate == before.certificate:
        switch_keys(settings)
    own = describe_keys(settings.path(settings.keys.certificate), settings.path(settings.keys.key))
    assert own.fingerprint == made.fingerprint
    assert not any(file.exists() for file in settings.next_key_files)
    with pytest.raises(NotHere):
        switch_keys(settings)
    # And it can be done once more.
    make_next_keys(settings, RealWorld().now())
    assert switch_keys(settings).fingerprint != made.fingerprint


def test_a_switch_that_was_killed_is_ended_by_the_next_one(parties: Path) -> None:
    settings = load(parties / "acme", environ={}).settings
    made = make_next_keys(settings, RealWorld().now())
    settings.next_key_files[1].replace(settings.path(settings.keys.key))
    assert switch_keys(settings).fingerprint == made.fingerprint


def test_a_next_key_without_its_certificate_is_made_anew(parties: Path) -> None:
    settings = load(parties / "acme", environ={}).settings
    first = make_next_keys(settings, RealWorld().now())
    first.certificate.unlink()
    assert make_next_keys(settings, RealWorld().now()).fingerprint != first.fingerprint
    describe_keys(*settings.next_key_files)


def test_an_agreement_that_cannot_be_changed_is_called_one(pair: Path) -> None:
    settings = load(pair / "acme", environ={}).settings
    file = partner_file(settings, "globex")
    file.write_bytes(file.read_bytes() + b"# caf\xe9\n")
    with pytest.raises(InvalidValue, match=r"^agreement: .* is not UTF-8"):
        revoke(settings, "globex")


@pytest.mark.parametrize("ending", [".toml", ".xml"])
def test_another_party_of_a_partners_name_never_takes_its_place(
    pair: Path, tmp_path: Path, ending: str
) -> None:
    settings = load(pair / "acme", environ={}).settings
    file = partner_file(settings, "globex")
    if ending == ".xml":
        roles = PartnerOptions(role="Buyer", partner_role="Seller")
        add_partner(settings, read_card(pair / "globex"), roles, replace=True)
        cpa = write_cpa(load_all(settings)[0].agreement)
        file.unlink()
        file = file.with_suffix(ending)
        file.write_bytes(cpa)
    believed = settings.path(settings.keys.partners) / "globex.crt"
    before = file.read_bytes(), believed.read_bytes()
    make_party(tmp_path / "other", "globex", now=NOW, port=8699, party_id="urn:example:mallory")
    card = read_card(tmp_path / "other")
    for replace in (False, True):
        with pytest.raises(NotAllowed) as refused:
            add_partner(settings, card, PartnerOptions(), replace=replace)
    assert "globex is our partner" in refused.value.problem
    assert "urn:example:mallory" in refused.value.problem
    assert "party.name" in (refused.value.remedy or "")
    assert (file.read_bytes(), believed.read_bytes()) == before
