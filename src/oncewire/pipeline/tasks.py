"""Work on executors: plain functions as Spark tasks, and how many jobs and tasks Spark ran.

A task returns one value to the driver, and a small one: the names of the files that it wrote, and
counts. What a task has to refuse comes back as the error itself, so no task is tried again for it
and the driver raises what the task raised.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from oncewire.errors import OncewireError

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterator["pa.RecordBatch"]
RESULT = "result binary"


def is_remote(session: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, whose Java is somewhere else."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def returning(work: Callable[[Batches], Any]) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: a task that reads all its batches and returns one value."""

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        try:
            value = work(batches)
        except OncewireError as error:
            value = error
        for _ in batches:
            pass  # What a refusal left unread.
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(value)])], names=["result"])

    return run


def each(spark: SparkSession, calls: Sequence[Callable[[], Any]]) -> DataFrame:
    """One task for each call; `results` runs them."""

    def work(batches: Batches) -> list[Any]:
        return [calls[number]() for batch in batches for number in batch.column(0).to_pylist()]

    many = max(1, len(calls))
    return spark.range(0, len(calls), 1, many).mapInArrow(returning(work), RESULT)


def results(*frames: DataFrame) -> list[Any]:
    """What the tasks of some frames return, in one job; an error of a task is raised."""
    rows = reduce(DataFrame.union, frames).collect()
    # The tasks are our own code: nothing else wrote these bytes.
    found = [pickle.loads(row[0]) for row in rows]  # noqa: S301
    for value in found:
        if isinstance(value, OncewireError):
            raise value
    return found


def sentence(failure: Exception) -> str:
    """What a failure says, as a sentence of a table."""
    text = str(getattr(failure, "problem", failure)).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def run_each(spark: SparkSession, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What some calls return, each made in a task of its own, in their order."""
    if not calls:
        return []
    return [value for some in results(each(spark, calls)) for value in some]


@dataclass(slots=True)
class Spent:
    """What Spark ran for a job of ours, by its own count."""

    jobs: int | None = 0
    tasks: int | None = 0
    """Tasks that Spark ran; None: a server of Spark Connect does not tell."""


@contextmanager
def counting(spark: SparkSession, spent: Spent) -> Iterator[Spent]:
    """Add up the jobs and tasks that this thread starts meanwhile, as Spark's status has them."""
    if is_remote(spark):
        spent.jobs = spent.tasks = None
        yield spent
        return
    context, group = spark.sparkContext, f"oncewire-{uuid.uuid4().hex}"
    outer = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    try:
        yield spent
    finally:
        context.setLocalProperty("spark.jobGroup.id", outer)  # type: ignore[arg-type]
        # Spark notes its jobs behind their end, in a thread of its own.
        context._jsc.sc().listenerBus().waitUntilEmpty(10_000)  # noqa: SLF001
        status = context.statusTracker()
        for number in status.getJobIdsForGroup(group):
            job = status.getJobInfo(number)
            stages = [status.getStageInfo(stage) for stage in job.stageIds] if job else []
            spent.jobs = (spent.jobs or 0) + 1
            spent.tasks = (spent.tasks or 0) + sum(
                stage.numCompletedTasks for stage in stages if stage is not None
            )
