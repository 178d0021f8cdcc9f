"""Trouble: what goes wrong in a wild world and who meddles, drawn by theme.

A world has a few kinds of trouble, each with some items: with a little of everything nothing would
ever go far enough to break.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from oncewire.message.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration
from oncewire.simulation.wild.papers import Paper, is_readable, is_sound, papers_of
from oncewire.simulation.wild.plan import (
    BUYER,
    SELLER,
    Change,
    Claim,
    ClockStep,
    Cut,
    Deed,
    Event,
    Fall,
    FullDisk,
    Harm,
    Leaning,
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

_THEMES = {
    "losses": 30, "copies": 20, "storm": 12, "crashes": 20, "disk": 8, "clock": 14, "moods": 16,
    "papers": 22, "deeds": 16, "tales": 8,
}  # fmt: skip
"""How often a world has trouble of each kind, beside each other."""
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
    if setting.leaning is Leaning.NUMBERED and chance.random() < 0.7:
        themes |= {"papers", "losses"}
    elif setting.leaning in (Leaning.SYNCHRONOUS, Leaning.HURRIED):
        themes |= {"losses", "moods"}
    for _ in range(chance.randint(1, 4)):
        themes.add(chance.choices(tuple(_THEMES), tuple(_THEMES.values()))[0])
    trouble = Trouble(chance, setting, orders)
    events: list[Event] = trouble.strand() if setting.leaning is Leaning.RELAYED else []
    # In the order of the table, not of the set: a seed draws the same in every process.
    for theme in _THEMES:
        if theme in themes:
            events += getattr(trouble, theme)()
    return tuple(events)


def draw_outages(seed: int, setting: Setting, orders: tuple[Order, ...]) -> tuple[Event, ...]:
    """Single transports that fail and come back, where there is another to fall back to. Drawn on
    their own, so that a world is what it was beside them."""
    chance = random.Random(f"outages {seed}")
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for node in setting.nodes:
        for paper in papers_of(setting, node):
            transports = paper.agreement.sending.terms.transports
            if len(transports) > 1:
                found.append((node, paper.via or paper.partner, transports))
    if not found or chance.random() < 0.2:
        return ()
    events: list[Event] = []
    for _ in range(chance.randint(1, 4)):
        one, other, transports = chance.choice(found)
        events.append(
            Cut(
                one,
                other,
                chance.randrange(orders[-1].at + 15 * SECOND),
                chance.choice((3, 20, 60, 200, 600)) * SECOND,
                silent=chance.random() < 0.3,
                # The first more often than the others.
                transport=chance.choice((transports[0], *transports)),
            )
        )
    return tuple(events)


def links(setting: Setting) -> list[tuple[str, str]]:
    """Each two nodes that talk to each other."""
    found: list[tuple[str, str]] = []
    for partner in setting.ends[1:]:
        way = [BUYER, partner] if setting.is_direct(partner) else [BUYER, *setting.way, partner]
        found += pairwise(way)
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Trouble:
    """Draws the items of each theme."""

    chance: random.Random
    setting: Setting
    orders: tuple[Order, ...]

    def _link(self) -> tuple[str, str]:
        link, other = self.chance.choice(links(self.setting))
        return (link, other) if self.chance.random() < 0.5 else (other, link)

    def _moment(self) -> Duration:
        """Some instant between the first order and a while after the last."""
        return self.chance.randrange(self.orders[-1].at + 15 * SECOND)

    def _nth(self) -> int:
        return self.chance.randint(1, 4 + 3 * len(self.orders))

    def strand(self) -> list[Event]:
        """One message is late at the hub; when it comes, or when the hub waits for it no more,
        there is no way on."""
        hub, chance = self.setting.way[0], self.chance
        turn = chance.choice((Turn.REMOVED, Turn.REMOVED, Turn.ENDED))
        at = self.orders[-1].at + chance.randrange(4 * SECOND)
        lasts = chance.choice((8 * SECOND, 30 * SECOND, 5 * MINUTE))
        return [
            Mishap(BUYER, hub, chance.randint(2, 6), Harm.LOSE),
            Change(at, f"{hub}-{SELLER}", (hub,), turn, lasts=lasts),
        ]

    # --- the network ---

    def losses(self) -> list[Event]:
        """Parcels that never arrive."""
        return [
            Mishap(*self._link(), self._nth(), Harm.LOSE)
            for _ in range(self.chance.randint(1, 4 * len(self.orders)))
        ]

    def copies(self) -> list[Event]:
        """Parcels that arrive twice, late or changed, or meet a receiver that is busy."""
        events: list[Event] = []
        for _ in range(self.chance.randint(1, 2 * len(self.orders))):
            harm = self.chance.choice((Harm.REPEAT, Harm.DELAY, Harm.DELAY, Harm.DAMAGE, Harm.BUSY))
            by = self.chance.choice((10 * MILLISECOND, 2 * SECOND, 7 * SECOND, 25 * SECOND))
            if harm is Harm.REPEAT and self.chance.random() < 0.1:
                by = 2 * HOUR
            if harm is Harm.DAMAGE:
                by = self.chance.randrange(1 << 16)
            if harm is Harm.BUSY:
                by = self.chance.choice((1, 20, 30, 315_360_000))
            events.append(Mishap(*self._link(), self._nth(), harm, by))
        return events

    def storm(self) -> list[Event]:
        """Links that are cut for a while, some of them without a word."""
        return [
            Cut(
                *self._link(),
                self._moment(),
                self.chance.choice((3, 12, 40, 120)) * SECOND,
                silent=self.chance.random() < 0.5,
            )
            for _ in range(self.chance.randint(1, 3))
        ]

    # --- the machines ---

    def crashes(self) -> list[Event]:
        """Processes that die, here and there."""
        return [
            Fall(
                self.chance.choice(self.setting.nodes),
                self._nth(),
                self.chance.random() < 0.6,
                self.chance.choice((1, 4, 15, 60)) * SECOND,
            )
            for _ in range(self.chance.randint(1, 6))
        ]

    def disk(self) -> list[Event]:
        """Disks that are full for a while."""
        return [
            FullDisk(self.chance.choice(self.setting.nodes), self._nth())
            for _ in range(self.chance.randint(1, 6))
        ]

    def clock(self) -> list[Event]:
        """Clocks that somebody sets."""
        return [
            ClockStep(
                self.chance.choice(self.setting.nodes),
                self._moment(),
                self.chance.choice((2 * SECOND, 30 * SECOND, 10 * MINUTE, HOUR, 2 * DAY))
                * self.chance.choice((1, -1)),
                self.chance.choice((3, 20, 60)) * SECOND,
            )
            for _ in range(self.chance.randint(1, 2))
        ]

    # --- the people ---

    def moods(self) -> list[Event]:
        """Applications that do not do as they should."""
        events: list[Event] = []
        for _ in range(self.chance.randint(1, 4)):
            mood = self.chance.choice(tuple(Mood))
            amount = self.chance.choice((1, 3, 12))
            if mood is Mood.SLOW:
                amount = self.chance.choice((3, 10, 35)) * SECOND
            events.append(Whim(self.chance.choice(self.orders).number, mood, amount))
        return events

    def deeds(self) -> list[Event]:
        """What operators do."""
        return [
            Meddling(
                self._moment(),
                self.chance.choice(tuple(Deed)),
                self.chance.choice(self.orders).number,
            )
            for _ in range(self.chance.randint(1, 4))
        ]

    def tales(self) -> list[Event]:
        """What partners say about messages that is not so."""
        events: list[Event] = []
        for _ in range(self.chance.randint(1, 3)):
            order = self.chance.choice(self.orders)
            tale = self.chance.choice(tuple(Tale)) if self.setting.third else Tale.PAUSE
            at = order.at + self.chance.choice((1, 200, 3_000, 15_000)) * MILLISECOND
            events.append(
                Claim(at, tale, order.number, self.chance.choice((5, 3_600, 315_360_000)))
            )
        return events

    # --- the agreements ---

    def papers(self) -> list[Event]:
        """Agreements that change under way."""
        return [self._change() for _ in range(self.chance.choice((1, 1, 2)))]

    def _change(self) -> Change:
        sides: dict[str, list[Paper]] = {}
        for node in self.setting.nodes:
            for paper in papers_of(self.setting, node):
                sides.setdefault(paper.cpa_id, []).append(paper)
        cpa_id = self.chance.choice(sorted(sides))
        papers = sides[cpa_id]
        names = tuple(paper.own for paper in papers)
        both = self.chance.random() < 0.5
        turn = self.chance.choices(tuple(Turn), (45, 15, 15, 12, 13))[0]
        # Soon after something was sent, so that it is under way.
        numbered = self.setting.leaning is Leaning.NUMBERED
        orders = self.orders[-3:] if numbered else self.orders
        at = self.chance.choice(orders).at + self.chance.randrange(6 * SECOND)
        lasts = self.chance.choice((None, None, 30 * SECOND if numbered else 8 * SECOND, None))
        where = names if both else (self.chance.choice(names),)
        if turn is not Turn.REPLACED:
            return Change(at, cpa_id, where, turn, lasts=lasts)
        said = self._other_values(papers, both=both)
        return Change(at, cpa_id, where, turn, said, lasts)

    def _other_values(self, papers: list[Paper], *, both: bool) -> Said:
        """A value or two that are agreed instead, so that every side still has a sound paper."""
        said: dict[str, object] = {}
        for _ in range(20):
            key, value = self.chance.choice(_NARROWER)
            if self.setting.leaning is Leaning.NUMBERED and both:
                key, value = self.chance.choice(_NARROWER[:3])
            elif self.chance.random() < 0.5:
                key = self.chance.choice(tuple(VALUES))
                value = self.chance.choice(VALUES[key])
            # Where a hub is between them the two have to agree with it as well.
            alone = not both or any(paper.via or paper.own in self.setting.way for paper in papers)
            if (key, value) in SIGNED or (alone and key not in _ONE_SIDED):
                continue
            tried = {**said, key: value}
            # What one side alone says may well contradict what the other still relies on.
            fits = is_sound if both else is_readable
            if all(fits(paper.amended(tuple(tried.items()))) for paper in papers):
                said = tried
            if len(said) == 2 or (said and self.chance.random() < 0.6):
                break
        return tuple(said.items())
