"""The plan of a year: which nodes there are, who sends how much to whom, and what goes wrong.

The plan is small and made anew wherever it is needed, from (messages, seed) alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from random import Random

from oncewire.errors import InvalidValue
from oncewire.message.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant
from oncewire.pipeline.sample_year.faults import RECIPES, Recipe
from oncewire.pipeline.sample_year.pairwise import deals
from oncewire.pipeline.sample_year.stream import Handler, Stream

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
    rng = Random(f"{seed}/plan")  # noqa: S311 - a seeded year, no secret
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
                    key.append((recipe.kind, _culprit(seed, stream, recipe, place)))
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


def _culprit(seed: int, stream: Stream, recipe: Recipe, place: int) -> str:
    if recipe.stranger:
        return message_id(seed, stream.index, -place, stream.sender.name)
    return message_id(seed, stream.index, place + recipe.offset, stream.sender.name)


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
