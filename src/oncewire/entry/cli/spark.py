"""Spark as commands need it: whether it can run here, and a session of it.

PySpark is an extra, and it wants a Java that is new enough.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.files import number_of
from oncewire.errors import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncewire.pipeline.sources.ingest import Progress

Master = Annotated[
    str, typer.Option(help="Spark's master, or a server: sc://HOST; otherwise `local[2]`.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", help="A Spark setting, key=value; may be repeated.")
]

JAVA_WANTED = 17
_REMEDY = f"install a Java {JAVA_WANTED}+ runtime, or set JAVA_HOME to one"


def spark_lacks(
    environ: Mapping[str, str] | None = None, *, remote: bool = False
) -> NotAllowed | None:
    """What keeps Spark from running on this machine, with the remedy; None if nothing does.

    `remote`: it runs somewhere else, and is reached by Spark Connect."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return NotAllowed("Spark is not installed", remedy="pip install 'oncewire[spark]'")
    if remote:
        return None
    said = os.environ if environ is None else environ
    if "PYSPARK_GATEWAY_PORT" in said:
        return None  # `spark-submit` started this process: its Java runs already.
    java = find_java(said)
    if java is None:
        return NotAllowed("Spark needs Java, and there is none here", remedy=_REMEDY)
    found = java_version(java)
    if found is None or found < JAVA_WANTED:
        name = "a Java that does not start" if found is None else f"Java {found}"
        return NotAllowed(f"Spark needs Java {JAVA_WANTED}+, and {java} is {name}", remedy=_REMEDY)
    return None


def find_java(environ: Mapping[str, str]) -> Path | None:
    """The Java that Spark would start: that of JAVA_HOME, else the one on the PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if os.access(java, os.X_OK) else None
    named = shutil.which("java", path=environ.get("PATH"))
    return Path(named) if named is not None else None


def java_version(java: Path) -> int | None:
    """Its major number; Java 8 and older call themselves 1.x, which is too old either way."""
    try:
        said = subprocess.run(  # noqa: S603 - the program that Spark itself will run
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(number.group(1)) if number else None


@contextmanager
def session(
    master: str, settings: Mapping[str, str], *, json: bool
) -> Iterator[tuple[SparkSession, Progress]]:
    """A Spark session with a progress line, and Spark's errors in our words."""
    lacking = spark_lacks(remote=master.startswith("sc://"))
    if lacking is not None:
        raise lacking
    from oncewire.pipeline.session import is_running, open_session, spoken

    said = (
        "using the Spark that runs" if is_running() else "starting Spark, which takes some seconds"
    )
    with output.stages(said, quiet=json) as tell, spoken():
        spark = open_session(master=master or None, config=settings)
        yield spark, tell


def settings_of(conf: list[str] | None) -> dict[str, str]:
    """The values of --conf."""
    found = {}
    for setting in conf or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InvalidValue(f"--conf {setting!r} has no value", remedy="write it as key=value")
        found[key] = value
    return found


def by_spark(jobs: int | None, tasks: int | None) -> str:
    """How many jobs and tasks of Spark did it; a server of Spark Connect does not tell."""
    if jobs is None or tasks is None:
        return "by Spark"
    return f"by {number_of(jobs, 'job')} and {number_of(tasks, 'task')} of Spark"
