"""The members of a tar file, found with one look at each header.

Archives hold very many small messages, and there `tarfile` costs more than reading them does. A
plain member (a regular file with a short name) is read here; from the first other entry on, an
extended header or a link, `tarfile` goes on. Unlike it, a header that is none is an error wherever
it stands: what follows it would be lost without a word.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_BLOCK = 512
_PLAIN = (b"0", b"\0")
_MAGIC = b"ustar"
_END = bytes(_BLOCK)


class Member(NamedTuple):
    """Where a regular file stands in its tar file."""

    name: str
    offset: int
    """Of its first header."""
    start: int
    """Of its bytes."""
    size: int
    entry: tarfile.TarInfo | None = None
    """As `tarfile` has it, where that was needed."""


def members(opened: BinaryIO, start: int = 0) -> Iterator[Member]:
    """Every regular file from the header at `start` on; the caller may move the file."""
    offset = start
    while True:
        opened.seek(offset)
        header = opened.read(_BLOCK)
        if not header or header == _END:
            return
        found = _plain(header, offset)
        if found is None:
            yield from _unusual(opened, offset)
            return
        yield found
        offset = found.start + (found.size + _BLOCK - 1) // _BLOCK * _BLOCK


def data_of(opened: BinaryIO, member: Member) -> bytes:
    """The bytes of a member; fewer than its size if the file ends before."""
    if member.entry is not None and member.entry.issparse():
        opened.seek(0)
        with tarfile.open(fileobj=opened, mode="r:") as bundle:
            reader = bundle.extractfile(member.entry)
            return reader.read() if reader is not None else b""
    opened.seek(member.start)
    return opened.read(member.size)


def _plain(header: bytes, offset: int) -> Member | None:
    """The member of a header; None if it is one for `tarfile`."""
    if len(header) < _BLOCK or not _is_whole(header):
        raise tarfile.ReadError(f"byte {offset} should begin a header, and does not")
    if header[156:157] not in _PLAIN or header[257:262] != _MAGIC or header[345]:
        return None
    try:
        size = int(header[124:136].strip(b"\0 ") or b"0", 8)
        name = header[: header.index(b"\0", 0, 100)].decode("ascii")
    except ValueError:  # A size beyond 8 GB, a name of 100 characters or of another alphabet.
        return None
    if name.endswith("/"):
        return None
    return Member(name, offset, offset + _BLOCK, size)


def _is_whole(header: bytes) -> bool:
    """Whether the header's checksum is right: the sum of its bytes, its own taken as spaces."""
    try:
        expected = int(header[148:156].strip(b"\0 "), 8)
    except ValueError:
        return False
    total = _sum(header[:256]) + _sum(header[256:]) - sum(header[148:156]) + 8 * 32
    if total == expected:
        return True
    # Some old programs took bytes for signed.
    signed = sum(byte > 127 for byte in header[:148] + header[156:])
    return total - 256 * signed == expected


def _sum(half: bytes) -> int:
    """The sum of at most 256 bytes: Adler's checksum begins with it, and is made in one call."""
    return (zlib.adler32(half) & 0xFFFF) - 1


def _unusual(opened: BinaryIO, offset: int) -> Iterator[Member]:
    opened.seek(offset)
    with tarfile.open(fileobj=opened, mode="r:") as bundle:
        for entry in bundle:
            bundle.members.clear()  # type: ignore[attr-defined]
            if entry.isfile():
                yield Member(entry.name, entry.offset, entry.offset_data, entry.size, entry)
        end = bundle.offset
    opened.seek(end)
    header = opened.read(_BLOCK)
    if header and (len(header) < _BLOCK or (header != _END and not _is_whole(header))):
        raise tarfile.ReadError(f"byte {end} should begin a header, and does not")
