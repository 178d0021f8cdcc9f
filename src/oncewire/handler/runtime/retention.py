"""Retention: messages that are not needed any more go, with their files; vain answers end.

What may go is the store's to say (`Transaction.sweep`). When is decided here: a minute after the
start and then every hour, a batch in each turn, so that a handler that was away for long neither
grows for ever nor stands still while it clears away.

Files of the spool follow in a turn of their own, when the sweep that removed their messages is
durable: a file that went before its row would be lost if that commit failed. What is committed
names the files that stay. What is not committed yet (a body that just arrived, bytes that were just
sealed) and what is under way is counted as in use by the spool itself, from before it has its name
until its commit is done, and is left alone whatever the store says. Asking the store and removing
are one step of the one thread that commits, so nothing can be committed between them.
"""

from __future__ import annotations

import logging

from oncewire.errors import NotAllowed
from oncewire.handler.context import NEVER, HandlerContext
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.message.instant import HOUR, MINUTE, SECOND, Duration, Instant
from oncewire.protocol.notes import CLOCK_VERDICTS, ClockSet, Note, Raise, Resolve, Trimmed
from oncewire.store.contract import Transaction

logger = logging.getLogger("oncewire.handler")

FIRST_SWEEP: Duration = MINUTE
"""After a start, what is due to be sent comes first."""

SWEEP_EVERY: Duration = HOUR

BATCH = 100
"""How many messages one turn removes at most; the next one goes on. Such a turn takes some 10 ms
where messages have a few kilobytes, and up to a third of a second where all have a megabyte."""

TRIMMED_AT_ONCE = 2_000
"""How many rows of the journal one turn removes at most."""

FILES = 2_000
"""How many files one look at the spool removes at most."""


def begin_retention(context: HandlerContext) -> None:
    """Plan the first sweep of this run."""
    context.state.sweep_due_at = context.now() + FIRST_SWEEP


def sweep(context: HandlerContext, tx: Transaction) -> None:
    """Remove a batch of what is not needed any more, and say when to go on."""
    now = context.now()
    ended, gone = end_answers(context, tx), tx.sweep(now, BATCH)
    # What an earlier version wrote is filed now, a batch in each turn.
    if BATCH in (ended, gone) or tx.index():
        context.state.sweep_due_at = now
        return
    context.state.sweep_due_at = now + SWEEP_EVERY
    # Not in this turn: the files go when it is durable that no row names them.
    context.state.clean_due_at = now + SECOND


def trim_journal(context: HandlerContext, tx: Transaction, before: Instant, through: int) -> int:
    """Remove a batch of rows from the journal's beginning: older than `before`, and none behind
    the position `through`. Returns how many; 0: the first row has to stay.

    A row stays as long as the message that it is about is kept, and so does all that follows it:
    a journal has one beginning, and no holes.
    """
    last = 0
    gone: set[str] = set()
    with context.store.reader() as reader:
        rows = reader.journal_since(0, TRIMMED_AT_ONCE)
    for row in rows:
        if row.at >= before or row.seq > through:
            break
        if row.message_id is not None and row.message_id not in gone:
            if tx.outgoing(row.message_id) is not None or tx.incoming_by_id(row.message_id):
                break
            gone.add(row.message_id)
        last = row.seq
    removed = tx.trim_journal(NEVER, last) if last else 0
    if removed:
        context.write(tx, [Note(Trimmed(removed, last))])
    return removed


def end_all_answers(context: HandlerContext, tx: Transaction) -> None:
    """At a start: all that is not awaited any more, if it is known what time it is."""
    while not context.in_doubt and end_answers(context, tx) == BATCH:
        pass


def end_answers(context: HandlerContext, tx: Transaction) -> int:
    """Owe no more what is not awaited: answers that could not be posted within
    persistDuration. Their sender resends no more, so it will never ask for them."""
    overdue = tx.answers_overdue(context.now(), BATCH)
    for stored in overdue:
        incoming = stored.incoming
        tx.answer_left(incoming.sender, incoming.message_id)
        if stored.answered:
            logger.info(
                "an answer could not be posted within persistDuration and is given up",
                extra={"message_id": incoming.message_id, "peer": stored.peer},
            )
    return len(overdue)


