"""The spool in memory."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable
from time import thread_time
from typing import BinaryIO

from oncewire.errors import StoreProblem
from oncewire.store.spool import check_name
from oncewire.store.spool_contract import Digest


class MemorySpool:
    """Large payloads in a dictionary; a put is durable at once, as a file is after fsync."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._in_use: Counter[str] = Counter()
        self._made: set[str] = set()

    def begin(self) -> MemorySpoolFile:
        """See `spool_contract.Spool`."""
        return MemorySpoolFile(self.put)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """See `spool_contract.Spool`."""
        content = b"".join(chunks)
        name = self.name_of([content])
        self.use(name)
        if self._in_use[name] == 1 and name not in self._files:
            self._made.add(name)
        self._files[name] = content
        return name, len(content)

    def name_of(self, pieces: Iterable[bytes]) -> str:
        """See `spool_contract.Spool`."""
        return hashlib.sha256(b"".join(pieces)).hexdigest()

    def worked(self) -> float:
        """See `spool_contract.Spool`."""
        return thread_time()

    def use(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        self._in_use[name] += 1

    def let_go(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        self._made.discard(name)
        if self._in_use[name] > 0:
            self._in_use[name] -= 1

    def give_back(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        made = name in self._made
        self.let_go(name)
        if made and self._in_use[name] > 0:
            self._made.add(name)
        elif made:
            del self._files[name]

    def crash(self) -> None:
        """The process that used them died."""
        self._in_use.clear()
        self._made.clear()

    def open(self, name: str) -> BinaryIO:
        """See `spool_contract.Spool`."""
        check_name(name)
        if name not in self._files:
            raise StoreProblem(f"spool file {name} is missing", remedy="restore it from a copy")
        return io.BytesIO(self._files[name])

    def path(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        check_name(name)

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """See `spool_contract.Spool`."""
        loose = sorted(self._files.keys() - referenced)
        gone = [name for name in loose if self._in_use[name] <= 0][:limit]
        for name in gone:
            del self._files[name]
        return len(gone)


class MemorySpoolFile:
    """See `spool_contract.SpoolFile`."""

    def __init__(self, put: Callable[[Iterable[bytes]], tuple[str, int]]) -> None:
        self._put = put
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """See `spool_contract.SpoolFile`."""
        self._pieces.append(data)

    def digest(self) -> Digest:
        """See `spool_contract.SpoolFile`."""
        return hashlib.sha256(b"".join(self._pieces))

    def finish(self) -> tuple[str, int]:
        """See `spool_contract.SpoolFile`."""
        return self._put(self._pieces)

    def abandon(self) -> None:
        """See `spool_contract.SpoolFile`."""
        self._pieces.clear()
