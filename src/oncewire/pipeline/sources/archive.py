"""An archive of raw messages: which files there are, cut into pieces of bearable size.

An archive is a folder (of very many small files, most often), a tar or zip bundle, a mailbox (mbox
or Maildir), or one file. The driver lists it once; a piece says everything a task needs to read its
share: some files, a range of a zip's entries, or a range of bytes of a tar.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

# The members of a tar file, found with one look at each header.
#
# Archives hold very many small messages, and there `tarfile` costs more than reading them does. A
# plain member (a regular file with a short name) is read here; from the first other entry on, an
# extended header or a link, `tarfile` goes on. Unlike it, a header that is none is an error
# wherever it stands: what follows it would be lost without a word.


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


MESSAGE_SUFFIXES = (".mime", ".msg", ".eml", ".http", ".xml", ".ebxml", ".soap")
TAR_SUFFIXES = (".tar",)
PACKED_TAR_SUFFIXES = (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
ZIP_SUFFIXES = (".zip",)
MAILBOX_SUFFIXES = (".mbox", ".mbx")
BUNDLE_SUFFIXES = TAR_SUFFIXES + PACKED_TAR_SUFFIXES + ZIP_SUFFIXES + MAILBOX_SUFFIXES
_MAIL = b"From "
"""What the first line of each mail in an mbox file begins with."""
MAILDIR = {"cur", "new", "tmp"}
"""The folders by which a Maildir is known; its mails lie in the first two, under any name."""

# Small files cost more by the file than by the byte, so a piece is bounded in both.
BYTES_PER_PIECE = 16 * 1024 * 1024
FILES_PER_PIECE = 4_000

READ_AHEAD = 256 * 1024
"""Bytes that are read at once from a tar: one read for each small message would be slow."""

TOO_LARGE = 256 * 1024 * 1024
"""A message beyond this is told as a row with that problem; tasks have bounded memory."""

FileKey = tuple[str, int, int]
"""Path, size and time of last change: what tells a file that was read from one that was not."""


@dataclass(frozen=True, slots=True)
class Found:
    """One file of the archive."""

    path: str
    size: int
    modified: int
    """Microseconds since 1970."""
    problem: str = ""
    """Why it cannot even be opened."""

    @property
    def key(self) -> FileKey:
        """What tells one state of the file from another."""
        return self.path, self.size, self.modified


@dataclass(slots=True)
class Piece:
    """What one task reads."""

    files: list[Found] = field(default_factory=list)
    bundle: Found | None = None
    start: int = 0
    """First entry (zip) or first byte (tar) of the bundle's range."""
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """One message's bytes, or why there are none."""

    found: Found
    member: str | None
    data: bytes
    problem: str = ""


# --- on the driver ----------------------------------------------------------------------------


def pieces(
    root: str,
    *,
    known: frozenset[FileKey] = frozenset(),
    piece_bytes: int = BYTES_PER_PIECE,
    suffixes: tuple[str, ...] = MESSAGE_SUFFIXES,
) -> Iterator[Piece]:
    """The archive, cut; files in `known` are passed over."""
    group, held = Piece(), 0
    for found in _list(root, suffixes):
        if found.key in known:
            continue
        if not found.problem and found.path.lower().endswith(BUNDLE_SUFFIXES):
            yield from _bundle_pieces(found, piece_bytes)
            continue
        group.files.append(found)
        held += found.size
        if held >= piece_bytes or len(group.files) >= FILES_PER_PIECE:
            yield group
            group, held = Piece(), 0
    if group.files:
        yield group


def _list(root: str, suffixes: tuple[str, ...]) -> Iterator[Found]:
    """Every message file and bundle below a root, in order of their paths."""
    if not Path(root).is_dir():
        yield _look(root)
        return
    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=unreadable.append):
        if set(folders) >= MAILDIR:
            folders.remove("tmp")
        folders.sort()
        mails = _is_maildir(folder)
        for name in sorted(files):
            taken = mails or name.lower().endswith(suffixes + BUNDLE_SUFFIXES)
            if taken and not name.startswith("."):
                yield _look(os.path.join(folder, name))  # noqa: PTH118 - a Path costs 10 times it
    for error in unreadable:
        yield Found(str(error.filename), 0, 0, f"the folder cannot be read: {error.strerror}")


def _is_maildir(folder: str) -> bool:
    """Whether the files of a folder are mails, whatever they are called."""
    place = Path(folder)
    return place.name in ("cur", "new") and all(
        (place.parent / name).is_dir() for name in MAILDIR - {place.name}
    )


