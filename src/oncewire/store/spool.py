"""The spool: large payloads as files named by their SHA-256.

A file gets its name only when its content is on the disk, and the name only counts when
the directory is on the disk too; so a row that names a file can rely on it. Nothing a
message says ever becomes part of a path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import io
import itertools
import os
import queue
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import thread_time, time
from typing import BinaryIO, ParamSpec
from uuid import uuid4

from oncewire.errors import InvalidValue, SpoolElsewhere, StoreDamaged, StoreFull, StoreGone
from oncewire.store.spool_contract import Digest

# Behind: a step on a large file that runs in a thread while the caller goes on.
#
# To digest a gigabyte takes as long as to write it, and to bring it to the disk as long again.
# Each of these goes on in a thread of its own, one step behind, so all of them together take as
# long as the longest.


P = ParamSpec("P")

THREADS = 4

# What other threads worked for each, as far as it waited for them.
_by_others = threading.local()


def worked() -> float:
    """Processor seconds that this thread's work took, in this thread and in threads behind it."""
    return thread_time() + getattr(_by_others, "seconds", 0.0)


@functools.cache
def _room(work: str) -> ThreadPoolExecutor:
    # Work that waits for other work must not take its threads.
    return ThreadPoolExecutor(THREADS, thread_name_prefix=work)


class Behind:
    """Steps of one kind of work on one file, run in another thread, in order and one at a time."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._under_way: Future[float] | None = None

    def do(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Start this step after the one before it has ended. Raises what that one raised."""
        self.settle()
        self._under_way = _room(self._work).submit(_measured, step, *args, **kwargs)

    def settle(self) -> None:
        """Wait until no step is under way. Raises what the last one raised, once."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            _by_others.seconds = getattr(_by_others, "seconds", 0.0) + under_way.result()


def _measured(step: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> float:
    began = worked()
    step(*args, **kwargs)
    return worked() - began


# Digesting: the SHA-256 of much that comes in pieces, made while its reader goes on.


SHORT = 64 * 1024
"""Bytes of a piece that are digested before another thread would have begun."""


class Digesting:
    """A SHA-256 that is updated in another thread."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._behind = Behind("digesting")

    def update(self, piece: bytes) -> None:
        """Feed the next chunk."""
        if len(piece) < SHORT:
            self._behind.settle()
            self._digest.update(piece)
        else:
            self._behind.do(self._digest.update, piece)

    def copy(self) -> Digest:
        """A copy of the digest so far, to be continued elsewhere."""
        self._behind.settle()
        return self._digest.copy()

    def hexdigest(self) -> str:
        """The digest of all chunks so far."""
        self._behind.settle()
        return self._digest.hexdigest()


# Write-through: a large file goes to the disk while it is written, not all at its end.
#
# A gigabyte that is brought there by one fsync holds up every commit beside it for a tenth of a
# second and more; in pieces it holds up none. A piece goes there while the next one is written.


LOOSE_MAX = 8 * 1024 * 1024
"""Bytes that may be written before they are synced to the disk."""

# Not every system has the call that leaves out times and sizes.
_sync = getattr(os, "fdatasync", os.fsync)


class WriteThrough:
    """What was written of one file since it was last brought to the disk. The caller settles before
    it closes the file: the system may reuse a closed handle for another file at once."""

    def __init__(self, file: BinaryIO, disk: str) -> None:
        """`disk` names the disk of the file: where one disk hangs, files on another do not wait."""
        self._file = file
        self._loose = 0
        self._behind = Behind(f"{disk} write-through")

    def wrote(self, size: int) -> None:
        """Count bytes that were written. Raises OSError where the disk does, for these bytes or
        for earlier ones."""
        self._loose += size
        if self._loose >= LOOSE_MAX:
            self._file.flush()
            self._behind.do(_sync, self._file.fileno())
            self._loose = 0

    def settle(self) -> None:
        """Wait until no sync is under way. Raises OSError where the disk does."""
        self._behind.settle()


# Removal: a large file leaves the disk in pieces, in the background.
#
# To unlink a gigabyte takes half a second, and every commit beside it waits for what the disk is
# told about all of its blocks. So a large file loses its name at once, as any other, and then its
# end, piece by piece, in a thread of its own. A crash leaves nothing of a file without a name.


