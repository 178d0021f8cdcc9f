"""Whether Spark can run here: PySpark is an extra, and it wants a Java that is new enough."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from oncewire.errors import NotAllowed

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
