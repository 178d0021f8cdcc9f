"""Plan: one world as data: its nodes, what was agreed, what is sent, what goes wrong.

Nothing is drawn while a world runs. A fault names the transfer, the durable step or the instant
that it hits, so a plan with fewer items is the same world with less in it, and that is what
shrinking needs.
"""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from functools import cache
from itertools import pairwise
from math import ceil
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import to_builtins

from oncewire.errors import InvalidValue
from oncewire.handler.context import Keys
from oncewire.journal.predicates.context import Violation
from oncewire.message.instant import (
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_duration,
)
from oncewire.protocol.states import ENDLESS
from oncewire.protocol.terms import Terms

Said: TypeAlias = tuple[tuple[str, object], ...]
"""Keys of an agreement with their values as TOML has them; lists are tuples."""

BUYER, SELLER, THIRD = "buyer", "seller", "third"


class Leaning(StrEnum):
    """What a world has more of than chance would give it."""

    NONE = "none"
    # Responses on the connection, and applications that are called to give them.
    SYNCHRONOUS = "synchronous"
    # The same, numbered and never repeated.
    HURRIED = "hurried"
    # One numbered stream in one direction.
    NUMBERED = "numbered"
    # The same through a hub that holds what comes too early, and loses its way on meanwhile.
    RELAYED = "relayed"


@dataclass(frozen=True, slots=True)
class Setting:
    """Who there is and what was agreed before anything happened."""

    # No fault, no intervention: every message arrives and none is told as failed.
    calm: bool = False
    leaning: Leaning = Leaning.NONE
    hubs: int = 0
    # The buyer has a second partner, which may be reached without the hubs.
    third: bool = False
    third_direct: bool = True
    profile: str = "ebms2"
    said: Said = ()
    # Where the third party is not behind the hubs it has an agreement of its own kind.
    third_profile: str = "ebms2"
    third_said: Said = ()
    # What hubs say of their own hops beyond that.
    hub_said: Said = ()
    # Ends whose application is called; the others' applications come for their messages.
    called: tuple[str, ...] = ()
    signed: bool = False
    # The machines go on counting steadily while their processes start again, as Linux does.
    steady: bool = False
    # Whether hubs can sign what is asked of them.
    hub_keys: bool = True
    # How often operators resume the same trouble before they give the message up.
    patience: int = 12

    @property
    def ends(self) -> tuple[str, ...]:
        """The parties that have applications."""
        return (BUYER, SELLER, THIRD) if self.third else (BUYER, SELLER)

    @property
    def way(self) -> tuple[str, ...]:
        """The hubs between the buyer and those behind them."""
        return tuple(f"hub{number}" for number in range(1, self.hubs + 1))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.ends, *self.way)

    def is_direct(self, partner: str) -> bool:
        """Whether no hub lies between the buyer and that partner."""
        return not self.hubs or (partner == THIRD and self.third_direct)


class Reply(StrEnum):
    """What the application of an order's receiver does beside taking it."""

    NONE = "none"
    # With its confirmation: on the connection where that was agreed.
    WITH = "with"
    LATER = "later"
    # With its confirmation, and once more later: a change of the first answer.
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Order:
    """One message an application submits."""

    number: int
    sender: str
    receiver: str
    at: Duration
    conversation: int = 0
    best_effort: bool = False
    lifetime: Duration | None = None
    reply: Reply = Reply.NONE
    size: int = 20

    @property
    def message_id(self) -> str:
        """Its MessageId."""
        return f"order-{self.number}@{self.sender}"


# --- what goes wrong, and who meddles -----------------------------------------------------------


HAUNTED: Duration = 2 * HOUR
"""How late a copy comes that the network has kept."""


class Harm(StrEnum):
    """What happens to one transfer."""

    LOSE = "lose"
    REPEAT = "repeat"
    DELAY = "delay"
    DAMAGE = "damage"
    # The receiver is too busy to look at it and says when to come back.
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Mishap:
    """The network or the receiver's door meets the nth transfer of one direction of a link."""

    sender: str
    receiver: str
    nth: int
    harm: Harm
    # How much later (the copy of) it comes, which bit is damaged, or after how long to come back.
    by: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing passes between two nodes for a while: refused, or swallowed in silence."""

    one: str
    other: str
    at: Duration
    lasts: Duration
    silent: bool = False
    # The one transport that fails, while others go on; empty: all of them.
    transport: str = ""


@dataclass(frozen=True, slots=True)
class Fall:
    """A process dies before or after its nth durable step and comes back later."""

    node: str
    nth: int
    after: bool
    lasts: Duration


@dataclass(frozen=True, slots=True)
class FullDisk:
    """The nth durable step of a node finds no room."""

    node: str
    nth: int


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A node's clock is set wrong, and right again after a while."""

    node: str
    at: Duration
    by: Duration
    lasts: Duration


class Mood(StrEnum):
    """How an application meets one message."""

    REFUSES = "refuses"
    SLOW = "slow"
    # It takes the message, dies and forgets that it has it.
    FORGETS = "forgets"


