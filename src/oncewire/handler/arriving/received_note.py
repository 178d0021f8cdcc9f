"""What the journal says of a message when its first copy is stored or refused, and of copies."""

from __future__ import annotations

from oncewire.agreement.resolve import Resolution
from oncewire.handler.sealing.secure import is_verified
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.fault import Error
from oncewire.protocol import notes
from oncewire.protocol.effects import Note
from oncewire.store.records import StoredIncoming
from oncewire.wire.received import Received


def received_note(
    stored: StoredIncoming,
    message: Message,
    received: Received,
    resolution: Resolution,
    *,
    final: bool,
) -> Note:
    """Header facts and what was verified; `final`: this handler acts for the To Party."""
    incoming, facts = stored.incoming, stored.facts
    verified = final and is_verified(received, resolution.security)
    what = notes.Received(
        from_party=facts.from_party,
        to_party=facts.to_party,
        cpa_id=facts.cpa_id,
        conversation_id=facts.conversation_id,
        service=facts.service,
        action=facts.action,
        best_effort=not resolution.terms.reliable,
        notice=message.kind is MessageKind.ERROR,
        signature_required=final and resolution.security.require_signature,
        signature="verified" if verified else "none",
        split_id=facts.split_id,
        split_number=facts.split_number,
        split_total=facts.split_total,
    )
    return Note(
        what,
        incoming.message_id,
        facts.ref_to,
        incoming.channel,
        incoming.epoch,
        incoming.number,
        transport=stored.transport,
    )


def duplicate_note(stored: StoredIncoming, answer: str, transport: str) -> Note:
    """A copy came, and which answer it gets."""
    incoming, what = stored.incoming, notes.Duplicate(answer)
    return Note(what, incoming.message_id, None, incoming.channel, transport=transport)


def refused_note(stored: StoredIncoming, error: Error, channel: str | None) -> Note:
    """Which error it is answered with."""
    what = notes.Refused(
        error.code, error.severity.value, error.location or None, error.description or None
    )
    return Note(what, stored.incoming.message_id, stored.facts.ref_to, channel)
