"""A receiver that asks for a pause gets nothing more, in no channel, until it is over (RTY-8)."""

from __future__ import annotations

import pytest

from oncewire.handler.actions import Post, Submission
from oncewire.handler.route import envelope_for
from oncewire.handler.sending.answer import signal_route
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import Error, MessageKind, Severity
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, MINUTE, SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.wire import answers, codec
from tests.handler.network import Network, Stores
from tests.handler.samples import toml

TERMS = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 5\n'
SAID = TERMS + '[wire]\nextensions = ["transient_error"]\n'
CONVERSATIONS = SAID + "[sequence]\nnumbered = true\nordered = true\n"


class Busy(Network):
    """Beta's handler is reached only when the test says so; alpha's posts are listed."""

    def __post_init__(self) -> None:
        self.attempts: list[str] = []
        self.reachable = False
        self.lose_request = self._lose
        super().__post_init__()

    def _lose(self, post: Post) -> bool:
        self.attempts.append(post.message_id.partition("@")[0])
        return not self.reachable

    def say_busy(self, number: int, seconds: int | None) -> None:
        """Beta answers a message with a Transient Error."""
        message = codec.read(self.sent(number)).message
        agreement = next(iter(self.beta.context.agreements))
        envelope = envelope_for(self.beta.context, signal_route(agreement, MessageKind.ERROR))
        error = Error("TransientError", Severity.WARNING, "", "busy", min_retry_secs=seconds)
        reply = answers.error_message_for(message, (error,), envelope)
        self.deliver("alpha", codec.write(reply, agreement.form))

    def say_503(self, number: int, seconds: int) -> None:
        """The server in front of beta answers for it."""
        ended = Transmission(
            f"order-{number}@alpha", 1, sent=False, reason="status 503", retry_after=seconds
        )
        self.alpha.transmission_over(ended)
        self.settle("alpha")

    def acknowledge(self, number: int) -> None:
        """A copy that was under way all the time reaches beta, and its answer alpha."""
        _, answer = self.connect("beta", self.sent(number))
        if answer is not None:
            self.deliver("alpha", answer)
        assert self.state(number) is OutgoingState.DELIVERED

    def talk(self, number: int, conversation: str) -> None:
        self.send(number, conversation_id=conversation, payloads=())


@pytest.mark.requirement("RTY-8", "RTY-9")
@pytest.mark.parametrize("twin", ["Transient Errors", "503"])
@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_unnumbered_goes_to_a_busy_receiver(
    twin: str, restarted: bool, stores: Stores
) -> None:
    pair = Busy.pair("ebms2", SAID, store=stores)
    pair.send_all((1, 2))
    pair.attempts.clear()
    if twin == "503":
        pair.say_503(1, 600)
    else:
        pair.say_busy(1, 600)
    if restarted:
        pair.crash("alpha")
    for minute in range(9):
        pair.pass_time(MINUTE)
        if minute == 3:
            pair.send(3)
            pair.send(4, best_effort=True)
    assert pair.attempts == []
    pair.reachable = True
    pair.pass_time(MINUTE)
    assert pair.attempts == ["order-1", "order-2", "order-3", "order-4"]
    assert {pair.state(number) for number in (1, 2, 3)} == {OutgoingState.DELIVERED}
    assert pair.verify(healed=False).clean
    pair.close()


@pytest.mark.requirement("RTY-8", "RTY-9")
def test_every_channel_to_the_receiver_stands_and_goes_on_in_order() -> None:
    pair = Busy.pair("ebms2", CONVERSATIONS)
    pair.reachable = True
    for number, conversation in ((1, "one"), (2, "two")):
        pair.talk(number, conversation)
    pair.reachable = False
    for number, conversation in ((3, "one"), (4, "one"), (5, "two")):
        pair.talk(number, conversation)
    pair.attempts.clear()
    pair.say_busy(3, 600)
    # A conversation that begins in the pause is a channel that nobody knew.
    pair.talk(6, "three")
    pair.pass_time(*[MINUTE] * 9)
    assert pair.attempts == []
    pair.reachable = True
    pair.pass_time(MINUTE)
    assert pair.attempts == [f"order-{number}" for number in (3, 4, 5, 6)]
    assert {pair.state(number) for number in range(1, 7)} == {OutgoingState.DELIVERED}


@pytest.mark.requirement("RTY-8")
def test_without_a_time_it_is_the_retry_interval() -> None:
    pair = Busy.pair("ebms2", SAID)
    pair.send(1)
    pair.say_busy(1, None)
    pair.send(2)
    pair.pass_time(59 * SECOND)
    assert pair.attempts == ["order-1"]
    pair.pass_time(SECOND)
    assert pair.attempts == ["order-1", "order-1", "order-2"]


@pytest.mark.parametrize("asked", [315_360_000, 99_999_999_999_999_999])
@pytest.mark.parametrize("profile", ["ebms2", "window"])
def test_no_answer_stops_a_receiver_for_longer_than_the_terms_allow(
    asked: int, profile: str, stores: Stores
) -> None:
    more = "" if profile == "window" else SAID.removeprefix(TERMS)
    pair = Busy.pair(profile, f'{TERMS}persist_duration = "P1D"\n{more}', store=stores)
    pair.send(1)
    pair.say_busy(1, asked)
    [incident] = pair.incidents()
    assert f"asked for a pause of {asked} s" in incident.reason
    assert incident.channel == "to urn:test:beta"
    pair.reachable = True
    pair.send(2)
    pair.pass_time(DAY - 2 * MINUTE)
    assert pair.attempts == ["order-1"]
    pair.pass_time(MINUTE)
    assert {pair.state(number) for number in (1, 2)} == {OutgoingState.DELIVERED}
    pair.close()


