"""Snapshot: what a watcher sees of a running handler at one moment, and whether it is ready.

It is taken in one step of the handler's loop, which copies what is in memory and reads a bounded
number of rows, however many messages are kept; everything that takes longer (certificates, the
files of the spool) is done by the caller, in a thread of its own. Metrics, alerts and the overview
for pages and programs are made of it.

A process that starts handlers again asks whether one lives; one that leads partners to them asks
whether it is ready. A silent partner, or a certificate that runs out, is no reason to start
anything again: it is a doubt, which is told beside the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, field

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import facts
from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.files import number_of, size_of
from oncewire.entry.messages.outlook import incidents_of
from oncewire.entry.party.names import Names
from oncewire.errors import HandlerFailed, OncewireError
from oncewire.handler.contacts import Contact
from oncewire.handler.perform import DAMAGED, STORE
from oncewire.handler.route import peer_label
from oncewire.message.instant import SECOND, Duration, Instant, format_instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SLIDES_RANGE
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader
from oncewire.store.records import Incident, Space, StoredOutgoing, Unsettled
from oncewire.transport.budget import TurnsAway, Unserved

if TYPE_CHECKING:
    from oncewire.handler.runtime.handler import Handler


# Channels as pages and programs see them: both windows, drawn as what they are.
#
# A number is one cell of a window. At the sender it is acknowledged, in flight or suspended; at the
# receiver it was received (and is in the duplicate window), is held because an earlier one is
# missing, or is that gap. Of each direction a bounded number of channels is told, those that stand
# still first, and of each window a bounded number of cells.

NEWEST = 1_000
"""Messages without an outcome that are looked at for their places in windows."""

CELLS = 64
"""Numbers of one window that are told."""

UNDER_WAY = (OutgoingState.OUTSTANDING, OutgoingState.SUSPENDED)


class WindowCell(Struct, frozen=True):
    """One number of a window.

    `number`: it. `state`: acknowledged, in_flight, suspended, free, received, refused, held or gap.
    `message_id`: the message that has it, where that is known. `attempts`: how often it was sent.
    `next_attempt_at`: when it is tried again, or its verdict is due, in microseconds since 1970.
    """

    number: int
    state: str
    message_id: str = ""
    attempts: int = 0
    next_attempt_at: Instant | None = None


class ChannelView(Struct, frozen=True):
    """One channel.

    `key`: its name. `direction`: `out` or `in`. `epoch`: how often its numbering began.
    `phase`: what may enter its window. `suspended`: whether it stands still; `reason`: why.
    `suspended_by`: the message whose trouble that was. `paused_until`: until when its receiver
    asked for a pause, in microseconds since 1970; 0: it did not.
    `first`: the first number that is not settled, or the next one to hand over. `next`: the next
    number to give, or the furthest one that came. `window`: how many may be under way; 0: it is not
    known here. `waiting`: messages that have no number yet, at least so many.
    `cells`: numbers of its window.
    """

    key: str
    direction: str
    epoch: int
    phase: str
    suspended: bool
    reason: str
    suspended_by: str
    paused_until: Instant
    first: int
    next: int
    window: int
    waiting: int
    cells: tuple[WindowCell, ...]


def channels_of(reader: Reader, limit: int) -> list[ChannelView]:
    """So many channels of each direction, those that stand still first, then those with messages
    under way; however many there are, some hundreds of them are looked at."""
    sending, receiving = _looked_at(reader, limit)
    sending.sort(
        key=lambda channel: (
            not channel.suspended,
            channel.next_number == channel.first_unsettled,
            channel.key,
        )
    )
    receiving.sort(key=lambda channel: (not channel.held, channel.key))
    live: dict[str, list[StoredOutgoing]] = {}
    latest: dict[str, str] = {}
    for stored in reader.outgoing_list(limit=NEWEST):
        latest.setdefault(stored.outgoing.channel or "", stored.outgoing.terms_id)
    waiting: dict[str, int] = {}
    for stored in reader.outgoing_list(states=UNDER_WAY, limit=NEWEST):
        live.setdefault(stored.outgoing.channel or "", []).append(stored)
    for stored in reader.outgoing_list(states=(OutgoingState.WAITING,), limit=NEWEST):
        key = stored.outgoing.channel or ""
        waiting[key] = waiting.get(key, 0) + 1
    return [
        *(
            _sending(channel, terms, live.get(channel.key, ()), waiting.get(channel.key, 0))
            for channel in sending[:limit]
            for terms in [reader.terms(latest[channel.key]) if channel.key in latest else None]
        ),
        *map(_receiving, receiving[:limit]),
    ]


def _looked_at(reader: Reader, limit: int) -> tuple[list[SendingChannel], list[ReceivingChannel]]:
    """Channels with an open incident or with messages under way, and the first of all by key."""
    stopped = [each.channel for each in reader.incidents() if each.channel is not None]
    states = (*UNDER_WAY, OutgoingState.WAITING)
    busy = [each.outgoing.channel for each in reader.outgoing_list(states=states, limit=NEWEST)]
    gaps = reader.incoming_list(states=(IncomingState.HELD,), limit=NEWEST)
    first = reader.channels(limit)
    out = {channel.key: channel for channel in first[0]}
    for key in dict.fromkeys([*stopped[:NEWEST], *busy]):
        if key is not None and key not in out and (sent := reader.sending_channel(key)):
            out[key] = sent
    into = {channel.key: channel for channel in first[1]}
    for key in dict.fromkeys(each.incoming.channel for each in gaps):
        if key is not None and key not in into and (got := reader.receiving_channel(key)):
            into[key] = got
    return list(out.values()), list(into.values())


def _sending(
    channel: SendingChannel, terms: Terms | None, live: Iterable[StoredOutgoing], waiting: int
) -> ChannelView:
    found = {stored.outgoing.number: stored for stored in live}
    window = 0 if terms is None else terms.window_size
    return ChannelView(
        channel.key,
        "out",
        channel.epoch,
        channel.phase.value,
        channel.suspended,
        channel.suspended_reason,
        channel.suspended_by or "",
        channel.paused_until,
        channel.first_unsettled,
        channel.next_number,
        window,
        waiting,
        tuple(_places(channel, window, found)),
    )


def _places(
    channel: SendingChannel, window: int, live: Mapping[int | None, StoredOutgoing]
) -> Iterator[WindowCell]:
    """The window, with the last numbers before it."""
    numbers = channel.numbers or SLIDES_RANGE
    before = min(channel.used - numbers.distance(channel.first_unsettled, channel.next_number), 4)
    for step in range(-max(before, 0), 0):
        yield WindowCell(numbers.after(channel.first_unsettled, step), "acknowledged")
    given = numbers.distance(channel.first_unsettled, channel.next_number)
    for step in range(min(max(given, window), CELLS)):
        number = numbers.after(channel.first_unsettled, step)
        stored = live.get(number)
        if stored is not None:
            sent = stored.outgoing
            suspended = channel.suspended or sent.state is OutgoingState.SUSPENDED
            state = "suspended" if suspended else "in_flight"
            yield WindowCell(number, state, sent.message_id, sent.attempts, sent.next_attempt_at)
        elif step >= given:
            yield WindowCell(number, "free")
        else:
            yield WindowCell(number, "acknowledged" if number in channel.settled else "in_flight")


def _receiving(channel: ReceivingChannel) -> ChannelView:
    furthest = channel.expected if channel.furthest is None else channel.furthest
    return ChannelView(
        channel.key,
        "in",
        channel.epoch,
        "waits for a number" if channel.held else "in order",
        False,
        "",
        "",
        0,
        channel.expected,
        furthest,
        channel.widest,
        0,
        tuple(_arrivals(channel)),
    )


def _arrivals(channel: ReceivingChannel) -> Iterator[WindowCell]:
    """The duplicate window, as far as it is told, then what came early and what is missing."""
    numbers = channel.numbers or SLIDES_RANGE
    for step in range(-min(channel.passed, channel.widest or 8, 8), 0):
        yield WindowCell(numbers.after(channel.expected, step), "received")
    held = {each.number: each for each in channel.held}
    if channel.furthest is None or not held:
        return
    for step in range(min(numbers.distance(channel.expected, channel.furthest) + 1, CELLS)):
        number = numbers.after(channel.expected, step)
        each = held.get(number)
        if each is None:
            yield WindowCell(number, "gap")
        else:
            state = "refused" if each.refused else "received" if each.handed else "held"
            yield WindowCell(number, state, each.message_id)


LOOKED_AT = 500
"""Unsettled messages of each state that a snapshot reads, those first that wait the longest."""

PATIENCE = 4.0
"""Seconds within which a handler that lives takes a turn."""


class PartnerSeen(Struct, frozen=True, kw_only=True):
    """One partner, as its agreements and this process know it."""

    # The label of its handler, and the PartyId by which commands find it.
    peer: str
    party_id: str
    contact: Contact
    retry_interval: Duration
    # The fullest window of its channels, and how many messages a window holds.
    window_used: int
    window_size: int
    # When the message was submitted that waits the longest for its outcome; None: none waits.
    oldest_at: Instant | None
    # None: it has none that is known here, or an agreement without an end.
    certificate_ends: Instant | None
    agreement_ends: Instant | None
    # Whether messages go to the partner itself, and not to a hub.
    direct: bool

    def is_silent(self, now: Instant, intervals: int) -> bool:
        """Whether nothing was heard of it for so many retry intervals, while attempts failed."""
        since = self.contact.silent_since
        return bool(since) and now - since >= max(intervals * self.retry_interval, SECOND)


class Snapshot(Struct, frozen=True, kw_only=True):
    """A handler that takes turns, at one moment."""

    party: str
    at: Instant
    # Which run of the handler it is.
    boot: str
    # Seconds: how late the loop was in the last minute, and how long a commit takes.
    lag: float
    commit: float
    in_flight: int
    clock_in_doubt: bool
    # The newest row of the journal.
    journal: int
    incidents: Sequence[Incident]
    # Messages that the application is offered and refuses.
    refused: int
    # Messages of strangers, or not as agreed, that were refused.
    strangers: int
    unserved: Counter[Unserved]
    partners: Sequence[PartnerSeen]
    # When our own certificate runs out; None: we have none.
    certificate_ends: Instant | None
    space: Space


def snapshot(handler: Handler, patience: float = PATIENCE) -> Snapshot:
    """See how a handler does; from any thread but that of its loop.

    HandlerFailed where it has failed or does not run, TimeoutError where it takes no turn.
    """
    loop = handler.event_loop
    if handler.loop.failed is not None:
        raise handler.loop.failed
    if loop is None or loop.is_closed():
        raise HandlerFailed("the handler does not run", remedy="start `oncewire serve`")
    copying = asyncio.run_coroutine_threadsafe(
        handler.loop.do("look", lambda: _copied(handler)), loop
    )
    try:
        made = copying.result(patience)
    except TimeoutError:
        copying.cancel()
        raise TimeoutError(f"it has taken no turn for {patience:g} seconds") from None
    return made()


def look(handler: Handler) -> Snapshot:
    """See how a handler does, in the thread of its loop between two of its turns."""
    return handler.loop.look(lambda: _copied(handler))()


def _copied(handler: Handler) -> Callable[[], Snapshot]:
    """Copy what only the handler's loop may read; what is returned makes the snapshot of it."""
    context = handler.engine.context
    with context.store.reader() as reader:
        unsettled = reader.oldest_unsettled(LOOKED_AT)
        incidents, journal = incidents_of(reader, handler.outage), reader.last_seq()
    unserved: Counter[Unserved] = Counter()
    for transport in handler.transports.values():
        if isinstance(transport, TurnsAway):
            unserved.update(transport.unserved())
    contacts = {
        peer: replace(contact, outcomes=contact.outcomes.copy(), unsent={})
        for peer, contact in context.state.contacts.all()
    }
    at, in_doubt, refused = context.now(), context.in_doubt, len(handler.refusals())
    agreements, keys = context.agreements, context.keys

    def made() -> Snapshot:
        return Snapshot(
            party=context.name,
            at=at,
            boot=context.boot,
            lag=handler.supervisor.lag,
            commit=context.store.durable_seconds,
            in_flight=len(context.state.in_flight),
            clock_in_doubt=in_doubt,
            journal=journal,
            incidents=incidents,
            refused=refused,
            strangers=context.state.refusals.total,
            unserved=unserved,
            partners=list(_partners(unsettled, agreements, contacts)),
            certificate_ends=None
            if keys is None
            else int(keys.certificate.not_valid_after_utc.timestamp()) * SECOND,
            space=context.store.space(),
        )

    return made


