"""What acknowledgements and errors do at the sender, by the four classes of v0-078."""

import pytest
from msgspec.structs import replace

from oncewire.message.envelope import COMMUNICATION_CODE, Error, ErrorClass, Severity
from oncewire.message.form import ReliableMessagingMethod
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol import sender
from oncewire.protocol.notes import (
    Acknowledged,
    Admit,
    Ignored,
    Note,
    Notify,
    Pause,
    Rejected,
    Resolve,
    SendFailed,
    Transmit,
    Warned,
)
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.states import Outgoing, OutgoingState, Phase, Proof
from oncewire.protocol.terms import OnExhausted, Terms
from tests.protocol.samples import (
    INTERVAL,
    NOW,
    ORDERED,
    PLAIN,
    STOP_AND_WAIT,
    TIMEOUT,
    Stream,
    notes,
    of_kind,
    outstanding,
    waiting,
)

TRANSIENT = Error("TransientError", Severity.WARNING)
COMMUNICATION = Error(COMMUNICATION_CODE, Severity.WARNING, "", "gateway down")
MESSAGING = Error("NotSupported", Severity.ERROR, "//Manifest", "no such reference")
SEQUENCE = Error("Inconsistent", Severity.ERROR, "//SequenceNumber", "3 is missing")


def ack(outgoing: Outgoing, terms: Terms = PLAIN, **named: str) -> SenderStep:
    return sender.ack_arrived(outgoing, None, terms, ack_id="ack-1", **named)


def hop_ack(outgoing: Outgoing) -> SenderStep:
    """The acknowledgement of somebody on the way."""
    return sender.ack_arrived(outgoing, None, PLAIN, ack_id="ack-0", proof=Proof.HOP)


def error(outgoing: Outgoing, error: Error, now: int = NOW, terms: Terms = PLAIN) -> SenderStep:
    return sender.error_arrived(outgoing, None, terms, now, error=error, error_id="err-1")


# --- acknowledgements ---------------------------------------------------------------------


@pytest.mark.requirement("RM-14", "ACK-3")
def test_a_matching_acknowledgement_delivers() -> None:
    step = ack(outstanding())
    assert step.outgoing.state is OutgoingState.DELIVERED
    assert step.outgoing.next_attempt_at is None
    note = of_kind(step, Note)[0]
    assert (note.what, note.ref_to) == (Acknowledged(by="ack"), "ack-1")
    assert of_kind(step, Transmit) == [], "nothing is sent in reply (ACK-9)"


@pytest.mark.requirement("RM-16")
def test_a_business_response_acknowledges_as_well() -> None:
    assert of_kind(ack(outstanding(), by="response"), Note)[0].what == Acknowledged(by="response")


@pytest.mark.requirement("ACK-14")
def test_a_verified_signature_and_a_hubs_word_are_recorded() -> None:
    step = sender.ack_arrived(outstanding(), None, PLAIN, ack_id="a", signed=True, proof=Proof.HOP)
    assert of_kind(step, Note)[0].what == Acknowledged(signed=True, hop=True)


@pytest.mark.requirement("RM-14")
@pytest.mark.parametrize(
    "outgoing",
    [
        waiting(),
        sender.enter_window(waiting(), None, PLAIN, NOW).outgoing,
        replace(outstanding(), state=OutgoingState.DELIVERED),
        replace(outstanding(), state=OutgoingState.SENT),
    ],
    ids=["waiting", "not yet sent", "delivered", "best effort"],
)
def test_an_acknowledgement_out_of_place_changes_nothing(outgoing: Outgoing) -> None:
    assert ack(outgoing) == SenderStep(outgoing)


@pytest.mark.requirement("RM-2")
@pytest.mark.parametrize("state", [OutgoingState.UNKNOWN, OutgoingState.NOT_DELIVERED])
def test_a_late_acknowledgement_is_recorded_as_late(state: OutgoingState) -> None:
    step = ack(replace(outstanding(), state=state))
    assert step.outgoing.state is OutgoingState.DELIVERED
    assert step.outgoing.late
    assert of_kind(step, Note)[0].what == Acknowledged(late=True)
    assert of_kind(step, Resolve)[0].message_id == "m"


def test_the_to_partys_word_after_a_late_one_of_a_hub_is_late_too() -> None:
    taken = hop_ack(replace(outstanding(), state=OutgoingState.UNKNOWN)).outgoing
    step = ack(taken)
    assert step.outgoing.late
    assert of_kind(step, Note)[0].what == Acknowledged(late=True)


