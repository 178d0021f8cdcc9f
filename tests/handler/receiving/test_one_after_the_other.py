"""Acknowledgements of a partner's messages are made alike, and each says what is its own."""

from __future__ import annotations

import pytest

from oncewire.handler.actions import Submission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, TestWorld

REPLY = '[sync]\nmode = "mshSignalsOnly"\n'


@pytest.mark.requirement("ACK-5")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
@pytest.mark.parametrize("extra", ["", REPLY], ids=["own connection", "reply"])
def test_each_names_its_own_message_and_moment(profile: str, extra: str) -> None:
    pair = Network.pair(profile, extra if profile != "rm-0.78" else "")
    world = pair.beta.context.world
    assert isinstance(world, TestWorld)
    for number in range(1, 4):
        world.time += 1_234_567
        pair.send(number)
    orders = {f"order-{number}@alpha" for number in range(1, 4)}
    assert {settled.message_id for settled in pair.settled} == orders
    assert set(pair.take()) == orders
    assert pair.verify().clean
    assert len(set(pair.answers)) == 3


@pytest.mark.requirement("ACK-5")
def test_a_name_that_is_markup_stands_in_it_as_it_is() -> None:
    pair = Network.pair("ebms2")
    for number, talk in enumerate(("talk", "a<b> & 'c'", "talk"), 1):
        pair.send(number)
        sent = f"<{number}>&@alpha"
        pair.alpha.submit(_named(sent, talk))
        pair.settle("alpha")
        read = codec.read(Parcel("text/xml; charset=UTF-8", pair.answers[-1])).message
        assert read.header.ref_to_message_id == sent
        assert read.header.conversation_id == talk
        assert read.acknowledgments[0].ref_to_message_id == sent


def _named(message_id: str, talk: str) -> Submission:
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        (Payload.of("order", "text/plain", b"order"),),
        conversation_id=talk,
        message_id=message_id,
    )
