"""Transmit: what is due goes out, what came of it goes back into the protocol."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.handler.node import IN_FLIGHT_MAX, Node
from oncewire.handler.perform import load_channel, perform
from oncewire.message.fault import Error, Severity
from oncewire.protocol.sender import (
    attempt_due,
    deadline_passed,
    error_arrived,
    transmission_ended,
    transmission_failed,
)
from oncewire.store.contract import Transaction

BATCH = 256
"""How many due messages one turn looks at: enough to fill a commit, few enough to stay fair."""


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


def transmit_due(node: Node, tx: Transaction) -> int:
    """Begin the attempts that are due, as many as there is room for; returns how many
    messages were looked at."""
    now, room = node.now(), node.room
    if room < 1:
        return 0
    looked_at = 0
    # Of so many, enough are not under way already.
    for message_id in tx.due(now, IN_FLIGHT_MAX):
        if looked_at == room:
            break
        if message_id in node.in_flight:
            # One attempt at a time: a slow transmission is not overtaken by its own retry.
            continue
        stored = tx.outgoing(message_id)
        if stored is None:
            continue
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        channel = load_channel(tx, stored.outgoing)
        step = attempt_due(stored.outgoing, channel, terms, now)
        perform(node, tx, stored, channel, step, terms)
        looked_at += 1
    return looked_at


def expire_due(node: Node, tx: Transaction) -> int:
    """End every message whose TimeToLive or persistDuration has passed."""
    now = node.now()
    expired = tx.expired(now, BATCH)
    for message_id in expired:
        stored = tx.outgoing(message_id)
        if stored is None:
            continue
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        channel = load_channel(tx, stored.outgoing)
        step = deadline_passed(stored.outgoing, channel, terms, now)
        perform(node, tx, stored, channel, step, terms)
    return len(expired)


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
        step = transmission_ended(stored.outgoing, channel, terms)
    elif ended.retry_after is not None:
        # HTTP 503 + Retry-After is the transport's twin of a Transient Error (part D).
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
            certain=ended.certain,
            reason=ended.reason,
        )
    perform(node, tx, stored, channel, step, terms)
