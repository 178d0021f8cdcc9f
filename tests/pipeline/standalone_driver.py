"""Every job in a standalone cluster, on journals that are in PostgreSQL."""

import json
import os
import sys
from pathlib import Path

from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.reports.reconcile import reconcile
from oncewire.pipeline.reports.sql import ask
from oncewire.pipeline.session import BRIEF, open_session
from oncewire.pipeline.sources.journal_source import open_book


def main() -> None:
    folder, master, urls = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    spark = open_session(
        "oncewire-standalone",
        master=master,
        config={
            **BRIEF,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "700m",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            # A worker of Python may begin late on a busy machine.
            "spark.python.authenticate.socketTimeout": "120s",
        },
    )
    lake = Lake(folder / "lake")
    run = jobs.run(spark, lake, urls, ended=True)
    found: dict[str, object] = {
        "rows": run.rows,
        "messages": run.messages,
        "tasks": run.spark_tasks,
    }
    # The driver is among them.
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    found["executors"] = len(infos) - 1
    found["again"] = jobs.run(spark, lake, urls, ended=True).rows
    checked = judge_lake(spark, lake, ended=True)
    found["violations"] = sorted([one.kind, one.message_id] for one in checked.violations)
    streamed = jobs.stream(spark, Lake(folder / "streamed"), urls, ended=True)
    found["streamed"], found["same"] = streamed.rows, streamed.verdicts == run.verdicts
    found["compared"] = reconcile(spark, open_book(urls[-2]), open_book(urls[-1])).compared
    found["asked"] = ask(spark, lake, "SELECT count(*) FROM ledger", 10).rows[0][0]
    journal = spark.read.format("oncewire").option("url", urls[-1])
    frame = journal.option("rowsPerPartition", "100").load()
    found["read"], found["parts"] = frame.count(), frame.rdd.getNumPartitions()
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
