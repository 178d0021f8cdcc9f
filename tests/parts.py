"""Parts that a test needs and a machine may lack: the corpus, Java for Spark, a database server.

On a user's machine a missing part is a skip with its reason. On a build server (`CI=true`) it is a
failure, because a skip there would let a whole part go untested without anybody noticing.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent
JAVA_WANTED = 17


def missing(reason: str) -> NoReturn:
    """End the test: failed on a build server, skipped elsewhere, with the reason either way."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing part: {reason}", pytrace=False)
    pytest.skip(reason)


def find_corpus(environ: Mapping[str, str], root: Path) -> Path | None:
    """The folder of sample messages: ONCEWIRE_CORPUS, else beside the checkout, else None."""
    named = environ.get("ONCEWIRE_CORPUS")
    folder = Path(named) if named else root.parent / "shared" / "corpus"
    return folder if (folder / "INDEX.md").is_file() else None


def java_major(version_text: str) -> int | None:
    """The major number in what `java -version` prints; Java 8 and older call themselves 1.x."""
    found = re.search(r'version "(\d+)', version_text)
    return int(found.group(1)) if found else None


def spark_lacks() -> str | None:
    """What keeps Spark from running here, as a sentence with the remedy; None if nothing does."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'oncewire[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return f"no Java: install a Java {JAVA_WANTED}+ runtime or set JAVA_HOME"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    major = java_major(answer.stderr + answer.stdout)
    if major is None or major < JAVA_WANTED:
        return f"Java {major} is too old: install a Java {JAVA_WANTED}+ runtime or set JAVA_HOME"
    return None
