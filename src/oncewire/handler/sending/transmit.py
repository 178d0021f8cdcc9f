"""Transmit: what is due goes out, what came of it goes back into the protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import OncewireError, StoreDamaged
from oncewire.handler.context import IN_FLIGHT_MAX, NEVER, HandlerContext
from oncewire.handler.encryption import read_head
from oncewire.handler.perform import (
    WAY,
    first_attempt,
    load_channel,
    open_incident,
    perform,
    perform_effects,
    relieve,
    resolve_incidents,
    way_key,
    way_to,
)
from oncewire.handler.route import addresses_for, peer_label, route_under, stamps_at_entry
from oncewire.handler.sending.outgoing_document import is_whole
from oncewire.handler.sending.parts import enter_next, may_go_on
from oncewire.handler.sending.seal import build_numbered
from oncewire.message.envelope import Error, MessageKind, Severity
from oncewire.message.instant import MINUTE, Duration
from oncewire.protocol.notes import Raise, Resolve, Transmit
from oncewire.protocol.sender import (
    ANSWERS_AGAIN,
    attempt_due,
    deadline_passed,
    enter_window,
    error_arrived,
    may_hurry,
    resume,
    transmission_ended,
    transmission_failed,
)
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.protocol.terms import ResetRule, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

# Admit: waiting messages enter the window of their channel, each in a transition of its own.
#
# A message gets its number, its bytes and its first attempt when there is a place for it, which
# may be long after it was submitted: its agreement may be gone or narrowed, its key may be
# missing. That is its own trouble. It waits with an incident and is looked at again, and neither
# the message that made the place nor anybody else is delayed by it. Only what must come after it
# in order waits too.


logger = logging.getLogger("oncewire.handler")

LOOK_AGAIN: Duration = MINUTE
"""How long a message that cannot go on is left alone; then it may have been mended."""

ASIDE = 256
"""How many messages are looked at to find one that may pass those that cannot go on."""


def admit_waiting(context: HandlerContext) -> None:
    """Fill the windows that have places, in order of submission."""
    while context.state.admissions:
        key = next(iter(context.state.admissions))
        del context.state.admissions[key]
        while _admit_one(context, key):
            pass


def _admit_one(context: HandlerContext, key: str) -> bool:
    """Bring the next one in; False when there is none, or no place for it."""
    next_one: list[StoredOutgoing] = []
    moved: list[StoredOutgoing] = []

    def bring_in(tx: Transaction) -> None:
        channel = tx.sending_channel(key)
        stored = None if channel is None else _next_waiting(context, tx, key)
        if channel is None or stored is None:
            return
        next_one.append(stored)
        if stored.damage:
            raise StoreDamaged(stored.damage, message_id=stored.outgoing.message_id)
        terms = context.terms_of(tx, stored.outgoing.terms_id)
        if channel.places(terms) < 1:
            return
        deadline = stored.outgoing.deadline(terms)
        if deadline is None or context.now() < deadline:
            moved.append(stored)
            if is_whole(stored):
                context.state.part_went.add(key)
                enter_next(context, tx, stored, channel, terms)
                relieve(context, tx, stored.outgoing.message_id)
            else:
                context.state.part_went.discard(key)
                enter(context, tx, stored, channel, terms)
        elif not context.in_doubt:
            # It expired while it waited: it must not use up a number.
            moved.append(stored)
            step = deadline_passed(stored.outgoing, channel, terms, context.now())
            perform(context, tx, stored, channel, step, terms)

    problem = context.isolated_step(bring_in)
    if problem is None:
        return bool(moved)
    if next_one:
        set_aside(context, next_one[0].outgoing.message_id, problem)
        return True
    if not isinstance(problem, StoreDamaged):
        raise problem
    # The stream itself: whatever waits on it waits for the operator.
    reason = str(problem)[:500]
    with context.transition() as tx:
        open_incident(context, tx, Raise(reason, channel=key))
    return False


def _next_waiting(context: HandlerContext, tx: Transaction, key: str) -> StoredOutgoing | None:
    """The first that waits. One that cannot go on holds up what must follow it in order; where
    nothing must, a document and what is whole take turns."""
    found = tx.waiting(key, ASIDE if context.state.troubled else 1)
    if found and is_whole(found[0]) and not context.state.troubled:
        found = tx.waiting(key, ASIDE)
    document = None
    for stored in found:
        fit = context.state.troubled.get(stored.outgoing.message_id, 0) <= context.now()
        if fit and not is_whole(stored):
            return (
                document if document is not None and key not in context.state.part_went else stored
            )
        if fit and document is None and may_go_on(context, tx, stored):
            document = stored
        if not _may_be_passed(context, tx, stored):
            return document
    return document


def _may_be_passed(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Unless it is known that no order is agreed, nothing passes."""
    try:
        terms = context.terms_of(tx, stored.outgoing.terms_id)
    except StoreDamaged:
        return False
    # The parts of a document have the timestamps that follow its own, and what was submitted later
    # passes none. Where restarts are silent that may be v0-078, which has no timestamp of the hop.
    told_apart = stamps_at_entry(terms) and terms.reset is not ResetRule.SILENT
    return not terms.ordered and (told_apart or not (is_whole(stored) and terms.numbered))


