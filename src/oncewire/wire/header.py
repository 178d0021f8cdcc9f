"""A header's bytes to a Message: limits, tree, dialect, fields, schema, in that order."""

from __future__ import annotations

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message import Dialect, Message
from oncewire.message.form import Validation
from oncewire.wire import dialect as dialects
from oncewire.wire.limits import Limits
from oncewire.wire.refusal import Findings, ReadFault
from oncewire.wire.soap import fault_of
from oncewire.wire.tree import parse


def read(
    envelope: bytes,
    charset: str | None,
    limits: Limits,
    validation: Validation,  # noqa: ARG001
) -> tuple[Message, bool, list[str], tuple[str, ...]]:
    """The message without payloads, whether it is signed, oddities, schema problems."""
    try:
        root = parse(envelope, charset, limits)
        dialect = dialects.detect(root)
    except (EbxmlError, SoapFault) as error:
        raise ReadFault((error,), envelope=envelope) from None
    fault = fault_of(root) if dialect is Dialect.EBMS2 else None
    if fault is not None:
        refused = SoapFault("Client", f"this is a SOAP Fault, not a message: {fault.string[:256]}")
        raise ReadFault((refused,), envelope=envelope, fault=fault)
    findings = Findings(dialect)
    message, signed = dialects.READERS[dialect](root, envelope, charset, findings)
    if findings.faults or message is None:
        raise findings.refusal(envelope)
    return message, signed, findings.notes, ()
