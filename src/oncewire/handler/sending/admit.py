"""Admit: waiting messages enter the window of their channel, each in a transition of its own.

A message gets its number, its bytes and its first attempt when there is a place for it, which may
be long after it was submitted: its agreement may be gone or narrowed, its key may be missing. That
is its own trouble. It waits with an incident and is looked at again, and neither the message that
made the place nor anybody else is delayed by it. Only what must come after it in order waits too.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from oncewire.errors import OncewireError, StoreDamaged
from oncewire.handler.documents.original import is_whole
from oncewire.handler.documents.parts import enter_next, may_go_on
from oncewire.handler.node import NEVER, Node
from oncewire.handler.perform import first_attempt, open_incident, perform, relieve
from oncewire.handler.route import addresses_for, stamps_at_entry
from oncewire.handler.sealing.seal import build_numbered
from oncewire.message.instant import MINUTE, Duration
from oncewire.protocol.effects import Raise
from oncewire.protocol.sender import deadline_passed, enter_window
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

logger = logging.getLogger("oncewire.handler")

LOOK_AGAIN: Duration = MINUTE
"""How long a message that cannot go on is left alone; then somebody may have mended it."""

ASIDE = 256
"""How many messages are looked at to find one that may pass those that cannot go on."""


def admit_waiting(node: Node) -> None:
    """Fill the windows that have places, in order of submission."""
    while node.admissions:
        key = next(iter(node.admissions))
        del node.admissions[key]
        while _admit_one(node, key):
            pass


def _admit_one(node: Node, key: str) -> bool:
    """Bring the next one in; False when there is none, or no place for it."""
    next_one: list[StoredOutgoing] = []
    moved: list[StoredOutgoing] = []

    def bring_in(tx: Transaction) -> None:
        channel = tx.sending_channel(key)
        stored = None if channel is None else _next_waiting(node, tx, key)
        if channel is None or stored is None:
            return
        next_one.append(stored)
        if stored.damage:
            raise StoreDamaged(stored.damage, message_id=stored.outgoing.message_id)
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        if channel.places(terms) < 1:
            return
        deadline = stored.outgoing.deadline(terms)
        if deadline is None or node.now() < deadline:
            moved.append(stored)
            if is_whole(stored):
                node.part_went.add(key)
                enter_next(node, tx, stored, channel, terms)
                relieve(node, tx, stored.outgoing.message_id)
            else:
                node.part_went.discard(key)
                enter(node, tx, stored, channel, terms)
        elif not node.in_doubt:
            # It expired while it waited: it must not use up a number.
            moved.append(stored)
            step = deadline_passed(stored.outgoing, channel, terms, node.now())
            perform(node, tx, stored, channel, step, terms)

    problem = node.apart(bring_in)
    if problem is None:
        return bool(moved)
    if next_one:
        set_aside(node, next_one[0].outgoing.message_id, problem)
        return True
    if not isinstance(problem, StoreDamaged):
        raise problem
    # The stream itself: whatever waits on it waits for the operator.
    reason = str(problem)[:500]
    with node.transition() as tx:
        open_incident(node, tx, Raise(reason, channel=key))
    return False


def _next_waiting(node: Node, tx: Transaction, key: str) -> StoredOutgoing | None:
    """The first that waits. One that cannot go on holds up what must follow it in order; where
    nothing must, a document and what is whole take turns."""
    found = tx.waiting(key, ASIDE if node.troubled else 1)
    if found and is_whole(found[0]) and not node.troubled:
        found = tx.waiting(key, ASIDE)
    document = None
    for stored in found:
        fit = node.troubled.get(stored.outgoing.message_id, 0) <= node.now()
        if fit and not is_whole(stored):
            return document if document is not None and key not in node.part_went else stored
        if fit and document is None and may_go_on(node, tx, stored):
            document = stored
        if not _may_be_passed(node, tx, stored):
            return document
    return document


def _may_be_passed(node: Node, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Unless it is known that no order is agreed, nothing passes."""
    try:
        terms = node.terms_of(tx, stored.outgoing.terms_id)
    except StoreDamaged:
        return False
    if is_whole(stored) and terms.numbered and not stamps_at_entry(terms):
        return False
    return not terms.ordered


def enter(
    node: Node, tx: Transaction, stored: StoredOutgoing, channel: SendingChannel, terms: Terms
) -> None:
    """Give a waiting message its number, build its bytes and begin its first attempt."""
    now = stamp = node.now()
    before = channel
    if stored.relayed_from is not None or stamps_at_entry(terms):
        # A hub's copy has no timestamp of this hop yet; they rise strictly along the stream.
        channel, stamp = channel.stamp(now)
    entered = enter_window(stored.outgoing, channel, terms, now)
    parcel = build_numbered(node, tx, stored, entered.outgoing, terms, stamp)
    addresses = addresses_for(node, tx, stored, terms.transports)
    step = first_attempt(node, tx, stored, entered, terms, now, addresses)
    perform(node, tx, stored, before, step, terms, parcel=parcel, addresses=addresses)
    relieve(node, tx, stored.outgoing.message_id)


def set_aside(node: Node, message_id: str, problem: Exception) -> None:
    """A step of this message was undone: call the operator, once, and look at it again later."""
    if not isinstance(problem, OncewireError):
        logger.error("a step of a message failed", exc_info=problem)
    until = node.troubled[message_id] = node.now() + LOOK_AGAIN

    def look_later(tx: Transaction) -> None:
        stored = tx.outgoing(message_id)
        if stored is not None and stored.outgoing.state is OutgoingState.OUTSTANDING:
            tx.save_outgoing(replace(stored.outgoing, next_attempt_at=until))

    # Each for itself: a message whose row cannot be read must be named all the same.
    raised = Raise(f"it cannot go on: {problem}"[:400], message_id)
    if isinstance(problem, StoreDamaged) and problem.channel is not None:
        # The trouble of a stream is not that of each message on it.
        raised = Raise(str(problem)[:500], channel=problem.channel)
    elif isinstance(problem, StoreDamaged):
        verb = f"; mended, it goes on by itself; else `oncewire abandon {message_id}`"
        raised = replace(raised, reason=raised.reason + verb)
    with node.transition() as tx:
        open_incident(node, tx, raised)
    trouble = node.apart(look_later)
    if trouble is not None:
        # Not even its timer can be set; it is passed over until the next start.
        node.stuck.add(message_id)
        logger.error("a message is stuck", extra={"message_id": message_id}, exc_info=trouble)


def look_again(node: Node) -> None:
    """Give those that waited for somebody to mend something another chance."""
    now = node.now()
    due = [message_id for message_id, until in node.troubled.items() if 0 < until <= now]
    if not due:
        return
    for message_id in due:
        try:
            with node.transition() as tx:
                stored = tx.outgoing(message_id)
        except StoreDamaged:
            # It is still damaged, and named.
            node.troubled[message_id] = now + LOOK_AGAIN
            continue
        node.stuck.discard(message_id)
        if stored is None or stored.outgoing.state in FINAL_OUTGOING:
            del node.troubled[message_id]
        elif stored.outgoing.state is not OutgoingState.WAITING:
            # Its own timer brings it up.
            node.troubled[message_id] = NEVER
        elif stored.outgoing.channel is not None:
            node.troubled[message_id] = 0
            node.admissions[stored.outgoing.channel] = None


def look_again_at_all(node: Node) -> None:
    """The commit failed: those that were let go on since the last one were not."""
    let_go = [message_id for message_id, until in node.troubled.items() if not until]
    node.troubled |= dict.fromkeys((*let_go, *node.relieved), 1)
