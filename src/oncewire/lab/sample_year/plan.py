"""The plan of a year: which nodes there are, who sends how much to whom, and what goes wrong.

The plan is small and made anew wherever it is needed, from (messages, seed) alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, cycle, product
from random import Random
from typing import Any

from oncewire.errors import InvalidValue, OncewireError
from oncewire.lab.sample_year.world import Force, Handler, Stream
from oncewire.message.form import AckRequest
from oncewire.message.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, seconds
from oncewire.protocol.sequence import SLIDES_RANGE, SequenceRange
from oncewire.protocol.terms import (
    DuplicateAnswer,
    FlowMode,
    OnExhausted,
    OnGap,
    ResetRule,
    RetryCount,
    Terms,
)

# Terms of the sample year: every pair of policy values that can stand together does somewhere.


# Short ranges, so that numbers wrap around many times in a year.
DIMENSIONS: Mapping[str, tuple[Any, ...]] = {
    "shape": ("plain", "numbered", "ordered", "stop_and_wait", "unrestricted", "best_effort"),
    "way": ("direct", "hub"),
    "window": (2, 4, 16),
    "numbers": (SequenceRange(0, 63), SequenceRange(1, 40), SLIDES_RANGE),
    "reset": tuple(ResetRule),
    "retries": (3, 1, 0),
    "timeout": (seconds(60), seconds(10), seconds(300)),
    "retry_interval": (seconds(120), seconds(30)),
    "retries_counted": tuple(RetryCount),
    "transports": (("http",), ("http", "smtp")),
    "ack_requested": (AckRequest.UNSIGNED, AckRequest.SIGNED),
    "on_exhausted": tuple(OnExhausted),
    "time_to_live": (None, 6 * HOUR),
    "duplicate_answer": tuple(DuplicateAnswer),
    "signed": (False, True),
}

BOUND = ("shape", "way", "window", "numbers", "reset")
"""The dimensions whose values do not all go together."""


@dataclass(frozen=True, slots=True)
class Deal:
    """One choice of values: the terms, and what is no part of them."""

    terms: Terms
    hub: bool
    signed: bool


@cache
def deals() -> tuple[Deal, ...]:
    """Deals in which every possible pair of values occurs: each begins with a pair that is missing,
    and takes of every other dimension what covers most of the rest."""
    missing = {
        (one, a, other, b)
        for one, other in combinations(DIMENSIONS, 2)
        for a in range(len(DIMENSIONS[one]))
        for b in range(len(DIMENSIONS[other]))
    }
    found = []
    while missing:
        one, a, other, b = seed = min(missing)
        chosen = _filled({one: a, other: b}, missing)
        if chosen is None:
            # Values that never stand together.
            missing.discard(seed)
            continue
        missing -= _pairs(chosen)
        deal = _deal({name: DIMENSIONS[name][index] for name, index in chosen.items()})
        if deal is not None:
            found.append(deal)
    return tuple(found)


def _deal(choice: Mapping[str, Any]) -> Deal | None:
    """The deal of a choice; None where the values contradict each other."""
    shape = choice["shape"]
    numbered = shape not in ("plain", "best_effort")
    if choice["way"] == "hub" and shape != "plain":
        return None
    flow = FlowMode.WINDOW
    if shape in ("plain", "unrestricted", "best_effort"):
        flow = FlowMode.UNRESTRICTED
    elif shape == "stop_and_wait":
        flow = FlowMode.STOP_AND_WAIT
    try:
        terms = Terms(
            reliable=shape != "best_effort",
            numbered=numbered,
            ordered=numbered and shape != "numbered",
            flow=flow,
            on_gap=OnGap.REJECT if shape == "stop_and_wait" else OnGap.BUFFER,
            **{name: choice[name] for name in DIMENSIONS if name not in ("shape", "way", "signed")},
        )
    except OncewireError:
        return None
    return Deal(terms, choice["way"] == "hub", choice["signed"])


def _filled(
    chosen: dict[str, int], missing: set[tuple[str, int, str, int]]
) -> dict[str, int] | None:
    for name in DIMENSIONS:
        if name not in chosen:
            every = [{**chosen, name: index} for index in range(len(DIMENSIONS[name]))]
            possible = list(filter(_possible, every))
            if not possible:
                return None
            chosen = max(possible, key=lambda each: len(_pairs(each) & missing))
    return chosen if _possible(chosen) else None


def _possible(chosen: Mapping[str, int]) -> bool:
    """Whether the values chosen so far go together with any values of the rest."""
    free = [name for name in BOUND if name not in chosen]
    return any(
        _deal({name: DIMENSIONS[name][{**chosen, **rest}.get(name, 0)] for name in DIMENSIONS})
        is not None
        for values in product(*(range(len(DIMENSIONS[name])) for name in free))
        for rest in (dict(zip(free, values, strict=True)),)
    )


def _pairs(chosen: Mapping[str, int]) -> set[tuple[str, int, str, int]]:
    named = [(name, chosen[name]) for name in DIMENSIONS if name in chosen]
    return {(one, a, other, b) for (one, a), (other, b) in combinations(named, 2)}


# Faults to plant: for each kind of violation, ways to cause exactly that one and no other.
#
# A recipe says which streams it fits, what it does to which messages, and whom the checker will
# name. Neighbours of a fault go plainly, so that nothing else depends on chance there.

WINDOW_MAX = 16
"""Messages kept plain around a fault where the window is larger; `unrestricted` has no bound."""


def _plain_region(stream: Stream, place: int) -> dict[int, Force]:
    reach = 4 if not stream.terms.numbered else min(stream.terms.window_size, WINDOW_MAX) + 4
    return {index: Force() for index in range(place - reach, place + reach + 1)}


def _alone(misbehaviour: str, stream: Stream, place: int) -> dict[int, Force]:
    """Nothing but the misbehaviour."""
    return _plain_region(stream, place) | {place: Force(misbehaviour)}


def _close(misbehaviour: str, stream: Stream, place: int) -> dict[int, Force]:
    """The next message follows at once."""
    found = _alone(misbehaviour, stream, place)
    found[place + 1] = Force(gap=20 * MILLISECOND)
    return found


def _beyond_window(misbehaviour: str, stream: Stream, place: int) -> dict[int, Force]:
    """The window's first message is answered slowly, and one too many enters meanwhile."""
    window = stream.terms.window_size
    found = _plain_region(stream, place)
    found[place - window] = Force(ack_after=5 * SECOND)
    for index in range(place - window + 1, place):
        found[index] = Force(gap=20 * MILLISECOND)
    found[place] = Force(misbehaviour, gap=20 * MILLISECOND)
    return found


