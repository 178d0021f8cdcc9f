"""Release: messages that were held until their turn came, and the end of waiting for a gap."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from oncewire.errors import (
    OncewireError,
    StoreCorrupt,
    StoreDamaged,
    StoreFull,
    StoreGone,
    StoreProblem,
)
from oncewire.handler.actions import Decided, Ready
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.view import accepted
from oncewire.handler.hub.next_hop import go_on, resume_stranded_hops
from oncewire.handler.perform import (
    DAMAGED,
    STORE,
    follow,
    open_incident,
    resolve_incidents,
    withhold,
)
from oncewire.handler.receiving.gathering import gathered
from oncewire.handler.receiving.reports import is_for_us, take_it
from oncewire.handler.route import agreement_for
from oncewire.message.instant import MINUTE, Duration
from oncewire.protocol.notes import Abandoned, Note, Raise, Resolve, Resumed
from oncewire.protocol.receiver import close_number, give_up_gap, hold_deadline
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import IncomingEvent, IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing

LOOK_EVERY: Duration = MINUTE
"""How often held messages are looked at; they wait for hours, so a minute is exact enough."""

BATCH = 256


def release(
    context: HandlerContext, tx: Transaction, key: str, message_ids: tuple[str, ...]
) -> None:
    """These held messages of a channel may go: to the application, or to the next hop."""
    for message_id in message_ids:
        for held in tx.incoming_by_id(message_id):
            if held.incoming.state is IncomingState.HELD and held.incoming.channel == key:
                _release_one(context, tx, held)


def release_old(
    context: HandlerContext,
    tx: Transaction,
    channel: ReceivingChannel | None,
    message_ids: tuple[str, ...],
) -> int:
    """Let go those of an epoch that is over; they come first. Returns how many there were."""
    old = 0
    if channel is not None:
        for message_id in message_ids:
            held = tx.incoming_by_id(message_id)
            if all(stored.incoming.epoch == channel.epoch for stored in held):
                break
            old += 1
        release(context, tx, channel.key, message_ids[:old])
    return old


def _release_one(context: HandlerContext, tx: Transaction, held: StoredIncoming) -> None:
    if not context.is_ours(tx, held):
        go_on(context, tx, held)
        return
    if held.facts.split_number is not None:
        part = held.incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.GATHERED)
        tx.save_incoming(part)
        # A part is not confirmed: what held it up is over with this.
        resolve_incidents(context, tx, Resolve(part.message_id), part.channel)
        gathered(context, tx, replace(held, incoming=part))
        return
    ready = held.incoming.moved(IncomingEvent.GAP_CLOSED, IncomingState.READY)
    if is_for_us(held.incoming.message_id, held.facts.kind):
        # Its turn has come too.
        try:
            message = accepted(context, held)
        except OncewireError as problem:
            withhold(context, tx, held, problem)
        else:
            tx.save_incoming(ready)
            take_it(context, tx, message, replace(held, incoming=ready))
        return
    tx.save_incoming(ready)
    context.state.actions.append(Ready(1))


def give_up_gaps(context: HandlerContext) -> None:
    """Hand over what has waited longer than its missing predecessors can still be sent."""
    now = context.now()
    if now < context.state.gaps_due_at:
        return
    context.state.gaps_due_at = now + LOOK_EVERY
    if context.in_doubt:
        return
    context.logged_step(
        lambda tx: resume_stranded_hops(context, tx), "messages that wait here do not go on"
    )
    with context.transition() as tx:
        held = tx.held(BATCH)
    for stored in held:
        problem = context.isolated_step(partial(_give_up_if_late, context, stored))
        if problem is not None:
            # Looked at again with the next look; those of other streams are not delayed.
            raised = Raise(f"it cannot go on: {problem}"[:500], stored.incoming.message_id)
            with context.transition() as tx:
                open_incident(context, tx, raised, stored.incoming)


def _give_up_if_late(context: HandlerContext, stored: StoredIncoming, tx: Transaction) -> None:
    incoming, terms = stored.incoming, context.terms_of(tx, stored.incoming.terms_id)
    if context.now() < hold_deadline(incoming.received_at, terms):
        return
    if incoming.channel is None or incoming.number is None:
        return
    channel = tx.receiving_channel(incoming.channel)
    waits = channel is not None and any(
        held_message.number == incoming.number for held_message in channel.held
    )
    if channel is None or not waits:
        # Released together with an earlier one of this look.
        return
    freed = give_up_gap(channel, incoming.number, terms)
    follow(context, tx, freed.channel, freed.effects)
    release(context, tx, incoming.channel, freed.deliver)


# Poison: a message that cannot be read any more, or that the application refuses.
#
# One that cannot be read harms no other. It stays where it is, an incident names it, and what
# must come after it in order waits; where no order is agreed the others go on. Put back from a
# backup it goes on by itself. Otherwise the operator gives it up: a sent one is told to its
# application as failed, a received one is never handed over, its number is skipped, and the
# journal says who decided that. So it is with a message that the application was offered and never
# confirms: it is lost by the word of a person whose name is kept, and nothing calls it confirmed.


_WAITING = (IncomingState.HELD, IncomingState.READY, IncomingState.HANDED_OVER)
HELD_MAX = 10_000


def survey(context: HandlerContext, tx: Transaction) -> None:
    """At a start: call the operator for what no verb would come across."""
    for found in tx.damaged():
        side = "sent" if found.sent else "received"
        verb = (
            "restore the party from a backup"
            if found.message_id is None
            else f"put its row back from a backup, or `oncewire abandon {found.message_id}`"
        )
        reason = f"a {side} message is damaged: {found.problem}; {verb}"
        channel = DAMAGED if found.message_id is None else None
        open_incident(context, tx, Raise(reason, found.message_id, channel))
        if found.sent and found.message_id is not None:
            # Put back while we run, it is found with the next look.
            context.state.troubled.setdefault(found.message_id, 1)


def call_operator(
    context: HandlerContext, tx: Transaction, problem: StoreProblem, message_id: str | None = None
) -> None:
    """The store cannot give or keep something. `message_id`: whose trouble that is, where the
    problem itself does not say."""
    channel, reason = None, str(problem)[:500]
    if isinstance(problem, StoreDamaged):
        message_id, channel = problem.message_id or message_id, problem.channel
    if channel is None and message_id is None:
        waits = isinstance(problem, StoreFull | StoreGone) and not isinstance(problem, StoreCorrupt)
        channel = STORE if waits else DAMAGED
        if not waits:
            reason += f"; when that is done, `oncewire resume --channel '{DAMAGED}'`"
    open_incident(context, tx, Raise(reason, message_id, channel))


def give_up_received(
    context: HandlerContext, tx: Transaction, message_id: str, by: str | None = None
) -> bool:
    """The operator, called `by`, gives up what arrived and cannot be read, or what the application
    was offered and did not confirm; False: there is nothing like that, and what the application
    has not seen is its own to take."""
    try:
        found = tx.incoming_by_id(message_id)
    except StoreDamaged:
        found = []
    hopeless = [
        kept
        for kept in found
        if kept.incoming.state in _WAITING
        and (kept.incoming.hand_overs > 0 or not _reads(context, tx, kept))
    ]
    if not found and tx.mend(message_id):
        hopeless = tx.incoming_by_id(message_id)
    for stored in hopeless:
        if stored.incoming.state in _WAITING:
            _close(context, tx, stored, by)
    return bool(hopeless)


def _reads(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether it could be handed over."""
    try:
        # Bytes that read well are no use without the terms they are filed under.
        context.terms_of(tx, stored.incoming.terms_id)
        accepted(context, stored, at_once=True)
    except (StoreFull, StoreGone, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - damaged bytes may be anything
        return False
    return True


def _close(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming, by: str | None
) -> None:
    terms = last_terms(context, tx, stored)
    before = replace(stored.incoming, terms_id=context.keep_terms(tx, terms))
    incoming = before.closed()
    tx.save_incoming(incoming)
    offered = before.hand_overs > 0
    why = "the application does not take it" if offered else "it cannot be read any more"
    given_up = Note(Abandoned(by or "operator", why), incoming.message_id)
    context.write(tx, [given_up], terms_id=incoming.terms_id, peer=stored.peer)
    try:
        channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    except StoreDamaged as problem:
        # It has an incident of its own, and is made anew without this one.
        call_operator(context, tx, problem)
        channel = None
    if channel is not None:
        why = "damaged, and given up by the operator"
        follow(context, tx, *close_number(before, channel, why))
    resolve_incidents(context, tx, Resolve(incoming.message_id), incoming.channel)
    context.state.actions += [Decided(incoming.sender, incoming.message_id), Ready(1)]


def last_terms(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming | StoredOutgoing
) -> Terms:
    """The terms a message is ended under: its own or, where they cannot be read, those that are
    agreed today."""
    state = stored.outgoing if isinstance(stored, StoredOutgoing) else stored.incoming
    try:
        return context.terms_of(tx, state.terms_id)
    except OncewireError:
        agreement = agreement_for(context, stored.facts.cpa_id, stored.peer)
        if agreement is None:
            return Terms()
        sent = isinstance(stored, StoredOutgoing)
        return (agreement.sending if sent else agreement.receiving).terms


def find_to_end(tx: Transaction, message_id: str) -> StoredOutgoing | None:
    """A sent message that an operator wants to end, mended as far as that needs."""
    try:
        return tx.outgoing(message_id)
    except StoreDamaged:
        tx.mend(message_id)
        return tx.outgoing(message_id)


def mend_channel(context: HandlerContext, tx: Transaction, key: str) -> bool:
    """The operator has a damaged stream made anew from its messages; False: it is not damaged."""
    if not tx.mend_channel(key):
        return False
    sending = tx.sending_channel(key)
    if sending is not None:
        tx.save_sending_channel(_counted(context, tx, sending))
        context.state.admissions[key] = None
    receiving = tx.receiving_channel(key)
    if receiving is not None:
        held = [
            Held(stored.incoming.number, stored.incoming.message_id)
            for stored in tx.held(HELD_MAX)
            if stored.incoming.channel == key
            and stored.incoming.epoch == receiving.epoch
            and stored.incoming.number is not None
        ]
        tx.save_receiving_channel(replace(receiving, held=tuple(held)))
    context.write(tx, [Note(Resumed("operator"), channel=key)])
    resolve_incidents(context, tx, Resolve(channel=key))
    return True


def _counted(context: HandlerContext, tx: Transaction, channel: SendingChannel) -> SendingChannel:
    """A stream at its sender with every number settled that no message waits for any more. Its
    epoch ends: what the receiver noted of it is not known exactly."""
    live = [stored for stored in tx.live(channel.key) if stored.outgoing.epoch == channel.epoch]
    waiting = {stored.outgoing.number for stored in live}
    if not live:
        return replace(channel, first_unsettled=channel.next_number)
    terms = last_terms(context, tx, live[0])
    number, left = channel.first_unsettled, channel.span(terms)
    for _ in range(left):
        if number not in waiting:
            channel = channel.settle(number, terms)
        number = terms.numbers.after(number)
    return channel
