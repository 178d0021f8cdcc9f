"""Draw: a seed becomes the plan of a wild world: its setting, its orders and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product

from oncewire.agreement.rules import takes_best_effort
from oncewire.lab.simulation.papers import (
    Paper,
    believes_hubs,
    is_readable,
    is_slow,
    is_sound,
    papers_of,
)
from oncewire.lab.simulation.plan import (
    BUYER,
    HAUNTED,
    RARE,
    SELLER,
    SIGNED,
    THIRD,
    VALUES,
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
    Plan,
    Reply,
    Said,
    Setting,
    Tale,
    Turn,
    Whim,
)
from oncewire.message.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration

# --- what goes wrong ----------------------------------------------------------------------------
#
# A world has a few kinds of trouble, each with some items: with a little of everything nothing
# would go far enough to break.

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
    """Single transports that fail and come back, where there is another to fall back to. Their own
    source of chance leaves the rest of the world as it is."""
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
                by = HAUNTED
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
        """Clocks that are set wrong."""
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


CALM_EVERY = 10
"""One seed in so many is calm; together they go through every dialect, flow and hop mode."""

DIALECTS = ("ebms2", "ms-0.9x", "rm-0.78")
EXTENSIONS = ("hop_sequence", "routing", "transient_error", "split", "compression")
FLOWS = ("unrestricted", "window", "stop-and-wait")
# Only what is reliable by the protocol is numbered (HDR-3).
_BEST_EFFORT = (
    ("delivery.reliable", False),
    ("delivery.method", "Transport"),
    ("ack.request", "never"),
)
_WAYS = (("http", "smtp"), ("smtp", "http"), ("http", "smtp", "sftp"))
_BOUNDS: dict[str, tuple[int, ...]] = {
    "payload.max_document": (100_000, 1_000_000),
    "payload.max_parts": (100, 1_000),
    "payload.max_ratio": (100, 1_000),
    "payload.quota": (1_000_000, 10_000_000),
}
_USUAL = (45, 30, 12, 13)
_REPLIES = {
    Leaning.SYNCHRONOUS: (15, 35, 5, 45),
    Leaning.HURRIED: (20, 60, 5, 15),
    Leaning.NUMBERED: (80, 10, 5, 5),
    Leaning.RELAYED: (80, 10, 5, 5),
}
_CALLED = {Leaning.SYNCHRONOUS: 0.95, Leaning.HURRIED: 1.0}
_ANSWERED = ("sync.mode", "signalsAndResponse")
_IN_ORDER: Said = (("sequence.numbered", True), ("sequence.ordered", True))
_LEANING: dict[Leaning, Said] = {
    Leaning.NONE: (),
    Leaning.SYNCHRONOUS: (_ANSWERED, ("sync.retries", "same_message")),
    Leaning.HURRIED: (_ANSWERED, ("sync.retries", "none"), ("sync.timeout", "PT4S"), *_IN_ORDER),
    # Wide enough to be narrowed under it.
    Leaning.RELAYED: (
        *_IN_ORDER,
        ("sequence.scope", "pair"),
        ("flow.window", 8),
        ("delivery.persist_duration", "PT3M"),
    ),
    Leaning.NUMBERED: (*_IN_ORDER, ("sequence.range", (0, 99)), ("flow.window", 2)),
}
_COMBINED = tuple(product(DIALECTS, FLOWS, VALUES["hop.mode"], (0, 1, 2)))


def draw(seed: int) -> Plan:
    """The world of a seed."""
    chance = random.Random(f"wild {seed}")
    setting = _with_bounds(_with_a_second_way(_draw_setting(chance, seed), seed), seed)
    orders = _draw_orders(chance, setting)
    if setting.calm:
        return Plan(seed, setting, orders, ())
    events = draw_events(chance, setting, orders)
    return Plan(seed, setting, orders, (*events, *draw_outages(seed, setting, orders)))


# --- the setting --------------------------------------------------------------------------------


def _draw_setting(chance: random.Random, seed: int) -> Setting:
    calm = seed % CALM_EVERY == 0
    if calm:
        dialect, flow, hop_mode, hubs = _COMBINED[seed // CALM_EVERY % len(_COMBINED)]
    else:
        dialect, flow = chance.choice(DIALECTS), chance.choice(FLOWS)
        hop_mode = chance.choice(VALUES["hop.mode"])
        hubs = chance.choices((0, 1, 2), (55, 35, 10))[0]
    leaning = Leaning.NONE if calm else chance.choices(tuple(Leaning), (56, 13, 11, 14, 6))[0]
    if leaning is Leaning.RELAYED:
        dialect, flow, hop_mode, hubs = "ms-0.9x", "window", "store_and_forward", 1
    elif leaning is Leaning.HURRIED:
        dialect, flow, hubs = "ms-0.9x", "window", 0
    elif leaning is Leaning.SYNCHRONOUS and dialect == "rm-0.78":
        dialect = "ebms2"
    third = chance.random() < 0.5
    ends = (BUYER, SELLER, THIRD) if third else (BUYER, SELLER)
    bare = Setting(
        calm=calm,
        leaning=leaning,
        hubs=hubs,
        third=third,
        third_direct=chance.random() < 0.6,
        called=tuple(end for end in ends if chance.random() < _CALLED.get(leaning, 0.6)),
        signed=chance.random() < 0.08,
        steady=chance.random() < 0.5,
        hub_keys=calm or chance.random() < 0.5,
        patience=chance.choice((12, 0, 3)),
    )
    profile, forced = _base(chance, dialect, flow)
    forced = (*forced, *_LEANING[leaning], ("hop.mode", hop_mode))
    setting = replace(bare, profile=profile, said=forced)
    setting = replace(setting, said=_enriched(chance, setting.said, _network(setting), setting))
    if hubs and chance.random() < 0.5:
        setting = _with_hubs_of_their_own(chance, setting)
    if third and setting.is_direct(THIRD):
        profile, forced = _base(chance, chance.choice(DIALECTS), chance.choice(FLOWS))
        paper = Paper(f"{BUYER}-{THIRD}", BUYER, THIRD, profile, ())

        def one(said: Said) -> tuple[Paper, ...]:
            return (paper.amended(said),)

        said = _enriched(chance, forced, one, setting)
        setting = replace(setting, third_profile=profile, third_said=said)
    if any(believes_hubs(paper.agreement) for paper in papers_of(setting, BUYER)):
        setting = replace(setting, hub_keys=True)
    return setting


def _base(chance: random.Random, dialect: str, flow: str) -> tuple[str, Said]:
    """A profile of that dialect, with the flow and what the flow needs."""
    profile = dialect
    if dialect == "ms-0.9x" and chance.random() < 0.5:
        profile = "window" if flow == "window" else "ms-0.9x-typed"
    said: list[tuple[str, object]] = [("flow.mode", flow)]
    if dialect == "rm-0.78" and flow != "stop-and-wait":
        # It can announce no restart, so it numbers one message at a time or none at all.
        said += [("sequence.ordered", False), ("sequence.numbered", False)]
    said.append(("flow.window", chance.choice((1, 2, 3, 8))))
    # Short enough that a world is over soon, long enough that copies come before the end.
    said += [
        ("delivery.timeout", "PT5S"),
        ("delivery.retry_interval", "PT5S"),
        ("delivery.retries", 3),
        ("delivery.persist_duration", "PT10M"),
    ]
    if dialect == "ebms2" and chance.random() < 0.4:
        said.append(("wire.extensions", EXTENSIONS))
    return profile, tuple(said)


def _network(setting: Setting) -> Callable[[Said], tuple[Paper, ...]]:
    """The papers that stand or fall together: the buyer's, and those of the first hub."""

    def papers(said: Said) -> tuple[Paper, ...]:
        amended = replace(setting, said=said, third=False)
        nodes = (BUYER, *amended.way[:1])
        return tuple(paper for node in nodes for paper in papers_of(amended, node))

    return papers


