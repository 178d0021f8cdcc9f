"""Several agreements with one partner, one conversation with it, and counts of what others sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import Payload
from oncewire.message.instant import DAY, format_instant
from oncewire.protocol.states import Outcome
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import run, run_json


def second_agreement(pair: Path) -> None:
    """Another CPAId between the same two, on both sides."""
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        folder = pair / own / "agreements"
        text = (folder / f"{partner}.toml").read_text()
        (folder / "second.toml").write_text(text.replace('"acme-globex"', '"second-cpa"'))


@pytest.fixture
def document(pair: Path) -> Path:
    file = pair / "order.xml"
    file.write_text("<order/>")
    return file


def test_each_message_is_listed_under_its_own_agreement(pair: Path, document: Path) -> None:
    second_agreement(pair)
    first = run_json("send", document, "--to", "globex")
    other = run_json("send", document, "--to", "second")
    shown = {row["message_id"]: row["to"] for row in run_json("outbox")["messages"]}
    ids = [sent["messages"][0]["message_id"] for sent in (first, other)]
    assert [shown[message_id] for message_id in ids] == ["globex", "second"]
    why = run_json("why", ids[1])
    assert why["cpa_id"] == "second-cpa"


def test_an_agreement_is_chosen_by_its_cpa_id_too(pair: Path) -> None:
    second_agreement(pair)
    readable = load_readable(load(pair / "acme", environ={}).settings)
    assert find_agreement(readable, "second-cpa").cpa_id == "second-cpa"
    assert find_agreement(readable, "globex").cpa_id == "acme-globex"


def test_send_goes_on_with_the_one_conversation_of_the_partner(pair: Path) -> None:
    readable = load_readable(load(pair / "acme", environ={}).settings)
    agreement = find_agreement(readable, "globex")
    payload = Payload.of("1", "text/plain", b"x")

    def conversation(**said: str) -> str | None:
        return submission_of(agreement, [payload], SendOptions(**said)).conversation_id

    assert conversation() == conversation() != conversation(conversation_id="own") == "own"
    assert conversation(ref_to_message_id="m@x") is None, "that is the other message's"


def test_what_is_sent_in_order_is_delivered_in_order(pair: Path) -> None:
    """FIRST waits for a partner that is away, and SECOND for FIRST."""
    agree(pair, {"sequence.ordered": "true"})
    names = []
    for word in ("FIRST", "SECOND", "THIRD"):
        file = pair / f"{word}.txt"
        file.write_text(word)
        names.append(file)
    run("send", names[0], "--to", "globex")
    run("send", *names[1:], "--each", "--to", "globex")
    channels = {row["channel"] for row in run_json("status")["channels"]}
    with Served(pair, "globex") as served:
        acme = served.start("acme")
        for row in run_json("outbox")["messages"]:
            assert served.do(acme.wait(row["message_id"], 60.0)) is Outcome.DELIVERED
        taken = run_json("inbox", "take", "-c", pair / "globex")
    assert [row["content"] for row in taken["contents"]] == ["FIRST", "SECOND", "THIRD"]
    assert len(channels) == 1


def test_verify_counts_what_others_sent_us(pair: Path, document: Path, tmp_path: Path) -> None:
    with Served(pair, "globex", "acme"):
        run("send", document, "--to", "globex", "--wait", "--timeout", "60")
        run("inbox", "take", "--output", tmp_path / "in", "-c", pair / "globex")
    alone = run_json("verify", pair / "globex")
    assert (alone["submitted"], alone["confirmed_once"]) == (0, 1)
    both = run_json("verify", pair / "acme", pair / "globex")
    assert (both["submitted"], both["confirmed_once"]) == (1, 1)


def test_verify_judges_the_others_where_a_party_has_nothing_yet(pair: Path, document: Path) -> None:
    fresh = pair / "initech"
    run("init", fresh)
    run("send", document, "--to", "globex", "-c", pair / "acme")
    found = run_json("verify", pair / "acme", fresh)
    assert (found["journals"], found["nothing_yet"], found["submitted"]) == (
        ["acme"],
        ["initech"],
        1,
    )
    assert found["summary"].endswith(" initech has sent and received nothing yet.")
    assert run_json("verify", pair / "acme")["nothing_yet"] == []
    # Where nobody has anything there is nothing to judge.
    run("verify", fresh, exit_code=output.NOT_FOUND)


@pytest.mark.long
def test_what_failed_in_an_outage_is_sent_again_with_one_command(
    pair: Path, document: Path
) -> None:
    agree(pair, {"delivery.retries": "0"}, "acme")
    with Served(pair) as served:
        acme = served.start("acme")
        words = ("--to", "globex", "--wait", "--timeout", "30")
        ids = [
            run_json("send", document, *words, exit_code=1)["messages"][0]["message_id"]
            for _ in range(3)
        ]
        assert run_json("resend", "--failed", "--to", "nobody")["resent"] == 0
        served.start("globex")
        assert run_json("resend", "--to", "globex", "--failed")["resent"] == 3
        for message_id in ids:
            assert served.do(acme.wait(message_id, 60.0)) is Outcome.DELIVERED
        assert run_json("resend", "--failed")["summary"] == "Nothing has failed."


def test_a_new_partner_may_be_away_for_a_day(parties: Path) -> None:
    """RTY-18 and DRV-4: constant intervals for a day, within persistDuration."""
    run("partner", "add", parties / "globex", "--insecure")
    readable = load_readable(load(parties / "acme", environ={}).settings)
    terms = find_agreement(readable, "globex").sending.terms
    tried = terms.timeout + terms.retries * terms.retry_interval
    assert tried >= DAY
    assert tried + terms.retry_interval < terms.persist_duration
    found = run_json("agreement", "check", exit_code=None)["findings"]
    assert not [row for row in found if row["key"].startswith("delivery.")]


def test_a_profile_keeps_its_own_patience(parties: Path) -> None:
    run("partner", "add", parties / "globex", "--insecure", "--profile", "nhs-async-reliable")
    readable = load_readable(load(parties / "acme", environ={}).settings)
    assert find_agreement(readable, "globex").sending.terms.retries == 2


def test_ping_waits_for_the_pong_and_says_what_came(pair: Path) -> None:
    """Without synchronous replies a partner answers on a connection of its own, to our handler."""
    with Served(pair, "globex") as served:
        for running in (False, True):
            if running:
                served.start("acme")
            found = run_json("ping", "globex")
            assert found["reached"] == "answered"
            assert found["finding"] == "it answered, on a connection of its own"
        checks = {row["what"]: row for row in run_json("doctor", exit_code=None)["checks"]}
        assert checks["partner globex"]["finding"].startswith("it answered, on a connection of its")


def test_doctor_knows_the_dates_of_agreements(pair: Path) -> None:
    file = pair / "acme" / "agreements" / "globex.toml"
    text = file.read_text()

    def found() -> str:
        checks = run_json("doctor", "--no-partners", exit_code=None)["checks"]
        return " ".join(row["finding"] for row in checks if row["what"] == "agreement globex")

    assert found() == ""
    file.write_text('end = "2020-01-01T00:00:00Z"\n' + text)
    assert "it ended at 2020-01-01T00:00:00Z" in found()
    file.write_text('start = "2990-01-01T00:00:00Z"\n' + text)
    assert "it begins at 2990-01-01T00:00:00Z" in found()
    soon = format_instant(RealWorld().now() + 5 * DAY)
    file.write_text(f'end = "{soon}"\n' + text)
    assert f"it ends at {soon}" in found()