def test_an_acknowledgement_after_a_resume_is_not_late_for_an_earlier_failure() -> None:
    step = ack(replace(outstanding(), late=True))
    assert not step.outgoing.late
    assert of_kind(step, Note)[0].what == Acknowledged()


def test_an_acknowledgement_ends_a_suspension() -> None:
    stream = Stream(replace(ORDERED, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL))
    stream.enter("a")
    stream.due("a", after=TIMEOUT)
    stream.ack("a")
    assert not stream.messages["a"].late, "nobody was told that it failed"
    assert not stream.channel.suspended
    assert stream.last is not None
    assert of_kind(stream.last, Admit)
    assert stream.channel.places(stream.terms) == 4


# --- the four classes ---------------------------------------------------------------------


@pytest.mark.requirement("ERR-1")
def test_errors_have_the_four_classes_and_the_number_one() -> None:
    assert TRANSIENT.error_class is ErrorClass.TRANSIENT
    assert COMMUNICATION.error_class is ErrorClass.COMMUNICATION
    assert MESSAGING.error_class is ErrorClass.MESSAGING
    assert SEQUENCE.error_class is ErrorClass.SEQUENCE
    assert replace(SEQUENCE, location="//MessageId").error_class is ErrorClass.MESSAGING


@pytest.mark.requirement("ERR-2")
def test_a_messaging_error_is_passed_up_and_the_transfer_goes_on() -> None:
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b")
    step = stream.step("b", sender.error_arrived, ORDERED, NOW, error=MESSAGING, error_id="e")
    assert stream.state("b") is OutgoingState.NOT_DELIVERED
    assert stream.messages["b"].reason == "NotSupported at //Manifest: no such reference"
    assert notes(step)[:2] == ["rejected", "failed"]
    assert of_kind(step, Notify)[0].severity is Severity.ERROR
    assert of_kind(step, Admit), "the next message may follow"


@pytest.mark.requirement("SEQ-10", "RTY-10")
def test_an_invalid_number_leaves_the_message_to_its_timer() -> None:
    outgoing = outstanding()
    step = error(outgoing, SEQUENCE)
    assert step.outgoing == outgoing
    assert notes(step) == ["send_failed"]
    # One copy was thrown away; that says nothing of another one.
    assert "discarded" in str(of_kind(step, Note)[0].what)
    assert step.outgoing.transmitted
    again = sender.attempt_due(step.outgoing, None, PLAIN, NOW + TIMEOUT)
    assert len(of_kind(again, Transmit)) == 1


@pytest.mark.requirement("RTY-6")
def test_a_communication_error_received_as_a_message_is_worked_like_a_local_one() -> None:
    step = error(outstanding(), COMMUNICATION, NOW + SECOND)
    assert step.outgoing.next_attempt_at == NOW + SECOND + INTERVAL
    assert of_kind(step, Note)[0].what == SendFailed("unknown", "gateway down")
    wordless = error(outstanding(), replace(COMMUNICATION, description=""))
    assert of_kind(wordless, Note)[0].what == SendFailed("unknown", COMMUNICATION_CODE)


@pytest.mark.requirement("RTY-8", "ERR-4")
@pytest.mark.parametrize(
    ("named", "pause"), [(None, INTERVAL), (0, 0), (7, 7 * SECOND), (600, 600 * SECOND)]
)
def test_a_transient_error_pauses_the_whole_channel(named: int | None, pause: int) -> None:
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    transient = replace(TRANSIENT, min_retry_secs=named)
    step = stream.step("b", sender.error_arrived, ORDERED, NOW, error=transient, error_id="e")
    assert notes(step) == ["transient"]
    assert of_kind(step, Pause) == [Pause(NOW + pause)]
    assert stream.channel.paused_until == NOW + pause
    # The retry law holds beside the pause: never before the later of the two.
    assert stream.messages["b"].next_attempt_at == max(NOW + pause, NOW + TIMEOUT)
    quiet = stream.step("c", sender.attempt_due, ORDERED, NOW + min(pause, TIMEOUT) - 1)
    assert of_kind(quiet, Transmit) == []


