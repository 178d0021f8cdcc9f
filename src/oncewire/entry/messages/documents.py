"""Documents as programs and people give them, and the payloads that are made of them."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from oncewire.entry.files import WHOLE_FILE_MAX, read_bytes
from oncewire.errors import InvalidValue
from oncewire.message.payload import Payload

Document: TypeAlias = bytes | Path | BinaryIO | Payload
"""Bytes; a file's path; a file that is open for reading bytes; or a payload, as `Payload.of` makes
it where the Content-ID matters or each document has a media type of its own."""

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
    return _numbered(number, media_type, path.name, read_bytes(path, "payload"))


def _payload(document: Document, media_type: str, number: int) -> Payload:
    if isinstance(document, Payload):
        return document
    if isinstance(document, Path):
        return file_payload(document, media_type, number)
    if isinstance(document, bytes):
        return _numbered(number, media_type, "", document)
    return _numbered(number, media_type, _name_of(document), _content(document, number))


def _content(document: object, number: int) -> bytes:
    """The bytes of an open file; whatever else a program gave is refused in words."""
    if isinstance(document, str):
        raise InvalidValue(
            f"document {number} is a text, which may be the document or the name of its file",
            remedy=_REMEDY,
        )
    if not hasattr(document, "read"):
        raise InvalidValue(
            f"document {number} is of type {type(document).__name__}", remedy=_REMEDY
        )
    data = document.read(WHOLE_FILE_MAX + 1)
    if not isinstance(data, bytes):
        raise InvalidValue(f"document {number} is a file of text", remedy="open it with mode 'rb'")
    if len(data) > WHOLE_FILE_MAX:
        raise InvalidValue(
            f"document {number} has more than {WHOLE_FILE_MAX} bytes", remedy="give a smaller one"
        )
    return data


def _name_of(document: object) -> str:
    # A file that has no name in the file system says a number, or nothing.
    name = getattr(document, "name", "")
    return Path(name).name if isinstance(name, str) else ""


def _numbered(number: int, media_type: str, name: str, data: bytes) -> Payload:
    kind = media_type or mimetypes.guess_type(name)[0] or _MEDIA_TYPE
    return Payload.of(f"payload-{number}@oncewire", kind, data)
