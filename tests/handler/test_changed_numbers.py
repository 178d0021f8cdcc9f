"""The duplication check window, numbers without order, and a range that changes, at work."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import StoreFull
from oncewire.handler.actions import Post
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending import respond
from oncewire.handler.sending.submit import submit
from oncewire.message.envelope import Error, MessageKind
from oncewire.message.instant import DAY, MINUTE, SECOND, Duration
from oncewire.protocol.states import OutgoingState
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, agreement_text, options
from tests.handler.receiving.test_accepted_under import agree, change
from tests.handler.test_numbers_on_the_wire import Forge, accepted
from tests.simulation.given import agreements_of

WIDE = "[sequence]\nrange = [0, 99]\n[flow]\nwindow = 4\n"


def streamed(count: int, extra: str = WIDE) -> Forge:
    """A receiver that has taken so many numbers of one epoch."""
    forge = Forge("window", extra)
    for number in range(count):
        status = "Reset" if number < 4 else "Continue"
        assert accepted(forge.hand_in(str(number), number, status, second=number))
    return forge


def refusal(forge: Forge, number: int) -> Error:
    """Why a message of another id and of today is refused under that number."""
    answer = forge.hand_in(f"stranger-{number}", number, "Continue", second=59)
    assert answer.kind is MessageKind.ERROR
    assert answer.error_list is not None
    return answer.error_list.errors[0]


def incidents(forge: Forge) -> int:
    with forge.pair.beta.context.store.reader() as reader:
        return len(reader.incidents())


# --- the duplication check window --------------------------------------------------------------


@pytest.mark.requirement("SW-7")
def test_a_number_inside_the_window_under_another_id_is_invalid_and_somebody_is_called() -> None:
    forge = streamed(20)
    for number in (16, 19):
        assert refusal(forge, number).location == "//SequenceNumber"
    assert incidents(forge) == 1
    assert forge.take() == [str(number) for number in range(20)]


@pytest.mark.requirement("SW-7", "SW-8")
def test_a_number_the_window_has_slid_past_is_stale_and_nobody_is_called() -> None:
    forge = streamed(20)
    for number in (0, 10, 15):
        assert refusal(forge, number).location == "//MessageData/Timestamp"
    assert incidents(forge) == 0
    # One more number, and the window has slid by one.
    assert accepted(forge.hand_in("20", 20, "Continue", second=20))
    assert refusal(forge, 16).location == "//MessageData/Timestamp"


@pytest.mark.requirement("SW-8")
def test_a_number_that_is_missing_fits_although_it_lies_inside_the_window() -> None:
    forge = streamed(10)
    assert accepted(forge.hand_in("12", 12, "Continue", second=12))
    assert accepted(forge.hand_in("11", 11, "Continue", second=11))
    # EDW is the furthest number, not the latest: else 12 would be new again (gap 13).
    for number in (11, 12):
        assert refusal(forge, number).location == "//SequenceNumber"
    assert accepted(forge.hand_in("10", 10, "Continue", second=10))
    assert forge.take() == [str(number) for number in range(13)]


@pytest.mark.requirement("SW-8")
def test_the_far_end_of_the_next_window_fits_and_what_lies_beyond_names_the_window() -> None:
    forge = streamed(10)
    assert accepted(forge.hand_in("13", 13, "Continue", second=13))
    assert "window of 4" in refusal(forge, 14).description
    assert incidents(forge) == 1


# --- numbers without order ---------------------------------------------------------------------

LOOSE = '[sequence]\nnumbered = true\nordered = false\n[flow]\nmode = "window"\nwindow = 4\n'


@pytest.mark.parametrize("profile", ["ms-0.9x", "window"])
def test_without_order_nothing_waits_for_a_lost_message(profile: str) -> None:
    pair = Network.pair(profile, LOOSE)
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send(2)
    pair.lose_request = lambda post: False
    pair.send_all((3, 4, 5))
    assert pair.take() == [f"order-{number}@alpha" for number in (1, 3, 4, 5)]
    # W is 4: the sixth waits at its sender until the second is acknowledged.
    pair.send(6)
    assert pair.state("order-6@alpha") is OutgoingState.WAITING
    pair.pass_time(MINUTE)
    assert pair.take() == ["order-2@alpha", "order-6@alpha"]
    with pair.beta.context.store.reader() as reader:
        _, (channel,) = reader.channels()
    assert (channel.expected, channel.held) == (6, ())
    assert pair.verify().clean


def test_without_order_numbers_are_still_judged() -> None:
    forge = streamed(10, LOOSE)
    assert accepted(forge.hand_in("12", 12, "Continue", second=12))
    assert forge.take()[-1] == "12"
    for number in (12, 9):
        assert refusal(forge, number).location == "//SequenceNumber"
    assert refusal(forge, 3).location == "//MessageData/Timestamp"
    assert "window of 4" in refusal(forge, 17).description
    assert accepted(forge.hand_in("10", 10, "Continue", second=10))
    assert forge.take() == ["10"]


def test_without_order_a_number_that_never_comes_holds_nobody_up() -> None:
    forge = streamed(10, LOOSE)
    for number in range(11, 40):
        assert accepted(forge.hand_in(str(number), number, "Continue", second=number))
    assert forge.take() == [str(number) for number in range(40) if number != 10]
    assert forge.pair.kinds("beta").count("skipped") == 1


# --- a scope that changes -----------------------------------------------------------------------


def undone(step: Callable[..., object], problem: Exception) -> Callable[..., object]:
    """The step, and then trouble."""

    def then_trouble(*words: object) -> object:
        step(*words)
        raise problem

    return then_trouble


def scoped(scope: str) -> str:
    return f'[delivery]\nretries = 2\n[flow]\nwindow = 2\n[sequence]\nscope = "{scope}"\n'


@pytest.mark.parametrize("began", ["pair", "triple"])
@pytest.mark.parametrize("ahead", [0, 2 * DAY], ids=["one clock", "a clock that was ahead"])
def test_a_scope_that_its_sender_changes_and_changes_back_stops_nothing(
    began: str, ahead: Duration
) -> None:
    """Its receiver, which keeps the scope, takes both streams of its sender for one."""
    between = "triple" if began == "pair" else "pair"
    pair = Network.pair("window", scoped(began))
    pair.send_all(range(1, 4))
    change(pair, "alpha", agree("alpha", "window", scoped(between)))
    usual = pair.world("alpha").time
    pair.world("alpha").time += ahead
    pair.send_all(range(4, 9))
    pair.world("alpha").time = usual + SECOND
    change(pair, "alpha", agree("alpha", "window", scoped(began)))
    pair.send_all(range(9, 14))
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 14)]
    assert pair.notices == []


@pytest.mark.parametrize("began", ["pair", "triple"])
@pytest.mark.parametrize("follows", [False, True], ids=["alone", "before its sender"])
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_scope_that_its_receiver_changes_and_changes_back_stops_nothing(
    began: str, follows: bool, ordered: bool
) -> None:
    """Its sender, which keeps the scope for a while, goes on with the stream that it began."""
    order = "ordered = true\n" if ordered else ""
    between = "triple" if began == "pair" else "pair"
    pair = Network.pair("window", scoped(began) + order)
    pair.send_all(range(1, 4))
    last = 4
    for scope in (between, began):
        said = scoped(scope) + order
        change(pair, "beta", agree("beta", "window", said))
        pair.send_all(range(last, last + 5))
        if follows:
            change(pair, "alpha", agree("alpha", "window", said))
            pair.send_all(range(last + 5, last + 10))
        last += 10 if follows else 5
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, last)]
    assert pair.notices == []
    assert pair.verify().clean
    with pair.beta.context.store.reader() as reader:
        _, streams = reader.channels()
    # What its sender begins anew has today's name, which is of that transport alone.
    assert len(streams) == (2 if follows else 1)


@pytest.mark.parametrize("both", [False, True], ids=["sender", "both"])
@pytest.mark.parametrize("began", ["pair", "triple"])
def test_what_still_waited_under_the_old_scope_stops_nothing_under_the_new_one(
    began: str, both: bool
) -> None:
    between = "triple" if began == "pair" else "pair"
    slow = scoped("{}").replace("retries = 2", "retries = 9")
    pair = Network.pair("window", slow.format(began))
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send_all(range(2, 6))
    assert pair.state("order-5@alpha") is OutgoingState.WAITING
    for name in ("alpha", "beta") if both else ("alpha",):
        change(pair, name, agree(name, "window", slow.format(between)))
    pair.lose_request = lambda post: post.message_id != "order-6@alpha"
    # The stream of the new scope begins while that of the old one has something to send.
    pair.send(6)
    pair.lose_request = lambda post: False
    pair.pass_time(MINUTE)
    for number in range(7, 10):
        pair.send(number)
        pair.pass_time(MINUTE)
    assert sorted(pair.take()) == [f"order-{number}@alpha" for number in range(1, 10)]
    assert pair.notices == []


@pytest.mark.parametrize("nodes", [("alpha",), ("beta",), ("alpha", "beta")])
@pytest.mark.parametrize("waits", [False, True], ids=["idle", "waiting"])
def test_a_scope_that_changes_with_the_transport_stops_nothing(
    nodes: tuple[str, ...], waits: bool
) -> None:
    """The stream of before is called by the transport that it went by, and not by today's."""
    slow = scoped("{}").replace("retries = 2", "retries = 9\ntransports = {}")
    pair = Network.pair("window", slow.format('["http"]', "triple"))
    pair.send_all(range(1, 4))
    pair.lose_request = lambda post: waits
    pair.send_all(range(4, 7))
    for name in nodes:
        change(pair, name, agree(name, "window", slow.format('["smtp", "http"]', "pair")))
    pair.send(7)
    pair.lose_request = lambda post: False
    pair.pass_time(MINUTE, MINUTE)
    for number in range(8, 12):
        pair.send(number)
        pair.pass_time(MINUTE)
    assert sorted(map(pair.id_of, range(1, 12))) == sorted(pair.take())
    assert pair.notices == []


