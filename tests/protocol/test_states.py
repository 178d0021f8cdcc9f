"""The state tables: every step in them can be taken, no other step can, and the docs show them."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import Error, Severity
from oncewire.message.form import ReliableMessagingMethod
from oncewire.message.instant import DAY
from oncewire.protocol import sender
from oncewire.protocol import states as outgoing_module
from oncewire.protocol.documents import part_failed, parts_arrived
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import (
    CHANNEL,
    ENDLESS,
    INCOMING,
    OUTGOING,
    ChannelEvent,
    Incoming,
    IncomingEvent,
    IncomingState,
    Outgoing,
    OutgoingEvent,
    OutgoingState,
    Phase,
    Proof,
    move,
)
from oncewire.protocol.terms import OnExhausted, Terms
from tests.parts import script
from tests.protocol.samples import NOW, ORDERED, PLAIN, TIMEOUT, outstanding, waiting

OS, OE = OutgoingState, OutgoingEvent
IS, IE = IncomingState, IncomingEvent

SUSPENDING = replace(PLAIN, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL)
FAILING = replace(PLAIN, retries=0)
BEST_EFFORT = replace(PLAIN, reliable=False)
DELEGATED = replace(PLAIN, method=ReliableMessagingMethod.TRANSPORT)


def _lost(message: Outgoing) -> Outgoing:
    """The same message, whose attempts certainly did not get across."""
    return replace(message, attempts_lost=message.attempts)


def _entered() -> Outgoing:
    return sender.enter_window(waiting(), None, PLAIN, NOW).outgoing


def _suspended() -> Outgoing:
    return sender.attempt_due(outstanding(SUSPENDING), None, SUSPENDING, NOW + TIMEOUT).outgoing


def _unknown() -> Outgoing:
    return sender.abandon(outstanding(), None, PLAIN).outgoing


def _not_delivered() -> Outgoing:
    return _error(outstanding()).outgoing


def _delivered() -> Outgoing:
    return _ack(outstanding(), Proof.HOP).outgoing


def _ack(message: Outgoing, proof: Proof = Proof.TO_PARTY) -> SenderStep:
    return sender.ack_arrived(message, None, PLAIN, ack_id="a", proof=proof)


def _error(
    message: Outgoing, code: str = "Unknown", severity: Severity = Severity.ERROR
) -> SenderStep:
    error = Error(code, severity)
    return sender.error_arrived(message, None, PLAIN, NOW, error=error, error_id="e")


def _without_agreement(message: Outgoing) -> SenderStep:
    error = Error("ValueNotRecognized", Severity.ERROR, "//Header/MessageHeader/CPAId")
    return sender.error_arrived(message, None, PLAIN, NOW, error=error, error_id="e")


def _expire(message: Outgoing) -> SenderStep:
    return sender.deadline_passed(replace(message, expires_at=NOW), None, PLAIN, NOW + DAY)


def _exhaust(message: Outgoing, terms: Any) -> SenderStep:
    return sender.attempt_due(message, None, terms, NOW + TIMEOUT)


def _fails(message: Outgoing, terms: Any, *, certain: bool) -> SenderStep:
    return sender.transmission_failed(
        message, None, terms, NOW, attempt=message.attempts, certain=certain, reason="down"
    )


def _on_channel(state: OutgoingState) -> SenderStep:
    """Abandon a message whose outcome was told while its number waited for the operator."""
    terms = replace(ORDERED, on_exhausted=OnExhausted.SUSPEND_CHANNEL)
    channel = SendingChannel.open("a>b", terms)
    step = sender.enter_window(waiting(channel="a>b", expires_at=NOW + 1), channel, terms, NOW)
    if state is OS.UNKNOWN:
        step = sender.attempt_due(step.outgoing, step.channel, terms, NOW)
    step = sender.deadline_passed(step.outgoing, step.channel, terms, NOW + 1)
    assert step.outgoing.state is state
    return sender.abandon(step.outgoing, step.channel, terms)


OUTGOING_STEPS: dict[
    tuple[OutgoingState, OutgoingEvent, OutgoingState], Callable[[], SenderStep]
] = {
    (OS.WAITING, OE.WINDOW_ENTERED, OS.OUTSTANDING): lambda: sender.enter_window(
        waiting(), None, PLAIN, NOW
    ),
    (OS.WAITING, OE.DEADLINE_PASSED, OS.NOT_DELIVERED): lambda: _expire(waiting()),
    (OS.WAITING, OE.ABANDONED, OS.NOT_DELIVERED): lambda: sender.abandon(waiting(), None, PLAIN),
    (OS.OUTSTANDING, OE.ATTEMPT_DUE, OS.OUTSTANDING): lambda: sender.attempt_due(
        _entered(), None, PLAIN, NOW
    ),
    (OS.OUTSTANDING, OE.ATTEMPT_DUE, OS.SENT): lambda: sender.attempt_due(
        _entered(), None, BEST_EFFORT, NOW
    ),
    (OS.SENT, OE.ERROR_ARRIVED, OS.SENT): lambda: _error(
        sender.attempt_due(_entered(), None, BEST_EFFORT, NOW).outgoing
    ),
    (OS.OUTSTANDING, OE.TRANSMISSION_FAILED, OS.OUTSTANDING): lambda: _fails(
        outstanding(), PLAIN, certain=True
    ),
    (OS.OUTSTANDING, OE.TRANSMISSION_FAILED, OS.NOT_DELIVERED): lambda: _fails(
        outstanding(DELEGATED), DELEGATED, certain=True
    ),
    (OS.OUTSTANDING, OE.TRANSMISSION_FAILED, OS.UNKNOWN): lambda: _fails(
        outstanding(DELEGATED), DELEGATED, certain=False
    ),
    (OS.OUTSTANDING, OE.TRANSMISSION_ENDED, OS.DELIVERED): lambda: sender.transmission_ended(
        outstanding(DELEGATED), None, DELEGATED
    ),
    (OS.OUTSTANDING, OE.ACK_ARRIVED, OS.DELIVERED): lambda: _ack(outstanding()),
    (OS.OUTSTANDING, OE.ERROR_ARRIVED, OS.OUTSTANDING): lambda: _error(
        outstanding(), "TransientError", Severity.WARNING
    ),
    (OS.OUTSTANDING, OE.ERROR_ARRIVED, OS.NOT_DELIVERED): lambda: _error(outstanding()),
    (OS.OUTSTANDING, OE.ERROR_ARRIVED, OS.UNKNOWN): lambda: _without_agreement(
        replace(outstanding(), attempts=2)
    ),
    (OS.OUTSTANDING, OE.DEADLINE_PASSED, OS.NOT_DELIVERED): lambda: _expire(_lost(outstanding())),
    (OS.OUTSTANDING, OE.DEADLINE_PASSED, OS.UNKNOWN): lambda: _expire(outstanding()),
    (OS.OUTSTANDING, OE.RETRIES_EXHAUSTED, OS.SUSPENDED): lambda: _exhaust(
        outstanding(SUSPENDING), SUSPENDING
    ),
    (OS.OUTSTANDING, OE.RETRIES_EXHAUSTED, OS.NOT_DELIVERED): lambda: _exhaust(
        _lost(outstanding(FAILING)), FAILING
    ),
    (OS.OUTSTANDING, OE.RETRIES_EXHAUSTED, OS.UNKNOWN): lambda: _exhaust(
        outstanding(FAILING), FAILING
    ),
    (OS.OUTSTANDING, OE.RESUMED, OS.OUTSTANDING): lambda: sender.resume(
        outstanding(), None, PLAIN, NOW
    ),
    (OS.OUTSTANDING, OE.ABANDONED, OS.NOT_DELIVERED): lambda: sender.abandon(
        _entered(), None, PLAIN
    ),
    (OS.OUTSTANDING, OE.ABANDONED, OS.UNKNOWN): lambda: sender.abandon(outstanding(), None, PLAIN),
    (OS.SUSPENDED, OE.ACK_ARRIVED, OS.DELIVERED): lambda: _ack(_suspended()),
    (OS.SUSPENDED, OE.ERROR_ARRIVED, OS.NOT_DELIVERED): lambda: _error(_suspended()),
    (OS.SUSPENDED, OE.ERROR_ARRIVED, OS.UNKNOWN): lambda: _without_agreement(
        replace(_suspended(), attempts=2)
    ),
    (OS.SUSPENDED, OE.DEADLINE_PASSED, OS.NOT_DELIVERED): lambda: _expire(_lost(_suspended())),
    (OS.SUSPENDED, OE.DEADLINE_PASSED, OS.UNKNOWN): lambda: _expire(_suspended()),
    (OS.SUSPENDED, OE.RESUMED, OS.OUTSTANDING): lambda: sender.resume(
        _suspended(), None, PLAIN, NOW
    ),
    (OS.SUSPENDED, OE.ABANDONED, OS.NOT_DELIVERED): lambda: sender.abandon(
        _lost(_suspended()), None, PLAIN
    ),
    (OS.SUSPENDED, OE.ABANDONED, OS.UNKNOWN): lambda: sender.abandon(_suspended(), None, PLAIN),
    (OS.UNKNOWN, OE.ACK_ARRIVED, OS.DELIVERED): lambda: _ack(_unknown()),
    (OS.UNKNOWN, OE.ERROR_ARRIVED, OS.NOT_DELIVERED): lambda: _error(_unknown()),
    (OS.UNKNOWN, OE.RESUMED, OS.OUTSTANDING): lambda: sender.resume(_unknown(), None, PLAIN, NOW),
    (OS.UNKNOWN, OE.ABANDONED, OS.UNKNOWN): lambda: _on_channel(OS.UNKNOWN),
    (OS.NOT_DELIVERED, OE.ACK_ARRIVED, OS.DELIVERED): lambda: _ack(_not_delivered()),
    (OS.NOT_DELIVERED, OE.RESUMED, OS.OUTSTANDING): lambda: sender.resume(
        _not_delivered(), None, PLAIN, NOW
    ),
    (OS.NOT_DELIVERED, OE.ABANDONED, OS.NOT_DELIVERED): lambda: _on_channel(OS.NOT_DELIVERED),
    (OS.DELIVERED, OE.ACK_ARRIVED, OS.DELIVERED): lambda: _ack(_delivered()),
    (OS.DELIVERED, OE.ERROR_ARRIVED, OS.NOT_DELIVERED): lambda: _error(
        _delivered(), "DeliveryFailure"
    ),
    (OS.DELIVERED, OE.ERROR_ARRIVED, OS.UNKNOWN): lambda: _error(
        _delivered(), "DeliveryFailure", Severity.WARNING
    ),
    (OS.WAITING, OE.PART_FAILED, OS.NOT_DELIVERED): lambda: part_failed(
        waiting(), "part 1 of 3: refused", certain=True
    ),
    (OS.OUTSTANDING, OE.PARTS_ARRIVED, OS.DELIVERED): lambda: parts_arrived(outstanding(), None),
    (OS.OUTSTANDING, OE.PART_FAILED, OS.NOT_DELIVERED): lambda: part_failed(
        outstanding(), "part 1 of 3: refused", certain=True
    ),
    (OS.OUTSTANDING, OE.PART_FAILED, OS.UNKNOWN): lambda: part_failed(
        outstanding(), "part 3 of 3: nothing was heard", certain=False
    ),
    (OS.SUSPENDED, OE.PART_FAILED, OS.NOT_DELIVERED): lambda: part_failed(
        _suspended(), "part 1 of 3: a hub gave it up", certain=True
    ),
    (OS.SUSPENDED, OE.PART_FAILED, OS.UNKNOWN): lambda: part_failed(
        _suspended(), "part 1 of 3: a hub knows nothing of it", certain=False
    ),
    (OS.UNKNOWN, OE.PARTS_ARRIVED, OS.DELIVERED): lambda: parts_arrived(_unknown(), None),
    (OS.NOT_DELIVERED, OE.PARTS_ARRIVED, OS.DELIVERED): lambda: parts_arrived(
        _not_delivered(), None
    ),
    (OS.DELIVERED, OE.PART_FAILED, OS.NOT_DELIVERED): lambda: part_failed(
        _delivered(), "part 1 of 3: a hub gave it up", certain=True
    ),
    (OS.DELIVERED, OE.PART_FAILED, OS.UNKNOWN): lambda: part_failed(
        _delivered(), "part 1 of 3: a hub knows nothing of it", certain=False
    ),
}
"""For each step of the table, a way to take it through the sender's own functions."""


