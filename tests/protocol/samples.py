"""Values that many protocol tests start from, each with one thing worth changing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from oncewire.message.envelope import (
    AckRequested,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.message.instant import SECOND
from oncewire.protocol import sender
from oncewire.protocol.notes import Admit, Note, Notify, Raise, Resolve, Transmit
from oncewire.protocol.receiver import Arrival
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Outgoing, OutgoingState
from oncewire.protocol.terms import FlowMode, OnGap, ResetRule, Terms

NOW = 1_000_000 * SECOND
TIMEOUT = 30 * SECOND
INTERVAL = 60 * SECOND
TEN = SequenceRange(0, 9)
"""M = 10, as in the slides' examples."""

PLAIN = Terms(timeout=TIMEOUT, retry_interval=INTERVAL, retries=2)
"""Reliable, neither numbered nor limited."""

ORDERED = replace(PLAIN, numbered=True, ordered=True, flow=FlowMode.WINDOW, window=4, numbers=TEN)
"""The slides' window: M = 10, W = 4, Reset on the whole first window."""

STOP_AND_WAIT = replace(
    PLAIN,
    numbered=True,
    ordered=True,
    flow=FlowMode.STOP_AND_WAIT,
    numbers=SequenceRange(1, 9),
    on_gap=OnGap.REJECT,
    reset=ResetRule.SILENT,
)
"""v0-078: one message at a time, numbers from 1, gaps rejected, restarts silent."""

RESET, CONTINUE = SequenceStatus.RESET, SequenceStatus.CONTINUE

E = TypeVar("E", Note, Transmit, Notify, Raise, Resolve, Admit)


def waiting(message_id: str = "m", **changes: Any) -> Outgoing:
    """A message that was just submitted."""
    return replace(Outgoing(message_id, "terms", NOW), **changes)


def outstanding(terms: Terms = PLAIN, now: int = NOW, **changes: Any) -> Outgoing:
    """A message without a channel after its first attempt."""
    entered = sender.enter_window(waiting(**changes), None, terms, now).outgoing
    return sender.attempt_due(entered, None, terms, now).outgoing


def of_kind(step: SenderStep | Iterable[Any], kind: type[E]) -> list[E]:
    """The step's effects of one kind."""
    effects = step.effects if isinstance(step, SenderStep) else step
    return [effect for effect in effects if isinstance(effect, kind)]


def notes(step: Any) -> list[str]:
    """The kinds of the journal rows a step writes, in order."""
    return [note.kind for note in of_kind(step.effects, Note)]


class Stream:
    """A sender's side of one channel, driven by hand."""

    def __init__(self, terms: Terms = ORDERED, now: int = NOW) -> None:
        self.terms, self.now = terms, now
        self.channel = SendingChannel.open("a>b", terms)
        self.messages: dict[str, Outgoing] = {}
        self.last: SenderStep | None = None

    def submit(self, *ids: str, **changes: Any) -> None:
        for message_id in ids:
            self.messages[message_id] = waiting(message_id, channel="a>b", **changes)

    def enter(self, *ids: str) -> None:
        """Submit, enter the window and make the first attempt."""
        for message_id in ids:
            self.submit(message_id)
            self.step(message_id, sender.enter_window, self.terms, self.now)
            self.step(message_id, sender.attempt_due, self.terms, self.now)

    def step(
        self, message_id: str, event: Callable[..., SenderStep], *args: Any, **named: Any
    ) -> SenderStep:
        done = event(self.messages[message_id], self.channel, *args, **named)
        self.messages[message_id] = done.outgoing
        assert done.channel is not None
        self.channel = done.channel
        self.last = done
        return done

    def ack(self, *ids: str) -> None:
        for message_id in ids:
            self.step(message_id, sender.ack_arrived, self.terms, ack_id=f"ack-{message_id}")

    def due(self, message_id: str, *, after: int = 0) -> SenderStep:
        self.now += after
        return self.step(message_id, sender.attempt_due, self.terms, self.now)

    def abandon(self, message_id: str) -> SenderStep:
        return self.step(message_id, sender.abandon, self.terms)

    def resume(self, message_id: str) -> SenderStep:
        return self.step(message_id, sender.resume, self.terms, self.now)

    def state(self, message_id: str) -> OutgoingState:
        return self.messages[message_id].state

    def number(self, message_id: str) -> int | None:
        return self.messages[message_id].number

    @property
    def under_way(self) -> list[int]:
        """Unsettled numbers in window order."""
        window = self.channel.window(self.terms)
        return [n for n in window if self.channel.is_unsettled(self.channel.epoch, n, self.terms)]


def arrival(
    number: int | None,
    stamp: int,
    status: SequenceStatus | None = CONTINUE,
    message_id: str | None = None,
    **changes: Any,
) -> Arrival:
    """A message never seen before; its id is its stamp unless a test cares."""
    sequence = None if number is None else SequenceNumber(number, status)
    return replace(Arrival(message_id or f"s{stamp}", "digest", stamp, sequence), **changes)


def header(**changes: Any) -> Header:
    """A header of a business message that says nothing unusual."""
    plain = Header(
        from_party=Party.of("urn:buyer"),
        to_party=Party.of("urn:seller"),
        cpa_id="cpa-1",
        conversation_id="c-1",
        service=Service("urn:orders"),
        action="NewOrder",
        message_id="m@buyer",
        timestamp=NOW,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
    )
    return replace(plain, **changes)


def message(
    kind: MessageKind = MessageKind.NORMAL,
    *,
    ack_requested: tuple[AckRequested, ...] = (),
    routing: tuple[RoutingHeader, ...] = (),
    **header_changes: Any,
) -> Message:
    """A reliable business message, or a signal."""
    return Message(
        Dialect.MS_09X,
        kind,
        header(**header_changes),
        routing=routing,
        ack_requested=ack_requested,
    )


def hop(**changes: Any) -> RoutingHeader:
    """One hop of the way."""
    return replace(RoutingHeader("http://a.example", "http://b.example", timestamp=NOW), **changes)
