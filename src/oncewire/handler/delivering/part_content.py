"""Part content: the bytes of one part of a stored message, read from the file they lie in."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oncewire.errors import StoreDamaged
from oncewire.wire.mime.transfer import Decoder, decoder, is_identity

PIECE = 64 * 1024
"""Bytes that are decoded at once."""

BUFFER = 1024 * 1024
"""Bytes that are fetched at once."""


@dataclass(frozen=True, slots=True)
class PartContent:
    """See `message.payload.Content`. The part lies in a file, still encoded as it travelled."""

    file: Callable[[], BinaryIO]
    offset: int
    length: int
    # Its Content-Transfer-Encoding.
    encoding: str = ""
    # Where the file lies, for other processes of the same user; None: nowhere but in memory.
    path: Path | None = None

    def open(self) -> BinaryIO:
        """See `message.payload.Content`."""
        file = self.file()
        try:
            file.seek(self.offset)
            undo = None if is_identity(self.encoding) else decoder(self.encoding)
            return io.BufferedReader(PartFile(file, self.length, undo), BUFFER)
        except BaseException:
            file.close()
            raise


@dataclass(frozen=True, slots=True)
class JoinedContent:
    """See `message.payload.Content`. A payload that lies in several files, one part behind the
    other: a document that came in parts."""

    pieces: tuple[PartContent, ...]

    def open(self) -> BinaryIO:
        """See `message.payload.Content`."""
        return io.BufferedReader(JoinedFile(self.pieces), BUFFER)


class JoinedFile(io.RawIOBase):
    """Files that are read as one; no more than one of them is open."""

    def __init__(self, pieces: Iterable[PartContent]) -> None:
        self._pieces = iter(pieces)
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        """It is read, and nothing else."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill the buffer as far as one file has something; 0 at the end of the last."""
        while True:
            if self._file is None:
                following = next(self._pieces, None)
                if following is None:
                    return 0
                self._file = following.open()
            piece = self._file.read(len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)
            self._file.close()
            self._file = None

    def close(self) -> None:
        """See `io.IOBase`."""
        if self._file is not None:
            self._file.close()
        super().close()


class PartFile(io.RawIOBase):
    """So many bytes of a file from where it stands, decoded; closing it closes the file."""

    def __init__(self, file: BinaryIO, length: int, undo: Decoder | None = None) -> None:
        self._file, self._left, self._undo = file, length, undo
        self._decoded = memoryview(b"")
        self._finished = False

    def readable(self) -> bool:
        """It is read, and nothing else."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill the buffer as far as there is something; 0 at the end."""
        if self._undo is None:
            piece = self._fetched(len(buffer))
            buffer[: len(piece)] = piece
            return len(piece)
        while not self._decoded and not self._finished:
            piece = self._fetched(PIECE)
            self._finished = not piece
            found = self._undo.feed(piece) if piece else self._undo.finish()
            self._decoded = memoryview(found)
        count = min(len(buffer), len(self._decoded))
        buffer[:count] = self._decoded[:count]
        self._decoded = self._decoded[count:]
        return count

    def _fetched(self, size: int) -> bytes:
        piece = self._file.read(min(size, self._left))
        if not piece and self._left and size:
            raise StoreDamaged(
                f"a file of the spool ends {self._left:,} bytes too soon",
                remedy="put it back from a backup",
            )
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """See `io.IOBase`."""
        self._file.close()
        super().close()