def _partners(
    unsettled: Iterable[Unsettled], agreements: Iterable[Agreement], contacts: Mapping[str, Contact]
) -> Iterable[PartnerSeen]:
    """One for each handler that agreements lead to, but for our own."""
    oldest: dict[str, Instant] = {}
    windows: Counter[tuple[str, str]] = Counter()
    for one in unsettled:
        oldest[one.peer] = min(one.submitted_at, oldest.get(one.peer, one.submitted_at))
        if one.channel is not None and one.state is OutgoingState.OUTSTANDING:
            windows[one.peer, one.channel] += 1
    fullest: dict[str, int] = {}
    for (peer, _), used in windows.items():
        fullest[peer] = max(used, fullest.get(peer, 0))
    agreed: dict[str, list[Agreement]] = {}
    for agreement in agreements:
        if agreement.own.party.ids != agreement.partner.party.ids:
            agreed.setdefault(peer_label(agreement), []).append(agreement)
    for peer, deals in agreed.items():
        terms = deals[0].sending.terms
        ends = [deal.end for deal in deals if deal.end is not None]
        shown = [end for deal in deals if (end := _certificate_end(deal)) is not None]
        yield PartnerSeen(
            peer=peer,
            party_id=deals[0].partner.party.ids[0].value,
            contact=contacts.get(peer) or Contact(),
            retry_interval=terms.retry_interval,
            window_used=fullest.get(peer, 0),
            window_size=terms.window_size,
            oldest_at=oldest.get(peer),
            certificate_ends=min(shown, default=None),
            # One that was agreed anew may overlap the one before.
            agreement_ends=None if len(ends) < len(deals) else max(ends),
            direct=all(deal.via is None for deal in deals),
        )