def clean_spool(context: HandlerContext) -> None:
    """Remove the files that no message is made of any more; those of refused bodies and
    of a process that died before its commit go with them."""
    context.state.clean_due_at = NEVER
    with context.store.reader() as reader:
        named = reader.spooled()
    if context.store.spool.remove_unreferenced(named, FILES) > 0:
        # There may have been more than could go at once.
        context.state.clean_due_at = context.now() + MINUTE


# Clock: what a node does when the machine's clock is set.
#
# The timeline says that the clocks differ; here that is written down, the operator is called, and
# the time is followed when that is safe or when the operator says so.


IN_DOUBT, AGREED, ACCEPTED, CORRECTED = CLOCK_VERDICTS


def begin_clock(context: HandlerContext) -> None:
    """Take the time up where the last run left it."""
    with context.store.reader() as reader:
        rows = reader.journal_since(max(0, reader.last_seq() - 1), 1)
        # An incident that names neither message nor channel is the clock's.
        told = any(
            incident.message_id is None and incident.channel is None
            for incident in reader.incidents()
        )
    context.state.timeline.begin(context.world, rows[-1] if rows else None, told)


def watch(context: HandlerContext) -> None:
    """Write down what the clocks did since the last look, if anything."""
    context.now()
    if not context.state.timeline.restless:
        return
    with context.transition() as tx:
        if context.in_doubt:
            _call_operator(context, tx)
            return
        told = context.state.timeline.told
        by = context.follow_clock(tx)
        _write(context, tx, by, AGREED if told else CORRECTED)
        if told:
            resolve_incidents(context, tx, Resolve())


def accept(context: HandlerContext, tx: Transaction) -> None:
    """The operator says that the machine's clock is right."""
    context.now()
    if not context.in_doubt and not context.state.timeline.told:
        raise NotAllowed(
            "the clock is not in doubt",
            remedy="there is nothing to accept; `oncewire doctor` looks",
        )
    by = context.follow_clock(tx)
    _write(context, tx, by, ACCEPTED)
    resolve_incidents(context, tx, Resolve())


def _call_operator(context: HandlerContext, tx: Transaction) -> None:
    _write(context, tx, context.state.timeline.ahead, IN_DOUBT)
    context.state.timeline.doubt()
    call_again(context, tx)


def call_again(context: HandlerContext, tx: Transaction) -> None:
    """Have an incident open while the clock is in doubt. Handlers of one store share it, and it is
    closed when the clock of one of them is accepted, whatever that of another says."""
    if context.in_doubt and context.state.timeline.told:
        by = context.state.timeline.ahead
        problem = (
            f"the clock was set by {_signed(by)}: nothing is declared expired or cleared away "
            "until it is set right, or until `oncewire clock accept` says that it is right"
        )
        open_incident(context, tx, Raise(problem))


def _write(context: HandlerContext, tx: Transaction, by: Duration, verdict: str) -> None:
    context.write(tx, [Note(ClockSet(by, verdict, context.state.by))])


def _signed(by: Duration) -> str:
    return f"{by / SECOND:+.0f} s"


# Wake: when a node's timers have something to do next.


def next_wake(context: HandlerContext, now: Instant) -> Instant:
    """When the earliest of them has; `now` where there is something already."""
    wake = context.store.next_wake(context.state.in_flight)
    looks = min(context.state.gaps_due_at, context.state.sweep_due_at, context.state.clean_due_at)
    looks = min(looks, context.state.fellows_due_at)
    looks = min([looks, *filter(None, context.state.troubled.values())])
    if context.state.acks_waiting:
        looks = min(looks, context.state.acks_waiting[0][0])
    for due_at in (context.state.refusals.due_at, context.state.contacts.due_at):
        if due_at is not None:
            looks = min(looks, due_at)
    first = looks if wake is None else min(wake, looks)
    if context.state.timeline.restless or context.state.repost_after is not None:
        return now
    if first <= now and (context.in_doubt or context.state.stuck):
        # What is due and may not be served now must not keep the handler busy.
        return max(first, context.state.ticked_at + SECOND)
    return first
