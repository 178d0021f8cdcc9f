"""A cluster's executors have their own interpreter, our wheel, and no source tree."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import OPEN
from tests.parts import ROOT
from tests.pipeline.books import make_export, make_store, small_year

pytestmark = pytest.mark.spark


def test_every_job_runs_on_separate_executors(interpreter: Path, tmp_path: Path) -> None:
    store = make_store(tmp_path / "globex.db", "globex", small_year()[1]["globex"][:20])
    environment = {**os.environ, "PYSPARK_PYTHON": str(interpreter)}
    environment.pop("PYTHONPATH", None)
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cluster_driver.py")), str(tmp_path),
         str(interpreter), str(store)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith("RESULT ")]
    assert said, answer.stdout[-1_000:] + answer.stderr[-3_000:]
    found = json.loads(said[0].removeprefix("RESULT "))

    source = str(ROOT / "src")
    assert found["places"]
    for place in found["places"]:
        assert place["python"] == str(interpreter)
        assert place["package"].startswith(str(interpreter.parent.parent))
        assert not place["package"].startswith(source)
        assert place["lacking"] == "apsw,aiohttp,xmlsec,typer"
    key = json.loads((tmp_path / "key.json").read_text(encoding="utf-8"))
    assert key
    assert found["violations"] == sorted([one["kind"], one["message_id"]] for one in key)
    assert found["messages"] >= 600
    assert found["streamed"] == found["generated"]
    assert found["same"] is True
    assert found["compared"] > 0
    assert found["envelopes"] == found["readable"] == 20
    assert found["refused"] is True
    shutil.rmtree(tmp_path / "year")


def test_the_driver_opens_no_journal_and_no_table(tmp_path: Path) -> None:
    """It names what tasks wrote: run, stream and verify publish and judge every table, and no
    SQLite store is accepted where executors do not have it."""
    _, nodes = small_year()
    for node, rows in nodes.items():
        make_export(tmp_path / "exports" / node, node, rows)
    store = make_store(tmp_path / "globex.db", "globex", nodes["globex"][:20])
    answer = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.blind_driver", str(tmp_path), str(store)],
        cwd=ROOT, capture_output=True, text=True, timeout=1_200, check=False,
    )  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith("RESULT ")]
    assert said, answer.stdout[-1_000:] + answer.stderr[-3_000:]
    found = json.loads(said[0].removeprefix("RESULT "))
    assert found["opened"] == []
    assert found["watched"] == 2
    # A value of each task, and what `verify` reports: its findings, and its counts by channel.
    journal_rows = sum(map(len, nodes.values()))
    assert found["collected"] < 200 < journal_rows
    assert "is a SQLite store" in found["refused"]
    assert not Lake(tmp_path / "refused").exists
    assert found["checked"] == found["run"]["messages"] == found["stream"]["messages"] == 200
    assert found["run"]["verdicts"] == found["stream"]["verdicts"]
    for name in ("run", "stream"):
        version = Lake(tmp_path / name).current()
        assert version.rows("journal") == journal_rows
        for table in ("messages", "attempts", "partner_service", "judged"):
            assert version.rows(table), table
        for table in OPEN.values():
            read = pq.read_table(tmp_path / name / table.root / "current")
            assert read.num_rows == sum(entry.rows for entry in table.entries(version))
