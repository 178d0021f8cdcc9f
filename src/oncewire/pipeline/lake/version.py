"""A version of the lake: the directories of every table, and where each journal stands."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncewire.errors import NotAllowed
from oncewire.journal.predicates.context import Hole, Jump, Restart
from oncewire.journal.row import JOURNAL_VERSION, check_version

if TYPE_CHECKING:
    import pyarrow as pa


READABLE_FOR = 60.0
"""Seconds for which a version can be read after it was replaced, however many follow, unless the
lake was told otherwise: a read that loses its files begins anew, and one that takes longer than two
publishes would never end."""


COLUMNS_VERSION = 2
"""Raised whenever a column of silver or gold gets another name or type: a lake that has others is
made anew by its next run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory of a table."""

    path: str
    """Relative to the lake."""
    rows: int
    key: str = ""
    """What the table is divided by: a node, or the first and the last day; see `days`."""
    first: int = 0
    last: int = 0
    """The range of `seq` that it holds, where it holds a node's rows."""
    since: str = ""
    chain: str = ""
    """The heads of the journal's chain before and behind these rows; see `proof`. No head before
    them: the chain begins here. None behind them: it was not noted."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """How far a node's journal was taken in."""

    seq: int
    at: int
    boot: str
    folded: int = 0
    """How far its rows are in the gold tables."""
    read_at: int = 0
    """When its journal was last read, by the reader's clock; 0: it was not noted."""
    holes: tuple[Hole, ...] = ()
    """What is missing in it, so far as it was taken in."""
    jumps: tuple[Jump, ...] = ()
    """Where its clocks jump."""
    restarts: tuple[Restart, ...] = ()
    """Where another run of it goes on."""
    forgot: tuple[int, ...] = ()
    """Those of them, by position, before which its store was put back to an earlier state."""
    chain: str = ""
    """The head that the node itself kept behind that row; none if it keeps no chain."""


@dataclass(frozen=True, slots=True)
class Version:
    """What is published: the directories of every table, and where each journal stands."""

    number: int = 0
    journal_version: int = JOURNAL_VERSION
    nodes: dict[str, NodeState] = field(default_factory=dict)
    tables: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    judged: dict[str, Any] = field(default_factory=dict)
    """Under which circumstances the gold tables were judged; see `judging`."""
    readable_for: float = READABLE_FOR
    """Seconds for which a version can be read after it was replaced."""
    columns: int = COLUMNS_VERSION
    """Which columns its silver and gold tables have."""

    @property
    def journal(self) -> tuple[Entry, ...]:
        """The directories of the journal; an entry's key is its node."""
        return self.tables.get("journal", ())

    @property
    def paths(self) -> set[str]:
        """The paths of all its directories."""
        return {entry.path for entries in self.tables.values() for entry in entries}

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return sum(entry.rows for entry in self.tables.get(table, ()))

    def with_table(self, table: str, entries: Iterable[Entry]) -> Version:
        """A copy with other directories for one table; empty ones are left out."""
        kept = tuple(entry for entry in entries if entry.rows)
        return replace(self, tables={**self.tables, table: kept})

    def adding(self, table: str, *entries: Entry) -> Version:
        """A copy with more directories for one table; an equal path is replaced."""
        paths = {entry.path for entry in entries}
        old = (
            each_entry for each_entry in self.tables.get(table, ()) if each_entry.path not in paths
        )
        return self.with_table(table, (*old, *entries))

    def with_node(self, node: str, state: NodeState) -> Version:
        """A copy with another state of one node."""
        return replace(self, nodes={**self.nodes, node: state})

    def as_text(self) -> str:
        """The version as its file has it."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, default=list) + "\n"

    @classmethod
    def of_text(cls, text: str) -> Version:
        """The version that a file describes; one of another journal is refused."""
        values = json.loads(text)
        check_version(values["journal_version"])
        return cls(
            number=values["number"],
            journal_version=values["journal_version"],
            nodes={name: _state(state) for name, state in values["nodes"].items()},
            tables={
                table: tuple(Entry(**_known(Entry, entry)) for entry in entries)
                for table, entries in values["tables"].items()
            },
            judged=values["judged"],
            readable_for=values.get("readable_for", READABLE_FOR),
            columns=values.get("columns", 1),
        )


def _state(values: dict[str, Any]) -> NodeState:
    holes = tuple(Hole(*hole_values) for hole_values in values.get("holes", ()))
    jumps = tuple(Jump(*jump_values) for jump_values in values.get("jumps", ()))
    restarts = tuple(Restart(*restart_values) for restart_values in values.get("restarts", ()))
    made: dict[str, Any] = {"holes": holes, "jumps": jumps, "restarts": restarts}
    made["forgot"] = tuple(values.get("forgot", ()))
    return NodeState(**{**_known(NodeState, values), **made})


def _known(kind: type[Entry | NodeState], values: dict[str, Any]) -> dict[str, Any]:
    """Without what earlier lakes kept: digests that prove nothing about a chain."""
    names = {each_field.name for each_field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


# A book: one node's journal, read-only and in bounded ranges, wherever it is kept.
#
# A SQLite store is a book, and so is a folder of Parquet files with a `_node.json` beside them (an
# export). A published lake holds one book for each of its nodes. Whatever the form, rows are asked
# for by the journal's own `seq`, in ranges `(start, end]`.


NODE_FILE = "_node.json"
"""Stands beside an export's files: whose journal it is, and of which version."""