def _after_unsettled(misbehaviour: str, stream: Stream, place: int) -> dict[int, Force]:
    """Two before it one is answered slowly, and is unsettled still when its turn comes."""
    found = _plain_region(stream, place)
    found[place - 2] = Force(ack_after=8 * SECOND)
    found[place - 1] = Force(gap=20 * MILLISECOND)
    found[place] = Force(misbehaviour, gap=2 * SECOND)
    return found


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to break one promise."""

    kind: str
    misbehaviour: str
    fits: Callable[[Stream], bool]
    around: Callable[[str, Stream, int], dict[int, Force]] = _alone
    """What the messages around the one with the misbehaviour do."""
    offset: int = 0
    """Whom the checker names: this many messages after the one with the misbehaviour."""
    stranger: bool = False
    """Whether it names a message that was never submitted."""

    def forces(self, stream: Stream, place: int) -> dict[int, Force]:
        """What is done to which messages, where the misbehaviour has this place."""
        return self.around(self.misbehaviour, stream, place)

    def margin(self, stream: Stream) -> int:
        """How many messages on each side go plainly."""
        if not stream.terms.numbered:
            return 4
        return 2 * min(stream.terms.window_size, WINDOW_MAX) + 4


# --- which streams ---


def _whole(stream: Stream) -> bool:
    return stream.hub is None and not stream.split


def _plain(stream: Stream) -> bool:
    return stream.terms.reliable and _whole(stream)


def _direct(stream: Stream) -> bool:
    return _plain(stream) and not stream.terms.numbered


def _single_way(stream: Stream) -> bool:
    return _direct(stream) and len(stream.terms.transports) == 1


def _retrying(stream: Stream) -> bool:
    return _single_way(stream) and stream.terms.resends > 0


def _unordered(stream: Stream) -> bool:
    return _plain(stream) and not stream.terms.ordered


def _counted(stream: Stream) -> bool:
    return stream.terms.numbered and not stream.terms.ordered and stream.terms.window_size > 3


def _ordered_window(stream: Stream) -> bool:
    return stream.terms.ordered and stream.terms.window_size > 1


RECIPES: tuple[Recipe, ...] = (
    Recipe("lost", "never_handed_over", _unordered),
    Recipe("lost", "never_sent", _direct),
    Recipe("lost", "no_word", _direct),
    Recipe("lost", "not_passed_on", lambda stream: stream.hub is not None),
    Recipe("unconfirmed", "never_confirmed", _unordered),
    Recipe("twice", "handed_over_twice", _unordered),
    Recipe("twice", "handed_over_twice", lambda stream: stream.terms.ordered),
    Recipe("out_of_order", "after_the_next", _ordered_window, _close),
    Recipe("altered", "altered", _unordered),
    Recipe("altered", "given_otherwise", lambda stream: stream.terms.ordered),
    Recipe("unnotified", "not_notified", _direct),
    Recipe("untold", "told_again", _direct),
    Recipe("needless_notice", "notice_of_notice", _direct),
    Recipe("taken_back", "taken_back", _direct),
    Recipe("gap", "number_left_out", _counted),
    Recipe("gap", "no_skip", _ordered_window, _close, offset=1),
    Recipe("repeated_number", "number_again", _counted, _after_unsettled),
    Recipe(
        "window_exceeded",
        "beyond_window",
        lambda stream: stream.terms.numbered and 1 < stream.terms.window_size <= WINDOW_MAX,
        _beyond_window,
    ),
    Recipe(
        "wrong_status",
        "wrong_status",
        lambda stream: stream.terms.numbered and stream.terms.reset is not ResetRule.SILENT,
    ),
    Recipe("early_reset", "early_reset", _counted, _after_unsettled),
    Recipe("early_retry", "early_retry", _retrying),
    Recipe("too_many_retries", "one_more_retry", _single_way),
    Recipe("late_send", "sent_after_ack", _retrying),
    Recipe("gave_up_early", "gave_up_early", _retrying),
    Recipe("ack_without_store", "ack_of_nothing", _direct),
    Recipe("ack_without_store", "ack_before_store", _unordered),
    Recipe("forgotten", "forgotten", _unordered),
    Recipe("invented", "invented", _direct, stranger=True),
    Recipe("wrong_outcome", "wrong_outcome", _direct),
    Recipe("unmatched_ack", "second_ack", _direct),
    Recipe(
        "unsigned",
        "unsigned_ack",
        # A hub's stream has two acknowledgements, and only the To Party's is one of the agreement.
        lambda stream: _plain(stream) and stream.terms.ack_requested is AckRequest.SIGNED,
    ),
    Recipe("unsigned", "unverified", lambda stream: stream.signed and _whole(stream)),
    Recipe("incomplete", "missing_part", lambda stream: stream.split),
    Recipe("unfinished", "no_end", _direct),
    Recipe("impossible_order", "handed_over_first", _direct),
    Recipe(
        "contradiction",
        "other_number",
        lambda stream: stream.terms.numbered and not stream.terms.ordered,
    ),
)
"""Every kind of violation has at least one; what is wrong with a journal is no broken promise."""


YEAR_START: Instant = 1_735_689_600 * SECOND
"""2025-01-01T00:00:00Z: a year that is over, so that no clock is ahead of it."""
YEAR = 365
DAYS_MIN = 20
"""In a shorter year what goes wrong at the end could not be told from what is under way."""

PER_STREAM = 250
FAULT_EVERY = 20_000
"""One fault of each recipe for so many messages, and one of each in any case."""

_NAMES = (
    "acme", "globex", "initech", "umbrella", "stark", "wayne", "tyrell", "cyberdyne", "aperture",
    "wonka", "duff", "hooli", "soylent", "monsters", "vandelay", "oceanic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole year."""

    messages: int
    seed: int
    days: int
    handlers: tuple[Handler, ...]
    streams: tuple[Stream, ...]
    violations: tuple[tuple[str, str], ...]
    """The answer key: (kind, message_id) of every fault that is planted."""

    @property
    def end(self) -> Instant:
        """When the books are closed."""
        return YEAR_START + self.days * DAY

    def message_id(self, stream: int, index: int) -> str:
        """The id of a message of a stream."""
        return message_id(self.seed, stream, index, self.streams[stream].sender.name)


