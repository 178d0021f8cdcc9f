"""Sending, receiving and looking, from the command line, with handlers that run or rest."""

import asyncio
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.control.client import OfflineStore
from oncewire.entry.control.verbs import user_name
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.entry.running.serving import make_engine
from oncewire.errors import NotAllowed
from oncewire.message.instant import DAY, SECOND, parse_instant
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import process, run, run_json


def send(order: Path, *words: str) -> str:
    """Send it; returns the MessageId."""
    found = run_json("send", order, "--to", "globex", *words)
    return str(found["messages"][0]["message_id"])


# --- while handlers run ------------------------------------------------------------------------


@pytest.mark.requirement("OPS-4")
def test_a_document_goes_there_once_and_everybody_knows(
    served: Served, order: Path, tmp_path: Path
) -> None:
    found = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")
    (message,) = found["messages"]
    assert message["state"] == "delivered"
    assert "Delivered on attempt" in found["summary"]
    assert message["to"] == "globex"
    assert run_json("outbox")["messages"][0]["to"] == "globex"
    there = served.folder / "globex"
    listed = run_json("inbox", "-c", there)["messages"]
    assert [(one["message_id"], one["state"]) for one in listed] == [
        (message["message_id"], "ready")
    ]
    taken = run_json("inbox", "take", "--output", tmp_path / "in", "-c", there)["messages"]
    assert [(one["from"], one["confirmed"]) for one in taken] == [("acme", True)]
    assert Path(taken[0]["files"][0]).read_bytes() == order.read_bytes()
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "confirmed"
    assert run_json("inbox", "take", "-c", there)["messages"] == []


def test_why_tells_the_story_of_both_sides(served: Served, order: Path) -> None:
    message_id = send(order, "--wait")
    there = served.folder / "globex"
    found = run_json("why", message_id[:20], "--with", there)
    assert found["message_id"] == message_id
    assert found["why"].startswith("Delivered on attempt")
    kinds = [(step["node"], step["what"]) for step in found["ladder"]]
    assert kinds[0] == ("acme", "submitted to urn:oncewire:party:globex")
    assert ("globex", "received and stored") in kinds
    text = run("why", message_id).stdout
    assert "Delivered on attempt" in text
    shown = run_json("show", message_id)
    assert shown["outcome"] == shown["state"] == "delivered"
    assert shown["to"] == "urn:oncewire:party:globex"
    assert run_json("show", message_id, "-c", there)["direction"] == "in"


def test_ids_are_found_by_any_part_that_is_unique(served: Served, order: Path) -> None:
    for name in ("order-one", "order-two"):
        send(order, "--message-id", name)
    assert run_json("show", "one")["message_id"] == "order-one"
    run("show", "order", exit_code=output.BAD_INPUT)
    run("why", "nothing-like-it", exit_code=output.NOT_FOUND)


@pytest.mark.requirement("RM-1")
def test_the_same_message_id_is_accepted_twice_and_sent_once(served: Served, order: Path) -> None:
    send(order, "--message-id", "only-once", "--wait")
    again = run_json("send", order, "--to", "globex", "--message-id", "only-once", "--wait")
    assert again["messages"][0]["repeated"] is True
    assert len(run_json("outbox")["messages"]) == 1
    other = order.with_name("other.xml")
    other.write_text("<a-longer-order-than-the-first/>")
    run("send", other, "--to", "globex", "--message-id", "only-once", exit_code=output.BAD_INPUT)


