"""Which dialect a header is written in, told by its content alone
(docs/decisions.md#drafts-on-the-wire)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lxml import etree

from oncewire.errors import EbxmlError, OtherXml, SoapFault
from oncewire.message import Dialect, Message, Payload
from oncewire.message.form import Form
from oncewire.wire.drafts import ms09x, rm078
from oncewire.wire.drafts.blocks import DRAFT_TYPE, RM_VERSION, lower_name
from oncewire.wire.ebms2 import reader as ebms2
from oncewire.wire.ebms2 import writer as ebms2_writer
from oncewire.wire.ebms2.blocks import ENVELOPE, SOAP12
from oncewire.wire.mime.multipart import parameters
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.tree import Element, children, local_name, namespace

ReadDialect: TypeAlias = Callable[[Element, bytes, str | None, tuple[Payload, ...]], Findings]
READERS: dict[Dialect, ReadDialect] = {
    Dialect.EBMS2: ebms2.read,
    Dialect.MS_09X: ms09x.read,
    Dialect.RM_078: rm078.read,
}
WRITERS: dict[Dialect, Callable[[Message, Form], bytes]] = {
    Dialect.EBMS2: ebms2_writer.write,
    Dialect.MS_09X: ms09x.write,
    Dialect.RM_078: rm078.write,
}


def detect(root: etree._Element) -> Dialect:
    """The dialect of a header, or the fault of a document that is none."""
    if root.tag == ENVELOPE:
        return Dialect.EBMS2
    name = local_name(root)
    # SOAP 1.1 §4.1.2: another namespace is another version, and is answered so.
    if name == "Envelope":
        version = "1.2" if namespace(root) == SOAP12 else "unknown"
        raise SoapFault(
            "VersionMismatch",
            f"the envelope is SOAP {version}, not SOAP 1.1",
            remedy="ebMS 2.0 uses SOAP 1.1",
        )
    if name.lower() != "ebxmlheader":
        raise OtherXml(
            f"<{name[:64]}> is neither a SOAP Envelope nor an ebXMLHeader",
            location="header",
            remedy="send an ebXML message",
        )
    if _is_rm078(root):
        return Dialect.RM_078
    return Dialect.MS_09X


def named_by(content_type: str, envelope: bytes) -> Dialect | None:
    """The draft that a body claims to be which could not be read: by the media type of its
    packaging, else by the first words of its header. None: neither says so."""
    try:
        media_type, said = parameters(content_type)
    except EbxmlError:
        media_type, said = "", {}
    if DRAFT_TYPE in (media_type, said.get("type", "").lower()):
        return Dialect.RM_078 if said.get("version") == RM_VERSION else Dialect.MS_09X
    start = envelope[:_START].lower()
    if b"ebxmlheader" not in start:
        return None
    return Dialect.RM_078 if b"messagetype" in start else Dialect.MS_09X


_START = 1024

# Words that 0.9x dropped: TPA became CPA (C18), MessageType a Service and an Action (C8).
_ONLY_RM078 = frozenset({"messagetype", "tpainfo", "tpaid"})


def _is_rm078(root: etree._Element) -> bool:
    for key in root.keys():  # noqa: SIM118
        if lower_name(str(key)) == "messagetype":
            return True
    for child in children(root):
        name = lower_name(child.tag)
        if name in _ONLY_RM078:
            return True
        if name == "header":
            return not _ONLY_RM078.isdisjoint([lower_name(inner.tag) for inner in children(child)])
    return False
