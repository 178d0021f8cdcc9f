"""What is handed to the handler, and what leaves the engine once its state is committed.

A transition collects actions; `Engine.commit` gives them out after the store said that
everything is durable. When the commit fails they are thrown away with it. Each of them
can be found again from the stored state after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from oncewire.errors import InvalidValue
from oncewire.message.envelope import (
    TRIAL_MARK,
    TRIAL_SERVICE,
    Payload,
    Severity,
    StatusResponse,
    is_named_rightly,
)
from oncewire.message.ids import Service, check_id
from oncewire.message.instant import DAY, Duration
from oncewire.message.payload import check_payloads
from oncewire.protocol.states import Outcome, OutgoingState
from oncewire.store.records import StoredParcel


class Post(Struct, frozen=True):
    """Carry one attempt of an outgoing message to its receiver."""

    message_id: str
    attempt: int
    transport: str
    address: str
    parcel: StoredParcel
    # How long the transport may take, in microseconds.
    timeout: int
    # The transport answers for the delivery (RM-7): it may take as long as the message lives, and
    # takes nobody's place meanwhile.
    delegated: bool = False
    # Then it must have begun within so many microseconds: later the message's time is over.
    begin_within: int | None = None


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """Carry an acknowledgement or another signal over a connection of its own.

    `sender` and `message_id` name the message it answers, where the store keeps the
    answer as owed; both are empty for a signal that is not kept.
    """

    transport: str
    address: str
    parcel: StoredParcel
    sender: str = ""
    message_id: str = ""
    # Where else it may go, transport and address, if it gets nowhere there: a signal has no
    # retries of its own.
    others: tuple[tuple[str, str], ...] = ()
    # The MessageId of a Ping, whose caller is told when it gets nowhere.
    ping_id: str = ""

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """All of them, in the order in which they are tried."""
        return ((self.transport, self.address), *self.others)


@dataclass(frozen=True, slots=True)
class PostReply:
    """The reply that a connection waits for is stored: let it leave there.

    `post` is the response as an attempt of its own, for where no connection waits any more.
    """

    sender: str
    message_id: str
    post: Post | None = None
    # A connection waits for it at another handler, which hears of it.
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class PostOn:
    """Carry a message of others to the next hop, while the connection it came on waits.

    `sender` and `message_id` name the request that waits for what comes back.
    """

    transport: str
    address: str
    parcel: StoredParcel
    sender: str
    message_id: str
    # How long the transport may take, in microseconds: less than the request can wait.
    timeout: int


@dataclass(frozen=True, slots=True)
class Relay:
    """What the next hop said goes back on the connection of the request, if it still waits.

    No parcel: it said nothing, or only a status. `instead` is how a message leaves where no
    connection waits any more.
    """

    sender: str
    message_id: str
    parcel: StoredParcel | None = None
    status: int = 200
    retry_after: int | None = None
    instead: Post | PostAnswer | None = None


class Settled(Struct, frozen=True):
    """A message reached its outcome; its callers may go on."""

    message_id: str
    state: OutgoingState


@dataclass(frozen=True, slots=True)
class Ponged:
    """The partner's handler answered a Ping of ours."""

    message_id: str


@dataclass(frozen=True, slots=True)
class StatusTold:
    """The receiver of a message of ours said what became of it."""

    response: StatusResponse
    # The agreement that the question named, about a message that is unknown here.
    cpa_id: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """The application must be told that its message failed; owed until the application took it.

    `message_id`: of the message that failed.
    `severity`: Error if it is certainly not delivered, Warning if that is unknown.
    `outcome`: not delivered, or unknown; sent, of a best-effort message that was refused.
    `reason`: why, in words.
    `notice_id`: the same however often it is told; a message that fails once more has another.
    """

    message_id: str
    severity: Severity
    outcome: Outcome
    reason: str
    notice_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A partner refused a message that was sent with best effort. The application hears of it and
    is owed nothing (C34): an application that does not take it finds it in the outbox."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Warned:
    """A partner warned us about a message of ours; it is stored, and needs no action."""

    message_id: str
    code: str
    description: str


