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
import threading
from pathlib import Path

LARGE = 32 * 1024 * 1024
"""Bytes of a file that does not go in one step."""
STEP = 8 * 1024 * 1024


class Removal:
    """Files on their way out."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

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
        self._waiting.put(handle)
        with self._lock:
            if self._thread is None:
                # Nobody waits for it at the end of the process either.
                self._thread = threading.Thread(target=self._work, name="removal", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            handle = self._waiting.get()
            with contextlib.suppress(OSError):
                _shrink(handle)
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
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        # Taken elsewhere, or a system that has no such lease.
        return False
    return True
