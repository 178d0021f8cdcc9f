"""Whatever Spark raises, the reader gets one sentence of ours and the next step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, PySparkRuntimeError

from oncewire import errors
from oncewire.pipeline.session import own_error, spoken

pytestmark = pytest.mark.spark

IN_A_TASK = """[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure:
Traceback (most recent call last):
  File "reader.py", line 7, in read
{name}: {said}

\tat org.apache.spark.api.python.BasePythonRunner.hasNext(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    "raised",
    [
        errors.JournalProblem("acme.db is damaged: malformed (3)", remedy="restore it (a backup)"),
        errors.NotAllowed("it is a SQLite store", remedy="take it into a lake"),
        errors.StoreGone("acme.db cannot be read"),
        errors.InvalidValue("startingSeq is 'x'", remedy="give a number of 0 or more"),
    ],
)
def test_an_error_of_ours_is_found_again(raised: errors.OncewireError) -> None:
    kind = type(raised)
    text = IN_A_TASK.format(name=f"oncewire.errors.{kind.__name__}", said=raised)
    found = own_error(PySparkException(text))
    assert type(found) is kind
    assert (found.problem, found.remedy) == (raised.problem, raised.remedy)


def test_an_error_of_somebody_else_is_one_line() -> None:
    text = IN_A_TASK.format(name="ZeroDivisionError", said="division by zero")
    found = own_error(PySparkException(text))
    assert isinstance(found, errors.JournalProblem)
    assert "\n" not in found.problem
    assert "Traceback" not in found.problem
    assert "ONCEWIRE_SPARK_LOG" in found.remedy


def test_a_missing_java_is_named() -> None:
    found = own_error(PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"))
    assert isinstance(found, errors.NotAllowed)
    assert "Java 17+" in found.remedy


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("empty")]
)
def test_a_java_that_died_is_told(error: Exception) -> None:
    with pytest.raises(errors.StoreGone, match="died in the middle") as told, spoken():
        raise error
    assert "run it again" in told.value.remedy


def test_errors_of_ours_pass_as_they_are() -> None:
    with pytest.raises(errors.UnknownMessage), spoken():
        raise errors.UnknownMessage("no such message")


@pytest.mark.process
def test_a_java_that_does_not_start_gives_its_reason(tmp_path: Path) -> None:
    """What Spark's process says of itself is hidden only as long as all is well."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'first words' >&2\necho 'Error: no room' >&2\nexit 1\n")
    java.chmod(0o755)
    code = "from oncewire.pipeline.session import open_session; open_session()"
    environ = {
        name: value for name, value in os.environ.items() if name != "ONCEWIRE_SPARK_LOG"
    } | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("oncewire.errors.NotAllowed: Spark could not be started: Error: no room")
    assert "first words" not in done.stderr


@pytest.mark.process
def test_ctrl_c_shows_no_trace() -> None:
    """Spark's bridge logs what Ctrl-C interrupts, and so do the lines that it calls then."""
    code = """
import os, signal, threading
from oncewire.pipeline.session import open_session

spark = open_session(master="local[1]")
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    spark._jvm.java.lang.Thread.sleep(60_000)
except KeyboardInterrupt:
    print("interrupted")
"""
    environ = {name: value for name, value in os.environ.items() if name != "ONCEWIRE_SPARK_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "interrupted\n"
    assert "Traceback" not in done.stderr
