"""Removal: a large file leaves the disk in pieces, and nobody waits for it.

To unlink a gigabyte takes half a second, and every commit beside it waits for what the disk is
told about all of its blocks. So a large file loses its name at once, as any other, and then its
end, piece by piece, in a thread of its own. A crash leaves nothing of a file without a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import signal
import threading
from pathlib import Path

LARGE = 32 * 1024 * 1024
"""Bytes of a file that does not go in one step."""
STEP = 8 * 1024 * 1024

WAITING_MAX = 32
"""Files that may be on their way out: each holds a handle, and connections need those too."""


class Removal:
    """Files on their way out."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._room = threading.Semaphore(WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def has_room(self, size: int) -> bool:
        """Whether a file of that size would not keep whoever removes it."""
        if size < LARGE:
            return True
        room = self._room.acquire(blocking=False)
        if room:
            self._room.release()
        return room

    def remove(self, path: Path) -> None:
        """Nothing has this name any more; nothing may have had it. Raises OSError."""
        handle = _opened(path)
        try:
            path.unlink(missing_ok=True)
        finally:
            self._end(handle)

    def replace(self, path: Path, target: Path) -> None:
        """Give a file a name, which another one may lose by it. Raises OSError."""
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
                # Nobody waits for it at the end of the process either.
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
    # Some systems tell only here what went wrong before; of this file nobody wants anything.
    with contextlib.suppress(OSError):
        os.close(handle)


def _opened(path: Path) -> int | None:
    """A large file, held while it loses its name; of every other one the system lets go."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(handle).st_size >= LARGE:
        return handle
    os.close(handle)
    return None


def _shrink(handle: int) -> None:
    """Take its end away, piece by piece, unless somebody still has it: to him it stays whole."""
    found = os.fstat(handle)
    if found.st_nlink > 0 or not _is_alone(handle):
        return
    left = found.st_size
    while left > 0:
        left = max(0, left - STEP)
        os.ftruncate(handle, left)
        os.fsync(handle)


def _is_alone(handle: int) -> bool:
    """Whether nobody else has it open, which the system alone knows: this lease it grants to
    nobody else's harm. Without a name, nobody can open it in between."""
    try:
        # Who looks into it by way of /proc meanwhile makes the system tell us, by a signal that
        # would end the process; this one nobody hears.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        # Taken elsewhere, or a system that has no such lease.
        return False
    return True