def _triples(table: Any) -> set[tuple[Any, Any, Any]]:
    return {(state, event, to) for (state, event), targets in table.items() for to in targets}


def test_each_step_of_the_sender_has_its_way() -> None:
    assert set(OUTGOING_STEPS) == _triples(OUTGOING)


@pytest.mark.parametrize(
    "triple", OUTGOING_STEPS, ids=lambda t: f"{t[0].value}, {t[1].value}: {t[2].value}"
)
def test_the_sender_takes_the_step(
    triple: tuple[OutgoingState, OutgoingEvent, OutgoingState], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[Any, Any, Any]] = []

    def watched(table: Any, state: Any, event: Any, to: Any) -> Any:
        taken.append((state, event, move(table, state, event, to)))
        return taken[-1][2]

    monkeypatch.setattr(outgoing_module, "move", watched)
    step = OUTGOING_STEPS[triple]()
    assert taken[-1] == triple
    assert step.outgoing.state is triple[2]


@pytest.mark.parametrize(
    ("table", "states", "events"),
    [(OUTGOING, OS, OE), (INCOMING, IS, IE), (CHANNEL, Phase, ChannelEvent)],
    ids=["outgoing", "incoming", "channel"],
)
def test_no_step_outside_the_table_is_possible(table: Any, states: Any, events: Any) -> None:
    allowed = _triples(table)
    refused = 0
    for state, event, to in itertools.product(states, events, states):
        if (state, event, to) in allowed:
            assert move(table, state, event, to) is to
            continue
        with pytest.raises(NotAllowed, match="cannot become") as caught:
            move(table, state, event, to)
        assert "possible here" in caught.value.remedy
        refused += 1
    assert refused > len(allowed)


