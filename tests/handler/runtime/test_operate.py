"""An operator restarts the numbering of a channel, where that confuses nobody."""

from __future__ import annotations

import pytest

from oncewire.errors import NotAllowed, NotHere, StoreDamaged
from oncewire.handler.perform import open_incident
from oncewire.handler.runtime import operate
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.operate import can_resume
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import Raise
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingState, Phase
from tests.handler.network import Network, options

CHANNEL = "urn:test:alpha>urn:test:beta"
WINDOW = 8


def channel_of(pair: Network, key: str = CHANNEL) -> SendingChannel:
    with pair.alpha.context.transition() as tx:
        channel = tx.sending_channel(key)
    assert channel is not None
    return channel


def refused(pair: Network, why: str, key: str = CHANNEL) -> None:
    before = channel_of(pair, key)
    with pytest.raises(NotAllowed, match=why):
        pair.alpha.restart(key)
    assert channel_of(pair, key) == before
    assert "epoch_ended" not in pair.kinds("alpha")


def advised(engine: Engine, message_id: str) -> bool:
    """Whether an operator is told to resume it."""
    with engine.context.store.reader() as reader:
        stored = reader.outgoing(message_id)
        assert stored is not None
        return can_resume(reader, stored, engine.context.now())


@pytest.mark.requirement("SEQ-4")
@pytest.mark.parametrize("profile", ["window", "rm-0.78"])
def test_a_channel_restarts_once_a_window_of_numbers_is_used_and_settled(profile: str) -> None:
    pair = Network.pair(profile, "")
    pair.send(0)
    with pair.alpha.context.store.reader() as reader:
        (key,) = [one.key for one in reader.channels()[0]]
    window = WINDOW if profile == "window" else 1
    if window > 1:
        refused(pair, "has used 1 of its first 8 numbers", key)
    pair.send_all(range(1, window))
    pair.alpha.restart(key)
    pair.settle("alpha")
    assert channel_of(pair, key).phase is Phase.ENDING
    (row,) = pair.rows("epoch_ended")
    assert (row.channel, row.epoch) == (key, 1)
    assert "restarted by the operator" in (row.detail or "")
    with pytest.raises(NotAllowed, match="ends already"):
        pair.alpha.restart(key)
    pair.send_all(range(window, window + 3))
    assert channel_of(pair, key).epoch == 2
    assert len(pair.take()) == window + 3
    assert pair.verify().clean, pair.verify().violations


@pytest.mark.requirement("SEQ-4", "SEQ-14")
def test_no_restart_while_a_number_is_unsettled() -> None:
    pair = Network.pair("window", "")
    pair.send_all(range(WINDOW))
    pair.lose_request = lambda post: True
    pair.send(WINDOW)
    refused(pair, "has 1 unsettled numbers")
    pair.lose_request = lambda post: False
    pair.pass_time()
    assert pair.state(f"order-{WINDOW}@alpha") is OutgoingState.DELIVERED
    pair.alpha.restart(CHANNEL)
    pair.settle("alpha")
    assert channel_of(pair).phase is Phase.ENDING


@pytest.mark.requirement("SEQ-4")
def test_a_conversation_is_a_channel_with_the_terms_of_its_agreement() -> None:
    pair = Network.pair(
        "ebms2", '[sequence]\nordered = true\n[flow]\nmode = "window"\nwindow = 3\n'
    )
    pair.send_all(range(3))
    key = f"{CHANNEL}#talk"
    pair.alpha.restart(key)
    pair.settle("alpha")
    assert channel_of(pair, key).phase is Phase.ENDING


def test_what_has_no_numbering_cannot_be_restarted() -> None:
    pair = Network.pair("window", "")
    with pytest.raises(NotHere, match="no channel nowhere"):
        pair.alpha.restart("nowhere")
    with pair.alpha.context.transition() as tx:
        tx.save_sending_channel(SendingChannel("gone>away", epoch=1, used=9, phase=Phase.RUNNING))
        tx.save_sending_channel(SendingChannel(CHANNEL))
    pair.settle("alpha")
    for key in ("gone>away", CHANNEL):
        refused(pair, "no numbering that could be restarted", key)


