"""What went wrong in Spark, as an error of our own: named, and with the next step.

An error that is raised on an executor reaches the driver as text inside a Java exception. Here
the text is found again, so that whoever runs a job reads one sentence and no stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from oncewire import errors
from oncewire.errors import JournalProblem, NotAllowed, OncewireError, StoreGone

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
