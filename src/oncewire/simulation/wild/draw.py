"""Draw: a seed becomes a plan: the setting here, what goes wrong in it in `trouble`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

from oncewire.agreement.rules import takes_best_effort
from oncewire.message.instant import MILLISECOND, SECOND
from oncewire.simulation.wild.contradictions import believes_hubs, is_slow
from oncewire.simulation.wild.papers import Paper, is_sound, papers_of
from oncewire.simulation.wild.plan import (
    BUYER,
    SELLER,
    THIRD,
    Leaning,
    Manner,
    Order,
    Plan,
    Reply,
    Said,
    Setting,
)
from oncewire.simulation.wild.trouble import draw_events, draw_outages
from oncewire.simulation.wild.values import RARE, SIGNED, VALUES

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
        manner=chance.choice(tuple(Manner)),
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
    """Where nothing is said of transports, some fall back to another. Drawn on its own, so that a
    world is what it was beside it."""
    chance = random.Random(f"ways {seed}")
    drawn = chance.random() < 0.4, chance.choice(_WAYS)
    if setting.calm or not drawn[0] or "delivery.transports" in dict(setting.said):
        return setting
    said = tuple({**dict(setting.said), "delivery.transports": drawn[1]}.items())
    tried = replace(setting, said=said)
    papers = [paper for node in tried.nodes for paper in papers_of(tried, node)]
    return tried if all(map(is_sound, papers)) else setting


def _with_bounds(setting: Setting, seed: int) -> Setting:
    """Some say how much of a document they take, more than any of these worlds has. Drawn on its
    own too."""
    chance = random.Random(f"bounds {seed}")
    drawn = {key: chance.choice(values) for key, values in _BOUNDS.items()}
    if setting.calm or chance.random() < 0.6:
        return setting
    tried = replace(setting, said=tuple({**dict(setting.said), **drawn}.items()))
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
                size=chance.choice((0, 20, 20, 2_000)),
            )
        )
    return tuple(orders)
