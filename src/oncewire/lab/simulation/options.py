"""Options: a world by its figures: how many messages, through how many hubs, and shares of faults.

`plan_of` draws the plan of such a world from the options and a seed.
"""

from __future__ import annotations

import random
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from math import ceil

from oncewire.errors import InvalidValue
from oncewire.lab.simulation.plan import (
    BUYER,
    SELLER,
    Cut,
    Event,
    Fall,
    FullDisk,
    Harm,
    Mishap,
    Mood,
    Order,
    Plan,
    Said,
    Setting,
    Whim,
)
from oncewire.message.instant import HOUR, MILLISECOND, MINUTE, SECOND, Duration, format_duration
from oncewire.protocol.states import ENDLESS

PACE: Duration = SECOND // 2
"""How long after one order the next one follows."""
COPIED: Duration = 20 * MILLISECOND
SLOW: Duration = 20 * SECOND
"""How late a delayed parcel may be: later than several retries, so that stragglers are common."""
CUT: Duration = 30 * SECOND
DOWNTIME: Duration = 20 * SECOND
THINKS: Duration = SECOND
TROUBLE: Duration = 30 * MINUTE
"""How long after the last order the faults go on, at most."""

SETTLED: Duration = 6 * HOUR
"""How long after the last fault everything has to be settled, however long ids are kept."""

_FAULTS = {
    "loss": "lose", "duplicate": "repeat", "reorder": "delay", "corrupt": "damage",
    "crash": "crash", "partition": "cut", "disk_full": "full disk",
}  # fmt: skip
"""The options that are shares of faults, with what a world calls it when one happens."""


@dataclass(frozen=True, slots=True)
class Options:
    """One world. Rates are probabilities from 0 to 1."""

    messages: int = 200
    hops: int = 1
    loss: float = 0.2
    duplicate: float = 0.1
    reorder: float = 0.2
    corrupt: float = 0.01
    # Chance of a crash at each durable step, before or after it.
    crash: float = 0.005
    # Chance, at each message, that a link is cut for a while.
    partition: float = 0.002
    # Chance that a commit fails because the disk is full.
    disk_full: float = 0.002
    window: int = 8
    flow: str = "window"
    profile: str = "window"
    hop_mode: str = "store_and_forward"
    # Overrides of the agreement, as TOML lines of its own.
    agreement: str = ""
    timeout: Duration = 5 * SECOND
    retry_interval: Duration = 5 * SECOND
    retries: int = 8
    persist_duration: Duration = 2 * HOUR
    # How operators meet an incident. 0: they resume it, 1: they abandon the message, and with a
    # share between they resume it up to 1/abandon - 1 times before.
    abandon: float = 0.0

    def __post_init__(self) -> None:
        for name in (*_FAULTS, "abandon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidValue(f"{name} must lie between 0 and 1", remedy="give a share")
        if self.messages < 1 or self.hops < 1:
            raise InvalidValue("a run needs messages and a hop", remedy="give 1 or more of each")

    @property
    def calm(self) -> bool:
        """Whether there is no fault: then every message arrives and none is told as failed (L3)."""
        return not any(getattr(self, name) for name in _FAULTS)

    def as_flags(self) -> str:
        """The options that differ from the defaults, as the command line spells them."""
        default = Options()
        said = []
        for option in fields(self):
            value = getattr(self, option.name)
            if value == getattr(default, option.name):
                continue
            if option.name in ("timeout", "retry_interval", "persist_duration"):
                value = format_duration(value)
            flag = "agreement-text" if option.name == "agreement" else option.name
            said.append(f"--{flag.replace('_', '-')} {shlex.quote(str(value))}")
        return " ".join(said)


def setting_of(options: Options) -> Setting:
    """The nodes of a world and what they agreed: the terms of the options, then their overrides."""
    overrides = tomllib.loads(options.agreement)
    return Setting(
        calm=options.calm,
        hubs=options.hops - 1,
        profile=overrides.get("profile", options.profile),
        said=_said(options, overrides),
        # As many as come before the first of a draw of that chance.
        patience=ceil(1 / options.abandon) - 1 if options.abandon else ENDLESS,
    )


def _said(options: Options, overrides: dict[str, object]) -> Said:
    said: dict[str, object] = {
        "delivery.timeout": format_duration(options.timeout),
        "delivery.retries": options.retries,
        "delivery.retry_interval": format_duration(options.retry_interval),
        "delivery.persist_duration": format_duration(options.persist_duration),
        "hop.mode": options.hop_mode,
        "flow.mode": options.flow,
    }
    if options.flow == "window":
        said["flow.window"] = options.window
    for section, table in overrides.items():
        # The parties of an agreement file are those of its own world.
        if isinstance(table, dict) and section not in ("own", "partner", "via", "action"):
            for name, value in table.items():
                said[f"{section}.{name}"] = tuple(value) if isinstance(value, list) else value
    return tuple(said.items())


def plan_of(options: Options, seed: int) -> Plan:
    """The world of these options and this seed."""
    chance = random.Random(seed)
    setting = setting_of(options)
    orders = tuple(
        Order(number, BUYER, SELLER, number * PACE) for number in range(options.messages)
    )
    events = () if options.calm else tuple(_events(chance, options, setting, orders))
    return Plan(
        seed,
        setting,
        orders,
        events,
        flags=options.as_flags(),
        lingers=0 if options.calm else TROUBLE,
        settles=SETTLED,
        probed=not options.calm,
    )


def _events(
    chance: random.Random, options: Options, setting: Setting, orders: tuple[Order, ...]
) -> Iterator[Event]:
    links = list(pairwise((BUYER, *setting.way, SELLER)))
    # More transfers and durable steps of one node than there are while faults go on: an attempt
    # and its acknowledgement are two of each, and messages are resumed.
    count = 100 + 4 * options.messages * (options.retries + 1)
    for one, other in links:
        for sender, receiver in ((one, other), (other, one)):
            for nth in range(1, count):
                yield from _mishap(chance, options, sender, receiver, nth)
        # An order and its acknowledgement, each with its response, are four transfers.
        for at in range(0, len(orders) * PACE, PACE // 4):
            if chance.random() < options.partition:
                yield Cut(one, other, at, chance.randrange(CUT) + 1)
    for node in setting.nodes:
        for nth in range(1, count):
            for after in (False, True):
                if chance.random() < options.crash:
                    yield Fall(node, nth, after, chance.randrange(DOWNTIME) + 1)
            if chance.random() < options.disk_full:
                yield FullDisk(node, nth)
    for order in orders:
        yield Whim(order.number, Mood.SLOW, chance.randrange(THINKS))


def _mishap(
    chance: random.Random, options: Options, sender: str, receiver: str, nth: int
) -> Iterator[Mishap]:
    """What happens to one transfer: the first harm in this order that its share brings about."""
    late = chance.randrange(SLOW) if chance.random() < options.reorder else 0
    if chance.random() < options.loss:
        yield Mishap(sender, receiver, nth, Harm.LOSE)
    elif chance.random() < options.duplicate:
        yield Mishap(sender, receiver, nth, Harm.REPEAT, late or chance.randrange(COPIED))
    elif chance.random() < options.corrupt:
        yield Mishap(sender, receiver, nth, Harm.DAMAGE, chance.randrange(1 << 24))
    elif late:
        yield Mishap(sender, receiver, nth, Harm.DELAY, late)


def faults_of(happened: Counter[str]) -> dict[str, int]:
    """How often each kind of fault took place, by the name of its option."""
    return {name: happened[event] for name, event in sorted(_FAULTS.items())}
