"""AcceptedTerms: the agreement a message was accepted under, for its copies and its answers.

Agreements end, change and are replaced while messages are under way. A copy of a message that
was accepted is a copy still: to judge it by today's agreement would refuse what its receiver
has, and its sender would call it not delivered (RM-17). So would an acknowledgement that comes
after the end be refused. Both are judged by the agreement of the message they belong to, which
is kept with it; only what is new is judged by today's. A certificate that is revoked counts for
nothing at once, whatever was agreed (`Agreements.withdrawn`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncewire.agreement.agreement import Agreement, sender_of
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.ids import Party
from oncewire.message.instant import Instant
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.contract import Transaction
from oncewire.store.records import Removed, StoredIncoming
from oncewire.wire.refusal import PartialHeader

if TYPE_CHECKING:
    from oncewire.handler.context import HandlerContext


@dataclass(frozen=True, slots=True)
class AcceptedTerms:
    """An agreement by what was accepted under it, and when: certificates are judged as of then."""

    agreement: Agreement
    accepted_at: Instant
    # Nobody asked for repeats to be stopped: a copy that today's agreement allows is a message
    # of its own (C40), and only where it does not it is a copy.
    repeats_pass: bool = False


def copied(context: HandlerContext, tx: Transaction, message: Message) -> AcceptedTerms | None:
    """What a message was accepted under that says it is a copy; None: it is judged as new.

    Nothing is believed of it yet. It has to prove that it comes from the party it names, by the
    terms that its original was accepted under, before anything is said about that.
    """
    party, message_id = message.header.from_party, message.header.message_id
    known = received_from(context, tx, party, message_id)
    if known is not None:
        original = _original(context, tx, known.agreement_id, known.incoming.received_at)
        passes = _repeats_pass(context, tx, message, known)
        return None if original is None else replace(original, repeats_pass=passes)
    gone = _removed_from(context, tx, party, message_id)
    if gone is None:
        return None
    return _original(context, tx, gone.agreement_id, gone.at)


def is_known(context: HandlerContext, tx: Transaction, known: PartialHeader) -> bool:
    """Whether what could be read of a message names one that was accepted before."""
    if known.message_id is None or known.from_party is None:
        return False
    stored = received_from(context, tx, known.from_party, known.message_id)
    if stored is not None:
        return stored.incoming.state is not IncomingState.REFUSED
    return _removed_from(context, tx, known.from_party, known.message_id) is not None


def received_from(
    context: HandlerContext, tx: Transaction, party: Party, message_id: str
) -> StoredIncoming | None:
    """The message of that id whose sender these ids may mean, in whatever order they stand."""
    for stored in tx.incoming_by_id(message_id):
        if _is_meant(context, tx, party, stored.incoming.sender, stored.agreement_id):
            return stored
    return None


def _removed_from(
    context: HandlerContext, tx: Transaction, party: Party, message_id: str
) -> Removed | None:
    """The message of that id and sender, if retention removed it."""
    for gone in tx.removed(message_id):
        if gone.sender is None or gone.state == IncomingState.REFUSED:
            continue
        if _is_meant(context, tx, party, gone.sender, gone.agreement_id):
            return gone
    return None


def _is_meant(
    context: HandlerContext, tx: Transaction, party: Party, sender: str, agreement_id: str | None
) -> bool:
    """Whether a sender, as its message is filed, may be the party of a header."""
    if sender in {str(party_id) for party_id in party.ids}:
        return True
    agreement = context.agreement_kept(tx, agreement_id)
    if agreement is None or not agreement.partner.reaches(party):
        return False
    return sender == str(sender_of(agreement, party))


def known_as(
    tx: Transaction, sender: str, agreement: Agreement, message_id: str
) -> StoredIncoming | None:
    """The message of that id from a sender who proved who he is (DUP-1).

    Versions before this one filed it under the id that stood first in its header.
    """
    for name in _names(sender, agreement):
        known = tx.incoming(name, message_id)
        if known is not None:
            return known
    return None


def removed_as(
    tx: Transaction, sender: str, agreement: Agreement, message_id: str
) -> Removed | None:
    """What is remembered of an accepted message if retention removed it.

    Its sender should have stopped before that, but networks keep copies and not every
    handler stops. A refused message is judged anew: nothing was done with it.
    """
    names = _names(sender, agreement)
    for gone in tx.removed(message_id):
        if gone.sender in names and gone.state != IncomingState.REFUSED:
            return gone
    return None


def _names(sender: str, agreement: Agreement) -> tuple[str, ...]:
    own = tuple(map(str, agreement.partner.party.ids))
    return own if sender == own[0] else (sender,)


def _repeats_pass(
    context: HandlerContext, tx: Transaction, message: Message, known: StoredIncoming
) -> bool:
    """Whether a copy is a message of its own."""
    if message.header.duplicate_elimination or message.header.split is not None:
        return False
    if known.incoming.state in (IncomingState.REFUSED, IncomingState.FORWARDED):
        return False
    return context.terms_of(tx, known.incoming.terms_id).repeats_pass


def answered(context: HandlerContext, tx: Transaction, message: Message) -> AcceptedTerms | None:
    """What the message that a signal is about was accepted under, if that is known here."""
    if message.kind is MessageKind.STATUS_REQUEST:
        return _asked_about(context, tx, message)
    for reference in spoken_of(message):
        stored = tx.outgoing(reference)
        if stored is not None:
            return _original(context, tx, stored.agreement_id, stored.outgoing.submitted_at)
    return None


def spoken_of(message: Message) -> list[str]:
    """The messages of ours that a message speaks of."""
    spoken = [ack.ref_to_message_id for ack in message.acknowledgments]
    if message.kind is MessageKind.NORMAL:
        # What is new answers to today's agreement, whatever it refers to.
        return spoken
    if message.status_response is not None:
        spoken.append(message.status_response.ref_to_message_id)
    if message.header.ref_to_message_id is not None:
        spoken.append(message.header.ref_to_message_id)
    return spoken


def _asked_about(
    context: HandlerContext, tx: Transaction, message: Message
) -> AcceptedTerms | None:
    """A sender asks when it has heard nothing, and that may be after the agreement's end."""
    if message.status_request is None:
        return None
    reference, party = message.status_request.ref_to_message_id, message.header.from_party
    known = received_from(context, tx, party, reference)
    if known is not None:
        return _original(context, tx, known.agreement_id, known.incoming.received_at)
    gone = _removed_from(context, tx, party, reference)
    return None if gone is None else _original(context, tx, gone.agreement_id, gone.at)


