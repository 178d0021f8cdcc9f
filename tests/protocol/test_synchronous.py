"""What comes back on the connection that brought the request, and what is refused."""

import pytest
from msgspec.structs import replace

from oncewire.errors import Inconsistent
from oncewire.message.envelope import ErrorClass, Message, Severity
from oncewire.message.form import SyncReplyMode
from oncewire.message.instant import SECOND
from oncewire.protocol import sender
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState, OutgoingState
from oncewire.protocol.synchronous import (
    ASYNCHRONOUS,
    SyncPlan,
    answerable_after_restart,
    awaits_response,
    concatenates,
    holds_connection,
    ignored_wish,
    late_warning,
    patience,
    plan_reply,
    timeout_error,
    unreachable_error,
)
from oncewire.protocol.terms import AckBundling, SyncBundle, SyncRetries, Terms
from tests.protocol.samples import NOW, PLAIN, hop, message, outstanding

WISHES = [mode for mode in SyncReplyMode if mode is not SyncReplyMode.NONE]
AGREED = replace(PLAIN, sync_mode=SyncReplyMode.SIGNALS_AND_RESPONSE)
DRAFT = replace(AGREED, sync_retries=SyncRetries.NONE)
"""The sync paper: no retries, and a response alone excludes acknowledgements."""


def plan(
    one: Message,
    terms: Terms = AGREED,
    *,
    can_answer: bool = True,
    final: bool = True,
    ack_owed: bool = True,
) -> SyncPlan:
    return plan_reply(one, terms, can_answer=can_answer, final=final, ack_owed=ack_owed)


def wishing(mode: SyncReplyMode | None, **changes: object) -> Message:
    return message(sync_reply=mode, **changes)


@pytest.mark.requirement("SYNC-9", "CPA-1", "CPA-17")
@pytest.mark.parametrize("mode", WISHES)
def test_the_wish_stands_in_the_header(mode: SyncReplyMode) -> None:
    assert plan(wishing(mode)).mode is mode


@pytest.mark.parametrize("mode", [None, SyncReplyMode.NONE])
def test_without_a_wish_the_reply_comes_on_its_own(mode: SyncReplyMode | None) -> None:
    assert plan(wishing(mode)) is ASYNCHRONOUS


@pytest.mark.requirement("SYNC-3", "SYNC-5", "SYNC-6", "SYNC-2")
@pytest.mark.parametrize(
    ("mode", "signals", "response"),
    [
        (SyncReplyMode.NONE, False, False),
        (SyncReplyMode.MSH_SIGNALS_ONLY, True, False),
        (SyncReplyMode.SIGNALS_ONLY, True, False),
        (SyncReplyMode.RESPONSE_ONLY, True, True),
        (SyncReplyMode.SIGNALS_AND_RESPONSE, True, True),
    ],
)
def test_what_each_mode_brings_back(mode: SyncReplyMode, signals: bool, response: bool) -> None:
    assert (SyncPlan(mode).signals, SyncPlan(mode).response) == (signals, response)


@pytest.mark.requirement("SYNC-1", "CPA-8")
def test_as_agreed_means_the_agreements_mode() -> None:
    asking = message(sync_reply_as_agreed=True)
    assert plan(asking).mode is SyncReplyMode.SIGNALS_AND_RESPONSE
    with pytest.raises(Inconsistent, match="the agreement has none"):
        plan(asking, PLAIN)


@pytest.mark.requirement("SYNC-13")
def test_a_wish_the_agreement_does_not_provide_for_is_refused() -> None:
    with pytest.raises(Inconsistent, match="the agreement has none") as caught:
        plan(wishing(SyncReplyMode.MSH_SIGNALS_ONLY), PLAIN)
    assert caught.value.location == "//SyncReply"


@pytest.mark.requirement("SYNC-14")
def test_only_the_opening_message_may_ask() -> None:
    with pytest.raises(Inconsistent, match="opens a conversation"):
        plan(wishing(SyncReplyMode.RESPONSE_ONLY, ref_to_message_id="earlier"))


@pytest.mark.requirement("SYNC-19")
def test_an_error_uri_is_invalid_in_a_synchronous_exchange() -> None:
    asking = wishing(
        SyncReplyMode.MSH_SIGNALS_ONLY, routing=(hop(error_uri="http://errors.example"),)
    )
    with pytest.raises(Inconsistent, match="ErrorURI"):
        plan(asking)


@pytest.mark.requirement("SYNC-4")
def test_a_response_alone_is_refused_when_an_acknowledgement_is_due() -> None:
    asking = wishing(SyncReplyMode.RESPONSE_ONLY)
    with pytest.raises(Inconsistent, match="an acknowledgement is due"):
        plan(asking, DRAFT)
    with pytest.raises(Inconsistent, match="an acknowledgement is due"):
        plan(asking, replace(AGREED, ack_bundling=AckBundling.STANDALONE))
    assert plan(asking, DRAFT, ack_owed=False).response


@pytest.mark.requirement("SYNC-7", "ACK-16")
def test_where_the_acknowledgement_rides_on_the_response_both_come() -> None:
    assert plan(wishing(SyncReplyMode.RESPONSE_ONLY), AGREED).response


@pytest.mark.requirement("SYNC-10")
def test_a_transport_that_cannot_answer_makes_it_a_warning() -> None:
    ignored = plan(wishing(SyncReplyMode.SIGNALS_AND_RESPONSE), can_answer=False)
    assert ignored.mode is SyncReplyMode.NONE
    assert ignored.warning is not None
    assert ignored.warning.severity is Severity.WARNING


