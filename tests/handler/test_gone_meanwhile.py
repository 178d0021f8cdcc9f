"""An agreement is removed or narrowed while messages are held, passed on, or waited for."""

from __future__ import annotations

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import HOUR, MINUTE
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.synchronous import TIMEOUT_MESSAGE
from oncewire.wire import codec
from tests.handler.network import Network, agreement_text
from tests.handler.receiving.test_accepted_under import change

HELD = ["order-2@alpha", "order-3@alpha"]

# --- held ---------------------------------------------------------------------------------------


@pytest.mark.requirement("SW-10", "STO-3")
def test_what_is_held_when_its_agreement_is_removed_is_handed_over_all_the_same() -> None:
    """It is ours by the agreement that it was accepted under, and not stranded here."""
    pair = Network.pair("window", '[delivery]\npersist_duration = "PT1H"\n')
    pair.send(0)
    # Order 1 is lost on its way; 2 and 3 wait for it.
    pair.lose_request = lambda post: True
    pair.send_all((1, 2, 3))
    for order in HELD:
        pair.deliver("beta", pair.sent(order))
    assert pair.take() == ["order-0@alpha"]
    change(pair, "beta")
    pair.pass_time(HOUR + MINUTE)
    assert pair.take() == HELD
    assert pair.incidents("beta") == []


# --- passed on ----------------------------------------------------------------------------------


@pytest.mark.requirement("HOP-7", "HOP-12", "STO-3")
def test_an_answer_goes_back_under_the_agreement_that_its_message_went_under() -> None:
    """The hub's agreement with the seller is gone by the time at which the seller's word comes.
    Acknowledgements are typed here, so that the hub's own is not what the buyer waits for."""
    world = Options(hops=2, profile="ms-0.9x-typed", flow="unrestricted", persist_duration=HOUR)
    chain = Network.chain(world, carrying=False)
    order = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    onward = next(one for one in chain.kept if "seller" in one[1].address)
    chain.kept.remove(onward)
    chain.carry(*onward)
    (receipt,) = [one for one in chain.kept if one[0] == "seller"]
    chain.kept.clear()
    chain.restart("hub1", "seller")
    chain.carrying = True
    chain.carry(*receipt)
    assert chain.state(order) is OutgoingState.DELIVERED
    assert chain.state(order, "hub1") is OutgoingState.DELIVERED


# --- waited for ---------------------------------------------------------------------------------

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
PROFILES = pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])


def narrowed(asking: Network, profile: str) -> None:
    """From now on another service is all that beta agrees to."""
    text = agreement_text("beta", "alpha", profile, BOTH)
    actions = '[[actions]]\nservice = "urn:test:bills"\naction = "Pay"\n'
    agreement = read_toml(f"listed_only = true\n{text}{actions}")
    asking.beta.context.agreements = Agreements([agreement])


@pytest.mark.requirement("SYNC-6", "SYNC-7")
@PROFILES
def test_a_request_is_confirmed_although_its_agreement_was_narrowed(profile: str) -> None:
    asking = Network.asking(profile, BOTH)
    awaited = asking.ask()
    assert asking.lease() == [awaited.message_id]
    narrowed(asking, profile)
    asking.confirm(1)
    assert asking.arrived(1) is IncomingState.CONFIRMED
    answer = codec.read(asking.reply(awaited)).message
    assert answer.kind is MessageKind.ACKNOWLEDGMENT
    assert answer.error_list is None


@pytest.mark.requirement("SYNC-17")
@PROFILES
def test_who_waits_too_long_under_a_narrowed_agreement_is_told_so(profile: str) -> None:
    asking = Network.asking(profile, BOTH)
    awaited = asking.ask()
    narrowed(asking, profile)
    answer = asking.beta.overdue(awaited)
    asking.settle("beta")
    assert TIMEOUT_MESSAGE.encode() in asking.bytes_of(answer).body