@pytest.mark.parametrize("table", [OUTGOING, INCOMING, CHANNEL])
def test_the_table_says_where_a_step_leads_that_leads_to_one_state(table: Any) -> None:
    for (state, event), targets in table.items():
        if len(targets) == 1:
            assert {move(table, state, event)} == targets
            continue
        with pytest.raises(NotAllowed, match="cannot step on"):
            move(table, state, event)


# --- a stream at its sender ---------------------------------------------------------------

COUNTED = replace(ORDERED, numbered=False, ordered=False)
ANOTHER_RANGE = replace(ORDERED, numbers=SequenceRange(5, 99))


def _stream(phase: Phase, terms: Terms = ORDERED) -> SendingChannel:
    """A stream in that phase, with nothing under way unless it must be."""
    channel = SendingChannel.open("a>b", terms)
    if phase is Phase.UNBEGUN:
        return channel
    channel, opener = channel.enter(terms)
    if phase is not Phase.OPENING:
        channel = channel.settle(opener.number, terms)
    return channel.end_epoch() if phase is Phase.ENDING else channel


def _settled(channel: SendingChannel) -> SendingChannel:
    """The stream after one of its numbers was settled, the last of them if none is under way."""
    return channel.settle(channel.first_unsettled, ORDERED)


CHANNEL_STEPS: dict[tuple[Phase, ChannelEvent], Callable[[SendingChannel], SendingChannel]] = {
    (Phase.UNBEGUN, ChannelEvent.OPENER_ENTERED): lambda one: one.enter(ORDERED)[0],
    (Phase.UNBEGUN, ChannelEvent.MESSAGE_ENTERED): lambda one: one.enter(COUNTED)[0],
    (Phase.OPENING, ChannelEvent.NUMBER_SETTLED): _settled,
    (Phase.OPENING, ChannelEvent.EPOCH_ENDED): SendingChannel.end_epoch,
    (Phase.RUNNING, ChannelEvent.OPENER_ENTERED): lambda one: one.enter(ANOTHER_RANGE)[0],
    (Phase.RUNNING, ChannelEvent.MESSAGE_ENTERED): lambda one: one.enter(ORDERED)[0],
    (Phase.RUNNING, ChannelEvent.NUMBER_SETTLED): _settled,
    (Phase.RUNNING, ChannelEvent.EPOCH_ENDED): lambda one: one.abandon(
        one.first_unsettled, ORDERED
    ),
    (Phase.ENDING, ChannelEvent.OPENER_ENTERED): lambda one: one.enter(ORDERED)[0],
    (Phase.ENDING, ChannelEvent.MESSAGE_ENTERED): lambda one: one.enter(COUNTED)[0],
    (Phase.ENDING, ChannelEvent.NUMBER_SETTLED): _settled,
    (Phase.ENDING, ChannelEvent.EPOCH_ENDED): lambda one: one.abandon(one.first_unsettled, ORDERED),
}
"""For each step of the table, a way to take it through the stream's own methods."""


