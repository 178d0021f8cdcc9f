"""Every job in a session of Spark Connect."""

import json
import sys
from pathlib import Path

from oncewire.errors import InvalidValue
from oncewire.lab.sample_year.generate import generate
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.reports.reconcile import reconcile
from oncewire.pipeline.reports.sql import ask
from oncewire.pipeline.session import cores_of, open_session
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.pipeline.tasks import is_remote


def main() -> None:
    folder = Path(sys.argv[1])
    spark = open_session("oncewire-connect", master=sys.argv[2])
    found: dict[str, object] = {"remote": is_remote(spark), "cores": cores_of(spark)}
    year = Lake(folder / "year")
    made = generate(
        spark, year, messages=600, seed=3, days=20, violations=folder / "key.json", envelopes=5
    )
    found["generated"] = made.rows
    checked = judge_lake(spark, year)
    found["violations"] = sorted([one.kind, one.message_id] for one in checked.violations)
    run = jobs.run(spark, year, archives=[folder / "year" / "archive"])
    found["messages"], found["envelopes"] = run.messages, run.envelopes
    streamed = jobs.stream(spark, Lake(folder / "streamed"), [folder / "year"])
    found["streamed"], found["same"] = streamed.rows, streamed.verdicts == run.verdicts
    nodes = sorted(year.current().nodes)
    books = [open_book(folder / "year", node) for node in nodes[-2:]]
    found["compared"] = reconcile(spark, books[0], books[1]).compared
    found["asked"] = ask(spark, year, "SELECT count(*) FROM ledger", 10).rows[0][0]
    try:
        ask(spark, year, "DROP VIEW ledger", 10)
    except InvalidValue as refusal:
        found["refused"] = refusal.problem
    ledger = spark.read.format("oncewire").option("table", "ledger").load(str(folder / "year"))
    found["ledger"] = ledger.count()
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
