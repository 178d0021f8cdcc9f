"""Secure unless somebody says otherwise: TLS, signatures, pinned certificates, private files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.entry.cli.partners import taken_over
from oncewire.entry.party.agreements import load_all
from oncewire.entry.party.folder import KeyKind, make_keys, read_card
from oncewire.entry.party.partners import keys_of, with_values
from oncewire.entry.party.settings import load
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.errors import InvalidValue
from oncewire.handler.world import RealWorld
from oncewire.message.instant import DAY
from tests.entry.served import Served
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
    with Served(met, "acme", "globex") as found:
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


def test_a_card_with_a_next_key_says_how_it_is_taken(met: Path) -> None:
    card = met / "card.toml"

    def hint() -> str:
        card.unlink(missing_ok=True)
        return str(run_json("partner", "card", "-c", "acme", "-o", card)["next"][-1])

    assert not hint().endswith("--roll-over")
    run("keys", "next", "-c", "acme")
    assert hint().endswith("--roll-over")
    refused = run_json("partner", "add", card, "-c", "globex", exit_code=4)
    assert "--roll-over" in refused["problems"][0]["next"]
    told = run_json("keys", "switch", "-c", "acme")["next"][0]
    assert "globex" in told
    assert "oncewire doctor" in told


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
    revoked = run_json("partner", "revoke", "acme", "-c", "globex")
    assert revoked["revoked"] == 1
    assert revoked["next"][0].endswith("partner add CARD --roll-over -c globex")
    # It is told nothing that it could use, and nothing of it is taken.
    assert send(met, 2) != "delivered"
    with open_party_blocking(met / "globex") as party:
        assert party.status().counts["in.ready"] == 1


def test_a_revoked_partner_is_sent_nothing(met: Path, secured: Served) -> None:
    """Whoever has its key could stand at its address."""
    with open_party_blocking(met / "globex") as party:
        before = party.send("acme", b"<order/>").message_id
        assert party.wait(before, 30) == "delivered"
        run("partner", "revoke", "acme", "-c", "globex")
        after = party.send("acme", b"<secret/>").message_id
        assert party.wait(after, 1) is None
    with open_party_blocking(met / "acme") as party:
        assert party.status().counts["in.ready"] == 1
    why = run_json("why", after, "-c", "globex")["why"]
    assert "the peer's certificate was revoked" in why
    echo = run_json("ping", "acme", "-c", "globex", exit_code=1)
    assert "revoked" in echo["finding"]
    found = {one["what"]: one for one in run_json("doctor", "-c", "globex")["checks"]}
    assert found["certificate of acme"]["grade"] == "warning"
    assert "revoked" in found["certificate of acme"]["finding"]


def test_a_partner_that_is_added_is_known_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Served(tmp_path) as served:
        for name in ("acme", "globex"):
            run("init", name, "--port", str(free_port()))
            # Nobody is trusted yet, and that is no reason not to listen.
            served.start(name)
        run("partner", "add", "globex", "--both", "-c", "acme")
        assert send(tmp_path) == "delivered"


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


def test_what_an_old_key_signed_is_told_of_with_what_settles_it(met: Path, secured: Served) -> None:
    """It is sent again as it is, so a partner that dropped the key refuses it for ever."""
    secured.stop("globex")
    (met / "order.xml").write_text("<order/>")
    (sent,) = run_json("send", "order.xml", "--to", "globex", "-c", "acme")["messages"]
    message_id = sent["message_id"]
    _until_tried(message_id)
    assert "signed with" not in run_json("why", message_id, "-c", "acme")["why"]
    run("keys", "next", "-c", "acme")
    run("partner", "card", "-c", "acme", "-o", "acme.card.toml")
    run("partner", "add", "acme.card.toml", "--roll-over", "-c", "globex")
    run("partner", "revoke", "acme", "--all-but-newest", "-c", "globex")
    run("keys", "switch", "-c", "acme")
    secured.start("globex")
    why = run_json("why", message_id, "-c", "acme")["why"]
    assert "signed with a certificate that was ours before" in why
    assert f"`oncewire abandon {message_id} -c acme`" in why
    (worn,) = [
        one for one in run_json("doctor", "-c", "acme")["checks"] if one["what"] == "under way"
    ]
    assert (worn["grade"], message_id in worn["fix"]) == ("warning", True)
    (asked,) = run_json("ask", message_id, "-c", "acme", exit_code=1)["done"]
    assert asked["answer"] == "NotRecognized"
    run("abandon", message_id, "--yes", "-c", "acme")
    assert send(met) == "delivered"
    assert "under way" not in {one["what"] for one in run_json("doctor", "-c", "acme")["checks"]}


def _until_tried(message_id: str) -> None:
    for _ in range(200):
        if "failed" in run_json("why", message_id, "-c", "acme")["why"]:
            return
        time.sleep(0.05)
    raise AssertionError("it was not tried")


def test_a_key_that_is_used_too_early_is_told_of_on_both_sides(met: Path, secured: Served) -> None:
    run("keys", "next", "-c", "acme")
    run("keys", "switch", "-c", "acme")
    for asking, other, step in (
        ("acme", "globex", "does not know our certificate"),
        ("globex", "acme", "ask for its new card"),
    ):
        run_json("ping", other, "-c", asking, exit_code=1)
        checks = run_json("doctor", "-c", asking)["checks"]
        (found,) = [one for one in checks if one["what"] == f"partner {other}"]
        assert step in found["fix"]


def card_of(folder: Path, name: str, **changed: str) -> Path:
    """A party's card in a file, with some of its lines changed."""
    card = folder / f"{name}.card.toml"
    card.unlink(missing_ok=True)
    run("partner", "card", "-c", folder / name, "-o", str(card))
    lines = [
        f'{key} = "{changed[key]}"' if (key := line.partition(" = ")[0]) in changed else line
        for line in card.read_text().splitlines()
    ]
    card.write_text("\n".join(lines) + "\n")
    return card


