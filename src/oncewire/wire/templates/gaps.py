"""Gaps: the places of an envelope in which the next one of its kind will differ.

A gap is the whole text of one element, or a part's name in a reference, at a place where the
dialect's reader takes a field from. Where it lies is told by a parser and by the path of the
element, never by looking for a value: the same id may stand in several places.
"""

from __future__ import annotations

import base64
import pyexpat
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from oncewire.errors import InvalidValue
from oncewire.message import Dialect, SignedDigest
from oncewire.message.ids import ID_LENGTH_MAX
from oncewire.wire.drafts.blocks import canonical_tag
from oncewire.wire.ebms2.blocks import DS, EB, RMX, SOAP
from oncewire.wire.xml.source import content_of, read_moment


class Field(Enum):
    """What stands in a gap."""

    CONVERSATION_ID = 1
    MESSAGE_ID = 2
    TIMESTAMP = 3
    REF_TO_MESSAGE_ID = 4
    TIME_TO_LIVE = 5
    ORDER = 6
    # These may stand several times, once for each hop, acknowledgement or reference.
    HOP_TIMESTAMP = 7
    HOP_NUMBER = 8
    ACK_TIMESTAMP = 9
    ACK_REF_TO = 10
    HREF = 11
    # What a signed acknowledgement says of each thing it has digests of: the part, and the digest.
    ACK_PART = 12
    ACK_DIGEST = 13
    # What a signature says; nothing of it is in a message (`wire/security` judges it).
    SIGNED_PART = 14
    SIGNED_DIGEST = 15
    SIGNATURE_VALUE = 16


class Gap(NamedTuple):
    """One place: which field, of which hop, acknowledgement or reference (-1: the last), and from
    where to where in the envelope."""

    field: Field
    number: int
    begin: int
    end: int


_SEPARATOR = "}"


def _ebms2(*names: str) -> tuple[str, ...]:
    spaces = {"SOAP": SOAP, "eb": EB, "rmx": RMX, "ds": DS}
    split = (name.split(":") for name in names)
    return tuple(f"{spaces[prefix]}{_SEPARATOR}{local}" for prefix, local in split)