@pytest.mark.parametrize("began", ["pair", "triple"])
@pytest.mark.parametrize("nodes", [("beta",), ("alpha", "beta"), ("beta", "alpha")])
def test_what_was_given_up_before_a_scope_changed_takes_no_number_after_it(
    began: str, nodes: tuple[str, ...]
) -> None:
    between = "triple" if began == "pair" else "pair"
    wide = scoped("{}").replace("window = 2", "window = 4")
    pair = Network.pair("window", wide.format(began))
    pair.send_all(range(1, 3))
    late: list[Parcel] = []

    def lose(post: Post) -> bool:
        late.append(whole_parcel(pair.alpha.context, post.parcel))
        return True

    pair.lose_request = lose
    pair.send(3)
    pair.alpha.abandon("order-3@alpha")
    pair.settle("alpha")
    pair.lose_request = lambda post: False
    for name in nodes:
        change(pair, name, agree(name, "window", wide.format(between)))
    pair.send_all(range(4, 6))
    pair.deliver("beta", late[0])
    pair.send_all(range(6, 12))
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 12) if number != 3]
    assert {notice.message_id for notice in pair.notices} == {"order-3@alpha"}


def test_a_name_that_another_agreement_uses_is_of_no_stream_that_changed_its_scope() -> None:
    pair = Network.pair("window", scoped("pair"))
    pair.send_all(range(1, 4))
    with pair.beta.context.store.reader() as reader:
        _, before = reader.channels()
    second = agreement_text("beta", "alpha", "window", scoped("pair"))
    second = second.replace('"alpha-beta"', '"alpha-beta-2"')
    change(pair, "beta", agree("beta", "window", scoped("triple")), read_toml(second))
    pair.send(4)
    # Its sender is told that the number belongs to no stream per triple, and begins anew.
    assert [notice.message_id for notice in pair.notices] == ["order-4@alpha"]
    pair.send_all(range(5, 8))
    assert pair.take() == [f"order-{number}@alpha" for number in (1, 2, 3, 5, 6, 7)]
    with pair.beta.context.store.reader() as reader:
        _, after = reader.channels()
    assert [channel for channel in after if channel.key == before[0].key] == before


