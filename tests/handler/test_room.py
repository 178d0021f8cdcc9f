"""What many messages at once, or a store that is gone, must not do to a handler."""

from __future__ import annotations

from collections import Counter

import pytest

from oncewire.errors import StoreGone
from oncewire.handler.context import IN_FLIGHT_MAX
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.instant import MILLISECOND, SECOND
from oncewire.protocol.states import OutgoingState
from tests.handler.network import Network

TERMS = '[delivery]\ntimeout = "PT1S"\nretry_interval = "PT1S"\nretries = 2\n'


@pytest.mark.requirement("RTY-1")
@pytest.mark.parametrize("profile", ["ebms2", "window"])
def test_no_timer_runs_for_an_attempt_that_has_to_wait_for_its_turn(profile: str) -> None:
    pair = Network.pair(profile, TERMS)
    others = {f"other {number}" for number in range(IN_FLIGHT_MAX)}
    pair.alpha.context.state.in_flight |= others
    sent = pair.send()
    pair.pass_time(*[SECOND] * 10)
    # Submitted and due, but never sent: no attempt was wasted.
    assert "sent" not in pair.kinds("alpha")
    pair.alpha.context.state.in_flight -= others
    pair.pass_time(MILLISECOND)
    assert pair.take() == [sent.message_id]
    assert Counter(pair.kinds("alpha"))["sent"] == 1
    assert pair.verify().clean


def test_no_more_attempts_begin_than_there_is_room_for() -> None:
    pair = Network.pair("ebms2", TERMS)
    node = pair.alpha.context
    others = {f"other {number}" for number in range(IN_FLIGHT_MAX)}
    node.state.in_flight |= others
    pair.send_all(range(10))
    node.state.in_flight -= set(sorted(others)[:4])
    pair.alpha.tick()
    assert node.room == 0
    assert Counter(pair.kinds("alpha"))["sent"] == 0
    pair.settle("alpha")
    assert Counter(pair.kinds("alpha"))["sent"] == 4


def test_a_slow_transmission_does_not_keep_the_handler_busy() -> None:
    pair = Network.pair("ebms2", TERMS, lose_request=lambda post: True)
    first, second = pair.send(), pair.send()
    alpha = pair.alpha
    for due in (first, second):
        alpha.context.state.in_flight.add(due.message_id)
    pair.pass_time(3 * SECOND)
    # Its next attempt is due, and waits for the end of this one.
    assert alpha.next_wake() > alpha.context.now()
    alpha.context.state.in_flight.discard(second.message_id)
    assert alpha.next_wake() <= alpha.context.now()


def test_an_attempt_is_over_even_when_the_store_cannot_take_note_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair("ebms2", TERMS)
    pair.lose_request = lambda post: True
    sent = pair.send()
    alpha = pair.alpha
    alpha.context.state.in_flight.add(sent.message_id)

    def gone() -> None:
        raise StoreGone("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(alpha.context.store, "transition", gone)
        with pytest.raises(StoreGone):
            alpha.transmission_over(Transmission(sent.message_id, 1, sent=False))
    pair.lose_request = lambda post: False
    pair.pass_time(2 * SECOND)
    assert pair.take() == [sent.message_id]


@pytest.mark.long
@pytest.mark.requirement("RTY-14", "RTY-16", "RM-2")
def test_everybody_is_told_however_many_fail_at_once() -> None:
    pair = Network.pair("ebms2", TERMS, lose_request=lambda post: True)
    for number in range(200):
        pair.send(number, time_to_live=4 * SECOND)
    pair.send_all(range(200, 400))
    for _ in range(2):
        pair.pass_time(1_500 * MILLISECOND)
        pair.pass_time(MILLISECOND)
    assert Counter(pair.kinds("alpha"))["sent"] == 400 * 3
    # At one stroke: these are too old, and those have used up their retries.
    pair.pass_time(2 * SECOND)
    told = Counter(notice.message_id for notice in pair.notices)
    assert len(told) == 400
    assert set(told.values()) == {1}
    with pair.alpha.context.store.reader() as reader:
        counts = reader.counts()
    assert counts[f"out.{OutgoingState.UNKNOWN.value}"] == 400
    assert pair.verify().clean, pair.verify().violations[:3]
