"""The receiver against a model that knows which epoch every message belongs to.

The model's sender keeps the sender's two rules (at most W numbers from the first unsettled one,
and nothing beside an opener that was not noted), and the network brings anything in any order.
The receiver sees numbers, marks and timestamps only, and must come to the same verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncewire.errors import Inconsistent
from oncewire.message.envelope import SequenceNumber, SequenceStatus
from oncewire.protocol.notes import Note
from oncewire.protocol.receiver import (
    Arrival,
    First,
    Refused,
    Released,
    TurnedAway,
    give_up_gap,
    judge,
    judge_copy,
    refuse,
)
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import FlowMode, OnGap, ResetRule, Terms
from tests.examples import examples
from tests.protocol.samples import NOW, of_kind


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    window = draw(st.integers(1, 3))
    first = draw(st.sampled_from([0, 1]))
    size = draw(st.integers(2 * window, 2 * window + 3))
    resets = [ResetRule.FIRST_WINDOW, ResetRule.FIRST_MESSAGE]
    strict = window == 1 and draw(st.booleans())
    return Terms(
        numbered=True,
        ordered=True,
        flow=FlowMode.STOP_AND_WAIT if strict else FlowMode.WINDOW,
        window=window,
        numbers=SequenceRange(first, first + size - 1),
        on_gap=OnGap.REJECT if strict else OnGap.BUFFER,
        reset=draw(st.sampled_from([*resets, ResetRule.SILENT] if window == 1 else resets)),
    )


@dataclass
class Sample:
    """One message of the model: its place, and what became of it at the receiver."""

    arrival: Arrival
    epoch: int
    place: int
    # None: not arrived. noted: taken or refused with its number. late: refused as a straggler.
    fate: str | None = None


class ReceiverMachine(RuleBasedStateMachine):
    @initialize(agreed=terms())
    def begin(self, agreed: Terms) -> None:
        self.terms = agreed
        self.channel = ReceivingChannel.open("a>b", agreed)
        self.samples: list[Sample] = []
        self.epoch = 0
        # What the model expects of the application, and what it saw.
        self.seen_epoch = -1
        self.passed = 0
        self.waiting: dict[int, Sample | None] = {}
        self.expected: list[str] = []
        self.handed: list[str] = []
        self.skipped = 0
        self.skips_noted = 0

    def present(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.epoch == self.epoch]

    # --- the model's sender ---

    @rule(gap=st.sampled_from([1, 1, 1000]))
    def a_message_is_made(self, gap: int) -> None:
        present = self.present()
        if present and present[0].fate != "noted":
            return
        if any(sample.fate == "late" for sample in present):
            # Its sender hears an error, or nothing: the epoch goes no further either way.
            return
        unsettled = [sample.place for sample in present if sample.fate is None]
        first = unsettled[0] if unsettled else len(present)
        if len(present) - first >= self.terms.window_size:
            return
        place = len(present)
        number = self.terms.numbers.after(self.terms.numbers.first, place)
        marked = self.terms.window_size if self.terms.reset is ResetRule.FIRST_WINDOW else 1
        status = SequenceStatus.RESET if place < marked else SequenceStatus.CONTINUE
        stamp = (self.samples[-1].arrival.stamp if self.samples else 0) + gap
        arrival = Arrival(
            f"m{len(self.samples)}",
            "digest",
            stamp,
            SequenceNumber(number, None if self.terms.reset is ResetRule.SILENT else status),
        )
        self.samples.append(Sample(arrival, self.epoch, place))

    @rule()
    def the_numbering_restarts(self) -> None:
        # Whatever has not arrived is given up, and its copies stay under way.
        if self.present():
            self.epoch += 1

    # --- the network ---

    @rule(data=st.data(), accepted=st.sampled_from([True, True, True, False]))
    def a_copy_arrives(self, data: st.DataObject, accepted: bool) -> None:
        if not self.samples:
            return
        sample = data.draw(st.sampled_from(self.samples))
        if sample.fate == "noted":
            self.check_repeat(sample)
            return
        late = self.is_late(sample)
        if accepted:
            judged = judge(sample.arrival, self.channel, self.terms, NOW)
        else:
            fault = Inconsistent("refused by a rule")
            judged = refuse(sample.arrival, fault, self.channel, self.terms)
        if late:
            assert isinstance(judged, TurnedAway if accepted else Refused)
            assert judged.channel is self.channel, "a straggler moves nothing"
            assert isinstance(judged, TurnedAway) or judged.deliver == ()
            sample.fate = "late"
            return
        assert not isinstance(judged, TurnedAway), judged
        assert isinstance(judged, First) is accepted
        sample.fate = "noted"
        self.note(sample, accepted=accepted)
        self.follow(judged)

    def check_repeat(self, sample: Sample) -> None:
        assert judge_copy(sample.arrival, "digest", self.channel) is None

    @rule(data=st.data())
    def the_receiver_stops_waiting(self, data: st.DataObject) -> None:
        if not self.channel.held:
            return
        held = data.draw(st.sampled_from(sorted(self.waiting)))
        number = self.terms.numbers.after(self.terms.numbers.first, held)
        done = give_up_gap(self.channel, number, self.terms)
        for place in range(self.passed, held):
            if place not in self.waiting:
                self.skipped += 1
            self.pass_place(place)
        self.pass_on()
        self.follow(done)

    # --- the model's receiver ---

    def is_late(self, sample: Sample) -> bool:
        if sample.epoch != self.seen_epoch:
            return sample.epoch < self.seen_epoch
        return sample.place < self.passed

    def note(self, sample: Sample, *, accepted: bool) -> None:
        if sample.epoch > self.seen_epoch:
            assert sample.place == 0, "the opener comes first"
            self.end_epoch()
            self.seen_epoch, self.passed = sample.epoch, 0
        self.waiting[sample.place] = sample if accepted else None
        self.pass_on()

    def end_epoch(self) -> None:
        if self.waiting:
            for place in range(self.passed, max(self.waiting) + 1):
                if place not in self.waiting:
                    self.skipped += 1
                self.pass_place(place)

    def pass_on(self) -> None:
        while self.passed in self.waiting:
            self.pass_place(self.passed)

    def pass_place(self, place: int) -> None:
        if place in self.waiting:
            sample = self.waiting.pop(place)
            if sample is None:
                self.skipped += 1
            else:
                self.expected.append(sample.arrival.message_id)
        self.passed = place + 1

    def follow(self, judged: First | Refused | Released) -> None:
        assert judged.channel is not None
        self.channel = judged.channel
        self.handed += judged.deliver
        self.skips_noted += sum(note.kind == "skipped" for note in of_kind(judged.effects, Note))

    # --- what always holds ---

    @invariant()
    def the_application_sees_what_the_model_says(self) -> None:
        assert self.handed == self.expected
        assert self.skips_noted == self.skipped

    @invariant()
    def no_more_than_a_window_is_held(self) -> None:
        assert len(self.channel.held) == len(self.waiting) <= self.terms.window_size

    @invariant()
    def the_expected_number_is_the_models(self) -> None:
        if self.seen_epoch >= 0:
            numbers = self.terms.numbers
            assert self.channel.expected == numbers.after(numbers.first, self.passed)


ReceiverMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50)
TestReceiverMachine = pytest.mark.requirement("SW-9", "SW-10", "SEQ-14", "SEQ-15", "DUP-2")(
    ReceiverMachine.TestCase
)
