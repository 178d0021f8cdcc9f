"""Resumable: whether an operator's `resume` can help a message on, and why not."""

from __future__ import annotations

from shlex import quote
from typing import Protocol

from oncewire.errors import NotAllowed, StoreDamaged
from oncewire.handler.documents.original import has_parts, is_whole
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.operating import check_resendable
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.contract import Reader
from oncewire.store.records import StoredOutgoing


class Stored(Protocol):
    """What is asked of the store: a transaction has it as well as a reader."""

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        """The message that was sent from here under that id."""

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        """A document in parts."""


def can_resume(reader: Reader, stored: StoredOutgoing, now: Instant) -> bool:
    """Whether `resume` would send a message on now. Past its deadline it would not: it would be
    refused, or end the message."""
    outgoing = stored.outgoing
    channels = (one for one in reader.channels()[0] if one.key == outgoing.channel)
    channel = next(channels, None)
    try:
        check_resumable(reader, stored, channel)
        terms = reader.terms(outgoing.terms_id)
        deadline = None if terms is None else outgoing.deadline(terms)
        if terms is None or (deadline is not None and deadline <= now):
            return False
        if not _goes_another_way(stored, channel):
            check_resendable(outgoing, channel, terms, now)
    except (NotAllowed, StoreDamaged):
        return False
    return True


def _goes_another_way(stored: StoredOutgoing, channel: SendingChannel | None) -> bool:
    """Whether not the message itself starts anew, but its channel, its parts or its wait."""
    waits = stored.outgoing.state is OutgoingState.WAITING
    return waits or is_whole(stored) or (channel is not None and channel.suspended)


def check_resumable(known: Stored, stored: StoredOutgoing, channel: SendingChannel | None) -> None:
    """Raise NotAllowed of what ended in a way that others have acted on."""
    message_id, state = stored.outgoing.message_id, stored.outgoing.state
    stands = channel is not None and channel.suspended_by == message_id
    if state is OutgoingState.DELIVERED and not stands:
        raise NotAllowed(
            f"message {message_id} was delivered: its receiver acknowledged it",
            remedy="a receiver that has it drops a copy under the same id; `oncewire ask "
            f"{quote(message_id)}` asks whether it still has it. If it has lost it since, as when "
            "an older backup was restored there, or is to process the document once more, send "
            "the document as a new message",
        )
    if state not in FINAL_OUTGOING or (channel is not None and channel.suspended):
        return
    if is_whole(stored):
        _refuse_ended(stored)
    _refuse_part_of_ended(known, stored)
    if stored.relayed_from is not None and stored.facts.kind is MessageKind.NORMAL:
        # A delivery behind the back of a party that acts on the failure would be a second one.
        raise NotAllowed(
            f"the failure of {message_id} was reported to {stored.relayed_from}",
            remedy="its From Party decides whether to send it again",
        )


def _refuse_ended(whole: StoredOutgoing) -> None:
    message_id, state = whole.outgoing.message_id, whole.outgoing.state
    if state in FINAL_OUTGOING:
        raise NotAllowed(
            f"document {message_id} ended as {state.value}, which its application was told",
            remedy="send the document anew, under an id of its own",
        )


def _refuse_part_of_ended(known: Stored, part: StoredOutgoing) -> None:
    """A part that ended took its document with it, and joins it to nothing any more; nor does the
    message that names parts of which one did not arrive."""
    split_id = part.facts.split_id
    whole = None if split_id is None else known.outgoing(split_id)
    if split_id is None or whole is None or not has_parts(whole):
        return
    document = known.document("", split_id)
    if part.facts.split_number is not None or document is None or not document.complete:
        _refuse_ended(whole)