def _certificate_end(agreement: Agreement) -> Instant | None:
    """When the partner cannot prove any more who it is. During a roll-over two are valid at once,
    and the older one may run out."""
    partner = agreement.partner
    signs = agreement.receiving.security.partner_certificates
    kinds = (partner.certificates, partner.signing_certificates, signs)
    lasts = [max(filter(None, map(_not_after, ders)), default=None) for ders in kinds]
    return min((last for last in lasts if last is not None), default=None)


@lru_cache(maxsize=4096)
def _not_after(der: bytes) -> Instant | None:
    known = facts(der)
    return None if known is None else known.not_after


# --- the overview and the readiness, for pages and programs ---------------------------------------


class PartnerOverview(Struct, frozen=True):
    """One partner; instants are microseconds since 1970.

    `name`, `party_id`: what it is called here, and in messages.
    `silent_since`: since when attempts fail and nothing is heard, once that has lasted for
    `alerts.silent_intervals` retry intervals; 0: it answers. `reason`: why the last of them failed.
    `through`: the hub that messages to it go to; empty: they go to itself.
    `heard_at`: when anything of it was heard last in this run of the handler; 0: not yet.
    `oldest_at`: when the message was submitted that waits the longest; None: none waits.
    `outcomes`: how attempts of this run ended: sent, refused, unknown, later. `arrivals`: messages
    and signals of it that were believed. `window_used`, `window_size`: the fullest window to it.
    `certificate_ends`, `agreement_ends`: when they run out; None: they do not.
    """

    name: str
    party_id: str
    silent_since: Instant
    reason: str
    heard_at: Instant
    arrivals: int
    outcomes: dict[str, int]
    window_used: int
    window_size: int
    oldest_at: Instant | None
    certificate_ends: Instant | None
    agreement_ends: Instant | None
    through: str = ""