def test_the_card_of_another_party_is_no_roll_over(met: Path) -> None:
    run("init", "other/globex", "--port", str(free_port()))
    before = (met / "acme" / "keys" / "partners" / "globex.crt").read_text()
    other = card_of(met / "other", "globex", party_id="urn:test:other")
    found = run_json("partner", "add", other, "--roll-over", "-c", "acme", exit_code=2)
    (problem,) = found["problems"]
    assert "urn:test:other" in problem["problem"]
    assert (met / "acme" / "keys" / "partners" / "globex.crt").read_text() == before


def test_a_roll_over_asks_to_compare_and_tells_of_an_address_it_leaves_alone(met: Path) -> None:
    fresh = run_json("keys", "next", "-c", "globex")["fingerprint"]
    moved = card_of(met, "globex", url="https://moved.example/msh")
    hints = " ".join(run_json("partner", "add", moved, "--roll-over", "-c", "acme")["next"])
    assert f"is {fresh} your fingerprint?" in hints
    assert "https://moved.example/msh" in hints


def test_a_certificate_that_was_revoked_does_not_come_back_with_its_old_card(met: Path) -> None:
    card = card_of(met, "globex")
    run("partner", "revoke", "globex", "-c", "acme")
    for flag in ("--replace", "--roll-over"):
        (problem,) = run_json("partner", "add", card, flag, "-c", "acme", exit_code=4)["problems"]
        assert "was revoked here" in problem["problem"]
        assert "globex.revoked" in problem["next"]
    run("keys", "next", "-c", "globex")
    added = run_json("partner", "add", card_of(met, "globex"), "--roll-over", "-c", "acme")
    assert added["summary"] == "globex is believed with its new certificate alone."
    assert not any("revoke" in hint for hint in added["next"]), "nothing is left to revoke"


def test_a_card_that_has_run_out_is_not_taken(met: Path) -> None:
    past = RealWorld().now() - 1000 * DAY
    make_keys(met / "globex" / "keys", "globex", now=past, kind=KeyKind.EC, replace=True)
    for flag in ("--replace", "--roll-over"):
        found = run_json("partner", "add", card_of(met, "globex"), flag, "-c", "acme", exit_code=2)
        assert "ended at" in found["problems"][0]["problem"]


def test_a_fingerprint_looks_the_same_wherever_it_is_told(met: Path) -> None:
    on_card = run_json("partner", "card", "-c", "acme")["fingerprint"]
    assert run_json("keys", "show", "-c", "acme")["fingerprint"] == on_card
    made = run_json("init", "third", "--port", str(free_port()))["fingerprint"]
    assert made == run_json("partner", "card", "-c", "third")["fingerprint"]


def test_the_next_key_has_the_name_of_the_party(met: Path) -> None:
    run("keys", "next", "-c", "acme")
    run("keys", "switch", "-c", "acme")
    assert run_json("keys", "show", "-c", "acme")["subject"] == "CN=acme"


def test_a_file_that_is_right_again_calls_the_operator_no_more(met: Path, secured: Served) -> None:
    key = met / "acme" / "keys" / "acme.key"
    key.chmod(0o644)
    run("partner", "revoke", "globex", "-c", "acme")
    (one,) = run_json("incidents", "-c", "acme", exit_code=1)["incidents"]
    assert "chmod 600" in one["problem"]
    key.chmod(0o600)
    taken_over(load(met / "acme", environ={}).settings)
    assert run_json("incidents", "-c", "acme")["incidents"] == []


def test_nothing_new_is_sent_under_an_agreement_that_has_ended(met: Path, secured: Served) -> None:
    file = met / "acme" / "agreements" / "globex.toml"
    file.write_text("end = 2025-01-01T00:00:00Z\n" + file.read_text())
    order = met / "order.xml"
    order.write_text("<order/>")
    taken_over(load(met / "acme", environ={}).settings)
    found = run_json("send", order, "--to", "globex", "-c", "acme", exit_code=4)
    assert "ended at 2025-01-01" in found["problems"][0]["problem"]
    assert "period" in found["problems"][0]["next"]
