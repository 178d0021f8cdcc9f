"""File names: how a document's name travels with it, and what of one that arrived is safe to use.

A part says its name in a Content-Disposition header (RFC 2183, RFC 6266). No signature covers it,
so it may be forged, and is read as a name and never as a path: no folders, no control characters,
nothing that a file system or a terminal takes for something else, and not too long.
"""

from __future__ import annotations

import re
import unicodedata
from email.errors import MessageError
from email.header import decode_header, make_header
from urllib.parse import quote, unquote

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