_HEADER = ("SOAP:Envelope", "SOAP:Header")
_DATA = (*_HEADER, "eb:MessageHeader", "eb:MessageData")
_SIGNATURE = (*_HEADER, "ds:Signature")
_SIGNED = (*_SIGNATURE, "ds:SignedInfo", "ds:Reference")
_ACKNOWLEDGED = (*_HEADER, "eb:Acknowledgment", "ds:Reference")
# Elements that name a part: the field of its name.
_REFERENCES = {
    _ebms2("SOAP:Envelope", "SOAP:Body", "eb:Manifest", "eb:Reference"): Field.HREF,
    ("ebxmlheader", "manifest", "reference"): Field.HREF,
    _ebms2(*_SIGNED): Field.SIGNED_PART,
    _ebms2(*_ACKNOWLEDGED): Field.ACK_PART,
}
_EBMS2 = {
    _ebms2(*_HEADER, "eb:MessageHeader", "eb:ConversationId"): Field.CONVERSATION_ID,
    _ebms2(*_DATA, "eb:MessageId"): Field.MESSAGE_ID,
    _ebms2(*_DATA, "eb:Timestamp"): Field.TIMESTAMP,
    _ebms2(*_DATA, "eb:RefToMessageId"): Field.REF_TO_MESSAGE_ID,
    _ebms2(*_DATA, "eb:TimeToLive"): Field.TIME_TO_LIVE,
    _ebms2(*_HEADER, "eb:MessageOrder", "eb:SequenceNumber"): Field.ORDER,
    _ebms2(*_HEADER, "eb:Acknowledgment", "eb:Timestamp"): Field.ACK_TIMESTAMP,
    _ebms2(*_HEADER, "eb:Acknowledgment", "eb:RefToMessageId"): Field.ACK_REF_TO,
    _ebms2(
        *_HEADER, "rmx:RoutingHeaderList", "rmx:RoutingHeader", "rmx:Timestamp"
    ): Field.HOP_TIMESTAMP,
    _ebms2(*_HEADER, "rmx:HopSequence"): Field.HOP_NUMBER,
    _ebms2(*_ACKNOWLEDGED, "ds:DigestValue"): Field.ACK_DIGEST,
    _ebms2(*_SIGNED, "ds:DigestValue"): Field.SIGNED_DIGEST,
    _ebms2(*_SIGNATURE, "ds:SignatureValue"): Field.SIGNATURE_VALUE,
}
# By the names under which the drafts' tolerant reader looks for them.
_DRAFT_DATA = ("ebxmlheader", "header", "messagedata")
_DRAFTS = {
    ("ebxmlheader", "header", "conversationid"): Field.CONVERSATION_ID,
    ("ebxmlheader", "header", "tpainfo", "conversationid"): Field.CONVERSATION_ID,
    (*_DRAFT_DATA, "messageid"): Field.MESSAGE_ID,
    (*_DRAFT_DATA, "timestamp"): Field.TIMESTAMP,
    (*_DRAFT_DATA, "reftomessageid"): Field.REF_TO_MESSAGE_ID,
    (*_DRAFT_DATA, "timetolive"): Field.TIME_TO_LIVE,
    ("ebxmlheader", "routingheaderlist", "routingheader", "timestamp"): Field.HOP_TIMESTAMP,
    ("ebxmlheader", "routingheader", "timestamp"): Field.HOP_TIMESTAMP,
    ("ebxmlheader", "routingheaderlist", "routingheader", "sequencenumber"): Field.HOP_NUMBER,
    ("ebxmlheader", "routingheader", "sequencenumber"): Field.HOP_NUMBER,
    ("ebxmlheader", "acknowledgment", "timestamp"): Field.ACK_TIMESTAMP,
    ("ebxmlheader", "acknowledgment", "reftomessageid"): Field.ACK_REF_TO,
}
# Elements of which there may be several, each with fields of its own.
_COUNTED = ("routingheader", "acknowledgment")
# The name of a part in `xlink:href="cid:name"`, whatever the prefix is called, or in
# `URI="cid:name"`.
_HREF = re.compile(rb"""\s(?:[\w.-]+:)?(?:href|URI)\s*=\s*(?:"cid:([^"]*)"|'cid:([^']*)')""")


class _Search:
    """One pass of expat over an envelope."""

    def __init__(self, envelope: bytes, *, draft: bool) -> None:
        self.gaps: list[Gap] = []
        self._envelope = envelope
        self._draft = draft
        self._fields = _DRAFTS if draft else _EBMS2
        self._path: list[str] = []
        self._begins: list[int] = []
        self._counts = dict.fromkeys(_COUNTED, -1)
        self._references = dict.fromkeys(_REFERENCES.values(), -1)
        self._parser = pyexpat.ParserCreate(None, _SEPARATOR)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def run(self) -> list[Gap]:
        self._parser.Parse(self._envelope, True)
        return self.gaps

    def _start(self, name: str, _attributes: object) -> None:
        called = canonical_tag(name)
        begin = self._parser.CurrentByteIndex
        self._path.append(called if self._draft else name)
        self._begins.append(begin)
        if called in self._counts:
            self._counts[called] += 1
        field = _REFERENCES.get(tuple(self._path))
        if field is not None:
            self._references[field] += 1
            self._reference(field, begin)

    def _reference(self, field: Field, begin: int) -> None:
        tag_end = self._envelope.index(b">", begin)
        found = _HREF.findall(self._envelope, begin, tag_end)
        match = _HREF.search(self._envelope, begin, tag_end)
        if match is not None and len(found) == 1:
            begin, end = match.span(1 if match.group(1) is not None else 2)
            self.gaps.append(Gap(field, self._references[field], begin, end))

    def _end(self, _name: str) -> None:
        field = self._fields.get(tuple(self._path))
        self._path.pop()
        begin = self._begins.pop()
        if field is None:
            return
        content = content_of(self._envelope, self._parser.CurrentByteIndex, begin)
        if content is not None:
            self.gaps.append(Gap(field, self._number(field), *content))

    def _number(self, field: Field) -> int:
        if field is Field.HOP_NUMBER and not self._draft:
            # It stands beside the list of hops, and belongs to the last of them.
            return -1
        if field in (Field.HOP_TIMESTAMP, Field.HOP_NUMBER):
            return self._counts["routingheader"]
        if field in (Field.ACK_TIMESTAMP, Field.ACK_REF_TO):
            return self._counts["acknowledgment"]
        if field is Field.ACK_DIGEST:
            return self._references[Field.ACK_PART]
        if field is Field.SIGNED_DIGEST:
            return self._references[Field.SIGNED_PART]
        return 0


