"""Limits: how large, deep and wide a message may be, and the reason of each bound.

Every bound is enforced before the thing it bounds is built: the header is counted before a
tree exists, a MIME part before its bytes are kept. A message beyond a bound is refused with
an error that names the bound, so that an operator can raise it for a partner who needs more.
"""

from __future__ import annotations

import pyexpat
import re
from dataclasses import dataclass
from typing import Any

from oncewire.errors import EbxmlError, MimeProblem, OtherXml
from oncewire.message.form import ID_LENGTH_MAX, PAYLOADS_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds, each with its reason; the defaults suit every known partner."""

    # A real header is 1-20 KB; signatures with certificates reach 30 KB. Half a megabyte
    # leaves room for a hundred signed references and is all that is held of a large message.
    header_bytes: int = 524_288
    # One element costs about a microsecond and 200 bytes; ten thousand stay under 20 MB. So many
    # attributes there may be, too, all elements together.
    header_elements: int = 10_000
    # The deepest header of any dialect, signature included, has 12 levels.
    header_depth: int = 64
    # Per element. The busiest element of any dialect has 8 attributes.
    header_attributes: int = 64
    # In force at one element, declared there or around it. Canonicalization compares each with
    # each, at every element: 3,000 of them in 94 KB took two minutes. A real header has a dozen.
    header_namespaces: int = 64
    # The square of the namespaces in force, summed over the elements: the steps of one
    # canonicalization, of which a stranger's signature costs two. 9,800 empty elements under 58
    # namespaces are 41 KB, and took 0.8 seconds. A thousand elements under forty pass.
    header_canonical: int = 2_000_000
    # Per element. A Manifest with 100 references and a signature over them has 101.
    header_siblings: int = 1_000
    # Parts of one multipart, nested ones included: the header, the container that the drafts put
    # payloads into, and as many payloads as are ever sent (a split document uses messages instead).
    parts: int = PAYLOADS_MAX + 2
    # Whole messages in one body: an acknowledgement of each hub on the way, and a response. Each
    # is verified by itself, in one turn.
    bundled: int = 16
    # multipart/mixed of multipart/related with a nested multipart/mixed is the deepest
    # shape any dialect has.
    nesting: int = 3
    # Per part: mail gateways add a dozen lines, never 64.
    part_header_lines: int = 64
    part_header_bytes: int = 16_384
    # What may stand before the first boundary; mail clients write one sentence there.
    preamble_bytes: int = 65_536
    # Payload bytes held back when the root part is not the first (`start` names a later one).
    before_root_bytes: int = 524_288
    # Longer ids serve no one and flood logs and indexes; it can be lowered, not raised.
    id_length: int = ID_LENGTH_MAX
    # Decompressed to compressed. Text reaches 20:1; a bomb 1000:1.
    compression_ratio: int = 100
    # Bytes of a document that comes in parts, and of what it becomes when it is decompressed: more
    # than any disk that a handler of one machine should fill for one partner.
    document_bytes: int = 64 * 1024**3
    # Parts of one document. A part has kilobytes at least, and each costs a row.
    document_parts: int = 100_000
    # Bytes of all documents of one partner that are not whole yet.
    gathered_bytes: int = 128 * 1024**3
    # Their number. A partner who was cut off for a day may begin thousands at once; each costs a
    # row until persistDuration is over.
    gathered_documents: int = 10_000
    # Decoded bytes of one payload; None leaves it to the agreement's MaxSize.
    payload_bytes: int | None = None


DEFAULT_LIMITS = Limits()

# Encodings whose markup is ASCII byte for byte. In any other (UTF-7, EBCDIC, ISO-2022) a
# DOCTYPE could hide from a search for its bytes, so they are refused; UTF-16 is counted by
# expat, which reads it.
_ASCII_MARKUP = frozenset(
    {"utf-8", "us-ascii", "ascii", "iso-8859-1", "latin1", "iso-8859-15", "windows-1252", "cp1252"}
)
# Names that one parser or the other does not know: it is told the usual one.
_USUAL_NAMES = {"utf8": "utf-8", "latin-1": "iso-8859-1"}
_WIDE = frozenset({"utf-16", "utf-16le", "utf-16be", "utf16"})
_DECLARED = re.compile(rb"""\s*<\?xml\s[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_USUAL = b'<?xml version="1.0" encoding="UTF-8"?>'
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class _Beyond(Exception):
    """Carries a refusal out of expat's callbacks."""

    def __init__(self, error: EbxmlError) -> None:
        super().__init__(error.problem)
        self.error = error


def beyond(what: str, limit: str, bound: int, *, mime: bool = False) -> EbxmlError:
    """The refusal of something larger than its bound; `limit` is the field of `Limits`."""
    kind = MimeProblem if mime else OtherXml
    return kind(
        f"{what}, more than the {bound:,} that the limit `{limit}` allows",
        location=limit,
        remedy=f"send less, or ask the receiver to raise `{limit}`",
    )


def encoding_of(envelope: bytes, charset: str | None) -> tuple[str, bool]:
    """The encoding the header is written in, and whether the document itself says so.

    A byte order mark or the XML declaration wins over the MIME charset: that is what the
    parser believes too.
    """
    if envelope.startswith(_USUAL):
        return "utf-8", True
    for bom, name in _BOMS:
        if envelope.startswith(bom):
            return name, True
    match = _DECLARED.match(envelope[:256])
    if match is not None:
        name = match.group(1).decode("ascii").lower()
        return _USUAL_NAMES.get(name, name), name not in _USUAL_NAMES
    if b"\x00" in envelope[:4]:
        return "utf-16", True
    if charset:
        name = charset.strip().strip('"').lower()
        return _USUAL_NAMES.get(name, name), False
    return "utf-8", False


def enforce(envelope: bytes, charset: str | None, limits: Limits) -> str | None:
    """Refuse a header beyond its bounds; the encoding to force on the parser, if any.

    Counting bytes proves nearly every header harmless in two microseconds: an element
    needs a `<` and an attribute a `=`. Only a header with many of them is counted exactly.
    """
    if len(envelope) > limits.header_bytes:
        raise beyond(f"the header has {len(envelope):,} bytes", "header_bytes", limits.header_bytes)
    encoding, declared = encoding_of(envelope, charset)
    forced = None if declared or encoding == "utf-8" else encoding
    if encoding in _WIDE:
        count_exactly(envelope, forced, limits)
        return forced
    if encoding not in _ASCII_MARKUP:
        raise OtherXml(
            f"the header is written in the encoding {encoding!r}",
            location="encoding",
            remedy="write it in UTF-8",
        )
    # SOAP 1.1 §3 forbids one. The bytes decide, before any parser has seen them.
    if b"<!DOCTYPE" in envelope:
        raise doctype_refused()
    tags = envelope.count(b"<")
    equals = envelope.count(b"=")
    if tags > 2 * limits.header_elements + 64:
        raise beyond(f"the header has {tags:,} tags", "header_elements", limits.header_elements)
    if equals > 4 * limits.header_elements:
        raise beyond(
            f"the header has {equals:,} equals signs", "header_elements", limits.header_elements
        )
    # An element is nested only if its parent is still open: n tags reach depth n/2 at most.
    if (
        tags > 2 * limits.header_depth
        or equals > limits.header_attributes
        or tags > limits.header_siblings
        # Each of them needs an equals sign.
        or (
            equals > limits.header_namespaces
            and envelope.count(b"xmlns") > limits.header_namespaces
        )
    ):
        count_exactly(envelope, forced, limits)
    return forced


def doctype_refused() -> OtherXml:
    """No header of any dialect has a document type, and entities are how bombs are made."""
    return OtherXml(
        "the header has a document type declaration",
        location="DOCTYPE",
        remedy="send the header without a DOCTYPE and without entities",
    )


def count_exactly(envelope: bytes, encoding: str | None, limits: Limits) -> int:
    """Count depth, attributes, namespaces and siblings with expat, stopping at the first bound
    passed.

    Returns the number of elements. What expat cannot read it cannot count, so that is
    refused here: the tree's parser might think otherwise and build it.
    """
    parser = pyexpat.ParserCreate(encoding)
    counting = _Counting(limits)
    parser.ordered_attributes = True
    parser.StartElementHandler = counting.start
    parser.EndElementHandler = counting.end
    parser.StartDoctypeDeclHandler = counting.doctype
    try:
        parser.Parse(envelope, True)
    except _Beyond as stop:
        raise stop.error from None
    except (pyexpat.ExpatError, LookupError, ValueError) as error:
        raise OtherXml(
            f"the header is not well-formed XML: {error}",
            location="header",
            remedy="send well-formed XML",
        ) from None
    return counting.elements


class _Counting:
    """What of a header was seen so far, and what is open where we are."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.elements = 0
        self._attributes = 0
        self._steps = 0
        # Of each open element: its children, and the namespaces in force in it.
        self._children = [0]
        self._namespaces = [0]

    def start(self, _name: str, attributes: list[str]) -> None:
        """An element begins; expat gives names and values of its attributes in turn."""
        limits, children, namespaces = self._limits, self._children, self._namespaces
        self.elements += 1
        children[-1] += 1
        namespaces.append(namespaces[-1] + sum(name[:5] == "xmlns" for name in attributes[::2]))
        if self.elements > limits.header_elements:
            raise _past("the header has too many elements", "header_elements", limits)
        if children[-1] > limits.header_siblings:
            raise _past("an element has too many children", "header_siblings", limits)
        self._attributes += len(attributes) // 2
        self._steps += namespaces[-1] ** 2
        if self._attributes > limits.header_elements:
            raise _past("the header has too many attributes", "header_elements", limits)
        if self._steps > limits.header_canonical:
            raise _past("many namespaces hold for many elements", "header_canonical", limits)
        if len(attributes) > 2 * limits.header_attributes:
            many = f"an element has {len(attributes) // 2:,} attributes"
            raise _past(many, "header_attributes", limits)
        if namespaces[-1] > limits.header_namespaces:
            raise _past("an element has too many namespaces", "header_namespaces", limits)
        if len(children) > limits.header_depth:
            raise _past("elements are nested too deep", "header_depth", limits)
        children.append(0)

    def end(self, _name: str) -> None:
        """The element that began last and is still open ends."""
        self._children.pop()
        self._namespaces.pop()

    def doctype(self, *_args: Any) -> None:
        """No header has one."""
        raise _Beyond(doctype_refused())


def _past(what: str, limit: str, limits: Limits) -> _Beyond:
    return _Beyond(beyond(what, limit, getattr(limits, limit)))