def test_a_stream_that_begins_anew_does_so_also_for_what_a_hub_kept_back() -> None:
    """The hub takes a message over while the stream is paused that the scope leads back to."""
    chain = Network.chain(options("window", hops=2, agreement=scoped("pair")))
    hub = chain.engines["hub1"]
    for sent, scope in ((range(1, 4), "triple"), (range(4, 9), "pair")):
        chain.send_all(sent)
        world = options("window", hops=2, agreement=scoped(scope))
        hub.context.agreements = Agreements(agreements_of("hub1", world))
    key = "urn:sim:hub1>urn:sim:seller"
    hub.pause(key, "wait")
    chain.settle("hub1")
    chain.send_all(range(9, 12))
    hub.resume(channel=key)
    chain.settle("hub1")
    chain.pass_time(MINUTE)
    assert chain.take("seller") == [f"order-{number}@buyer" for number in range(1, 12)]
    assert chain.notices == []


@pytest.mark.parametrize("where", ["submission", "commit"])
def test_what_was_undone_of_a_stream_that_begins_anew_is_done_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Network.pair("window", scoped("triple"))
    full = StoreFull("no space is left", remedy="free some")
    for sent, scope in ((range(1, 4), "pair"), (range(4, 9), "triple")):
        pair.send_all(sent)
        # Files are read anew, and the process goes on.
        pair.alpha.context.agreements = Agreements([agree("alpha", "window", scoped(scope))])
    with monkeypatch.context() as patch:
        if where == "commit":
            patch.setattr(pair.alpha.context.store, "_commit", Mock(side_effect=full))
        else:
            patch.setattr(respond, "submit", undone(submit, full))
        with pytest.raises(StoreFull):
            pair.send(9)
    pair.send_all(range(9, 12))
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 12)]
    assert pair.notices == []


