"""The retry law: when a message is sent, sent again, sent another way, and given up."""

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import Severity
from oncewire.message.form import ReliableMessagingMethod, SyncReplyMode
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol import sender
from oncewire.protocol.notes import Admit, AskStatus, Leave, Note, Notify, Raise, Transmit
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing, OutgoingState, Phase
from oncewire.protocol.terms import FlowMode, OnExhausted, RetryCount, SyncRetries, Terms
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


def due(outgoing: Outgoing, now: int, terms: Terms = PLAIN) -> SenderStep:
    return sender.attempt_due(outgoing, None, terms, now)


def failed(
    outgoing: Outgoing, *, certain: bool, terms: Terms = PLAIN, now: int = NOW
) -> SenderStep:
    return sender.transmission_failed(
        outgoing, None, terms, now, attempt=outgoing.attempts, certain=certain, reason="down"
    )


def life(terms: Terms, *, until: int = DAY) -> tuple[list[tuple[int, str]], Outgoing]:
    """Every transmission (offset, transport) of a message that is never answered, and its end."""
    outgoing = sender.enter_window(waiting(), None, terms, NOW).outgoing
    sent = []
    now = NOW
    while outgoing.next_attempt_at is not None and now <= NOW + until:
        now = outgoing.next_attempt_at
        early = due(outgoing, now - 1, terms)
        assert early.effects == (), "nothing happens early"
        step = due(outgoing, now, terms)
        sent += [(now - NOW, effect.transport) for effect in of_kind(step, Transmit)]
        outgoing = step.outgoing
    return sent, outgoing


# --- the retry law ------------------------------------------------------------------------


@pytest.mark.requirement("RTY-1", "RTY-2", "RTY-3", "RTY-7", "RTY-18")
@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_resends_follow_timeout_and_interval_and_stop(retries: int) -> None:
    sent, outgoing = life(replace(PLAIN, retries=retries))
    expected = [0] + [TIMEOUT + n * INTERVAL for n in range(retries)]
    assert [offset for offset, _ in sent] == expected
    assert outgoing.attempts == 1 + retries
    assert outgoing.state is OutgoingState.UNKNOWN