def enter(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    channel: SendingChannel,
    terms: Terms,
) -> None:
    """Give a waiting message its number, build its bytes and begin its first attempt."""
    now = stamp = context.now()
    before = channel
    if stored.relayed_from is not None or stamps_at_entry(terms):
        # A hub's copy has no timestamp of this hop yet; they rise strictly along the stream.
        channel, stamp = channel.stamp(now)
    entered = enter_window(stored.outgoing, channel, terms, now)
    parcel = build_numbered(context, tx, stored, entered.outgoing, terms, stamp)
    addresses = addresses_for(context, tx, stored, terms.transports)
    step = first_attempt(context, tx, stored, entered, terms, now, addresses)
    perform(context, tx, stored, before, step, terms, parcel=parcel, addresses=addresses)
    relieve(context, tx, stored.outgoing.message_id)


def set_aside(context: HandlerContext, message_id: str, problem: Exception) -> None:
    """A step of this message was undone: call the operator, once, and look at it again later."""
    if not isinstance(problem, OncewireError):
        logger.error("a step of a message failed", exc_info=problem)
    until = context.state.troubled[message_id] = context.now() + LOOK_AGAIN
    context.state.trouble_changed.append(message_id)

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
    with context.transition() as tx:
        open_incident(context, tx, raised)
    trouble = context.isolated_step(look_later)
    if trouble is not None:
        # Not even its timer can be set; it is passed over until the next start.
        context.state.stuck.add(message_id)
        logger.error("a message is stuck", extra={"message_id": message_id}, exc_info=trouble)


def look_again(context: HandlerContext) -> None:
    """Give those that waited for a repair another chance."""
    now = context.now()
    due = [message_id for message_id, until in context.state.troubled.items() if 0 < until <= now]
    if not due:
        return
    for message_id in due:
        try:
            with context.transition() as tx:
                stored = tx.outgoing(message_id)
        except StoreDamaged:
            # It is still damaged, and named.
            context.state.troubled[message_id] = now + LOOK_AGAIN
            continue
        context.state.stuck.discard(message_id)
        if stored is None or stored.outgoing.state in FINAL_OUTGOING:
            del context.state.troubled[message_id]
        elif stored.outgoing.state is not OutgoingState.WAITING:
            # Its own timer brings it up.
            context.state.troubled[message_id] = NEVER
        elif stored.outgoing.channel is not None:
            context.state.troubled[message_id] = 0
            context.state.admissions[stored.outgoing.channel] = None


def recheck_waiting(context: HandlerContext) -> None:
    """The commit failed: what was let go on or set aside since the last one was not, and its
    incident is neither closed nor open. Each is tried anew."""
    let_go = [message_id for message_id, until in context.state.troubled.items() if not until]
    context.state.troubled |= dict.fromkeys((*let_go, *context.state.trouble_changed), 1)


DELEGATED_MAX = 100_000
"""How many messages that live are looked at for those that a transport was trusted with."""

BATCH = 256
"""How many due messages one turn looks at: enough to fill a commit, few enough to stay fair."""


class Transmission(Struct, frozen=True, gc=False):
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
    # What carried it; a message may have been put on another transport meanwhile.
    transport: str | None = None


