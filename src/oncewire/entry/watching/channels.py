"""Channels as pages and programs see them: both windows, drawn as what they are.

A number is one cell of a window. At the sender it is acknowledged, in flight or suspended; at the
receiver it was received (and is in the duplicate window), is held because an earlier one is
missing, or is that gap. Of each direction a bounded number of channels is told, those that stand
still first, and of each window a bounded number of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from oncewire.message.instant import Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SLIDES_RANGE
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader
from oncewire.store.records import StoredOutgoing

LOOKED_AT = 1_000
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
    for stored in reader.outgoing_list(limit=LOOKED_AT):
        latest.setdefault(stored.outgoing.channel or "", stored.outgoing.terms_id)
    waiting: dict[str, int] = {}
    for stored in reader.outgoing_list(states=UNDER_WAY, limit=LOOKED_AT):
        live.setdefault(stored.outgoing.channel or "", []).append(stored)
    for stored in reader.outgoing_list(states=(OutgoingState.WAITING,), limit=LOOKED_AT):
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
    busy = [each.outgoing.channel for each in reader.outgoing_list(states=states, limit=LOOKED_AT)]
    gaps = reader.incoming_list(states=(IncomingState.HELD,), limit=LOOKED_AT)
    first = reader.channels(limit)
    out = {channel.key: channel for channel in first[0]}
    for key in dict.fromkeys([*stopped[:LOOKED_AT], *busy]):
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
