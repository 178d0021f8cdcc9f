"""What a party's store holds of one message, as evidence is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncewire.entry.messages.evidence import Held
from oncewire.entry.messages.stored import stored_parcel, whole
from oncewire.handler.answering.answer import is_bundle
from oncewire.journal.history import explain
from oncewire.message.envelope import MessageKind
from oncewire.protocol.documents import SplitDocument, part_id
from oncewire.wire import codec
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel
from oncewire.wire.security.certificates import load_certificate

if TYPE_CHECKING:
    from cryptography import x509

    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredAnswer

_PAGE = 500
"""How many messages are looked through at a time for the parts of a document."""


def held_of(settings: Settings, reader: Reader, message_id: str) -> Held:
    """The message and its acknowledgement, whichever of them this party sent.

    Raises NotHere or NotAllowed where not even the message is kept.
    """
    message = stored_parcel(settings, reader, message_id)
    story = explain(reader.journal_of(message_id))
    sent = reader.outgoing(message_id)
    if sent is not None:
        receipt = reader.receipt(message_id)
        answer = None if receipt is None else whole(settings, receipt.parcel)
        at = None if receipt is None else receipt.received_at
        agreed = _agreed(reader, sent.agreement_id)
        return Held(message_id, settings.party.name, True, message, answer, at, story, agreed)
    for arrived in reader.incoming(message_id):
        answer = _acknowledgement(settings, arrived.answer)
        agreed = _agreed(reader, arrived.agreement_id)
        return Held(message_id, settings.party.name, False, message, answer, None, story, agreed)
    return Held(message_id, settings.party.name, False, message, None, None, story)


def parts_of(reader: Reader, message_id: str) -> tuple[tuple[str, ...], int]:
    """The MessageIds of the parts of a document, in their order, and how many it has in all; none
    where it is one message."""
    sent = reader.outgoing(message_id)
    if sent is not None:
        document = reader.document("", message_id)
        if document is None or sent.facts.split_number is not None:
            return (), 0
        numbers = range(1, document.released + 1)
        return tuple(part_id(message_id, each, document.total) for each in numbers), document.total
    for arrived in reader.incoming(message_id):
        document = reader.document(arrived.incoming.sender, message_id)
        if document is not None and arrived.facts.split_number is None:
            return _arrived_parts(reader, arrived.incoming.sender, document), document.total
    return (), 0


def _arrived_parts(reader: Reader, sender: str, document: SplitDocument) -> tuple[str, ...]:
    """Its parts among all that arrived: their ids are their sender's choice."""
    found: dict[int, str] = {}
    before = None
    while len(found) < document.total:
        page = reader.incoming_list(limit=_PAGE, before=before)
        for each in page:
            facts = each.facts
            if facts.split_id == document.split_id and each.incoming.sender == sender:
                found[facts.split_number or 0] = each.incoming.message_id
        found.pop(0, None)
        if len(page) < _PAGE:
            break
        before = page[-1].row
    return tuple(found[number] for number in sorted(found))


def _acknowledgement(settings: Settings, answer: StoredAnswer | None) -> Parcel | None:
    """Of what a message was answered with, the part that acknowledges it."""
    if answer is None or answer.kind is MessageKind.ERROR:
        return None
    parcel = whole(settings, answer.parcel)
    if not is_bundle(answer):
        return parcel
    parts = codec.unbundle(parcel, Limits())
    return next((part for part in parts if codec.read(part).message.acknowledgments), None)


def _agreed(reader: Reader, agreement_id: str | None) -> tuple[x509.Certificate, ...]:
    from oncewire.agreement.toml.reader import read_toml

    text = None if agreement_id is None else reader.agreement(agreement_id)
    if text is None:
        return ()
    pinned = read_toml(text).receiving.security.partner_certificates
    return tuple(load_certificate(der) for der in pinned)
