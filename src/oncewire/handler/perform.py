"""Perform: save what a protocol step decided, journal it, and collect what must leave."""

from __future__ import annotations

from oncewire.handler.actions import Post, Settled
from oncewire.handler.node import Node
from oncewire.handler.route import address_for
from oncewire.handler.seal import build_numbered
from oncewire.message.instant import Instant
from oncewire.protocol.effects import (
    Admit,
    AskStatus,
    Effect,
    Note,
    Raise,
    Resolve,
    Transmit,
)
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sender import Sent, attempt_due, deadline_passed, enter_window
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing, StoredParcel


def load_channel(tx: Transaction, outgoing: Outgoing) -> SendingChannel | None:
    """The channel a message runs on, if it has one."""
    return None if outgoing.channel is None else tx.sending_channel(outgoing.channel)


def perform(
    node: Node,
    tx: Transaction,
    stored: StoredOutgoing,
    before: SendingChannel | None,
    step: Sent,
    terms: Terms,
    *,
    parcel: StoredParcel | None = None,
) -> None:
    """Make one step of a stored message real, and let waiting messages follow it."""
    perform_without_admitting(node, tx, stored, before, step, terms, parcel=parcel)
    for effect in step.effects:
        if isinstance(effect, Admit):
            admit(node, tx, effect.channel)


def perform_without_admitting(
    node: Node,
    tx: Transaction,
    stored: StoredOutgoing,
    before: SendingChannel | None,
    step: Sent,
    terms: Terms,
    *,
    parcel: StoredParcel | None = None,
) -> None:
    """Save the step's state, journal it, and collect what leaves after the commit."""
    if step.channel is not None and step.channel is not before:
        tx.save_sending_channel(step.channel)
    if step.outgoing is not stored.outgoing:
        tx.save_outgoing(step.outgoing, parcel=parcel)
    perform_effects(node, tx, stored, step.outgoing, step.effects, terms, parcel)
    if step.outgoing.failures > stored.outgoing.failures:
        node.failed.append(step.outgoing.message_id)
    if step.outgoing.state in FINAL_OUTGOING:
        node.in_flight.discard(step.outgoing.message_id)
        node.actions.append(Settled(step.outgoing.message_id, step.outgoing.state))


def perform_effects(
    node: Node,
    tx: Transaction,
    stored: StoredOutgoing,
    outgoing: Outgoing,
    effects: tuple[Effect, ...],
    terms: Terms,
    parcel: StoredParcel | None = None,
) -> None:
    """Journal the notes and collect what leaves after the commit; Admit is the caller's."""
    notes = [effect for effect in effects if isinstance(effect, Note)]
    if notes:
        node.write(tx, notes, terms_id=outgoing.terms_id, hop=stored.hop or None, peer=stored.peer)
    for effect in effects:
        if isinstance(effect, Transmit):
            _post(node, tx, stored, effect, terms, parcel)
        elif isinstance(effect, Raise):
            open_incident(node, tx, effect)
        elif isinstance(effect, Resolve):
            resolve_incidents(node, tx, effect)
        elif isinstance(effect, AskStatus):
            node.status_questions.append(effect.message_id)


def _post(
    node: Node,
    tx: Transaction,
    stored: StoredOutgoing,
    effect: Transmit,
    terms: Terms,
    parcel: StoredParcel | None,
) -> None:
    address = address_for(node, stored, effect.transport)
    if parcel is None:
        parcel = tx.outgoing_parcel(effect.message_id)
    if address is None or parcel is None:
        # The attempt stays on the books and fails by its timer; the reason is recorded.
        problem = f"no address for transport {effect.transport} to {stored.peer}"
        open_incident(node, tx, Raise(problem, effect.message_id))
        return
    node.in_flight.add(effect.message_id)
    timeout = max(terms.sync_timeout, 1)
    node.actions.append(
        Post(effect.message_id, effect.attempt, effect.transport, address, parcel, timeout)
    )


def open_incident(node: Node, tx: Transaction, effect: Raise) -> None:
    """Open an incident and say so in the journal."""
    number = tx.open_incident(node.now(), effect.reason, effect.message_id, effect.channel)
    detail = {"id": str(number), "problem": effect.reason[:300]}
    node.write(
        tx, [Note("incident", effect.message_id, channel=effect.channel, detail=dict(detail))]
    )


def resolve_incidents(node: Node, tx: Transaction, effect: Resolve) -> int:
    """Close the incidents of a message or a channel; returns how many were open."""
    numbers = tx.resolve_incidents(node.now(), effect.message_id, effect.channel)
    for number in numbers:
        note = Note(
            "resolved", effect.message_id, channel=effect.channel, detail={"id": str(number)}
        )
        node.write(tx, [note])
    return len(numbers)


def admit(node: Node, tx: Transaction, key: str) -> None:
    """Let waiting messages into the window while there are places, in order of submission.

    A message that enters gets its number, its bytes and its first attempt in this same
    transition: the bytes that leave are the bytes that were stored.
    """
    while True:
        channel = tx.sending_channel(key)
        waiting = tx.waiting(key, 1)
        if channel is None or not waiting:
            return
        stored = waiting[0]
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        if channel.places(terms) < 1:
            return
        deadline = stored.outgoing.deadline(terms)
        if deadline is not None and node.now() >= deadline:
            # It expired while it waited: it must not use up a number.
            step = deadline_passed(stored.outgoing, channel, terms, node.now())
            perform_without_admitting(node, tx, stored, channel, step, terms)
        else:
            enter(node, tx, stored, channel, terms)


def enter(
    node: Node, tx: Transaction, stored: StoredOutgoing, channel: SendingChannel, terms: Terms
) -> None:
    """Give a waiting message its number, build its bytes and begin its first attempt."""
    now = stamp = node.now()
    before = channel
    if stored.relayed_from is not None:
        # A hub's copy has no timestamp of this hop yet; they rise strictly along the stream.
        channel, stamp = channel.stamp(now)
    entered = enter_window(stored.outgoing, channel, terms, now)
    parcel = build_numbered(node, tx, stored, entered.outgoing, terms, stamp)
    perform(
        node, tx, stored, before, first_attempt(node, entered, terms, now), terms, parcel=parcel
    )


def first_attempt(node: Node, entered: Sent, terms: Terms, now: Instant) -> Sent:
    """A message that has just entered the window, with its first attempt begun.

    Where there is no room for it, and on a node at rest, the attempt is left due: one that
    was begun and not made would be waited for in vain.
    """
    if node.room < 1:
        return entered
    step = attempt_due(entered.outgoing, entered.channel, terms, now)
    return Sent(step.outgoing, step.channel, (*entered.effects, *step.effects))
