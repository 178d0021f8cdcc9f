"""Payloads and the Manifest that names them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from oncewire.errors import InvalidValue
from oncewire.message.ids import check_id, check_text


@dataclass(frozen=True, slots=True)
class Compression:
    """How a payload document was compressed, and its size before (BIG-1;
    docs/decisions.md#extensions)."""

    encoding: str
    original_size: int | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """One entry of the Manifest. `href` is `cid:` for a part of this message."""

    href: str
    role: str | None = None
    id: str | None = None
    # (location, version) of each Schema element.
    schemas: tuple[tuple[str, str | None], ...] = ()
    descriptions: tuple[tuple[str, str], ...] = ()
    compression: Compression | None = None
    # Foreign children, as their exact bytes.
    foreign: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.href, "Reference href", 1024)
        if not self.href:
            raise InvalidValue("a Reference has no xlink:href", remedy="name the part it refers to")

    @property
    def content_id(self) -> str | None:
        """The Content-ID it names, without brackets; None for another kind of URI."""
        return self.href[4:] if self.href[:4].lower() == "cid:" else None


@dataclass(frozen=True, slots=True)
class Payload:
    """One payload part. Its bytes are never changed, only carried.

    `content_id`: its name within the message.
    `media_type`: what it is: `application/xml`.
    `size`, `digest`: of the decoded bytes; the digest is a SHA-256 in hex.
    `data`: its bytes. An application always has them; inside a handler a large one lies in
    the store's spool under `spooled`, and only size and digest are held in memory.
    `content_encoding`, `mime_headers`: what its part says besides, kept for whoever reads it.
    """

    content_id: str
    media_type: str
    size: int
    digest: str
    data: bytes | None = None
    spooled: str | None = None
    content_encoding: str | None = None
    mime_headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_id(self.content_id, "Content-ID")
        check_text(self.media_type, "Content-Type of a payload", 1024)
        if self.size < 0:
            raise InvalidValue(
                f"payload size {self.size} is negative", remedy="give the decoded size in bytes"
            )

    @classmethod
    def of(cls, content_id: str, media_type: str, data: bytes) -> Payload:
        """A payload whose bytes are at hand."""
        return cls(content_id, media_type, len(data), hashlib.sha256(data).hexdigest(), data)
