"""Sequence numbers between real handlers: what is given, what is taken, what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.handler.sending import transmit
from oncewire.message.envelope import Message, MessageKind, SequenceNumber, SequenceStatus
from oncewire.message.instant import SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network
from tests.handler.samples import toml
from tests.handler.test_exchange import OTHER
from tests.handler.wiretap import find


def numbers(pair: Network) -> list[SequenceNumber | None]:
    """The numbers that arrived at beta, in order."""
    return [one.message.sequence for one in pair.to("beta")]


class Forge:
    """Messages of one stream with the numbers a test wants, made from one of alpha's own."""

    def __init__(self, profile: str, extra: str = "") -> None:
        self.pair = Network.pair(profile, extra, lose_request=lambda post: True)
        self.pair.send()
        self.base = self.pair.sent("order-1@alpha")

    def hand_in(
        self,
        name: str,
        number: int,
        status: str = "Reset",
        second: int = 0,
        of: Parcel | None = None,
    ) -> Message:
        """Deliver a message with this id and number, made at this second; what it is answered."""
        body = (of or self.base).body.replace(b"order-1@alpha", f"{name}@alpha".encode())
        start = body.index(b"<SequenceNumber")
        end = body.index(b"</SequenceNumber>")
        mark = b"" if b"Status" not in body[start:end] else f' Status="{status}"'.encode()
        body = body[:start] + b"<SequenceNumber" + mark + b">%d" % number + body[end:]
        body = body.replace(b"000000Z", b"0000%02dZ" % second).replace(
            b"00:00:00Z", b"00:00:%02dZ" % second
        )
        before = len(self.pair.to("alpha"))
        self.pair.deliver("beta", Parcel(self.base.content_type, body))
        return self.pair.to("alpha")[before].message

    def take(self) -> list[str]:
        """What the application gets."""
        return [name.removesuffix("@alpha") for name in self.pair.take()]


def number_of(parcel: Parcel) -> int:
    sequence = codec.read(parcel).message.sequence
    assert sequence is not None
    return sequence.number


def accepted(answer: Message) -> bool:
    return answer.kind is MessageKind.ACKNOWLEDGMENT


@pytest.mark.requirement("SEQ-3", "SEQ-5", "HDR-3")
def test_v0_078_counts_from_one_by_one() -> None:
    pair = Network.pair("rm-0.78")
    pair.send_all(range(1, 5))
    assert numbers(pair) == [SequenceNumber(number, None) for number in (1, 2, 3, 4)]
    assert len(pair.take()) == 4
    assert pair.verify().clean


@pytest.mark.requirement("SEQ-1")
def test_two_transports_to_one_receiver_are_counted_apart() -> None:
    def under(name: str) -> object:
        extra = f'[delivery]\ntransports = ["{name}"]\n'
        return toml("rm-0.78", '"urn:test:own"', '"urn:test:partner"', name, extra)

    desk = Network.single(under("http"), under("smtp"), at="2026-01-01T00:00:00Z")  # type: ignore[arg-type]
    first = [desk.submit(replace(OTHER, cpa_id=name)) for name in ("http", "smtp")]
    given = [number_of(desk.parcel(post)) for post in first]
    assert [post.transport for post in first] == ["http", "smtp"]
    assert given == [1, 1]


@pytest.mark.requirement("SEQ-2", "SEQ-12")
@pytest.mark.parametrize(
    ("profile", "first", "last"),
    [("rm-0.78", 1, 4_294_967_295), ("window", 0, 99_999_999)],
)
def test_after_the_last_number_comes_the_first(profile: str, first: int, last: int) -> None:
    """Both handlers have come to the end of the range, in an epoch that has long begun."""
    pair = Network.pair(profile)
    pair.send(1)
    with pair.alpha.context.store.transition() as tx:
        (stored,) = [tx.outgoing("order-1@alpha")]
        assert stored is not None
        key = stored.outgoing.channel or ""
        sending = tx.sending_channel(key)
        assert sending is not None
        tx.save_sending_channel(replace(sending, next_number=last, first_unsettled=last, used=100))
    with pair.beta.context.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-1@alpha")
        receiving = tx.receiving_channel(arrived.incoming.channel or "")
        assert receiving is not None
        tx.save_receiving_channel(replace(receiving, expected=last, furthest=last - 1, passed=100))
    pair.send_all((2, 3, 4))
    later = [one.number for one in numbers(pair)[1:] if one is not None]
    assert later == [last, first, first + 1]
    status = None if profile == "rm-0.78" else SequenceStatus.CONTINUE
    assert {one.status for one in numbers(pair)[1:] if one is not None} == {status}
    assert pair.take() == [f"order-{number}@alpha" for number in (1, 2, 3, 4)]


