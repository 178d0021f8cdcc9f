"""Every job runs in a session of Spark Connect, at a real server on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from oncewire.errors import NotAllowed
from oncewire.pipeline import session
from tests.ports import free_port

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of its own process; its Python is ours."""
    port, home = free_port(), Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        **session.BRIEF,
    }
    words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = (tmp_path / "server.log").open("wb")
    process = subprocess.Popen(
        [home / "bin" / "spark-submit", "--master", "local[2]", "--class", SERVER, *words],
        cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (tmp_path / "server.log").read_text()[-2_000:]
            time.sleep(0.5)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        log.close()


@pytest.mark.spark
@pytest.mark.long
def test_every_job_runs_over_spark_connect(server: str, tmp_path: Path) -> None:
    driver = Path(__file__).with_name("connect_driver.py")
    answer = subprocess.run(
        [sys.executable, str(driver), str(tmp_path), server],
        cwd=tmp_path, capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith("RESULT ")]
    assert said, answer.stdout[-1_000:] + answer.stderr[-3_000:]
    found = json.loads(said[0].removeprefix("RESULT "))
    assert found["remote"] is True
    assert found["cores"] == 2
    key = json.loads((tmp_path / "key.json").read_text(encoding="utf-8"))
    assert found["violations"] == sorted([one["kind"], one["message_id"]] for one in key)
    assert found["messages"] >= 600
    assert found["envelopes"] == 5
    assert found["streamed"] == found["generated"]
    assert found["same"] is True
    assert found["compared"] > 0
    assert found["refused"] == "only a SELECT, SHOW TABLES and DESCRIBE can be asked"
    assert found["asked"] == found["ledger"] >= found["messages"]


def test_without_its_packages_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_PACKAGES", ("grpc", "no_such_package.at_all"))
    with pytest.raises(NotAllowed, match="Spark Connect needs no_such_package") as refused:
        session.open_session(master="sc://127.0.0.1:1")
    assert "oncewire[connect]" in refused.value.remedy
