"""Two parties meet by invitation, and see what works between them: `oncewire partner ...`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.party.partners import with_values
from oncewire.message.trial import TRIAL_MARK, TRIAL_SERVICE
from tests.entry.served import Served, both_served
from tests.entry.terminal import run, run_json
from tests.ports import free_port

WORKING = [
    "ping",
    "a message",
    "signatures",
    "status",
    "a copy",
    "a lost acknowledgement",
    "a large message",
    "a late copy",
]


@pytest.fixture
def strangers(parties: Path) -> Path:
    """Two parties on free ports that know nothing of each other."""
    for name in ("acme", "globex"):
        file = parties / name / "oncewire.toml"
        file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    return parties


def meet(folder: Path, *options: str) -> None:
    invitation, acceptance = folder / "i.toml", folder / "a.toml"
    run("partner", "invite", "-o", invitation, *options)
    run("partner", "accept", invitation, "-o", acceptance, "-c", folder / "globex")
    run("partner", "accept", acceptance)


@pytest.fixture
def met(strangers: Path) -> Iterator[Served]:
    meet(strangers, "--insecure", "--sign")
    with both_served(strangers) as served:
        yield served


def test_one_file_each_way_makes_the_same_agreement_at_both(strangers: Path) -> None:
    meet(strangers, "--insecure", "--sign", "--ordered", "--profile", "ebms2")
    found = {
        name: (strangers / name / "agreements" / f"{other}.toml").read_text()
        for name, other in (("acme", "globex"), ("globex", "acme"))
    }
    ours, theirs = (tomllib.loads(found[name]) for name in ("acme", "globex"))
    assert ours["cpa_id"] == theirs["cpa_id"] == "acme-globex"
    assert ours["own"]["party_id"] == theirs["partner"]["party_id"]
    assert ours["own"]["http"] == theirs["partner"]["http"]
    for key in ("ack", "sequence", "delivery"):
        assert ours[key] == theirs[key]
    assert ours["sequence"]["ordered"] is True
    invited = tomllib.loads((strangers / "i.toml").read_text())
    assert invited["card"]["fingerprint"]
    assert invited["agreement"]["sign"] is True


def test_an_acceptance_of_another_invitation_is_not_taken(strangers: Path) -> None:
    invitation, acceptance = strangers / "i.toml", strangers / "a.toml"
    run("partner", "invite", "-o", invitation, "--insecure")
    run("partner", "accept", invitation, "-o", acceptance, "-c", strangers / "globex")
    text = acceptance.read_text()
    fingerprint = tomllib.loads(text)["answers"]
    acceptance.write_text(text.replace(fingerprint, "0" * len(fingerprint)))
    told = run_json("partner", "accept", acceptance, exit_code=output.BAD_INPUT)
    assert "accepts an invitation with the certificate 000" in told["problems"][0]["problem"]
    card = strangers / "card.toml"
    run("partner", "card", "-o", card)
    told = run_json("partner", "accept", card, exit_code=output.BAD_INPUT)
    assert "is no invitation" in told["problems"][0]["problem"]


@pytest.mark.long
def test_everything_works_between_two_of_ours_and_none_of_it_counts(met: Served) -> None:
    found = run_json("partner", "test", "globex", "--timeout", "60")
    assert [row["what"] for row in found["tried"]] == WORKING
    assert {row["works"] for row in found["tried"]} == {"works"}, found["tried"]
    said = {row["what"]: row["finding"] for row in found["tried"]}
    assert said["a copy"] == said["a late copy"] == "it is known, and answered as the first one was"
    assert "signed for exactly what was sent" in said["signatures"]
    assert "4,194,304 bytes" in said["a large message"]
    for name in ("acme", "globex"):
        place = met.folder / name
        status = run_json("status", "-c", place)
        assert (status["kept"], status["incidents"], status["notices"]) == (0, 0, 0), status
        assert run_json("outbox", "-c", place)["messages"] == []
        assert run_json("inbox", "-c", place)["messages"] == []
        assert run_json("inbox", "take", "-c", place)["messages"] == []
        assert run_json("incidents", "-c", place)["incidents"] == []
    judged = run_json("verify", met.folder / "acme", met.folder / "globex")
    counted = ("messages", "submitted", "delivered", "confirmed_once", "duplicates_stopped")
    assert {judged[name] for name in counted} == {0}, judged
    assert judged["rows"] > 0
    assert judged["ok"]


@pytest.mark.long
def test_what_does_not_work_is_said_and_leaves_nothing_behind(met: Served) -> None:
    met.stop("globex")
    found = run_json("partner", "test", "globex", "--timeout", "0.5", exit_code=output.WRONG)
    assert [row["works"] for row in found["tried"]] == ["does not work", "not tried"]
    assert run_json("notices", "-c", met.folder / "acme")["notices"] == []


def test_no_business_hides_behind_a_trial(met: Served, tmp_path: Path) -> None:
    order = tmp_path / "order.xml"
    order.write_text("<order/>")
    for words in (
        ("--service", str(TRIAL_SERVICE), "--action", "Order"),
        ("--message-id", f"{TRIAL_MARK}1@acme"),
    ):
        told = run_json("send", order, "--to", "globex", *words, exit_code=output.BAD_INPUT)
        assert "are for trials" in told["problems"][0]["problem"]
