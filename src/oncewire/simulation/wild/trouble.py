"""Trouble: what goes wrong in a wild world and who meddles, drawn by theme.

A world has a few kinds of trouble, each with some items: with a little of everything nothing would
ever go far enough to break.
"""

from __future__ import annotations

import random
from dataclasses import replace

from oncewire.message.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration
from oncewire.simulation.wild.papers import Paper, is_sound, papers_of
from oncewire.simulation.wild.plan import (
    BUYER,
    THIRD,
    Change,
    Claim,
    ClockStep,
    Cut,
    Deed,
    Event,
    Fall,
    FullDisk,
    Harm,
    Meddling,
    Mishap,
    Mood,
    Order,
    Said,
    Setting,
    Tale,
    Turn,
    Whim,
)
from oncewire.simulation.wild.values import SIGNED, VALUES

_THEMES = ("losses", "copies", "storm", "crashes", "disk", "clock", "moods", "papers", "deeds",
           "tales")  # fmt: skip
_WEIGHTS = (30, 20, 12, 20, 8, 14, 16, 22, 16, 8)

# What one side may change without the other: it says how it acts, not what its messages mean.
_ONE_SIDED = (
    "delivery.timeout", "delivery.retries", "delivery.retry_interval", "delivery.on_exhausted",
    "delivery.receipt_provided", "delivery.time_to_live", "delivery.persist_duration",
    "delivery.header_conflict", "duplicate.answer", "duplicate.no_response", "sync.timeout",
    "delivery.retries_counted", "delivery.keep", "ack.bundling",
)  # fmt: skip
_NARROWER: tuple[tuple[str, object], ...] = (
    ("sequence.range", (0, 3)),
    ("sequence.range", (1, 6)),
    ("flow.window", 1),
    ("delivery.receipt_provided", "None"),
    ("delivery.time_to_live", "PT20S"),
    ("delivery.transports", ("smtp",)),
    ("sync.mode", "none"),
)


def draw_events(
    chance: random.Random, setting: Setting, orders: tuple[Order, ...]
) -> tuple[Event, ...]:
    """One to four kinds of trouble."""
    themes: set[str] = set()
    for _ in range(chance.randint(1, 4)):
        themes.add(chance.choices(_THEMES, _WEIGHTS)[0])
    events: list[Event] = []
    # In the order of the list, not of the set: a seed draws the same in every process.
    for theme in _THEMES:
        if theme in themes:
            events += _DRAWN[theme](chance, setting, orders)
    return tuple(events)


def links(setting: Setting) -> list[tuple[str, str]]:
    """Each two nodes that talk to each other."""
    found = []
    for partner in setting.ends[1:]:
        way = [BUYER, partner] if setting.is_direct(partner) else [BUYER, *setting.way, partner]
        found += list(zip(way, way[1:], strict=False))
    return list(dict.fromkeys(found))


def _link(chance: random.Random, setting: Setting) -> tuple[str, str]:
    one, other = chance.choice(links(setting))
    return (one, other) if chance.random() < 0.5 else (other, one)


def _moment(chance: random.Random, orders: tuple[Order, ...]) -> Duration:
    """Some instant between the first order and a while after the last."""
    return chance.randrange(orders[-1].at + 15 * SECOND)


def _nth(chance: random.Random, orders: tuple[Order, ...]) -> int:
    return chance.randint(1, 4 + 3 * len(orders))


# --- the network --------------------------------------------------------------------------------


def _losses(
    chance: random.Random, setting: Setting, orders: tuple[Order, ...]
) -> list[Event]:
    return [
        Mishap(*_link(chance, setting), _nth(chance, orders), Harm.LOSE)
        for _ in range(chance.randint(1, 4 * len(orders)))
    ]


def _copies(
    chance: random.Random, setting: Setting, orders: tuple[Order, ...]
) -> list[Event]:
    events: list[Event] = []
    for _ in range(chance.randint(1, 2 * len(orders))):
        harm = chance.choice((Harm.REPEAT, Harm.DELAY, Harm.DELAY, Harm.DAMAGE, Harm.BUSY))
        by = chance.choice((10 * MILLISECOND, 2 * SECOND, 7 * SECOND, 25 * SECOND))
        if harm is Harm.REPEAT and chance.random() < 0.1:
            by = 2 * HOUR
        if harm is Harm.DAMAGE:
            by = chance.randrange(1 << 16)
        if harm is Harm.BUSY:
            by = chance.choice((1, 20, 30, 315_360_000))
        events.append(Mishap(*_link(chance, setting), _nth(chance, orders), harm, by))
    return events


