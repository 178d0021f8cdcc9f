"""What an intermediary does with a message that is not for itself."""

import pytest
from msgspec.structs import replace

from oncewire.message.envelope import (
    AckRequested,
    Actor,
    DeliverySemantics,
    ErrorClass,
    MessageKind,
    Severity,
)
from oncewire.message.form import AckRequest, SyncReplyMode
from oncewire.message.instant import SECOND
from oncewire.protocol.hops import (
    HopAnswer,
    HopDuty,
    answer_previous,
    awaits_onward,
    hop_duty,
    owes_failure_notice,
)
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import ASYNCHRONOUS, SyncPlan, onward_patience, relay_patience
from oncewire.protocol.terms import HopMode
from tests.protocol.samples import PLAIN, hop, message, outstanding


@pytest.mark.requirement("HOP-7", "HOP-8")
@pytest.mark.parametrize(
    ("mode", "duty"),
    [
        (HopMode.STORE_AND_FORWARD, HopDuty.RESPONSIBLE),
        (HopMode.TRANSIENT_UNTIL_FORWARDED, HopDuty.UNTIL_FORWARDED),
        (HopMode.TRANSPARENT, HopDuty.PROXY),
        (HopMode.BY_REQUEST, HopDuty.PROXY),
    ],
)
def test_the_duty_follows_the_hop_mode(mode: HopMode, duty: HopDuty) -> None:
    assert hop_duty(message(routing=(hop(),)), replace(PLAIN, hop_mode=mode)) is duty


@pytest.mark.requirement("HOP-6", "HOP-10")
@pytest.mark.parametrize("asked", [AckRequest.SIGNED, AckRequest.UNSIGNED])
def test_by_request_the_hub_is_responsible_exactly_when_asked(asked: AckRequest) -> None:
    terms = replace(PLAIN, hop_mode=HopMode.BY_REQUEST)
    asking = message(routing=(hop(ack_requested=asked),))
    assert hop_duty(asking, terms) is HopDuty.RESPONSIBLE
    in_ebms2 = message(ack_requested=(AckRequested(Actor.NEXT_MSH),))
    assert hop_duty(in_ebms2, terms) is HopDuty.RESPONSIBLE
    of_the_end = message(ack_requested=(AckRequested(Actor.TO_PARTY_MSH),))
    assert hop_duty(of_the_end, terms) is HopDuty.PROXY


@pytest.mark.parametrize("mode", list(HopMode))
def test_signals_and_best_effort_are_passed_on_and_forgotten(mode: HopMode) -> None:
    terms = replace(PLAIN, hop_mode=mode)
    assert hop_duty(message(MessageKind.ACKNOWLEDGMENT), terms) is HopDuty.PROXY
    assert hop_duty(message(semantics=DeliverySemantics.BEST_EFFORT), terms) is HopDuty.PROXY


@pytest.mark.requirement("ERR-8", "HOP-8")
def test_a_failure_notice_is_as_reliable_as_the_message_it_speaks_of() -> None:
    assert hop_duty(message(MessageKind.ERROR), PLAIN) is HopDuty.RESPONSIBLE


@pytest.mark.requirement("HOP-1", "HOP-8")
def test_a_responsible_hub_acknowledges_at_once_and_a_proxy_never() -> None:
    assert answer_previous(HopDuty.RESPONSIBLE, None, PLAIN) == HopAnswer(True)
    assert answer_previous(HopDuty.PROXY, None, PLAIN) == HopAnswer(False)


@pytest.mark.requirement("HOP-4")
@pytest.mark.parametrize(
    "state", [None, OutgoingState.WAITING, OutgoingState.OUTSTANDING, OutgoingState.UNKNOWN]
)
def test_until_forwarded_the_previous_sender_waits(state: OutgoingState | None) -> None:
    onward = None if state is None else replace(outstanding(), state=state)
    answer = answer_previous(HopDuty.UNTIL_FORWARDED, onward, PLAIN)
    assert not answer.acknowledge
    assert answer.error is not None
    assert answer.error.error_class is ErrorClass.TRANSIENT
    assert answer.error.min_retry_secs == PLAIN.retry_interval // SECOND


@pytest.mark.requirement("ERR-4", "HOP-4")
def test_the_pause_is_at_least_a_second() -> None:
    hasty = replace(PLAIN, retry_interval=0)
    answer = answer_previous(HopDuty.UNTIL_FORWARDED, None, hasty)
    assert answer.error is not None
    assert answer.error.min_retry_secs == 1


@pytest.mark.requirement("HOP-4")
def test_then_an_acknowledgement_means_that_the_next_handler_has_it() -> None:
    delivered = replace(outstanding(), state=OutgoingState.DELIVERED)
    assert answer_previous(HopDuty.UNTIL_FORWARDED, delivered, PLAIN) == HopAnswer(True)


@pytest.mark.requirement("HOP-9", "ERR-5")
def test_a_refusal_further_on_is_passed_back() -> None:
    refused = replace(outstanding(), state=OutgoingState.NOT_DELIVERED, reason="no such party")
    answer = answer_previous(HopDuty.UNTIL_FORWARDED, refused, PLAIN)
    assert not answer.acknowledge
    assert answer.error is not None
    assert (answer.error.code, answer.error.severity) == ("DeliveryFailure", Severity.ERROR)
    assert answer.error.description == "no such party"


@pytest.mark.requirement("ERR-5", "HOP-9")
def test_only_the_failure_of_a_reliable_business_message_is_reported() -> None:
    assert owes_failure_notice(MessageKind.NORMAL, reliable=True)
    assert not owes_failure_notice(MessageKind.NORMAL, reliable=False)
    for kind in MessageKind:
        if kind is not MessageKind.NORMAL:
            assert not owes_failure_notice(kind, reliable=True), "no notice about a notice"


@pytest.mark.requirement("SYNC-11", "SYNC-16")
@pytest.mark.parametrize("duty", list(HopDuty))
@pytest.mark.parametrize("mode", list(SyncReplyMode))
def test_who_keeps_the_connection_of_a_request(duty: HopDuty, mode: SyncReplyMode) -> None:
    plain = message(routing=(hop(),))
    far = message(routing=(hop(),), ack_requested=(AckRequested(Actor.TO_PARTY_MSH),))
    plan = SyncPlan(mode)
    assert not awaits_onward(far, duty, ASYNCHRONOUS)
    if duty is not HopDuty.RESPONSIBLE:
        assert awaits_onward(plain, duty, plan) is plan.signals
        return
    # Its own acknowledgement needs nobody else.
    assert awaits_onward(plain, duty, plan) is plan.response
    assert awaits_onward(far, duty, plan) is plan.signals


@pytest.mark.requirement("SYNC-17")
@pytest.mark.parametrize("inner", [1, 20, 30, 300])
def test_the_inner_exchange_ends_before_the_outer_one(inner: int) -> None:
    """The drafts leave open how the time-outs of hops align (gap 11)."""
    outer = replace(PLAIN, sync_timeout=30 * SECOND)
    onward = onward_patience(outer, replace(PLAIN, sync_timeout=inner * SECOND))
    assert onward <= inner * SECOND
    assert onward < relay_patience(outer) < outer.sync_timeout