@pytest.mark.requirement("SYNC-10")
def test_the_response_to_a_wish_that_was_ignored_carries_the_warning() -> None:
    asking = wishing(SyncReplyMode.SIGNALS_AND_RESPONSE)
    ignored = plan(asking, can_answer=False)
    kept = replace(AGREED, sync_mode=SyncReplyMode.NONE)
    assert ignored_wish(asking, kept) == ignored.warning
    assert ignored_wish(message(sync_reply_as_agreed=True), kept) == ignored.warning
    assert ignored_wish(asking, AGREED) is None
    assert ignored_wish(message(), kept) is None


ANY, ALONE = list(AckBundling), AckBundling.STANDALONE


@pytest.mark.requirement("SYNC-3", "SYNC-5", "SYNC-8")
@pytest.mark.parametrize("bundling", ANY)
@pytest.mark.parametrize("called", [True, False])
def test_a_connection_waits_for_an_application_that_is_called_or_must_answer_first(
    bundling: AckBundling, called: bool
) -> None:
    terms = replace(AGREED, ack_bundling=bundling)

    def waits(mode: SyncReplyMode, terms: Terms = terms, *, owed: bool = True) -> bool:
        return holds_connection(SyncPlan(mode), terms, ack_owed=owed, called=called)

    both, alone = SyncReplyMode.SIGNALS_AND_RESPONSE, bundling is ALONE
    due = called or bundling is AckBundling.PIGGYBACK
    assert waits(both) is (due and not alone)
    # Where they share a body, or no acknowledgement is owed, nothing speaks against waiting.
    assert waits(both, replace(terms, sync_bundle=SyncBundle.CONCATENATED)) is due
    assert waits(both, owed=False) is due
    assert not waits(SyncReplyMode.MSH_SIGNALS_ONLY)


@pytest.mark.requirement("SYNC-8")
@pytest.mark.parametrize("bundle", list(SyncBundle))
def test_two_replies_share_a_body_where_that_is_agreed(bundle: SyncBundle) -> None:
    together = concatenates(replace(AGREED, sync_bundle=bundle))
    assert together is (bundle is SyncBundle.CONCATENATED)


@pytest.mark.requirement("SYNC-11", "SYNC-16")
def test_an_intermediary_honours_the_wish_whatever_the_end_parties_agreed() -> None:
    asking = wishing(SyncReplyMode.SIGNALS_AND_RESPONSE)
    assert plan(asking, PLAIN, final=False).mode is SyncReplyMode.SIGNALS_AND_RESPONSE
    assert plan(asking, PLAIN, final=False, can_answer=False) is ASYNCHRONOUS


@pytest.mark.requirement("SYNC-12")
def test_errors_come_back_on_the_connection_too() -> None:
    assert plan(wishing(SyncReplyMode.RESPONSE_ONLY), ack_owed=False).signals


@pytest.mark.requirement("SYNC-17")
def test_a_connection_that_runs_out_says_so_and_claims_no_more() -> None:
    error = timeout_error()
    assert "communication protocol time-out" in error.description
    assert error.error_class is ErrorClass.MESSAGING
    # The request may well have been delivered: its sender must not be told otherwise (S5).
    outgoing = outstanding(DRAFT)
    step = sender.error_arrived(outgoing, None, DRAFT, NOW, error=error, error_id="e")
    assert step.outgoing.state is OutgoingState.UNKNOWN
    # Where it is repeated, another attempt may still bring the answer.
    again = sender.error_arrived(outgoing, None, AGREED, NOW, error=error, error_id="e")
    assert again.outgoing.state is OutgoingState.OUTSTANDING
    end = sender.attempt_due(outgoing, None, DRAFT, NOW + DRAFT.timeout)
    assert end.outgoing.state is OutgoingState.UNKNOWN


@pytest.mark.requirement("SYNC-18")
def test_after_a_restart_only_a_request_that_is_repeated_can_be_answered() -> None:
    assert answerable_after_restart(AGREED)
    assert not answerable_after_restart(DRAFT)


@pytest.mark.requirement("SYNC-3", "SYNC-5")
@pytest.mark.parametrize("mode", SyncReplyMode)
def test_a_connection_waits_only_where_the_response_comes_back_on_it(mode: SyncReplyMode) -> None:
    terms = replace(PLAIN, sync_mode=mode)
    assert awaits_response(terms) is SyncPlan(mode).response


@pytest.mark.requirement("SYNC-17")
def test_the_reply_that_there_is_none_has_time_to_travel() -> None:
    terms = replace(AGREED, sync_timeout=30 * SECOND)
    assert patience(terms) == 24 * SECOND


@pytest.mark.requirement("SYNC-18")
@pytest.mark.parametrize("handed_over", [False, True])
def test_a_request_that_nobody_can_answer_is_closed(handed_over: bool) -> None:
    request = Incoming("urn:a", "m", "digest", "terms", NOW).moved(
        IncomingEvent.ARRIVED, IncomingState.READY
    )
    if handed_over:
        request = request.handed_over(NOW + SECOND)
    assert request.closed() == replace(request, state=IncomingState.CLOSED, lease_until=None)


@pytest.mark.requirement("SYNC-17")
def test_a_late_response_is_no_failure_of_what_is_acknowledged() -> None:
    warning = late_warning()
    assert "communication protocol time-out" in warning.description
    assert (warning.severity, warning.code) == (Severity.WARNING, "Unknown")


def test_a_hub_that_reached_nobody_warns_and_says_why() -> None:
    warning = unreachable_error("the connection was refused")
    assert (warning.severity, warning.code) == (Severity.WARNING, "DeliveryFailure")
    assert warning.description.endswith("the connection was refused")