class RefusedMessage(Struct, frozen=True):
    """A message that the application is offered and refuses.

    `message_id`: its MessageId. `count`: how often it was refused. `last_at`: when last, in
    microseconds since 1970. `raised`: what the application raised then.
    """

    message_id: str
    count: int
    last_at: Instant
    raised: str


class Overview(Struct, frozen=True):
    """A handler that takes turns, at one moment; instants are microseconds since 1970.

    `party`: its name. `at`: the moment. `lag`: the longest wait for a turn in the last minute, and
    `commit`: how long commits take, both in seconds. `in_flight`: attempts under way.
    `journal`: its last row. `incidents`: how many are open. `clock_in_doubt`: whether the clock was
    set and nothing may expire. `strangers_refused`: messages of strangers that were refused.
    `certificate_ends`: when our own certificate ends. `disk_free`, `database`, `spool`: bytes.
    `partners`: each of them. `refusals`: what the application refuses.
    """

    party: str
    at: Instant
    lag: float
    commit: float
    in_flight: int
    journal: int
    incidents: int
    clock_in_doubt: bool
    strangers_refused: int
    certificate_ends: Instant | None
    disk_free: int | None
    database: int
    spool: int
    partners: tuple[PartnerOverview, ...]
    refusals: tuple[RefusedMessage, ...]


