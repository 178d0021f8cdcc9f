"""Stranded: what a hub acknowledged and cannot send on, because the way on is gone.

A message that waited for an earlier number is released to the next hop; if no agreement leads
there any more, the hub still answers for it (HOP-8, S12). It stays as it is, an incident calls
the operator, and it goes on, in its order, as soon as the agreement is back or by the
operator's word. Giving it up is the operator's decision, and the From Party is told (HOP-9).
"""

from __future__ import annotations

from dataclasses import replace

from oncewire.agreement.agreement import Agreement
from oncewire.errors import NotAllowed, OncewireError, StoreDamaged, StoreFull, StoreGone
from oncewire.handler.delivering.deliver import withhold
from oncewire.handler.hub.next_hop import send_onward, tell_from_party
from oncewire.handler.node import Node
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.handler.sealing.spooled import read_stored
from oncewire.message.envelope import Message
from oncewire.protocol.effects import Note, Raise, Resolve
from oncewire.protocol.hops import owes_failure_notice
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.notes import Abandoned, Failed, Notified, Skipped
from oncewire.protocol.states import IncomingEvent, IncomingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming

LOOK_AT = 10_000
"""Held messages that one look goes through; they are bounded by the windows of the streams."""


def _ahead(node: Node, message: Message) -> Agreement | None:
    header = message.header
    return node.agreements.toward(header.to_party, header.service)


def go_on(node: Node, tx: Transaction, stored: StoredIncoming) -> bool:
    """A held message's turn has come to go on; False: it cannot, and the operator is called."""
    message = _message_of(node, stored)
    ahead = None if message is None else _ahead(node, message)
    if ahead is None:
        problem = f"no agreement leads on to {stored.facts.to_party} any more"
        incoming = stored.incoming
        open_incident(node, tx, Raise(problem, incoming.message_id), incoming)
        return False
    _forward(node, tx, stored, ahead)
    return True


def go_on_at_last(node: Node, tx: Transaction, to_party: str | None = None) -> None:
    """Send on what is stranded and has a way again, all of it or what is for one party."""
    stranded = [kept for kept in tx.held(LOOK_AT) if to_party in (None, kept.facts.to_party)]
    for listed in sorted(stranded, key=lambda kept: _place(node, tx, kept.incoming)):
        if not is_stranded(node, tx, listed):
            continue
        stored = _whole(node, tx, listed)
        message = None if stored is None else _message_of(node, stored)
        ahead = None if message is None else _ahead(node, message)
        if stored is not None and ahead is not None:
            _forward(node, tx, stored, ahead)


def _whole(node: Node, tx: Transaction, listed: StoredIncoming) -> StoredIncoming | None:
    """With its bytes; None: they cannot be read, and the operator is called."""
    incoming = listed.incoming
    try:
        stored = tx.incoming(incoming.sender, incoming.message_id)
        if stored is not None:
            _message_of(node, stored)
    except (StoreFull, StoreGone):
        raise
    except OncewireError as problem:
        withhold(node, tx, listed, problem)
        return None
    return stored


def is_stranded(node: Node, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether its turn to go on came and it is still here."""
    incoming = stored.incoming
    if incoming.state is not IncomingState.HELD or node.is_ours(tx, stored):
        return False
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    held = () if channel is None else channel.held
    return all(held_message.message_id != incoming.message_id for held_message in held)


def resume_stranded(node: Node, tx: Transaction, message_id: str) -> bool:
    """The operator's word that the way is there again; False: no such message is stranded."""
    found = _stranded(node, tx, message_id)
    for stored in found:
        message = _message_of(node, stored)
        ahead = None if message is None else _ahead(node, message)
        if ahead is None:
            raise NotAllowed(
                f"no agreement leads on to {stored.facts.to_party}",
                remedy="put back the agreement with that party, or with a hub that reaches it",
            )
        # Those before it on its stream go first.
        go_on_at_last(node, tx, stored.facts.to_party)
    return bool(found)


def abandon_stranded(node: Node, tx: Transaction, message_id: str, by: str | None = None) -> bool:
    """The operator, called `by`, gives it up, and its From Party is told, unless it is itself a
    notice (C33); False: none is stranded."""
    found = _stranded(node, tx, message_id)
    for stored in found:
        message = _message_of(node, stored)
        if message is None:
            continue
        incoming = _forwarded(stored.incoming)
        tx.save_incoming(incoming)
        reason = f"no agreement leads on to {stored.facts.to_party}"
        notes = [
            # Its turn had come: the stream it came on goes on without it (S7).
            Note(
                Skipped("abandoned"),
                message_id,
                channel=incoming.channel,
                epoch=incoming.epoch,
                number=incoming.number,
            ),
            Note(Abandoned(by), message_id, channel=incoming.channel),
            Note(Failed("not_delivered", "abandoned"), message_id, channel=incoming.channel),
        ]
        if owes_failure_notice(stored.facts.kind, reliable=True):
            notice_id = tell_from_party(node, tx, message, transmitted=False, reason=reason)
            notes.append(Note(Notified("Error"), message_id, notice_id))
        node.write(tx, notes, terms_id=incoming.terms_id, peer=stored.facts.from_party)
        resolve_incidents(node, tx, Resolve(message_id), incoming.channel)
    return bool(found)


def _stranded(node: Node, tx: Transaction, message_id: str) -> list[StoredIncoming]:
    try:
        found = tx.incoming_by_id(message_id)
    except StoreDamaged:
        # What cannot be read cannot go on either.
        return []
    return [stored for stored in found if is_stranded(node, tx, stored)]


def _forward(node: Node, tx: Transaction, stored: StoredIncoming, ahead: Agreement) -> None:
    incoming = _forwarded(stored.incoming)
    tx.save_incoming(incoming)
    resolve_incidents(node, tx, Resolve(incoming.message_id), incoming.channel)
    send_onward(node, tx, replace(stored, incoming=incoming), ahead)


def _forwarded(incoming: Incoming) -> Incoming:
    return incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.FORWARDED)


def _message_of(node: Node, stored: StoredIncoming) -> Message | None:
    if stored.parcel is None:
        return None
    return read_stored(node.store.spool, stored.parcel, node.limits).message


def _place(node: Node, tx: Transaction, incoming: Incoming) -> tuple[str, int, int]:
    """Where it stands in its stream: numbers wrap, so they count from the one expected now."""
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    if channel is None or incoming.number is None:
        return "", 0, 0
    try:
        numbers = node.terms_of(tx, incoming.terms_id).numbers
    except OncewireError:
        return channel.key, incoming.epoch or 0, 0
    behind = numbers.distance(incoming.number, channel.expected)
    return channel.key, incoming.epoch or 0, -behind
