"""Retain: messages that nobody needs any more go, with their files; vain answers end.

What may go is the store's to say (`Transaction.sweep`). When is decided here: a minute after the
start and then every hour, a batch in each turn, so that a handler that was away for long neither
grows for ever nor stands still while it clears away.

Files of the spool follow in a turn of their own, when the sweep that removed their messages is
durable: a file that went before its row would be lost if that commit failed. What is committed
names the files that stay. What is not committed yet (a body that just arrived, bytes that were
just sealed) and what is under way is counted as in use by the spool itself, from before it has
its name until its commit is done, and is left alone whatever the store says. Asking the store
and removing are one step of the one thread that commits, so nothing can be committed between
them.
"""

from __future__ import annotations

import logging

from oncewire.handler.node import NEVER, Node
from oncewire.message.instant import HOUR, MINUTE, SECOND, Duration
from oncewire.store.contract import Transaction

logger = logging.getLogger("oncewire.handler")

FIRST_SWEEP: Duration = MINUTE
"""After a start, what is due to be sent comes first."""

SWEEP_EVERY: Duration = HOUR

BATCH = 100
"""How many messages one turn removes at most; the next one goes on. Such a turn takes some 10 ms
where messages have a few kilobytes, and up to a third of a second where all have a megabyte."""

FILES = 2_000
"""How many files one look at the spool removes at most."""


def begin(node: Node) -> None:
    """Plan the first sweep of this run."""
    node.sweep_due_at = node.now() + FIRST_SWEEP


def sweep(node: Node, tx: Transaction) -> None:
    """Remove a batch of what nobody needs any more, and say when to go on."""
    now = node.now()
    ended, gone = end_answers(node, tx), tx.sweep(now, BATCH)
    if BATCH in (ended, gone):
        node.sweep_due_at = now
        return
    node.sweep_due_at = now + SWEEP_EVERY
    # Not in this turn: the files go when it is durable that nobody names them.
    node.clean_due_at = now + SECOND


def end_all_answers(node: Node, tx: Transaction) -> None:
    """At a start: all that nobody waits for any more, if it is known what time it is."""
    while not node.in_doubt and end_answers(node, tx) == BATCH:
        pass


def end_answers(node: Node, tx: Transaction) -> int:
    """Owe no more what nobody waits for: answers that could not be posted within
    persistDuration. Their sender resends no more, so it will never ask for them."""
    overdue = tx.answers_overdue(node.now(), BATCH)
    for stored in overdue:
        incoming = stored.incoming
        tx.answer_left(incoming.sender, incoming.message_id)
        if stored.answered:
            logger.info(
                "an answer could not be posted within persistDuration and is given up",
                extra={"message_id": incoming.message_id, "peer": stored.peer},
            )
    return len(overdue)


def clean_spool(node: Node) -> None:
    """Remove the files that no message is made of any more; those of refused bodies and
    of a process that died before its commit go with them."""
    node.clean_due_at = NEVER
    with node.store.reader() as reader:
        named = reader.spooled()
    if node.store.spool.remove_unreferenced(named, FILES) > 0:
        # There may have been more than could go at once.
        node.clean_due_at = node.now() + MINUTE