@pytest.mark.requirement("OPS-1")
def test_a_channel_that_was_paused_has_an_incident_until_it_is_resumed() -> None:
    pair = Network.pair("window", "")
    pair.send(0)
    pair.alpha.pause(CHANNEL, "stocktaking")
    pair.settle("alpha")
    (incident,) = pair.incidents()
    assert (incident.channel, incident.message_id) == (CHANNEL, None)
    assert incident.reason == "paused by the operator: stocktaking"
    # Who stopped it first stays what everybody is told.
    with pytest.raises(NotAllowed, match="suspended already: paused by the operator: stocktaking"):
        pair.alpha.pause(CHANNEL, "another reason", "olga")
    pair.alpha.resume(channel=CHANNEL)
    pair.settle("alpha")
    assert pair.incidents() == []


@pytest.mark.requirement("RTY-13")
def test_what_waited_for_a_paused_channel_is_sent_when_it_is_resumed() -> None:
    pair = Network.pair("window", "")
    pair.send(0)
    pair.alpha.pause(CHANNEL, "stocktaking")
    pair.settle("alpha")
    pair.send(1)
    assert pair.take() == ["order-0@alpha"]
    pair.alpha.resume(channel=CHANNEL)
    pair.settle("alpha")
    assert pair.take() == ["order-1@alpha"]
    assert pair.verify().clean, pair.verify().violations


@pytest.mark.requirement("RTY-13", "RTY-1")
@pytest.mark.parametrize("named", ["message", "channel", "partner"])
def test_what_is_under_way_is_not_sent_once_more_for_it(named: str) -> None:
    """Two people resume at once, or one while an attempt is being made: that has its own wait."""
    pair = Network.pair("window", "")
    pair.send(0)
    pair.carrying = False
    pair.send(1)
    sent_at, timer = pair.alpha.context.now(), pair.stored(1).outgoing.next_attempt_at
    assert timer is not None
    pair.pass_time(SECOND)
    for _ in range(2):
        if named == "message":
            pair.alpha.resume(message_id="order-1@alpha")
        elif named == "channel":
            pair.alpha.pause(CHANNEL, "stocktaking")
            pair.alpha.resume(channel=CHANNEL)
        else:
            pair.alpha.resume(partner="alpha-beta")
        pair.settle("alpha")
    pair.alpha.transmission_over(Transmission("order-1@alpha", 1, sent=True))
    pair.pass_time(SECOND)
    assert [post.message_id for post in pair.posts].count("order-1@alpha") == 1
    assert pair.stored(1).outgoing.next_attempt_at == timer
    pair.pass_time(timer - sent_at)
    assert [post.message_id for post in pair.posts].count("order-1@alpha") == 2


def test_a_word_about_the_partner_does_not_lift_what_a_person_paused() -> None:
    pair = Network.pair("window", "", lose_answer=lambda answer: answer == 1)
    pair.send(0)
    pair.alpha.pause(CHANNEL, "stocktaking")
    pair.settle("alpha")
    pair.send(1)
    pair.take()
    pair.alpha.resume(partner="alpha-beta")
    pair.settle("alpha")
    assert pair.take() == []
    (incident,) = pair.incidents()
    assert incident.reason == "paused by the operator: stocktaking"


@pytest.mark.requirement("HOP-9")
def test_what_a_hub_reported_as_failed_it_does_not_send_behind_its_senders_back() -> None:
    chain = Network.chain(options("ms-0.9x", hops=2), carrying=False)
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    hub = chain.engines["hub1"]
    assert advised(hub, order)
    hub.abandon(order)
    hub.commit()
    with pytest.raises(NotAllowed, match="was reported to urn:sim:buyer"):
        hub.resume(message_id=order)
    assert chain.state(order, "hub1") is OutgoingState.UNKNOWN
    assert not advised(hub, order)


def test_what_was_delivered_is_not_sent_again() -> None:
    pair = Network.pair()
    sent = pair.send()
    with pytest.raises(NotAllowed, match="its receiver acknowledged it"):
        pair.alpha.resume(message_id=sent.message_id)
    assert not advised(pair.alpha, sent.message_id)


def test_an_incident_that_cannot_be_looked_at_keeps_no_other_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair()

    def is_over(context: object, tx: object, key: str) -> bool:
        if key == "one":
            raise StoreDamaged("the channel cannot be read")
        return True

    monkeypatch.setattr(operate, "_is_over", is_over)
    with pair.alpha.context.transition() as tx:
        for key in ("one", "two"):
            open_incident(pair.alpha.context, tx, Raise("it waits", channel=key))
    pair.settle()
    pair.pass_time()
    with pair.alpha.context.store.reader() as reader:
        assert [incident.channel for incident in reader.incidents()] == ["one"]
