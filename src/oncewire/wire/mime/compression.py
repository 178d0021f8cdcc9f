"""Compressing payloads and undoing it without falling to bombs (BIG-1)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from oncewire.errors import InvalidValue, MimeProblem
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond

_ZSTD = "zstd"
ENCODINGS = ("gzip", "deflate", *((_ZSTD,) if find_spec("zstandard") else ()))
"""What can be used here; zstd needs the package `zstandard` (the extra `zstd`)."""
# zlib's numbers for the two: gzip with its frame, deflate with zlib's, as HTTP means it.
_WINDOW = {"gzip": 31, "deflate": 15}
_PIECE = 65_536
# Below this the ratio says little: a header of zeros compresses well and is harmless.
_HARMLESS = 1_048_576
# Of a zstd frame: the memory that undoing it may ask for, as RFC 8878 recommends to support.
_ZSTD_MEMORY = 8 * 1024 * 1024


def compressed(pieces: Iterable[bytes], encoding: str = "gzip") -> Iterator[bytes]:
    """The pieces compressed; the same content always gives the same bytes (no time in it)."""
    if encoding not in ENCODINGS:
        raise InvalidValue(
            f"CompressEncoding {encoding[:32]!r} is not known",
            remedy="agree on one of " + ", ".join(ENCODINGS),
        )
    machine: Any
    if encoding == _ZSTD:
        import zstandard

        machine = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    else:
        machine = zlib.compressobj(6, zlib.DEFLATED, _WINDOW[encoding])
    for piece in pieces:
        if made := machine.compress(piece):
            yield made
    yield machine.flush()


class Inflater:
    """Undoes a compression piece by piece and stops at the agreed ratio or size."""

    def __init__(
        self, encoding: str, limits: Limits = DEFAULT_LIMITS, *, size_max: int | None = None
    ) -> None:
        if encoding not in ENCODINGS:
            raise MimeProblem(
                f"Content-Encoding {encoding[:32]!r} is not known",
                location="Content-Encoding",
                remedy="send one of " + ", ".join(ENCODINGS),
            )
        self._machine: _Zlib | _Zstd = _Zstd() if encoding == _ZSTD else _Zlib(_WINDOW[encoding])
        self._limits = limits
        self._size_max = size_max
        self._taken = 0
        self.size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The content of the next compressed bytes, in pieces of bounded size."""
        self._taken += len(data)
        for piece in self._machine.feed(data):
            # Checked before the next piece is made: a bomb costs one piece.
            yield from self._checked(piece)

    def finish(self) -> Iterator[bytes]:
        """The rest; a stream that was cut off is refused."""
        yield from self._checked(self._machine.rest())
        if not self._machine.ended:
            raise _damaged("it ends too early")

    def _checked(self, piece: bytes) -> Iterator[bytes]:
        if not piece:
            return
        self.size += len(piece)
        allowed = self._limits.compression_ratio
        if self.size > _HARMLESS and self.size > allowed * self._taken:
            raise beyond(
                "a payload grows beyond its compressed size",
                "compression_ratio",
                allowed,
                mime=True,
            )
        # The agreed MaxSize is one of content, not of what travelled (BIG-1).
        if self._size_max is not None and self.size > self._size_max:
            raise beyond("a payload is too large", "payload_bytes", self._size_max, mime=True)
        yield piece


class _Zlib:
    """gzip and deflate."""

    def __init__(self, window: int) -> None:
        self._machine = zlib.decompressobj(window)

    def feed(self, data: bytes) -> Iterator[bytes]:
        pending = data
        while pending:
            try:
                piece = self._machine.decompress(pending, _PIECE)
            except zlib.error as error:
                raise _damaged(str(error)) from None
            pending = self._machine.unconsumed_tail
            yield piece
            # Bytes behind the end are no content; another reader might take them for a second
            # member.
            if self._machine.unused_data:
                raise _damaged("there are bytes after its end")

    def rest(self) -> bytes:
        try:
            return self._machine.flush()
        except zlib.error as error:
            raise _damaged(str(error)) from None

    @property
    def ended(self) -> bool:
        return self._machine.eof


class _Zstd:
    """One frame of Zstandard (RFC 8878). What is fed is cut small, so that what comes of one step
    is bounded: a block has 128 KB at most, and takes 4 bytes at least."""

    _STEP = 512

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        # It gives what fits into a piece, and keeps the rest.
        self._machine: Any = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MEMORY).decompressobj(
            write_size=_PIECE
        )

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), self._STEP):
            if self._machine.eof:
                raise _damaged("there are bytes after its end")
            try:
                yield self._machine.decompress(data[start : start + self._STEP])
            except self._error as error:
                raise _damaged(str(error)) from None
        if self._machine.unused_data:
            raise _damaged("there are bytes after its end")

    def rest(self) -> bytes:
        return b""

    @property
    def ended(self) -> bool:
        return bool(self._machine.eof)


def _damaged(reason: str) -> MimeProblem:
    return MimeProblem(
        f"the compressed payload is damaged: {reason}",
        location="Content-Encoding",
        remedy="send the payload again, whole",
    )