def find_gaps(envelope: bytes, dialect: Dialect) -> list[Gap]:
    """The gaps of an envelope in UTF-8 in the order in which they stand; none where one field is
    in two places, or a parser cannot read it twice alike."""
    try:
        gaps = _Search(envelope, draft=dialect is not Dialect.EBMS2).run()
    except (pyexpat.ExpatError, LookupError, ValueError):
        return []
    gaps.sort(key=lambda gap: gap.begin)
    # Which of the two is taken is the reader's matter, and may depend on what they say.
    if len({(gap.field, gap.number) for gap in gaps}) != len(gaps):
        return []
    return gaps


# Digested: one ds:Reference of a signed acknowledgement, with gaps for the part and its digest.
#
# A message keeps such an element as it was written. So the gaps of its envelope are gaps of it
# too; where they lie in it is found by what stands there, and tried like the rest of a mould.


class Digested:
    """The reference of a learned envelope; `part` and `digest` are the places of what differs among
    the values of another one, None for what does not."""

    __slots__ = ("_base", "_digest", "_part", "_pieces")

    def __init__(self, base: SignedDigest, part: int | None, digest: int | None) -> None:
        self._base = base
        self._part, self._digest = part, digest
        xml = base.xml
        name = base.uri.partition(":")[2].encode() if part is not None else b""
        value = base64.b64encode(base.digest_value) if digest is not None else b""
        # An attribute stands before the content.
        begin, found, rest = xml.partition(name) if name else (b"", b"", xml)
        middle, _, end = rest.partition(value) if value else (rest, b"", b"")
        self._pieces = (begin if found else b"", middle, end)

    def cast(self, values: list[Any]) -> SignedDigest:
        """The reference of an envelope with those values."""
        base = self._base
        if self._part is None and self._digest is None:
            return base
        begin, middle, end = self._pieces
        uri, digest, name, value = base.uri, base.digest_value, b"", b""
        if self._part is not None:
            uri = values[self._part]
            name = uri[4:].encode()
        if self._digest is not None:
            value = values[self._digest]
            digest = base64.b64decode(value)
        xml = b"".join((begin, name, middle, value, end))
        return SignedDigest(uri, base.digest_method, digest, xml)


# Forms: what may stand in a gap, for each kind of field, and the value it has.
#
# Only what means the same to every parser passes: no character that could be markup, a reference,
# a line end or part of another encoding, and no moment or number that two rules could judge apart.
# Whatever else a field may rightly hold is for the full reader.


Value: TypeAlias = str | int | bytes
"""What a gap holds: an id or a reference, a moment or a number, or base64 as it is written."""


class Form(NamedTuple):
    """How the values of a gap are written: the value of some bytes or None, and bytes that try
    it out, one for every number."""

    read: Callable[[bytes], Value | None]
    example: Callable[[int], str]