@dataclass(frozen=True, slots=True)
class Join:
    """All parts of a received document are stored: put it together.

    That may take long, so it is no part of a turn; what came of it is told by `Engine.joined`.
    """

    sender: str
    split_id: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A person decided about a message that waits for the application: it is offered no more."""

    sender: str
    message_id: str


class Ready(Struct, frozen=True):
    """The application has something to take."""

    count: int


Action: TypeAlias = (
    Post
    | PostAnswer
    | PostReply
    | PostOn
    | Relay
    | Settled
    | Ponged
    | StatusTold
    | Notice
    | Refused
    | Warned
    | Join
    | Decided
    | Ready
)


# Source: where a parcel came from, as far as its transport knows.


REPLY = "reply"
"""The transport of what comes back on a connection of our own; it belongs to no stream."""


class Source(Struct, frozen=True):
    """The transport, whether it can carry an answer back, and who is on the other end."""

    transport: str
    can_answer: bool = False
    address: str = ""
    # DER of the TLS client certificate, when there was one.
    certificate: bytes | None = None
    # Only for a reply: our own connection was one with TLS, so the peer proved that it is the one
    # at the agreed address (or the agreed certificate's owner) before a byte was sent.
    secured: bool = False


def replied(address: str) -> Source:
    """What came back on a connection that we opened to this address."""
    return Source(REPLY, address=address, secured=address.lower().startswith("https:"))


# Submission: what an application hands in, checked once, and what it is told.

LIFETIME_MAX: Duration = 100 * 366 * DAY
"""A message that may take longer may take for ever: it needs no TimeToLive."""


class Submission(Struct, frozen=True):
    """What an application hands in: documents, and under which agreement and for what.

    `cpa_id`: the agreement, as `oncewire agreement show` names it.
    `service`, `action`: what the partner is to do with it.
    `payloads`: the documents; none are needed, the action may say it all.
    `conversation_id`: of the conversation that it belongs to; a new one is made for None.
    `message_id`: given by an application that may repeat a submission after a crash.
    `ref_to_message_id`: the message that it responds to.
    `time_to_live`: in microseconds from now; as agreed for None.
    `best_effort`: without repeats and acknowledgements, although the agreement has them.
    `by`: who hands it in, for the journal: a person or a program.
    """

    cpa_id: str
    service: Service
    action: str
    payloads: tuple[Payload, ...] = ()
    conversation_id: str | None = None
    message_id: str | None = None
    ref_to_message_id: str | None = None
    time_to_live: Duration | None = None
    best_effort: bool = False
    by: str | None = None

    def __post_init__(self) -> None:
        """Everything that comes from outside is a Submission once, so it is checked here."""
        check_id(self.cpa_id, "cpa_id")
        if not isinstance(self.service, Service):
            raise is_no("service", "Service", self.service, "give an oncewire Service")
        check_id(self.action, "action")
        for name in ("conversation_id", "message_id", "ref_to_message_id", "by"):
            if (value := getattr(self, name)) is not None:
                check_id(value, name)
        lifetime = self.time_to_live
        # bool is a subclass of int; reject it.
        whole = type(lifetime) is int and 0 < lifetime <= LIFETIME_MAX
        if lifetime is not None and not whole:
            remedy = f"give whole microseconds, from 1 to {LIFETIME_MAX}, or none"
            raise is_no("time_to_live", "lifetime", lifetime, remedy)
        if not isinstance(self.best_effort, bool):
            raise is_no("best_effort", "bool", self.best_effort, "say True or False")
        if not is_named_rightly(self.message_id or "", self.service):
            raise InvalidValue(
                f"service {TRIAL_SERVICE} and MessageIds with {TRIAL_MARK} are for trials",
                remedy="`oncewire partner test` makes them",
            )
        check_payloads(self.payloads)


def is_no(name: str, kind: str, value: object, remedy: str) -> InvalidValue:
    """The refusal of a value of another kind."""
    return InvalidValue(f"{name} is no {kind}: {repr(value)[:32]}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store has it: from now on it is sent, or the application is told.

    `message_id`: by which `wait`, `ask` and `oncewire why` know it.
    `conversation_id`: for further messages that belong to it.
    `repeated`: the same id was submitted before with the same content; nothing new happened.
    """

    message_id: str
    conversation_id: str
    repeated: bool = False
