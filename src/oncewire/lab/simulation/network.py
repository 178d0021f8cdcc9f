"""The simulated network: loses, repeats, delays, reorders, corrupts and cuts."""

from __future__ import annotations

import heapq
import json
import random
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.toml.reader import read_toml
from oncewire.errors import InvalidValue
from oncewire.message.instant import HOUR, MILLISECOND, SECOND, Duration, Instant, format_duration

# The simulated world: virtual time that jumps from event to event, and seeded chance.

START: Instant = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z; any instant would do, a fixed one replays."""


class Clock:
    """Virtual time and the events still to come, in order of time and of scheduling."""

    def __init__(self, seed: int) -> None:
        self.now: Instant = START
        self.chance = random.Random(seed)
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._scheduled = 0

    def after(self, delay: Duration, event: Callable[[], None]) -> None:
        """Let the event happen that much later."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + max(delay, 0), self._scheduled, event))

    def at(self, instant: Instant, event: Callable[[], None]) -> None:
        """Let the event happen at that instant, or now if it has passed."""
        self.after(instant - self.now, event)

    def step(self) -> bool:
        """Go to the next event and let it happen; False when there is none."""
        if not self._queue:
            return False
        self.now, _, event = heapq.heappop(self._queue)
        event()
        return True

    def happens(self, probability: float) -> bool:
        """Draw: True with that probability."""
        return probability > 0 and self.chance.random() < probability


class NodeWorld:
    """One node's view of the world: its own boot, its own ids, the shared time."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._booted = clock.now
        self._ids = 0

    def boot(self) -> None:
        """A new process: monotonic time starts again; ids are never used twice."""
        self._booted = self._clock.now

    def now(self) -> Instant:
        """Virtual UTC."""
        return self._clock.now

    def mono(self) -> Duration:
        """Virtual time since the boot."""
        return self._clock.now - self._booted

    def machine(self) -> str:
        """Every boot is one of the machine too: nothing steady is left of the one before."""
        return ""

    def new_id(self) -> str:
        """A fresh id, the same in every replay."""
        self._ids += 1
        return f"{self._name}-{self._ids}"


# Options: what kind of world a run takes place in. Options and a seed are the whole run.


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
    # How the operator meets an incident: share of messages abandoned instead of resumed.
    abandon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt", "crash", "partition", "abandon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidValue(f"{name} must lie between 0 and 1", remedy="give a share")
        if self.messages < 1 or self.hops < 1:
            raise InvalidValue("a run needs messages and a hop", remedy="give 1 or more of each")

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


LATENCY: Duration = 20 * MILLISECOND
SLOW: Duration = 20 * SECOND
"""How late a reordered copy may be: later than several retries, so that stragglers are common."""
CUT: Duration = 30 * SECOND


@dataclass(slots=True)
class Network:
    """What happens to bytes between two nodes. `healed` ends every fault."""

    clock: Clock
    options: Options
    faults: Counter[str]
    healed: bool = False
    _cut_until: dict[frozenset[str], int] = field(default_factory=dict)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between two nodes now; a cut may begin here."""
        if self.healed:
            return False
        link = frozenset((one, other))
        if self._cut_until.get(link, 0) > self.clock.now:
            return True
        if self.clock.happens(self.options.partition):
            self.faults["partition"] += 1
            length = self.clock.chance.randrange(CUT)
            self._cut_until[link] = self.clock.now + length
            return True
        return False

    def carry(self, body: bytes, arrive: Callable[[bytes], None]) -> bool:
        """Let the bytes arrive later, once, more than once or never; False: never."""
        copies = 1
        if not self.healed:
            if self.clock.happens(self.options.loss):
                self.faults["loss"] += 1
                copies = 0
            if self.clock.happens(self.options.duplicate):
                self.faults["duplicate"] += 1
                copies += 1
        for _ in range(copies):
            arriving = self._corrupted(body)
            self.clock.after(self._delay(), lambda data=arriving: arrive(data))  # type: ignore[misc]
        return copies > 0

    def _delay(self) -> Duration:
        delay = LATENCY + self.clock.chance.randrange(LATENCY)
        if not self.healed and self.clock.happens(self.options.reorder):
            self.faults["reorder"] += 1
            delay += self.clock.chance.randrange(SLOW)
        return delay

    def _corrupted(self, body: bytes) -> bytes:
        if self.healed or not body or not self.clock.happens(self.options.corrupt):
            return body
        self.faults["corrupt"] += 1
        position = self.clock.chance.randrange(len(body))
        flipped = body[position] ^ (1 << self.clock.chance.randrange(8))
        return body[:position] + bytes((flipped,)) + body[position + 1 :]


# Topology: buyer, seller and the hubs between them, with agreements like anybody's.

CPA_ID = "buyer-seller"


def names(options: Options) -> list[str]:
    """The nodes on the way: the buyer, the hubs, the seller."""
    return ["buyer", *(f"hub{number}" for number in range(1, options.hops)), "seller"]


def agreements_of(name: str, options: Options) -> list[Agreement]:
    """The agreements one node has: with the other end, or with both neighbours."""
    way = names(options)
    place = way.index(name)
    if name in (way[0], way[-1]):
        partner = way[-1] if place == 0 else way[0]
        neighbour = way[1] if place == 0 else way[-2]
        via = None if neighbour == partner else neighbour
        return [_agreement(name, partner, CPA_ID, options, via=via)]
    before, after = way[place - 1], way[place + 1]
    return [
        _agreement(name, before, f"{before}-{name}", options, behind=way[: place - 1]),
        _agreement(name, after, f"{name}-{after}", options, behind=way[place + 2 :]),
    ]


def _agreement(
    own: str,
    partner: str,
    cpa_id: str,
    options: Options,
    *,
    via: str | None = None,
    behind: list[str] | None = None,
) -> Agreement:
    """The policies of the options, then those of their agreement, between these parties."""
    values = _policies(options)
    for section, said in tomllib.loads(options.agreement).items():
        if isinstance(said, dict) and section not in _PARTIES:
            values.setdefault(section, {}).update(said)
        elif section == "profile":
            values["profile"] = said
    values["cpa_id"] = cpa_id
    values["own"], values["partner"] = _side(own), _side(partner)
    if behind:
        values["partner"]["behind"] = [f"urn:sim:{name}" for name in behind]
    if via is not None:
        values["via"] = _side(via)
    if own.startswith("hub"):
        values["forwards"] = True
    return read_toml(_as_toml(values))


_PARTIES = ("own", "partner", "via", "action")


def _policies(options: Options) -> dict[str, Any]:
    flow: dict[str, Any] = {"mode": options.flow}
    if options.flow == "window":
        flow["window"] = options.window
    return {
        "profile": options.profile,
        "delivery": {
            "timeout": format_duration(options.timeout),
            "retries": options.retries,
            "retry_interval": format_duration(options.retry_interval),
            "persist_duration": format_duration(options.persist_duration),
        },
        "hop": {"mode": options.hop_mode},
        "flow": flow,
    }


def _side(name: str) -> dict[str, Any]:
    uri = f"http://{name}/msh"
    return {"party_id": f"urn:sim:{name}", "uri": uri, "http": uri}


def _as_toml(values: dict[str, Any]) -> str:
    """Plain values and one level of tables as TOML; JSON spells strings and lists alike."""
    lines = [
        f"{key} = {json.dumps(item)}" for key, item in values.items() if type(item) is not dict
    ]
    for section, table in values.items():
        if isinstance(table, dict):
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines)
