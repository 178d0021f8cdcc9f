"""Changing one header block of received bytes and no other byte.

A hop may rewrite what is meant for the hop: the drafts' routing, and in ebMS 2.0 the blocks
addressed to the next MSH. Everything else stays as it was received, so signatures hold and
foreign elements survive. Nothing is inserted around a block, no space and no line end: text
between blocks is signed too.
"""

from __future__ import annotations

import pyexpat
from dataclasses import dataclass

from oncewire.errors import MimeProblem, OtherXml
from oncewire.message.envelope import AckRequested, Actor, RoutingHeader, SequenceNumber
from oncewire.message.form import AckRequest, Dialect, Extension, Form
from oncewire.wire.drafts.writer import ms09x_hop, rm078_hop
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.ebms2 import writer as ebms2_writer
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, encoding_of
from oncewire.wire.mime.multipart import (
    PartHeaders,
    bare_id,
    base64_lines,
    decoded,
    is_identity,
    parameters,
)
from oncewire.wire.parcel import Parcel
from oncewire.wire.reader import MultipartReader
from oncewire.wire.xml import end_of_element, piece_encoding, walk

# Cannot stand in a local name, so a name splits at the last one for certain.
_SEPARATOR = "}"
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Block:
    """An element near the root and where its bytes lie."""

    namespace: str
    name: str
    depth: int
    parent: int
    actor: str | None
    start: int
    # First byte of the end tag; equal to `end` when the element is written as `<a/>`.
    inner_end: int
    end: int

    @property
    def tag(self) -> str:
        """The name as lxml writes it."""
        return f"{{{self.namespace}}}{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Layout:
    """The blocks of a header, in document order; the root is the first."""

    envelope: bytes
    encoding: str
    blocks: tuple[Block, ...]
    # Whether the root says MessageType, as only v0-078 does.
    typed: bool = False

    @property
    def dialect(self) -> Dialect:
        """As the reader detects it; enough to know which block is the hop's."""
        if self.blocks[0].tag == n.ENVELOPE:
            return Dialect.EBMS2
        # A single RoutingHeader is v0-078's (C24); 0.9x keeps its own in a list.
        if self.typed or self.named("RoutingHeader", 2) is not None:
            return Dialect.RM_078
        return Dialect.MS_09X

    def named(self, name: str, depth: int) -> Block | None:
        """The first block with that local name at that depth."""
        for block in self.blocks:
            if block.depth == depth and block.name.lower() == name.lower():
                return block
        return None

    def tagged(self, tag: str, actor: str | None = None) -> Block | None:
        """The first header block with that full name and, if given, that actor."""
        for block in self.blocks:
            if block.depth == 3 and block.tag == tag and actor in (None, block.actor):
                return block
        return None


