"""Lists of messages: what is asked for in people's words, and what is shown of each that is found.

The command line, programs and other processes ask with the same words (`Asked`), and get the same
values (`ListedMessage`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from oncewire.entry.messages.outlook import held_up, progress, tries
from oncewire.entry.messages.timing import Usual, is_slow, took, usual
from oncewire.entry.party.names import Names
from oncewire.errors import InvalidValue, NotHere
from oncewire.message.ids import check_text
from oncewire.message.instant import Duration, Instant, parse_instant
from oncewire.message.kinds import read_duration
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.contract import Reader
from oncewire.store.records import StoredIncoming, StoredOutgoing
from oncewire.store.search import LOOKED_AT, TAKEN_OVER, Place, Search, listed_state
from oncewire.store.transition.rows import FINAL_INCOMING, STORED_INCOMING

OUT, IN = "out", "in"

LIMIT = 50
"""Messages of one page, where nothing else is said."""

TIMED = 500
"""Messages that are looked at for the slow ones among them."""

COUNTED = 2_000
"""Messages that are counted where no time is named."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_SHOWN = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?\Z", re.ASCII)
_END = "end"
_PLACE = r"(start|end|-?\d{1,18}\.\d{1,18})"
_CURSOR = re.compile(rf"{_PLACE}_{_PLACE}\Z", re.ASCII)


class Asked(Struct, frozen=True, kw_only=True):
    """What is asked for; empty: it does not matter."""

    text: str = ""
    partner: str = ""
    conversation: str = ""
    service: str = ""
    action: str = ""
    # Several between commas.
    state: str = ""
    since: str = ""
    until: str = ""
    file: str = ""
    value: str = ""
    parts: bool = False
    # Sent more than once, or come more than once.
    again: bool = False
    # It took, or waits, longer than is usual for its partner.
    slow: bool = False
    # Those that took longest first, of the newest TIMED.
    slowest: bool = False


class ListedMessage(Struct, frozen=True):
    """One message of a list.

    `direction`: `out`, it was sent from here; `in`, it arrived here.
    `at`: when it was submitted or received, in microseconds since 1970.
    `partner`: the name of the other side, or its PartyId where it has none.
    `service`, `action`, `conversation_id`, `cpa_id`: as its header has them.
    `message_id`: its MessageId.
    `state`: where it stands; `taken_over`: a hub has it and answers for it, and its receiver has
    not said that it got it. `reason`: why, where that says more.
    `tries`: how often it was sent; None of what arrived, and of a document that travels in parts.
    `size`: bytes of its documents.
    `took`: from submission to its outcome, or from arrival until the application confirmed it, in
    microseconds; None: it waits still. `copies`: how many copies of it came and were stopped.
    """

    direction: str
    at: Instant
    message_id: str
    partner: str
    service: str
    action: str
    state: str
    tries: int | None
    size: int
    reason: str
    conversation_id: str
    cpa_id: str
    took: Duration | None = None
    copies: int = 0


class MessagePage(Struct, frozen=True):
    """A page of what was found.

    `messages`: the messages, newest first.
    `after`: what the next page is asked for with; empty: that was all. A page may hold fewer
    messages than were asked for, or none, and not be the last: however many are kept, one question
    looks at some thousands of them.
    `tally`: where it was asked for, how many there are in all: `out.delivered`, `in.confirmed` and
    so on, those that are there. `whole`: whether that is all of them, or only of the newest
    thousands.
    """

    messages: tuple[ListedMessage, ...]
    after: str = ""
    tally: dict[str, int] = {}
    whole: bool = True


def list_messages(
    reader: Reader,
    names: Names,
    asked: Asked,
    directions: Sequence[str],
    now: Instant,
    limit: int = LIMIT,
    after: str = "",
) -> MessagePage:
    """One page of what is asked for."""
    if asked.slowest:
        plain = replace(asked, slowest=False)
        timed = list_messages(reader, names, plain, directions, now, TIMED, after)
        ranked = sorted(timed.messages, key=lambda each: _lasted(each, now), reverse=True)
        return replace(timed, messages=tuple(ranked[:limit]))
    if asked.slow:
        return _slow_ones(reader, names, asked, directions, now, limit, after)
    search, states = understood(asked, names, directions, now)
    places = dict(zip((OUT, IN), _places(after), strict=True))
    sides = [_Side(each, places[each]) for each in (OUT, IN) if each in directions]
    for side in sides:
        if side.ended or (asked.state and not states[side.direction]):
            side.fill((), None)
            continue
        meant = replace(search, states=tuple(states[side.direction]))
        if side.direction == OUT:
            sent = reader.find_sent(meant, limit, side.place)
            side.fill([_sent(reader, one, names) for one in sent.messages], sent.after)
        else:
            arrived = reader.find_received(meant, limit, side.place)
            side.fill([_arrived(reader, one, names) for one in arrived.messages], arrived.after)
    page: list[ListedMessage] = []
    while len(page) < limit:
        left = [side for side in sides if side.left]
        if not left:
            break
        newest = max(left, key=lambda side: side.left[0][0].at)
        page.append(newest.take())
    ends = {side.direction: side.cursor() for side in sides}
    on = f"{ends.get(OUT, _END)}_{ends.get(IN, _END)}"
    return MessagePage(tuple(page), "" if on == f"{_END}_{_END}" else on)


