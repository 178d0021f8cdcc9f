"""Secure unless somebody says otherwise: TLS, signatures, pinned certificates, private files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.entry.agreements import load_all
from oncewire.entry.assemble import keys_of
from oncewire.entry.partners import with_values
from oncewire.entry.party import read_card
from oncewire.entry.party_handler import open_party_blocking
from oncewire.entry.settings import load
from oncewire.errors import InvalidValue
from tests.entry.served import Served, both_served
from tests.entry.terminal import run, run_json
from tests.ports import free_port

ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"


@pytest.fixture
def met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two parties as a newcomer makes them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEWIRE_CONFIG", raising=False)
    for name in ("acme", "globex"):
        run("init", name, "--port", str(free_port()))
    run("partner", "add", "globex", "--both", "-c", "acme")
    return tmp_path


@pytest.fixture
def secured(met: Path) -> Iterator[Served]:
    """Both run."""
    with both_served(met) as found:
        yield found


def send(folder: Path, seconds: float = 30) -> str:
    with open_party_blocking(folder / "acme") as party:
        return str(party.wait(party.send("globex", b"<order/>").message_id, seconds))


def test_init_and_partner_add_agree_on_tls_and_signatures(met: Path, secured: Served) -> None:
    (kept,) = load_all(load(met / "acme", environ={}).settings)
    security = kept.agreement.sending.security
    assert (security.sign, security.signature_algorithm) == (True, ECDSA)
    assert kept.agreement.receiving.security.require_signature
    assert kept.agreement.partner.client_certificates
    assert all(end.address.startswith("https:") for end in kept.agreement.partner.endpoints)
    assert send(met) == "delivered"


def test_without_tls_nobody_is_a_partner_by_accident(parties: Path) -> None:
    found = run_json("partner", "add", parties / "globex", exit_code=2)
    assert "listens without TLS" in found["problems"][0]["problem"]
    assert "--insecure" in found["problems"][0]["next"]
    run("partner", "add", parties / "globex", "--insecure")


def test_a_card_tells_a_fingerprint_that_must_be_its_certificate_s(met: Path) -> None:
    card = met / "card.toml"
    run("partner", "card", "-c", "globex", "-o", str(card))
    told = run_json("partner", "card", "-c", "globex")["fingerprint"]
    assert f'fingerprint = "{told}"' in card.read_text()
    other = run_json("partner", "card", "-c", "acme")["fingerprint"]
    card.write_text(card.read_text().replace(told, other))
    with pytest.raises(InvalidValue, match="fingerprint"):
        read_card(card)


def test_a_secret_that_others_can_read_is_refused(met: Path) -> None:
    settings = met / "acme" / "oncewire.toml"
    assert settings.stat().st_mode & 0o777 == 0o600
    settings.write_text(with_values(settings.read_text(), {"application.secret": '"s3cret"'}))
    load(met / "acme", environ={})
    settings.chmod(0o644)
    with pytest.raises(InvalidValue, match="others on this machine can read it"):
        load(met / "acme", environ={})
    key = met / "globex" / "keys" / "globex.key"
    key.chmod(0o640)
    with pytest.raises(InvalidValue, match="private key"):
        keys_of(load(met / "globex", environ={}).settings)


@pytest.mark.long
def test_a_revoked_partner_is_cut_at_once(met: Path, secured: Served) -> None:
    """Its connections are closed, and nothing that was still under way on them is believed."""
    assert send(met) == "delivered"
    assert run_json("partner", "revoke", "acme", "-c", "globex")["revoked"] == 1
    # It is told nothing that it could use, and nothing of it is taken.
    assert send(met, 2) != "delivered"
    with open_party_blocking(met / "globex") as party:
        assert party.status().counts["in.ready"] == 1


def test_a_partner_that_is_added_is_known_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path)
    try:
        for name in ("acme", "globex"):
            run("init", name, "--port", str(free_port()))
            # Nobody is trusted yet, and that is no reason not to listen.
            served.start(name)
        run("partner", "add", "globex", "--both", "-c", "acme")
        assert send(tmp_path) == "delivered"
    finally:
        served.close()


def test_a_key_follows_another_while_both_are_valid(met: Path, secured: Served) -> None:
    old = run_json("keys", "show", "-c", "acme")["fingerprint"]
    new = run_json("keys", "next", "-c", "acme")["fingerprint"]
    assert send(met) == "delivered"
    run("partner", "card", "-c", "acme", "-o", "acme.card.toml")
    run("partner", "add", "acme.card.toml", "--roll-over", "-c", "globex")
    assert send(met) == "delivered"
    run("keys", "switch", "-c", "acme")
    assert run_json("keys", "show", "-c", "acme")["fingerprint"] == new != old
    assert send(met) == "delivered"
    run("partner", "revoke", "acme", "--all-but-newest", "-c", "globex")
    assert send(met) == "delivered"
