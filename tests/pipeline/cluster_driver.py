"""Every job on executors that are separate processes with an interpreter of their own."""

import json
import sys
from pathlib import Path

from pyspark.sql import functions as f

from oncewire.errors import NotAllowed
from oncewire.lab.sample_year.generate import generate
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.reports.reconcile import reconcile
from oncewire.pipeline.session import BRIEF, open_session, own_error
from oncewire.pipeline.sources.journal_source import open_book


def where(batches):
    """Runs on an executor: which interpreter, which package, and what is not there."""
    import importlib.util

    import pyarrow as pa

    import oncewire

    for batch in batches:
        lacking = [name for name in ("apsw", "aiohttp", "xmlsec", "typer")
                   if importlib.util.find_spec(name) is None]  # fmt: skip
        yield pa.RecordBatch.from_pydict(
            {"python": [sys.executable], "package": [str(oncewire.__file__)],
             "lacking": [",".join(lacking)]}
        )  # fmt: skip
        del batch


def main() -> None:
    folder, interpreter, store = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = open_session(
        "oncewire-cluster",
        master="local-cluster[2,1,1024]",
        config={
            **BRIEF,
            "spark.pyspark.python": interpreter,
            "spark.executor.memory": "1g",
            # A worker of Python may begin late on a busy machine.
            "spark.python.authenticate.socketTimeout": "120s",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    found: dict[str, object] = {}
    places = spark.range(0, 4, 1, 4).mapInArrow(
        where, "python string, package string, lacking string"
    )
    found["places"] = [row.asDict() for row in places.distinct().collect()]

    made = generate(
        spark, Lake(folder / "year"), messages=900, seed=3, days=20,
        violations=folder / "key.json", envelopes=20,
    )  # fmt: skip
    found["generated"] = made.rows
    checked = judge_lake(spark, Lake(folder / "year"))
    found["violations"] = sorted([one.kind, one.message_id] for one in checked.violations)
    run = jobs.run(spark, Lake(folder / "year"), archives=[folder / "year" / "archive"])
    found["messages"], found["envelopes"] = run.messages, run.envelopes

    streamed = jobs.stream(
        spark, Lake(folder / "streamed"), [folder / "year"], rows_per_batch=3_000
    )
    found["streamed"] = streamed.rows
    found["same"] = streamed.verdicts == run.verdicts
    nodes = sorted(Lake(folder / "year").current().nodes)
    books = [open_book(folder / "year", node) for node in nodes[-2:]]
    found["compared"] = reconcile(spark, books[0], books[1]).compared
    archive = spark.read.format("ebxml").load(str(folder / "year" / "archive"))
    found["readable"] = archive.where(f.col("readable")).count()

    try:
        spark.read.format("oncewire").load(store).count()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        refusal = own_error(error)
        found["refused"] = isinstance(refusal, NotAllowed) and "SQLite store" in str(refusal)
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
