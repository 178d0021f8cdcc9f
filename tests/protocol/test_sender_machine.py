"""The sender against a plain model of itself, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncewire.errors import NotAllowed
from oncewire.message.envelope import Error, SequenceStatus, Severity
from oncewire.message.instant import SECOND
from oncewire.protocol import sender
from oncewire.protocol.notes import Admit, Notify, Raise, Resolve, Transmit
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import FINAL_OUTGOING, Outgoing, OutgoingState, Phase
from oncewire.protocol.terms import FlowMode, OnExhausted, ResetRule, RetryCount, Terms
from tests.examples import examples
from tests.protocol.samples import NOW, of_kind

ERRORS = [
    Error("TransientError", Severity.WARNING, min_retry_secs=20),
    Error("TransientError", Severity.WARNING),
    Error("CommunicationProtocolError"),
    Error("Inconsistent", location="//SequenceNumber"),
    Error("SecurityFailure"),
    Error("TimeToLiveExpired"),
    Error("DeliveryFailure"),
    Error("DeliveryFailure", Severity.WARNING),
]


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    window = draw(st.integers(1, 3))
    first = draw(st.sampled_from([0, 1]))
    size = draw(st.integers(2 * window, 2 * window + 4))
    resets = [ResetRule.FIRST_WINDOW, ResetRule.FIRST_MESSAGE]
    return Terms(
        numbered=True,
        ordered=True,
        flow=FlowMode.WINDOW,
        window=window,
        numbers=SequenceRange(first, first + size - 1),
        reset=draw(st.sampled_from([*resets, ResetRule.SILENT] if window == 1 else resets)),
        timeout=10 * SECOND,
        retry_interval=15 * SECOND,
        retries=draw(st.integers(0, 2)),
        retries_counted=draw(st.sampled_from(RetryCount)),
        transports=("http", "smtp")[: draw(st.integers(1, 2))],
        persist_duration=draw(st.sampled_from([60 * SECOND, 10_000 * SECOND])),
        on_exhausted=draw(st.sampled_from(OnExhausted)),
    )


class SenderMachine(RuleBasedStateMachine):
    """What the model knows: which numbers were given in this epoch, and which are settled."""

    @initialize(agreed=terms())
    def begin(self, agreed: Terms) -> None:
        self.terms = agreed
        self.now = NOW
        self.channel = SendingChannel.open("a>b", agreed)
        self.messages: dict[str, Outgoing] = {}
        # Numbers of the present epoch in the order they were given, each with its owner.
        self.given: list[str] = []
        self.settled: set[str] = set()
        self.told: set[str] = set()
        self.incidents: set[str] = set()
        self.last_sent: dict[str, int] = {}

    # --- steps ---

    def perform(self, message_id: str, step: SenderStep) -> None:
        before = self.messages[message_id]
        self.messages[message_id] = step.outgoing
        assert step.channel is not None
        self.channel = step.channel
        for sent in of_kind(step, Transmit):
            self.check_attempt(message_id, before, sent)
        if of_kind(step, Notify):
            self.told.add(message_id)
        for raised in of_kind(step, Raise):
            assert raised.message_id == message_id
            self.incidents.add(message_id)
        for resolved in of_kind(step, Resolve):
            self.incidents.discard(resolved.message_id or "")
        if of_kind(step, Admit):
            assert self.channel.places(self.terms)

    def check_attempt(self, message_id: str, before: Outgoing, sent: Transmit) -> None:
        """The retry law (S11)."""
        assert before.next_attempt_at is not None
        assert self.now >= before.next_attempt_at
        assert not self.channel.suspended
        assert self.now >= self.channel.paused_until
        deadline = before.deadline(self.terms)
        assert deadline is None or self.now < deadline
        after = self.messages[message_id]
        assert after.attempts_here <= 1 + self.terms.retries
        if after.attempts_here > 1:
            wait = self.terms.timeout if after.attempts_here == 2 else self.terms.retry_interval
            assert self.now - self.last_sent[message_id] >= wait
        assert sent.attempt == before.attempts + 1
        self.last_sent[message_id] = self.now

    def pick(self, data: st.DataObject, *states: OutgoingState) -> str | None:
        ids = [i for i, m in self.messages.items() if not states or m.state in states]
        return data.draw(st.sampled_from(ids)) if ids else None

    # --- rules ---

    @rule(lifetime=st.sampled_from([None, None, 20 * SECOND]))
    def submit_and_enter(self, lifetime: int | None) -> None:
        if self.channel.places(self.terms) < 1:
            return
        message_id = f"m{len(self.messages)}"
        expires = None if lifetime is None else self.now + lifetime
        self.messages[message_id] = Outgoing(
            message_id, "terms", self.now, "a>b", expires_at=expires
        )
        epoch = self.channel.epoch
        step = sender.enter_window(self.messages[message_id], self.channel, self.terms, self.now)
        self.perform(message_id, step)
        if self.channel.epoch != epoch:
            assert self.channel.epoch == epoch + 1
            assert self.unsettled() == [], "an epoch begins when the one before is settled"
            self.given = []
        self.check_number(self.messages[message_id], len(self.given))
        self.given.append(message_id)

    def check_number(self, entered: Outgoing, place: int) -> None:
        numbers = self.terms.numbers
        assert entered.number == numbers.after(numbers.first, place)
        marked = self.terms.window_size if self.terms.reset is ResetRule.FIRST_WINDOW else 1
        mark = SequenceStatus.RESET if place < marked else SequenceStatus.CONTINUE
        assert entered.status is (None if self.terms.reset is ResetRule.SILENT else mark)

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if (message_id := self.pick(data)) is None:
            return
        before = self.messages[message_id]
        step = sender.ack_arrived(before, self.channel, self.terms, ack_id="a")
        self.perform(message_id, step)
        if before.attempts:
            assert self.messages[message_id].state is OutgoingState.DELIVERED
            self.settled.add(message_id)
            self.incidents.discard(message_id)

    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def refuse(self, data: st.DataObject, error: Error) -> None:
        if (message_id := self.pick(data)) is None:
            return
        step = sender.error_arrived(
            self.messages[message_id],
            self.channel,
            self.terms,
            self.now,
            error=error,
            error_id="e",
        )
        self.perform(message_id, step)
        self.settle_if_final(message_id)

    def settle_if_final(self, message_id: str) -> None:
        """Whatever ends a message settles its number; a suspension never hangs on one."""
        outgoing = self.messages[message_id]
        if outgoing.state in FINAL_OUTGOING:
            self.settled.add(message_id)

    @rule(data=st.data(), wait=st.sampled_from([0, 1, 10, 15, 61]))
    def time_passes(self, data: st.DataObject, wait: int) -> None:
        self.now += wait * SECOND
        for message_id in data.draw(st.permutations(sorted(self.messages))):
            step = sender.attempt_due(self.messages[message_id], self.channel, self.terms, self.now)
            self.perform(message_id, step)
            self.settle_if_final(message_id)

    @rule(data=st.data(), certain=st.booleans(), stale=st.booleans())
    def transport_fails(self, data: st.DataObject, certain: bool, stale: bool) -> None:
        message_id = self.pick(data)
        if message_id is None or self.messages[message_id].attempts <= stale:
            return
        before = self.messages[message_id]
        if before.attempts_lost >= before.attempts:
            return
        step = sender.transmission_failed(
            before,
            self.channel,
            self.terms,
            self.now,
            attempt=before.attempts - stale,
            certain=certain,
            reason="down",
        )
        self.perform(message_id, step)

    @rule(data=st.data())
    def operator_abandons(self, data: st.DataObject) -> None:
        if (message_id := self.pick(data)) is None:
            return
        outgoing = self.messages[message_id]
        if outgoing.state in FINAL_OUTGOING and self.channel.suspended_by != message_id:
            with pytest.raises(NotAllowed):
                sender.abandon(outgoing, self.channel, self.terms)
            self.incidents.discard(message_id)
            return
        self.perform(message_id, sender.abandon(outgoing, self.channel, self.terms))
        self.settled.add(message_id)
        self.incidents.discard(message_id)
        assert self.channel.phase is Phase.ENDING
        assert self.channel.suspended_by != message_id

    @rule(data=st.data())
    def operator_resumes(self, data: st.DataObject) -> None:
        if (message_id := self.pick(data)) is None:
            return
        outgoing = self.messages[message_id]
        try:
            step = sender.resume(outgoing, self.channel, self.terms, self.now)
        except NotAllowed:
            deadline = outgoing.deadline(self.terms)
            past = deadline is not None and self.now >= deadline
            assert message_id in self.settled or past
            return
        self.perform(message_id, step)
        self.settle_if_final(message_id)
        if self.messages[message_id].state is OutgoingState.OUTSTANDING:
            assert self.messages[message_id].attempts_here == 0
            assert self.channel.suspended_by != message_id

    @rule()
    def channel_is_resumed(self) -> None:
        self.channel = self.channel.resume()

    @precondition(lambda self: not self.unsettled())
    @rule()
    def restarts(self) -> None:
        try:
            self.channel = self.channel.restart(self.terms)
        except NotAllowed:
            assert 0 < len(self.given) < self.terms.window_size

    # --- what always holds ---

    def unsettled(self) -> list[str]:
        return [message_id for message_id in self.given if message_id not in self.settled]

    @invariant()
    def the_window_is_the_models(self) -> None:
        open_ids = self.unsettled()
        assert self.channel.unsettled(self.terms) == len(open_ids)
        if open_ids:
            first = self.messages[open_ids[0]].number
            assert self.channel.window(self.terms).start == first
            last = self.given.index(self.given[-1]) - self.given.index(open_ids[0]) + 1
            assert last <= self.terms.window_size, "nothing lies beyond ESW (SW-4)"
        for message_id in self.given[-self.terms.window_size :]:
            outgoing = self.messages[message_id]
            assert self.channel.is_unsettled(outgoing.epoch, outgoing.number, self.terms) is (
                message_id not in self.settled
            )

    @invariant()
    def nobody_is_forgotten(self) -> None:
        for message_id, outgoing in self.messages.items():
            if outgoing.state is OutgoingState.OUTSTANDING:
                assert outgoing.next_attempt_at is not None
            else:
                assert outgoing.next_attempt_at is None
            if outgoing.state is OutgoingState.SUSPENDED:
                assert message_id in self.incidents
            if outgoing.state in (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN):
                assert message_id in self.told

    @invariant()
    def a_place_is_given_only_where_it_is_safe(self) -> None:
        places = self.channel.places(self.terms)
        if self.channel.suspended:
            assert places == 0
        elif self.channel.phase is Phase.ENDING:
            assert places == (0 if self.unsettled() else 1)
        elif len(self.given) == 1 and self.unsettled():
            assert places == 0, "the opener travels alone"


SenderMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40)
TestSenderMachine = pytest.mark.requirement("SW-4", "SW-5", "SW-11", "RTY-3", "RTY-18", "SEQ-14")(
    SenderMachine.TestCase
)