@dataclass(frozen=True, slots=True)
class Whim:
    """An application's mood about an order: so many refusals, or so long."""

    order: int
    mood: Mood
    amount: int = 1


class Turn(StrEnum):
    """What becomes of an agreement."""

    REPLACED = "replaced"
    ENDED = "ended"
    REMOVED = "removed"
    # Only another service may be used from now on.
    LISTED = "listed"
    # The partner has no address any more.
    UNADDRESSED = "unaddressed"


@dataclass(frozen=True, slots=True)
class Change:
    """An agreement changes on these sides; their handlers start again with it."""

    at: Duration
    cpa_id: str
    sides: tuple[str, ...]
    turn: Turn
    said: Said = ()
    # After how long the old one is put back; None: it stays, or is put right at the end of all
    # trouble where the two sides differ.
    lasts: Duration | None = None


class Deed(StrEnum):
    """What an operator does to a node unasked."""

    PAUSE = "pause"
    RESTART = "restart"
    ABANDON = "abandon"
    RESEND = "resend"
    ASK = "ask"
    # An application uses an id again for another document of the same length.
    REUSE = "reuse"


@dataclass(frozen=True, slots=True)
class Meddling:
    """A deed about an order, or about the channel that it runs on."""

    at: Duration
    deed: Deed
    order: int


class Tale(StrEnum):
    """What a partner says about a message."""

    # A partner that never saw it says that it failed.
    SLANDER = "slander"
    # Its receiver asks for an endless pause.
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Claim:
    """A signal about an order, from its receiver or from another partner of its sender."""

    at: Duration
    tale: Tale
    order: int
    seconds: int = 0