def _slow_ones(
    reader: Reader,
    names: Names,
    asked: Asked,
    directions: Sequence[str],
    now: Instant,
    limit: int,
    after: str,
) -> MessagePage:
    """Those that took, or wait, longer than is usual for their partners."""
    known: dict[tuple[str, str], Usual | None] = {}

    def is_late(each: ListedMessage) -> bool:
        whose = (each.direction, each.partner)
        if whose not in known:
            known[whose] = usual(reader, each.direction, _parties(names, each.partner))
        return is_slow(_lasted(each, now), known[whose])

    # Slow ones are few, as a rule; where they are not, fewer are looked at.
    plain, looked_at = replace(asked, slow=False), max(TIMED, limit)
    while True:
        page = list_messages(reader, names, plain, directions, now, looked_at, after)
        found = tuple(filter(is_late, page.messages))
        if len(found) <= limit:
            return MessagePage(found, page.after)
        looked_at = max(limit, looked_at // 2)


def _parties(names: Names, partner: str) -> tuple[str, ...]:
    try:
        return names.parties(partner)
    except NotHere:
        # A party of whom no file is there is called by its PartyId.
        return (partner,)


def _lasted(message: ListedMessage, now: Instant) -> Duration:
    if message.took is not None:
        return message.took
    return 0 if message.state in _ENDED else max(0, now - message.at)


_ENDED = {state.value for state in (*FINAL_OUTGOING, *FINAL_INCOMING)} | {TAKEN_OVER}


def counted_page(
    reader: Reader,
    names: Names,
    asked: Asked,
    directions: Sequence[str],
    now: Instant,
    limit: int = LIMIT,
    after: str = "",
    *,
    counted: bool,
) -> MessagePage:
    """One page of what is asked for and, if that is asked for too, how many there are."""
    page = list_messages(reader, names, asked, directions, now, limit, after)
    if not counted:
        return page
    found, whole = tally(reader, names, asked, directions, now)
    return replace(page, tally=found, whole=whole)


def tally(
    reader: Reader, names: Names, asked: Asked, directions: Sequence[str], now: Instant
) -> tuple[dict[str, int], bool]:
    """How many there are of what is asked for, by direction and state, whatever they took; and
    whether all were counted."""
    search, states = understood(asked, names, directions, now)
    most = COUNTED if search.since is None else LOOKED_AT
    found, whole = dict[str, int](), True
    for each in directions:
        if asked.state and not states[each]:
            continue
        meant = replace(search, states=tuple(states[each]))
        counted = (reader.count_sent if each == OUT else reader.count_received)(meant, most)
        found |= {f"{each}.{state}": count for state, count in sorted(counted.states.items())}
        whole = whole and counted.whole
    return found, whole


def every_page(
    reader: Reader, names: Names, asked: Asked, directions: Sequence[str], now: Instant, limit: int
) -> tuple[list[ListedMessage], str]:
    """So many messages, however many have to be looked at for them, and where it goes on."""
    found: list[ListedMessage] = []
    after = ""
    while True:
        wanted = limit - len(found)
        page = list_messages(reader, names, asked, directions, now, wanted, after)
        found += page.messages
        after = page.after
        if not after or len(found) >= limit:
            return found, after


Listed = tuple[ListedMessage, Place]


class _Side:
    """What was found in one direction, and how much of it is on the page."""

    def __init__(self, direction: str, place: Place | str | None) -> None:
        self.direction = direction
        self.ended = place == _END
        self.place = place if isinstance(place, Place) else None
        self.left: list[Listed] = []
        self._after: Place | None = None

    def fill(self, found: Sequence[Listed], after: Place | None) -> None:
        """These were found, and it goes on there."""
        self.left, self._after = list(found), after

    def take(self) -> ListedMessage:
        """The next of them, for the page."""
        message, self.place = self.left.pop(0)
        return message

    def cursor(self) -> str:
        """Where the next page begins."""
        if not self.left:
            if self._after is None:
                return _END
            self.place = self._after
        return "start" if self.place is None else f"{self.place.at}.{self.place.number}"


def _sent(reader: Reader, stored: StoredOutgoing, names: Names) -> Listed:
    facts, sent = stored.facts, stored.outgoing
    message = ListedMessage(
        OUT,
        sent.submitted_at,
        sent.message_id,
        names(facts.to_party, facts.cpa_id),
        facts.service,
        facts.action,
        listed_state(sent),
        tries(stored),
        facts.size,
        held_up(reader, stored) or progress(reader, stored),
        facts.conversation_id,
        facts.cpa_id,
        took(stored, reader.journal_marks(sent.message_id)),
    )
    return message, Place(sent.submitted_at, stored.position)


def _arrived(reader: Reader, stored: StoredIncoming, names: Names) -> Listed:
    facts, incoming = stored.facts, stored.incoming
    marks = reader.journal_marks(incoming.message_id)
    copies = marks.get(Kind.DUPLICATE.value)
    message = ListedMessage(
        IN,
        incoming.received_at,
        incoming.message_id,
        names(facts.from_party, facts.cpa_id),
        facts.service,
        facts.action,
        incoming.state.value,
        None,
        facts.size,
        "",
        facts.conversation_id,
        facts.cpa_id,
        took(stored, marks),
        0 if copies is None else copies.count,
    )
    return message, Place(incoming.received_at, stored.row)


# --- what people write -------------------------------------------------------------------------


def understood(
    asked: Asked, names: Names, directions: Sequence[str], now: Instant
) -> tuple[Search, dict[str, list[str]]]:
    """What is asked for, as the store takes it, and the states in each direction; InvalidValue and
    NotHere name what is not understood."""
    for name, said in asdict(asked).items():
        if isinstance(said, str):
            # A command line may hold bytes that are no UTF-8.
            check_text(said, name)
    since, until = (instant_of(text, now) if text else None for text in (asked.since, asked.until))
    if since is not None and until is not None and since >= until:
        raise InvalidValue(
            "since is not before until, so nothing can be meant",
            remedy="give the earlier of the two as since",
        )
    known = {
        OUT: [*(state.value for state in OutgoingState), TAKEN_OVER],
        IN: [state.value for state in STORED_INCOMING],
    }
    words = [word.strip().lower() for word in asked.state.split(",") if word.strip()]
    for word in words:
        if not any(word in known[direction] for direction in directions):
            there = dict.fromkeys(state for each in directions for state in known[each])
            raise InvalidValue(
                f"there is no state {word[:40]!r}", remedy=f"use one of {', '.join(there)}"
            )
    return Search(
        text=asked.text,
        partners=names.parties(asked.partner) if asked.partner else (),
        conversation_id=asked.conversation,
        service=asked.service,
        action=asked.action,
        since=since,
        until=until,
        file_name=asked.file,
        value=asked.value,
        parts=asked.parts,
        again=asked.again,
    ), {each: [word for word in words if word in known[each]] for each in (OUT, IN)}


def instant_of(text: str, now: Instant) -> Instant:
    """A time, also as lists show it, a day (its beginning, in UTC), or how long ago."""
    try:
        if _DATE.match(text):
            return parse_instant(f"{text}T00:00:00Z")[0]
        if shown := _SHOWN.match(text):
            return parse_instant(f"{shown[1]}T{shown[2]}{shown[3] or ':00'}Z")[0]
        if text[:1].isdigit() and "T" in text:
            return parse_instant(text)[0]
        return now - read_duration(text)
    except InvalidValue:
        raise InvalidValue(
            f"{text[:40]!r} is no time",
            remedy="write a time such as 2026-01-05T10:00:00Z, a day such as 2026-01-05, or how "
            'long ago: "90m", "24h", "7d"',
        ) from None


def _places(after: str) -> Iterator[Place | str | None]:
    found = _CURSOR.match(after or "start_start")
    if found is None:
        raise InvalidValue(
            f"after is no place in a list: {after[:40]!r}",
            remedy="give what the page before it has as `after`",
        )
    for word in found.groups():
        at, _, number = word.partition(".")
        yield Place(int(at), int(number)) if number else None if word == "start" else word
