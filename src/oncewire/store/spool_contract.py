"""The spool's contract: large bodies as files beside the rows that name them.

These docstrings bind every spool, as those of `contract` bind every store.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from oncewire.errors import StoreGone


class OnItsWay(StoreGone):
    """A file lies elsewhere or goes there, where nobody may wait for it: a thread brings it, and it
    can be had when `coming` is done."""

    def __init__(self, name: str, coming: Future[Any]) -> None:
        super().__init__(
            f"spool file {name} is on its way between disk and bucket",
            remedy="nothing is to be done; it is asked for again",
        )
        self.coming = coming


class Digest(Protocol):
    """A digest that is being computed."""

    def update(self, data: bytes, /) -> None:
        """Feed the next chunk."""

    def digest(self) -> bytes:
        """The digest of all chunks so far."""


class SpoolFile(Protocol):
    """A file of the spool that is being written, piece by piece and by one writer. It cannot be
    found before it is finished, and a crash leaves nothing of it. Any thread may write."""

    def write(self, data: bytes) -> None:
        """Append. Raises StoreFull or StoreGone; then it can only be abandoned."""

    def digest(self) -> Digest:
        """A SHA-256 of what was written so far, to go on with."""

    def finish(self) -> tuple[str, int]:
        """Finish the file as `Spool.put` does at its end, with the same promises; (name, size)."""

    def abandon(self) -> None:
        """Remove the file; may be called more than once, and after a `finish` that failed."""


class Spool(Protocol):
    """Large payloads as files named by their hash; never by anything a message says.

    A file is in use from its `put` until `let_go`, and between `use` and `let_go`; each counts
    for itself. The caller of `put` lets the file go only when the commit that names it is done, or
    will never be. So at every moment a file is in use, or named by what is committed, or may be
    removed. Two bodies with the same bytes are one file.
    """

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """Write, fsync file and directory, rename to the SHA-256 name; (name, size). It is in
        use before it has its name. May be called in any thread."""

    def put_unblocked(self, body: bytes) -> tuple[str, int]:
        """`put` of bytes that the caller can hand in again. In an event loop that it would block
        it raises OnItsWay, and a thread puts the file; who then asks again with the same bytes
        has it, or is told why not. What nobody asks for again is given back."""

    def begin(self) -> SpoolFile:
        """A new file that is written as its bytes come; it counts as put when it is finished.
        Raises StoreFull or StoreGone. May be called in any thread."""

    def name_of(self, pieces: Iterable[bytes]) -> str:
        """The name that a file of these bytes has. May be called in any thread."""

    def worked(self) -> float:
        """Seconds of a processor that went into what this thread does: its own, and those of
        threads that wrote and digested for it."""

    def use(self, name: str) -> None:
        """Keep the file until `let_go`, because it is about to be read."""

    def let_go(self, name: str) -> None:
        """End one `put` or `use` of the file."""

    def give_back(self, name: str) -> None:
        """One `put` of it is over, and nothing that was or will be committed names it. If the
        file came to be by such puts alone, it is removed with the last of them: what was
        refused does not wait for a cleaning."""

    def open(self, name: str) -> BinaryIO:
        """Open for reading. Raises StoreProblem when it is not there, InvalidValue when
        the name is not 64 hexadecimal digits, OnItsWay in an event loop that it would block."""

    def path(self, name: str) -> Path | None:
        """Where the file lies, for another process of the same user; None: only in memory."""

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """Remove files that are neither named nor in use; returns how many were found, at most
        `limit`. Where many of them are large some stay, and go the next time.

        `referenced` is what `Reader.spooled()` says. Nothing may be committed between that
        question and this call: what was in use then may be named only by that commit now."""
