"""Whether Spark can run here: PySpark is an extra, and it wants a Java that is new enough."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli.output import loaded
from oncewire.entry.files import number_of
from oncewire.entry.party.settings import FILE
from oncewire.errors import NotAllowed, NotHere

if TYPE_CHECKING:
    from oncewire.pipeline.lake.lake import Lake


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


# Which lake and which books a command is about.


LakePath = Annotated[Path, typer.Option("--lake", help="Folder of the tables.")]
BOOK = "A party's folder, its store, an export, or another lake; may be repeated."
Stores = Annotated[list[Path] | None, typer.Option("--store", help=BOOK)]


def book_at(path: Path) -> Path:
    """Where a book is: a party's folder stands for the store that its settings name, and a lake in
    a bucket for the copy of it."""
    from oncewire.pipeline.lake.lake import input_at

    path = input_at(path)
    if path.name != FILE and not (path / FILE).is_file():
        return there(path, "store, export or lake")
    settings = loaded(path).settings
    if settings.store.url:
        raise NotAllowed(
            f"the store of {settings.party.name} is on PostgreSQL, which no pipeline reads",
            remedy="stop its handler, `oncewire store copy FILE`, and name that file",
        )
    return there(settings.path(settings.store.path), "store, export or lake")


def there(path: Path, what: str) -> Path:
    """The path, if something is there: Spark takes long to start, and is not needed to know."""
    if not path.exists():
        raise NotHere(f"there is no {what} at {path}", remedy="give the path of one")
    return path


def archive_at(path: Path) -> Path:
    """Where raw messages are; nothing but files is read."""
    from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, local_path

    return there(local_path(path, OF_AN_ARCHIVE), "archive")


def lake_at(path: Path) -> Lake:
    """The lake of that name; a place that cannot hold one is refused before Spark starts."""
    from oncewire.pipeline.lake.lake import Lake

    return Lake(path)


def need_lake(lake: Path) -> None:
    """Refuse a place where nothing was published."""
    if not lake_at(lake).exists:
        raise NotHere(
            f"there is no lake at {lake}",
            remedy=f"make one with `oncewire pipeline run --store STORE --lake {lake}`",
        )


def by_spark(jobs: int | None, tasks: int | None) -> str:
    """How many jobs and tasks of Spark did it; a server of Spark Connect does not tell."""
    if jobs is None or tasks is None:
        return "by Spark"
    return f"by {number_of(jobs, 'job')} and {number_of(tasks, 'task')} of Spark"
