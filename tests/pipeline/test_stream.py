"""A stream that is killed, replayed or failed anywhere ends with the tables of one clean run."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncewire.pipeline import jobs
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import register
from tests.parts import ROOT
from tests.pipeline.books import differences, executions, make_stores, small_year, tables

pytestmark = pytest.mark.spark

ROWS, ROWS_PER_BATCH = 300, 120
"""Of each of two stores: three batches, of which the first two are full."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parties of a small year, of which the first batch is there; `begun` adds the rest."""
    return make_stores(
        tmp_path_factory.mktemp("stores"),
        {node: rows[:ROWS_PER_BATCH] for node, rows in _chosen().items()},
    )


def _chosen() -> dict:
    _, nodes = small_year(120, 7)
    chosen = sorted(nodes, key=lambda node: -len(nodes[node]))[:2]
    # With fewer rows there would be fewer batches.
    assert all(len(nodes[node]) >= ROWS for node in chosen)
    return {node: nodes[node][:ROWS] for node in chosen}


@pytest.fixture(scope="module")
def begun(spark, stores: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the first of three batches, and a checkpoint that says so."""
    lake = Lake(tmp_path_factory.mktemp("begun") / "lake")
    done = jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert (done.version, done.rows) == (1, 2 * ROWS_PER_BATCH)
    rest = {node: rows[ROWS_PER_BATCH:] for node, rows in _chosen().items()}
    assert make_stores(stores[0].parent, rest) == stores
    return lake.root


@pytest.fixture(scope="module")
def clean(spark, begun: Path, stores: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The tables of one run that nothing disturbs."""
    lake = Lake(tmp_path_factory.mktemp("clean") / "lake")
    jobs.run(spark, lake, stores)
    found = tables(spark, lake)
    assert len(found["journal"]) == 2 * ROWS
    assert len(found["ledger"]) > 60
    assert lake.current().rows("ledger_closed") > 30
    return found


@pytest.fixture(scope="module")
def streamed(
    spark, begun: Path, stores: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A lake that took all three batches in peace."""
    lake = Lake(tmp_path_factory.mktemp("streamed") / "lake")
    shutil.copytree(begun, lake.root)
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert lake.current().number == 3
    return lake.root


@pytest.fixture
def lake(begun: Path, tmp_path: Path) -> Path:
    """The begun lake, for one test to spoil."""
    return Path(shutil.copytree(begun, tmp_path / "lake"))


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
    # What the checkpoint and the lake hold when the driver dies in the second batch.
    "before_offset_log": ({"0"}, {"0"}, 1),
    "after_offset_log": ({"0", "1"}, {"0"}, 1),
    "mid_task": ({"0", "1"}, {"0"}, 1),
    "before_publishing": ({"0", "1"}, {"0"}, 1),
    "after_publishing": ({"0", "1"}, {"0"}, 2),
    "before_commit_log": ({"0", "1"}, {"0"}, 2),
}


@pytest.mark.parametrize("place", crash.PLACES)
def test_a_killed_driver_leaves_no_hole(
    spark, lake: Path, stores: list[Path], clean: dict, tmp_path: Path, place: str
) -> None:
    """There is a batch before the one in which it dies, and one after it."""
    proof = tmp_path / "proof"
    died = drive(lake, stores, **{crash.VARIABLE: f"{place}:1:{proof}"})
    assert died.returncode == -signal.SIGKILL, died.stdout[-2_000:]
    # Two tasks run side by side, so the second may arrive before it is killed.
    reached = proof.read_text(encoding="utf-8")
    assert reached in {f"{place}\n", f"{place}\n" * (1 + (place == "mid_task"))}
    offsets, commits, version = EXPECTED[place]
    assert (log_of(lake, "offsets"), log_of(lake, "commits")) == (offsets, commits)
    assert Lake(lake).current().number == version

    jobs.stream(spark, Lake(lake), stores, rows_per_batch=ROWS_PER_BATCH)
    assert not differences(clean, tables(spark, Lake(lake)))
    left = {path.name for path in (lake / "gold").rglob("_temporary")}
    assert not left


@contextmanager
def environment_of_tasks(spark, **variables: str) -> Iterator[None]:
    """What is registered meanwhile runs in Python workers that have these variables."""
    spark.sparkContext.environment.update(variables)
    register(spark)
    try:
        yield
    finally:
        for name in variables:
            del spark.sparkContext.environment[name]
        register(spark)


def test_a_task_that_fails_twice_changes_nothing(
    spark, lake: Path, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    variables = {crash.VARIABLE: f"mid_task:2:{proof}", crash.HOW_VARIABLE: "raise"}
    with environment_of_tasks(spark, **variables):
        jobs.stream(spark, Lake(lake), stores, rows_per_batch=ROWS_PER_BATCH)
    assert len(proof.read_text(encoding="utf-8").splitlines()) > 2
    assert not differences(clean, tables(spark, Lake(lake)))


def test_a_batch_that_is_replayed_changes_nothing(
    spark, streamed: Path, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    lake = Lake(shutil.copytree(streamed, tmp_path / "lake"))
    before = lake.current()
    last = max(log_of(lake.root, "commits"), key=int)
    for path in (lake.root / "checkpoint" / "commits").glob(f"*{last}*"):
        path.unlink()
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert lake.current() == before
    assert last in log_of(lake.root, "commits")
    assert not differences(clean, tables(spark, lake))


def test_a_lost_checkpoint_changes_nothing(
    spark, streamed: Path, stores: list[Path], clean: dict, tmp_path: Path
) -> None:
    lake = Lake(shutil.copytree(streamed, tmp_path / "lake"))
    shutil.rmtree(lake.root / "checkpoint")
    jobs.stream(spark, lake, stores, rows_per_batch=ROWS_PER_BATCH)
    assert not differences(clean, tables(spark, lake))


def test_a_batch_is_six_passes(spark, lake: Path, stores: list[Path], clean: dict) -> None:
    """The stream's own query is one of each batch's; the survey at the beginning is one more."""
    before = executions(spark)
    done = jobs.stream(spark, Lake(lake), stores, rows_per_batch=ROWS_PER_BATCH)
    assert Lake(lake).current().number == 3
    assert executions(spark) - before == 1 + 2 * (1 + 6)
    assert done.spark_jobs is not None
    assert 1 + 2 * 6 <= done.spark_jobs <= 1 + 2 * 10
    assert not differences(clean, tables(spark, Lake(lake)))


@pytest.mark.soak
@pytest.mark.parametrize("place", crash.PLACES)
def test_a_driver_that_is_killed_over_and_over_leaves_no_hole(
    spark, stores: list[Path], clean: dict, tmp_path: Path, place: str
) -> None:
    """From an empty lake on, every driver comes a little further than the one before."""
    lake = tmp_path / "lake"
    for attempt in range(1, 20):
        proof = tmp_path / f"proof-{attempt}"
        died = drive(lake, stores, **{crash.VARIABLE: f"{place}:{attempt}:{proof}"})
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stdout[-2_000:]
    assert attempt > 1
    jobs.stream(spark, Lake(lake), stores, rows_per_batch=ROWS_PER_BATCH)
    assert not differences(clean, tables(spark, Lake(lake)))