@pytest.mark.requirement("SEQ-6", "DUP-4", "SEQ-11")
def test_the_same_number_again_is_a_repeat() -> None:
    forge = Forge("rm-0.78")
    assert accepted(forge.hand_in("a", 1))
    assert accepted(forge.hand_in("b", 2, second=1))
    assert accepted(forge.hand_in("b", 2, second=1))
    assert forge.take() == ["a", "b"]


@pytest.mark.requirement("SEQ-7")
def test_after_number_one_the_id_decides_whether_number_one_is_a_repeat() -> None:
    forge = Forge("rm-0.78")
    assert accepted(forge.hand_in("a", 1))
    assert accepted(forge.hand_in("a", 1))
    assert accepted(forge.hand_in("b", 1, second=1))
    assert forge.take() == ["a", "b"]


@pytest.mark.requirement("SEQ-8")
def test_number_one_after_another_number_begins_a_new_series() -> None:
    forge = Forge("rm-0.78")
    for name, number, second in (("a", 1, 0), ("b", 2, 1), ("c", 1, 2), ("d", 2, 3)):
        assert accepted(forge.hand_in(name, number, second=second))
    assert forge.take() == ["a", "b", "c", "d"]


@pytest.mark.requirement("SEQ-9")
@pytest.mark.parametrize("number", [2, 5, 4_294_967_295])
def test_any_other_number_is_discarded_with_an_error(number: int) -> None:
    forge = Forge("rm-0.78")
    assert accepted(forge.hand_in("a", 1))
    assert accepted(forge.hand_in("b", 2, second=1))
    wrong = forge.hand_in("c", number, second=2)
    assert wrong.kind is MessageKind.ERROR
    assert wrong.error_list is not None
    assert wrong.error_list.errors[0].code == "Inconsistent"
    # Nothing was kept of it: the right number is still taken.
    assert accepted(forge.hand_in("c", 3, second=2))
    assert forge.take() == ["a", "b", "c"]


@pytest.mark.requirement("SEQ-10")
def test_the_missing_message_is_sent_again_after_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """beta holds fewer early messages than alpha thinks, and refuses what is too far ahead."""
    # By its own timer, and not because beta answers again.
    monkeypatch.setattr(transmit, "HURRIED_AT_ONCE", 0)
    marks = '[sequence]\nreset = "first-message"\n'
    pair = Network.pair("window", f"{marks}[flow]\nwindow = 8\n")
    pair.agree("beta", "window", f"{marks}[flow]\nwindow = 2\n")
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send(2)
    pair.lose_request = lambda post: False
    pair.send(3)
    pair.send(4)
    refused = pair.to("alpha")[-1].message
    assert refused.kind is MessageKind.ERROR
    assert refused.header.ref_to_message_id == "order-4@alpha"
    pair.pass_time(*[600 * SECOND] * 4)
    # The missing one was sent again; the one that was too early has its honest end.
    assert pair.state("order-2@alpha") is OutgoingState.DELIVERED
    assert pair.state("order-4@alpha") is OutgoingState.NOT_DELIVERED
    assert pair.take() == [f"order-{number}@alpha" for number in (1, 2, 3)]
    report = pair.verify()
    assert not report.violations
    assert [found.kind for found in report.quarantined] == ["other_terms"]


@pytest.mark.requirement("SEQ-13", "SEQ-14", "SEQ-15")
def test_the_whole_first_window_says_reset_and_the_rest_continue() -> None:
    pair = Network.pair("window", "[flow]\nwindow = 4\n")
    pair.send_all(range(1, 8))
    marks = []
    for crossing in pair.to("beta"):
        element = find(crossing.envelope, "SequenceNumber")
        assert element is not None
        marks.append((element.text, element.get("Status")))
    assert marks == [(str(number), "Reset" if number < 4 else "Continue") for number in range(7)]


@pytest.mark.requirement("SEQ-15", "SW-10")
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_any_message_of_the_first_window_begins_the_new_epoch(order: tuple[int, ...]) -> None:
    forge = Forge("window", "[flow]\nwindow = 4\n")
    for number in range(6):
        status = "Reset" if number < 4 else "Continue"
        assert accepted(forge.hand_in(f"old-{number}", number, status, second=number))
    for number in order:
        assert accepted(forge.hand_in(f"new-{number}", number, "Reset", second=10 + number))
    names = [f"old-{number}" for number in range(6)] + [f"new-{number}" for number in range(3)]
    assert forge.take() == names


@pytest.mark.requirement("SEQ-13")
def test_a_status_that_is_neither_is_refused() -> None:
    forge = Forge("window")
    answer = forge.hand_in("a", 0, "Perhaps")
    assert answer.kind is MessageKind.ERROR
    assert forge.take() == []