# --- a range that changes ----------------------------------------------------------------------


def ranged(last: int, first: int = 0, window: int = 2) -> str:
    numbers = f"[flow]\nwindow = {window}\n[sequence]\nrange = [{first}, {last}]\n"
    return f"[delivery]\nretries = 2\n{numbers}"


ORDERS = [("alpha", "beta"), ("beta", "alpha")]


@pytest.mark.parametrize("order", ORDERS, ids=["sender first", "receiver first"])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (200, 299), (0, 9999)])
def test_a_range_that_changes_while_the_stream_is_idle(
    order: tuple[str, str], first: int, last: int
) -> None:
    pair = Network.pair("window", ranged(99))
    pair.send_all(range(1, 7))
    for name in order:
        change(pair, name, agree(name, "window", ranged(last, first)))
    pair.send_all(range(7, 20))
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 20)]
    assert pair.notices == []
    report = pair.verify()
    assert report.clean, report.violations


@pytest.mark.parametrize("order", ORDERS, ids=["sender first", "receiver first"])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (200, 299), (0, 9999)])
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_range_that_changes_while_messages_are_under_way(
    order: tuple[str, str], first: int, last: int, lost: str
) -> None:
    pair = Network.pair("window", ranged(99))
    pair.send_all(range(1, 7))
    setattr(pair, f"lose_{lost}", lambda _: True)
    pair.send(7)
    setattr(pair, f"lose_{lost}", lambda _: False)
    pair.send(8)
    setattr(pair, f"lose_{lost}", lambda _: True)
    pair.send_all(range(9, 12))
    for name in order:
        change(pair, name, agree(name, "window", ranged(last, first)))
    pair.send_all(range(12, 20))
    setattr(pair, f"lose_{lost}", lambda _: False)
    pair.pass_time(*[MINUTE] * 3)
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 20)]
    assert pair.notices == []
    with pair.alpha.context.store.reader() as reader:
        (channel,), _ = reader.channels()
        assert reader.incidents() == []
    assert channel.numbers is not None
    assert (channel.numbers.first, channel.numbers.last) == (first, last)
    report = pair.verify()
    assert report.clean, report.violations


@pytest.mark.parametrize("count", [2, 4])
def test_a_range_that_is_narrow_while_the_opener_is_under_way_and_then_wide_again(
    count: int,
) -> None:
    pair = Network.pair("rm-0.78", ranged(99), lose_request=lambda post: True)
    pair.send(1)
    for name in ("alpha", "beta"):
        change(pair, name, agree(name, "rm-0.78", ranged(3)))
    pair.lose_request = lambda post: False
    pair.pass_time(*[MINUTE] * 3)
    assert pair.take() == ["order-1@alpha"]
    for name in ("alpha", "beta"):
        change(pair, name, agree(name, "rm-0.78", ranged(99)))
    pair.send_all(range(2, count + 6))
    assert pair.take() == [f"order-{number}@alpha" for number in range(2, count + 6)]
    assert pair.notices == []
    report = pair.verify()
    assert report.clean, report.violations


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_where_only_one_side_changes_the_stream_goes_on_all_the_same(name: str) -> None:
    """The two do not agree, so single messages are refused and told of; nothing hangs."""
    pair = Network.pair("window", ranged(99))
    pair.send_all(range(1, 7))
    change(pair, name, agree(name, "window", ranged(3)))
    for number in range(7, 40):
        pair.send(number)
        pair.pass_time(SECOND)
    told = {notice.message_id for notice in pair.notices}
    taken = pair.take()
    assert {*taken, *told} == {f"order-{number}@alpha" for number in range(1, 40)}
    assert not told & set(taken)
    report = pair.verify()
    assert report.clean, report.violations


def test_a_window_that_shrinks_refuses_nothing_that_is_under_way() -> None:
    pair = Network.pair("window", ranged(99, window=8))
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send(2)
    pair.lose_answer = lambda _: True
    pair.send_all(range(3, 10))
    for name in ("beta", "alpha"):
        change(pair, name, agree(name, "window", ranged(99, window=2)))
    pair.lose_request = lambda post: post.attempt == 1
    # The last of them arrives first.
    pair.lose_answer = lambda _: False
    pair.pass_time(*[MINUTE] * 4)
    pair.send(10)
    pair.lose_request = lambda post: False
    pair.pass_time(MINUTE)
    assert pair.take() == [f"order-{number}@alpha" for number in range(1, 11)]
    assert pair.notices == []
    assert pair.verify().clean
