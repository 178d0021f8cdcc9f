"""Plan: one wild world as data: who there is, what was agreed, what is sent, what goes wrong.

Nothing is drawn while a world runs. A fault names the transfer, the durable step or the instant
that it hits, so a plan with fewer items is the same world with less in it, and that is what
shrinking needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from oncewire.message.instant import SECOND, Duration

Said: TypeAlias = tuple[tuple[str, object], ...]
"""Keys of an agreement with their values as TOML has them; lists are tuples."""

BUYER, SELLER, THIRD = "buyer", "seller", "third"


class Manner(StrEnum):
    """How the operator meets an incident."""

    RESUME = "resume"
    ABANDON = "abandon"
    MIXED = "mixed"


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

    # No fault, no intervention: every message arrives and nobody is told of a failure.
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
    manner: Manner = Manner.RESUME

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
        """Everybody."""
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
    """Somebody sets a node's clock, and sets it right after a while."""

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
    # When somebody notices and puts the old one back; None: it stays, or is put right when
    # the two sides differ at the end of all trouble.
    lasts: Duration | None = None


class Deed(StrEnum):
    """What a person does to a node, asked for by nobody."""

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

    # Somebody who never saw it says that it failed.
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
    """A whole world. `kept` says which of the seed's items are left after shrinking."""

    seed: int
    setting: Setting
    orders: tuple[Order, ...]
    events: tuple[Event, ...]
    kept: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def trouble_until(self) -> Duration:
        """When the last drawn thing is over, counted from the beginning."""
        ends: list[Duration] = [order.at for order in self.orders]
        for event in self.events:
            at: Duration = getattr(event, "at", 0)
            ends.append(at + (getattr(event, "lasts", 0) or 0 if at else 0))
        return max(ends, default=0) + 30 * SECOND

    def only(self, orders: tuple[int, ...], events: tuple[int, ...]) -> Plan:
        """The same world with these items alone, named by their places in the drawn plan."""
        return replace(
            self,
            orders=tuple(self.orders[place] for place in orders),
            events=tuple(self.events[place] for place in events),
            kept=(orders, events),
        )

    @property
    def command(self) -> str:
        """The command that runs exactly this again."""
        text = f"oncewire simulate --wild --seed {self.seed}"
        if self.kept is not None:
            orders, events = (",".join(map(str, index)) or "none" for index in self.kept)
            text += f" --only-messages {orders} --only-events {events}"
        return text