def transmit_due(context: HandlerContext) -> None:
    """Begin the attempts that are due, as many as there is room for."""
    room = context.room
    if room < 1:
        return
    with context.transition() as tx:
        elsewhere = context.elsewhere("send")
        # Of so many, enough are not under way already.
        limit = IN_FLIGHT_MAX + len(context.state.stuck) + len(elsewhere)
        due = tx.due(context.now(), limit)
    # One attempt at a time: a slow transmission is not overtaken by its own retry.
    free = [
        due_id
        for due_id in due
        if due_id not in context.state.in_flight
        and due_id not in context.state.stuck
        and ("", due_id) not in elsewhere
    ]
    for message_id in free[:room]:
        _step(context, message_id, _attempt)


def take_up_delegated(context: HandlerContext, tx: Transaction) -> None:
    """After a restart: what a reliable transport was trusted with it is asked about again (RM-7).

    It is given the same bytes under the same attempt; what it has already it does not take twice.
    """
    bindings = (binding for deal in context.agreements for binding in deal.bindings())
    if context.at_rest or all(
        binding.terms.runs_protocol or not binding.terms.reliable for binding in bindings
    ):
        return
    for message_id in tx.expired(NEVER, DELEGATED_MAX):
        stored = tx.outgoing(message_id)
        if stored is None or stored.outgoing.state is not OutgoingState.OUTSTANDING:
            continue
        terms, outgoing = context.terms_of(tx, stored.outgoing.terms_id), stored.outgoing
        if ("", message_id) in context.elsewhere("send") or message_id in context.state.delegated:
            continue
        if terms.reliable and not terms.runs_protocol and outgoing.attempts:
            again = Transmit(message_id, outgoing.attempts, outgoing.transport_name(terms))
            context.state.taken_up.add(message_id)
            perform_effects(context, tx, stored, outgoing, (again,), terms)


def expire_due(context: HandlerContext) -> None:
    """End every message whose TimeToLive or persistDuration has passed; none while it is not
    known what time it is."""
    with context.transition() as tx:
        expired = (
            [] if context.in_doubt else tx.expired(context.now(), BATCH + len(context.state.stuck))
        )
    for message_id in expired:
        if message_id not in context.state.stuck:
            _step(context, message_id, _expire)


def _step(
    context: HandlerContext,
    message_id: str,
    step: Callable[[HandlerContext, Transaction, StoredOutgoing], None],
) -> None:
    """One message's step in a transition of its own: its trouble delays no other."""

    def in_its_own(tx: Transaction) -> None:
        stored = tx.outgoing(message_id)
        if stored is not None:
            step(context, tx, stored)

    problem = context.isolated_step(in_its_own)
    if problem is not None:
        set_aside(context, message_id, problem)


