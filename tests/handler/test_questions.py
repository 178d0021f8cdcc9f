"""Ping and status between two of our handlers: asked, answered, and what the answer settles."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.errors import InvalidValue, NotHere, TransportProblem, UnknownMessage
from oncewire.handler.actions import Ponged, PostAnswer
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import MessageKind, MessageStatus
from oncewire.message.instant import DAY
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import Network
from tests.handler.running import free_port, order, serving
from tests.handler.test_exchange import FEW

ASKING = ("ebms2", "ms-0.9x", "window", "phinms", "nhs-async-reliable", "digikoppeling-osb-rm")


@pytest.mark.parametrize("profile", ASKING)
def test_a_ping_is_answered(profile: str) -> None:
    pair = Network.pair(profile)
    ping_id = pair.alpha.ping("alpha-beta")
    pair.settle("alpha")
    assert pair.ponged == [Ponged(ping_id)]
    assert not pair.alpha.context.state.pings
    # Neither side took it for a message.
    assert set(pair.kinds("alpha")) == set(pair.kinds("beta")) == {"started"}


MODES = ("none", "mshSignalsOnly", "signalsOnly", "responseOnly", "signalsAndResponse")


@pytest.mark.requirement("OPS-2", "SYNC-18")
@pytest.mark.parametrize("word", [MessageStatus.RECEIVED, MessageStatus.PROCESSED])
def test_received_settles_no_request_that_its_response_answers(word: MessageStatus) -> None:
    """Its application is not given it any more once the request was answered with a time-out."""
    sync = '[sync]\nmode = "signalsAndResponse"\nretries = "none"\n'
    pair = Network.pair("ebms2", sync, lose_answer=lambda count: True)
    sent = pair.send()
    if word is MessageStatus.PROCESSED:
        assert pair.take() == [sent.message_id]
    pair.alpha.ask_status(sent.message_id)
    (post,) = [action for action in pair.alpha.commit() if isinstance(action, PostAnswer)]
    answer = pair.deliver("beta", whole_parcel(pair.alpha.context, post.parcel))
    assert answer.parcel is not None
    told = whole_parcel(pair.beta.context, answer.parcel)
    response = codec.read(told).message.status_response
    assert response is not None
    assert response.status is word
    pair.deliver("alpha", told)
    settled = pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert settled is (word is MessageStatus.PROCESSED)


@pytest.mark.requirement("OPS-2")
@pytest.mark.parametrize("question", [MessageKind.PING, MessageKind.STATUS_REQUEST])
@pytest.mark.parametrize("mode", MODES)
def test_where_the_channel_is_synchronous_the_answer_comes_on_the_connection(
    question: MessageKind, mode: str
) -> None:
    """Handlers of other makers write no SyncReply into a Ping, and wait where they asked."""
    pair = Network.pair("ebms2", f'[sync]\nmode = "{mode}"\n', lose_answer=lambda count: True)
    if question is MessageKind.PING:
        pair.alpha.ping("alpha-beta")
    else:
        sent = pair.send()
        pair.alpha.ask_status(sent.message_id)
    (post,) = [action for action in pair.alpha.commit() if isinstance(action, PostAnswer)]
    parcel = whole_parcel(pair.alpha.context, post.parcel)
    asked = codec.read(parcel).message
    assert (asked.kind, asked.header.sync_reply_as_agreed) == (question, False)
    answer = pair.deliver("beta", parcel)
    if mode == "none":
        assert (answer.status, answer.parcel) == (204, None)
        return
    assert answer.status == 200
    assert answer.parcel is not None
    told = codec.read(whole_parcel(pair.beta.context, answer.parcel)).message
    pairs = {
        MessageKind.PING: MessageKind.PONG,
        MessageKind.STATUS_REQUEST: MessageKind.STATUS_RESPONSE,
    }
    assert told.kind is pairs[question]
    assert told.header.ref_to_message_id == asked.header.message_id


def test_a_pong_to_no_ping_of_ours_says_nothing() -> None:
    pair = Network.pair()
    pair.alpha.ping("alpha-beta")
    pair.alpha.context.state.pings.clear()
    pair.settle("alpha")
    assert pair.ponged == []


def test_a_ping_under_no_agreement_is_refused() -> None:
    with pytest.raises(NotHere):
        Network.pair().alpha.ping("nobody")


@pytest.mark.requirement("OPS-2")
@pytest.mark.parametrize("profile", ASKING)
def test_a_status_that_says_received_settles_the_message(profile: str) -> None:
    """The acknowledgement was lost; the receiver's word that it has it is as good."""
    pair = Network.pair(profile, lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_a_message_that_never_arrived_stays_unsettled() -> None:
    pair = Network.pair(lose_request=lambda post: True)
    sent = pair.send()
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    with pytest.raises(UnknownMessage):
        pair.alpha.ask_status("nothing")


def test_a_refused_message_is_not_reported_as_received() -> None:
    """The error was lost; a status that says Received would turn a refusal into a delivery."""
    pair = Network.pair(extra=FEW, lose_answer=lambda count: count == 1)
    world = pair.beta.context.world
    world.time += DAY  # type: ignore[attr-defined]
    sent = pair.send(time_to_live=1)
    assert "refused" in pair.kinds("beta")
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    assert pair.take() == []


def test_where_no_question_exists_the_timers_still_run() -> None:
    """v0-078 has no status request: what is past persistDuration is unknown, and told."""
    pair = Network.pair("rm-0.78", FEW, lose_answer=lambda count: True)
    sent = pair.send()
    for _ in range(6):
        pair.pass_time()
    pair.pass_time(2 * DAY)
    assert pair.state(sent.message_id) is OutgoingState.UNKNOWN
    assert [notice.message_id for notice in pair.notices] == [sent.message_id]
    with pytest.raises(InvalidValue):
        pair.alpha.ask_status(sent.message_id)
    with pytest.raises(InvalidValue):
        pair.alpha.ping("alpha-beta")


@pytest.mark.parametrize("profile", ["ebms2", "phinms"])
async def test_over_real_sockets(tmp_path: Path, profile: str) -> None:
    """ebMS 2.0 answers on a connection of its own, PHINMS on the one that asked."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with serving(tmp_path, "alpha", "beta", ports, profile=profile) as alpha:
        with pytest.raises(TransportProblem, match="not reached"):
            await alpha.ping("alpha-beta", 20)
        async with serving(tmp_path, "beta", "alpha", ports, profile=profile):
            assert await alpha.ping("alpha-beta", 20)
            sent = await alpha.send(order(1))
            assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
            said = await alpha.ask_status(sent.message_id, 20)
            assert said is not None
            assert said.status is MessageStatus.RECEIVED
    assert not alpha.engine.context.state.pings
