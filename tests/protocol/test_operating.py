"""What an operator's word does: resume and abandon."""

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import Severity
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol import sender
from oncewire.protocol.notes import Admit, AskStatus, Notify, Resolve, Transmit
from oncewire.protocol.states import OutgoingState, Phase
from oncewire.protocol.terms import OnExhausted
from tests.protocol.samples import (
    INTERVAL,
    NOW,
    ORDERED,
    PLAIN,
    TIMEOUT,
    Stream,
    notes,
    of_kind,
    outstanding,
    waiting,
)

SUSPENDING = replace(ORDERED, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL)


def suspended() -> Stream:
    """`a` is done, `b` has used up its retries, `c` is under way behind it."""
    stream = Stream(SUSPENDING)
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    stream.due("b", after=TIMEOUT)
    assert stream.state("b") is OutgoingState.SUSPENDED
    return stream


# --- resume -------------------------------------------------------------------------------


@pytest.mark.requirement("RTY-13", "OPS-1")
def test_resume_returns_the_counter_to_zero_and_lifts_the_suspension() -> None:
    stream = suspended()
    step = stream.resume("b")
    assert stream.state("b") is OutgoingState.OUTSTANDING
    assert stream.messages["b"].attempts_here == 0
    assert stream.messages["b"].attempts == 1, "the sum over everything stays known"
    assert not stream.channel.suspended
    assert of_kind(step, Resolve)
    assert of_kind(step, Admit)
    assert stream.channel.places(stream.terms) == 2
    assert [effect.attempt for effect in of_kind(stream.due("b"), Transmit)] == [2]


def test_a_resumed_message_gets_every_retry_again() -> None:
    terms = replace(PLAIN, retries=1, on_exhausted=OnExhausted.SUSPEND_CHANNEL)
    outgoing = outstanding(terms)
    outgoing = replace(outgoing, attempts_here=2, attempts=2, transport=1)
    outgoing = sender.attempt_due(outgoing, None, terms, NOW + TIMEOUT).outgoing
    resumed = sender.resume(outgoing, None, terms, NOW + TIMEOUT).outgoing
    assert (resumed.attempts_here, resumed.transport, resumed.resumes) == (0, 0, 1)
    assert resumed.next_attempt_at == NOW + TIMEOUT


@pytest.mark.requirement("RTY-12")
def test_resuming_another_message_does_not_lift_the_suspension() -> None:
    """Its incident stays open, too: nobody else would tell that the channel stands."""
    stream = suspended()
    step = stream.resume("c")
    assert stream.channel.suspended_by == "b"
    assert of_kind(step, Resolve) == [Resolve("c")]


@pytest.mark.requirement("RTY-17")
def test_past_persist_duration_a_resume_ends_the_message() -> None:
    stream = suspended()
    stream.now += DAY
    step = stream.resume("b")
    assert stream.state("b") is OutgoingState.UNKNOWN
    assert any(isinstance(effect, AskStatus) for effect in step.effects)
    with pytest.raises(NotAllowed, match="its persistDuration has passed, at 1970") as caught:
        stream.resume("b")
    assert "`oncewire abandon b` closes its incident" in caught.value.remedy


def test_a_given_up_number_cannot_be_resumed() -> None:
    stream = Stream(replace(ORDERED, retries=0))
    stream.enter("a")
    stream.due("a", after=TIMEOUT)
    assert stream.state("a") is OutgoingState.UNKNOWN
    with pytest.raises(NotAllowed, match="its place in the order of its channel was given up"):
        stream.resume("a")


def test_a_message_that_never_had_a_number_cannot_be_resumed_without_one() -> None:
    # Sent without a number it would overtake the whole stream.
    stream = Stream()
    stream.submit("a")
    stream.abandon("a")
    with pytest.raises(NotAllowed, match="its place in the order of its channel was given up"):
        stream.resume("a")


@pytest.mark.parametrize("state", [OutgoingState.UNKNOWN, OutgoingState.NOT_DELIVERED])
def test_without_numbers_a_failed_message_may_be_resumed(state: OutgoingState) -> None:
    failed = replace(outstanding(), state=state, reason="x")
    resumed = sender.resume(failed, None, PLAIN, NOW + INTERVAL).outgoing
    assert (resumed.state, resumed.reason) == (OutgoingState.OUTSTANDING, "")


@pytest.mark.parametrize("state", [OutgoingState.DELIVERED, OutgoingState.SENT])
def test_what_is_done_cannot_be_resumed(state: OutgoingState) -> None:
    with pytest.raises(NotAllowed, match="cannot be resent: it is done with"):
        sender.resume(replace(outstanding(), state=state), None, PLAIN, NOW)


# --- abandon ------------------------------------------------------------------------------


def test_an_abandoned_number_ends_the_epoch_and_frees_the_channel() -> None:
    stream = suspended()
    step = stream.abandon("b")
    assert stream.state("b") is OutgoingState.UNKNOWN
    assert notes(step) == ["abandoned", "failed", "epoch_ended"]
    assert of_kind(step, Notify)[0].severity is Severity.WARNING
    assert not stream.channel.suspended
    assert stream.channel.phase is Phase.ENDING
    stream.ack("c")
    stream.enter("d")
    assert (stream.number("d"), stream.channel.epoch) == (0, 2)


def test_a_waiting_message_is_abandoned_without_a_trace_on_the_stream() -> None:
    stream = Stream()
    stream.submit("a")
    step = stream.abandon("a")
    assert stream.state("a") is OutgoingState.NOT_DELIVERED
    assert of_kind(step, Notify)[0].severity is Severity.ERROR
    assert stream.channel.phase is not Phase.ENDING


def test_abandoning_an_expired_message_lifts_the_suspension_it_caused() -> None:
    stream = Stream(replace(SUSPENDING, persist_duration=SECOND))
    stream.enter("a")
    stream.due("a", after=SECOND)
    assert stream.state("a") is OutgoingState.UNKNOWN
    step = stream.abandon("a")
    assert stream.state("a") is OutgoingState.UNKNOWN
    assert of_kind(step, Notify) == [], "its failure was told when it expired"
    assert not stream.channel.suspended
    with pytest.raises(NotAllowed, match="nothing left to abandon"):
        stream.abandon("a")


def test_an_expired_message_can_be_abandoned_whatever_the_transport_said_since() -> None:
    # The outcome was unknown when it was told; a report that the only attempt had failed
    # comes too late to change it, and must not lock the channel.
    stream = Stream(replace(SUSPENDING, persist_duration=SECOND))
    stream.enter("a")
    stream.due("a", after=SECOND)
    stream.step(
        "a",
        sender.transmission_failed,
        stream.terms,
        stream.now,
        attempt=1,
        certain=True,
        reason="refused",
    )
    stream.abandon("a")
    assert stream.state("a") is OutgoingState.UNKNOWN
    assert not stream.channel.suspended


@pytest.mark.parametrize("state", [OutgoingState.DELIVERED, OutgoingState.NOT_DELIVERED])
def test_what_has_ended_cannot_be_abandoned(state: OutgoingState) -> None:
    with pytest.raises(NotAllowed) as caught:
        sender.abandon(replace(outstanding(), state=state), None, PLAIN)
    assert caught.value.remedy


def test_abandoning_without_a_channel() -> None:
    step = sender.abandon(outstanding(), None, PLAIN)
    assert step.outgoing.state is OutgoingState.UNKNOWN
    assert step.channel is None
    assert sender.abandon(waiting(), None, PLAIN).outgoing.state is OutgoingState.NOT_DELIVERED
