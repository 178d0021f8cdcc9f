"""A standalone cluster, a master and two workers on this machine, reads PostgreSQL and admin ports.

What is submitted to it may bring its environment along.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from oncewire.entry.party.folder import make_keys
from oncewire.handler.world import RealWorld
from oncewire.pipeline.lake import storage
from oncewire.pipeline.lake.lake import Lake
from oncewire.store.postgresql.store import PostgresStore
from tests.buckets import serving
from tests.entry.terminal import run_json
from tests.parts import ROOT
from tests.pipeline.admin_ports import opening
from tests.pipeline.books import make_stores, small_year
from tests.pipeline.exchanges import PARTIES, exchanges
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
    # What executors find is what a driver gives them.
    environment.pop("PYTHONPATH", None)
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
        store = PostgresStore(urls[-1], node=node, spool=tmp_path / f"spool-{node}")
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


def packed(interpreter: Path, to: Path) -> Path:
    """The environment as one file, without what an executor has from Spark itself."""

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts
        left_out = {"pyspark", "py4j", "tests", "include", "__pycache__"} & set(parts)
        return None if left_out else entry

    environment = interpreter.parents[1]
    with tarfile.open(to, "w:gz", compresslevel=1) as archive:
        for name in ("bin", "pyvenv.cfg"):
            archive.add(environment / name, name)
        archive.dereference = True
        archive.add(environment / "lib", "lib", filter=chosen)
    return to


def commands(
    lakes: dict[str, str], books: list[str], proven: list[str], folder: Path, archive: Path
) -> list[list[str]]:
    """Every job, and what shows that it is right: of these books, into these lakes."""
    lake, streamed = (["--lake", lakes[name]] for name in ("run", "streamed"))
    signers = [f"--certificate={party}={folder / party[-5:]}.pem" for party in PARTIES]
    return [
        ["run", *books, *lake, "--ended"],
        ["run", *books, *lake, "--ended"],
        ["verify", *lake, "--ended"],
        ["stream", *books, *streamed, "--ended"],
        ["reconcile", "globex", "umbrella", *lake],
        ["prove", *proven, *lake],
        ["retention", *lake],
        ["advise", *lake],
        ["journal", str(archive), "--party", "urn:test:alpha", "--to", str(folder / "journal")],
        ["evidence", *lake, "--archive", str(archive), *signers],
        ["sql", "SELECT verdict, count(*) FROM ledger GROUP BY ALL ORDER BY ALL", *lake],
        ["compact", *lake],
    ]


def contents(lake: Lake) -> dict[str, list[str]]:
    """Every row of every table, but for when the retention of it was asked."""
    version, found = lake.current(), {}
    for table in sorted(version.tables):
        every = [ds.dataset(one).to_table() for one in lake.folders(version, table)]
        rows = [row for each in every for row in each.to_pylist()]
        for row in rows:
            row.pop("as_of_at", None)
        found[table] = sorted(map(repr, rows))
    return found


@pytest.mark.spark
@pytest.mark.process
def test_a_packed_environment_reads_admin_ports_and_writes_into_a_bucket(
    spark, cluster: str, interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitted with its environment; all that comes out is what one process makes of the stores
    themselves."""
    archive, here = tmp_path / "archive", tmp_path / "here"
    for folder in (archive, here, tmp_path / "there"):
        folder.mkdir()
    for each in exchanges(range(1, 6)):
        each.write(archive)
    environment = packed(interpreter, tmp_path / "environment.tar.gz")
    # The driver asks the sources by the same interpreter, named by the same path.
    with tarfile.open(environment) as opened:
        opened.extractall(tmp_path / "environment", filter="fully_trusted")
    keys = make_keys(tmp_path, "admin", now=RealWorld().now())
    for folder in (here, tmp_path / "there"):
        for party, who in PARTIES.items():
            (folder / f"{party[-5:]}.pem").write_bytes(who.certificate_pem)
    with serving() as buckets, opening(tmp_path / "parties") as opened:
        buckets.empty("lakes")
        words: list[str] = []
        tls = {"admin.certificate": str(keys.certificate), "admin.key": str(keys.key)}
        for node, rows in sorted(NODES.items()):
            port = opened("served", rows, node, **tls)
            token = tmp_path / f"{node}.token"
            token.write_text(port.token + "\n")
            words += ["--store", port.url, "--token-file", str(token)]
        words += ["--ca", str(keys.certificate)]
        bucket = {**buckets.environment, storage.COPIES: str(tmp_path / "copies")}
        places = {"run": "s3://lakes/run", "streamed": "s3://lakes/streamed"}
        asked = tmp_path / "commands.json"
        asked.write_text(json.dumps(commands(places, words, words, tmp_path / "there", archive)))
        submit = Path(sys.executable).with_name("spark-submit")
        done = subprocess.run(
            [str(submit), "--master", cluster, "--archives", f"{environment}#environment",
             "--conf", "spark.pyspark.python=./environment/bin/python",
             "--conf", "spark.pyspark.driver.python=" + sys.executable,
             "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=700m",
             "--conf", "spark.ui.enabled=false",
             "--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
             "--conf", "spark.python.authenticate.socketTimeout=120s",
             str(Path(__file__).with_name("submitted_driver.py")), str(asked)],
            cwd=tmp_path, env={**os.environ, **bucket, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            capture_output=True, text=True, timeout=1_500, check=False,
        )  # fmt: skip
        said = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert said, done.stdout[-1_000:] + done.stderr[-3_000:]
        found = json.loads(said[0].removeprefix("RESULT "))
        for name, value in bucket.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(storage.COPIES, str(tmp_path / "read here"))
        there = {name: contents(Lake(place)) for name, place in places.items()}
    stores = make_stores(tmp_path / "stores", NODES)
    words = [word for store in stores for word in ("--store", str(store))]
    lakes = {name: str(here / name) for name in places}
    own = [
        run_json("pipeline", *each, exit_code=None)
        for each in commands(lakes, words, words, here, archive)
    ]
    for one, other in zip(found["answers"], own, strict=True):
        # Where it is, and by how many tasks it was made.
        for name in ("lake", "journal", "next", "summary", "spark_jobs", "spark_tasks"):
            one.pop(name, None)
            other.pop(name, None)
        assert one == other
    assert found["answers"][0]["rows"] == sum(map(len, NODES.values()))
    for name, place in lakes.items():
        assert there[name] == contents(Lake(place))
    made = ("journal", "messages", "attempts", "ledger_closed", "evidence", "retention")
    assert all(there["run"][table] for table in made)
    assert found["executors"] == 2
    for package in found["packages"]:
        assert f"{tmp_path}/work-" in package
        assert "/environment/lib/" in package
