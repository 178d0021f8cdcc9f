"""What operators are told of messages and parties is true."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.agreement.cppa.writer import write_cpa
from oncewire.entry.cli import output
from oncewire.entry.messages.outlook import outlook
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import open_readers
from oncewire.handler.world import RealWorld
from oncewire.message.ids import Party, PartyId
from oncewire.message.instant import HOUR
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import run_json
from tests.replacing import replace
from tests.waiting import wait_until

UNANSWERED = {
    "sync.mode": '"signalsAndResponse"',
    "sync.retries": '"none"',
    "sync.timeout": '"PT1S"',
    "ack.bundling": '"piggyback"',
    "delivery.timeout": '"PT1H"',
}
"""The connection of a request waits for an application that does not come, and no other does."""


@pytest.fixture
def unanswered(pair: Path) -> Iterator[Served]:
    """Both handlers run, and requests between them are never answered."""
    agree(pair, UNANSWERED)
    # The sender waits longer than the receiver, however busy the machine is.
    agree(pair, {"sync.timeout": '"PT30S"'}, "acme")
    with Served(pair, "acme", "globex") as found:
        yield found


@pytest.mark.requirement("SYNC-17", "SYNC-18")
def test_a_request_that_was_answered_with_a_time_out_is_delivered_nowhere(
    unanswered: Served, order: Path
) -> None:
    there = unanswered.folder / "globex"
    run_json("send", order, "--to", "globex", "--message-id", "request-1")
    wait_until(lambda: bool(run_json("inbox", "-c", there)["messages"]))
    wait_until(lambda: run_json("inbox", "-c", there)["messages"][0]["state"] == "closed")
    shown = run_json("show", "request-1", "-c", there)
    assert (shown["outcome"], shown["state"]) == ("not_delivered", "closed")
    assert shown["reason"] == "communication protocol time-out"
    assert run_json("why", "request-1", "-c", there)["why"].startswith("Not delivered: it arrived")
    counted = run_json("verify", "-c", there)
    assert (counted["delivered"], counted["not_delivered"]) == (0, 1)
    # Its sender heard that no answer will come, and sends it never again.
    wait_until(lambda: run_json("outbox")["messages"][0]["state"] != "outstanding")
    told = run_json("show", "request-1")
    assert (told["outcome"], told["state"], told["attempts"]) == ("unknown", "unknown", 1)
    assert "communication protocol time-out" in run_json("why", "request-1")["why"]
    (problem,) = run_json("resend", "request-1", exit_code=output.NOT_ALLOWED)["problems"]
    assert "a synchronous request is not repeated" in problem["problem"]
    assert "as a new message" in problem["next"]


@pytest.mark.requirement("SYNC-18")
def test_a_request_that_is_not_repeated_is_not_said_to_leave_again(pair: Path, order: Path) -> None:
    agree(pair, UNANSWERED | {"delivery.retry_interval": '"PT1H"'})
    with Served(pair, "acme"):
        run_json("send", order, "--to", "globex", "--message-id", "request-1")
        wait_until(lambda: "failed" in run_json("why", "request-1")["why"])
    never = "it is not sent again (sync.retries = none), and its outcome is known "
    told = run_json("why", "request-1")["why"]
    assert f"{never}at " in told
    assert "oncewire resume" not in told
    settings = load(pair / "acme", environ={}).settings
    with open_readers(settings).reader() as reader:
        later = outlook(reader, "request-1", RealWorld().now() + 2 * HOUR, settings)
    assert later == f"{never}while a handler runs (`oncewire serve`)"


@pytest.mark.parametrize("ruin", ["gone", "damaged"])
def test_doctor_does_not_advise_to_start_on_a_store_that_is_refused(
    served: Served, ruin: str
) -> None:
    there = served.folder / "globex"
    served.stop("globex")
    (store,) = (there / "data").glob("oncewire.db")
    store.unlink()
    if ruin == "damaged":
        store.write_bytes(b"no database" * 1000)
    refused = run_json("serve", "-c", there, exit_code=None)["problems"][0]
    checks = run_json("doctor", "--no-partners", "-c", there, exit_code=output.NOT_RUNNING)[
        "checks"
    ]
    (handler,) = [check for check in checks if check["what"] == "handler"]
    assert (handler["grade"], handler["fix"]) == ("bad", refused["next"])
    assert refused["problem"] in handler["finding"]


REFUSES = """
def take(message):
    raise ValueError("no such customer")
