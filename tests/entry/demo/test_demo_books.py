"""The demo's last word is Spark's: books that are not clean end it with 1, and a gap is told."""

import shlex
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.doctor.judging import Totals, Verdict
from oncewire.errors import NotAllowed
from oncewire.journal.check import JournalReport
from oncewire.journal.row import Row
from oncewire.lab.cli import demo as command
from oncewire.lab.demo import play as demo
from oncewire.lab.demo.play import Books, DemoResult, Plan
from oncewire.pipeline.jobs import Done
from oncewire.pipeline.reports.reconcile import Reconciliation
from tests.entry.terminal import run, run_json
from tests.journal.scenarios import SCENARIOS
from tests.pipeline.books import make_stores

DONE = Done(1, 0, 0, 0, 0, 0, 3, {"delivered": 3})
JOINED = Reconciliation(("buyer", "seller"), 3)


def ended_well(monkeypatch: pytest.MonkeyPatch, folder: Path, stores: list[Path], messages: int):
    """A demo whose own count finds nothing wrong, over stores that a test made."""

    async def run_well(_self: demo.Demo, *_told: object) -> DemoResult:
        totals = Totals(sent=messages, delivered_once=messages)
        verdict = Verdict(JournalReport((), (), messages, 0, 0), totals, ())
        plan = Plan(folder, messages)
        return DemoResult(plan, verdict, messages, True, Counter(), 1.0, True, tuple(stores))

    monkeypatch.setattr(demo.Demo, "run", run_well)


def exchanged() -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of two parties between whom everything went well, and the messages."""
    world = SCENARIOS["window"]()
    nodes = {name: list(node.rows) for name, node in world.nodes.items()}
    sent = {row.message_id for row in nodes["acme"] if row.kind == "submitted" and row.message_id}
    return nodes, sorted(sent)


@pytest.mark.usefixtures("spark")
def test_clean_books_end_it_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, sent = exchanged()
    stores = make_stores(tmp_path / "stores", nodes)
    ended_well(monkeypatch, tmp_path / "d", stores, len(sent))
    said = run_json("demo", tmp_path / "d")
    assert said["ledger"] == [{"verdict": "delivered", "messages": len(sent)}]
    assert said["reconciliation"][0]["agreed"] == len(sent)


@pytest.mark.usefixtures("spark")
def test_books_that_are_not_clean_end_it_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message is gone from the receiver's journal, another has other content there."""
    nodes, sent = exchanged()
    gone, changed = sent[3], sent[7]
    stores = make_stores(tmp_path / "stores", nodes)
    with sqlite3.connect(stores[1]) as broken:
        of = "message = (SELECT id FROM message WHERE message_id = ?)"
        broken.execute(f"DELETE FROM journal_row WHERE {of}", (gone,))
        broken.execute(
            f"UPDATE journal_row SET digest = 'other' WHERE digest IS NOT NULL AND {of}", (changed,)
        )
    ended_well(monkeypatch, tmp_path / "d", stores, len(sent))
    said = run_json("demo", tmp_path / "d", exit_code=output.WRONG)
    assert "ledger that Spark computed does not" in said["summary"]
    verdicts = {one["verdict"]: one["messages"] for one in said["ledger"]}
    assert verdicts["delivered"] < len(sent)
    assert verdicts["altered"] == 1
    assert said["ledger_violations"] >= 2
    told = {one["message_id"]: one["disagreement"] for one in said["disagreements"]}
    assert told == {gone: "not_received", changed: "content"}
    assert said["reconciliation"][0]["agreed"] == len(sent) - 2
    # The journals alone, as this demo counted them, would have passed.
    assert run_json("demo", tmp_path / "d", "--no-spark")["ok"]


@pytest.mark.usefixtures("spark")
def test_a_store_that_spark_cannot_read_ends_it_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, sent = exchanged()
    stores = make_stores(tmp_path / "stores", nodes)
    with sqlite3.connect(stores[0]) as broken:
        broken.execute("UPDATE node SET journal_version = 99")
    ended_well(monkeypatch, tmp_path / "d", stores, len(sent))
    said = run_json("demo", tmp_path / "d", exit_code=output.WRONG)
    assert "version 99" in said["problems"][0]["problem"]
    assert said["problems"][0]["next"]


@pytest.mark.parametrize(("server", "status"), [("", output.OK), ("true", output.WRONG)])
def test_a_machine_without_spark_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, status: int
) -> None:
    lacking = NotAllowed("Spark needs Java, and there is none here", remedy="install one")
    monkeypatch.setattr(command, "spark_lacks", lambda: lacking)
    monkeypatch.setenv("CI", server)
    ended_well(monkeypatch, tmp_path / "d", [], 3)
    found = run("demo", tmp_path / "d", exit_code=status)
    assert "All 3 orders were delivered once" in found.stdout
    assert "the journals' word alone: Spark needs Java, and there is none here." in found.stdout
    assert "install one" in found.stdout


def test_what_to_type_next_can_be_typed_whatever_the_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my demo's"
    ended_well(monkeypatch, folder, [], 3)
    for hint in run_json("demo", folder, "--no-spark")["next"]:
        words = [word for word in shlex.split(hint) if "demo" in word]
        assert all(word.startswith(str(folder)) for word in words), hint


def test_leaving_spark_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_well(monkeypatch, tmp_path / "d", [], 3)
    said = run_json("demo", tmp_path / "d", "--no-spark")
    assert said["spark"] == "Spark was left out"
    # Who leaves it out has no trouble with it.
    assert not said.get("problems")
    assert "the journals' word alone" in said["summary"]


def test_clean_is_that_every_order_is_delivered_and_agreed_on() -> None:
    assert Books(DONE, JOINED).clean(3)


@pytest.mark.parametrize(
    "change",
    [
        {"verdicts": {"delivered": 2, "lost": 1}},
        {"verdicts": {"delivered": 2}},
        {"verdicts": {"delivered": 4}},
        {"verdicts": {"delivered": 3, "unknown": 1}},
        {"violations": 1},
        {"quarantined": 1},
    ],
)
def test_an_odd_ledger_is_not_clean(change: dict) -> None:
    assert not Books(replace(DONE, **change), JOINED).clean(3)


@pytest.mark.parametrize(
    "change",
    [{"compared": 2}, {"disagreements": ({"message_id": "m", "disagreement": "content"},)}],
)
def test_books_that_differ_are_not_clean(change: dict) -> None:
    assert not Books(DONE, replace(JOINED, **change)).clean(3)


def test_a_message_in_two_disagreements_is_one_that_is_not_agreed_on() -> None:
    one = {"message_id": "m", "disagreement": "content"}
    assert replace(JOINED, disagreements=(one, one)).agreed == 2


def test_acknowledgements_that_a_hub_passed_on_are_not_odd() -> None:
    assert Books(replace(DONE, verdicts={"delivered": 3, "sent": 3}), JOINED).clean(3)
