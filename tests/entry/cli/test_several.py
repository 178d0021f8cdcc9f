"""Several agreements with one partner, one conversation with it, and counts of what others sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.message import Payload
from oncewire.protocol.states import OutgoingState
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
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        file = pair / own / "agreements" / f"{partner}.toml"
        file.write_text(with_values(file.read_text(), {"sequence.ordered": "true"}))
    names = []
    for word in ("FIRST", "SECOND", "THIRD"):
        file = pair / f"{word}.txt"
        file.write_text(word)
        names.append(file)
    run("send", names[0], "--to", "globex")
    run("send", *names[1:], "--each", "--to", "globex")
    channels = {row["channel"] for row in run_json("status")["channels"]}
    served = Served(pair)
    try:
        served.start("globex")
        acme = served.start("acme")
        for row in run_json("outbox")["messages"]:
            assert served.do(acme.wait(row["message_id"], 60.0)) is OutgoingState.DELIVERED
        taken = run_json("inbox", "take", "-c", pair / "globex")
    finally:
        served.close()
    assert [row["content"] for row in taken["contents"]] == ["FIRST", "SECOND", "THIRD"]
    assert len(channels) == 1


def test_verify_counts_what_others_sent_us(pair: Path, document: Path, tmp_path: Path) -> None:
    served = Served(pair)
    try:
        served.start("globex")
        served.start("acme")
        run("send", document, "--to", "globex", "--wait", "--timeout", "60")
        run("inbox", "take", "--out", tmp_path / "in", "-c", pair / "globex")
    finally:
        served.close()
    alone = run_json("verify", pair / "globex")
    assert (alone["submitted"], alone["confirmed_once"]) == (0, 1)
    both = run_json("verify", pair / "acme", pair / "globex")
    assert (both["submitted"], both["confirmed_once"]) == (1, 1)
