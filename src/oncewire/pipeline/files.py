"""Files and folders of a lake: found, counted, forced to disk, and replaced whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oncewire.errors import NotAllowed

FORCED_AT_ONCE = 8


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a directory, in order."""
    return sorted(folder.rglob("*.parquet"))


OF_A_LAKE = "nothing of a lake is kept"
OF_AN_ARCHIVE = "raw messages are not read"
"""What is said of a place that is no folder."""

_REMEDIES = {
    OF_A_LAKE: "name a folder that the driver and every executor can reach, or s3://BUCKET/PREFIX",
    OF_AN_ARCHIVE: "copy them into a folder, or a tar or zip bundle, and name that",
}


def local_path(place: Path | str, said: str = OF_A_LAKE) -> Path:
    """The folder that is named; any other kind of place is refused, and no folder is made of it."""
    # A path of Python's makes one slash of two.
    text = re.sub(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", r"\1://", str(place))
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is None:
        return Path(text)
    if scheme.group(1) == "file":
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    raise NotAllowed(
        f"{text} is not a folder, and {said} in {scheme.group(1)}", remedy=_REMEDIES[said]
    )


def safe_name(text: str) -> str:
    """A folder's name for any node's name: readable, and different for different nodes."""
    readable = re.sub(r"[^A-Za-z0-9.-]", "_", text)[:60].lstrip("._")
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def count_rows(folder: Path) -> int:
    """How many rows the Parquet files of a directory hold, by their footers."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))


def force_to_disk(root: Path, paths: Iterable[str]) -> None:
    """Force to disk every file of some directories, and each directory on the way to them, once.

    A file that nobody forced may be empty after a power failure, and a directory's own name is
    an entry of the one above it. Several are forced at a time, because a disk does that in the
    time of one.
    """
    files: list[Path] = []
    folders: set[Path] = set()
    for folder in (root / path for path in paths):
        found = list(folder.rglob("*"))
        files += [
            each_path
            for each_path in found
            if each_path.is_file() and "_SUCCESS" not in each_path.name
        ]
        folders.update(each_path for each_path in found if each_path.is_dir())
        folders.update((folder, *folder.parents[: len(folder.relative_to(root).parts)]))
    with ThreadPoolExecutor(FORCED_AT_ONCE) as pool:
        for kind in (files, sorted(folders)):
            for _ in pool.map(_force, kind):
                pass


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_forced(path: Path, content: str | bytes) -> None:
    """Write beside, force to disk, rename: the file is whole at every moment. Nothing is written
    through a link that somebody else put there."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with beside.open("xb") as opened:
        opened.write(content.encode() if isinstance(content, str) else content)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(path)
    _force(path.parent)