def overview(handler: Handler, names: Names, silent_intervals: int) -> Overview:
    """See how a handler does; from any thread but that of its loop. `silent_intervals`: after how
    many retry intervals a partner is called silent."""
    seen = snapshot(handler)
    return Overview(
        party=seen.party,
        at=seen.at,
        lag=seen.lag,
        commit=seen.commit,
        in_flight=seen.in_flight,
        journal=seen.journal,
        incidents=len(seen.incidents),
        clock_in_doubt=seen.clock_in_doubt,
        strangers_refused=seen.strangers,
        certificate_ends=seen.certificate_ends,
        disk_free=seen.space.free,
        database=seen.space.database,
        spool=seen.space.spool,
        partners=tuple(_partner(each, names, seen.at, silent_intervals) for each in seen.partners),
        refusals=tuple(
            RefusedMessage(message_id, *told) for message_id, told in handler.refusals().items()
        ),
    )


def _partner(
    seen: PartnerSeen, names: Names, now: Instant, silent_intervals: int
) -> PartnerOverview:
    contact = seen.contact
    return PartnerOverview(
        names(seen.party_id),
        seen.party_id,
        contact.silent_since if seen.is_silent(now, silent_intervals) else 0,
        contact.reason,
        contact.heard_at,
        contact.arrivals,
        {outcome.value: count for outcome, count in contact.outcomes.items()},
        seen.window_used,
        seen.window_size,
        seen.oldest_at,
        seen.certificate_ends,
        seen.agreement_ends,
        "" if seen.direct else names(seen.peer),
    )


SPACE_LOW = 1024**3
"""Bytes that the disk should have free: a full disk stops all messages."""

SPACE_NONE = 64 * 1024**2
"""With less a body of a usual size may not fit any more, and senders are sent away."""


class Readiness(Struct, frozen=True):
    """Whether messages can be taken.

    `ready`: the answer. `reasons`: why it is no. `doubts`: what is wrong besides, and is no reason
    to lead partners elsewhere.
    """

    ready: bool
    reasons: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def readiness(handler: Handler, patience: float = PATIENCE) -> Readiness:
    """Whether the handler can take messages now; from any thread but that of its loop."""
    try:
        seen = snapshot(handler, patience)
    except (OncewireError, TimeoutError) as problem:
        return Readiness(False, [str(problem)])
    return judge(seen)


def judge(seen: Snapshot) -> Readiness:
    """The readiness of what was seen."""
    free = seen.space.free
    full = free is not None and free < SPACE_NONE
    reasons = [f"the disk is full: {size_of(free or 0)} free"] if full else []
    reasons += [each.reason for each in seen.incidents if each.channel in (STORE, DAMAGED)]
    return Readiness(not reasons, reasons, list(_doubts(seen)))


def _doubts(seen: Snapshot) -> Iterator[str]:
    free = seen.space.free
    if free is not None and SPACE_NONE <= free < SPACE_LOW:
        yield f"the disk is nearly full: {size_of(free)} free"
    ends = seen.certificate_ends
    if ends is not None and ends <= seen.at + EXPIRING_SOON:
        word = "ended" if ends <= seen.at else "ends"
        yield f"our own certificate {word} at {format_instant(ends)}"
    silent = sum(bool(partner.contact.silent_since) for partner in seen.partners)
    if silent:
        yield f"{number_of(silent, 'partner', 'is')} silent"
    if seen.refused:
        yield f"the application refuses {number_of(seen.refused, 'message')}"
    if seen.incidents:
        yield f"{number_of(len(seen.incidents), 'incident', 'is')} open"
    if seen.clock_in_doubt:
        yield "the clock is in doubt"
