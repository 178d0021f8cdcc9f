"""Two parties' books joined on Spark, and the command line over the same jobs."""

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncewire.errors import JournalProblem
from oncewire.journal.row import Row
from oncewire.lab.sample_year.plan import Plan, message_id
from oncewire.pipeline.judging import extent
from oncewire.pipeline.reports.reconcile import reconcile
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.protocol.notes import Kind
from tests.entry.terminal import command_line
from tests.pipeline.books import make_stores, small_year

pytestmark = pytest.mark.spark


DISPUTED = {"altered": "content", "unfinished": "delivered"}
"""Faults on which two books must disagree, and how."""


def trading(plan: Plan, nodes: dict[str, list[Row]]) -> tuple[str, str]:
    """The two parties with most to disagree about."""
    disputed = {message_id for kind, message_id in plan.violations if kind in DISPUTED}
    counts: Counter[tuple[str, str]] = Counter()
    for node, rows in nodes.items():
        for row in rows:
            if row.kind == Kind.SUBMITTED and row.peer is not None:
                pair = sorted((node, row.peer.removeprefix("urn:party:")))
                counts[pair[0], pair[1]] += 1 + 1_000 * (row.message_id in disputed)
    return counts.most_common(1)[0][0]


def test_every_disagreement_is_listed_with_its_proof(spark, tmp_path: Path) -> None:
    plan, nodes = small_year(2_500, 11)
    ours, theirs = trading(plan, nodes)
    stores = make_stores(tmp_path, {name: nodes[name] for name in (ours, theirs)})
    found = reconcile(spark, open_book(stores[0]), open_book(stores[1]))
    between = {
        row.message_id
        for name, other in ((ours, theirs), (theirs, ours))
        for row in nodes[name]
        if row.kind == Kind.SUBMITTED and row.peer == f"urn:party:{other}"
    }
    strangers = {
        row.message_id
        for name, other in ((ours, theirs), (theirs, ours))
        for row in nodes[name]
        if row.kind == Kind.RECEIVED and row.peer == f"urn:party:{other}"
    } - between
    assert found.compared == len(between | strangers)
    by_message = {one["message_id"]: one for one in found.disagreements}
    # What was given to an application otherwise than it came is no matter of the other party's.
    given = {
        message_id(plan.seed, stream.index, index, stream.sender.name)
        for stream in plan.streams
        for index, force in stream.forces.items()
        if force.misbehaviour == "given_otherwise"
    }
    disputed = [
        (kind, one)
        for kind, one in plan.violations
        if kind in DISPUTED and one in between and one not in given
    ]
    assert disputed
    for kind, name in disputed:
        assert by_message[name]["disagreement"] == DISPUTED[kind]
    for name in strangers:
        assert by_message[name]["disagreement"] == "not_submitted"
    for one in found.disagreements:
        assert one["sentence"]
        assert one["sender_proof"] or one["receiver_proof"]
    assert found.agreed == found.compared - len(by_message)
    # Nobody is accused who did nothing wrong: what is left was called unknown by its sender.
    told = {name for _, name in plan.violations} | strangers
    for name, one in by_message.items():
        assert name in told or one["sender_says"] in ("unknown", "in_flight"), one


