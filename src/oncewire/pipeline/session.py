"""The Spark session every job runs in: local and quiet by default, a cluster by configuration.

Under `spark-submit` the master and the settings given there stand. Executors get the interpreter
that runs this one unless another is named: a virtual environment that is not activated would
otherwise start workers that have none of the packages.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncewire import errors
from oncewire.errors import JournalProblem, NotAllowed, OncewireError, StoreGone
from oncewire.pipeline.sources.ebxml import EbxmlSource
from oncewire.pipeline.sources.oncewire import is_local, oncewire_source_for
from oncewire.pipeline.tasks import is_remote

DEFAULT_MASTER = "local[2]"
REMOTE = "sc://"
"""How a server of Spark Connect is named."""
CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc", "zstandard")

LOG_VARIABLE = "ONCEWIRE_SPARK_LOG"
"""Names the level from which on Spark's own log is shown; without it Spark is silent."""

_LOG = Path(__file__).with_name("log4j2.properties")

PROCESS: dict[str, str] = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG.as_uri()}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
}
"""Settings of the processes: given once, when they start."""

AT_HOME = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Where no other machine takes part, none has anything to say to the driver."""

QUERIES: dict[str, str] = {
    # An hour or a day in a table is one of UTC, whatever the machine's zone is.
    "spark.sql.session.timeZone": "UTC",
    # Rows cross between the JVM and Python as Arrow batches, never one by one.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A fold holds one message at a time; larger batches would only cost memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A table is many directories, and listing them is quicker here than as a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # For small aggregates; a fold's partitions follow from the number of rows.
    "spark.sql.shuffle.partitions": "8",
}
"""Settings of queries, which the jobs rely on."""

PINNED: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that the content of tables depends on: each job sets them for itself."""

AS_PLANNED = {**PINNED, "spark.sql.adaptive.enabled": "false"}
"""The same where passes have the tasks that their rows need: a plan that changes on the way is a
job more for each shuffle."""

