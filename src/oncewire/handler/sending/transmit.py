"""Transmit: what is due goes out, what came of it goes back into the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from oncewire.handler.documents.original import is_whole
from oncewire.handler.node import IN_FLIGHT_MAX, NEVER, Node
from oncewire.handler.perform import load_channel, perform, perform_effects, way_to
from oncewire.handler.route import addresses_for
from oncewire.handler.sealing.spooled import read_head
from oncewire.handler.sending.admit import LOOK_AGAIN, set_aside
from oncewire.message.envelope import MessageKind
from oncewire.message.fault import Error, Severity
from oncewire.message.quick import quick
from oncewire.protocol.effects import Transmit
from oncewire.protocol.sender import (
    attempt_due,
    deadline_passed,
    error_arrived,
    transmission_ended,
    transmission_failed,
)
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

DELEGATED_MAX = 100_000
"""How many messages that live are looked at for those that a transport was trusted with."""

BATCH = 256
"""How many due messages one turn looks at: enough to fill a commit, few enough to stay fair."""


@quick
@dataclass(frozen=True, slots=True)
class Transmission:
    """How one attempt ended, as far as the transport can tell."""

    message_id: str
    attempt: int
    sent: bool
    # Only where not sent: whether it certainly did not get across.
    certain: bool = False
    reason: str = ""
    # The receiver asked to come back after so many seconds.
    retry_after: int | None = None
    # Where it went, and where a reply therefore comes from.
    address: str = ""


def transmit_due(node: Node) -> None:
    """Begin the attempts that are due, as many as there is room for."""
    room = node.room
    if room < 1:
        return
    with node.transition() as tx:
        # Of so many, enough are not under way already.
        due = tx.due(node.now(), IN_FLIGHT_MAX + len(node.stuck))
    # One attempt at a time: a slow transmission is not overtaken by its own retry.
    free = [due_id for due_id in due if due_id not in node.in_flight and due_id not in node.stuck]
    for message_id in free[:room]:
        _step(node, message_id, _attempt)


def take_up_delegated(node: Node, tx: Transaction) -> None:
    """After a restart: what a reliable transport was trusted with it is asked about again (RM-7).

    It is given the same bytes under the same attempt; what it has already it does not take twice.
    """
    bindings = (binding for deal in node.agreements for binding in deal.bindings())
    if node.at_rest or all(
        binding.terms.runs_protocol or not binding.terms.reliable for binding in bindings
    ):
        return
    for message_id in tx.expired(NEVER, DELEGATED_MAX):
        stored = tx.outgoing(message_id)
        if stored is None or stored.outgoing.state is not OutgoingState.OUTSTANDING:
            continue
        terms, outgoing = node.terms_of(tx, stored.outgoing.terms_id), stored.outgoing
        if terms.reliable and not terms.runs_protocol and outgoing.attempts:
            again = Transmit(message_id, outgoing.attempts, outgoing.transport_name(terms))
            node.taken_up.add(message_id)
            perform_effects(node, tx, stored, outgoing, (again,), terms)


def expire_due(node: Node) -> None:
    """End every message whose TimeToLive or persistDuration has passed; none while it is not
    known what time it is."""
    with node.transition() as tx:
        expired = [] if node.in_doubt else tx.expired(node.now(), BATCH + len(node.stuck))
    for message_id in expired:
        if message_id not in node.stuck:
            _step(node, message_id, _expire)


def _step(
    node: Node,
    message_id: str,
    step: Callable[[Node, Transaction, StoredOutgoing], None],
) -> None:
    """One message's step in a transition of its own: its trouble delays nobody else."""

    def in_its_own(tx: Transaction) -> None:
        stored = tx.outgoing(message_id)
        if stored is not None:
            step(node, tx, stored)

    problem = node.apart(in_its_own)
    if problem is not None:
        set_aside(node, message_id, problem)


def _attempt(node: Node, tx: Transaction, stored: StoredOutgoing) -> None:
    terms, now = node.terms_of(tx, stored.outgoing.terms_id), node.now()
    if is_whole(stored):
        # It was set aside: only its parts travel, and the next one may.
        tx.save_outgoing(replace(stored.outgoing, next_attempt_at=None))
        node.releasing[stored.outgoing.message_id] = None
        return
    deadline = stored.outgoing.deadline(terms)
    if deadline is not None and now >= deadline and node.in_doubt:
        # Neither may it be sent nor may it be called expired.
        tx.save_outgoing(replace(stored.outgoing, next_attempt_at=now + LOOK_AGAIN))
        return
    channel = load_channel(tx, stored.outgoing)
    addresses = addresses_for(node, tx, stored, terms.transports)
    way = way_to(node, tx, stored, terms, addresses)
    step = attempt_due(stored.outgoing, channel, terms, now, way)
    perform(node, tx, stored, channel, step, terms, addresses=addresses)


def _expire(node: Node, tx: Transaction, stored: StoredOutgoing) -> None:
    terms = node.terms_of(tx, stored.outgoing.terms_id)
    channel = load_channel(tx, stored.outgoing)
    step = deadline_passed(stored.outgoing, channel, terms, node.now())
    perform(node, tx, stored, channel, step, terms)


def _is_unacknowledged(node: Node, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Whether this is the notice of a failure that its receiver has no acknowledgement for, so
    that whoever took it from the transport has it (C33)."""
    if stored.facts.kind is not MessageKind.ERROR:
        return False
    parcel = tx.outgoing_parcel(stored.outgoing.message_id)
    return (
        parcel is not None and not read_head(node.store.spool, parcel, node.limits).message.reliable
    )


def transmission_over(node: Node, tx: Transaction, ended: Transmission) -> None:
    """Take the transport's word on an attempt. A reply, if any, is received separately."""
    node.in_flight.discard(ended.message_id)
    stored = tx.outgoing(ended.message_id)
    if stored is None:
        return
    terms = node.terms_of(tx, stored.outgoing.terms_id)
    channel = load_channel(tx, stored.outgoing)
    now = node.now()
    if ended.sent:
        last_word = _is_unacknowledged(node, tx, stored)
        step = transmission_ended(stored.outgoing, channel, terms, is_last_word=last_word)
    elif ended.retry_after is not None:
        # HTTP 503 + Retry-After is the transport's twin of a Transient Error
        # (docs/decisions.md#extensions).
        error = Error(
            "TransientError", Severity.WARNING, "", ended.reason, min_retry_secs=ended.retry_after
        )
        step = error_arrived(stored.outgoing, channel, terms, now, error=error, error_id="")
    else:
        step = transmission_failed(
            stored.outgoing,
            channel,
            terms,
            now,
            attempt=ended.attempt,
            # Whether the run before had given it to the transport, nobody knows.
            certain=ended.certain and ended.message_id not in node.taken_up,
            reason=ended.reason,
        )
    perform(node, tx, stored, channel, step, terms)
