"""What the journal says of a message when its first copy is stored or refused, and of copies."""

from __future__ import annotations

from oncewire.agreement.resolve import Resolution
from oncewire.handler.sealing.secure import is_verified
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.fault import Error
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
    detail: dict[str, object] = {
        "from_party": facts.from_party,
        "to_party": facts.to_party,
        "cpa_id": facts.cpa_id,
        "conversation_id": facts.conversation_id,
        "service": facts.service,
        "action": facts.action,
    }
    if not resolution.terms.reliable:
        detail["best_effort"] = True
    if message.kind is MessageKind.ERROR:
        detail["notice"] = True
    if final and resolution.security.require_signature:
        detail["signature_required"] = True
    if final and is_verified(received, resolution.security):
        detail["signature"] = "verified"
    if facts.split_id is not None:
        detail |= {
            "split_id": facts.split_id,
            "split_number": facts.split_number,
            "split_total": facts.split_total,
        }
    return Note(
        "received",
        incoming.message_id,
        facts.ref_to,
        incoming.channel,
        incoming.epoch,
        incoming.number,
        transport=stored.transport,
        detail=detail,
    )


def duplicate_note(stored: StoredIncoming, answer: str, transport: str) -> Note:
    """A copy came, and which answer it gets."""
    incoming, detail = stored.incoming, dict[str, object](answer=answer)
    return Note(
        "duplicate", incoming.message_id, None, incoming.channel, transport=transport, detail=detail
    )


def refused_note(stored: StoredIncoming, error: Error, channel: str | None) -> Note:
    """Which error it is answered with."""
    detail: dict[str, object] = {"code": error.code, "severity": error.severity.value}
    if error.location:
        detail["location"] = error.location[:300]
    if error.description:
        detail["problem"] = error.description[:300]
    return Note("refused", stored.incoming.message_id, stored.facts.ref_to, channel, detail=detail)
