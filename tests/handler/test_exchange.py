"""One message between two handlers: stored, sent, acknowledged, handed over, once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.errors import InvalidValue, NotAllowed, NotHere, StoreFull, UnknownMessage
from oncewire.handler.actions import Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import Network

SYNC = '[sync]\nmode = "mshSignalsOnly"\n'
RETRIES = 3
FEW = f'[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = {RETRIES}\n'
OTHER = Submission(
    "alpha-beta", Service("urn:test:orders"), "Other", (Payload.of("x", "text/plain", b"x"),)
)
PROFILES = ("ebms2", "ms-0.9x", "ms-0.9x-typed", "rm-0.78", "window", "digikoppeling-osb-rm")


@pytest.mark.requirement("RM-1", "RM-3", "RM-11", "RM-12")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_message_is_delivered_once_under_every_profile(profile: str) -> None:
    pair = Network.pair(profile)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    # The acknowledgement came before the application had the message: it proves storage only.
    assert "confirmed" not in pair.kinds("beta")
    assert pair.take() == [sent.message_id]
    assert pair.take() == []
    assert pair.verify().clean


@pytest.mark.requirement("RM-13")
def test_nothing_leaves_before_the_commit() -> None:
    pair = Network.pair()
    pair.alpha.context.store.fail_next_commit(StoreFull("full"))  # type: ignore[attr-defined]
    with pytest.raises(StoreFull):
        pair.send()
    assert pair.kinds("beta") == ["started"]
    assert pair.alpha.commit() == []
    with pair.alpha.context.store.transition() as tx:
        assert tx.outgoing("order-1@alpha") is None


@pytest.mark.requirement("DUP-10", "RTY-3", "RTY-7", "ACK-1")
@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("losses", range(RETRIES + 2))
def test_the_acknowledgement_lost_k_times(losses: int, sync: bool) -> None:
    """Delivered once each time; every answer has the very bytes of the first."""
    pair = Network.pair(
        "ebms2", FEW + (SYNC if sync else ""), lose_answer=lambda count: count <= losses
    )
    sent = pair.send()
    for _ in range(RETRIES + 2):
        pair.pass_time()
    assert pair.take() == [sent.message_id]
    assert len(set(pair.answers)) == 1
    if losses <= RETRIES:
        assert pair.state(sent.message_id) is OutgoingState.DELIVERED
        assert len(pair.answers) == losses + 1
        assert not pair.notices
    else:
        # Transmitted, never acknowledged: unknown, and somebody was told. Never "failed".
        assert pair.state(sent.message_id) is OutgoingState.UNKNOWN
        assert [notice.severity.value for notice in pair.notices] == ["Warning"]
    assert pair.verify().clean


@pytest.mark.requirement("DUP-2", "DUP-5", "DUP-8")
def test_many_copies_of_one_message_give_one_delivery_and_equal_answers() -> None:
    pair = Network.pair("ebms2", SYNC)
    pair.lose_request = lambda post: True
    sent = pair.send()
    parcel = pair.sent(sent.message_id)
    # All of them arrive before any commit, as copies on parallel connections do.
    source = Source("http", can_answer=True)
    answers = [pair.beta.receive(parcel, source) for _ in range(20)]
    pair.settle("beta")
    assert len({answer.parcel for answer in answers}) == 1
    assert pair.take() == [sent.message_id]
    assert pair.kinds("beta").count("received") == 1
    assert pair.kinds("beta").count("duplicate") == 19


@pytest.mark.requirement("DUP-1")
def test_a_known_id_with_other_content_is_an_error_not_a_copy() -> None:
    pair = Network.pair("ebms2", SYNC)
    pair.send()
    parcel = pair.sent("order-1@alpha")
    forged = codec.Parcel(parcel.content_type, parcel.body.replace(b"order 1", b"order 9"))
    answer = pair.deliver("beta", forged)
    assert answer.parcel is not None
    refusal = codec.read(whole_parcel(pair.beta.context, answer.parcel)).message
    assert refusal.error_list is not None
    assert refusal.error_list.errors[0].code == "Inconsistent"
    assert pair.take() == ["order-1@alpha"]


@pytest.mark.requirement("RTY-13", "RTY-12", "OPS-1")
def test_a_suspended_channel_resumes_with_a_fresh_counter() -> None:
    pair = Network.pair("window", FEW, lose_request=lambda post: post.attempt <= RETRIES + 1)
    sent = pair.send()
    for _ in range(RETRIES + 2):
        pair.pass_time()
    assert pair.state(sent.message_id) is OutgoingState.SUSPENDED
    (incident,) = pair.incidents()
    assert incident.channel is not None
    pair.alpha.resume(channel=incident.channel)
    pair.settle("alpha")
    pair.pass_time(SECOND)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.incidents() == []
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_an_abandoned_number_restarts_the_stream() -> None:
    pair = Network.pair("window", FEW, lose_request=lambda post: True)
    first = pair.send(1)
    second = pair.send(2)
    pair.alpha.abandon(first.message_id)
    pair.lose_request = lambda post: False
    pair.settle("alpha")
    pair.pass_time()
    assert pair.take() == [second.message_id]
    assert pair.state(first.message_id) is OutgoingState.UNKNOWN
    assert [notice.message_id for notice in pair.notices] == [first.message_id]
    assert pair.verify().clean


@pytest.mark.requirement("RTY-17")
def test_past_persist_duration_nothing_is_resent() -> None:
    pair = Network.pair("ebms2", FEW, lose_request=lambda post: True)
    sent = pair.send()
    for _ in range(RETRIES + 2):
        pair.pass_time()
    assert pair.state(sent.message_id) is OutgoingState.UNKNOWN
    pair.pass_time(2 * DAY)
    with pytest.raises(NotAllowed) as refused:
        pair.alpha.resume(message_id=sent.message_id)
    assert "new message" in str(refused.value)


def test_a_repeated_submission_is_the_same_message() -> None:
    pair = Network.pair()
    assert not pair.send(1).repeated
    assert pair.send(1).repeated
    assert pair.take() == ["order-1@alpha"]
    pair.alpha.context.store.commit()
    with pytest.raises(InvalidValue):
        pair.alpha.submit(replace(OTHER, message_id="order-1@alpha"))


def test_unknown_agreements_and_messages_are_named() -> None:
    pair = Network.pair()
    with pytest.raises(NotHere):
        pair.alpha.submit(replace(OTHER, cpa_id="nobody"))
    with pytest.raises(UnknownMessage):
        pair.alpha.resume(message_id="nothing")
    with pytest.raises(NotHere):
        pair.alpha.pause("no>channel", "why not")
    with pytest.raises(UnknownMessage):
        pair.beta.confirm("urn:test:alpha", "nothing")
