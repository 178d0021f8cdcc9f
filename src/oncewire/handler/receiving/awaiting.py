"""Awaiting: requests whose connection waits for the application's response, and the end of that.

The request is stored in a first commit, and its connection waits. The application is asked outside
any transaction. A second commit stores its response (`sending.respond`), and only then the reply
is written.
"""

from __future__ import annotations

import heapq

from oncewire.errors import StoreDamaged
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.deliver import FOR_EVER
from oncewire.handler.perform import withhold
from oncewire.handler.receiving.gathering import awaits_join
from oncewire.handler.receiving.release import follow
from oncewire.handler.sending.answer import (
    NOTHING,
    Answer,
    Awaited,
    answer_error,
)
from oncewire.handler.sending.respond import Request, ack_waits, is_awaited
from oncewire.protocol.notes import Note, Refused
from oncewire.protocol.receiver import close_number
from oncewire.protocol.states import IncomingState
from oncewire.protocol.synchronous import (
    TIMEOUT_MESSAGE,
    answerable_after_restart,
    late_warning,
    timeout_error,
)
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming

_GONE = "the connection that waited for its response is gone"


def reply_to(context: HandlerContext, tx: Transaction, awaited: Awaited) -> Answer | None:
    """The reply as the store has it; None: there is none yet."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is None:
        return NOTHING
    if is_awaited(context, tx, stored) or awaits_join(tx, stored):
        return None
    return NOTHING if stored.answer is None else Answer(200, stored.answer.parcel)


def overdue(context: HandlerContext, tx: Transaction, awaited: Awaited) -> Answer:
    """The application did not answer in time (SYNC-17).

    Where the request may be repeated it is stored for good: it is acknowledged with a warning,
    and the response follows on its own. Where it may not, its initiator has nothing left to
    wait for: what was not handed over yet never will be (SYNC-18).
    """
    known = reply_to(context, tx, awaited)
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is not None and awaits_join(tx, stored):
        # The next copy of it finds its answer.
        return NOTHING
    request = None if stored is None else Request.read(context, tx, stored)
    if known is not None or request is None:
        return known or NOTHING
    if answerable_after_restart(request.terms):
        if request.owed.owed:
            request.save_ack(late_warning())
            return reply_to(context, tx, awaited) or NOTHING
    elif request.stored.incoming.state is not IncomingState.HANDED_OVER:
        _close(context, tx, request.stored, TIMEOUT_MESSAGE)
    errors = (timeout_error(), *request.warnings)
    report = answer_error(context, request.message, request.agreement, errors, request.plan)
    return NOTHING if report is None else Answer(200, report.parcel)


def close_if_alone(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Close a request that only its connection could answer when no connection waits for it:
    its initiator has given up, and must not hear of it in another way (SYNC-18)."""
    incoming = stored.incoming
    if _is_waited_for(context, stored):
        return False
    if not is_awaited(context, tx, stored):
        return False
    if answerable_after_restart(context.terms_of(tx, incoming.terms_id)):
        return False
    _close(context, tx, stored, _GONE)
    return True


def _is_waited_for(context: HandlerContext, stored: StoredIncoming) -> bool:
    """Whether a connection waits for its response, here or at another handler."""
    key = stored.incoming.sender, stored.incoming.message_id
    return key in context.state.replying or key in context.elsewhere("reply")


def left_alone(context: HandlerContext, tx: Transaction, awaited: Awaited) -> None:
    """A connection has gone before its response; what the application is called with now it
    may still take."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is not None and stored.incoming.state is not IncomingState.HANDED_OVER:
        close_if_alone(context, tx, stored)


def take_up_waiting(context: HandlerContext, tx: Transaction) -> None:
    """After a restart the connections are gone, and what only they could answer is over;
    acknowledgements that waited for a response have waited long enough."""
    for stored in (*tx.ready(FOR_EVER, 10_000), *tx.held(10_000)):
        try:
            terms = context.terms_of(tx, stored.incoming.terms_id)
        except StoreDamaged as problem:
            withhold(context, tx, stored, problem)
            continue
        if _is_waited_for(context, stored):
            continue
        if is_awaited(context, tx, stored) and not answerable_after_restart(terms):
            _close(context, tx, stored, _GONE)
        elif ack_waits(context, tx, stored):
            incoming = stored.incoming
            heapq.heappush(
                context.state.acks_waiting, (context.now(), incoming.sender, incoming.message_id)
            )


def _close(context: HandlerContext, tx: Transaction, stored: StoredIncoming, problem: str) -> None:
    """Never hand a request over, and settle its number, so that its stream goes on."""
    incoming = stored.incoming.closed()
    tx.save_incoming(incoming)
    note = Note(
        Refused("DeliveryFailure", "Warning", problem=problem),
        incoming.message_id,
        stored.facts.ref_to,
        incoming.channel,
    )
    context.write(
        tx,
        [note],
        terms_id=incoming.terms_id,
        peer=stored.peer,
        digest=incoming.digest,
        size=stored.facts.size,
    )
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    if channel is not None:
        settled, effects = close_number(stored.incoming, channel)
        follow(context, tx, settled, effects)
