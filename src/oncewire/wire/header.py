"""A header's bytes to a Message: limits, tree, dialect, fields, schema, in that order.

Which dialect a header is written in is told by its content alone
(docs/explanation/decisions.md#drafts-on-the-wire).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from oncewire.errors import EbxmlError, OtherXml, SoapFault
from oncewire.message.envelope import Message, Payload
from oncewire.message.form import ID_LENGTH_MAX, Dialect, Form, Validation
from oncewire.wire import schema
from oncewire.wire.drafts import reader as drafts
from oncewire.wire.drafts.blocks import DRAFT_TYPE, RM_VERSION, lower_name
from oncewire.wire.drafts.writer import write_ms09x, write_rm078
from oncewire.wire.ebms2 import reader as ebms2
from oncewire.wire.ebms2 import writer as ebms2_writer
from oncewire.wire.ebms2.blocks import ENVELOPE, SOAP12
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.multipart import parameters
from oncewire.wire.parcel import Findings, PartialHeader, ReadFault
from oncewire.wire.soap import fault_of
from oncewire.wire.xml import Element, children, local_name, namespace, parse

ReadDialect: TypeAlias = Callable[[Element, bytes, str | None, tuple[Payload, ...]], Findings]
READERS: dict[Dialect, ReadDialect] = {
    Dialect.EBMS2: ebms2.read,
    Dialect.MS_09X: partial(drafts.read, Dialect.MS_09X),
    Dialect.RM_078: partial(drafts.read, Dialect.RM_078),
}
WRITERS: dict[Dialect, Callable[[Message, Form], bytes]] = {
    Dialect.EBMS2: ebms2_writer.write,
    Dialect.MS_09X: write_ms09x,
    Dialect.RM_078: write_rm078,
}


def detect(root: Element) -> Dialect:
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


def _is_rm078(root: Element) -> bool:
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


class HeaderReading(Struct, frozen=True, gc=False):
    """What a header says, and what is odd about it."""

    message: Message
    signed: bool
    notes: list[str]
    schema_problems: tuple[str, ...]


def read(
    envelope: bytes,
    charset: str | None,
    limits: Limits,
    validation: Validation,
    payloads: tuple[Payload, ...] = (),
) -> HeaderReading:
    """The message with the payloads at hand, or the ReadFault that refuses it."""
    try:
        root = parse(envelope, charset, limits)
    except EbxmlError as error:
        raise ReadFault((error,), envelope=envelope) from None
    reading = read_tree(root, envelope, charset, validation, payloads)
    if limits.id_length < ID_LENGTH_MAX:
        _check_ids(reading.message, limits.id_length, envelope)
    return reading


def _check_ids(message: Message, bound: int, envelope: bytes) -> None:
    """A tighter bound than the one every id has; only the ids that are stored and logged."""
    said = message.header
    parties = (*said.from_party.ids, *said.to_party.ids)
    for value in (
        said.message_id,
        said.conversation_id,
        said.cpa_id,
        said.ref_to_message_id or "",
        said.action or "",
        *(party_id.value for party_id in parties),
    ):
        if len(value) > bound:
            error = beyond(f"an id has {len(value)} characters", "id_length", bound)
            raise ReadFault((error,), PartialHeader.of(message), envelope)


def read_tree(
    root: Element,
    envelope: bytes,
    charset: str | None,
    validation: Validation,
    payloads: tuple[Payload, ...] = (),
) -> HeaderReading:
    """The message as `read` finds it, from the tree of the envelope's bytes."""
    # lxml makes an element anew, and its name, each time it is visited; while one is held it
    # stays. Three walks pass here: to tell the dialect, to find what is repeated, to read.
    held = [*root.iter()]
    try:
        dialect = detect(root)
    except (EbxmlError, SoapFault) as error:
        raise ReadFault((error,), envelope=envelope) from None
    reading = READERS[dialect](root, envelope, charset, payloads)
    # After the fields, so that the refusal of an invalid header can say which message it was.
    problems = () if validation is Validation.OFF else schema.problems(root, dialect)
    if problems and validation is Validation.ENFORCE:
        reading.faults.insert(0, schema.broken(problems))
    if reading.faults or reading.message is None:
        # A Fault is an envelope too: it answers our request, and is no message to answer.
        fault = fault_of(root) if dialect is Dialect.EBMS2 else None
        if fault is not None:
            refused = SoapFault("Client", f"this is a SOAP Fault: {fault.string[:256]}")
            raise ReadFault((refused,), envelope=envelope, fault=fault)
        raise reading.refusal(envelope)
    del held
    return HeaderReading(reading.message, reading.signed, reading.notes, problems)
