"""A file system for SQLite that fails when it is told to, and whose power can be cut.

It counts writes, fsyncs and reads on the database and its log, and lets the N-th one
fail: once, or from then on. A failing fsync loses nothing by itself (the bytes may well
be in the file afterwards), which is exactly what makes it dangerous.

It also remembers which writes were fsynced. `cut_power` leaves those on the disk, and of
all others whatever chance decides: nothing, everything, or a part of a page.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
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
        self.disks: dict[str, _Disk] = {}
        # Called before every write and fsync.
        self.watch: Callable[[], None] | None = None
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

    def cut_power(self, folder: Path, chance: random.Random) -> None:
        """Write into the folder what the disk holds if the power fails now."""
        for path, disk in self.disks.items():
            (folder / Path(path).name).write_bytes(disk.after_power_loss(chance))

    def called(self, operation: str) -> None:
        """Count one operation, and fail if it is its turn."""
        self.calls[operation] += 1
        if self.watch is not None and operation != "read":
            self.watch()
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

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """A deleted log is gone."""
        super().xDelete(filename, syncdir)
        self.disks.pop(filename, None)

    # SQLite prints what a VFS raises; here it is meant to raise.
    def excepthook(self, *_: Any) -> bool:
        """Say nothing."""
        return True


class _Disk:
    """One file as it was at its last fsync, and what was done to it since."""

    def __init__(self, content: bytes) -> None:
        self._synced = bytearray(content)
        self._since: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes) -> None:
        self._since.append((offset, data))

    def truncate(self, size: int) -> None:
        self._since.append((size, None))

    def sync(self) -> None:
        for place, data in self._since:
            _apply(self._synced, place, data)
        self._since.clear()

    def after_power_loss(self, chance: random.Random) -> bytes:
        content = bytearray(self._synced)
        for place, data in self._since:
            fate = chance.random()
            if fate < 0.4:
                continue
            if fate < 0.6 and data is not None:
                _apply(content, place, data[: SECTOR * chance.randrange(len(data) // SECTOR + 1)])
            else:
                _apply(content, place, data)
        return bytes(content)


def _apply(content: bytearray, place: int, data: bytes | None) -> None:
    if data is None:
        del content[place:]
        return
    content.extend(bytes(max(0, place + len(data) - len(content))))
    content[place : place + len(data)] = data


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVfs, name: Any, flags: Any) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path not in vfs.disks:
            vfs.disks[path] = _Disk(Path(path).read_bytes())
        self._disk = vfs.disks[path]

    def excepthook(self, *_: Any) -> bool:
        return True

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._vfs.called("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._vfs.called("write")
        super().xWrite(data, offset)
        self._disk.write(offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.truncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # Whether the real disk syncs makes no difference here, only takes time.
        self._vfs.called("sync")
        self._disk.sync()
