"""`oncewire ask`: what the receiver says became of a message, by command, program and socket."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.control.client import Remote
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import RECORD, socket_path, store_path
from oncewire.entry.running.open_party import open_party, open_party_blocking
from oncewire.errors import InvalidValue, UnknownMessage
from oncewire.message.envelope import MessageStatus, StatusResponse
from tests.entry.served import Served
from tests.entry.terminal import run, run_json


@pytest.fixture
def sent(served: Served, tmp_path: Path) -> str:
    """A message that globex has; both handlers run."""
    file = tmp_path / "order.xml"
    file.write_text("<order/>")
    found = run_json("send", file, "--to", "globex", "--wait", "--timeout", "60")
    return str(found["messages"][0]["message_id"])


@pytest.mark.requirement("OPS-2")
def test_a_command_tells_what_the_receiver_says(served: Served, sent: str) -> None:
    found = run_json("ask", sent[:12])
    (row,) = found["done"]
    assert (row["what"], row["state"], row["answer"]) == (sent, "delivered", "Received")
    assert row["received"].endswith("Z")
    assert found["summary"] == "The receiver has it; its application has not confirmed it yet."
    run("inbox", "confirm", sent, "-c", served.folder / "globex")
    shown = run("ask", sent, "--timeout", "60").stdout
    assert "The receiver has it, and its application confirmed it." in shown


def test_programs_and_the_socket_get_the_same_answer(served: Served, sent: str) -> None:
    folder = served.folder / "acme"

    async def ask() -> list[StatusResponse | None]:
        remote = await Remote.connect(socket_path(load(folder, environ={}).settings))
        assert remote is not None
        async with open_party(folder) as party:
            answers = [await party.ask(sent, timeout=60), await remote.ask(sent)]
        await remote.close()
        return answers

    first, second = asyncio.run(ask())
    with open_party_blocking(folder) as party:
        third = party.ask(sent)
    assert first is not None
    assert (first.ref_to_message_id, first.status) == (sent, MessageStatus.RECEIVED)
    assert first.timestamp is not None
    assert first == second == third


def _forget_everything(folder: Path) -> None:
    """Begin a party anew: without its store, and without the record that it had one."""
    shutil.rmtree(store_path(load(folder, environ={}).settings).parent)
    (folder / RECORD).unlink()


def test_a_receiver_that_does_not_know_it_is_told_of(served: Served, sent: str) -> None:
    served.stop("globex")
    _forget_everything(served.folder / "globex")
    served.start("globex")
    found = run_json("ask", sent, exit_code=output.WRONG)
    assert found["done"][0]["answer"] == "NotRecognized"
    assert found["summary"].startswith("The receiver does not know this message")
    # What was acknowledged stays so: whoever lost it knows of that, or nobody does.
    assert found["done"][0]["state"] == "delivered"
    # It may be sent under its id no more, and nobody claims that its receiver still has it.
    (refused,) = run_json("resend", sent, exit_code=output.NOT_ALLOWED)["problems"]
    assert refused["problem"] == f"message {sent} was delivered: its receiver acknowledged it"
    assert f"`oncewire ask {sent}`" in refused["next"]
    assert "nothing to do" not in refused["next"]
    for said in (found["summary"], refused["next"]):
        assert "an older backup" in said
        assert "as a new message" in said


def test_no_answer_in_time_is_no_news(served: Served, sent: str) -> None:
    served.stop("globex")
    found = run_json("ask", sent, "--timeout", "0.1", exit_code=output.WRONG)
    assert found["done"] == [{"what": sent, "state": "delivered", "answer": "", "received": ""}]
    assert found["summary"].startswith("No answer came in time")
    with open_party_blocking(served.folder / "acme") as party:
        assert party.ask(sent, timeout=0.1) is None


def test_without_a_handler_one_runs_until_the_answer_is_there(served: Served, sent: str) -> None:
    served.stop("acme")
    assert run_json("ask", sent)["done"][0]["answer"] == "Received"
    assert run_json("status")["running"] is False


def test_where_the_dialect_has_no_such_question_that_is_said(pair: Path, tmp_path: Path) -> None:
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        file = pair / own / "agreements" / f"{partner}.toml"
        file.write_text(file.read_text().replace('profile = "ebms2"', 'profile = "rm-0.78"'))
    file = tmp_path / "order.xml"
    file.write_text("<order/>")
    sent = run_json("send", file, "--to", "globex")["messages"][0]["message_id"]
    found = run_json("ask", sent, exit_code=output.BAD_INPUT)
    assert found["problems"] == [
        {"problem": "rm-0.78 has no StatusRequest", "next": "agree on ms-0.9x or ebms2"}
    ]
    with (
        open_party_blocking(pair / "acme") as party,
        pytest.raises(InvalidValue, match="has no StatusRequest"),
    ):
        party.ask(sent)


def test_only_what_was_sent_from_here_can_be_asked_for(served: Served, sent: str) -> None:
    (unknown,) = run_json("ask", "nobody-sent-this", exit_code=output.NOT_FOUND)["problems"]
    assert "`oncewire ask nobody-sent-this --to PARTNER`" in unknown["next"]
    there = run_json("ask", sent, "-c", served.folder / "globex", exit_code=output.NOT_FOUND)
    assert there["problems"][0]["problem"] == f"no message {sent} was sent from here"
    run("ask", exit_code=output.BAD_INPUT)


# --- after an older backup was restored here ----------------------------------------------------


@pytest.fixture
def forgotten(served: Served, sent: str) -> str:
    """A message that globex has, and that acme does not know any more."""
    served.stop("acme")
    _forget_everything(served.folder / "acme")
    served.start("acme")
    return sent


def test_a_partner_is_asked_for_a_message_that_is_unknown_here(forgotten: str) -> None:
    found = run_json("ask", forgotten, "--to", "globex")
    (row,) = found["done"]
    assert (row["what"], row["state"], row["answer"]) == (forgotten, "", "Received")
    assert found["summary"] == "The receiver has it; its application has not confirmed it yet."
    # Ids that nobody here knows are given whole: part of one is another message's name.
    part = run_json("ask", forgotten[:12], "--to", "globex", exit_code=output.WRONG)
    assert part["done"][0]["answer"] == "NotRecognized"
    run("ask", forgotten, "--to", "nobody", exit_code=output.NOT_FOUND)


def test_programs_ask_for_what_is_unknown_here_under_an_agreement(
    served: Served, forgotten: str
) -> None:
    with open_party_blocking(served.folder / "acme") as party:
        said = party.ask(forgotten, partner="acme-globex")
        assert said is not None
        assert said.status is MessageStatus.RECEIVED
        with pytest.raises(UnknownMessage, match="was sent from here"):
            party.ask(forgotten)


def test_another_partner_than_the_receiver_is_not_asked(served: Served, sent: str) -> None:
    file = served.folder / "acme" / "agreements" / "globex.toml"
    other = file.read_text().replace("acme-globex", "acme-other")
    (file.parent / "other.toml").write_text(other.replace("party:globex", "party:other"))
    served.stop("acme")
    served.start("acme")
    (refused,) = run_json("ask", sent, "--to", "other", exit_code=output.BAD_INPUT)["problems"]
    assert "went to" in refused["problem"]


def test_what_was_refused_for_its_id_points_to_the_question_and_stays_refused(
    forgotten: str, tmp_path: Path
) -> None:
    """The receiver has a message of that id, but it has said that it is another one."""
    file = tmp_path / "order.xml"
    words = ("send", file, "--to", "globex", "--message-id", forgotten, "--wait")
    again = run_json(*words, exit_code=output.WRONG)
    assert again["messages"][0]["state"] == "not_delivered"
    assert "has a message of this id with other content" in again["summary"]
    assert f"`oncewire ask {forgotten}`" in again["summary"]
    found = run_json("ask", forgotten, exit_code=output.WRONG)
    assert (found["done"][0]["state"], found["done"][0]["answer"]) == ("not_delivered", "Received")
    assert "refused" in found["summary"]
    assert "under a new id" in found["summary"]
    assert "Delivered" not in run_json("why", forgotten)["why"]
