"""The spool: large payloads as files named by their SHA-256.

A file gets its name only when its content is on the disk, and the name only counts when
the directory is on the disk too; so a row that names a file can rely on it. Nothing a
message says ever becomes part of a path.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from oncewire.errors import InvalidValue, StoreDamaged, StoreFull, StoreGone
from oncewire.store.behind import Behind, worked
from oncewire.store.digesting import Digesting
from oncewire.store.removal import Removal
from oncewire.store.spool_contract import Digest
from oncewire.store.write_through import WriteThrough

_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNFINISHED = ".part"
GOES_ON = "its disk; a handler that runs goes on by itself then, a command is to be given again"
"""What becomes of a trouble that the disk alone has; true for whoever is told."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_name(name: str) -> str:
    """The name itself, if it is a SHA-256 in hexadecimal digits and nothing else."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            f"{name[:80]!r} is not a spool name", remedy="use the name that put() returned"
        )
    return name


class FileSpool:
    """See `spool_contract.Spool`. One process writes to a directory at a time.

    What is in use is counted here, under a lock, because bodies are put in threads of their
    own: a file is counted before it gets its name, and removed only while it is not counted.
    So whichever of the two comes first, a body that was put stays. After a crash the counts
    are gone with the process, and rightly: what it had put and not committed is nobody's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._in_use: Counter[str] = Counter()
        # Files that came to be here, and that nobody has let go as kept yet.
        self._made: set[str] = set()
        self._lock = threading.Lock()
        self._removal = Removal()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What a crash left half-written was never named by a row.
        for path in directory.glob(f"*{_UNFINISHED}"):
            path.unlink()

    def begin(self) -> SpoolFile:
        """See `spool_contract.Spool`. Raises StoreFull or StoreGone."""
        path = self._directory / f"{os.getpid()}-{next(self._numbers)}{_UNFINISHED}"
        with _store_trouble():
            return SpoolFile(path, path.open("xb", buffering=0), self._name, self._removal)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """See `spool_contract.Spool`. Raises StoreFull or StoreGone, and then leaves nothing."""
        unfinished = self.begin()
        try:
            # The chunks come from elsewhere; their own errors are not the store's.
            for chunk in chunks:
                unfinished.write(chunk)
            return unfinished.finish()
        except BaseException:
            unfinished.abandon()
            raise

    def name_of(self, pieces: Iterable[bytes]) -> str:
        """See `spool_contract.Spool`."""
        digest = Digesting()
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest()

    def _name(self, path: Path, name: str) -> None:
        with self._lock:
            self._in_use[name] += 1
            if self._in_use[name] == 1 and not (self._directory / name).exists():
                self._made.add(name)
        try:
            with _store_trouble():
                self._removal.replace(path, self._directory / name)
                _sync_directory(self._directory)
        except BaseException:
            self.give_back(name)
            raise

    def worked(self) -> float:
        """See `spool_contract.Spool`."""
        return worked()

    def use(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            self._in_use[name] += 1

    def let_go(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            self._made.discard(name)
            self._count_down(name)

    def give_back(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            self._count_down(name)
            if name in self._made and name not in self._in_use:
                self._made.discard(name)
                # What cannot be removed now is found by the next cleaning.
                with contextlib.suppress(OSError):
                    self._removal.remove(self._directory / name)

    def _count_down(self, name: str) -> None:
        self._in_use[name] -= 1
        if self._in_use[name] <= 0:
            del self._in_use[name]

    def open(self, name: str) -> BinaryIO:
        """See `spool_contract.Spool`."""
        path = self._directory / check_name(name)
        try:
            return path.open("rb")
        except OSError as error:
            raise StoreDamaged(
                f"spool file {name} cannot be opened: {error.strerror}",
                remedy="restore it from a copy of the spool directory",
            ) from error

    def path(self, name: str) -> Path | None:
        """See `spool_contract.Spool`."""
        return (self._directory / check_name(name)).absolute()

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """See `spool_contract.Spool`."""
        found = 0
        with _store_trouble(), os.scandir(self._directory) as files:
            for file in files:
                if found == limit:
                    break
                if _NAME.fullmatch(file.name) is not None and file.name not in referenced:
                    found += self._remove(file.name)
        return found

    def _remove(self, name: str) -> bool:
        path = self._directory / name
        with self._lock:
            if name in self._in_use:
                return False
            with contextlib.suppress(FileNotFoundError):
                # Whoever cleans has more to do than to wait for large files, one after the other.
                if self._removal.has_room(path.stat().st_size):
                    self._removal.remove(path)
        return True


class SpoolFile:
    """See `spool_contract.SpoolFile`: a file that grows, and nobody can find before its end."""

    def __init__(
        self,
        path: Path,
        file: io.FileIO,
        name: Callable[[Path, str], None],
        removal: Removal,
    ) -> None:
        self._path = path
        self._file = file
        self._name = name
        self._removal = removal
        self._digest = Digesting()
        self._writing = Behind("writing")
        self._through = WriteThrough(file, "spool")
        self.size = 0

    def write(self, data: bytes) -> None:
        """See `spool_contract.SpoolFile`."""
        self._digest.update(data)
        self.size += len(data)
        with _store_trouble():
            self._writing.do(self._put, data)

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._through.wrote(len(data))

    def _settle(self) -> None:
        try:
            self._writing.settle()
        finally:
            self._through.settle()

    def digest(self) -> Digest:
        """See `spool_contract.SpoolFile`."""
        return self._digest.copy()

    def finish(self) -> tuple[str, int]:
        """See `spool_contract.SpoolFile`."""
        try:
            with _store_trouble():
                self._settle()
                os.fsync(self._file.fileno())
                self._file.close()
            name = self._digest.hexdigest()
            self._name(self._path, name)
        except BaseException:
            self.abandon()
            raise
        return name, self.size

    def abandon(self) -> None:
        """See `spool_contract.SpoolFile`."""
        # Whatever a step of it raised, memory that ran out too: the file goes all the same.
        with contextlib.suppress(Exception):
            self._settle()
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(OSError):
            self._removal.remove(self._path)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _store_trouble() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(
                "the spool's disk is full", remedy=f"free space on {GOES_ON}"
            ) from error
        raise StoreGone(
            f"the spool cannot be written: {error.strerror}", remedy=f"check {GOES_ON}"
        ) from error
