"""Documents as programs and people give them, and the payloads that are made of them.

A file is not read here: it is read once, when it is handed in, and never whole (`handed_in`).
"""

from __future__ import annotations

import io
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from msgspec.structs import replace

from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.envelope import Payload
from oncewire.message.file_name import disposition
from oncewire.message.payload import Content, DistantPayload, as_file

Document: TypeAlias = bytes | Path | BinaryIO | Payload
"""Bytes; a file's path; a file that is open for reading bytes; or a payload, as `Payload.of` makes
it where the Content-ID matters or each document has a media type of its own."""

_PIECE = 256 * 1024
_MEDIA_TYPE = "application/octet-stream"
_REMEDY = "give bytes, a path or a file: text.encode(), Path(name), open(name, 'rb')"


def payloads_of(documents: Sequence[Document], media_type: str = "") -> tuple[Payload, ...]:
    """The payloads of a message, in order; each has that media type, or the one that the name of
    its file suggests."""
    return tuple(
        _payload(document, media_type, number) for number, document in enumerate(documents, 1)
    )


def file_payload(path: Path, media_type: str, number: int) -> Payload:
    """A file as the payload with that number."""
    content = NamedFile(path)
    return _numbered(number, media_type, path.name, content, content.size())


def open_payload(file: BinaryIO, media_type: str, number: int) -> Payload:
    """A file that is open as the payload with that number. A small one is read now; a large one
    when it is handed in, and until then it has to stay open."""
    begun = _beginning(file, number)
    content = OpenFile(file, number, begun)
    # A file that has no name in the file system says a number, or nothing.
    name = getattr(file, "name", "")
    # Standard input is called <stdin>, which is no name of a document.
    name = Path(name).name if isinstance(name, str) and not name.startswith("<") else ""
    if len(begun) > SPOOL_ABOVE:
        return _numbered(number, media_type, name, content, 0)
    return Payload.of(_id(number), _kind(media_type, name), begun, name)


def _beginning(file: BinaryIO, number: int) -> bytes:
    """So much of it that is known whether it is small."""
    if getattr(file, "closed", False):
        raise InvalidValue(
            f"document {number} is a file that was closed",
            remedy="send it inside the `with` block that opens it, or give its Path",
        )
    pieces: list[bytes] = []
    left = SPOOL_ABOVE + 1
    while left > 0 and (piece := file.read(left)):
        if not isinstance(piece, bytes):
            raise InvalidValue(
                f"document {number} is a file of text", remedy="open it with mode 'rb'"
            )
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def counted(payload: Payload, heard: Callable[[int], object]) -> Payload:
    """The same payload; whoever reads it, `heard` is told how many bytes were read. One that is in
    memory is told of at once."""
    if not isinstance(payload, DistantPayload):
        heard(payload.size)
        return payload
    return replace(payload, content=_Counted(payload.content, heard))


def _payload(document: Document, media_type: str, number: int) -> Payload:
    if isinstance(document, Payload):
        return document
    if isinstance(document, Path):
        return file_payload(document, media_type, number)
    if isinstance(document, bytes):
        return Payload.of(_id(number), media_type or _MEDIA_TYPE, document)
    return open_payload(_checked(document, number), media_type, number)


def _checked(document: object, number: int) -> BinaryIO:
    """An open file; whatever else a program gave is refused in words."""
    if isinstance(document, str):
        raise InvalidValue(
            f"document {number} is a text, which may be the document or the name of its file",
            remedy=_REMEDY,
        )
    if not hasattr(document, "read"):
        raise InvalidValue(
            f"document {number} is of type {type(document).__name__}", remedy=_REMEDY
        )
    if isinstance(document, io.TextIOBase):
        raise InvalidValue(f"document {number} is a file of text", remedy="open it with mode 'rb'")
    return document  # type: ignore[return-value]


def _numbered(number: int, media_type: str, name: str, content: Content, size: int) -> Payload:
    headers = disposition(name) if name else ()
    return DistantPayload(
        _id(number), _kind(media_type, name), size, "", content=content, mime_headers=headers
    )


def _kind(media_type: str, name: str) -> str:
    return media_type or mimetypes.guess_type(name)[0] or _MEDIA_TYPE


def _id(number: int) -> str:
    return f"payload-{number}@oncewire"


class NamedFile:
    """See `Content`: a file that was named. It has to be there when it is named."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.open().close()

    def size(self) -> int:
        """Its bytes as far as they are known before it is read: a pipe has none."""
        return self._path.stat().st_size

    def open(self) -> BinaryIO:
        """See `Content`."""
        path = self._path
        if path.is_dir():
            raise InvalidValue(f"payload: {path} is a folder", remedy="name a file")
        try:
            return path.open("rb")
        except FileNotFoundError:
            raise NotHere(
                f"payload: there is no file {path}",
                remedy="check the name and the folder you are in",
            ) from None
        except OSError as error:
            raise NotAllowed(
                f"payload: {path} cannot be read: {error.strerror}", remedy="check its permissions"
            ) from None


class OpenFile:
    """See `Content`: a file that a program has open, read once to its end. It stays open, for it is
    the program's."""

    def __init__(self, file: BinaryIO, number: int, begun: bytes) -> None:
        """`begun`: what was read of it already."""
        self._file, self._number = file, number
        self._begun: bytes | None = begun

    def open(self) -> BinaryIO:
        """See `Content`."""
        if self._begun is None:
            raise InvalidValue(
                f"document {self._number} is an open file, and was read already",
                remedy="give its path where it may have to be read again",
            )
        begun, self._begun = self._begun, None
        return as_file(self._read(begun))

    def _read(self, begun: bytes) -> Iterator[bytes]:
        yield begun
        while piece := self._rest():
            yield piece

    def _rest(self) -> bytes:
        try:
            return self._file.read(io.DEFAULT_BUFFER_SIZE)
        except ValueError:
            raise InvalidValue(
                f"document {self._number} was closed before it was read",
                remedy="give its path, or close it when it is sent",
            ) from None


class _Counted:
    """See `Content`; tells how much of it was read."""

    def __init__(self, content: Content, heard: Callable[[int], object]) -> None:
        self._content, self._heard = content, heard

    def open(self) -> BinaryIO:
        file = self._content.open()
        return as_file(self._read(file), file.close)

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        while piece := file.read(_PIECE):
            self._heard(len(piece))
            yield piece
