"""Arrival: what the protocol is asked about a message that came in."""

from __future__ import annotations

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, receiver_name, sender_name
from oncewire.agreement.resolve import Resolution
from oncewire.handler.sending.submit import facts_of
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.header import SequenceNumber
from oncewire.message.instant import Instant
from oncewire.protocol.receiver import Arrival
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.terms import Scope
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts


def facts_under(
    message: Message, agreement: Agreement, ahead: Agreement | None = None
) -> MessageFacts:
    """What listings show of a message that came in, its parties by the names the agreement has.

    `ahead`: it goes on under this one, whose partner is the To Party or leads to it.
    """
    receiver = agreement.own if ahead is None else ahead.partner
    return replace(
        facts_of(message),
        from_party=sender_name(agreement, message.header.from_party),
        to_party=receiver_name(receiver, message.header.to_party),
    )


def number_of_arrival(message: Message, resolution: Resolution) -> SequenceNumber | None:
    """The number that counts here. At a hub that is the hop's own; a MessageOrder is between
    the end parties, and two pairs of them may use one ConversationId (C6)."""
    if not resolution.at_hop:
        return message.sequence
    return None if message.last_hop is None else message.last_hop.sequence


def channel_of_arrival(
    tx: Transaction, message: Message, resolution: Resolution
) -> ReceivingChannel | None:
    """The stream that the message's number counts in; None: it has no number here."""
    key, terms = resolution.channel, resolution.terms
    if key is None or number_of_arrival(message, resolution) is None or not terms.numbered:
        return None
    channel = tx.receiving_channel(key)
    if channel is None or channel.furthest is None:
        # Nothing was received yet: today's range is the first one.
        return ReceivingChannel.open(key, terms)
    return channel


def arrival_of(
    message: Message, resolution: Resolution, digest: str, channel: ReceivingChannel | None
) -> Arrival:
    """What the judgement needs to know of the message."""
    # The agreed lifetime is that of business messages; a failure notice has its own.
    normal = message.kind is MessageKind.NORMAL
    return Arrival(
        message.header.message_id,
        digest,
        _stamp(message, resolution),
        number_of_arrival(message, resolution) if channel is not None else None,
        resolution.expires_at if normal else message.header.time_to_live,
    )


def _stamp(message: Message, resolution: Resolution) -> Instant:
    """When the handler that numbered the message made it ready (see `receiving`)."""
    hop = message.last_hop
    per_hop = resolution.at_hop or resolution.terms.scope is not Scope.CONVERSATION
    if per_hop and hop is not None and hop.timestamp is not None:
        return hop.timestamp
    return message.header.timestamp
