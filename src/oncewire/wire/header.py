"""A header's bytes to a Message: limits, tree, dialect, fields, schema, in that order."""

from __future__ import annotations

from msgspec import Struct

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message import Dialect, Message, Payload
from oncewire.message.form import Validation
from oncewire.message.ids import ID_LENGTH_MAX
from oncewire.wire import dialect as dialects
from oncewire.wire import schema
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.refusal import PartialHeader, ReadFault
from oncewire.wire.soap import fault_of
from oncewire.wire.xml.tree import Element, parse


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
    """The same from a tree, which must be that of the envelope's bytes."""
    # lxml makes an element anew, and its name, each time somebody comes by; while one is held it
    # stays. Three walks pass here: to tell the dialect, to find what is repeated, to read.
    held = [*root.iter()]
    try:
        dialect = dialects.detect(root)
    except (EbxmlError, SoapFault) as error:
        raise ReadFault((error,), envelope=envelope) from None
    reading = dialects.READERS[dialect](root, envelope, charset, payloads)
    # After the fields, so that the refusal of an invalid header can say which message it was.
    problems = () if validation is Validation.OFF else schema.problems(root, dialect)
    if problems and validation is Validation.ENFORCE:
        reading.faults.insert(0, schema.broken(problems))
    if reading.faults or reading.message is None:
        # A Fault is an envelope too: news for whoever sent the request, not a message to answer.
        fault = fault_of(root) if dialect is Dialect.EBMS2 else None
        if fault is not None:
            refused = SoapFault("Client", f"this is a SOAP Fault: {fault.string[:256]}")
            raise ReadFault((refused,), envelope=envelope, fault=fault)
        raise reading.refusal(envelope)
    del held
    return HeaderReading(reading.message, reading.signed, reading.notes, problems)