CURRENT_FILE = "CURRENT"
"""The pointer of a published lake (`oncewire.pipeline.lake.lake`)."""

BATCH_ROWS = 10_000
"""Rows of one Arrow batch, and of one query: a reader must not hold a store's log for long."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A row by which a journal is recognised again: no other store has the same one."""

    seq: int
    at: int
    boot: str


class Book(Protocol):
    """One node's journal."""

    node: str
    path: str
    unreadable: dict[int, str]
    """Of the rows that were read so far those with a text that is not UTF-8, and its column."""

    @property
    def options(self) -> dict[str, str]:
        """The options by which the source `oncewire` reads it; secrets only in those that Spark
        does not show."""

    def read_at(self, now: int) -> int:
        """Until when what the node did is in the book, as far as its reader knows at that
        instant; 0: only its own rows say so."""

    def bounds(self) -> tuple[int, int]:
        """The first and the last `seq` that are there; (0, 0) when there is none."""

    def next_seq(self, start: int) -> int | None:
        """The smallest `seq` above `start`."""

    def mark(self, seq: int) -> Mark | None:
        """The row with that `seq`, or None when it is not there (any more)."""

    def head(self, seq: int) -> str | None:
        """The head of the journal's chain behind that row, as its node kept it, also where the row
        itself was trimmed; "" where the chain begins behind it, None if it is not known."""

    def chained_from(self) -> int:
        """The first row that its node chained; 0 if there is none."""

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        """Ranges that together are `(start, end]`, each with at most about that many rows."""

    def count(self, start: int, end: int) -> int:
        """How many rows lie in `(start, end]`."""

    def batches(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of `(start, end]`, each once."""


def write_node_file(folder: Path, node: str, version: int) -> None:
    """Say whose journal a folder holds."""
    text = json.dumps({"node": node, "journal_version": version})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NODE_FILE).write_text(text + "\n", encoding="utf-8")


# Places where tests kill the driver, so that recovery is shown and not supposed.
#
# Nothing happens here unless ONCEWIRE_CRASH_AT names a place; only tests set it. It holds
# `place:count:file`: each time the place is reached a line is added to the file, which proves it,
# and from the given count on the whole process group of the driver is killed. With
# ONCEWIRE_CRASH_HOW set to `raise` nothing is killed: the place fails that many times and then
# works.


VARIABLE = "ONCEWIRE_CRASH_AT"
HOW_VARIABLE = "ONCEWIRE_CRASH_HOW"
GROUP_VARIABLE = "ONCEWIRE_CRASH_GROUP"
"""The driver's process group; Spark's Python workers leave it and could not find it otherwise."""

PLACES = (
    "before_offset_log",
    "after_offset_log",
    "mid_task",
    "before_publishing",
    "after_publishing",
    "before_commit_log",
)


def reached(place: str) -> None:
    """Kill the process here, if a test asked for this place."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    name, count, proof = wanted.split(":", 2)
    if name != place:
        return
    handle = os.open(proof, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{place}\n".encode())
    os.fsync(handle)
    size = os.fstat(handle).st_size
    os.close(handle)
    reached_now = size // (len(place) + 1)
    if os.environ.get(HOW_VARIABLE) == "raise":
        if reached_now <= int(count):
            raise RuntimeError(f"{place} fails for the {reached_now}. time, as a test asked")
    elif reached_now >= int(count):  # Two tasks at once may both see the later count.
        os.killpg(int(os.environ[GROUP_VARIABLE]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


# Files and folders of a lake: found, forced to disk, and replaced whole.


FORCED_AT_ONCE = 8


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a directory, in order."""
    return sorted(folder.rglob("*.parquet"))


OF_A_LAKE = "nothing of a lake is kept"
OF_AN_ARCHIVE = "raw messages are not read"
"""What is said of a place that is no folder."""

DATABASES = ("postgresql", "postgres")
"""How addresses of databases begin. One may hold a password, so nothing shows it."""

_REMEDIES = {
    OF_A_LAKE: "name a folder that the driver and every executor can reach, or s3://BUCKET/PREFIX",
    OF_AN_ARCHIVE: "copy them into a folder, or a tar or zip bundle, and name that",
}


def local_path(place: Path | str, said: str = OF_A_LAKE) -> Path:
    """The folder that a place names; any other kind is refused, and no folder is made of it."""
    # A path of Python's makes one slash of two.
    text = re.sub(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", r"\1://", str(place))
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is None:
        return Path(text)
    if scheme.group(1) == "file":
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    if scheme.group(1) in DATABASES:
        raise NotAllowed(
            "the address of a database is no folder, and is not shown because of its password",
            remedy="name the folder of the party that has it, or give it to Spark as option url",
        )
    raise NotAllowed(
        f"{text} is not a folder, and {said} in {scheme.group(1)}", remedy=_REMEDIES[said]
    )


def safe_name(text: str) -> str:
    """A folder's name for any node's name: readable, and different for different nodes."""
    readable = re.sub(r"[^A-Za-z0-9.-]", "_", text)[:60].lstrip("._")
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def force_folders(root: Path, paths: Iterable[str]) -> None:
    """Force to disk some directories and each one on the way to them, once.

    The tasks that wrote their files forced them; a directory's own name is an entry of the one
    above it. Several are forced at a time, because a disk does that in the time of one.
    """
    folders = {
        each
        for folder in (root / path for path in paths)
        for each in (folder, *folder.parents[: len(folder.relative_to(root).parts)])
        if each.is_dir()
    }
    with ThreadPoolExecutor(FORCED_AT_ONCE) as pool:
        for _ in pool.map(force, sorted(folders)):
            pass


def force(path: Path) -> None:
    """Force one file or directory to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_forced(path: Path, content: str | bytes) -> None:
    """Write beside, force to disk, rename: the file is whole at every moment. A link that another
    process put there is replaced, not followed."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with beside.open("xb") as opened:
        opened.write(content.encode() if isinstance(content, str) else content)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(path)
    force(path.parent)


T = TypeVar("T")


def in_parts(items: Iterable[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """The items in their order, together until they have `most`; one that is larger is alone."""
    parts: list[list[T]] = []
    held = 0
    for item in items:
        if not parts or held + size(item) > most:
            parts.append([])
            held = 0
        parts[-1].append(item)
        held += size(item)
    return parts
