"""Joining: the parts of a document become its payloads, read once and checked on the way.

It runs outside of any turn, in a thread where there is one: a document may be larger than memory
and take minutes. Nothing is copied that need not be: a payload that was not compressed is the
ranges of the files that its parts lie in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from oncewire.errors import Inconsistent, MimeProblem, StoreDamaged
from oncewire.message.payload import Payload
from oncewire.store.records import SpoolSlice
from oncewire.store.spool_contract import Spool
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.compression import Inflater
from oncewire.wire.mime.multipart import decoder

PIECE = 256 * 1024
"""Bytes of a document that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Where a part lies that travelled as base64, or encoded in another way."""

    body: tuple[bytes | SpoolSlice, ...]
    encoding: str


Piece: TypeAlias = bytes | SpoolSlice | Encoded
"""The bytes of one part, or where they lie."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """One payload of a document: the bytes of its parts, in order, and what is said of it."""

    # Its name, media type and other headers; size and digest are found by joining.
    payload: Payload
    body: tuple[Piece, ...]
    # How it was compressed; None: not at all.
    encoding: str | None = None
    # Size and SHA-256 of all that travelled, and size before the compression, where that is told.
    size: int | None = None
    digest: str | None = None
    original_size: int | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A payload that is whole."""

    payload: Payload
    body: tuple[bytes | SpoolSlice, ...]


def put_together(spool: Spool, contents: Iterable[Pieces], limits: Limits) -> tuple[Joined, ...]:
    """Every payload, checked. Raises the error that its sender is told of if one is not what was
    split, or more than is taken. New files are in use; whoever asked lets them go."""
    joined: list[Joined] = []
    made: list[str] = []
    left = limits.document_bytes
    try:
        for content in contents:
            whole = _join(spool, content, limits, left, made)
            left -= whole.payload.size
            joined.append(whole)
    except BaseException:
        for name in made:
            spool.give_back(name)
        raise
    return tuple(joined)


def made_files(joined: Iterable[Joined], contents: Iterable[Pieces]) -> list[str]:
    """The files that came to be by joining."""
    before = {
        piece.name
        for content in contents
        for piece in content.body
        if isinstance(piece, SpoolSlice)
    }
    return [
        piece.name
        for whole in joined
        for piece in whole.body
        if isinstance(piece, SpoolSlice) and piece.name not in before
    ]


def _join(spool: Spool, content: Pieces, limits: Limits, left: int, made: list[str]) -> Joined:
    travelled = _Travelled(spool, content)
    lies = tuple(piece for piece in content.body if not isinstance(piece, Encoded))
    if content.encoding is None and len(lies) == len(content.body):
        digest, size = hashlib.sha256(), 0
        for piece in travelled:
            digest.update(piece)
            size += len(piece)
            if size > left:
                raise beyond("a document is too large", "document_bytes", left, mime=True)
        payload = replace(content.payload, size=size, digest=digest.hexdigest(), data=None)
        return Joined(payload, lies)
    file = spool.begin()
    try:
        for piece in _undone(content, travelled, limits, left):
            file.write(piece)
        name, size = file.finish()
    except BaseException:
        file.abandon()
        raise
    made.append(name)
    payload = replace(content.payload, size=size, digest=name, data=None)
    return Joined(payload, (SpoolSlice(name, 0, size),))


def _undone(
    content: Pieces, travelled: Iterable[bytes], limits: Limits, left: int
) -> Iterator[bytes]:
    """What travelled, decompressed where it was compressed."""
    if content.encoding is None:
        size = 0
        for piece in travelled:
            size += len(piece)
            if size > left:
                raise beyond("a document is too large", "document_bytes", left, mime=True)
            yield piece
        return
    inflater = Inflater(content.encoding, limits, size_max=left)
    for piece in travelled:
        yield from inflater.feed(piece)
    yield from inflater.finish()
    if content.original_size not in (None, inflater.size):
        raise MimeProblem(
            f"the payload {content.payload.content_id} has {inflater.size:,} bytes, "
            f"{content.original_size:,} were told",
            location=f"cid:{content.payload.content_id}",
            remedy="send the document again",
        )


class _Travelled:
    """The bytes of the parts one after the other; at their end they are what was split, or an error
    is raised."""

    def __init__(self, spool: Spool, content: Pieces) -> None:
        self._spool, self._content = spool, content

    def __iter__(self) -> Iterator[bytes]:
        content, digest, size = self._content, hashlib.sha256(), 0
        for piece in _read(self._spool, content.body):
            digest.update(piece)
            size += len(piece)
            yield piece
        name = content.payload.content_id
        if content.size not in (None, size):
            raise Inconsistent(
                f"the parts of payload {name} have {size:,} bytes, {content.size:,} were told",
                location="//SplitNumber",
                remedy="send the document again, all of its parts",
            )
        if content.digest not in (None, "", digest.hexdigest()):
            raise MimeProblem(
                f"the parts of payload {name} are not what was split: their digest is another",
                location=f"cid:{name}",
                remedy="send the document again",
            )


def _read(spool: Spool, body: Iterable[Piece]) -> Iterator[bytes]:
    for piece in body:
        if isinstance(piece, bytes):
            yield piece
            continue
        if isinstance(piece, Encoded):
            undo = decoder(piece.encoding)
            for data in _read(spool, piece.body):
                yield undo.feed(data)
            yield undo.finish()
            continue
        with spool.open(piece.name) as spooled:
            spooled.seek(piece.offset)
            left = piece.length
            while left > 0:
                data = spooled.read(min(PIECE, left))
                if not data:
                    raise _cut_off(piece)
                left -= len(data)
                yield data


def _cut_off(piece: SpoolSlice) -> StoreDamaged:
    return StoreDamaged(
        f"spool file {piece.name} is shorter than it was",
        remedy="restore it from a copy of the spool directory",
    )
