"""A driver that cannot open a journal or a data file, and collects no more rows than a report has.

It runs on executors that are processes of their own (`local-cluster`), so whatever is read or
written is read and written there. Spark's own Java opens no data file either: it is given the
columns of each table, and lists folders.
"""

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql.classic.dataframe import DataFrame

from oncewire.errors import NotAllowed
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import BRIEF, open_session

OPENED: list[str] = []
"""What the driver tried to open and must not."""

COLLECTED: list[int] = []
"""The rows of each answer that the driver took."""


def watch_files(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what Python itself opens."""
    opens = event == "open" and str(arguments[0]).endswith((".parquet", ".db"))
    if opens or event == "sqlite3.connect":
        forbid(str(arguments[0]))


def forbid(what: str) -> None:
    OPENED.append(what)
    raise PermissionError(f"the driver opens {what}")


def refusing(name: str) -> Callable[..., Any]:
    def refuse(source: object, *_: object, **__: object) -> None:
        forbid(f"{name} {source}")

    return refuse


def counted(real: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
    def collect(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        COLLECTED.append(size(found))
        return found

    return collect


def main() -> None:
    folder, store = Path(sys.argv[1]), sys.argv[2]
    exports = sorted(str(path) for path in (folder / "exports").iterdir())
    spark = open_session(
        "oncewire-blind",
        master="local-cluster[2,1,1024]",
        config={**BRIEF, "spark.executor.memory": "1g"},
    )
    sys.addaudithook(watch_files)
    # Arrow opens files below Python; footers (`read_metadata`) are the driver's for Delta's log.
    ds.dataset = refusing("dataset")
    pq.read_table = refusing("read_table")
    for name in ("read", "read_row_group", "read_row_groups", "iter_batches"):
        setattr(pq.ParquetFile, name, refusing(name))
    DataFrame.collect = counted(DataFrame.collect, len)  # type: ignore[method-assign]
    DataFrame.toArrow = counted(DataFrame.toArrow, len)  # type: ignore[method-assign]
    DataFrame.toPandas = refusing("toPandas")  # type: ignore[method-assign,assignment]
    found: dict[str, Any] = {}
    jobs.run(spark, Lake(folder / "run"), exports[: len(exports) // 2])
    for name, done in (
        ("run", jobs.run(spark, Lake(folder / "run"), exports)),
        ("stream", jobs.stream(spark, Lake(folder / "stream"), exports, rows_per_batch=400)),
    ):
        found[name] = {"messages": done.messages, "verdicts": done.verdicts}
    checked = judge_lake(spark, Lake(folder / "run"))
    found["findings"] = len(checked.violations) + len(checked.quarantined)
    found["checked"] = checked.messages
    try:
        jobs.run(spark, Lake(folder / "refused"), [store])
    except NotAllowed as refusal:
        found["refused"] = str(refusal)
    found["opened"], found["collected"] = list(OPENED), max(COLLECTED)
    # The hook works: what it is there for is refused.
    for attempt in (lambda: sqlite3.connect(store), lambda: open(store)):  # noqa: PTH123, SIM115
        try:
            attempt()
        except PermissionError:
            found["watched"] = found.get("watched", 0) + 1
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
