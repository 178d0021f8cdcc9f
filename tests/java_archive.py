"""What Java loads for Spark, kept in a file, so that each Spark of a run starts in half the time.

A run starts Spark in many processes of their own: commands, pages, drivers of clusters. Each would
read, check and link the same ten thousand classes, which is half of what a small job costs. Java
maps them from the file instead, and goes on without it where another Java or other jars made it.

`python -m tests.java_archive` makes it, as `make setup` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from oncewire.entry.cli.lake import spark_lacks

ARCHIVE = Path(sys.prefix) / "spark.jsa"

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options of Java that Spark passes on to its driver's process."""

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What runs for seconds does not earn back the time it takes to compile it well."""


def options(archive: Path = ARCHIVE) -> str:
    """The options of Java that take the archive, and say nothing where it does not fit."""
    return f"{BRIEF} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable"


def use(environ: MutableMapping[str, str]) -> None:
    """Let every Spark that is started from here take the archive, if there is one."""
    if ARCHIVE.is_file():
        environ.setdefault(OPTIONS, options())


def make(archive: Path = ARCHIVE) -> None:
    """Write the archive: the classes of a small year that was written, read and judged."""
    environ = {**os.environ, OPTIONS: f"{BRIEF} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"}
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        words = ["pipeline", "generate", "--output", folder + "/year", "--messages", "200"]
        # Java writes it when it ends, which is later than the command: it has the command's output,
        # so that this is read until then.
        subprocess.run(
            [sys.executable, "-m", "oncewire", *words, "--json"],
            env=environ,
            stdout=subprocess.PIPE,
            check=True,
        )


if __name__ == "__main__" and spark_lacks() is None:
    make()