@pytest.mark.requirement("RTY-8", "RTY-17")
@pytest.mark.parametrize("asked", [DAY // SECOND, 315_360_000, 99_999_999_999_999_999])
def test_a_pause_leaves_time_for_one_more_attempt(asked: int) -> None:
    transient = replace(TRANSIENT, min_retry_secs=asked)
    step = error(outstanding(), transient)
    last_chance = NOW + PLAIN.persist_duration - INTERVAL
    assert step.outgoing.next_attempt_at == last_chance
    [pause] = of_kind(step, Pause)
    assert pause.until == last_chance
    assert f"a pause of {asked} s" in pause.problem
    again = sender.attempt_due(step.outgoing, None, PLAIN, last_chance)
    assert len(of_kind(again, Transmit)) == 1
    # Near its end, it gets a RetryInterval at least.
    late = error(outstanding(), transient, last_chance)
    assert of_kind(late, Pause)[0].until == last_chance + INTERVAL


@pytest.mark.requirement("RTY-9")
def test_after_the_pause_every_unsettled_number_is_resent() -> None:
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    transient = replace(TRANSIENT, min_retry_secs=120)
    stream.step("b", sender.error_arrived, ORDERED, NOW, error=transient, error_id="e")
    held_back = stream.due("c", after=TIMEOUT)
    assert of_kind(held_back, Transmit) == []
    assert stream.messages["c"].next_attempt_at == NOW + 120 * SECOND
    for message_id in ("b", "c"):
        step = stream.due(message_id, after=120 * SECOND)
        assert len(of_kind(step, Transmit)) == 1


def test_a_shorter_pause_does_not_cut_a_longer_one_short() -> None:
    channel = Stream().channel.pause(NOW + 100).pause(NOW + 50)
    assert channel.paused_until == NOW + 100


@pytest.mark.requirement("RTY-8")
def test_a_transient_error_without_a_channel_delays_its_message() -> None:
    step = error(outstanding(), replace(TRANSIENT, min_retry_secs=600))
    assert step.outgoing.next_attempt_at == NOW + 600 * SECOND
    assert step.channel is None


@pytest.mark.requirement("RTY-10")
@pytest.mark.parametrize("first", [TRANSIENT, COMMUNICATION, SEQUENCE])
@pytest.mark.parametrize("second", [TRANSIENT, COMMUNICATION, SEQUENCE])
def test_another_error_during_recovery_switches_to_its_own(first: Error, second: Error) -> None:
    outgoing = error(outstanding(), first).outgoing
    outgoing = sender.attempt_due(outgoing, None, PLAIN, NOW + INTERVAL).outgoing
    step = error(outgoing, second, NOW + INTERVAL)
    assert step.outgoing.state is OutgoingState.OUTSTANDING
    assert step.outgoing.attempts == 2
    assert step.outgoing.next_attempt_at == NOW + 2 * INTERVAL
    assert ack(step.outgoing).outgoing.state is OutgoingState.DELIVERED
    assert error(step.outgoing, MESSAGING).outgoing.state is OutgoingState.NOT_DELIVERED


@pytest.mark.requirement("RTY-10", "RTY-11")
def test_errors_do_not_add_retries() -> None:
    outgoing = outstanding()
    now = NOW
    for answer in (TRANSIENT, COMMUNICATION, SEQUENCE):
        outgoing = error(outgoing, answer, now).outgoing
        assert outgoing.next_attempt_at is not None
        now = outgoing.next_attempt_at
        outgoing = sender.attempt_due(outgoing, None, PLAIN, now).outgoing
    assert outgoing.state is OutgoingState.UNKNOWN
    assert outgoing.attempts == 1 + PLAIN.retries


# --- errors out of place ------------------------------------------------------------------


@pytest.mark.parametrize("answer", [TRANSIENT, COMMUNICATION, MESSAGING, SEQUENCE])
def test_an_error_about_a_message_never_sent_changes_nothing(answer: Error) -> None:
    assert error(waiting(), answer) == SenderStep(waiting())


@pytest.mark.requirement("ERR-2", "OPS-4")
@pytest.mark.parametrize("answer", [TRANSIENT, COMMUNICATION, MESSAGING, SEQUENCE])
def test_an_error_about_a_best_effort_message_is_told_once_and_settles_nothing(
    answer: Error,
) -> None:
    """Whatever its class: it was sent once, so there is nothing to recover."""
    answer = replace(answer, severity=Severity.ERROR)
    best_effort = replace(outstanding(), state=OutgoingState.SENT, next_attempt_at=None)
    step = error(best_effort, answer)
    assert step.outgoing == replace(best_effort, reason=step.outgoing.reason)
    assert step.outgoing.reason.startswith(f"refused by its receiver: {answer.code}")
    assert not step.outgoing.notice_owed
    (note,) = of_kind(step, Note)
    assert isinstance(note.what, Rejected)
    assert (note.what.code, note.ref_to) == (answer.code, "err-1")
    assert len(of_kind(step, Notify)) == 1
    assert error(step.outgoing, answer) == SenderStep(step.outgoing)


def test_a_busy_transport_is_no_refusal_of_a_best_effort_message() -> None:
    """HTTP 503 names no message and proves nothing; a partner's own warning is journaled."""
    best_effort = replace(outstanding(), state=OutgoingState.SENT)
    busy = replace(TRANSIENT, severity=Severity.WARNING)
    step = sender.error_arrived(best_effort, None, PLAIN, NOW, error=busy, error_id="")
    assert step == SenderStep(best_effort)
    told = error(best_effort, busy)
    assert told.outgoing == best_effort
    assert isinstance(of_kind(told, Note)[0].what, Warned)


@pytest.mark.parametrize("answer", [TRANSIENT, COMMUNICATION, SEQUENCE])
@pytest.mark.parametrize(
    "state", [OutgoingState.SUSPENDED, OutgoingState.UNKNOWN, OutgoingState.DELIVERED]
)
def test_recovery_is_over_for_a_message_that_is_not_outstanding(
    state: OutgoingState, answer: Error
) -> None:
    outgoing = replace(outstanding(), state=state)
    assert error(outgoing, answer).outgoing == outgoing


WARNING = replace(MESSAGING, severity=Severity.WARNING)


@pytest.mark.requirement("ERR-10", "CPA-10", "CPA-11")
@pytest.mark.parametrize("state", list(OutgoingState))
@pytest.mark.parametrize("warning", [WARNING, replace(SEQUENCE, severity=Severity.WARNING)])
def test_a_warning_is_news_and_not_an_answer(state: OutgoingState, warning: Error) -> None:
    outgoing = replace(outstanding(), state=state)
    step = error(outgoing, warning)
    assert (step.outgoing, len(step.effects)) == (outgoing, 1)
    (note,) = of_kind(step, Note)
    assert (note.kind, note.message_id, note.ref_to) == ("warned", "m", "err-1")
    assert note.what == Warned(warning.code, warning.location, warning.description)


def test_a_warning_says_what_it_has_to_say() -> None:
    (note,) = of_kind(error(outstanding(), Error("Unknown", Severity.WARNING)), Note)
    assert note.what == Warned("Unknown")


def test_a_warning_about_what_never_left_is_none() -> None:
    assert error(waiting(), WARNING) == SenderStep(waiting())
    assert error(waiting(), MESSAGING) == SenderStep(waiting())


def test_what_acknowledges_a_message_does_not_take_that_back_with_its_warning() -> None:
    delivered = ack(outstanding()).outgoing
    failure = Error("DeliveryFailure", Severity.WARNING, "", "late")
    step = sender.warning_arrived(delivered, None, error=failure, error_id="ack-1")
    assert step.outgoing is delivered
    assert [note.kind for note in of_kind(step, Note)] == ["warned"]


@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize(
    ("attempts", "lost", "state"),
    [
        (1, 0, OutgoingState.NOT_DELIVERED),
        (2, 1, OutgoingState.NOT_DELIVERED),
        (2, 0, OutgoingState.UNKNOWN),
    ],
)
def test_a_receiver_without_an_agreement_now_says_nothing_of_an_earlier_copy(
    attempts: int, lost: int, state: OutgoingState
) -> None:
    sent = replace(outstanding(), attempts=attempts, attempts_lost=lost)
    for element in ("CPAId", "Service", "Action"):
        gone = Error("ValueNotRecognized", Severity.ERROR, f"//Header/MessageHeader/{element}")
        assert error(sent, gone).outgoing.state is state


@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize("element", ["CPAId", "TPAId", "Service", "Action"])
def test_a_refusal_stays_certain_when_the_agreement_is_gone_for_another_copy(element: str) -> None:
    refused = error(replace(outstanding(), attempts=2), MESSAGING).outgoing
    assert refused.state is OutgoingState.NOT_DELIVERED
    gone = Error("Inconsistent", Severity.ERROR, f"//Header/MessageHeader/{element}")
    assert error(refused, gone) == SenderStep(refused)


@pytest.mark.requirement("RTY-8", "RTY-10")
def test_a_pause_is_kept_although_the_message_waits_for_the_operator() -> None:
    suspended = replace(outstanding(), state=OutgoingState.SUSPENDED)
    busy = Error("TransientError", Severity.WARNING, min_retry_secs=60)
    step = error(suspended, busy)
    assert step.outgoing.state is OutgoingState.SUSPENDED
    (pause,) = of_kind(step, Pause)
    assert pause.until == NOW + 60 * SECOND


def test_a_second_refusal_says_nothing_new() -> None:
    refused = error(outstanding(), MESSAGING).outgoing
    assert error(refused, MESSAGING) == SenderStep(refused)


@pytest.mark.parametrize("state", [OutgoingState.SUSPENDED, OutgoingState.UNKNOWN])
def test_a_refusal_settles_what_was_open_and_closes_its_incident(state: OutgoingState) -> None:
    step = error(replace(outstanding(), state=state), MESSAGING)
    assert step.outgoing.state is OutgoingState.NOT_DELIVERED
    assert of_kind(step, Resolve)[0].message_id == "m"


def test_a_refusal_of_the_message_that_suspended_its_channel_lifts_the_suspension() -> None:
    terms = replace(STOP_AND_WAIT, retries=0, on_exhausted=OnExhausted.SUSPEND_CHANNEL)
    stream = Stream(terms)
    stream.enter("a")
    stream.due("a", after=TIMEOUT)
    stream.step("a", sender.error_arrived, terms, stream.now, error=MESSAGING, error_id="e")
    assert not stream.channel.suspended
    stream.enter("b")
    assert stream.number("b") == 1


def test_a_refusal_after_the_number_was_given_up_ends_no_other_epoch() -> None:
    stream = Stream(replace(ORDERED, retries=0))
    stream.enter("a")
    stream.due("a", after=TIMEOUT)
    stream.enter("b")
    assert stream.channel.epoch == 2
    stream.step("a", sender.error_arrived, stream.terms, stream.now, error=MESSAGING, error_id="e")
    assert stream.state("a") is OutgoingState.NOT_DELIVERED
    assert stream.channel.phase is not Phase.ENDING
    assert stream.under_way == [0]


# --- an intermediary takes its acknowledgement back ---------------------------------------


@pytest.mark.requirement("HOP-9")
@pytest.mark.parametrize(
    ("severity", "state"),
    [
        (Severity.ERROR, OutgoingState.NOT_DELIVERED),
        (Severity.WARNING, OutgoingState.UNKNOWN),
    ],
)
def test_a_delivery_failure_overrules_a_hubs_acknowledgement(
    severity: Severity, state: OutgoingState
) -> None:
    delivered = hop_ack(outstanding()).outgoing
    step = error(delivered, Error("DeliveryFailure", severity, "", "next hop is gone"))
    assert step.outgoing.state is state
    assert step.outgoing.notice_owed
    assert step.outgoing.proved_by is None
    assert of_kind(step, Notify)[0].severity is severity


@pytest.mark.requirement("HOP-9")
def test_a_number_that_was_lost_on_the_way_ends_its_epoch() -> None:
    # Its receiver may wait for it; messages of an epoch before are none of its business.
    stream = Stream()
    for message_id in ("a", "b"):
        stream.enter(message_id)
        stream.step(message_id, sender.ack_arrived, ORDERED, ack_id="ack", proof=Proof.HOP)
    failure = Error("DeliveryFailure", Severity.ERROR, "", "next hop is gone")
    step = stream.step("b", sender.error_arrived, ORDERED, NOW, error=failure, error_id="e")
    assert stream.channel.phase is Phase.ENDING
    assert "epoch_ended" in notes(step)
    stream.enter("c")
    assert (stream.number("c"), stream.channel.epoch) == (0, 2)
    stream.step("a", sender.error_arrived, ORDERED, NOW, error=failure, error_id="e")
    assert stream.channel.phase is not Phase.ENDING


FAILURE = Error("DeliveryFailure", Severity.ERROR, "", "next hop is gone")


@pytest.mark.requirement("HOP-9", "ERR-5")
@pytest.mark.parametrize("severity", list(Severity))
def test_nobody_takes_back_what_the_to_party_itself_acknowledged(severity: Severity) -> None:
    delivered = ack(outstanding()).outgoing
    assert delivered.proved_by is Proof.TO_PARTY
    step = error(delivered, replace(FAILURE, severity=severity))
    assert step.outgoing == delivered
    (note,) = of_kind(step, Note)
    assert (note.kind, note.message_id, note.ref_to) == ("ignored", "m", "err-1")
    assert isinstance(note.what, Ignored)
    assert "the To Party itself has acknowledged it" in str(note.what.problem)
    assert len(step.effects) == 1


@pytest.mark.requirement("HOP-8", "HOP-9")
def test_the_to_partys_own_acknowledgement_makes_a_hubs_final() -> None:
    by_hub = hop_ack(outstanding()).outgoing
    assert by_hub.proved_by is Proof.HOP
    assert hop_ack(by_hub) == SenderStep(by_hub), "a second one of a hub says nothing new"
    step = ack(by_hub)
    assert step.outgoing == replace(by_hub, proved_by=Proof.TO_PARTY)
    assert [note.kind for note in of_kind(step, Note)] == ["acknowledged"]
    assert ack(step.outgoing) == SenderStep(step.outgoing)
    assert error(step.outgoing, FAILURE).outgoing == step.outgoing


@pytest.mark.requirement("HOP-8", "HOP-9")
def test_a_hubs_word_after_its_failure_means_what_it_means_before_it() -> None:
    # The report overtook the acknowledgement, or a copy was answered with the stored one.
    warned = error(outstanding(), replace(FAILURE, severity=Severity.WARNING)).outgoing
    assert (warned.state, warned.taken_back) == (OutgoingState.OUTSTANDING, True)
    step = hop_ack(warned)
    assert step.outgoing.state is OutgoingState.UNKNOWN
    assert step.outgoing.notice_owed
    assert [note.kind for note in of_kind(step, Note)] == ["rejected", "failed"]
    assert of_kind(step, Notify)[0].severity is Severity.WARNING
    assert ack(step.outgoing).outgoing.state is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-9")
@pytest.mark.parametrize("before", ["under way", "acknowledged"])
@pytest.mark.parametrize("severity", list(Severity))
def test_no_hub_settles_what_it_has_taken_back(before: str, severity: Severity) -> None:
    sent = outstanding() if before == "under way" else hop_ack(outstanding()).outgoing
    failed = error(sent, replace(FAILURE, severity=severity)).outgoing
    failed = hop_ack(failed).outgoing if failed.state is OutgoingState.OUTSTANDING else failed
    step = hop_ack(failed)
    assert step.outgoing == failed, "nor is the notice withdrawn that is owed"
    assert failed.notice_owed
    assert [note.kind for note in of_kind(step, Note)] == ["ignored"]
    resumed = sender.resume(failed, None, PLAIN, NOW).outgoing
    assert hop_ack(resumed).outgoing.state is OutgoingState.UNKNOWN


def test_other_warnings_leave_a_hubs_acknowledgement_what_it_is() -> None:
    warned = error(outstanding(), Error("Inconsistent", Severity.WARNING)).outgoing
    assert hop_ack(warned).outgoing.state is OutgoingState.DELIVERED


def test_an_outcome_that_a_trusted_product_reported_can_be_taken_back() -> None:
    terms = replace(PLAIN, method=ReliableMessagingMethod.TRANSPORT)
    step = sender.transmission_ended(outstanding(terms), None, terms)
    assert step.outgoing.proved_by is Proof.HOP


def test_a_failure_that_is_none_any_more_is_not_told() -> None:
    failed = sender.abandon(outstanding(), None, PLAIN).outgoing
    assert (failed.notice_owed, failed.failures) == (True, 1)
    assert not ack(failed).outgoing.notice_owed
    resumed = sender.resume(failed, None, PLAIN, NOW).outgoing
    assert (resumed.notice_owed, resumed.failures) == (False, 1)
    assert sender.abandon(resumed, None, PLAIN).outgoing.failures == 2


def test_no_other_error_takes_an_acknowledgement_back() -> None:
    delivered = ack(outstanding()).outgoing
    assert error(delivered, MESSAGING) == SenderStep(delivered)


def test_an_error_without_words_is_named_by_its_code() -> None:
    step = error(outstanding(), Error("Unknown"), NOW + DAY // 2)
    assert step.outgoing.reason == "Unknown"