def test_the_tasks_of_a_comparison_are_one_job_and_run_at_once(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator over the partitions would be a job for each, one after the other."""
    _, nodes = small_year()
    names = sorted(nodes, key=lambda node: len(nodes[node]))[-2:]
    books = [open_book(store) for store in make_stores(tmp_path, {n: nodes[n] for n in names})]
    tracker = spark.sparkContext.statusTracker()
    seen = set(tracker.getJobIdsForGroup())
    jobs, results = [], []
    for rows_per_task in (extent.ROWS_PER_TASK, 100):
        monkeypatch.setattr(extent, "ROWS_PER_TASK", rows_per_task)
        results.append(reconcile(spark, *books))
        new = set(tracker.getJobIdsForGroup()) - seen
        seen |= new
        jobs.append(new)
    tasks = extent.tasks_for(sum(len(nodes[name]) for name in names), cores_of(spark))
    assert tasks > 4
    assert len(jobs[1]) == len(jobs[0])
    stages = [tracker.getJobInfo(job).stageIds for job in jobs[1]]
    counts = [tracker.getStageInfo(stage).numTasks for job in stages for stage in job]
    assert counts.count(tasks) == 1
    assert results[0] == results[1]


def test_one_book_against_itself_is_refused(spark, tmp_path: Path) -> None:
    _, nodes = small_year()
    (store,) = make_stores(tmp_path, {"globex": nodes["globex"]})
    with pytest.raises(JournalProblem, match="both books are of node globex"):
        reconcile(spark, open_book(store), open_book(store))


def command(*words: str) -> tuple[int, dict]:
    answer = CliRunner().invoke(command_line(), ["pipeline", *words, "--json"])
    assert answer.stdout, answer.output
    return answer.exit_code, json.loads(answer.stdout)


def test_the_commands_generate_verify_run_reconcile(spark, tmp_path: Path) -> None:
    lake, key = str(tmp_path / "lake"), tmp_path / "key.json"
    code, made = command(
        "generate", "--messages", "2500", "--seed", "11", "--days", "20", "--output", lake,
        "--violations", str(key),
    )  # fmt: skip
    assert code == 0
    assert made["messages"] == 2_500
    planted = json.loads(key.read_text(encoding="utf-8"))
    assert planted

    code, checked = command("verify", "--lake", lake)
    assert code == 1
    order = lambda one: (one["kind"], one["message_id"])  # noqa: E731
    assert sorted(checked["violations"], key=order) == sorted(planted, key=order)
    assert all(set(one) == {"kind", "message_id"} for one in checked["violations"])
    assert len(checked["findings"]) == len(planted)
    assert all(one["sentence"] for one in checked["findings"])

    code, done = command("run", "--lake", lake)
    assert code == 0
    assert done["violations"] == len(planted)
    assert sum(one["messages"] for one in done["verdicts"]) == done["messages"] >= 2_500

    ours, theirs = trading(*small_year(2_500, 11))
    code, joined = command("reconcile", ours, theirs, "--lake", lake)
    assert code == 1
    assert joined["parties"] == [ours, theirs]
    assert joined["agreed"] < joined["compared"]
    assert all(one["sentence"] for one in joined["disagreements"])

    code, again = command("generate", "--messages", "5", "--output", lake)
    assert code == 4
    assert "a lake" in again["problems"][0]["problem"]


def test_the_commands_stream_a_clean_store(spark, tmp_path: Path) -> None:
    from tests.journal.scenarios import SCENARIOS

    world = SCENARIOS["window"]()
    nodes = {name: node.rows for name, node in world.nodes.items()}
    stores = make_stores(tmp_path / "stores", nodes)
    lake = str(tmp_path / "lake")
    options = [word for store in stores for word in ("--store", str(store))]
    code, done = command("stream", "--lake", lake, *options, "--ended")
    assert code == 0
    assert done["rows"] == sum(len(rows) for rows in nodes.values())
    code, checked = command("verify", "--lake", lake, "--ended")
    assert (code, checked["clean"], checked["violations"]) == (0, True, [])
    code, joined = command("reconcile", *sorted(nodes), "--lake", lake)
    assert code == 0
    assert joined["agreed"] == joined["compared"] > 20


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("verify", "--lake", "nowhere"), 3, "there is no lake"),
        (("run", "--lake", "new", "--store", "nowhere"), 3, "no store, export or lake"),
        (("run", "--lake", "new", "--conf", "nonsense"), 2, "has no value"),
        (("reconcile", "one", "two"), 3, "no store, export or lake"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple, code: int, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found, said = command(*words)
    assert found == code
    assert problem in said["problems"][0]["problem"]
    assert said["problems"][0]["next"]
