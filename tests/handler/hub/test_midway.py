"""Between two hops: whose number counts, what is repeated, and who is told at once."""

from __future__ import annotations

import pytest

from oncewire.agreement.agreements import Agreements
from oncewire.handler.actions import Post
from oncewire.handler.sealing.seal import whole_parcel
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.instant import SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.simulation.topology import agreements_of
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from tests.handler.chain import Chain, options
from tests.handler.pair import TestWorld

ORDERED = """
[wire]
extensions = ["routing", "hop_sequence", "transient_error"]
[sequence]
ordered = true
[flow]
mode = "stop-and-wait"
"""
SYNCHRONOUS = '[sync]\nmode = "signalsAndResponse"\nretries = "none"\nbundle = "concatenated"\n'


def lose_all(chain: Chain) -> None:
    """Nothing that leaves is answered, for a while."""
    for _ in range(3):
        for name, post in chain.posts:
            if isinstance(post, Post):
                sent = Transmission(post.message_id, post.attempt, sent=True)
                chain.engines[name].transmission_over(sent, None)
        chain.posts.clear()
        chain.pass_time(6 * SECOND)


@pytest.mark.requirement("HOP-5")
def test_between_hubs_the_number_of_the_hop_counts_and_not_the_message_order() -> None:
    chain = Chain(options("ebms2", hops=3, agreement=ORDERED, flow="stop-and-wait"))
    chain.send(0)
    # A buyer that begins anew: its MessageOrder is 0 again, the hop's next number is 1.
    chain.start("buyer", Agreements(agreements_of("buyer", chain.options)), MemoryStore("buyer"))
    again = chain.send(1)
    (numbered,) = [row for row in chain.rows("hub1", again) if row.kind == "numbered"]
    (received,) = [row for row in chain.rows("hub2", again) if row.kind == "received"]
    assert (numbered.sequence_number, received.sequence_number) == (1, 1)


@pytest.mark.requirement("SYNC-18")
def test_what_opens_no_synchronous_exchange_is_repeated() -> None:
    chain = Chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=1), carrying=False)
    opening, answer = chain.send(0), chain.send(1, ref_to_message_id="question@seller")
    lose_all(chain)
    assert chain.kinds("buyer", opening).count("sent") == 1
    assert chain.kinds("buyer", answer).count("sent") > 1


@pytest.mark.requirement("SYNC-18")
def test_a_hub_repeats_what_nobody_waits_for_on_a_connection() -> None:
    chain = Chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=2), carrying=False)
    answer = chain.send(1, ref_to_message_id="question@seller")
    ((_, post),) = chain.posts
    chain.posts.clear()
    chain.carry("buyer", post)
    lose_all(chain)
    assert chain.kinds("hub1", answer).count("sent") > 1


@pytest.mark.requirement("HOP-9")
def test_the_from_party_is_told_at_once_of_what_expired_on_its_way_to_the_hub() -> None:
    accuracy = '[delivery]\ntime_accuracy = "00:10"\n'
    chain = Chain(options("ms-0.9x", agreement=accuracy, hops=2), carrying=False)
    order = chain.send(0, time_to_live=20 * SECOND)
    ((_, post),) = chain.posts
    world = chain.engines["hub1"].node.world
    assert isinstance(world, TestWorld)
    world.time += 21 * SECOND
    chain.carry("buyer", post)
    kinds = chain.kinds("hub1", order)
    assert "expired" in kinds
    assert kinds.count("notified") == 1


@pytest.mark.requirement("HOP-9", "SYNC-11")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_hub_acknowledges_no_copy_of_what_has_failed(profile: str) -> None:
    """Its connection was to carry the acknowledgement back and is gone. Nobody was promised
    anything, and for what has failed a hub takes no responsibility any more."""
    waiting = '[sync]\nmode = "signalsAndResponse"\nretries = "same_message"\n'
    chain = Chain(options(profile, agreement=waiting, hops=2), carrying=False)
    order = chain.send(0)
    (buyers,) = chain.posts
    chain.carry(*buyers)
    hub = chain.restart("hub1")
    assert "ack_sent" not in chain.kinds("hub1", order)
    hub.abandon(order)
    chain.settle("hub1")
    answer = chain.carry(*buyers)
    assert "ack_sent" not in chain.kinds("hub1", order)
    assert answer.parcel is not None
    told = codec.read(whole_parcel(hub.node, answer.parcel)).message
    assert [one.code for one in told.error_list.errors] == ["DeliveryFailure"]  # type: ignore[union-attr]
    assert not told.acknowledgments
    assert chain.state(order) is not OutgoingState.DELIVERED


@pytest.mark.requirement("SYNC-18", "ERR-8")
def test_a_hubs_notice_is_repeated_although_replies_are_synchronous() -> None:
    chain = Chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=2), carrying=False)
    answer = chain.send(1, ref_to_message_id="question@seller")
    ((_, post),) = chain.posts
    chain.carry("buyer", post)
    chain.posts.clear()
    chain.engines["hub1"].abandon(answer)
    chain.settle("hub1")
    (notice,) = [one.message_id for _, one in chain.posts if isinstance(one, Post)]
    lose_all(chain)
    assert chain.kinds("hub1", notice).count("sent") > 1
