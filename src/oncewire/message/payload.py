"""Payloads and the Manifest that names them."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import unquote

from oncewire.errors import InvalidValue
from oncewire.message.file_name import disposition, name_in
from oncewire.message.ids import check_id, check_text
from oncewire.message.quick import quick

PAYLOADS_MAX = 100
"""Payloads of one message, at most: what is sent has no more, and what is read may have as many."""

# type/subtype of tokens, and whatever parameters follow on the same line (RFC 2045 §5.1).
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+\-]+/[A-Za-z0-9!#$&^_.+\-]+(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z"
)


@dataclass(frozen=True, slots=True)
class Compression:
    """How a payload document was compressed, and its size before (BIG-1;
    docs/decisions.md#extensions)."""

    encoding: str
    original_size: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which bytes of a payload a part of a split document has (BIG-3;
    docs/decisions.md#large-documents). What counts are the bytes that travel: compressed ones,
    where the payload is; size and digest are those of the whole."""

    offset: int
    size: int
    digest: str


@quick
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
    stretch: Stretch | None = None

    def __post_init__(self) -> None:
        check_text(self.href, "Reference href", 1024)
        if not self.href:
            raise InvalidValue("a Reference has no xlink:href", remedy="name the part it refers to")

    @property
    def content_id(self) -> str | None:
        """The Content-ID it names, without brackets; None for another kind of URI."""
        return self.href[4:] if self.href[:4].lower() == "cid:" else None


@quick
@dataclass(frozen=True, slots=True)
class Payload:
    """One payload part. Its bytes are never changed, only carried.

    `content_id`: its name within the message.
    `media_type`: what it is: `application/xml`.
    `size`, `digest`: of the decoded bytes; the digest is a SHA-256 in hex.
    `data`: its bytes. An application always has them, and `open` reads them piece by piece;
    inside a handler a large one lies in the store's spool under `spooled`, and only size and
    digest are held in memory.
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
    def of(cls, content_id: str, media_type: str, data: bytes, file_name: str = "") -> Payload:
        """A payload whose bytes are at hand; `file_name` is what its receiver may call it."""
        if not isinstance(data, bytes):
            raise InvalidValue(
                f"the content of payload {content_id!r} is no bytes: {repr(data)[:32]}",
                remedy="give its bytes; a text has to be encoded first",
            )
        digest = hashlib.sha256(data).hexdigest()
        headers = disposition(file_name) if file_name else ()
        return cls(content_id, media_type, len(data), digest, data, mime_headers=headers)

    @property
    def file_name(self) -> str:
        """What its sender calls it, safe to be a file's name; empty where it has no name. Nobody
        signs it."""
        return name_in(self.mime_headers, self.media_type)

    def open(self) -> BinaryIO:
        """Its bytes as a file that is open for reading, from their beginning."""
        if self.data is None:
            raise InvalidValue(
                f"the bytes of payload {self.content_id!r} are not at hand",
                remedy="read them from the store's spool",
            )
        return io.BytesIO(self.data)


class Content(Protocol):
    """Bytes that lie somewhere else than in memory."""

    def open(self) -> BinaryIO:
        """A file of them, read from their beginning. What is read once alone may refuse to be
        opened again."""


class DistantPayload(Payload):
    """A Payload to whoever has one, whose bytes lie elsewhere: `open` reads them as they are
    needed, `data` fetches all of them into memory.

    Without a digest nobody has read it yet: then `size` is what is known of it beforehand.
    """

    __slots__ = ("content",)
    content: Content

    def __init__(
        self,
        content_id: str,
        media_type: str,
        content: Content,
        size: int = 0,
        digest: str = "",
        mime_headers: tuple[tuple[str, str], ...] = (),
        content_encoding: str | None = None,
    ) -> None:
        for name, value in (
            ("content_id", content_id),
            ("media_type", media_type),
            ("size", size),
            ("digest", digest),
            ("spooled", None),
            ("content_encoding", content_encoding),
            ("mime_headers", mime_headers),
            ("content", content),
        ):
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def data(self) -> bytes:
        """All of it, in memory."""
        with self.open() as file:
            return file.read()

    def open(self) -> BinaryIO:
        """See `Payload`."""
        return self.content.open()

    # What compares or prints a payload must not read it.

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"DistantPayload({self.content_id!r}, {self.media_type!r}, size={self.size})"


def distant(payload: Payload, content: Content) -> DistantPayload:
    """The payload with its bytes elsewhere."""
    return DistantPayload(
        payload.content_id,
        payload.media_type,
        content,
        payload.size,
        payload.digest,
        payload.mime_headers,
        payload.content_encoding,
    )


def check_payloads(payloads: tuple[Payload, ...]) -> None:
    """Refuse payloads that cannot be sent so that they are read as they were given.

    What arrives is not held to this: partners write what they write.
    """
    if not _are_payloads(payloads):
        raise InvalidValue(
            f"payloads is no tuple of Payload: {repr(payloads)[:32]}",
            remedy="make each with Payload.of, and give them as a tuple",
        )
    if len(payloads) > PAYLOADS_MAX:
        raise InvalidValue(
            f"a message of {len(payloads):,} payloads, more than {PAYLOADS_MAX}",
            remedy="send them in several messages, or pack them into one payload",
        )
    # A reference to a part may be written with escapes or without.
    if len({unquote(each.content_id) for each in payloads}) < len(payloads):
        raise InvalidValue(
            "two payloads have the same Content-ID", remedy="give each a Content-ID of its own"
        )
    for payload in payloads:
        _check_to_send(payload)


def _are_payloads(given: object) -> bool:
    return isinstance(given, tuple) and all(isinstance(each, Payload) for each in given)


def _is_at_hand(payload: Payload) -> bool:
    if isinstance(payload, DistantPayload) or payload.spooled is not None:
        return True
    return isinstance(payload.data, bytes) and len(payload.data) == payload.size


def _check_to_send(payload: Payload) -> None:
    name = payload.content_id
    if not _is_at_hand(payload):
        raise InvalidValue(
            f"the bytes of payload {name!r} are not at hand",
            remedy="make the payload with Payload.of, of all its bytes",
        )
    # A reader takes away what is blank around a name or a type.
    if name != name.strip():
        raise InvalidValue(
            f"the Content-ID {name!r} begins or ends with a blank", remedy="leave the blank away"
        )
    written = payload.media_type
    if _MEDIA_TYPE.match(written) is None or written != written.strip():
        raise InvalidValue(
            f"the media type of payload {name!r} is {written[:64]!r}",
            remedy="write it as type/subtype, like application/xml",
        )
