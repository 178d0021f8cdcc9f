"""Payloads whose bytes lie elsewhere, the check of those to be sent, and what a Manifest says."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol
from urllib.parse import quote, unquote

from msgspec import Struct

from oncewire.errors import InvalidValue, StoreDamaged
from oncewire.message.envelope import Payload, Reference
from oncewire.message.form import PAYLOADS_MAX

_AT_ONCE = 1024 * 1024

# type/subtype of tokens, and whatever parameters follow on the same line (RFC 2045 §5.1).
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+\-]+/[A-Za-z0-9!#$&^_.+\-]+(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z"
)


class Content(Protocol):
    """Bytes that lie somewhere else than in memory."""

    def open(self) -> BinaryIO:
        """A file of them, read from their beginning. What is read once alone may refuse to be
        opened again."""


class DistantPayload(Payload, frozen=True, kw_only=True):
    """A payload whose bytes lie elsewhere: `open` reads them as they are needed, `data` fetches
    all of them into memory.

    An empty digest says that its bytes were not read yet; `size` is then what is known beforehand.
    """

    content: Content

    @property  # type: ignore[misc]  # a field in Payload, read on demand here
    def data(self) -> bytes:
        """All bytes, in memory."""
        with self.open() as file:
            return file.read()

    def open(self) -> BinaryIO:
        """See `Payload`. Where its digest is known, its last bytes are given only if all of them
        have it: StoreDamaged."""
        file = self.content.open()
        return as_file(_proved(file, self), file.close) if self.digest else file

    # What compares or prints a payload must not read it.

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"DistantPayload({self.content_id!r}, {self.media_type!r}, size={self.size})"


def _proved(file: BinaryIO, payload: Payload) -> Iterator[bytes]:
    """A file that is digested as it is read: what lies elsewhere may change until that moment."""
    digest, left = hashlib.sha256(), payload.size
    while left > 0:
        piece = file.read(min(_AT_ONCE, left))
        digest.update(piece)
        left -= len(piece)
        if not piece or (not left and digest.hexdigest() != payload.digest):
            raise StoreDamaged(
                f"the bytes of payload {payload.content_id} are not what arrived",
                remedy="put its file back from a backup of the spool",
            )
        yield piece


def as_file(pieces: Iterator[bytes], close: Callable[[], object] | None = None) -> BinaryIO:
    """Pieces as a file that is open for reading them, one after the other; `close` ends it."""
    return io.BufferedReader(_PiecesFile(pieces, close), _AT_ONCE)


class _PiecesFile(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes], close: Callable[[], object] | None) -> None:
        self._pieces, self._close = pieces, close
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        while not self._piece:
            following = next(self._pieces, None)
            if following is None:
                return 0
            if not isinstance(following, bytes):
                raise InvalidValue("a document is a file of text", remedy="open it with mode 'rb'")
            self._piece = memoryview(following)
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def close(self) -> None:
        if self._close is not None:
            self._close()
        super().close()


def distant(payload: Payload, content: Content) -> DistantPayload:
    """The payload with its bytes elsewhere."""
    return DistantPayload(
        payload.content_id,
        payload.media_type,
        payload.size,
        payload.digest,
        content=content,
        content_encoding=payload.content_encoding,
        mime_headers=payload.mime_headers,
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


# What NHS Spine says of an attachment in its Manifest, and how one message names another.
#
# A Reference's Description is a line of `Name=value` pairs: the file's name, its media type,
# whether it is compressed (gzip), whether it came in several messages, its length. A part of a
# document that lies in another message is referred to by `mid:` and that message's id (RFC 2392).


LANGUAGE = "en"
"""The language of a Description, which the schema requires."""

_SCHEME = "mid:"
_PAIR = re.compile(r'([A-Za-z0-9]+)=(?:"([^"]*)"|(\S*))')
_YES = {True: "Yes", False: "No"}
# What RFC 2392 lets stand unescaped.
_SAFE = "@!$&'()*+,;=:~-._"


class Attachment(Struct, frozen=True, gc=False):
    """What is said of one attachment, or of one fragment of it."""

    file_name: str
    content_type: str
    compressed: bool = False
    # It is more than one message carries: this is a fragment of it.
    large: bool = False
    # It was base64 before it was attached, and is so still: the application's business.
    original_base64: bool = False
    # Bytes of this fragment; None: it is not said.
    length: int | None = None

    def text(self) -> str:
        """The facts as the text of a Description."""
        # A quotation mark would end the name, and a line end the line.
        name = "".join("_" if char in '"\r\n' else char for char in self.file_name)
        words = [
            f'Filename="{name}"',
            f"ContentType={self.content_type.partition(';')[0].strip()}",
            f"Compressed={_YES[self.compressed]}",
            f"LargeAttachment={_YES[self.large]}",
            f"OriginalBase64={_YES[self.original_base64]}",
        ]
        return " ".join([*words, *([] if self.length is None else [f"Length={self.length}"])])

    def described(self, href: str) -> Reference:
        """A reference with this Description."""
        return Reference(href, descriptions=((LANGUAGE, self.text()),))


def attachment_in(reference: Reference) -> Attachment | None:
    """What a reference says of an attachment; None: it is of another kind."""
    for _, text in reference.descriptions:
        pairs = {name.lower(): quoted or bare for name, quoted, bare in _PAIR.findall(text)}
        if "filename" not in pairs:
            continue
        length = pairs.get("length", "")
        return Attachment(
            pairs["filename"],
            pairs.get("contenttype", "application/octet-stream"),
            pairs.get("compressed", "").lower() == "yes",
            pairs.get("largeattachment", "").lower() == "yes",
            pairs.get("originalbase64", "").lower() == "yes",
            int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None,
        )
    return None


def message_named(reference: Reference) -> str | None:
    """The MessageId that a `mid:` reference names; None: it is another URI."""
    if reference.href[:4].lower() != _SCHEME:
        return None
    return unquote(reference.href[4:])


def naming(message_id: str) -> str:
    """The `mid:` URL of a message."""
    return _SCHEME + quote(message_id, safe=_SAFE)
