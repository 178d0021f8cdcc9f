"""The sending window and the receiver's bound, between real handlers."""

from __future__ import annotations

import pytest

from oncewire.errors import NotAllowed
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import HOUR, MINUTE, SECOND
from tests.handler.network import Network
from tests.handler.test_numbers_on_the_wire import Forge, accepted, numbers

TEN = "[sequence]\nrange = [0, 9]\n[flow]\nwindow = 4\n"
"""The slides' own example: M = 10, W = 4."""


def given(pair: Network) -> list[int]:
    """The numbers that have arrived at beta, each once, in order of arrival."""
    return list(dict.fromkeys(one.number for one in numbers(pair) if one is not None))


def windowed(extra: str = TEN) -> Network:
    """A pair whose first message has opened the stream; from now on answers are lost."""
    pair = Network.pair("window", extra)
    pair.send(0)
    pair.lose_answer = lambda count: True
    return pair


@pytest.mark.requirement("SW-1")
def test_stop_and_wait_has_one_message_under_way() -> None:
    pair = Network.pair("rm-0.78", lose_answer=lambda count: True)
    pair.send(1)
    pair.send(2)
    assert given(pair) == [1]
    pair.lose_answer = lambda count: False
    pair.pass_time(3600 * SECOND)
    assert given(pair) == [1, 2]
    assert len(pair.take()) == 2


@pytest.mark.requirement("SW-3", "SW-4", "SW-11")
def test_the_window_is_filled_and_never_passed() -> None:
    pair = windowed()
    pair.send_all(range(1, 8))
    # SSW is 1, so ESW is 4: numbers 5, 6 and 7 wait although nothing keeps them but the window.
    assert given(pair) == [0, 1, 2, 3, 4]
    with pair.alpha.context.store.reader() as reader:
        assert reader.counts().get("out.waiting") == 3
        assert reader.counts().get("out.outstanding") == 4


@pytest.mark.requirement("SW-5", "SW-6")
def test_the_window_slides_to_the_first_unacknowledged_number() -> None:
    """The example of the slides: 8, 9, 0, 1 after the acknowledgement of 7, then 0, 1, 2, 3."""
    pair = windowed()
    pair.lose_answer = lambda count: False
    pair.send_all(range(1, 8))
    pair.lose_answer = lambda count: True
    pair.send_all(range(8, 18))
    assert given(pair)[-4:] == [6, 7, 8, 9]
    under_way = [one.number for one in numbers(pair)[8:] if one is not None]
    assert under_way == [8, 9, 0, 1]
    # A later number's acknowledgement moves nothing; those of 8 and 9 move the window by three.
    for name in ("order-10", "order-8", "order-9"):
        before = len(pair.line)
        acknowledge(pair, f"{name}@alpha")
        moved = [one.message.sequence for one in pair.line[before:] if one.to == "beta"]
        expected = {"order-10": [], "order-8": [2], "order-9": [3, 4]}[name]
        assert [one.number for one in moved if one is not None] == expected


def acknowledge(pair: Network, message_id: str) -> None:
    """Let beta's stored answer to one message arrive after all."""
    with pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id(message_id)
    assert stored.answer is not None
    pair.deliver("alpha", whole_parcel(pair.beta.context, stored.answer.parcel))


@pytest.mark.requirement("SW-9", "SW-10")
def test_no_more_than_a_window_is_held_and_all_comes_in_order() -> None:
    forge = Forge("window", TEN)
    assert accepted(forge.hand_in("0", 0))
    # Number 1 is missing; 2, 3 and 4 wait for it, and 5 is more than W ahead of what is due.
    for number in (4, 2, 3):
        status = "Reset" if number < 4 else "Continue"
        assert accepted(forge.hand_in(str(number), number, status, second=number))
    assert forge.hand_in("5", 5, "Continue", second=5).kind is MessageKind.ERROR
    assert forge.take() == ["0"]
    with forge.pair.beta.context.store.reader() as reader:
        assert reader.counts().get("in.held") == 3
    assert accepted(forge.hand_in("1", 1, second=1))
    assert forge.take() == ["1", "2", "3", "4"]


@pytest.mark.requirement("SW-2")
def test_without_a_window_nothing_waits() -> None:
    pair = Network.pair(
        "ms-0.9x", '[flow]\nmode = "unrestricted"\n', lose_answer=lambda count: True
    )
    pair.send_all(range(20))
    assert len(pair.to("beta")) == 20
    assert {one.message.sequence for one in pair.to("beta")} == {None}


@pytest.mark.requirement("SW-10")
def test_a_refused_number_lets_go_what_waited_for_it() -> None:
    slow = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 3\n'
    pair = Network.pair("window", slow)
    pair.send(0)
    pair.lose_request = lambda post: True
    pair.send(1, time_to_live=5 * MINUTE)
    pair.lose_request = lambda post: False
    pair.send(2)
    assert pair.take() == ["order-0@alpha"]
    # By beta's clock order 1 has expired when it comes at last.
    pair.beta.context.world.time += HOUR  # type: ignore[attr-defined]
    pair.pass_time(MINUTE)
    assert "refused" in pair.kinds("beta")
    assert pair.take() == ["order-2@alpha"]
    assert pair.verify(healed=False).clean


@pytest.mark.requirement("SEQ-2")
def test_a_number_that_another_message_has_by_now_is_not_sent_again() -> None:
    """Stop-and-wait without numbers on the wire counts, too, and in a small range wraps around."""
    lost = ["order-1@alpha"]
    extra = (
        "[sequence]\nnumbered = false\nordered = false\nrange = [1, 4]\n"
        '[delivery]\nretries = 0\non_exhausted = "fail_message"\n'
    )
    pair = Network.pair("ms-0.9x", f'[flow]\nmode = "stop-and-wait"\n{extra}')
    pair.lose_request = lambda post: bool(lost)
    pair.send(1)
    pair.pass_time(10 * MINUTE)
    lost.clear()
    pair.send_all(range(2, 5))
    lost.append("order-5@alpha")
    pair.send(5)
    with pytest.raises(NotAllowed, match="its number 1 belongs to order-5@alpha by now"):
        pair.alpha.resume(message_id="order-1@alpha")