def _attempt(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    terms, now = context.terms_of(tx, stored.outgoing.terms_id), context.now()
    if is_whole(stored):
        # It was set aside: only its parts travel, and the next one may.
        tx.save_outgoing(replace(stored.outgoing, next_attempt_at=None))
        context.state.releasing[stored.outgoing.message_id] = None
        return
    deadline = stored.outgoing.deadline(terms)
    if deadline is not None and now >= deadline and context.in_doubt:
        # Neither may it be sent nor may it be called expired.
        again = now + min(LOOK_AGAIN, terms.retry_interval)
        tx.save_outgoing(replace(stored.outgoing, next_attempt_at=again))
        return
    channel = load_channel(tx, stored.outgoing)
    addresses = addresses_for(context, tx, stored, terms.transports)
    way = way_to(context, tx, stored, terms, addresses)
    step = attempt_due(stored.outgoing, channel, terms, now, way)
    perform(context, tx, stored, channel, step, terms, addresses=addresses)


def _expire(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    channel = load_channel(tx, stored.outgoing)
    step = deadline_passed(stored.outgoing, channel, terms, context.now())
    perform(context, tx, stored, channel, step, terms)


def _is_unacknowledged(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Whether this is the notice of a failure that its receiver has no acknowledgement for, so
    that whoever took it from the transport has it (C33)."""
    if stored.facts.kind is not MessageKind.ERROR:
        return False
    parcel = tx.outgoing_parcel(stored.outgoing.message_id)
    return (
        parcel is not None
        and not read_head(context.store.spool, parcel, context.limits).message.reliable
    )


def transmission_over(context: HandlerContext, tx: Transaction, ended: Transmission) -> None:
    """Take the transport's word on an attempt. A reply, if any, is received separately."""
    context.state.in_flight.discard(ended.message_id)
    stored = tx.outgoing(ended.message_id)
    if stored is None:
        return
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    channel = load_channel(tx, stored.outgoing)
    now = context.now()
    # Whether the partner answers, as far as an attempt tells.
    peer = stored.peer
    contacts = context.state.contacts
    if ended.sent:
        contacts.sent(peer, ended.message_id, now)
    elif ended.retry_after is not None:
        contacts.later(peer, ended.message_id, now)
    else:
        contacts.failed(peer, ended.message_id, now, ended.reason, certain=ended.certain)
    if ended.sent:
        last_word = _is_unacknowledged(context, tx, stored)
        step = transmission_ended(stored.outgoing, channel, terms, is_last_word=last_word)
    elif ended.retry_after is not None:
        # HTTP 503 + Retry-After is the transport's twin of a Transient Error
        # (docs/explanation/decisions.md#extensions).
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
            # It is unknown whether the run before had given it to the transport.
            certain=ended.certain and ended.message_id not in context.state.taken_up,
            reason=ended.reason,
            transport=ended.transport,
        )
    perform(context, tx, stored, channel, step, terms)


HURRIED_AT_ONCE = 64
"""Messages that one commit sends again because their receiver answers again; the next ones follow
in the next."""


def hurry(context: HandlerContext) -> None:
    """Send again at once what could not be sent to partners that answer again: their retries start
    anew, as by an operator's word. Each in a transition of its own."""
    for message_id in context.state.contacts.returning(context.now(), HURRIED_AT_ONCE):
        if message_id not in context.state.in_flight and message_id not in context.state.troubled:
            _step(context, message_id, _hurry)


def _hurry(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    terms, now = context.terms_of(tx, stored.outgoing.terms_id), context.now()
    channel = load_channel(tx, stored.outgoing)
    stands = channel is not None and (channel.suspended or channel.paused_until > now)
    way = way_to(context, tx, stored, terms, addresses_for(context, tx, stored, terms.transports))
    elsewhere = ("", stored.outgoing.message_id) in context.elsewhere("send")
    if is_whole(stored) or stands or elsewhere or context.in_doubt:
        return
    if may_hurry(stored.outgoing, terms, now, way):
        step = resume(stored.outgoing, channel, terms, now, ANSWERS_AGAIN)
        perform(context, tx, stored, channel, step, terms)


# Ways: transports that messages have left, and how they are taken again.
#
# A message that has used up its retries on one transport goes on with the next that is agreed, and
# those that begin after it do not try the first in vain. The first is probed, which costs nobody a
# message; once that gets through, messages begin there again. What is open is kept as incidents,
# so that a restart knows it too.


@dataclass(frozen=True, slots=True)
class LeftWay:
    """A transport to one receiver that is not used for now."""

    peer: str
    transport: str
    address: str


def take_up(context: HandlerContext) -> None:
    """Remember what an earlier run had left."""
    with context.store.reader() as reader:
        keys = [incident.channel or "" for incident in reader.incidents()]
    for key in keys:
        if key.startswith(WAY):
            transport, _, peer = key.removeprefix(WAY).partition(" to ")
            context.state.left.add((peer, transport))


PROBED_MAX = 64
"""Silent partners that are probed at once, those first that have been silent the longest."""


def left_ways(context: HandlerContext) -> list[LeftWay]:
    """What is to be probed, as far as there is an address for it today: transports that messages
    have left, and the first one that is agreed to partners that are silent."""
    silent = context.state.contacts.longest_silent(PROBED_MAX)
    found: dict[tuple[str, str], LeftWay] = {}
    if not silent and not context.state.left:
        return []
    for agreement in context.agreements:
        route = route_under(agreement, agreement.sending)
        for transport in route.terms.transports:
            key, address = (peer_label(agreement), transport), route.address(transport)
            first = transport == route.terms.transports[0] and key[0] in silent
            if address is not None and (first or key in context.state.left):
                found[key] = LeftWay(*key, address)
    return list(found.values())


def take_again(context: HandlerContext, way: LeftWay) -> None:
    """A probe got through, or an operator says that it would."""
    context.state.contacts.answered(way.peer, context.now())
    if (way.peer, way.transport) not in context.state.left:
        return
    context.state.left.discard((way.peer, way.transport))
    with context.transition() as tx:
        resolve_incidents(context, tx, Resolve(channel=way_key(way.peer, way.transport)))