def _original(
    context: HandlerContext, tx: Transaction, agreement_id: str | None, at: Instant
) -> AcceptedTerms | None:
    agreement = context.agreement_kept(tx, agreement_id)
    return None if agreement is None else AcceptedTerms(agreement, at)


# Fresh: whether a message is news, or anybody may have sent it again.
#
# Who has recorded a message can send it from anywhere, signature and all. It is a partner's word,
# and it is treated as a copy; but it does not show that the partner is where it came from now.
# What nobody had said here before does.


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about a message, and about those of ours that it speaks of."""

    # Whether it was accepted, now or long ago.
    accepted: bool
    ours: tuple[OutgoingState | None, ...]
    # Whether somebody waits for it as the answer to a Ping.
    pinged: bool


def standing(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    stored: Sequence[StoredIncoming],
    removed: Sequence[Removed],
) -> Standing:
    """What is known now; `stored` and `removed` have the id of the message."""
    states: list[str] = [each.incoming.state for each in stored]
    states += [gone.state for gone in removed]
    accepted = states.count(IncomingState.REFUSED) < len(states)
    reference = message.header.ref_to_message_id
    spoken = dict.fromkeys((*spoken_of(message), reference or ""))
    found = [tx.outgoing(name) for name in spoken if name]
    ours = tuple([None if sent is None else sent.outgoing.state for sent in found])
    return Standing(accepted, ours, reference in context.state.pings)


def is_news(before: Standing, after: Standing) -> bool:
    """Whether taking the message has changed something: it was accepted, or it settled a message
    of ours, and neither had happened before."""
    return before != after