Event: TypeAlias = Mishap | Cut | Fall | FullDisk | ClockStep | Whim | Change | Meddling | Claim


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole world."""

    seed: int
    setting: Setting
    orders: tuple[Order, ...]
    events: tuple[Event, ...]
    # Which of the drawn orders and events are left after shrinking.
    kept: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    # The options of the command line that it was drawn from; None: all is drawn (`--wild`).
    flags: str | None = None
    # How long after the last event the world may come to rest before all faults end.
    lingers: Duration = 0
    # How long it has after all trouble to come to rest; None: as long as its timers may need.
    settles: Duration | None = None
    # Whether, after all trouble, one more message each way must arrive.
    probed: bool = True

    @property
    def trouble_until(self) -> Duration:
        """When the last drawn thing is over, counted from the beginning."""
        ends: list[Duration] = [order.at for order in self.orders]
        for event in self.events:
            at: Duration = getattr(event, "at", 0)
            ends.append(at + (getattr(event, "lasts", 0) or 0 if at else 0))
        return max(ends, default=0) + 30 * SECOND

    def only(self, orders: tuple[int, ...], events: tuple[int, ...]) -> Plan:
        """This world with these items alone, named by their places in the drawn plan."""
        return replace(
            self,
            orders=tuple(self.orders[place] for place in orders),
            events=tuple(self.events[place] for place in events),
            kept=(orders, events),
        )

    @property
    def command(self) -> str:
        """The command that runs exactly this again."""
        if self.flags is not None:
            return f"oncewire simulate --seed {self.seed} {self.flags}".rstrip()
        text = f"oncewire simulate --wild --seed {self.seed}"
        if self.kept is not None:
            orders, events = (",".join(map(str, index)) or "none" for index in self.kept)
            text += f" --only-messages {orders} --only-events {events}"
        return text


# --- what comes of it ---------------------------------------------------------------------------


class Ending(Enum):
    """How a turn of a machine ended for its caller."""

    DONE = "done"
    # The process is not there, or died on the way.
    DOWN = "down"
    # The store could not take it; nothing happened.
    FULL = "full"
    RAISED = "raised"


@dataclass(slots=True)
class Ledger:
    """What a world itself knows of its run, beside the journals, which the product writes: what was
    handed in and out, what was raised, and at which true instant each row was written."""

    # What applications handed in, by MessageId.
    documents: dict[str, bytes] = field(default_factory=dict)
    # Why a submission was not accepted, by MessageId.
    refused: dict[str, str] = field(default_factory=dict)
    # What applications were shown: by node and MessageId, each time.
    shown: dict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # Failures that an application heard of, by node.
    told: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # What operators wanted to give up, by node and MessageId, whatever crashed meanwhile.
    abandoned: set[tuple[str, str]] = field(default_factory=set)
    # What they gave up where it had arrived, as its application heard.
    given_up: set[tuple[str, str]] = field(default_factory=set)
    # The true instant of each journal row, by node and seq.
    written_at: dict[tuple[str, int], Instant] = field(default_factory=dict)
    # Replies on connections, by node and the request's MessageId, each different one once.
    replies: dict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # When connections that waited for a response ended without one, by node and request.
    left_alone: dict[tuple[str, str], list[Instant]] = field(
        default_factory=lambda: defaultdict(list)
    )
    # Parcels that carry an ErrorList, as they left: sender, receiver, body.
    reports: list[tuple[str, str, bytes]] = field(default_factory=list)
    # Seen while the world ran.
    found: list[Violation] = field(default_factory=list)
    # What happened of all that was drawn, and what else: counted by name.
    happened: Counter[str] = field(default_factory=Counter)
    _said: set[tuple[str | None, ...]] = field(default_factory=set)

    def broke(self, kind: str, sentence: str, node: str, message_id: str | None = None) -> None:
        """Note a broken promise; the same one is told once."""
        key = (kind, node, message_id, sentence if message_id is None else None)
        if key not in self._said:
            self._said.add(key)
            self.found.append(Violation("edge", kind, message_id, None, node, sentence))

    def raised(self, node: str, step: str, problem: Exception) -> None:
        """Note that a step of a handler raised an exception that its caller does not expect."""
        words = f"{step} raised {type(problem).__name__}: {str(problem)[:160]}"
        self.broke("raised", words, node)


@cache
def keys_of(name: str) -> Keys:
    """The key a party signs with, and its certificate: made from its name, so that every replay
    has the same, and worth nothing outside a simulation."""
    secret = int.from_bytes(hashlib.sha256(f"simulated {name}".encode()).digest()) >> 1
    key = ec.derive_private_key(secret, ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(secret % 2**64 + 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    return Keys(certificate, key)


@cache
def certificate_pem(name: str) -> str:
    """The certificate as an agreement holds it."""
    encoding = serialization.Encoding.PEM
    return keys_of(name).certificate.public_bytes(encoding).decode()


# --- the values of agreements -------------------------------------------------------------------

VALUES: dict[str, tuple[object, ...]] = {
    "delivery.reliable": (False,),
    "delivery.method": ("Transport",),
    "delivery.timeout": ("PT5S", "PT12S"),
    "delivery.retries": (0, 1, 3, 6),
    "delivery.retry_interval": ("PT5S", "PT9S"),
    "delivery.retries_counted": ("per_transport", "total"),
    "delivery.persist_duration": ("PT3M", "PT10M", "PT1H"),
    "delivery.time_to_live": ("PT20S", "PT2M"),
    "delivery.time_accuracy": ("00:10",),
    "delivery.transports": (("smtp",), ("http", "smtp")),
    "delivery.on_exhausted": ("fail_message", "suspend_channel"),
    "delivery.header_conflict": ("a", "b", "c", "d"),
    "delivery.receipt_provided": ("Signed", "Unsigned", "None"),
    "delivery.keep": ("PT10M",),
    "ack.request": ("always", "never", "perMessage", "whenStated"),
    "ack.signature": ("always", "never"),
    "ack.actor": ("nextMSH",),
    "ack.hop": ("never", "perMessage"),
    "ack.hop_request": ("Unsigned", "Signed"),
    "ack.bundling": ("standalone", "piggyback"),
    "ack.wait": ("PT2S",),
    "duplicate.elimination": ("always", "never", "perMessage", "whenStated"),
    "duplicate.answer": ("original", "most_recent", "fresh_ack"),
    "duplicate.no_response": ("ignore",),
    "best_effort.filter": (True, False),
    "sequence.numbered": (True, False),
    "sequence.ordered": (True, False),
    "sequence.range": ((0, 7), (1, 6), (0, 99), "rm-0.78"),
    "sequence.scope": ("triple", "pair", "conversation"),
    "sequence.on_gap": ("reject", "buffer"),
    "sequence.reset": ("silent", "first-window", "first-message"),
    "flow.mode": ("stop-and-wait", "window", "unrestricted"),
    "flow.window": (1, 2, 3, 8),
    "sync.mode": ("mshSignalsOnly", "responseOnly", "signalsAndResponse"),
    "sync.request": ("always", "whenStated"),
    "sync.replies": (True, False),
    "sync.retries": ("none", "same_message"),
    "sync.timeout": ("PT4S", "PT20S"),
    "sync.bundle": ("concatenated",),
    "hop.mode": ("store_and_forward", "transient_until_forwarded", "transparent", "by_request"),
    "payload.max_size": (100_000, 700, 300),
    "payload.compress": ("gzip",),
}
"""Values of an agreement's keys that wild worlds draw, beside those of its profile; every term of
`protocol.terms` is reached through a key here."""

RARE = frozenset(
    {"delivery.reliable", "delivery.method", "delivery.receipt_provided", "ack.request"}
)
"""Values that leave little of the protocol to be tried."""

SIGNED = frozenset({("ack.signature", "always"), ("ack.hop_request", "Signed")})
"""Values that need keys: signatures are slow, and most worlds have none."""

Held = frozenset[str]
"""The values that the terms of one agreement hold, one for each term."""


def held_by(terms: Terms) -> Held:
    """Every term with its value, as one word each."""
    return frozenset(f"{name}={json.dumps(value)}" for name, value in to_builtins(terms).items())


# Options: a world by its figures: how many messages, through how many hubs, and shares of faults.
#
# `plan_of` draws the plan of such a world from the options and a seed.


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
