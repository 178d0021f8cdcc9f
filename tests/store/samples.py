"""Messages, rows and channels for store tests; everything not named has a plain value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncewire.journal.row import Row
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import DAY, seconds
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.terms import FlowMode, Terms
from oncewire.store.contract import Store, Transaction
from oncewire.store.records import (
    MessageFacts,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)

TERMS = Terms(persist_duration=DAY)
ORDERED = Terms(numbered=True, ordered=True, flow=FlowMode.WINDOW, window=4, keep=seconds(100))
TERMS_ID, ORDERED_ID = TERMS.terms_id, ORDERED.terms_id

WAITING, OUTSTANDING, SUSPENDED = (
    OutgoingState.WAITING,
    OutgoingState.OUTSTANDING,
    OutgoingState.SUSPENDED,
)
DELIVERED, UNKNOWN = OutgoingState.DELIVERED, OutgoingState.UNKNOWN
READY, HELD, CONFIRMED = IncomingState.READY, IncomingState.HELD, IncomingState.CONFIRMED
HANDED_OVER = IncomingState.HANDED_OVER


def facts(**changes: Any) -> MessageFacts:
    """Facts of a message."""
    values: dict[str, Any] = {
        "cpa_id": "cpa",
        "conversation_id": "talk",
        "from_party": "buyer",
        "to_party": "seller",
        "service": "orders",
        "action": "order",
        "timestamp": 1_000,
        "ref_to": None,
        "kind": MessageKind.NORMAL,
        "digest": "d" * 64,
        "size": 12,
    }
    return MessageFacts(**(values | changes))


def parcel(body: bytes = b"the bytes") -> StoredParcel:
    """Bytes to send."""
    return StoredParcel("text/xml", (("SOAPAction", '"ebXML"'),), (body,))


def sent(
    message_id: str, *, peer: str = "seller", ref_to: str | None = None, **state: Any
) -> StoredOutgoing:
    """An outgoing message; every other name is a field of Outgoing."""
    values: dict[str, Any] = {"terms_id": TERMS_ID, "submitted_at": 100} | state
    outgoing = Outgoing(message_id, **values)
    return StoredOutgoing(outgoing, facts(ref_to=ref_to), peer)


def received(
    message_id: str,
    *,
    sender: str = "buyer",
    answer: StoredAnswer | None = None,
    body: StoredParcel | None = None,
    **state: Any,
) -> StoredIncoming:
    """An incoming message; every other name is a field of Incoming."""
    values: dict[str, Any] = {"digest": "d" * 64, "terms_id": TERMS_ID, "received_at": 100}
    incoming = Incoming(sender, message_id, **(values | {"state": READY} | state))
    return StoredIncoming(
        incoming, facts(), sender, "http", body or parcel(), answer, answered=answer is not None
    )


def answer(answer_id: str = "ack-1", *, owed: bool = False, body: bytes = b"ack") -> StoredAnswer:
    """An answer to an incoming message."""
    return StoredAnswer(answer_id, MessageKind.ACKNOWLEDGMENT, parcel(body), owed)


def row(kind: str, message_id: str | None = None, *, at: int = 0, **columns: Any) -> Row:
    """A journal row."""
    return Row(999, at, at, "boot", "node", kind, message_id, **columns)


def add(transaction: Transaction, stored: StoredOutgoing) -> StoredOutgoing:
    """Add an outgoing message with bytes, or with a draft while it waits."""
    if stored.outgoing.state is WAITING:
        return transaction.add_outgoing(stored, parcel=None, draft=b"draft")
    return transaction.add_outgoing(stored, parcel=parcel(), draft=None)


def prepare(store: Store) -> None:
    """Keep the terms that the samples run under."""
    with store.transition() as transaction:
        transaction.remember_terms(TERMS)
        transaction.remember_terms(ORDERED)
    store.commit()


def everything(store: Store) -> dict[str, Any]:
    """All that can be read of the committed state."""
    with store.reader() as reader:
        view: dict[str, Any] = {
            "journal": reader.journal_since(0, 10_000),
            "last": reader.last_seq(),
            "outgoing": reader.outgoing_list(limit=10_000),
            "incoming": reader.incoming_list(limit=10_000),
            "counts": reader.counts(),
            "incidents": reader.incidents(open_only=False),
            "channels": reader.channels(),
            "spooled": reader.spooled(),
            "last removal": reader.last_removal(),
        }
        names = {row.message_id for row in view["journal"]}
        names |= {stored.outgoing.message_id for stored in view["outgoing"]}
        names |= {stored.incoming.message_id for stored in view["incoming"]}
        for name in sorted(name for name in names if name is not None):
            view[name] = (
                reader.outgoing(name),
                reader.outgoing_parcel(name),
                reader.receipt(name),
                reader.incoming(name),
                reader.on_hold(name),
                reader.removed(name),
            )
    return view


class Trouble(Exception):
    """What goes wrong inside a transition that is to be undone."""


@contextmanager
def undone(store: Store) -> Iterator[Transaction]:
    """A transition that ends in an exception."""
    try:
        with store.transition() as transaction:
            yield transaction
            raise Trouble
    except Trouble:
        return
