"""Payloads and the Manifest that names them."""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
from collections.abc import Callable, Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from typing import BinaryIO, Protocol
from urllib.parse import quote, unquote

from msgspec import Struct

from oncewire.errors import InvalidValue, StoreDamaged
from oncewire.message.ids import PAYLOADS_MAX, check_id, check_text

# File names: how a document's name travels with it, and what of one that arrived is safe to use.
#
# A part says its name in a Content-Disposition header (RFC 2183, RFC 6266). No signature covers it,
# so it may be forged, and is read as a name and never as a path: no folders, no control characters,
# nothing that a file system or a terminal takes for something else, and not too long.


HEADER = "Content-Disposition"
NAME_BYTES_MAX = 120
"""Bytes of a name in UTF-8: with what a folder puts around it, it stays a file's name anywhere."""

_HEADER_MAX = 4096
_PARAMETER = re.compile(r';\s*([A-Za-z0-9*_-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;"]*)')
# What separates folders or streams, names patterns, or has a meaning in a shell.
_RESERVED = re.compile(r'[<>:"/\\|?*`$&;!\']')
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|\Z)", re.IGNORECASE)
_CHARSETS = {"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"}


def safe_name(name: str) -> str:
    """A name that can be a file's, or nothing where none is left of it."""
    # From either kind of system, the last of a path is what it is called.
    text = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    # Control characters, and those that turn the direction of a line or are not seen (C*).
    text = "".join(
        char for char in text if unicodedata.category(char)[0] not in "CZ" or char == " "
    )
    text = _RESERVED.sub("_", text).strip(" .-")
    if _DEVICES.match(text):
        text = f"_{text}"
    # The name cut to at most that many bytes; its suffix stays.
    if len(text.encode()) <= NAME_BYTES_MAX:
        return text
    stem, dot, ending = text.rpartition(".")
    ending = dot + ending if stem and len(ending.encode()) <= 16 else ""
    left = (stem if ending else text).encode()[: NAME_BYTES_MAX - len(ending.encode())]
    return left.decode(errors="ignore").rstrip(" .") + ending


def disposition(name: str) -> tuple[tuple[str, str], ...]:
    """The header of a part that is called so; none for a name of which nothing is left."""
    safe = safe_name(name)
    if not safe:
        return ()
    plain = safe.encode("ascii", "replace").decode().replace("?", "_")
    value = f'attachment; filename="{plain}"'
    if plain != safe:
        # RFC 8187; who does not know it reads the plain one.
        value += f"; filename*=UTF-8''{quote(safe, safe='')}"
    return ((HEADER, value),)


def name_in(headers: tuple[tuple[str, str], ...], media_type: str = "") -> str:
    """What a part is called by its headers, made safe; empty: it has no name. Older senders write
    it beside the media type."""
    for header, value in headers:
        if header.lower() == HEADER.lower():
            found = safe_name(_written(_parameters(value), "filename"))
            if found:
                return found
    return safe_name(_written(_parameters(media_type), "name")) if "name" in media_type else ""


def _parameters(value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in _PARAMETER.findall(value[:_HEADER_MAX]):
        plain = re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] == '"' else text.strip()
        found.setdefault(name.lower(), plain)
    return found


def _written(parameters: dict[str, str], name: str) -> str:
    """The name as it was meant: RFC 8187, else in pieces (RFC 2231), else as mail encodes it."""
    if f"{name}*" in parameters:
        return _extended(parameters[f"{name}*"])
    if f"{name}*0*" in parameters or f"{name}*0" in parameters:
        return _in_pieces(parameters, name)
    plain = parameters.get(name, "")
    if "=?" not in plain:
        return plain
    try:
        return str(make_header(decode_header(plain)))
    except (MessageError, LookupError, ValueError):
        return plain


def _extended(value: str, charset: str = "") -> str:
    if not charset:
        charset, _, rest = value.partition("'")
        value = rest.partition("'")[2]
    known = charset.lower() if charset.lower() in _CHARSETS else "utf-8"
    return unquote(value, encoding=known, errors="replace")


def _in_pieces(parameters: dict[str, str], name: str) -> str:
    charset, text = "utf-8", ""
    for number in range(64):
        encoded, plain = f"{name}*{number}*", f"{name}*{number}"
        if encoded in parameters:
            piece = parameters[encoded]
            if number == 0:
                charset, _, rest = piece.partition("'")
                piece = rest.partition("'")[2]
            text += _extended(piece, charset or "utf-8")
        elif plain in parameters:
            text += parameters[plain]
        else:
            break
    return text


_AT_ONCE = 1024 * 1024

# type/subtype of tokens, and whatever parameters follow on the same line (RFC 2045 §5.1).
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+\-]+/[A-Za-z0-9!#$&^_.+\-]+(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z"
)


class Compression(Struct, frozen=True, gc=False):
    """How a payload document was compressed, and its size before (BIG-1;
    docs/explanation/decisions.md#extensions)."""

    encoding: str
    original_size: int | None = None


class Stretch(Struct, frozen=True, gc=False):
    """Which bytes of a payload a part of a split document has (BIG-3;
    docs/explanation/decisions.md#large-documents). What counts are the bytes that travel:
    compressed ones, where the payload is; size and digest are those of the whole."""

    offset: int
    size: int
    digest: str


class Reference(Struct, frozen=True, gc=False):
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


class Payload(Struct, frozen=True):
    """One payload part. Its bytes are never changed, only carried.

    `content_id`: its name within the message.
    `media_type`: what it is: `application/xml`.
    `size`, `digest`: of the decoded bytes; the digest is a SHA-256 in hex.
    `data`: its bytes. An application always has them, and `open` reads them piece by piece;
    inside a handler a large one lies in the store's spool under `spooled`, and only size and
    digest are held in memory.
    `content_encoding`, `mime_headers`: what its part says besides, kept for the reader.
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
        """What its sender calls it, safe to be a file's name; empty where it has no name. No
        signature covers it."""
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