def message_id(seed: int, stream: int, index: int, sender: str) -> str:
    """The MessageId of one message of the year."""
    text = f"{seed}/{stream}/{index}".encode()
    return f"{hashlib.blake2b(text, digest_size=10).hexdigest()}@{sender}"


@cache
def make_plan(messages: int, seed: int, days: int = YEAR) -> Plan:
    """The plan of a year with so many messages; a short one has fewer days."""
    if messages < 1:
        raise InvalidValue("a year has at least 1 message", remedy="give --messages 1 or more")
    if not DAYS_MIN <= days <= YEAR:
        raise InvalidValue(f"{days} days are no year", remedy=f"give {DAYS_MIN} to {YEAR} days")
    rng = Random(f"{seed}/plan")
    handlers = _handlers(messages, days, rng)
    hubs = max(1, len(handlers) // 8)
    streams = _streams(messages, handlers, hubs, rng)
    violations = _plant(messages, seed, streams, rng)
    return Plan(messages, seed, days, handlers, streams, violations)


def _handlers(messages: int, days: int, rng: Random) -> tuple[Handler, ...]:
    count = max(4, min(48, messages // 2_500))
    found = []
    for index in range(count):
        name = _NAMES[index % len(_NAMES)]
        if index >= len(_NAMES):
            name = f"{name}-{index // len(_NAMES) + 1}"
        boots = [YEAR_START + rng.randrange(HOUR)]
        while boots[-1] < YEAR_START + days * DAY * 11 // 12:
            boots.append(boots[-1] + rng.randrange(days * DAY // 36, days * DAY // 7))
        skew = rng.randrange(-30 * SECOND, 30 * SECOND)
        found.append(Handler(name, skew, tuple(boots)))
    return tuple(found)


def _streams(
    messages: int, handlers: tuple[Handler, ...], hubs: int, rng: Random
) -> tuple[Stream, ...]:
    """The first handlers are hubs; all others are companies that trade with each other."""
    every = deals()
    plain = [
        deal for deal in every if deal.terms.reliable and not deal.terms.numbered and not deal.hub
    ]
    # Every deal occurs; most business in most years is of the plain kind.
    choices = [deal for pair in zip(every, cycle(plain)) for deal in pair]
    wanted = max(len(choices), messages // PER_STREAM)
    number = max(1, min(wanted, messages // 10))
    companies = handlers[hubs:]
    found = []
    for index in range(number):
        deal = choices[index % len(choices)]
        sender, receiver = rng.sample(companies, 2)
        found.append(
            Stream(
                index=index,
                sender=sender,
                receiver=receiver,
                hub=handlers[rng.randrange(hubs)] if deal.hub else None,
                terms=deal.terms,
                signed=deal.signed,
                split=deal in plain and index % 42 == 3,
                count=messages // number + (index < messages % number),
            )
        )
    return tuple(found)


def _plant(
    messages: int, seed: int, streams: tuple[Stream, ...], rng: Random
) -> tuple[tuple[str, str], ...]:
    """Give faults to streams that have room for them; each leaves its neighbours alone."""
    key: list[tuple[str, str]] = []
    taken: dict[int, list[int]] = {}
    fitting = [(recipe, [each for each in streams if recipe.fits(each)]) for recipe in RECIPES]
    # What few streams have room for comes first, before the others have taken that.
    fitting.sort(key=lambda pair: len(pair[1]))
    for _ in range(max(1, messages // FAULT_EVERY)):
        for recipe, fits in fitting:
            order = list(fits)
            rng.shuffle(order)
            for stream in order:
                place = _place(stream, recipe, taken.get(stream.index, []))
                if place is not None:
                    taken.setdefault(stream.index, []).append(place)
                    stream.forces.update(recipe.forces(stream, place))
                    named = -place if recipe.stranger else place + recipe.offset
                    culprit = message_id(seed, stream.index, named, stream.sender.name)
                    key.append((recipe.kind, culprit))
                    break
    return tuple(sorted(key))


def _place(stream: Stream, recipe: Recipe, taken: list[int]) -> int | None:
    """An index in the middle of the year, far from the first window and from other faults."""
    margin = recipe.margin(stream)
    for share in (35, 65, 50, 25, 75, 45, 55):
        place = stream.count * share // 100
        if place < 2 * margin or place + margin > stream.count * 85 // 100:
            continue
        if all(abs(place - other) > 2 * margin for other in taken):
            return place
    return None


def submissions(plan: Plan, stream: Stream, rng: Random) -> list[Instant]:
    """When each message is submitted: bursts on working days, a few at night."""
    found: list[Instant] = []
    while len(found) < stream.count:
        day = YEAR_START + rng.randrange(1, plan.days) * DAY
        weekday = (day // DAY + 4) % 7  # 1970-01-01 was a Thursday; 0 is Sunday.
        if weekday in (0, 6) and rng.random() < 0.8:
            continue
        moment = day + int(rng.triangular(6, 23, 11) * HOUR)
        for _ in range(min(stream.count - len(found), 1 + int(rng.expovariate(1 / 6)))):
            found.append(min(moment, plan.end - MINUTE))
            moment += rng.randrange(5 * MILLISECOND, 1_500 * MILLISECOND)
    found.sort()
    # What goes wrong must lie so far back that it can be told from what is under way.
    for index in range(max(stream.forces, default=-1) + 1):
        found[index] = min(found[index], plan.end - 5 * DAY + index * 5 * SECOND)
    for index in sorted(stream.forces):
        gap = stream.forces[index].gap
        if gap is not None and index > 0:
            # Neighbours of a fault stand close together; the order stays as it was.
            found[index] = min(found[index], found[index - 1] + gap)
    return found
