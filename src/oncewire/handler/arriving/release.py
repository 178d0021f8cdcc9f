"""Release: messages that were held until their turn came, and the end of waiting for a gap."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from oncewire.errors import OncewireError
from oncewire.handler.actions import Ready
from oncewire.handler.answering.report import is_for_us, take_it
from oncewire.handler.delivering.accepted import accepted
from oncewire.handler.delivering.deliver import withhold
from oncewire.handler.documents.gathering import gathered
from oncewire.handler.hub.stranded import go_on, go_on_at_last
from oncewire.handler.node import Node
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.message.instant import MINUTE, Duration
from oncewire.protocol.effects import Effect, Note, Raise, Resolve
from oncewire.protocol.receiver import give_up_gap, hold_deadline
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.states import IncomingEvent, IncomingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming

LOOK_EVERY: Duration = MINUTE
"""How often held messages are looked at; they wait for hours, so a minute is exact enough."""

BATCH = 256


def release(node: Node, tx: Transaction, key: str, message_ids: tuple[str, ...]) -> None:
    """These held messages of a channel may go: to the application, or to the next hop."""
    for message_id in message_ids:
        for held in tx.incoming_by_id(message_id):
            if held.incoming.state is IncomingState.HELD and held.incoming.channel == key:
                _release_one(node, tx, held)


def release_old(
    node: Node, tx: Transaction, channel: ReceivingChannel | None, message_ids: tuple[str, ...]
) -> int:
    """Let go those of an epoch that is over; they come first. Returns how many there were."""
    old = 0
    if channel is not None:
        for message_id in message_ids:
            held = tx.incoming_by_id(message_id)
            if all(stored.incoming.epoch == channel.epoch for stored in held):
                break
            old += 1
        release(node, tx, channel.key, message_ids[:old])
    return old


def _release_one(node: Node, tx: Transaction, held: StoredIncoming) -> None:
    if not node.is_ours(tx, held):
        go_on(node, tx, held)
        return
    if held.facts.split_number is not None:
        part = held.incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.GATHERED)
        tx.save_incoming(part)
        # Nobody confirms a part: what held it up is over with this.
        resolve_incidents(node, tx, Resolve(part.message_id), part.channel)
        gathered(node, tx, replace(held, incoming=part))
        return
    ready = held.incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.READY)
    if is_for_us(held.incoming.message_id, held.facts.kind):
        # Its turn has come too.
        try:
            message = accepted(node, held)
        except OncewireError as problem:
            withhold(node, tx, held, problem)
        else:
            tx.save_incoming(ready)
            take_it(node, tx, message, replace(held, incoming=ready))
        return
    tx.save_incoming(ready)
    node.actions.append(Ready(1))


def give_up_gaps(node: Node) -> None:
    """Hand over what has waited longer than its missing predecessors can still be sent."""
    now = node.now()
    if now < node.gaps_due_at:
        return
    node.gaps_due_at = now + LOOK_EVERY
    if node.in_doubt:
        return
    node.apart(lambda tx: go_on_at_last(node, tx))
    with node.transition() as tx:
        held = tx.held(BATCH)
    for stored in held:
        problem = node.apart(partial(_give_up_if_late, node, stored))
        if problem is not None:
            # Looked at again with the next look; those of other streams are not delayed.
            raised = Raise(f"it cannot go on: {problem}"[:500], stored.incoming.message_id)
            with node.transition() as tx:
                open_incident(node, tx, raised, stored.incoming)


def _give_up_if_late(node: Node, stored: StoredIncoming, tx: Transaction) -> None:
    terms = node.terms_of(tx, stored.incoming.terms_id)
    if node.now() >= hold_deadline(stored.incoming.received_at, terms):
        _give_up_before(node, tx, stored)


def _give_up_before(node: Node, tx: Transaction, stored: StoredIncoming) -> None:
    incoming = stored.incoming
    if incoming.channel is None or incoming.number is None:
        return
    channel = tx.receiving_channel(incoming.channel)
    waits = channel is not None and any(
        held_message.number == incoming.number for held_message in channel.held
    )
    if channel is None or not waits:
        # Released together with an earlier one of this look.
        return
    freed = give_up_gap(channel, incoming.number, node.terms_of(tx, incoming.terms_id))
    follow(node, tx, freed.channel, freed.effects)
    release(node, tx, incoming.channel, freed.deliver)


def follow(
    node: Node, tx: Transaction, channel: ReceivingChannel | None, effects: tuple[Effect, ...]
) -> None:
    """Save a stream's new state and record what the step noted."""
    if channel is not None:
        tx.save_receiving_channel(channel)
    _write_notes(node, tx, effects)
    for effect in effects:
        if isinstance(effect, Raise):
            open_incident(node, tx, effect)


def _write_notes(node: Node, tx: Transaction, effects: tuple[Effect, ...]) -> None:
    """Journal what a receiving step noted."""
    notes = [effect for effect in effects if isinstance(effect, Note)]
    if notes:
        node.write(tx, notes)