def _enriched(
    chance: random.Random,
    forced: Said,
    papers: Callable[[Said], tuple[Paper, ...]],
    setting: Setting,
) -> Said:
    """More values, each kept if every agreement is still a sound one."""
    said = dict(forced)
    firm = {key for key, _ in _LEANING[setting.leaning]}
    if not all(map(is_sound, papers(tuple(said.items())))):
        # The combination that was asked for contradicts itself: what is left is the profile.
        said = {key: value for key, value in said.items() if not key.startswith("sequence.")}
        said.pop("flow.mode", None)
        said.pop("sync.mode", None)
        said["flow.window"] = 8
        said["wire.extensions"] = EXTENSIONS
    wished = [key for key in VALUES if chance.random() < (0.12 if key in RARE else 0.4)]
    if setting.signed:
        wished += ["ack.signature", "ack.hop_request"]
    chance.shuffle(wished)
    firm.add("flow.mode")
    values = [(key, chance.choice(VALUES[key])) for key in wished if key not in firm]
    if not setting.signed:
        values = [pair for pair in values if pair not in SIGNED]
    return tuple(_accepted(said, values, papers).items())


def _accepted(
    said: dict[str, object],
    values: list[tuple[str, object]],
    papers: Callable[[Said], tuple[Paper, ...]],
) -> dict[str, object]:
    """As many of the values as every agreement can bear, tried together and then in halves."""
    tried = {**said}
    for key, value in values:
        tried[key] = value
        if (key, value) in _BEST_EFFORT:
            tried |= {"sequence.numbered": False, "sequence.ordered": False}
    if not values or all(map(is_sound, papers(tuple(tried.items())))):
        return tried
    if len(values) == 1:
        return said
    half = len(values) // 2
    return _accepted(_accepted(said, values[:half], papers), values[half:], papers)