LARGE = 32 * 1024 * 1024
"""Size in bytes from which a file is removed in several steps."""
STEP = 8 * 1024 * 1024

WAITING_MAX = 32
"""Files whose removal may be under way: each holds a handle, and connections need those too."""


class Removal:
    """Removes large files in pieces, in a thread."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._room = threading.Semaphore(WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def has_room(self, size: int) -> bool:
        """Whether a file of that size can be removed now without blocking."""
        if size < LARGE:
            return True
        room = self._room.acquire(blocking=False)
        if room:
            self._room.release()
        return room

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there. Raises OSError."""
        handle = _opened(path)
        try:
            path.unlink(missing_ok=True)
        finally:
            self._end(handle)

    def replace(self, path: Path, target: Path) -> None:
        """Rename a file; the one that had the name before is removed. Raises OSError."""
        handle = _opened(target)
        try:
            path.replace(target)
        finally:
            self._end(handle)

    def _end(self, handle: int | None) -> None:
        if handle is None:
            return
        if self._is_at_work() and self._room.acquire(blocking=False):
            self._waiting.put(handle)
        else:
            # Then it goes in one step: slowly, but it goes.
            _close(handle)

    def _is_at_work(self) -> bool:
        with self._lock:
            if self._thread is None:
                # The end of the process does not wait for it either.
                thread = threading.Thread(target=self._work, name="removal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system has no thread left; the next file asks again.
                    return False
                self._thread = thread
            return True

    def _work(self) -> None:
        while True:
            handle = self._waiting.get()
            with contextlib.suppress(OSError):
                _shrink(handle)
            _close(handle)
            self._room.release()


def _close(handle: int) -> None:
    # Some systems tell only here what went wrong before; this file is not needed any more.
    with contextlib.suppress(OSError):
        os.close(handle)


def _opened(path: Path) -> int | None:
    """A handle that keeps a large file on the disk without its name; None for small ones."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(handle).st_size >= LARGE:
        return handle
    os.close(handle)
    return None


def _shrink(handle: int) -> None:
    """Shorten a file piece by piece, unless another reader still has it open."""
    found = os.fstat(handle)
    if found.st_nlink > 0 or not _is_alone(handle):
        return
    left = found.st_size
    while left > 0:
        left = max(0, left - STEP)
        os.ftruncate(handle, left)
        os.fsync(handle)


def _is_alone(handle: int) -> bool:
    """Whether no other process has the file open: only then does the system grant a write lease,
    which is given back at once. The file has no name any more, so none can open it afterwards."""
    try:
        # A process that opens it through /proc meanwhile makes the system send us a signal, by
        # default one that ends the process; SIGURG is ignored.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        # Taken elsewhere, or a system that has no such lease.
        return False
    return True


NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
UNFINISHED = ".part"
GOES_ON = "its disk; a handler that runs goes on by itself then, a command is to be given again"
"""The remedy for trouble of the disk, worded for a handler that runs and for a command alike."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_name(name: str) -> str:
    """The name itself, if it is a SHA-256 in hexadecimal digits and nothing else."""
    if NAME.fullmatch(name) is None:
        raise InvalidValue(
            f"{name[:80]!r} is not a spool name", remedy="use the name that put() returned"
        )
    return name


MARK = "spool-"
"""How the name of a file begins by which a spool is known again."""


def check_owner(found: bytes, node: str, where: str) -> None:
    """Refuse a spool whose mark names another node: of files that a node does not know, none
    stays. A mark that says nothing will do."""
    owner = found[:1000].decode(errors="replace")
    if owner not in ("", node):
        raise SpoolElsewhere(
            f"the documents of {owner!r} lie in {where}: retention of {node} would remove them",
            remedy="set store.spool, or store.bucket, to a place of its own",
        )


SHARED_AGE = 3600.0
"""Seconds that a file which several processes can write stays after it was put or used last."""


class FileSpool:
    """See `spool_contract.Spool`. One process writes to a directory at a time, unless it is
    `shared`: then a file stays for a while (`SHARED_AGE`) after it was put or used last, because
    another process may have put it for a commit that is still to come.

    What is in use is counted here, under a lock, because bodies are put in threads of their
    own: a file is counted before it gets its name, and removed only while it is not counted.
    So whichever of the two comes first, a body that was put stays. After a crash the counts
    are gone with the process, and rightly: what it had put and not committed belongs to no message.
    """

    def __init__(self, directory: Path, *, shared: bool = False) -> None:
        self._directory, self._shared = directory, shared
        # Processes on several machines may have the same number.
        self._writer = f"{os.getpid()}-{uuid4().hex[:12]}" if shared else str(os.getpid())
        self._numbers = itertools.count(1)
        self._in_use: Counter[str] = Counter()
        # Files that were made here and are not let go yet.
        self._made: set[str] = set()
        self._lock = threading.Lock()
        self._removal = Removal()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What a crash left half-written was never named by a row.
        for path in directory.glob(f"*{UNFINISHED}"):
            if not self._is_fresh(path):
                path.unlink(missing_ok=True)

    def mark(self, name: str, node: str) -> None:
        """Leave a file here, by which the spool is known again, with the name of its node. Refused
        where there is one of another node."""
        with store_trouble():
            for other in self._directory.glob(f"{MARK}*"):
                check_owner(other.read_bytes(), node, str(self._directory))
            (self._directory / name).touch(mode=0o600)
            (self._directory / name).write_text(node)
            sync_folder(self._directory)

    def has_mark(self, name: str) -> bool:
        """Whether such a file is here."""
        return (self._directory / name).is_file()

    def size(self) -> int:
        """Bytes of all its files, those that are being written too. Any thread may ask."""
        total = 0
        with os.scandir(self._directory) as files:
            for file in files:
                # It may go meanwhile.
                with contextlib.suppress(OSError):
                    total += file.stat(follow_symlinks=False).st_size
        return total

    def begin(self) -> SpoolFile:
        """See `spool_contract.Spool`. Raises StoreFull or StoreGone."""
        path = self._directory / f"{self._writer}-{next(self._numbers)}{UNFINISHED}"
        with store_trouble():
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

    def put_unblocked(self, body: bytes) -> tuple[str, int]:
        """See `spool_contract.Spool`; the disk beside us is waited for."""
        return self.put((body,))

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
            with store_trouble():
                self._removal.replace(path, self._directory / name)
                sync_folder(self._directory)
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
        if self._shared:
            with contextlib.suppress(OSError):
                os.utime(self._directory / name)

    def let_go(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            self._made.discard(name)
            self._count_down(name)

    def give_back(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            self._count_down(name)
            if name in self._made and name not in self._in_use and not self._shared:
                self._made.discard(name)
                # What cannot be removed now is found by the next cleaning.
                with contextlib.suppress(OSError):
                    self._removal.remove(self._directory / name)

    def _is_fresh(self, path: Path) -> bool:
        """Whether another process may be about to name it."""
        if not self._shared:
            return False
        with contextlib.suppress(OSError):
            return time() - path.stat().st_mtime < SHARED_AGE
        return False

    def _count_down(self, name: str) -> None:
        self._in_use[name] -= 1
        if self._in_use[name] <= 0:
            del self._in_use[name]

    def open(self, name: str) -> BinaryIO:
        """See `spool_contract.Spool`."""
        path = self._directory / check_name(name)
        try:
            # Who opens a pipe, or a link to one, waits for its writer for ever.
            if not path.is_file():
                path.stat()
                raise OSError(errno.EINVAL, "it is no file")
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
        with store_trouble(), os.scandir(self._directory) as files:
            for file in files:
                if found == limit:
                    break
                if NAME.fullmatch(file.name) is not None and file.name not in referenced:
                    found += self._remove(file.name)
        return found

    def _remove(self, name: str) -> bool:
        path = self._directory / name
        with self._lock:
            if name in self._in_use or self._is_fresh(path):
                return False
            with contextlib.suppress(FileNotFoundError):
                # A sweep does not wait for large files, one after the other.
                if self._removal.has_room(path.stat().st_size):
                    self._removal.remove(path)
        return True


class SpoolFile:
    """See `spool_contract.SpoolFile`: a file that grows, and has its name only at its end."""

    def __init__(
        self, path: Path, file: io.FileIO, name: Callable[[Path, str], None], removal: Removal
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
        with store_trouble():
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
            with store_trouble():
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


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a new file without its name is nowhere."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def store_trouble() -> Iterator[None]:
    """Raise what the disk says as the store's errors."""
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