BRIEF: dict[str, str] = {
    # What runs for seconds does not earn back the time it takes to compile it well.
    "spark.driver.extraJavaOptions": (
        f"{PROCESS['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    ),
    "spark.sql.shuffle.partitions": "2",
    # Nor does a query of some thousand rows earn code of its own, or plans that change on the way.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for small books: the demo's, and those of tests."""


def open_session(
    name: str = "oncewire", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; both sources are registered in it."""
    chosen = dict(config or {})
    if master is not None and master.startswith(REMOTE):
        return _connect(name, master, chosen)
    named = chosen.get("spark.pyspark.python")
    if named:
        os.environ["PYSPARK_PYTHON"] = named
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has set where it runs and with how much; we only add settings.
        if master is not None:
            builder = builder.master(master)
    else:
        where = _patient(master or DEFAULT_MASTER)
        chosen = {**PROCESS, **(AT_HOME if is_local(where) else {}), **chosen}
        builder = builder.master(where)
        _start_java({**chosen, "spark.master": where, "spark.app.name": name})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get(LOG_VARIABLE, "FATAL"))
    if LOG_VARIABLE not in os.environ:
        # What is wrong with a query is told by our own error; these add Java's stack to it.
        for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
        # What Ctrl-C interrupts, Spark's bridge writes with its stack to the root of all loggers.
        logging.getLogger().addFilter(_not_of_the_bridge)
    for key, value in QUERIES.items():
        if key not in chosen:
            session.conf.set(key, value)
    return register(session)


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _connect(name: str, place: str, settings: Mapping[str, str]) -> SparkSession:
    """A session at a server that runs already: no Java is started here, and its processes have the
    settings that they were started with."""
    lacking = [package for package in CONNECT_PACKAGES if not _is_here(package)]
    if lacking:
        raise NotAllowed(
            f"Spark Connect needs {', '.join(lacking)}, which is not installed",
            remedy="pip install 'oncewire[connect]', or name another master than sc://",
        )
    builder = SparkSession.builder.appName(name).remote(place)
    session = builder.getOrCreate()
    for key, value in {**QUERIES, **settings}.items():
        session.conf.set(key, value)
    return register(session)


def _is_here(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # What it lies in is not here either.
        return False


def is_running() -> bool:
    """Whether there is a session already that `open_session` would take."""
    return SparkSession.getActiveSession() is not None


def register(session: SparkSession) -> SparkSession:
    """Make `format("oncewire")` and `format("ebxml")` known in a session of any origin."""
    session.dataSource.register(oncewire_source_for(session.conf.get("spark.master", "")))
    session.dataSource.register(EbxmlSource)
    return session


@contextmanager
def pinned(session: SparkSession, settings: Mapping[str, str] = PINNED) -> Iterator[SparkSession]:
    """The session with the settings that tables depend on, whatever its owner has set.

    An hour of a table is one of UTC, in a session of any zone; a value that does not fit is an
    error and never an empty cell. What was set before is set again.
    """
    before = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield session
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def cores_of(session: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_remote(session):
        return max(1, session.sparkContext.defaultParallelism)
    # A server does not say it, but divides what it makes itself by that.
    return session.range(100_000).select(f.spark_partition_id()).distinct().count()


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Spark's process without its start-up output, unless its log is asked for.

    The output is kept until the process runs, to give the reason if it cannot be started.
    """
    running = SparkContext._gateway  # noqa: SLF001 - one process may have only one
    if running is not None or LOG_VARIABLE in os.environ:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with tempfile.TemporaryFile() as said:
        try:
            gateway = launch_gateway(conf, {"stderr": said})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            said.seek(0)
            # The line that tells most of what the process said before it died.
            lines = [
                line.strip()
                for line in said.read().decode(errors="replace").splitlines()
                if line.strip()
            ]
            telling = [line for line in lines if re.search("error|exception", line, re.IGNORECASE)]
            reason = [*telling, *lines, "it gave no reason"][0][:300]
            raise NotAllowed(
                f"Spark could not be started: {reason}",
                remedy="`java -version` must show 17 or newer, and JAVA_HOME that same Java",
            ) from None
    SparkContext(conf=conf, gateway=gateway)


def _patient(master: str) -> str:
    """`local[2]` as `local[2,4]`: a failed task is tried again, as on a cluster."""
    if is_local(master) and "," not in master:
        cores = "1" if master == "local" else master[len("local[") : -1]
        return f"local[{cores},4]"
    return master


# What went wrong in Spark, as an error of our own: named, and with the next step.
#
# An error that is raised on an executor reaches the driver as text inside a Java exception. Here
# the text is found again, so that the user reads one sentence and no stack trace.


_OWN = re.compile(r"^\s*(?:oncewire\.errors\.)(\w+): (.+)$", re.MULTILINE)
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_REMEDY = re.compile(r"^(.*) \(([^()]*(?:\([^()]*\)[^()]*)*)\)$", re.DOTALL)


@contextmanager
def spoken() -> Iterator[None]:
    """Turn what Spark raises into an OncewireError."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise own_error(error) from error


def own_error(error: BaseException) -> OncewireError:
    """The error that was raised in the first place, or the gist of Spark's own."""
    text = str(error)
    found = _OWN.findall(text)
    if found:
        name, said = found[-1]
        kind = getattr(errors, name, JournalProblem)
        if not issubclass(kind, OncewireError) or issubclass(kind, errors.SoapFault):
            kind = JournalProblem
        with_remedy = _REMEDY.match(said)
        if with_remedy:
            return kind(with_remedy.group(1), remedy=with_remedy.group(2))
        return kind(said)
    lacking = _LACKING.search(text)
    if lacking is not None:
        return NotAllowed(
            f"Spark's workers have no package {lacking.group(1)!r}",
            remedy=(
                "install oncewire[spark] where they run, or name an interpreter that has it with "
                "--conf spark.pyspark.python=PATH"
            ),
        )
    if "StatusCode.UNAVAILABLE" in text:
        return StoreGone(
            "the server of Spark Connect cannot be reached",
            remedy="see that it runs, and that --master names its host and port: sc://HOST:15002",
        )
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return StoreGone(
            "Spark's process died in the middle of the work",
            remedy="run it again; more memory helps with --conf spark.driver.memory=4g",
        )
    if "JAVA_GATEWAY_EXITED" in text or "JAVA_HOME" in text:
        return NotAllowed(
            "Spark could not be started",
            remedy="install a Java 17+ runtime and set JAVA_HOME; `java -version` shows yours",
        )
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return JournalProblem(
        f"Spark could not do it: {line[:300]}",
        remedy="set ONCEWIRE_SPARK_LOG=WARN and run it again to see what Spark logs",
    )
