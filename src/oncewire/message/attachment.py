"""What NHS Spine says of an attachment in its Manifest, and how one message names another.

A Reference's Description is a line of `Name=value` pairs: the file's name, its media type, whether
it is compressed (gzip), whether it came in several messages, its length. A part of a document that
lies in another message is referred to by `mid:` and that message's id (RFC 2392).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from oncewire.message.payload import Reference

LANGUAGE = "en"
"""Of a Description: the schema wants one."""

_SCHEME = "mid:"
_PAIR = re.compile(r'([A-Za-z0-9]+)=(?:"([^"]*)"|(\S*))')
_YES = {True: "Yes", False: "No"}
# What RFC 2392 lets stand unescaped.
_SAFE = "@!$&'()*+,;=:~-._"


@dataclass(frozen=True, slots=True)
class Attachment:
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
        """As a Description has it."""
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
        """A reference that says so."""
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
