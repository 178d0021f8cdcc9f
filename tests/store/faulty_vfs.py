"""A file system for SQLite that fails when it is told to.

It counts writes, fsyncs and reads on the database and its log, and lets the N-th one
fail: once, or from then on. A failing fsync loses nothing by itself (the bytes may well
be in the file afterwards), which is exactly what makes it dangerous.
"""

from __future__ import annotations

import itertools
from typing import Any

import apsw

_NUMBERS = itertools.count(1)
_ERRORS = {
    "write": (apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    "full": (apsw.FullError, apsw.SQLITE_FULL),
    "sync": (apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    "read": (apsw.IOError, apsw.SQLITE_IOERR_READ),
}
OPERATIONS = {"write": "write", "full": "write", "sync": "sync", "read": "read"}
"""What each fault strikes."""


class FaultyVfs(apsw.VFS):
    """Registered under its own name; give that to the store."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_NUMBERS)}"
        self.calls = dict.fromkeys(("write", "sync", "read"), 0)
        self.struck = 0
        self._fault: str | None = None
        self._left = 0
        self._for_ever = False
        super().__init__(self.name, base="")

    def fail(self, fault: str, number: int, *, for_ever: bool = False) -> None:
        """Let the `number`-th operation from now on fail, and all later ones if `for_ever`."""
        self._fault, self._left, self._for_ever = fault, number, for_ever
        self.struck = 0

    def heal(self) -> None:
        """Fail no more."""
        self._fault = None

    def called(self, operation: str) -> None:
        """Count one operation, and fail if it is its turn."""
        self.calls[operation] += 1
        if self._fault is None or OPERATIONS[self._fault] != operation:
            return
        self._left -= 1
        if self._left == 0 or (self._for_ever and self._left < 0):
            self.struck += 1
            kind, code = _ERRORS[self._fault]
            error: Any = kind("on purpose")
            error.extendedresult = code
            if not self._for_ever:
                self._fault = None
            raise error

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802
        """Every file of the database goes through us."""
        return _FaultyFile(self, name, flags)

    # SQLite prints what a VFS raises; here it is meant to raise.
    def excepthook(self, *_: Any) -> bool:
        """Say nothing."""
        return True


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVfs, name: Any, flags: Any) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def excepthook(self, *_: Any) -> bool:
        return True

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._vfs.called("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.called("sync")
        super().xSync(flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._vfs.called("read")
        return super().xRead(amount, offset)
