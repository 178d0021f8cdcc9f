"""A stream that is killed, replayed or failed anywhere ends with the tables of one clean run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncewire.pipeline import crash, jobs
from oncewire.pipeline.lake import Lake
from tests.parts import ROOT
from tests.pipeline.books import differences, make_stores, small_year, tables

pytestmark = pytest.mark.spark

ROWS, ROWS_PER_BATCH = 300, 120
"""Of each of two stores: three batches, of which the first two are full."""

KILLED_IN = 2
"""The second batch, so that there is one before it and one after it."""

PASSES = {"before_offset_log": 2, "after_offset_log": 2, "mid_task": 4}
"""How often a full batch passes a place, where it is not once: two sources are planned, and each
is read by two tasks."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parties of a small year."""
    _, nodes = small_year(120, 7)
    chosen = sorted(nodes, key=lambda node: -len(nodes[node]))[:2]
    # The places below are counted, and with fewer rows they would mean another batch.
    assert all(len(nodes[node]) >= ROWS for node in chosen)
    return make_stores(
        tmp_path_factory.mktemp("stores"), {node: nodes[node][:ROWS] for node in chosen}
    )


@pytest.fixture(scope="module")
def clean(spark, stores: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The tables of one run that nothing disturbs."""
    lake = Lake(tmp_path_factory.mktemp("clean") / "lake")
    jobs.run(spark, lake, stores)
    found = tables(spark, lake)
    assert len(found["ledger"]) > 60
    assert lake.current().rows("ledger_closed") > 30
    return found


def drive(lake: Path, stores: list[Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the driver to its end, whatever that is."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.stream_driver", str(lake), *map(str, stores),
         "--rows", str(ROWS_PER_BATCH)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        output, _ = process.communicate(timeout=550)
    return subprocess.CompletedProcess([], process.returncode, output)


def log_of(lake: Path, name: str) -> set[str]:
    folder = lake / "checkpoint" / name
    return {path.name for path in folder.glob("[0-9]*")} if folder.is_dir() else set()


EXPECTED = {
    # What the checkpoint and the lake hold when the driver dies in its second batch.
    "before_offset_log": ({"0"}, {"0"}, 1),
    "after_offset_log": ({"0", "1"}, {"0"}, 1),
    "mid_task": ({"0", "1"}, {"0"}, 1),
    "before_publishing": ({"0", "1"}, {"0"}, 1),
    "after_publishing": ({"0", "1"}, {"0"}, 2),
    "before_commit_log": ({"0", "1"}, {"0"}, 2),
}


@pytest.mark.parametrize("place", crash.PLACES)
def test_a_killed_driver_leaves_no_hole(
    spark, stores: list[Path], clean: dict, tmp_path: Path, place: str
) -> None:
    lake, proof = tmp_path / "lake", tmp_path / "proof"
    count = PASSES.get(place, 1) * (KILLED_IN - 1) + 1
    died = drive(lake, stores, **{crash.VARIABLE: f"{place}:{count}:{proof}"})
    assert died.returncode == -signal.SIGKILL, died.stdout[-2_000:]
    # Two tasks run side by side, so the second may arrive before it is killed.
    reached = proof.read_text(encoding="utf-8")
    assert reached in {f"{place}\n" * count, f"{place}\n" * (count + (place == "mid_task"))}
    offsets, commits, version = EXPECTED[place]
    assert (log_of(lake, "offsets"), log_of(lake, "commits")) == (offsets, commits)
    assert Lake(lake).current().number == version

    jobs.stream(spark, Lake(lake), stores, rows_per_batch=ROWS_PER_BATCH)
    assert not differences(clean, tables(spark, Lake(lake)))
    left = {path.name for path in (lake / "gold").rglob("_temporary")}
    assert not left


def test_a_task_that_fails_twice_changes_nothing(
    spark, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    lake, proof = tmp_path / "lake", tmp_path / "proof"
    done = drive(
        lake,
        stores,
        **{crash.VARIABLE: f"mid_task:2:{proof}", crash.HOW_VARIABLE: "raise"},
    )
    assert done.returncode == 0, done.stdout[-2_000:]
    assert len(proof.read_text(encoding="utf-8").splitlines()) > 2
    assert not differences(clean, tables(spark, Lake(lake)))


def test_a_batch_that_is_replayed_changes_nothing(
    spark, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    before = lake.current()
    last = max(log_of(lake.root, "commits"), key=int)
    for path in (lake.root / "checkpoint" / "commits").glob(f"*{last}*"):
        path.unlink()
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert lake.current() == before
    assert last in log_of(lake.root, "commits")
    assert not differences(clean, tables(spark, lake))


def test_a_lost_checkpoint_changes_nothing(
    spark, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    import shutil

    lake = Lake(tmp_path / "lake")
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    shutil.rmtree(lake.root / "checkpoint")
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert not differences(clean, tables(spark, lake))