"""


def test_what_the_application_raises_is_told_from_the_first_time_on(
    pair: Path, order: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refuses_for_test.py").write_text(REFUSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    there = pair / "globex"
    chosen = {"application.way": '"function"', "application.function": '"refuses_for_test:take"'}
    settings = there / "oncewire.toml"
    settings.write_text(with_values(settings.read_text(), chosen))
    with Served(pair, "acme", "globex"):
        run_json("send", order, "--to", "globex", "--message-id", "order-1", "--wait")
        wait_until(lambda: run_json("why", "order-1", "-c", there).get("refusals", 0) >= 2)
        told = run_json("why", "order-1", "-c", there)
        assert "incident" not in str(told["ladder"])
        assert f"refused it {told['refusals']} times, the last time at " in told["why"]
        assert "ValueError: no such customer" in told["why"]
        assert told["last_refusal"] in told["why"]
        assert f"oncewire abandon order-1 -c {there}" in told["why"]
        found = run_json("doctor", "--no-partners", "-c", there)
        (application,) = [one for one in found["checks"] if one["what"] == "application"]
        assert application["grade"] == "warning"
        assert "1 message is refused by it" in application["finding"]
        assert "ValueError: no such customer" in application["finding"]
        assert found["summary"] != "Everything is sound."


def test_a_doctor_leaves_no_warning_of_its_own_pings(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    heard = [one["what"] for one in run_json("doctor")["checks"] if one["grade"] == "good"]
    assert "partner globex" in heard
    # The Pong that answers the command's own Ping may come after it.
    time.sleep(0.5)
    assert [one.message for one in caplog.records if "ignored" in one.message] == []


def test_who_changes_an_agreement_is_told_that_the_partner_must(pair: Path) -> None:
    add = ("partner", "add", pair / "globex", "--insecure")
    (problem,) = run_json(*add, exit_code=output.NOT_ALLOWED)["problems"]
    assert "the partner's file must change too" in problem["next"]
    done = run_json(*add, "--ordered", "--replace")
    assert (
        "the partner runs: oncewire partner add OUR_CARD --insecure --ordered --replace"
        in done["next"]
    )
    assert "until its file says the same" in done["summary"]
    assert "until" not in run_json(*add, "--ordered", "--replace", "--both")["summary"]


def test_a_cpa_that_calls_us_by_another_type_is_named(pair: Path, tmp_path: Path) -> None:
    mine = {"party.party_id": '"00000000000000000001"', "party.party_type": '"urn:cv:oin"'}
    settings = pair / "acme" / "oncewire.toml"
    settings.write_text(with_values(settings.read_text(), mine))
    (kept,) = load_readable(load(pair / "acme", environ={}).settings).kept
    cpas = {}
    for kind in ("urn:osb:oin", "urn:cv:oin"):
        ours = Party((PartyId("00000000000000000001", kind),), role="Buyer")
        theirs = replace(kept.agreement.partner.party, role="Seller")
        agreement = replace(
            kept.agreement,
            own=replace(kept.agreement.own, party=ours),
            partner=replace(kept.agreement.partner, party=theirs),
        )
        cpas[kind] = tmp_path / f"{kind[4:6]}.xml"
        cpas[kind].write_bytes(write_cpa(agreement))
    told = str(run_json("agreement", "import", cpas["urn:osb:oin"], "--check", exit_code=None))
    assert "calls us urn:osb:oin|00000000000000000001, and we are urn:cv:oin|" in told
    same = str(run_json("agreement", "import", cpas["urn:cv:oin"], "--check", exit_code=None))
    assert "calls us" not in same
