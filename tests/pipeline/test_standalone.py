"""A standalone cluster, a master and two workers on this machine, reads PostgreSQL."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from oncewire.store.postgresql.store import PostgresStore
from tests.pipeline.books import small_year
from tests.ports import free_port
from tests.postgres import Server

PLAN, NODES = small_year()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Its address; each worker has one core."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with ExitStack() as stack:

        def start(name: str, *words: str) -> Path:
            log = tmp_path / f"{name}.log"
            process = subprocess.Popen(
                [spark_class, *words], cwd=tmp_path, env=environment,
                stdout=stack.enter_context(log.open("wb")), stderr=subprocess.STDOUT,
            )  # fmt: skip
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return log

        where = ("--host", "127.0.0.1", "--webui-port", "0")
        head = start("master", "org.apache.spark.deploy.master.Master", *where, "--port", str(port))
        _told(head, "I have been elected leader", 1)
        for number in (1, 2):
            start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *where, "--cores", "1",
                "--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}"), address,
            )  # fmt: skip
        _told(head, "Registering worker", 2)
        yield address


def _told(log: Path, words: str, times: int) -> None:
    for _ in range(600):
        if log.is_file() and log.read_text().count(words) >= times:
            return
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-2_000:])


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.soak
def test_every_job_runs_in_a_standalone_cluster_on_postgresql(
    cluster: str, postgres: Server, tmp_path: Path
) -> None:
    urls = []
    for node, rows in sorted(NODES.items()):
        urls.append(postgres.new_schema())
        store = PostgresStore.open(urls[-1], node=node, spool=tmp_path / f"spool-{node}")
        with store.transition() as tx:
            tx.journal(rows)
        store.commit()
        store.close()
    driver = Path(__file__).with_name("standalone_driver.py")
    answer = subprocess.run(
        [sys.executable, str(driver), str(tmp_path), cluster, *urls],
        cwd=tmp_path, capture_output=True, text=True, timeout=3_000, check=False,
    )  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith("RESULT ")]
    assert said, answer.stdout[-1_000:] + answer.stderr[-3_000:]
    found = json.loads(said[0].removeprefix("RESULT "))
    print(found)
    every = sum(map(len, NODES.values()))
    assert found["executors"] == 2
    assert found["rows"] == found["streamed"] == every
    assert found["again"] == 0
    assert found["same"] is True
    assert found["asked"] >= found["messages"] > 0
    assert found["tasks"] > 0
    assert found["compared"] > 0
    assert found["read"] == len(NODES[max(NODES)])
    assert found["parts"] > 1
    assert found["violations"] == sorted([kind, message] for kind, message in PLAN.violations)
