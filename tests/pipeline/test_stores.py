"""The ledger says of every message what the handlers' own stores say of it.

The simulator runs real handlers, here on SQLite, over a network that loses, repeats, damages and
reorders, with crashes and full disks. What each store then holds as state is read through
`format("oncewire")` and compared with the ledger, which is made of the journals alone.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from oncewire.errors import StoreProblem
from oncewire.lab.simulation import machine
from oncewire.lab.simulation.plan import Options, faults_of, plan_of
from oncewire.lab.simulation.world import World
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.store.sqlite.store import SqliteStore
from oncewire.store.transition.work import UnitOfWork
from tests.pipeline.published import read_ledger

pytestmark = pytest.mark.spark


class DiskStore(SqliteStore):
    """A store on SQLite that can die and fail like the simulator's own."""

    _failure: StoreProblem | None = None

    def crash(self) -> None:
        """Everything since the last commit is gone; the same object serves the next process."""
        self._open = self._lost = None
        self._abandon()

    def fail_next_commit(self, error: StoreProblem) -> None:
        self._failure = error

    def _commit(self, work: UnitOfWork) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self._fence_needed = True
            raise failure
        super()._commit(work)

    def _connect(self, node: str | None) -> UnitOfWork:
        work = super()._connect(node)
        assert self._connection is not None
        # The disk of this world loses nothing that was written, so nothing is waited for.
        self._connection.pragma("synchronous", "OFF")
        return work


WORLDS = {
    # Refusals are made certain by a network that is cut, doubts by one that loses.
    "ordered": Options(
        messages=120, loss=0.4, corrupt=0.08, partition=0.05, crash=0.02, disk_full=0.02,
        retries=1, abandon=0.7,
    ),
    "hub": Options(messages=30, hops=2, loss=0.3, crash=0.02, disk_full=0.02, retries=3),
}  # fmt: skip

SEEDS = {"ordered": 1, "hub": 1}
"""Worlds in which every way to end is met."""

SAME = ("channel", "epoch", "sequence_number", "attempts", "digest", "terms_id")
HEADER = ("cpa_id", "conversation_id", "service", "action")
"""What the sender's state row and the ledger both hold, under one name."""

HAS_IT = {"held", "ready", "handed_over", "confirmed"}


def play(folder: Path, world: str, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The stores that a simulated run leaves behind, closed."""
    options, seed = WORLDS[world], SEEDS[world]
    print(f"oncewire simulate --seed {seed} {options.as_flags()}")
    monkeypatch.setattr(
        machine, "MemoryStore", lambda node: DiskStore(folder / f"{node}.db", node=node)
    )
    # The orders alone: no message of the world's own follows them.
    run = World(replace(plan_of(options, seed), probed=False))
    result = run.run()
    assert not result.violations
    faults = faults_of(result.happened)
    assert min(faults[name] for name in ("loss", "duplicate", "crash", "disk_full")) > 0
    for one in run.machines:
        one.store.close()
    return sorted(folder.glob("*.db"))


def outcome_by(sent: str, received: str | None) -> str:
    """What two state rows say together: a receiver who has it settles the sender's doubt."""
    return "delivered" if sent == "unknown" and received in HAS_IT else sent


@pytest.mark.parametrize("world", WORLDS)
def test_the_ledger_says_what_the_stores_say(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    stores = play(tmp_path, world, monkeypatch)
    lake = Lake(tmp_path / "lake")
    jobs.run(spark, lake, stores, ended=True)
    ledger = read_ledger(spark, lake, lake.current())
    for name in ("submitted_at", "received_at"):
        ledger = ledger.withColumn(name, f.unix_micros(name))
    found = {row["message_id"]: row for row in ledger.collect()}

    state: dict[tuple[str, str], dict[str, Any]] = {}
    for store in stores:
        rows = spark.read.format("oncewire").option("table", "messages").load(str(store))
        for row in rows.collect():
            state.setdefault((row["node"], row["direction"]), {})[row["message_id"]] = row
    sent, received = state["buyer", "out"], state["seller", "in"]

    assert found.keys() == sent.keys()
    assert len(sent) == WORLDS[world].messages
    assert received.keys() <= sent.keys()
    for message_id, row in found.items():
        ours, theirs = sent[message_id], received.get(message_id)
        assert row["outcome"] == outcome_by(ours["state"], theirs and theirs["state"]), row
        assert row["verdict"] == row["outcome"]
        assert [row[name] for name in SAME] == [ours[name] for name in SAME], message_id
        assert [row[name] for name in HEADER] == [ours[name] for name in HEADER], message_id
        assert row["size_bytes"] == ours["size"]
        assert row["submitted_at"] == ours["since"]
        assert row["received_at"] == (theirs and theirs["since"])
        assert row["confirmed_count"] == (theirs is not None and theirs["state"] == "confirmed")
        assert theirs is None or theirs["digest"] == row["digest"]
    if world == "ordered":
        # Every way a message can end is among them, and a doubt that the receiver settles.
        words = Counter((ours["state"], one in received) for one, ours in sent.items())
        assert {("delivered", True), ("not_delivered", False), ("unknown", False),
                ("unknown", True)} <= words.keys(), words  # fmt: skip
    else:
        assert state["hub1", "in"].keys() == state["hub1", "out"].keys() == sent.keys()