# Without the equals sign, of which the limits count how many there are, and without quotes.
_ID = bytes(code for code in range(0x21, 0x7F) if chr(code) not in "<>&\"'=")
# What a cid: URL holds unescaped (RFC 2392), and a schema takes for a part of any URI.
_PART = re.compile(rb"[A-Za-z0-9@._-]+")
# No leap second and no hour 24: our reader rolls them over, a schema may call them invalid.
_TIME = r"([01]\d|2[0-3]){0}[0-5]\d{0}[0-5]\d"
_FRACTION = r"\.\d{1,6}"


def _id(value: bytes) -> str | None:
    plain = 0 < len(value) <= ID_LENGTH_MAX and not value.translate(None, _ID)
    return value.decode("ascii") if plain else None


def _part(value: bytes) -> str | None:
    plain = len(value) <= ID_LENGTH_MAX and _PART.fullmatch(value) is not None
    return "cid:" + value.decode("ascii") if plain else None


def _number(value: bytes) -> int | None:
    # As many digits as the largest number of any dialect has; its own check says the rest.
    return int(value) if value.isdigit() and len(value) <= 10 else None


def _moment_form(pattern: str, example: str) -> Form:
    known = re.compile(pattern.encode(), re.ASCII)

    def read(value: bytes) -> int | None:
        if known.fullmatch(value) is None:
            return None
        try:
            return read_moment(value.decode("ascii"))[0]
        except InvalidValue:
            return None

    return Form(read, lambda number: example.format(number % 60))


def _base64_form(padding: bytes, example: str) -> Form:
    # With as many equals signs as the learned one: the limits count them.
    last = rb"[A-Za-z0-9+/]" * (-len(padding) % 4) + padding
    known = re.compile(rb"(?:[A-Za-z0-9+/]{4})+" + last)
    return Form(lambda value: value if known.fullmatch(value) else None, example.format)


_IDS = (Form(_id, "oncewire-{}".format),)
_PARTS = (Form(_part, "oncewire-{}@example".format),)
_NUMBERS = (Form(_number, str),)
# With a fraction and without, as XML Schema and as v0-078 write it: a partner keeps to one.
_MOMENTS = tuple(
    _moment_form(rf"\d{{4}}{day}\d\d{day}\d\dT{_TIME.format(hour)}{fraction}Z", example)
    for day, hour, fraction, example in (
        ("-", ":", "", "2001-02-03T04:05:{:02d}Z"),
        ("-", ":", _FRACTION, "2001-02-03T04:05:06.0{:02d}Z"),
        ("", "", "", "20010203T0405{:02d}Z"),
        ("", "", _FRACTION, "20010203T040506.0{:02d}Z"),
    )
)
# The digits of an example stand before what is padding, where every one of them counts.
_BASE64 = (
    _base64_form(b"", "T25jZXdpcmUtb25jZXdp{:04d}"),
    _base64_form(b"=", "T25jZXdpcmUtb25jZXdp{:04d}T2U="),
    _base64_form(b"==", "T25jZXdpcmUtb25jZXdp{:04d}TQ=="),
)
_FORMS: dict[Field, tuple[Form, ...]] = {
    Field.CONVERSATION_ID: _IDS,
    Field.MESSAGE_ID: _IDS,
    Field.REF_TO_MESSAGE_ID: _IDS,
    Field.ACK_REF_TO: _IDS,
    Field.TIMESTAMP: _MOMENTS,
    Field.TIME_TO_LIVE: _MOMENTS,
    Field.HOP_TIMESTAMP: _MOMENTS,
    Field.ACK_TIMESTAMP: _MOMENTS,
    Field.ORDER: _NUMBERS,
    Field.HOP_NUMBER: _NUMBERS,
    Field.HREF: _PARTS,
    Field.ACK_PART: _PARTS,
    Field.SIGNED_PART: _PARTS,
    Field.ACK_DIGEST: _BASE64,
    Field.SIGNED_DIGEST: _BASE64,
    Field.SIGNATURE_VALUE: _BASE64,
}


def form_of(field: Field, written: bytes) -> Form | None:
    """The form in which a field is written; None for any that is read by the full reader alone."""
    for form in _FORMS[field]:
        if form.read(written) is not None:
            return form
    return None