def test_the_operator_ends_a_pause() -> None:
    for of_channel in (False, True):
        pair = Busy.pair("ebms2", SAID)
        pair.send_all((1, 2))
        pair.say_busy(1, 315_360_000)
        pair.send(3)
        pair.pass_time(MINUTE)
        pair.attempts.clear()
        pair.reachable = True
        if of_channel:
            pair.alpha.resume(channel="to urn:test:beta")
        else:
            pair.alpha.resume(message_id="order-1@alpha")
        pair.settle("alpha")
        pair.pass_time(SECOND)
        assert sorted(pair.attempts) == ["order-1", "order-2", "order-3"]
        assert pair.incidents() == []
        assert pair.verify(healed=False).clean


@pytest.mark.requirement("RTY-8", "RTY-13")
def test_what_a_suspended_channel_keeps_back_goes_with_it_once_the_pause_was_ended() -> None:
    pair = Busy.pair("window", TERMS)
    pair.send_all((1, 2))
    pair.say_busy(1, 3_600)
    pair.pass_time(2 * MINUTE)
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-2@alpha")
    assert stored is not None
    assert stored.outgoing.channel is not None
    pair.alpha.pause(stored.outgoing.channel, "wait")
    pair.settle("alpha")
    pair.alpha.resume(channel="to urn:test:beta")
    pair.settle("alpha")
    pair.attempts.clear()
    pair.reachable = True
    # One that stood in the way is given up, which lets its channel go on.
    with pair.alpha.context.transition() as tx:
        channel = tx.sending_channel(stored.outgoing.channel)
        assert channel is not None
        tx.save_sending_channel(channel.resume())
    pair.settle("alpha")
    pair.pass_time(SECOND)
    assert sorted(pair.attempts) == ["order-1", "order-2"]


@pytest.mark.requirement("RTY-8", "RTY-13")
@pytest.mark.parametrize("waited", [2 * MINUTE, 10 * SECOND])
def test_the_end_of_two_pauses_puts_every_timer_of_a_suspended_channel_back(waited: int) -> None:
    """Also the one that ends with the first of them, and none to before a wait that the last
    attempt began."""
    pair = Busy.pair("window", TERMS)
    pair.reachable = True
    pair.send(1)
    pair.reachable = False
    pair.send_all((2, 3))
    begun = pair.alpha.context.now()
    pair.say_busy(2, 3_600)
    pair.pass_time(waited)
    pair.say_busy(2, 7_200)
    key = pair.stored(3).outgoing.channel
    assert key is not None
    pair.alpha.pause(key, "wait")
    pair.alpha.resume(channel="to urn:test:beta")
    pair.settle("alpha")
    due = max(pair.alpha.context.now(), begun + MINUTE)
    assert [pair.stored(number).outgoing.next_attempt_at for number in (2, 3)] == [due, due]


def test_a_channel_that_is_resumed_ends_the_pause_of_its_receiver() -> None:
    pair = Busy.pair("window", TERMS)
    pair.reachable = True
    pair.send(1)
    pair.reachable = False
    pair.send(2)
    pair.say_busy(2, 3_600)
    pair.send(3)
    pair.attempts.clear()
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-2@alpha")
    assert stored is not None
    pair.reachable = True
    pair.alpha.resume(channel=stored.outgoing.channel)
    pair.settle("alpha")
    pair.pass_time(SECOND)
    assert pair.attempts == ["order-2", "order-3"]
    assert pair.kinds("alpha").count("resumed") == 4
    assert pair.verify(healed=False).clean


@pytest.mark.requirement("RTY-8")
def test_a_pause_that_was_ended_is_over_for_a_channel_on_which_nothing_waited(
    stores: Stores,
) -> None:
    pair = Busy.pair("window", TERMS, store=stores)
    pair.reachable = True
    pair.send(1)
    pair.reachable = False
    pair.send(2)
    pair.say_busy(2, 3_600)
    # The copy that was turned away was not the only one: its acknowledgement comes.
    pair.reachable = True
    pair.acknowledge(2)
    pair.alpha.resume(channel="to urn:test:beta")
    pair.settle("alpha")
    pair.attempts.clear()
    pair.send(3)
    pair.pass_time(SECOND)
    assert pair.attempts == ["order-3"]
    assert pair.state(3) is OutgoingState.DELIVERED
    assert pair.verify(healed=False).clean
    pair.close()


@pytest.mark.requirement("RTY-8", "RTY-1")
def test_a_pause_that_is_lifted_sends_nothing_to_anybody_else() -> None:
    desk = Network.single(
        *(toml("ebms2", '"urn:test:own"', f'"urn:test:{name}"', name, TERMS) for name in TWO),
        at="2026-01-01T00:00:00Z",
    )
    for name in TWO:
        desk.submit(Submission(name, Service("urn:test:orders"), "New", message_id=f"m@{name}"))
    busy = Transmission("m@beta", 1, sent=False, reason="503", retry_after=600)
    for ended in (busy, Transmission("m@gamma", 1, sent=True)):
        desk.engine.transmission_over(ended)
    desk.settle()
    desk.engine.resume(channel="to urn:test:beta")
    desk.pass_time(SECOND)
    assert [one.message_id for one in desk.posts] == ["m@beta", "m@gamma", "m@beta"]


TWO = ("beta", "gamma")
