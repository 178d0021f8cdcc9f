"""Lakes and Spark as commands name them, and the commands of `oncewire pipeline` that need no
Spark.

PySpark is an extra, and it wants a Java that is new enough.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Listing, Party, Report
from oncewire.entry.files import number_of, read_bytes
from oncewire.entry.party.settings import FILE
from oncewire.errors import InvalidValue, NotAllowed, NotHere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncewire.pipeline.lake.lake import Lake
    from oncewire.pipeline.lake.proof import Difference
    from oncewire.pipeline.lake.version import Book
    from oncewire.pipeline.sources.ingest import Progress

LakePath = Annotated[Path, typer.Option("--lake", help="Folder of the tables.")]
BOOK = "A party's folder, store or admin port (https://HOST:PORT), export or lake; may be repeated."
Stores = Annotated[list[Path] | None, typer.Option("--store", help=BOOK)]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--token-file",
        help="A file with an admin port's token (role `read`); one each, in order, or one for all.",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(help="The certificate that vouches for the addresses, if the machines lack it."),
]


def books_at(
    places: Sequence[Path] | None, token_files: Sequence[Path] | None, ca: Path | None
) -> list[Path | str | Book]:
    """Where books are, or the books themselves where they are at the admin ports of parties."""
    check_installed()
    from oncewire.pipeline.sources.admin_port import AdminPortBook, is_admin_port

    # A path of Python's makes one slash of two.
    texts = [re.sub(r"^(https?):/+", r"\1://", str(place)) for place in places or ()]
    ports = sum(map(is_admin_port, texts))
    files = list(token_files or ())
    if (files and not ports) or len(files) not in (1, ports):
        raise InvalidValue(
            f"--store names {number_of(ports, 'admin port')}, and --token-file "
            f"{number_of(len(files), 'token')}",
            remedy="give a file with a token for each https://HOST:PORT, or one for all",
        )
    # Without the end of its line.
    held = [read_bytes(file, "token").decode("ascii", "replace").strip() for file in files]
    tokens = iter(held * ports if len(held) == 1 else held)
    return [
        AdminPortBook(text, next(tokens), None if ca is None else str(ca))
        if is_admin_port(text)
        else book_at(Path(text))
        for text in texts
    ]


def book_at(path: Path) -> Path | str:
    """Where a book is: a party's folder stands for the store that its settings name, a file or the
    address of a database, and a lake in a bucket for the copy of it."""
    check_installed()
    from oncewire.pipeline.lake.lake import input_at

    path = input_at(path)
    if path.name != FILE and not (path / FILE).is_file():
        return there(path, "store, export or lake")
    settings = output.loaded(path).settings
    return settings.store.url or there(settings.path(settings.store.path), "store, export or lake")


def there(path: Path, what: str) -> Path:
    """The path, if something is there: Spark takes long to start, and is not needed to know."""
    if not path.exists():
        raise NotHere(f"there is no {what} at {path}", remedy="give the path of one")
    return path


def archive_at(path: Path) -> Path:
    """Where raw messages are; nothing but files is read."""
    check_installed()
    from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, local_path

    return there(local_path(path, OF_AN_ARCHIVE), "archive")


def lake_at(path: Path) -> Lake:
    """The lake of that name; a place that cannot hold one is refused before Spark starts."""
    check_installed()
    from oncewire.pipeline.lake.lake import Lake

    return Lake(path)


def need_lake(path: Path) -> Lake:
    """The lake of that name; a place where nothing was published is refused."""
    lake = lake_at(path)
    if not lake.exists:
        raise NotHere(
            f"there is no lake at {path}",
            remedy=f"make one with `oncewire pipeline run --store STORE --lake {path}`",
        )
    return lake


@output.answers
def prove(
    lake: LakePath,
    store: Stores = None,
    token_file: TokenFiles = None,
    ca: Ca = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Whoever holds it must have signed the version.")
    ] = None,
) -> Report:
    """Show that journals are as they were taken in: the lake's, and with --store the store's.

    Status 1 if a row was changed, added or taken away since, or if rows are not those that their
    node chained. It needs no Spark.
    """

    place = need_lake(lake)
    from oncewire.pipeline.lake.proof import check_book, check_lake
    from oncewire.pipeline.sources.journal_source import open_books

    version = place.current()
    signed = None
    if certificate is not None:
        from oncewire.pipeline.lake.proof import is_signed_by
        from oncewire.wire.security.certificates import load_certificate

        shown = load_certificate(read_bytes(certificate, "certificate"))
        signed = is_signed_by(place, version, shown)
    found = [check_lake(place, version)]
    for each_place in books_at(store, token_file, ca):
        found += [check_book(place, version, book) for book in open_books(each_place)]
    differences = [difference for proven in found for difference in proven.differences]
    count = sum(proven.rows for proven in found)
    return Report(
        facts={
            **({} if signed is None else {"signed": signed}),
            "unchanged": not differences,
            "rows": count,
            "heads": {name: state.chain for name, state in sorted(version.nodes.items())},
        },
        listings=(listing_of_differences("differences", differences),),
        summary=f"{number_of(len(differences), 'difference')} in {number_of(count, 'row')}"
        + ("; the signature is of another version, or by another key" if signed is False else ""),
        exit_code=output.WRONG if differences or signed is False else output.OK,
    )


def listing_of_differences(name: str, found: Sequence[Difference]) -> Listing:
    """Where rows are not as they were taken in, or not as their node chained them."""
    columns = ("node", "seq", "what", "sentence")
    return Listing(name, columns, list(map(attrgetter(*columns), found)))


@output.answers
def trim(
    settings: Party,
    lake: LakePath,
    keep: Annotated[
        str, typer.Option(help="Keep rows since: a time, a day, or how long ago, such as 365d.")
    ],
) -> Report:
    """Remove from the party's journal what the lake has and nobody needs here any more.

    A row goes when it is older than --keep, the lake has it as it is in the store, and its message
    is not kept any more; the first row that has to stay keeps all that follow. A handler that runs
    goes on meanwhile. What goes cannot be brought back, and `oncewire why` tells of it no more: the
    lake does. It needs no Spark.
    """

    place = need_lake(lake)
    from oncewire.entry.cli.operator import ask
    from oncewire.entry.control.verbs import user_name
    from oncewire.pipeline.lake.proof import check_book, check_lake
    from oncewire.pipeline.sources.journal_source import open_books

    version = place.current()
    (book,) = open_books(book_at(settings.folder))
    taken = version.nodes.get(book.node)
    if taken is None:
        raise NotAllowed(
            f"the lake has nothing of {book.node}",
            remedy="take its journal in first: `oncewire pipeline run`",
        )
    checked = (check_lake(place, version), check_book(place, version, book))
    differences = [each for proven in checked for each in proven.differences]
    if differences:
        raise NotAllowed(
            f"the lake does not have the rows of {book.node} as they are: "
            f"{differences[0].sentence}",
            remedy="`oncewire pipeline prove` with --store names each of them",
        )
    through = taken.seq
    removed, _ = ask(settings, lambda verbs: verbs.trim_journal(keep, through, user_name()))
    return Report(
        facts={"node": book.node, "rows": removed},
        summary=f"{number_of(removed, 'row')} of {book.node} removed",
    )


@output.answers
def sign(settings: Party, lake: LakePath) -> Report:
    """Sign the lake's current version with the party's key, so that others can rely on it."""

    place = need_lake(lake)
    from oncewire.entry.party.partners import keys_of
    from oncewire.pipeline.lake.proof import sign_version

    keys = keys_of(settings)
    if keys is None:
        raise NotHere("the party has no key to sign with", remedy="`oncewire init` makes one")
    version = place.current()
    beside = sign_version(place, version, keys.signing_key)
    return Report(
        facts={"version": version.number, "signature": str(beside)},
        summary=f"version {version.number} is signed",
        hints=(f"oncewire pipeline prove --lake {quote(str(lake))} --certificate CERTIFICATE",),
    )


@output.answers
def compact(lake: LakePath) -> Report:
    """Write small directories together, so that readers open fewer files. It needs no Spark.

    Runs and streams do so by themselves where there are many; this does it wherever there are two.
    """

    place = need_lake(lake)
    from oncewire.pipeline.lake.compact import compacted

    place.shown()
    with place.writing() as before:
        made = compacted(place, before, many=2)
        version = place.publish(made) if made != before else before
    counts = [sum(map(len, either.tables.values())) for either in (before, version)]
    return Report(
        facts={"version": version.number, "directories": counts[1], "before": counts[0]},
        summary=f"{counts[0]} directories are {counts[1]} now",
    )


@output.answers
def report(
    lake: LakePath,
    out: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")],
    csv: Annotated[
        Path | None, typer.Option(help="Folder for a CSV of each partner, to send to it.")
    ] = None,
) -> Report:
    """Write what the lake shows as one HTML file that needs no network, nor Spark."""

    place = need_lake(lake)
    from oncewire.pipeline.reports import report as pages

    facts = pages.write(place, out, csv)
    return Report(
        facts={"page": str(out), "version": facts.version.number, "csv": str(csv or "")},
        summary=pages.sentence(facts),
    )


# Whether Spark can run here, and a session of it.

Master = Annotated[
    str, typer.Option(help="Spark's master, or a server: sc://HOST; otherwise `local[2]`.")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A Spark setting, key=value; may be repeated.")
]

JAVA_WANTED = 17
_REMEDY = f"install a Java {JAVA_WANTED}+ runtime, or set JAVA_HOME to one"


def check_installed() -> None:
    """Refuse where the packages of Spark are not there: lakes are read with their types, also by
    what starts no session."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        raise NotAllowed("Spark is not installed", remedy="pip install 'oncewire[spark]'")


def spark_lacks(
    environ: Mapping[str, str] | None = None, *, remote: bool = False
) -> NotAllowed | None:
    """What keeps Spark from running on this machine, with the remedy; None if nothing does.

    `remote`: it runs somewhere else, and is reached by Spark Connect."""
    try:
        check_installed()
    except NotAllowed as lacking:
        return lacking
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

    said = "starting Spark: some seconds, or minutes on a busy machine"
    said = "using the Spark that runs" if is_running() else said
    with output.stages(said, quiet=json) as tell, spoken():
        spark = open_session(master=master or None, config=settings)
        yield spark, tell


Spark = Annotated[
    "Callable[[], AbstractContextManager[tuple[SparkSession, Progress]]]",
    output.Given(
        (output.parameter("master", Master, ""), output.parameter("conf", Conf, None)),
        lambda *, master, conf, json: partial(session, master, settings_of(conf), json=json),
    ),
]
"""Opens the session that --master and --conf ask for, with its line of progress."""


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
