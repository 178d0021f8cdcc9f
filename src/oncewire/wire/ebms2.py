"""The dialect `ebms2`: OASIS ebMS 2.0 (WIRE.md part B), read and written."""

from __future__ import annotations

from lxml import etree

from oncewire.message import Message
from oncewire.message.form import Form
from oncewire.wire import ebms2_writer
from oncewire.wire.ebms2_reader import Ebms2Reader
from oncewire.wire.refusal import Findings


def read(
    root: etree._Element, envelope: bytes, charset: str | None, findings: Findings
) -> tuple[Message | None, bool]:
    """The message without payloads, and whether a signature is present."""
    reader = Ebms2Reader(root, envelope, charset, findings)
    message = reader.read()
    return message, reader.signed


def write(message: Message, form: Form) -> bytes:
    """The envelope's bytes."""
    return ebms2_writer.write(message, form)
