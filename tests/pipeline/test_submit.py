"""The same commands under spark-submit, which brings its own Java and its own settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import oncewire
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from tests.pipeline.books import differences, make_stores, small_year, tables

pytestmark = pytest.mark.spark

PROGRAM = Path(oncewire.__path__[0]) / "__main__.py"


def test_a_job_that_is_submitted_makes_the_same_tables(spark, tmp_path: Path) -> None:
    _, nodes = small_year()
    chosen = {name: nodes[name] for name in sorted(nodes)[:2]}
    stores = make_stores(tmp_path / "stores", chosen)
    words = [word for store in stores for word in ("--store", str(store))]
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [str(submit), "--master", "local[2]", "--name", "submitted",
         "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=3",
         "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
         str(PROGRAM), "pipeline", "run", "--lake", str(tmp_path / "there"), *words, "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    said = json.loads(done.stdout)
    here = jobs.run(spark, Lake(tmp_path / "here"), stores)
    assert (said["rows"], said["messages"]) == (here.rows, here.messages)
    assert here.rows == sum(len(rows) for rows in chosen.values())
    found = tables(spark, Lake(tmp_path / "there"))
    assert not differences(tables(spark, Lake(tmp_path / "here")), found)
    assert found["ledger"]