def _storm(
    chance: random.Random, setting: Setting, orders: tuple[Order, ...]
) -> list[Event]:
    return [
        Cut(
            *_link(chance, setting),
            _moment(chance, orders),
            chance.choice((3, 12, 40, 120)) * SECOND,
            silent=chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, 3))
    ]


# --- the machines -------------------------------------------------------------------------------


def _crashes(
    chance: random.Random, setting: Setting, orders: tuple[Order, ...]
) -> list[Event]:
    return [
        Fall(
            chance.choice(setting.nodes),
            _nth(chance, orders),
            chance.random() < 0.6,
            chance.choice((1, 4, 15, 60)) * SECOND,
        )
        for _ in range(chance.randint(1, 6))
    ]


def _disk(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    return [
        FullDisk(chance.choice(setting.nodes), _nth(chance, orders))
        for _ in range(chance.randint(1, 6))
    ]


def _clock(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    return [
        ClockStep(
            chance.choice(setting.nodes),
            _moment(chance, orders),
            chance.choice((2 * SECOND, 30 * SECOND, 10 * MINUTE, HOUR, 2 * DAY))
            * chance.choice((1, -1)),
            chance.choice((3, 20, 60)) * SECOND,
        )
        for _ in range(chance.randint(1, 2))
    ]


# --- the people ---------------------------------------------------------------------------------


def _moods(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    events: list[Event] = []
    for _ in range(chance.randint(1, 4)):
        mood = chance.choice(tuple(Mood))
        amount = chance.choice((1, 3, 12))
        if mood is Mood.SLOW:
            amount = chance.choice((3, 10, 35)) * SECOND
        events.append(Whim(chance.choice(orders).number, mood, amount))
    return events


def _deeds(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    return [
        Meddling(_moment(chance, orders), chance.choice(tuple(Deed)), chance.choice(orders).number)
        for _ in range(chance.randint(1, 4))
    ]


def _tales(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    events: list[Event] = []
    for _ in range(chance.randint(1, 3)):
        order = chance.choice(orders)
        tale = chance.choice(tuple(Tale)) if setting.third else Tale.PAUSE
        at = order.at + chance.choice((1, 200, 3_000, 15_000)) * MILLISECOND
        events.append(Claim(at, tale, order.number, chance.choice((5, 3_600, 315_360_000))))
    return events


# --- the agreements -----------------------------------------------------------------------------


def _papers(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> list[Event]:
    return [_change(chance, setting, orders) for _ in range(chance.choice((1, 1, 2)))]


def _change(chance: random.Random, setting: Setting, orders: tuple[Order, ...]) -> Change:
    sides: dict[str, list[Paper]] = {}
    for node in setting.nodes:
        for paper in papers_of(setting, node):
            sides.setdefault(paper.cpa_id, []).append(paper)
    cpa_id = chance.choice(sorted(sides))
    papers = sides[cpa_id]
    names = tuple(paper.own for paper in papers)
    both = chance.random() < 0.5
    turn = chance.choices(tuple(Turn), (45, 15, 15, 12, 13))[0]
    at = _moment(chance, orders)
    lasts = chance.choice((None, None, 8 * SECOND, 30 * SECOND))
    where = names if both else (chance.choice(names),)
    if turn is not Turn.REPLACED:
        return Change(at, cpa_id, where, turn, lasts=lasts)
    said = _other_values(chance, setting, papers, both=both)
    return Change(at, cpa_id, where, turn, said, lasts)


def _other_values(
    chance: random.Random, setting: Setting, papers: list[Paper], *, both: bool
) -> Said:
    """A value or two that are agreed instead, so that every side still has a sound paper."""
    said: dict[str, object] = {}
    for _ in range(20):
        key, value = chance.choice(_NARROWER)
        if chance.random() < 0.5:
            key = chance.choice(tuple(VALUES))
            value = chance.choice(VALUES[key])
        if (key, value) in SIGNED or (not both and key not in _ONE_SIDED):
            continue
        tried = {**said, key: value}
        if all(is_sound(paper.amended(tuple(tried.items()))) for paper in papers):
            said = tried
        if len(said) == 2 or (said and chance.random() < 0.6):
            break
    return tuple(said.items())


_DRAWN = {
    "losses": _losses,
    "copies": _copies,
    "storm": _storm,
    "crashes": _crashes,
    "disk": _disk,
    "clock": _clock,
    "moods": _moods,
    "papers": _papers,
    "deeds": _deeds,
    "tales": _tales,
}
