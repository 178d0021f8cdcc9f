"""Gaps: the places of an envelope in which the next one of its kind will differ.

A gap is the whole text of one element, or a part's name in a reference, at a place where the
dialect's reader takes a field from. Where it lies is told by a parser and by the path of the
element, never by looking for a value: the same id may stand in several places.
"""

from __future__ import annotations

import pyexpat
import re
from enum import Enum
from typing import NamedTuple

from oncewire.message import Dialect
from oncewire.wire.drafts.names import canonical_tag
from oncewire.wire.ebms2.names import DS, EB, RMX, SOAP
from oncewire.wire.xml.source import content_of


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