def _look(path: str) -> Found:
    try:
        seen = os.stat(path)  # noqa: PTH116 - as above
    except OSError as error:
        return Found(path, 0, 0, f"it cannot be opened: {error.strerror}")
    if not stat.S_ISREG(seen.st_mode):
        return Found(path, 0, seen.st_mtime_ns // 1000, "it is no regular file")
    return Found(path, seen.st_size, seen.st_mtime_ns // 1000)


def _bundle_pieces(found: Found, piece_bytes: int) -> Iterator[Piece]:
    """A bundle that can be entered in the middle is shared; any other is one piece."""
    name = found.path.lower()
    cuts = [0]
    try:
        if name.endswith(ZIP_SUFFIXES):
            cuts = _zip_cuts(found.path, piece_bytes)
        elif name.endswith(TAR_SUFFIXES) and found.size > piece_bytes:
            cuts = _tar_cuts(found.path, piece_bytes)
    except (OSError, tarfile.TarError, zipfile.BadZipFile):
        cuts = [0]  # The task that reads it says what is wrong.
    for index, start in enumerate(cuts):
        end = cuts[index + 1] if index + 1 < len(cuts) else None
        yield Piece(bundle=found, start=start, end=end)


def _zip_cuts(path: str, piece_bytes: int) -> list[int]:
    cuts, held = [0], 0
    with zipfile.ZipFile(path) as bundle:
        for index, entry in enumerate(bundle.infolist()):
            if held >= piece_bytes or index - cuts[-1] >= FILES_PER_PIECE:
                cuts.append(index)
                held = 0
            held += entry.file_size
    return cuts


def _tar_cuts(path: str, piece_bytes: int) -> list[int]:
    cuts = [0]
    with open(path, "rb") as opened:  # noqa: PTH123 - as above
        for member in members(opened):
            if member.offset - cuts[-1] >= piece_bytes:
                cuts.append(member.offset)
    return cuts


# --- on executors -----------------------------------------------------------------------------


def contents(piece: Piece, largest: int = TOO_LARGE) -> Iterator[Content]:
    """The messages' bytes of one piece; what cannot be read is told, never raised."""
    bundle = piece.bundle
    if bundle is None:
        yield from _files(piece.files, largest)
        return
    name = bundle.path.lower()
    members = _zip_members if name.endswith(ZIP_SUFFIXES) else _tar_members
    if name.endswith(MAILBOX_SUFFIXES):
        members = _mails
    if name.endswith(PACKED_TAR_SUFFIXES):
        members = _packed_members
    try:
        yield from members(bundle, piece, largest)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        yield Content(bundle, None, b"", f"the bundle is damaged: {error}")


def _files(files: Iterable[Found], largest: int) -> Iterator[Content]:
    for found in files:
        problem = found.problem
        data = b""
        if not problem and _is_mailbox(found.path):
            yield from _mails(found, Piece(), largest)
            continue
        if not problem and found.size > largest:
            problem = _beyond(found.size, largest)
        if not problem:
            try:
                with open(found.path, "rb") as opened:  # noqa: PTH123 - as above
                    data = opened.read()
            except OSError as error:
                problem = f"it cannot be opened: {error.strerror}"
        yield Content(found, None, data, problem)


def _is_mailbox(path: str) -> bool:
    """Whether a file of another name is a mailbox; many mail programs give them none that tells."""
    try:
        with open(path, "rb") as opened:  # noqa: PTH123 - as above
            return opened.read(len(_MAIL)) == _MAIL
    except OSError:
        return False


def _zip_members(found: Found, piece: Piece, largest: int) -> Iterator[Content]:
    with zipfile.ZipFile(found.path) as bundle:
        for entry in bundle.infolist()[piece.start : piece.end]:
            if entry.is_dir():
                continue
            if entry.file_size > largest:
                yield Content(found, entry.filename, b"", _beyond(entry.file_size, largest))
                continue
            try:
                with bundle.open(entry) as opened:
                    # One byte more than promised shows an entry that lies about its size.
                    data = opened.read(entry.file_size + 1)
                yield Content(found, entry.filename, data)
            except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, ValueError) as error:
                yield Content(found, entry.filename, b"", f"the entry is damaged: {error}")


def _tar_members(found: Found, piece: Piece, largest: int) -> Iterator[Content]:
    with open(found.path, "rb", READ_AHEAD) as opened:  # noqa: PTH123 - as above
        for member in members(opened, piece.start):
            if piece.end is not None and member.offset >= piece.end:
                return
            if member.size > largest:
                yield Content(found, member.name, b"", _beyond(member.size, largest))
            else:
                yield _content(found, member.name, data_of(opened, member), member.size)


def _packed_members(found: Found, piece: Piece, largest: int) -> Iterator[Content]:
    del piece  # It cannot be entered in the middle: the piece is all of it.
    with tarfile.open(found.path, mode="r|*") as bundle:
        for entry in bundle:
            bundle.members.clear()  # type: ignore[attr-defined]
            if not entry.isfile():
                continue
            if entry.size > largest:
                yield Content(found, entry.name, b"", _beyond(entry.size, largest))
                continue
            reader = bundle.extractfile(entry)
            data = reader.read() if reader is not None else b""
            yield _content(found, entry.name, data, entry.size)


def _mails(found: Found, piece: Piece, largest: int) -> Iterator[Content]:
    """The mails of an mbox file: each begins with a line `From ` behind an empty one. `mailbox` of
    the standard library keeps a list of all mails, and whole lines, in memory."""
    del piece  # Where a mail begins is known only from the file's beginning on.
    lines: list[bytes] = []
    number = size = 0
    empty = True
    with open(found.path, "rb", READ_AHEAD) as opened:  # noqa: PTH123 - as above
        while line := opened.readline(READ_AHEAD):
            if empty and line.startswith(_MAIL):
                if number:
                    yield _mail(found, number, lines, size, largest)
                number, size, lines = number + 1, 0, []
            else:
                size += len(line)
                if size <= largest:
                    lines.append(line)
                elif lines:
                    lines.clear()
            empty = line in (b"\n", b"\r\n")
            if not number:
                yield Content(found, None, b"", "it is no mailbox: it does not begin with `From `")
                return
    if number:
        yield _mail(found, number, lines, size, largest)


def _mail(found: Found, number: int, lines: list[bytes], size: int, largest: int) -> Content:
    if size > largest:
        return Content(found, str(number), b"", _beyond(size, largest))
    return Content(found, str(number), b"".join(lines))


def _content(found: Found, name: str, data: bytes, size: int) -> Content:
    cut = len(data) < size
    return Content(found, name, data, f"it ends after {len(data)} of {size} bytes" if cut else "")


def _beyond(size: int, largest: int) -> str:
    return f"it has {size} bytes, more than the {largest} of option maxBytes"
