"""SQL over a lake: every table of one version as a view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from oncewire.errors import InvalidValue
from oncewire.pipeline.lake.columns import former
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import EVERY
from oncewire.pipeline.session import pinned
from oncewire.pipeline.tasks import is_remote

_LOOKS = re.compile(r"\s*(show\s+(tables|views)|desc(ribe)?\s+\w+)\s*;?\s*", re.IGNORECASE)
"""Questions about the views that are no query."""

ROWS_MAX = 10_000
"""More rows than this are a table of their own, and not an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question gave."""

    version: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool
    """Whether there are more rows than are shown."""


def make_views(spark: SparkSession, lake: Lake, *, v1: bool = False) -> int:
    """Each table as a temporary view, all of one version, whose number is handed back; `v1`: with
    the columns' names of the first version."""
    version = lake.shown()
    for table in EVERY.values():
        frame = lake.read(spark, version, table.schema, *table.stored)
        if v1:
            frame = frame.selectExpr(*(each.sql for each in former(table.schema)))
        frame.createOrReplaceTempView(table.name)
    return version.number


def _check_question(spark: SparkSession, question: str) -> None:
    """Refuse a statement that would change something: Spark carries it out when it is read."""
    remote = is_remote(spark)
    if not remote:
        # PySpark has no parser of its own.
        parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        parser.parsePlan(question)
    if _LOOKS.fullmatch(question):
        return
    try:
        if remote:
            # The server parses it: what is no query cannot stand in the place of a table.
            inner = question.rstrip().rstrip(";")
            _ = spark.sql(f"SELECT * FROM (\n{inner}\n) LIMIT 0").columns  # noqa: S608
        else:
            parser.parseQuery(question)
    except ParseException:
        raise InvalidValue(
            "only a SELECT, SHOW TABLES and DESCRIBE can be asked",
            remedy="to keep an answer, write what `oncewire pipeline sql --json` prints to a file",
        ) from None


def ask(
    spark: SparkSession, lake: Lake, question: str, rows: int = ROWS_MAX, *, v1: bool = False
) -> Answer:
    """The answer to a SELECT; `v1`: one that names columns as the first version did."""
    with pinned(spark):
        number = make_views(spark, lake, v1=v1)
        try:
            _check_question(spark, question)
            frame = spark.sql(question)
            found = frame.limit(rows + 1).toArrow().to_pylist()
        except (AnalysisException, ParseException) as error:
            line = str(error).strip().splitlines()[0]
            raise InvalidValue(
                f"this cannot be asked: {line[:300]}",
                remedy=f"the views are {', '.join(EVERY)}; DESCRIBE names the columns of one",
            ) from None
    values = tuple(tuple(row.values()) for row in found[:rows])
    return Answer(number, tuple(frame.columns), values, len(found) > rows)
