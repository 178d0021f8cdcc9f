"""MIME headers: a block of lines to names and values, and a Content-Type to its parameters.

Lenient where partners are: parameters without quotes, boundaries with odd characters,
`start` without angle brackets (docs/decisions.md#real-partners).
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from oncewire.errors import InvalidValue, MimeProblem
from oncewire.message.ids import check_id

# A type and parameters in plain quotes, as nearly everybody writes them, without their values.
_PLAIN = re.compile(r'[\w./+-]+(?:; ?[\w-]+="")+', re.ASCII)
_PARAMETER = re.compile(r'; ?([\w-]+)=""', re.ASCII)
# Longer ones are looked at each time, so that nobody fills memory with them.
_SHAPE_MAX = 256


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """The media type in lower case, and its parameters; the first of a name counts."""
    # Every message has another boundary, and all of a sender are alike but for such values: what
    # stands around the quotes is looked at once.
    pieces = value.split('"')
    shape = '""'.join(pieces[::2])
    plain = _plain_names(shape) if len(shape) <= _SHAPE_MAX and "\\" not in value else None
    # The last value must have its closing quote.
    if plain is not None and len(pieces) % 2:
        media_type, names = plain
        return media_type, dict(zip(names, pieces[-2::-2], strict=True))
    head, _, rest = value.partition(";")
    return _odd_parameters(head, rest)


@functools.lru_cache(maxsize=256)
def _plain_names(shape: str) -> tuple[str, tuple[str, ...]] | None:
    """The media type and the parameters' names, the last first, of a Content-Type whose values were
    taken out of their quotes; None where it is written in another way."""
    if _PLAIN.fullmatch(shape) is None:
        return None
    names = _PARAMETER.findall(shape)
    return shape.partition(";")[0].lower(), tuple(name.lower() for name in reversed(names))


def _odd_parameters(head: str, rest: str) -> tuple[str, dict[str, str]]:
    # RFC 2045 §5.1: the type and parameter names in any capitals, values as they are, a value in
    # quotes or bare.
    found: dict[str, str] = {}
    position = 0
    size = len(rest)
    while position < size:
        # From equals sign to equals sign rather than by token: bare boundaries hold characters that
        # RFC 2045 wants in quotes.
        equals = rest.find("=", position)
        if equals < 0:
            break
        name = rest[position:equals].strip(" \t;\r\n").lower()
        position = equals + 1
        while position < size and rest[position] in " \t":
            position += 1
        if position < size and rest[position] == '"':
            text, position = _quoted(rest, position + 1)
        else:
            end = rest.find(";", position)
            end = size if end < 0 else end
            text, position = rest[position:end].strip(), end
        # Two boundaries in one Content-Type: the first counts, for every reader of ours alike.
        found.setdefault(name, text)
        semicolon = rest.find(";", position)
        position = size if semicolon < 0 else semicolon + 1
    return head.strip().lower(), found


# Parts, and bodies that are a header alone, repeat a handful of types; what a cache hands out is
# never changed.
usual_parameters = functools.lru_cache(maxsize=256)(parameters)


def _quoted(text: str, position: int) -> tuple[str, int]:
    end = text.find('"', position)
    if end < 0:
        return text[position:], len(text)
    # A backslash takes the next character's meaning away (RFC 2822 §3.2.2).
    if "\\" not in text[position:end]:
        return text[position:end], end + 1
    kept = []
    while position < len(text) and text[position] != '"':
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        kept.append(text[position])
        position += 1
    return "".join(kept), position + 1


def bare_id(value: str | None) -> str:
    """A Content-ID without its angle brackets."""
    # Brackets belong to the header and not to the id (RFC 2045 §7), and a cid: URL has none (RFC
    # 2392).
    text = (value or "").strip()
    if text[:1] == "<":
        text = text[1:]
    return text[:-1] if text[-1:] == ">" else text


def header_lines(lines: list[bytes]) -> list[tuple[str, str]]:
    """Unfolded lines as names and values."""
    headers: list[tuple[str, str]] = []
    for line in lines:
        text = _decoded(line)
        # A folded line goes on (RFC 2822 §2.2.3).
        if text[0] in " \t":
            if not headers:
                raise _broken("the first line of a part is indented")
            name, value = headers[-1]
            headers[-1] = (name, f"{value} {text.strip()}")
            continue
        name, colon, value = text.partition(":")
        name = name.rstrip()
        # No header line, so the blank line was forgotten, and content would be taken for headers.
        if not colon or not name or " " in name:
            raise _broken("a part has no blank line between its headers and its content")
        headers.append((name, value.strip()))
    return headers


def _decoded(text: bytes) -> str:
    # Headers are ASCII by right; senders that write more write UTF-8 or Latin-1.
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _broken(problem: str) -> MimeProblem:
    return MimeProblem(
        problem, location="MIME", remedy="end the headers of each part with a blank line"
    )


# The two headers that every part has, in the usual order, and nothing that needs a second look.
# Only their names are of any capitals: to look at the values so too takes longer.
_USUAL = re.compile(
    rb"(?i:Content-ID): <([!-;=?-~]{1,255})>\r\n(?i:Content-Type): ([!-~](?:[ -~]*[!-~])?)"
)


class PartHeaders(NamedTuple):
    """What the headers of one part say."""

    media_type: str
    content_type: str
    params: dict[str, str]
    content_id: str
    transfer_encoding: str
    content_encoding: str | None
    others: tuple[tuple[str, str], ...]

    @classmethod
    def usual(cls, block: bytes) -> PartHeaders | None:
        """What a block of the usual two headers says; None for any other block."""
        match = _USUAL.fullmatch(block)
        if match is None:
            return None
        content_type = match[2].decode()
        media_type, params = usual_parameters(content_type)
        return cls(media_type, content_type, params, match[1].decode(), "binary", None, ())

    @classmethod
    def of(cls, headers: list[tuple[str, str]]) -> PartHeaders:
        """Sort the headers; one that decides what the part is may stand only once."""
        content_type = content_id = transfer_encoding = content_encoding = None
        others: list[tuple[str, str]] = []
        for name, value in headers:
            lowered = name.lower()
            if lowered == "content-type":
                content_type = _only(content_type, value, lowered)
            elif lowered == "content-id":
                content_id = _only(content_id, value, lowered)
            elif lowered == "content-transfer-encoding":
                transfer_encoding = _only(transfer_encoding, value.lower(), lowered)
            elif lowered == "content-encoding":
                content_encoding = _only(content_encoding, value.lower(), lowered)
            else:
                others.append((name, value))
        # RFC 2045 §5.2 says text/plain. Bytes of unknown kind are safer: nobody changes their line
        # ends.
        content_type = content_type or "application/octet-stream"
        media_type, params = usual_parameters(content_type)
        name = bare_id(content_id)
        # It becomes a payload's name in the store, the journal and the log, so it obeys the rule of
        # all ids.
        if name:
            try:
                check_id(name, "Content-ID")
            except InvalidValue as problem:
                raise MimeProblem(problem.problem, location="MIME", remedy=problem.remedy) from None
        if content_encoding == "identity":
            content_encoding = None
        return cls(
            media_type,
            content_type,
            params,
            name,
            # The RFC's default is 7bit (RFC 2045 §6.1); neither changes a byte.
            transfer_encoding or "binary",
            content_encoding or None,
            tuple(others),
        )


def _only(before: str | None, value: str, name: str) -> str:
    if before is not None:
        raise MimeProblem(
            f"a part has two {name} headers",
            location="MIME",
            remedy="readers differ in which one they take; send one",
        )
    return value
