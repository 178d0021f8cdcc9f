"""The dialect `ebms2`: OASIS ebMS 2.0, read and written."""

from __future__ import annotations

from oncewire.message import Message, Payload
from oncewire.message.form import Form
from oncewire.message.variant import variant
from oncewire.wire.ebms2 import rules as ebms2_rules
from oncewire.wire.ebms2 import writer as ebms2_writer
from oncewire.wire.ebms2.reader import Ebms2Reading
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.tree import Element


def read(
    root: Element, envelope: bytes, charset: str | None, payloads: tuple[Payload, ...] = ()
) -> Findings:
    """The reading of one envelope: its message, or its faults and facts."""
    reading = Ebms2Reading(root, envelope, charset)
    reading.read(payloads)
    return reading


def as_stated(message: Message) -> Message:
    """The message with the semantics that its AckRequested and DuplicateElimination state."""
    header = message.header
    # What is signed, stored and compared must be what a reader of these bytes will find (§6.6).
    stated = ebms2_rules.semantics(
        message.ack_requested, duplicate_elimination=header.duplicate_elimination
    )
    if stated is header.semantics:
        return message
    return variant(message, header=variant(header, semantics=stated))


def write(message: Message, form: Form) -> bytes:
    """The envelope's bytes."""
    return ebms2_writer.write(message, form)