def test_several_files_are_one_message_or_one_each(
    served: Served, order: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("in a hurry")
    run_json("send", order, f"{note};text/x-note", "--to", "globex", "--wait")
    each = run_json("send", order, note, "--each", "--to", "globex", "--wait")
    assert len(each["messages"]) == 2
    taken = run_json("inbox", "take", "-c", served.folder / "globex")
    assert len(taken["messages"]) == 3
    assert {one["media_type"] for one in taken["contents"]} >= {"text/x-note", "text/plain"}
    ids = [one["message_id"] for one in taken["messages"]]
    run_json("inbox", "confirm", *ids, "-c", served.folder / "globex")
    again = run_json("inbox", "confirm", ids[0], "-c", served.folder / "globex")
    assert again["confirmed"][0]["first"] is False


def test_the_last_line_of_a_box_counts_what_was_asked_for(served: Served, order: Path) -> None:
    never = run("outbox", "--state", "outstanding").stdout
    assert "Nothing was sent." in never
    assert "in all" not in never
    for _ in range(3):
        send(order, "--wait")
    send(order, "--message-id", "order-4", "--wait")
    there = served.folder / "globex"
    run("inbox", "confirm", "order-4", "-c", there)
    assert run_json("inbox", "-c", there)["summary"] == "3 ready, 1 confirmed."
    assert run_json("inbox", "--state", "confirmed", "-c", there)["summary"] == "1 confirmed."
    few = run_json("inbox", "--limit", "2", "--state", "ready", "-c", there)
    assert few["summary"] == "3 ready. The newest 2 are shown; --limit shows more."
    none = run("inbox", "--state", "refused", "-c", there).stdout
    assert "Nothing is refused; in all:" in none
    assert "3 ready, 1 confirmed." in none
    assert run_json("outbox", "--limit", "1")["summary"] == (
        "4 delivered. The newest is shown; --limit shows more."
    )


def test_both_journals_are_judged_together(served: Served, order: Path) -> None:
    open_id = send(order, "--wait")
    there = served.folder / "globex"
    open_ = run_json("verify", served.folder / "acme", there)
    assert (open_["violations"], open_["messages"], open_["not_judged_yet"]) == (0, 1, 1)
    # Twice the persistDuration of two days after it was submitted.
    began, _ = parse_instant(run_json("show", open_id)["submitted"])
    until, _ = parse_instant(open_["open_until"])
    assert 0 <= until - began - 2 * 2 * DAY < SECOND
    assert (
        f"Of 1 it is too early to say that something is missing: by its agreement it may still "
        f"come until {open_['open_until']}."
    ) in open_["summary"]
    assert (
        "Run it again when each journal has a row after that, or with --ended" in open_["summary"]
    )
    assert "1 message waits in the inbox for the application." in open_["summary"]
    # The application has not taken it: the inbox has it, so that it is no loss even if all is over.
    waits = run_json("verify", served.folder / "acme", there, "--ended")
    assert (waits["lost"], waits["violations"], waits["waiting_in_inbox"]) == (0, 0, 1)
    assert waits["next"] == [f"oncewire inbox take --output FOLDER -c {there}"]
    run_json("inbox", "take", "-c", there)
    assert run_json("verify", there, "--ended")["waiting_in_inbox"] == 1
    run("inbox", "confirm", open_id, "-c", there)
    good = run_json("verify", served.folder / "acme", there, "--ended")
    assert (good["violations"], good["confirmed_once"], good["submitted"]) == (0, 1, 1)
    assert (good["waiting_in_inbox"], good["journals"]) == (0, ["acme", "globex"])
    assert (good["not_judged_yet"], good["judged_through"], good["open_until"]) == (0, "", "")
    assert good["summary"] == "0 violations in 1 message."


def test_verify_says_how_to_have_all_judged(served: Served, order: Path, tmp_path: Path) -> None:
    send(order, "--wait")
    here, there = served.folder / "acme", served.folder / "globex"
    run("inbox", "take", "--output", tmp_path / "in", "-c", there)
    # Both books agree on it: there is nothing to wait for.
    both = run_json("verify", here, there)
    assert (both["not_judged_yet"], both["open_until"], "next" in both) == (0, "", False)
    assert both["summary"] == "0 violations in 1 message."
    assert run_json("verify")["next"] == ["oncewire verify --ended"]
    send(order, "--wait")
    run("inbox", "take", "--output", tmp_path / "in", "--no-confirm", "-c", there)
    open_ = run_json("verify", here, there)
    assert open_["not_judged_yet"] == 1
    assert "1 message waits in the inbox" in open_["summary"]


def test_status_and_doctor_see_a_running_handler(served: Served) -> None:
    status = run_json("status")
    assert status["running"] is True
    assert status["pid"] == os.getpid()
    found = {one["what"]: one for one in run_json("doctor")["checks"]}
    assert found["handler"]["grade"] == "good"
    assert found["partner globex"]["grade"] == "good"
    assert found["database"]["grade"] == "good"
    assert "days left" in found["certificate of globex"]["finding"]


def test_ping_tells_who_is_there(served: Served) -> None:
    assert run_json("ping", "globex")["reached"] == "answered"
    agreement = served.folder / "acme" / "agreements" / "globex.toml"
    # A partner that does not know the agreement says so.
    text = agreement.read_text()
    agreement.write_text(text.replace('cpa_id = "acme-globex"', 'cpa_id = "strange"'))
    refused = run_json("ping", "globex", exit_code=output.WRONG)
    assert refused["reached"] == "refused"
    agreement.write_text(text)
    served.stop("globex")
    assert run_json("ping", "globex", exit_code=output.WRONG)["reached"] == "unreachable"
    found = {one["what"]: one for one in run_json("doctor", exit_code=None)["checks"]}
    assert found["partner globex"]["grade"] == "warning"


# --- while none runs ---------------------------------------------------------------------------


def test_nothing_yet_is_no_error(pair: Path) -> None:
    for command in ("outbox", "inbox", "incidents", "status"):
        run(command)
        run_json(command)
    run("verify", exit_code=output.NOT_FOUND)
    found = {one["what"]: one for one in run_json("doctor", "--no-partners")["checks"]}
    assert found["handler"]["grade"] == "warning"


def test_a_message_sent_at_rest_leaves_when_a_handler_starts(pair: Path, order: Path) -> None:
    found = run_json("send", order, "--to", "globex")
    assert "No handler runs" in found["summary"]
    (message,) = found["messages"]
    # No attempt was begun that nobody made.
    assert (message["state"], message["tries"]) == ("stored", 0)
    assert run_json("outbox")["messages"][0]["tries"] == 0
    with Served(pair, "globex", "acme"):
        again = run_json(
            "send", order, "--to", "globex", "--message-id", message["message_id"], "--wait"
        )
        assert again["messages"][0]["state"] == "delivered"
    run("verify", pair / "acme", pair / "globex")


def test_waiting_runs_a_handler_for_the_time_being(pair: Path, order: Path) -> None:
    with Served(pair, "globex"):
        assert send(order, "--wait")
        status = run_json("status")
        assert (status["running"], status["out.delivered"]) == (False, 1)


@pytest.mark.long
def test_an_undelivered_message_ends_with_1(pair: Path, order: Path) -> None:
    slow = {"delivery.timeout": '"PT1H"', "delivery.retry_interval": '"PT1H"'}
    agree(pair, slow, "acme")
    found = run_json(
        "send", order, "--to", "globex", "--wait", "--timeout", "2", exit_code=output.WRONG
    )
    # The handler ran for this command alone: its timers ended with it.
    assert found["summary"].startswith("Under way: attempt 1 failed: ")
    assert "nothing more happens until `oncewire serve` is started" in found["summary"]
    message_id = found["messages"][0]["message_id"]
    why = run_json("why", message_id)["why"]
    assert why.startswith("Under way: attempt 1 failed: ")
    assert "; the next try (or, after the last one, the verdict) is at 2" in why
    assert run_json("show", message_id)["summary"] == why
    assert run_json("outbox")["messages"][0]["reason"] == "cannot be reached"


@pytest.mark.process
def test_a_waiting_command_tells_of_a_failure_in_its_report_alone(pair: Path, order: Path) -> None:
    agree(pair, {"delivery.retries": "0"}, "acme")
    found = process("send", order, "--to", "globex", "--wait", cwd=pair / "acme")
    assert found.returncode == output.WRONG
    assert "Not delivered" in found.stdout
    # An outcome is known: there is nothing that a handler would still do.
    assert "No handler runs" not in found.stdout
    assert found.stderr == ""


def test_taking_and_confirming_at_rest(served: Served, order: Path) -> None:
    message_id = send(order, "--wait")
    served.stop("globex")
    there = served.folder / "globex"
    taken = run_json("inbox", "take", "-c", there)
    assert taken["contents"][0]["content"] == order.read_text()
    # It is leased: nobody else gets it meanwhile.
    again = run_json("inbox", "take", "-c", there)
    assert again["messages"] == []
    assert again["summary"].startswith(
        "1 message is handed out and not confirmed; it comes again at 2"
    )
    run("inbox", "confirm", message_id, "-c", there)
    assert "summary" not in run_json("inbox", "take", "-c", there)
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "confirmed"
    run("inbox", "confirm", "no-such-message", "-c", there, exit_code=output.NOT_FOUND)


def refused_by_application(served: Served, order: Path) -> tuple[str, Path]:
    """A document that globex's application will not take, and the folder of globex, at rest."""
    message_id = send(order, "--wait")
    served.stop("globex")
    there = served.folder / "globex"
    run("inbox", "take", "-c", there)
    store = OfflineStore(make_engine(load(there, environ={}).settings))
    assert store.engine.refused("urn:oncewire:party:acme", message_id, "it is full")
    store.engine.commit()
    asyncio.run(store.close())
    return message_id, there


def test_what_the_application_refuses_is_its_own_to_mend(served: Served, order: Path) -> None:
    """No command is advised that would call it confirmed."""
    message_id, there = refused_by_application(served, order)
    found = run_json("incidents", "-c", there, exit_code=output.WRONG)
    assert "mend the application" in found["incidents"][0]["problem"]
    (why,) = found["next"]
    assert why.startswith(f"oncewire why {message_id} ")
    # What that says ends at the command that resolves the incident.
    told = run_json("why", message_id, "-c", there)
    assert "An incident is open: the application does not take it: it is full" in told["why"]
    (last,) = told["next"]
    run(*shlex.split(last)[1:], "--yes")
    assert "next" not in run_json("incidents", "-c", there)
    assert "An incident" not in run_json("why", message_id, "-c", there)["why"]


def test_what_failed_is_resolved_by_what_why_names(pair: Path, order: Path) -> None:
    with Served(pair, "acme"):
        words = ("--to", "globex", "--message-id", "order-1", "--wait", "--timeout", "60")
        run("send", order, *words, exit_code=None)
        (step,) = run_json("why", "order-1")["next"]
        assert step in run_json("incidents", exit_code=output.WRONG)["next"]
        run(*shlex.split(step)[1:])
        assert not run_json("incidents")["incidents"]


def test_help_says_that_received_documents_can_be_given_up() -> None:
    (line,) = [one for one in run("--help").stdout.splitlines() if " abandon " in one]
    assert "arrived" in line


def test_what_the_application_refuses_is_given_up_by_a_person_who_is_asked(
    served: Served, order: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id, there = refused_by_application(served, order)
    # Nobody is there to be asked.
    (problem,) = run_json("abandon", message_id, "-c", there, exit_code=output.NOT_ALLOWED)[
        "problems"
    ]
    assert "nobody was asked" in problem["problem"]
    assert "--yes" in problem["next"]
    # Somebody is, and says no, then yes.
    monkeypatch.setattr("oncewire.entry.cli.operator._is_terminal", lambda: True)
    asked: list[str] = []
    answers = iter([False, True])

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("typer.confirm", confirm)
    run("abandon", message_id, "-c", there, exit_code=output.NOT_ALLOWED)
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "handed_over"
    run("abandon", message_id, "--by", "Pat Doe", "-c", there)
    assert len(asked) == 2
    assert "counts it as lost" in asked[0]
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "closed"
    assert "next" not in run_json("incidents", "-c", there)
    told = run_json("why", message_id, "-c", there)["why"]
    assert told.startswith("Lost: ")
    assert "Pat Doe gave it up" in told
    shown = run_json("show", message_id, "-c", there)
    assert (shown["outcome"], shown["reason"]) == ("not_delivered", "given up by Pat Doe")
    verdict = run_json("verify", "-c", there, exit_code=output.WRONG)
    assert (verdict["lost"], verdict["confirmed_once"]) == (1, 0)
    assert "given up by Pat Doe" in verdict["found"][0]["sentence"]


def test_who_gives_up_without_a_name_is_the_user_of_the_machine(
    served: Served, order: Path
) -> None:
    message_id, there = refused_by_application(served, order)
    run("abandon", message_id, "--yes", "-c", there)
    assert f"{user_name()} gave it up" in run_json("why", message_id, "-c", there)["why"]


def test_what_is_confirmed_by_hand_says_by_whom(served: Served, order: Path) -> None:
    message_id, there = refused_by_application(served, order)
    run("inbox", "confirm", message_id, "-c", there)
    told = run_json("why", message_id, "-c", there)["why"]
    assert f"{user_name()} confirmed it by hand" in told
    assert "next" not in run_json("incidents", "-c", there)


def test_what_could_not_be_written_is_not_confirmed(
    served: Served, order: Path, tmp_path: Path
) -> None:
    send(order, "--wait")
    there = served.folder / "globex"
    folder = tmp_path / "in"
    folder.mkdir()
    # A folder that stands where the file belongs.
    message_id = run_json("inbox", "-c", there)["messages"][0]["message_id"]
    name = hashlib.sha256(f"urn:oncewire:party:acme\0{message_id}".encode()).hexdigest()[:40]
    (folder / f"{name}.1.order.xml").mkdir()
    run("inbox", "take", "--output", folder, "-c", there, exit_code=output.NOT_ALLOWED)
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "handed_over"


@pytest.mark.requirement("RTY-13")
def test_resend_and_abandon_under_the_same_id(pair: Path, order: Path) -> None:
    agree(pair, {"delivery.retries": "0"}, "acme")
    with Served(pair, "acme") as served:
        found = run_json(
            "send", order, "--to", "globex", "--wait", "--timeout", "30", exit_code=output.WRONG
        )
        (message,) = found["messages"]
        # The connection was refused: it certainly did not arrive.
        assert message["state"] == "not_delivered"
        served.start("globex")
        run("resend", message["message_id"])
        again = run_json(
            "send", order, "--to", "globex", "--message-id", message["message_id"], "--wait"
        )
        assert again["messages"][0]["state"] == "delivered"
        assert run_json("outbox")["messages"][0]["tries"] == 2
        # What is delivered is neither sent again nor given up.
        refused = run("resend", message["message_id"], exit_code=output.NOT_ALLOWED).stderr
        assert "was delivered" in refused
        assert "abandon" not in refused
        run("abandon", message["message_id"], exit_code=output.NOT_ALLOWED)


def test_channels_are_paused_and_resumed(pair: Path, order: Path) -> None:
    agree(pair, {"sequence.ordered": "true"})
    first = send(order, "--conversation", "talk")
    (channel,) = run_json("status")["channels"]
    run("pause", "talk", "--reason", "stock-taking")
    (incident,) = run_json("incidents", exit_code=output.WRONG)["incidents"]
    assert "stock-taking" in incident["problem"]
    key = channel["channel"]
    steps = run_json("incidents", exit_code=output.WRONG)["next"]
    assert [shlex.split(one) for one in steps] == [["oncewire", "resume", "--channel", key]]
    second = send(order, "--conversation", "talk")
    said = incident["problem"]
    assert re.fullmatch("paused by .+: stock-taking", said)
    for message_id in (first, second):
        assert run_json("why", message_id)["why"] == (
            f"Queued: it was not sent yet; its channel {key} is suspended ({said}) until "
            f"`{steps[0]}`."
        )
    reasons = {one["reason"] for one in run_json("outbox")["messages"]}
    assert reasons == {f"channel suspended: {said}"}
    run("abandon", second)
    assert run_json("status")["channels"][0]["suspended"] is True
    run("resume", "--channel", channel["channel"])
    assert run_json("incidents")["incidents"] == []
    run("pause", "no such channel", exit_code=output.NOT_FOUND)
    run("resume", exit_code=output.BAD_INPUT)
    run("abandon", first)
    assert run_json("outbox")["messages"][0]["state"] == "not_delivered"


def failed(order: Path) -> str:
    """A message that was given up before it was sent, while no handler runs."""
    message_id = send(order)
    run("abandon", message_id)
    return message_id


@pytest.mark.requirement("RTY-14")
def test_notices_wait_until_somebody_takes_them(pair: Path, order: Path, tmp_path: Path) -> None:
    assert run_json("notices")["notices"] == []
    first, second, third = (failed(order) for _ in range(3))
    found = run_json("status")
    assert (found["notices"], found["next"]) == (3, ["oncewire notices"])
    listed = run_json("notices")["notices"]
    assert [one["notice_id"] for one in listed] == [f"{one}#1" for one in (first, second, third)]
    assert {(one["to"], one["outcome"]) for one in listed} == {("globex", "not_delivered")}
    # Looking at them confirms nothing; a handler that runs is asked as one at rest is.
    with Served(pair, "acme"):
        assert len(run_json("notices", "take")["notices"]) == 3
        assert run_json("notices", "confirm", first)["confirmed"][0]["first"] is True
    assert run_json("notices", "confirm", f"{first}#1")["confirmed"][0]["first"] is False
    run("notices", "confirm", "nobody", exit_code=output.NOT_FOUND)
    with open_party_blocking(pair / "acme") as acme:
        (notice, _) = acme.notices()
        assert (notice.message_id, notice.severity.value) == (second, "Error")
        assert acme.confirm_notice(notice) is True
        assert acme.confirm_notice(notice) is False
    taken = run_json("notices", "take", "--output", tmp_path / "told")["notices"]
    assert [(one["message_id"], one["confirmed"]) for one in taken] == [(third, True)]
    written = json.loads(Path(taken[0]["file"]).read_text())
    assert (written["message_id"], written["outcome"]) == (third, "not_delivered")
    assert run_json("notices")["notices"] == []
    assert run_json("status")["notices"] == 0


@pytest.mark.requirement("SEQ-4")
def test_the_numbering_of_a_channel_is_restarted_by_hand(pair: Path, order: Path) -> None:
    agree(pair, {"sequence.ordered": "true", "flow.mode": '"window"', "flow.window": "2"})
    with Served(pair) as served:
        for name in ("globex", "acme"):
            served.start(name)
        words = ("--conversation", "talk", "--wait", "--timeout", "60")
        send(order, *words)
        refused = run("restart", "talk", exit_code=output.NOT_ALLOWED)
        assert "has used 1 of its first 2 numbers" in " ".join(refused.stderr.split())
        send(order, *words)
        assert run_json("restart", "talk")["summary"] == "Restarted."
        send(order, *words)
        (channel,) = run_json("status")["channels"]
        assert channel["epoch"] == 2
        with open_party_blocking(pair / "acme") as acme, pytest.raises(NotAllowed):
            acme.restart(channel["channel"])
    with pytest.raises(NotAllowed):
        asyncio.run(
            OfflineStore(make_engine(load(pair / "acme").settings)).restart(channel["channel"])
        )


def test_what_expired_is_to_be_abandoned(pair: Path, order: Path) -> None:
    found = run_json(
        "send", order, "--to", "globex", "--time-to-live", "PT1S", "--wait",
        "--timeout", "30", exit_code=output.WRONG,
    )  # fmt: skip
    message_id = found["messages"][0]["message_id"]
    listed = run_json("incidents", exit_code=output.WRONG)
    assert [one["problem"] for one in listed["incidents"]] == ["TimeToLive has passed"]
    assert listed["next"] == [f"oncewire why {message_id}", f"oncewire abandon {message_id}"]
    run("abandon", message_id)
    assert "next" not in run_json("incidents")


def test_what_failed_is_resumed_only_while_it_can_be(pair: Path, order: Path) -> None:
    agreement = pair / "acme" / "agreements" / "globex.toml"
    short = {
        "delivery.retries": "0",
        "delivery.timeout": '"PT1S"',
        "delivery.persist_duration": '"PT6S"',
    }
    agreement.write_text(with_values(agreement.read_text(), short))
    found = run_json("send", order, "--to", "globex", "--wait", exit_code=output.WRONG)
    message_id = found["messages"][0]["message_id"]
    story, advised = f"oncewire why {message_id}", f"oncewire abandon {message_id}"
    steps = run_json("incidents", exit_code=output.WRONG)["next"]
    assert steps == [story, f"oncewire resume {message_id}"]
    time.sleep(6)
    assert run_json("incidents", exit_code=output.WRONG)["next"] == [story, advised]
    refused = " ".join(run("resume", message_id, exit_code=output.NOT_ALLOWED).stderr.split())
    assert "is not_delivered and cannot be resent: its persistDuration has passed, at 20" in refused
    assert f"`{advised}`" in refused
    run("abandon", message_id)
    assert "next" not in run_json("incidents")


def test_bad_orders_are_refused_in_words(pair: Path, order: Path) -> None:
    run("send", order, "--to", "nobody", exit_code=output.NOT_FOUND)
    run("send", order, "--cpa", "nothing", exit_code=output.NOT_FOUND)
    run("send", "missing.xml", "--to", "globex", exit_code=output.NOT_FOUND)
    run("outbox", "--state", "asleep", exit_code=output.BAD_INPUT)
    run("send", order, "--time-to-live", "soon", exit_code=output.BAD_INPUT)
    # One partner: nobody has to say whom.
    assert run_json("send", order)["messages"]


@pytest.mark.process
def test_the_shell_completes_partners_and_states(pair: Path) -> None:
    def completed(*words: str) -> list[str]:
        line = " ".join(("oncewire", *words))
        asked = {"_ONCEWIRE_COMPLETE": "complete_bash", "COMP_WORDS": line}
        done = process_with(asked | {"COMP_CWORD": str(len(words))}, pair / "acme")
        return done.split()

    def process_with(asked: dict[str, str], cwd: Path) -> str:
        script = (
            "from oncewire.entry.cli.main import main; import sys; sys.argv=['oncewire']; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=cwd,
            env=os.environ | asked,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    assert completed("send", "x", "--to", "glo") == ["globex"]
    assert completed("outbox", "--state", "not") == ["not_delivered"]
    assert "doctor" in completed("doc")


def test_a_partner_is_not_taken_for_a_folder_of_its_name(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair)
    assert run_json("agreement", "show", "globex", "-c", "acme")["cpa_id"] == "acme-globex"


# --- as processes ------------------------------------------------------------------------------


def serve(folder: Path, *words: str) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ONCEWIRE")}
    command = [sys.executable, "-m", "oncewire", "serve", "--json", "-c", str(folder), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )


@pytest.mark.process
@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_when_it_is_ready_and_stops_gracefully(pair: Path, name: signal.Signals) -> None:
    process = serve(pair / "acme")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        assert ready["pid"] == process.pid
        sock = pair / "acme" / "data" / "oncewire.sock"
        assert sock.stat().st_mode & 0o777 == 0o600
        process.send_signal(name)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    # One line, as every other one: whoever gathers both streams in a file reads it line by line.
    (closing,) = out.splitlines()
    assert json.loads(closing)["party"] == "acme"
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events == ["ready", "stopping", "stopped"]
    assert not sock.exists()


@pytest.mark.process
def test_after_kill_9_the_next_one_takes_over(pair: Path, order: Path) -> None:
    process = serve(pair / "acme")
    assert process.stdout is not None
    process.stdout.readline()
    message_id = send(order)
    process.kill()
    process.communicate()
    # The socket of the dead one is still there, and nobody is misled by it.
    assert (pair / "acme" / "data" / "oncewire.sock").exists()
    assert run_json("status")["running"] is False
    assert run_json("show", message_id)["message_id"] == message_id
    with Served(pair, "globex", "acme"):
        again = run_json("send", order, "--message-id", message_id, "--wait")
        assert again["messages"][0]["state"] == "delivered"
    found = run_json("verify", pair / "acme", pair / "globex")
    assert (found["violations"], found["restarts"]) == (0, 1)


@pytest.mark.process
def test_two_handlers_of_one_party_are_refused(served: Served) -> None:
    second = serve(served.folder / "acme")
    try:
        out, _ = second.communicate(timeout=60)
    finally:
        second.kill()
    assert second.returncode == output.NOT_ALLOWED
    assert "runs already" in json.loads(out)["problems"][0]["problem"]


@pytest.mark.process
def test_a_port_in_use_is_said_and_the_store_let_go(served: Served, pair: Path) -> None:
    served.stop("acme")
    port = run_json("config", "show", "-c", pair / "globex")["settings"]
    taken = next(one["value"] for one in port if one["setting"] == "http.port")
    process = serve(pair / "acme", "--set", f"http.port={taken}")
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == output.TROUBLE
    assert taken in json.loads(out)["problems"][0]["problem"]
    run("outbox")


@pytest.mark.process
def test_what_an_application_prints_is_not_taken_for_the_ready_line(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is imported before anything listens, and for a message that waited for it."""
    (tmp_path / "prints_early.py").write_text(
        "print('read')\ndef take(message):\n    print('took', message.message_id)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    chosen = ("application.way=function", "application.function=prints_early:take")
    settings = [word for one in chosen for word in ("--set", one)]
    started = run_json("serve", "--detach", *settings)
    try:
        assert started["url"].startswith("http")
        log = Path(started["log"]).read_text()
        assert "read" in [json.loads(line)["event"] for line in log.splitlines()]
    finally:
        run("stop")


@pytest.mark.process
def test_in_the_background_and_stopped_again(pair: Path) -> None:
    started = run_json("serve", "--detach")
    try:
        assert run_json("status")["pid"] == started["pid"]
        assert Path(started["log"]).is_file()
    finally:
        stopped = run_json("stop", pair / "acme", pair / "globex")
    assert [one["stopped"] for one in stopped["parties"]] == [True, False]
    deadline = time.monotonic() + 30
    while Path(f"/proc/{started['pid']}/cmdline").exists() and time.monotonic() < deadline:
        os.waitpid(started["pid"], os.WNOHANG)
        time.sleep(0.05)
    # To its last line it is a log of JSON.
    lines = [json.loads(line) for line in Path(started["log"]).read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("ready", "stopped")
    run("serve", "--detach", "--set", "http.host=no.such.host.invalid", exit_code=output.TROUBLE)