@pytest.mark.requirement("RTY-14", "RTY-16", "OPS-1")
def test_the_end_of_the_retries_is_told_and_is_an_incident() -> None:
    outgoing = replace(outstanding(), attempts_here=3, attempts=3)
    step = due(outgoing, NOW + DAY // 2)
    assert notes(step) == ["exhausted", "failed"]
    assert of_kind(step, Notify)[0].severity is Severity.WARNING
    assert of_kind(step, Raise)[0].message_id == "m"
    assert step.outgoing.notice_owed


@pytest.mark.requirement("RTY-4", "RTY-15", "CPA-16")
def test_another_transport_gets_its_own_retries() -> None:
    sent, outgoing = life(replace(PLAIN, retries=1, transports=("http", "smtp")))
    second = TIMEOUT + INTERVAL
    assert sent == [
        (0, "http"),
        (TIMEOUT, "http"),
        (second, "smtp"),
        (second + TIMEOUT, "smtp"),
    ]
    assert outgoing.state is OutgoingState.UNKNOWN


@pytest.mark.requirement("RTY-11")
def test_one_total_over_everything_never_changes_the_transport() -> None:
    terms = replace(PLAIN, transports=("http", "smtp"), retries_counted=RetryCount.TOTAL)
    sent, _ = life(terms)
    assert [transport for _, transport in sent] == ["http"] * 3


@pytest.mark.requirement("RTY-11", "RTY-10")
def test_whatever_caused_them_retries_count_together() -> None:
    outgoing = outstanding()
    outgoing = failed(outgoing, certain=True).outgoing
    outgoing = due(outgoing, NOW + INTERVAL).outgoing
    outgoing = failed(outgoing, certain=False, now=NOW + INTERVAL).outgoing
    outgoing = due(outgoing, NOW + 2 * INTERVAL).outgoing
    assert outgoing.attempts == 3
    step = due(outgoing, NOW + 3 * INTERVAL)
    assert step.outgoing.state is OutgoingState.UNKNOWN


@pytest.mark.requirement("RTY-12", "OPS-1")
def test_exhausted_retries_suspend_the_channel() -> None:
    stream = Stream(replace(ORDERED, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL))
    stream.enter("a")
    step = stream.due("a", after=TIMEOUT)
    assert stream.state("a") is OutgoingState.SUSPENDED
    assert stream.channel.suspended
    assert stream.channel.suspended_by == "a"
    assert notes(step) == ["exhausted", "suspended"]
    assert of_kind(step, Raise)[0].channel == "a>b"
    assert of_kind(step, Notify) == [], "nothing is lost yet: the operator decides"
    assert stream.channel.places(stream.terms) == 0


def test_a_second_trouble_does_not_hide_the_first() -> None:
    stream = Stream(
        replace(
            ORDERED, retries=0, persist_duration=INTERVAL, on_exhausted=OnExhausted.SUSPEND_CHANNEL
        )
    )
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    stream.due("b", after=TIMEOUT)
    step = stream.due("c", after=INTERVAL)
    assert stream.state("c") is OutgoingState.UNKNOWN
    assert of_kind(step, Raise)[0].message_id == "c", "it has an incident of its own"
    assert stream.channel.suspended_by == "b", "and b's end still lifts the suspension"


def test_exhausted_without_a_channel_waits_for_the_operator_too() -> None:
    terms = replace(PLAIN, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL)
    step = due(outstanding(terms), NOW + TIMEOUT, terms)
    assert step.outgoing.state is OutgoingState.SUSPENDED
    assert of_kind(step, Raise)[0].message_id == "m"


@pytest.mark.requirement("RTY-12")
def test_a_suspended_channel_sends_nothing() -> None:
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    stream.channel = stream.channel.suspend("for a reason")
    step = stream.due("b", after=TIMEOUT)
    assert step.effects == ()
    assert step.outgoing.next_attempt_at == NOW + TIMEOUT, "due once the suspension is lifted"


def test_a_timer_of_a_message_that_ended_does_nothing() -> None:
    ended = replace(outstanding(), state=OutgoingState.DELIVERED)
    step = due(ended, NOW + DAY)
    assert step.effects == ()
    assert step.outgoing.next_attempt_at is None


@pytest.mark.requirement("SYNC-18")
@pytest.mark.parametrize(
    ("mode", "retries", "attempts"),
    [
        (SyncReplyMode.SIGNALS_AND_RESPONSE, SyncRetries.NONE, 1),
        (SyncReplyMode.SIGNALS_AND_RESPONSE, SyncRetries.SAME_MESSAGE, 3),
        (SyncReplyMode.NONE, SyncRetries.NONE, 3),
    ],
)
def test_no_retry_inside_a_synchronous_exchange(
    mode: SyncReplyMode, retries: SyncRetries, attempts: int
) -> None:
    sent, _ = life(replace(PLAIN, sync_mode=mode, sync_retries=retries))
    assert len(sent) == attempts


# --- time runs out ------------------------------------------------------------------------


@pytest.mark.requirement("RTY-17")
def test_nothing_is_sent_after_persist_duration() -> None:
    terms = replace(PLAIN, retries=100, persist_duration=3 * INTERVAL)
    outgoing = outstanding(terms)
    step = due(replace(outgoing, next_attempt_at=NOW), NOW + 3 * INTERVAL, terms)
    assert of_kind(step, Transmit) == []
    assert step.outgoing.state is OutgoingState.UNKNOWN
    assert "persistDuration" in step.outgoing.reason
    assert any(isinstance(effect, AskStatus) for effect in step.effects)
    last = due(replace(outgoing, next_attempt_at=NOW), NOW + 3 * INTERVAL - 1, terms)
    assert len(of_kind(last, Transmit)) == 1


@pytest.mark.requirement("HDR-9")
def test_a_message_that_expires_before_it_was_sent_is_not_delivered() -> None:
    outgoing = waiting(expires_at=NOW + SECOND)
    step = sender.deadline_passed(outgoing, None, PLAIN, NOW + SECOND)
    assert step.outgoing.state is OutgoingState.NOT_DELIVERED
    assert of_kind(step, Notify)[0].severity is Severity.ERROR
    assert notes(step) == ["expired", "failed"]


def test_a_message_that_expires_unanswered_is_unknown() -> None:
    outgoing = outstanding(expires_at=NOW + SECOND)
    step = due(outgoing, NOW + SECOND)
    assert step.outgoing.state is OutgoingState.UNKNOWN
    assert "TimeToLive" in step.outgoing.reason
    assert not any(isinstance(effect, AskStatus) for effect in step.effects)


def test_the_earlier_end_counts() -> None:
    terms = replace(PLAIN, persist_duration=10 * SECOND)
    assert outstanding(terms, expires_at=NOW + 5 * SECOND).deadline(terms) == NOW + 5 * SECOND
    assert outstanding(terms, expires_at=NOW + 50 * SECOND).deadline(terms) == NOW + 10 * SECOND
    assert waiting().deadline(terms) is None


@pytest.mark.parametrize("state", [OutgoingState.DELIVERED, OutgoingState.UNKNOWN])
def test_a_deadline_does_not_touch_what_has_ended(state: OutgoingState) -> None:
    ended = replace(outstanding(), state=state)
    assert sender.deadline_passed(ended, None, PLAIN, NOW + 2 * DAY) == SenderStep(ended)


def test_a_deadline_that_has_not_passed_does_nothing() -> None:
    outgoing = outstanding()
    assert sender.deadline_passed(outgoing, None, PLAIN, NOW) == SenderStep(outgoing)
    assert sender.deadline_passed(waiting(), None, PLAIN, NOW) == SenderStep(waiting())


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("policy", list(OnExhausted))
def test_an_expired_number_is_given_up_and_put_before_the_operator_where_agreed(
    policy: OnExhausted, numbered: bool
) -> None:
    terms = replace(
        ORDERED,
        numbered=numbered,
        ordered=numbered,
        persist_duration=SECOND,
        on_exhausted=policy,
    )
    stream = Stream(terms)
    stream.enter("a")
    step = stream.due("a", after=SECOND)
    assert stream.state("a") is OutgoingState.UNKNOWN
    # It cannot be sent again, so nothing may wait for its number.
    assert stream.channel.unsettled(terms) == 0
    assert (stream.channel.phase is Phase.ENDING) is numbered
    assert ("epoch_ended" in notes(step)) is numbered
    assert stream.channel.suspended is (policy is OnExhausted.SUSPEND_CHANNEL)
    assert of_kind(step, Raise)[0].message_id == "a"


def test_a_message_that_expires_before_it_has_a_number_suspends_nothing() -> None:
    stream = Stream(replace(ORDERED, on_exhausted=OnExhausted.SUSPEND_CHANNEL))
    stream.submit("a", expires_at=NOW)
    step = stream.step("a", sender.deadline_passed, stream.terms, NOW)
    assert stream.state("a") is OutgoingState.NOT_DELIVERED
    assert not stream.channel.suspended
    assert stream.channel.phase is not Phase.ENDING
    assert of_kind(step, Raise)[0].message_id == "a"


# --- what the transport says --------------------------------------------------------------


@pytest.mark.requirement("RTY-6")
def test_a_failed_transmission_is_repeated_after_an_interval() -> None:
    step = failed(outstanding(), certain=True, now=NOW + 5 * SECOND)
    assert step.outgoing.next_attempt_at == NOW + 5 * SECOND + INTERVAL
    assert notes(step) == ["send_failed"]


@pytest.mark.requirement("RTY-1")
def test_a_failed_transmission_does_not_shorten_the_timeout() -> None:
    terms = replace(PLAIN, timeout=10 * INTERVAL)
    step = failed(outstanding(terms), certain=True, terms=terms)
    assert step.outgoing.next_attempt_at == NOW + 10 * INTERVAL


def test_a_report_about_an_earlier_attempt_moves_no_timer() -> None:
    outgoing = due(outstanding(), NOW + TIMEOUT).outgoing
    now = NOW + TIMEOUT + 5 * SECOND
    step = sender.transmission_failed(
        outgoing, None, PLAIN, now, attempt=1, certain=True, reason="down"
    )
    assert step.outgoing.next_attempt_at == outgoing.next_attempt_at
    assert step.outgoing.attempts_lost == 1


def test_a_report_names_the_transport_that_the_attempt_was_made_on() -> None:
    """The message was resumed meanwhile, and begins with its first transport again."""
    terms = replace(PLAIN, transports=("http", "smtp"))
    step = sender.transmission_failed(
        outstanding(terms),
        None,
        terms,
        NOW,
        attempt=1,
        certain=True,
        reason="down",
        transport="smtp",
    )
    assert [note.transport for note in of_kind(step, Note)] == ["smtp"]


@pytest.mark.requirement("ERR-9", "RM-2")
@pytest.mark.parametrize(
    ("certain", "state", "severity"),
    [
        (True, OutgoingState.NOT_DELIVERED, Severity.ERROR),
        (False, OutgoingState.UNKNOWN, Severity.WARNING),
    ],
)
def test_the_notice_says_whether_anything_was_transmitted(
    certain: bool, state: OutgoingState, severity: Severity
) -> None:
    terms = replace(PLAIN, retries=0)
    outgoing = failed(outstanding(terms), certain=certain, terms=terms).outgoing
    step = due(outgoing, NOW + INTERVAL, terms)
    assert step.outgoing.state is state
    assert of_kind(step, Notify)[0].severity is severity


def test_one_attempt_that_may_have_arrived_is_enough_for_unknown() -> None:
    outgoing = due(failed(outstanding(), certain=True).outgoing, NOW + INTERVAL).outgoing
    assert outgoing.transmitted
    assert not failed(outgoing, certain=True, now=NOW + INTERVAL).outgoing.transmitted


# --- reliability left to the transport, or to nobody --------------------------------------

DELEGATED = replace(PLAIN, method=ReliableMessagingMethod.TRANSPORT)


@pytest.mark.requirement("RM-7")
def test_a_reliable_transport_is_trusted_and_our_machine_stays_idle() -> None:
    sent, outgoing = life(DELEGATED)
    assert len(sent) == 1
    assert outgoing.next_attempt_at is None
    step = sender.transmission_ended(outgoing, None, DELEGATED)
    assert step.outgoing.state is OutgoingState.DELIVERED
    assert notes(step) == ["acknowledged"]


@pytest.mark.requirement("RM-8")
def test_a_non_delivery_report_is_told_like_any_failure() -> None:
    step = failed(outstanding(DELEGATED), certain=True, terms=DELEGATED)
    assert step.outgoing.state is OutgoingState.NOT_DELIVERED
    assert of_kind(step, Notify)[0].severity is Severity.ERROR


@pytest.mark.requirement("RM-2")
def test_a_delegated_message_without_any_report_ends_as_unknown() -> None:
    # The process may have died between handing it over and hearing of it.
    outgoing = outstanding(DELEGATED)
    assert outgoing.deadline(DELEGATED) == NOW + DELEGATED.persist_duration
    step = sender.deadline_passed(outgoing, None, DELEGATED, NOW + DELEGATED.persist_duration)
    assert step.outgoing.state is OutgoingState.UNKNOWN


def test_a_resumed_delegated_message_is_sent_again() -> None:
    outgoing = failed(outstanding(DELEGATED), certain=True, terms=DELEGATED).outgoing
    outgoing = sender.resume(outgoing, None, DELEGATED, NOW).outgoing
    step = due(outgoing, NOW, DELEGATED)
    assert [effect.attempt for effect in of_kind(step, Transmit)] == [2]


def test_only_a_trusted_transport_settles_by_taking_the_message() -> None:
    outgoing = outstanding()
    assert sender.transmission_ended(outgoing, None, PLAIN) == SenderStep(outgoing)
    ended = replace(outgoing, state=OutgoingState.UNKNOWN)
    assert sender.transmission_ended(ended, None, DELEGATED) == SenderStep(ended)


@pytest.mark.requirement("RM-6", "OPS-4")
def test_best_effort_is_sent_once_and_ends_as_sent() -> None:
    terms = replace(PLAIN, reliable=False)
    sent, outgoing = life(terms)
    assert len(sent) == 1
    assert outgoing.state is OutgoingState.SENT
    assert failed(outgoing, certain=True, terms=terms).outgoing.state is OutgoingState.SENT


def test_best_effort_does_not_keep_its_place_in_a_window() -> None:
    terms = replace(PLAIN, reliable=False, flow=FlowMode.STOP_AND_WAIT)
    channel = SendingChannel.open("a>b", terms)
    entered = sender.enter_window(waiting(channel="a>b"), channel, terms, NOW)
    step = sender.attempt_due(entered.outgoing, entered.channel, terms, NOW)
    assert step.outgoing.state is OutgoingState.SENT
    assert of_kind(step, Admit)
    assert step.channel is not None
    assert step.channel.places(terms) == 1


# --- the way to the receiver --------------------------------------------------------------


@pytest.mark.requirement("RTY-8")
def test_nothing_goes_to_a_receiver_that_asked_for_a_pause() -> None:
    entered = sender.enter_window(waiting(), None, PLAIN, NOW).outgoing
    pause = sender.Way(paused_until=NOW + 300 * SECOND)
    for outgoing in (entered, outstanding()):
        now = NOW + TIMEOUT
        quiet = sender.attempt_due(outgoing, None, PLAIN, now, pause)
        assert quiet.effects == ()
        assert quiet.outgoing.next_attempt_at == NOW + 300 * SECOND
        again = sender.attempt_due(quiet.outgoing, None, PLAIN, NOW + 300 * SECOND, pause)
        assert len(of_kind(again, Transmit)) == 1


def test_the_longer_pause_of_channel_and_receiver_holds() -> None:
    stream = Stream()
    stream.enter("a")
    now = NOW + TIMEOUT
    for channel, receiver in ((100, 300), (300, 100)):
        way = sender.Way(paused_until=NOW + receiver * SECOND)
        paused = replace(stream.channel, paused_until=NOW + channel * SECOND)
        quiet = sender.attempt_due(stream.messages["a"], paused, ORDERED, now, way)
        assert quiet.outgoing.next_attempt_at == NOW + 300 * SECOND


def test_without_an_address_nothing_is_sent_and_nothing_is_given_up() -> None:
    """S5: a message that never left is not called transmitted."""
    way = sender.Way(closed=frozenset({"http"}))
    for attempts in (0, 1 + PLAIN.retries):
        outgoing = replace(outstanding(), attempts=attempts, attempts_here=attempts)
        if attempts == 0:
            with pytest.raises(NotAllowed, match="no address for http"):
                sender.attempt_due(outgoing, None, PLAIN, NOW + TIMEOUT, way)
        else:
            # What was sent as often as agreed needs no address any more.
            step = sender.attempt_due(outgoing, None, PLAIN, NOW + TIMEOUT, way)
            assert step.outgoing.state is OutgoingState.UNKNOWN


@pytest.mark.requirement("RTY-15")
def test_a_transport_that_others_have_left_is_passed_by_until_it_works_again() -> None:
    terms = replace(PLAIN, retries=1, transports=("http", "smtp"))
    spent = replace(outstanding(), attempts=2, attempts_here=2)
    step = sender.attempt_due(spent, None, terms, NOW + DAY // 2)
    assert [one.transport for one in of_kind(step, Leave)] == ["http"]
    way = sender.Way(left=frozenset({"http"}))
    entered = sender.enter_window(waiting(), None, terms, NOW).outgoing
    step = sender.attempt_due(entered, None, terms, NOW, way)
    assert notes(step) == ["send_failed", "sent"]
    assert of_kind(step, Note)[0].attempt is None
    assert [one.transport for one in of_kind(step, Transmit)] == ["smtp"]
    # One that has begun there has retries of its own.
    begun = sender.attempt_due(entered, None, terms, NOW).outgoing
    again = sender.attempt_due(begun, None, terms, NOW + TIMEOUT, way)
    assert [one.transport for one in of_kind(again, Transmit)] == ["http"]
    # Where nothing works, the first is as good as any.
    nothing = sender.Way(left=frozenset({"http", "smtp"}))
    step = sender.attempt_due(entered, None, terms, NOW, nothing)
    assert (notes(step), step.outgoing.transport) == (["sent"], 0)


@pytest.mark.requirement("RTY-15")
def test_a_transport_without_an_address_is_passed_over() -> None:
    terms = replace(PLAIN, retries=1, transports=("ftp", "http", "smtp"))
    way = sender.Way(closed=frozenset({"ftp"}))
    entered = sender.enter_window(waiting(), None, terms, NOW).outgoing
    step = sender.attempt_due(entered, None, terms, NOW, way)
    assert notes(step) == ["send_failed", "sent"]
    passed = of_kind(step, Note)[0]
    assert (passed.transport, passed.attempt) == ("ftp", None)
    assert [one.transport for one in of_kind(step, Transmit)] == ["http"]
    assert (step.outgoing.attempts, step.outgoing.attempts_lost) == (1, 0)
    # When the last one leads nowhere, it waits until somebody mends that.
    nowhere = sender.Way(closed=frozenset({"smtp"}))
    spent = replace(step.outgoing, attempts=2, attempts_here=2)
    with pytest.raises(NotAllowed, match="smtp"):
        sender.attempt_due(spent, None, terms, NOW + DAY // 2, nowhere)
    # Where all retries count together there is one transport only.
    total = replace(terms, retries_counted=RetryCount.TOTAL)
    with pytest.raises(NotAllowed, match="ftp"):
        sender.attempt_due(entered, None, total, NOW, way)