def _with_hubs_of_their_own(chance: random.Random, setting: Setting) -> Setting:
    """Hubs that try less or more often than those who send through them."""
    said: Said = (
        ("delivery.retries", chance.choice((0, 1, 3))),
        ("delivery.on_exhausted", chance.choice(("fail_message", "suspend_channel"))),
    )
    tried = replace(setting, hub_said=said)
    papers = papers_of(tried, tried.way[0])
    return tried if all(map(is_sound, papers)) else setting


def _with_a_second_way(setting: Setting, seed: int) -> Setting:
    """Give some agreements that name no transport a second one to fall back to. Its own source of
    chance leaves the rest of the world as it is."""
    chance = random.Random(f"ways {seed}")
    drawn = chance.random() < 0.4, chance.choice(_WAYS)
    if setting.calm or not drawn[0] or "delivery.transports" in dict(setting.said):
        return setting
    return _with_said(setting, {"delivery.transports": drawn[1]})


def _with_bounds(setting: Setting, seed: int) -> Setting:
    """Have some agreements limit documents, above the size of any order. Its own source of chance
    leaves the rest of the world as it is."""
    chance = random.Random(f"bounds {seed}")
    drawn = {key: chance.choice(values) for key, values in _BOUNDS.items()}
    if setting.calm or chance.random() < 0.6:
        return setting
    return _with_said(setting, drawn)


def _with_said(setting: Setting, said: Mapping[str, object]) -> Setting:
    """The setting with these values, where every agreement of it is still sound."""
    tried = replace(setting, said=tuple({**dict(setting.said), **said}.items()))
    papers = [paper for node in tried.nodes for paper in papers_of(tried, node)]
    return tried if all(map(is_sound, papers)) else setting


# --- the traffic --------------------------------------------------------------------------------


def _draw_orders(chance: random.Random, setting: Setting) -> tuple[Order, ...]:
    count = chance.randint(3, 8) if setting.calm else chance.randint(3, 12)
    numbered = setting.leaning in (Leaning.NUMBERED, Leaning.RELAYED)
    pauses = (1, 100, 500) if setting.leaning is Leaning.RELAYED else (1, 100, 500, 2_000, 6_000)
    orders = []
    at = 0
    for number in range(count):
        at += chance.choice(pauses) * MILLISECOND
        partner = THIRD if setting.third and chance.random() < 0.35 else SELLER
        sender, receiver = BUYER, partner
        if chance.random() < (0.05 if numbered else 0.25):
            sender, receiver = receiver, sender
        loose = chance.random() < 0.12
        paper = next(
            each_paper
            for each_paper in papers_of(setting, sender)
            if each_paper.partner == receiver
        )
        slow = paper.via is not None and is_slow(paper.agreement)
        orders.append(
            Order(
                number,
                sender,
                receiver,
                at,
                conversation=0 if numbered else chance.choice((0, 0, 0, 1, 2)),
                best_effort=loose and takes_best_effort(paper.agreement.receiving),
                lifetime=15 * SECOND if chance.random() < 0.08 and not slow else None,
                reply=chance.choices(tuple(Reply), _REPLIES.get(setting.leaning, _USUAL))[0],
                # A calm world has time for all it sends; over slow hops parts take too long.
                size=min(chance.choice((0, 20, 20, 2_000)), 20 if setting.calm and slow else 2_000),
            )
        )
    return tuple(orders)
