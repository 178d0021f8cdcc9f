"""Facts: what listings show of a message, and what it is found by besides its header."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.agreement.agreement import Agreement, receiver_name, sender_name
from oncewire.journal.identity import identity_digest
from oncewire.message.document_path import DocumentPath
from oncewire.message.envelope import ANSWERS, Message, MessageKind, Payload
from oncewire.store.records import MessageFacts, Word
from oncewire.wire.document_values import values_in


def words_of(payloads: Sequence[Payload], index: Sequence[DocumentPath] = ()) -> tuple[Word, ...]:
    """The words of a message with these payloads; `index`: where its agreement finds values. What
    lies in the spool is not looked into, and neither is what is compressed or encrypted."""
    named = [each for each in payloads if each.mime_headers or "name" in each.media_type]
    if not index and not named:
        return ()
    found = [Word("", payload.file_name) for payload in payloads if payload.file_name]
    for payload in payloads if index else ():
        if payload.data is not None and payload.content_encoding is None:
            values = values_in(payload.data, payload.media_type, index)
            found += [Word(path, value) for path, value in values]
    return tuple(found)


def facts_of(
    message: Message, sender: str | None = None, receiver: str | None = None
) -> MessageFacts:
    """What listings and queries show of a message; `sender`, `receiver`: what the agreement calls
    its parties, if not as the header does."""
    header, split = message.header, message.header.split
    return MessageFacts(
        cpa_id=header.cpa_id,
        conversation_id=header.conversation_id,
        from_party=str(header.from_party) if sender is None else sender,
        to_party=str(header.to_party) if receiver is None else receiver,
        service="" if header.service is None else str(header.service),
        action=header.action or "",
        timestamp=header.timestamp,
        ref_to=header.ref_to_message_id,
        kind=message.kind,
        digest=identity_digest(message),
        size=sum([payload.size for payload in message.payloads]),
        split_id=split.split_id if split else None,
        split_number=split.number if split else None,
        split_total=split.total if split else None,
    )


def facts_under(
    message: Message, agreement: Agreement, ahead: Agreement | None = None
) -> MessageFacts:
    """What listings show of a message that came in, its parties by the names the agreement has.

    `ahead`: it goes on under this one, whose partner is the To Party or leads to it.
    """
    receiver = agreement.own if ahead is None else ahead.partner
    return facts_of(
        message,
        sender_name(agreement, message.header.from_party),
        receiver_name(receiver, message.header.to_party),
    )


def is_answer(message: Message) -> bool:
    """Whether a message only answers another, and calls for no answer itself; an error is such a
    one unless it is itself reliable."""
    if message.kind is MessageKind.ERROR:
        return not message.reliable
    return message.kind in ANSWERS


MESSAGE = "message"
"""What is no signal."""

_WORDS: dict[MessageKind | None, str] = {
    MessageKind.ACKNOWLEDGMENT: "acknowledgement",
    MessageKind.ERROR: "error",
    MessageKind.STATUS_RESPONSE: "status",
    MessageKind.STATUS_REQUEST: "status request",
    MessageKind.PING: "ping",
    MessageKind.PONG: "pong",
}


def word_for(kind: MessageKind | None) -> str:
    """A kind of signal as people call it."""
    return _WORDS.get(kind, MESSAGE)