def test_each_step_of_a_stream_has_its_way() -> None:
    assert set(CHANNEL_STEPS) == set(CHANNEL)


@pytest.mark.parametrize("step", CHANNEL, ids=lambda s: f"{s[0].value}, {s[1].value}")
def test_the_stream_takes_the_step(step: tuple[Phase, ChannelEvent]) -> None:
    before = _stream(step[0])
    assert before.phase is step[0]
    assert {CHANNEL_STEPS[step](before).phase} == CHANNEL[step]


@pytest.mark.parametrize(
    ("phase", "places"),
    [(Phase.UNBEGUN, 1), (Phase.OPENING, 0), (Phase.RUNNING, 4), (Phase.ENDING, 1)],
)
def test_the_phase_says_how_many_may_enter(phase: Phase, places: int) -> None:
    channel = _stream(phase)
    assert channel.places(ORDERED) == places
    assert channel.suspend("trouble").places(ORDERED) == 0
    assert channel.suspend("trouble").phase is phase


def test_what_was_never_numbered_has_no_epoch_to_end() -> None:
    unbegun = _stream(Phase.UNBEGUN)
    assert unbegun.restart(ORDERED) is unbegun


# --- the receiver's side ------------------------------------------------------------------

ARRIVING = Incoming("buyer", "m", "digest", "terms", NOW)


