"""The demo as a newcomer runs it, only smaller, and that it cannot lie."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.doctor.judging import Totals, Verdict, journal_rows, judge
from oncewire.entry.party.settings import load
from oncewire.errors import NotAllowed
from oncewire.journal.check import JournalReport
from oncewire.lab.demo import play as demo
from oncewire.lab.demo.play import DemoResult, Plan, count_files, empty_folder, order, order_id
from tests.entry.terminal import run, run_json

MESSAGES = 16


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], int]:
    """A demo that ran to its end: its folder, what it said, and its exit status."""
    folder = tmp_path_factory.mktemp("demo")
    # A terminal of a user's: nothing says there which interpreter Spark's workers are to be.
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ONCEWIRE_", "PYSPARK_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "oncewire", "demo", "here", "--no-hub", "--messages", str(MESSAGES),
         "--limit", "200", "--json"],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return folder / "here", json.loads(done.stdout), done.returncode


@pytest.mark.requirement("RM-18")
def test_it_ends_by_itself_with_a_clean_verdict(
    played: tuple[Path, dict[str, object], int],
) -> None:
    _, said, status = played
    assert status == 0, said
    assert said["sent"] == said["delivered_once"] == said["orders_in_directory"] == MESSAGES
    assert (said["lost"], said["twice"], said["out_of_order"], said["violations"]) == (0, 0, 0, 0)
    assert said["seller_killed"] is True
    # The network did what it promised, so the zeros mean something.
    network = said["network"]
    assert isinstance(network, dict)
    assert network.get("lost", 0) + network.get("answer_lost", 0) > 0
    assert int(str(said["resends"])) > 0


@pytest.mark.spark
def test_it_ends_with_the_ledger_that_spark_computed(
    played: tuple[Path, dict[str, object], int],
) -> None:
    folder, said, _ = played
    assert said["spark"] == "read both stores"
    assert said["ledger"] == [{"verdict": "delivered", "messages": MESSAGES}]
    assert (said["ledger_violations"], said["ledger_quarantined"]) == (0, 0)
    assert 6 <= int(str(said["spark_jobs"])) <= int(str(said["spark_tasks"]))
    (joined,) = said["reconciliation"]  # type: ignore[misc,attr-defined]
    assert joined == {
        "party": "buyer", "partner": "seller",
        "compared": MESSAGES, "agreed": MESSAGES, "disagreements": 0,
    }  # fmt: skip
    assert "Spark's ledger says the same" in str(said["summary"])
    assert (folder / "lake" / "CURRENT").is_file()


def test_what_it_leaves_can_be_asked(played: tuple[Path, dict[str, object], int]) -> None:
    folder, _, _ = played
    there = run("why", "PO-0003", "-c", folder / "buyer", "--with", folder / "seller")
    assert "Delivered on attempt" in there.stdout
    run("verify", folder / "buyer", folder / "seller", "--ended")


@pytest.mark.usefixtures("spark")
def test_spark_reads_a_party_by_its_folder(played: tuple[Path, dict[str, object], int]) -> None:
    folder, _, _ = played
    joined = run_json("pipeline", "reconcile", folder / "buyer", folder / "seller")
    assert (joined["compared"], joined["agreed"]) == (MESSAGES, MESSAGES)
    done = run_json(
        "pipeline", "run", "--lake", folder / "other", "--store", folder / "seller", "--ended"
    )
    assert (done["messages"], done["violations"]) == (MESSAGES, 0)


def test_a_loss_is_not_called_a_success(played: tuple[Path, dict[str, object], int]) -> None:
    folder, _, _ = played
    parties = [load(folder / name, environ={}).settings for name in ("buyer", "seller")]
    rows = [row for one in parties for row in journal_rows(one)]

    def outcome(without: str) -> DemoResult:
        kept = [row for row in rows if (row.kind, row.message_id) != (without, order_id(3))]
        verdict = judge(kept, ended=True, now=0)
        plan = Plan(folder, MESSAGES)
        return DemoResult(plan, verdict, MESSAGES, True, Counter(), 1.0, True, ())

    assert outcome("nothing").good
    assert not outcome("confirmed").good
    assert not outcome("received").good
    good = outcome("nothing")
    assert not replace(good, files=MESSAGES - 1).good
    assert not replace(good, killed=False).good
    assert not replace(good, settled=False).good


def test_files_with_other_content_do_not_count(tmp_path: Path, parties: Path) -> None:
    settings = load(parties / "acme", environ={}).settings
    folder = settings.path(settings.application.folder)
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number}.xml").write_bytes(order(number))
        facts = {"message_id": order_id(number), "payloads": [{"file": f"{number}.xml"}]}
        (folder / f"{number}.message.json").write_text(json.dumps(facts))
    assert count_files(settings, 2) == 2
    (folder / "2.xml").write_bytes(order(1))
    assert count_files(settings, 2) == 1


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    with pytest.raises(NotAllowed):
        empty_folder(tmp_path / "precious")
    assert (tmp_path / "precious" / "file").read_text() == "mine"
    first = empty_folder(tmp_path / "demo")
    (first / "old").write_text("old")
    assert not (empty_folder(tmp_path / "demo") / "old").exists()


def test_the_time_limit_ends_it_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unfinished(_self: demo.Demo, *_told: object) -> DemoResult:
        verdict = Verdict(JournalReport((), (), 0, 0, 0), Totals(), ())
        return DemoResult(Plan(tmp_path), verdict, 0, True, Counter(), 75.0, False, ())

    monkeypatch.setattr(demo.Demo, "run", unfinished)
    found = run("demo", tmp_path / "d", "--no-spark", exit_code=output.WRONG)
    assert "The time was up" in found.stdout


def test_the_counters_count_rows() -> None:
    from oncewire.journal.row import Row

    progress = demo.Progress(2)
    for kind, attempt in (("submitted", None), ("sent", 1), ("sent", 2), ("duplicate", None)):
        progress.take(Row(1, 0, 0, "b", "n", kind, "m", attempt=attempt))
    assert (progress.submitted, progress.resends, progress.duplicates) == (1, 1, 1)


@pytest.mark.process
def test_a_handler_that_does_not_start_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.sys, "executable", "/bin/false")
    found = run("demo", tmp_path / "d", "--messages", "2", exit_code=output.TROUBLE)
    assert "did not start" in found.stderr


@pytest.mark.process
@pytest.mark.within(120)
async def test_nothing_is_left_running_after_an_interruption(tmp_path: Path) -> None:
    one = demo.Demo(Plan(tmp_path / "d", messages=1000), lambda _progress: None)
    task = asyncio.create_task(one.run())
    while not one.progress.submitted:
        await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    codes = [process.returncode for process in one._processes.values()]
    assert codes == [0, 0]