def layout(envelope: bytes, charset: str | None = None) -> Layout:
    """Where the root, its children and its grandchildren lie."""
    encoding, declared = encoding_of(envelope, charset)
    parser = pyexpat.ParserCreate(None if declared else encoding, _SEPARATOR)
    blocks: list[Block | None] = []
    starts: list[tuple[int, str, str | None, int]] = []
    typed = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal typed
        if not starts:
            typed = any(key.lower().endswith("messagetype") for key in attributes)
        # Three levels hold every block a hop may touch; the rest is only counted.
        if len(starts) < 3:
            actor = attributes.get(f"{n.SOAP}{_SEPARATOR}actor")
            starts.append((len(blocks), name, actor, parser.CurrentByteIndex))
            blocks.append(None)
        else:
            starts.append((-1, "", None, 0))

    def end(_name: str) -> None:
        number, name, actor, begin = starts.pop()
        if number < 0:
            return
        index = parser.CurrentByteIndex
        past = end_of_element(envelope, index, begin)
        uri, _, local = name.rpartition(_SEPARATOR)
        parent = starts[-1][0] if starts else -1
        blocks[number] = Block(uri, local, len(starts) + 1, parent, actor, begin, index, past)

    walk(parser, envelope, start, end)
    found = tuple(block for block in blocks if block is not None)
    return Layout(envelope, piece_encoding(envelope, encoding), found, typed)


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` become `text`."""

    start: int
    end: int
    text: str


def apply(where: Layout, edits: list[Edit]) -> bytes:
    """The envelope with the edits made; every byte outside them is equal."""
    result = where.envelope
    # From the end to the beginning, so that no edit moves the place of another.
    for edit in sorted(edits, key=lambda each_edit: (each_edit.start, each_edit.end), reverse=True):
        # In the encoding of the document: a character it lacks travels as a reference.
        written = edit.text.encode(where.encoding, "xmlcharrefreplace")
        result = result[: edit.start] + written + result[edit.end :]
    return result


def replaced(block: Block, text: str) -> Edit:
    """The block gives way to the text; an empty text removes it."""
    return Edit(block.start, block.end, text)


def appended(where: Layout, parent: Block, text: str) -> Edit:
    """The text becomes the parent's last child."""
    if parent.inner_end < parent.end:
        return Edit(parent.inner_end, parent.inner_end, text)
    written = where.envelope[parent.start : parent.end].decode(where.encoding)
    name = written[1:].split(None, 1)[0].rstrip("/>")
    return Edit(parent.start, parent.end, f"{written[:-2]}>{text}</{name}>")


# What a hop changes.


def next_hop(envelope: bytes, hop: RoutingHeader, form: Form, charset: str | None = None) -> bytes:
    """The header as it leaves for the next hop.

    ms-0.9x appends a RoutingHeader (HDR-5), rm-0.78 rewrites its only one (HOP-2), ebMS 2.0
    exchanges what is addressed to the next MSH (§10) and the agreed extensions.
    """
    where = layout(envelope, charset)
    if where.dialect is Dialect.EBMS2:
        # A hop answers what it was asked, and asks the next one itself (§10.1).
        request = None
        if hop.ack_requested is not AckRequest.NONE:
            request = AckRequested(Actor.NEXT_MSH, hop.ack_requested is AckRequest.SIGNED)
        edits = [
            _exchange(where, n.ACK_REQUESTED, Actor.NEXT_MSH.value, _ack_text(request)),
            # Taken away even where none is agreed: the number was of the hop before.
            _exchange(where, n.HOP_SEQUENCE, None, _sequence_text(hop.sequence, form)),
        ]
        if Extension.ROUTING in form.extensions:
            edits.append(_routing_edit(where, hop))
        return apply(where, [edit for edit in edits if edit is not None])
    return apply(where, [_draft_edit(where, hop)])


def _draft_edit(where: Layout, hop: RoutingHeader) -> Edit:
    root = where.blocks[0]
    # The namespace the document has, or none: the new block must be read as its neighbours are.
    declarations = f' xmlns="{root.namespace}"' if root.namespace else ""
    header = where.named("Header", 2)
    if header is None:
        raise OtherXml("ebXMLHeader has no Header", location="//Header")
    # One, rewritten (HOP-2); where a partner sent none, it stands behind Header.
    if where.dialect is Dialect.RM_078:
        single = where.named("RoutingHeader", 2)
        written = rm078_hop(hop, declarations)
        return replaced(single, written) if single else Edit(header.end, header.end, written)
    listed = where.named("RoutingHeaderList", 2)
    if listed is not None:
        return appended(where, listed, ms09x_hop(hop, declarations))
    written = f"<RoutingHeaderList{declarations}>{ms09x_hop(hop)}</RoutingHeaderList>"
    return Edit(header.end, header.end, written)


def _soap_header(where: Layout) -> Block:
    for block in where.blocks:
        if block.depth == 2 and block.tag == n.HEADER:
            return block
    raise OtherXml("the SOAP Envelope has no Header", location="//Header")


def _exchange(where: Layout, tag: str, actor: str | None, text: str) -> Edit | None:
    found = where.tagged(tag, actor)
    if found is not None:
        return replaced(found, text)
    return appended(where, _soap_header(where), text) if text else None


def _ack_text(request: AckRequested | None) -> str:
    if request is None:
        return ""
    return ebms2_writer.ack_requested(request, f' xmlns:eb="{n.EB}" xmlns:SOAP="{n.SOAP}"')


def _sequence_text(sequence: SequenceNumber | None, form: Form) -> str:
    if sequence is None or Extension.HOP_SEQUENCE not in form.extensions:
        return ""
    return ebms2_writer.hop_sequence(sequence)


def _routing_edit(where: Layout, hop: RoutingHeader) -> Edit:
    listed = where.tagged(n.ROUTING_HEADER_LIST)
    if listed is not None:
        return appended(where, listed, ebms2_writer.routing_header(hop, f' xmlns:rmx="{n.RMX}"'))
    form = Form(extensions=frozenset({Extension.ROUTING}))
    (written,) = ebms2_writer.hop_blocks((hop,), form)
    return appended(where, _soap_header(where), written)


# --- another header in the bytes of a body, with the rest left alone ------------------------------


class _Root:
    """Notes where the root part lies: the part that `start` names, else the first (RFC 2387
    §3.2)."""

    def __init__(self, start: str) -> None:
        self._start = start
        self._encoding: str | None = None
        self.found: tuple[int, int, str] | None = None

    def part_started(self, headers: PartHeaders) -> bool:
        """Whether a part is the root; none of them is taken apart."""
        is_root = not self._start or headers.content_id == self._start
        self._encoding = headers.transfer_encoding if is_root else None
        return False

    def part_data(self, data: bytes) -> None:
        """Its content is not needed."""

    def part_ended(self, begin: int | None, end: int) -> None:
        """Note the place of the first that is."""
        if self.found is None and self._encoding is not None and begin is not None:
            self.found = begin, end, self._encoding


def root_part(parcel: Parcel, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int, str]:
    """Where the root part's content lies in the body, and its transfer encoding."""
    media_type, params = parameters(parcel.content_type)
    body = parcel.body
    if not media_type.startswith("multipart/"):
        # A bare header with an encoding it does not have, as the reader forgives it.
        encoding = (parcel.header("content-transfer-encoding") or "").strip().lower()
        return 0, len(body), "" if body[:1] == b"<" else encoding
    root = _Root(bare_id(params.get("start")))
    reader = MultipartReader(params.get("boundary", ""), root, limits)
    at = 0
    while root.found is None and at < len(body):
        reader.feed(body[at : at + _PIECE])
        at += _PIECE
    if root.found is None:
        reader.finish()
    if root.found is None:
        raise MimeProblem(
            "the root part was not found",
            location="start",
            remedy="only a message that was read fits",
        )
    return root.found


def envelope_in(parcel: Parcel, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The decoded root part of a body."""
    start, end, encoding = root_part(parcel, limits)
    return decoded(encoding, parcel.body[start:end], lenient=True)


def with_envelope(parcel: Parcel, envelope: bytes) -> Parcel:
    """The parcel with that header in place of its own; every other byte is equal."""
    front, end = front_with(parcel, envelope)
    return Parcel(parcel.content_type, front + parcel.body[end:], parcel.headers)


def front_with(
    parcel: Parcel, envelope: bytes, limits: Limits = DEFAULT_LIMITS
) -> tuple[bytes, int]:
    """What stands before the end of the root part with that header in it, and where in the body
    that end lies; so much of a long body must be there, and a little more."""
    start, end, encoding = root_part(parcel, limits)
    written = envelope
    if not is_identity(encoding):
        # quoted-printable gives way to base64 only in name of the same part's header, which
        # stays; so what was base64 is base64 again, and quoted-printable is escaped whole.
        written = base64_lines(envelope) if encoding == "base64" else _quoted(envelope)
    return parcel.body[:start] + written, end


def _quoted(data: bytes) -> bytes:
    """Every byte but plain letters and digits escaped: line ends survive as they are."""
    # Lines of at most 76 characters with soft line ends between them (RFC 2045 §6.7): 24 bytes make
    # 72.
    lines = []
    for start in range(0, len(data), 24):
        piece = data[start : start + 24]
        lines.append("".join(f"={byte:02X}" for byte in piece).encode())
    return b"=\r\n".join(lines)