def _at(state: IncomingState) -> Incoming:
    return replace(ARRIVING, state=state)


@pytest.mark.requirement("RM-18")
@pytest.mark.parametrize("triple", sorted(_triples(INCOMING)))
def test_the_receiver_takes_the_step(
    triple: tuple[IncomingState, IncomingEvent, IncomingState],
) -> None:
    state, event, to = triple
    assert _at(state).moved(event, to).state is to
    # Nothing is handed over before it is stored.
    assert event is not IE.HANDED_OVER or state is IS.READY


def test_a_hand_over_is_counted_and_leased() -> None:
    given = _at(IS.READY).handed_over(NOW + 5)
    assert (given.hand_overs, given.lease_until) == (1, NOW + 5)
    again = given.lost().handed_over(None)
    assert (again.hand_overs, again.lease_until) == (2, None)


def test_a_lease_that_only_a_restart_ends_has_no_end_to_tell_of() -> None:
    """Its instant lies beyond the year 9999: nobody could write it down as a date."""
    assert _at(IS.READY).handed_over(NOW + 5).lease_ends == NOW + 5
    assert _at(IS.READY).handed_over(NOW + ENDLESS).lease_ends is None
    assert _at(IS.READY).handed_over(None).lease_ends is None


@pytest.mark.requirement("DUP-2")
def test_a_message_is_confirmed_once() -> None:
    done = _at(IS.READY).handed_over(NOW + 5).confirmed(NOW + 1)
    assert (done.state, done.confirmed_at, done.lease_until) == (IS.CONFIRMED, NOW + 1, None)
    assert done.confirmed(NOW + 2) is done
    with pytest.raises(NotAllowed):
        done.handed_over(None)


def test_a_hand_over_taken_for_lost_may_still_be_confirmed() -> None:
    assert _at(IS.READY).handed_over(NOW).lost().confirmed(NOW).state is IS.CONFIRMED


# --- the drawing --------------------------------------------------------------------------

drawing = script("draw_states")


def test_the_docs_show_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert drawing.main(["--check"]) == 0, capsys.readouterr().err


def test_every_step_is_drawn() -> None:
    drawn = "".join(drawing.graphs().values())
    for state, _, to in _triples(OUTGOING) | _triples(INCOMING) | _triples(CHANNEL):
        assert f"    {state.value} -> {to.value} [label=" in drawn


def test_a_stale_page_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "PAGE", tmp_path / "states.md")
    assert drawing.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert drawing.main([]) == 0
    assert drawing.main(["--check"]) == 0
    (tmp_path / "states.md").write_text("something else")
    assert drawing.main(["--check"]) == 1
