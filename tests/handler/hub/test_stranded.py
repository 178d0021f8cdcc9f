"""A message that a hub acknowledged and held stays when the way on is gone, and goes on later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.errors import NotAllowed
from oncewire.handler.actions import Post
from oncewire.handler.hub.next_hop import abandon_stranded, is_stranded
from oncewire.journal.check import check_journal
from oncewire.message.ids import Party
from oncewire.message.instant import HOUR, MINUTE
from oncewire.protocol.states import OutgoingState
from oncewire.store.records import Incident
from tests.handler.network import Network, TestWorld, options

HELD = ["order-2@buyer", "order-3@buyer"]


def incidents(chain: Network) -> list[Incident]:
    with chain.engines["hub1"].context.store.reader() as reader:
        return [one for one in reader.incidents() if one.message_id in HELD]


def pass_at_hub(chain: Network, duration: int) -> None:
    engine = chain.engines["hub1"]
    assert isinstance(engine.context.world, TestWorld)
    engine.context.world.time += duration
    engine.tick()
    chain.settle("hub1")


def stranded(came: tuple[int, ...] = (3, 2), gone: int = 1, **more: object) -> Network:
    """Order 1 never came; 3 and 2 were acknowledged, and then the way to the seller was lost.

    Or others, in the order in which they `came` to the hub; those before `gone` arrived at once.
    """
    chain = Network.chain(options("window", hops=2, **more))
    chain.send_all(range(gone))
    chain.carrying = False
    chain.send_all((gone, *sorted(came)))
    orders = {post.message_id: (name, post) for name, post in chain.kept
              if isinstance(post, Post)}  # fmt: skip
    chain.kept.clear()
    chain.carrying = True
    for order in (f"order-{number}@buyer" for number in came):
        chain.carry(*orders[order])
        assert chain.state(order) is OutgoingState.DELIVERED
    chain.restart("hub1", "seller")
    pass_at_hub(chain, HOUR + MINUTE)
    return chain


def arrived(chain: Network) -> list[str]:
    return [row.message_id or "" for row in chain.rows(at="seller") if row.kind == "received"]


@pytest.mark.requirement("HOP-8", "HOP-9", "STO-5", "OPS-1")
def test_it_stays_and_the_operator_is_called_once() -> None:
    chain = stranded()
    pass_at_hub(chain, HOUR)
    assert sorted(one.message_id or "" for one in incidents(chain)) == HELD
    assert {one.reason for one in incidents(chain)} == {
        "no agreement leads on to urn:sim:seller any more"
    }
    for order in HELD:
        assert chain.kinds("hub1", order).count("incident") == 1
        assert "forwarded" not in chain.kinds("hub1", order)


@pytest.mark.requirement("HOP-8", "OPS-1")
@pytest.mark.parametrize("nodes", [("buyer", "hub1", "seller"), ("hub1",)])
def test_while_its_operator_is_called_it_counts_as_waiting(nodes: tuple[str, ...]) -> None:
    chain = stranded()

    def accused() -> list[str | None]:
        rows = [row for node in nodes for row in chain.rows(at=node)]
        found = check_journal(rows, healed=True).violations
        return [one.message_id for one in found if one.message_id in HELD]

    assert accused() == []
    incident = next(row for row in chain.rows(at="hub1") if row.message_id == HELD[0]
                    and row.kind == "incident")  # fmt: skip
    assert incident.channel == "urn:sim:buyer>urn:sim:hub1", "whoever reads the stream sees it"
    chain.restart("hub1")
    resolved = [row.channel for row in chain.rows(at="hub1") if row.kind == "resolved"]
    assert resolved == [incident.channel] * len(HELD)


@pytest.mark.requirement("HOP-8", "STO-3", "SW-10")
def test_it_goes_on_in_order_when_the_agreement_is_back() -> None:
    chain = stranded()
    chain.restart("hub1")
    assert arrived(chain) == ["order-0@buyer", *HELD]
    assert incidents(chain) == []
    for order in HELD:
        assert chain.kinds("hub1", order)[-1] == "acknowledged"


@pytest.mark.requirement("HOP-8", "STO-3", "SW-10", "SEQ-12")
@pytest.mark.parametrize("gone", [1, 6], ids=["", "numbers wrap"])
@pytest.mark.parametrize("came", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_it_goes_on_in_the_order_of_its_numbers_however_it_came(
    came: tuple[int, ...], gone: int
) -> None:
    numbers = tuple(gone + behind for behind in came)
    small = {"window": 4, "agreement": "[sequence]\nrange = [0, 7]\n"}
    chain = stranded(numbers, gone, **small)
    chain.restart("hub1")
    assert arrived(chain) == [f"order-{n}@buyer" for n in (*range(gone), *sorted(numbers))]


@pytest.mark.requirement("RTY-13", "OPS-1")
def test_it_goes_on_by_the_operators_word() -> None:
    chain = stranded()
    hub = chain.engines["hub1"]
    with pytest.raises(NotAllowed, match="no agreement leads on to urn:sim:seller"):
        hub.resume(message_id=HELD[1])
    hub.context.agreements = chain.agreements["hub1"]
    hub.resume(message_id=HELD[1])
    chain.settle("hub1")
    assert arrived(chain) == ["order-0@buyer", *HELD], "those before it go first"
    assert incidents(chain) == []


@pytest.mark.requirement("SW-10", "HOP-8")
def test_nothing_overtakes_it() -> None:
    chain = stranded()
    hub = chain.engines["hub1"]
    hub.context.agreements = chain.agreements["hub1"]
    chain.send(4)
    assert arrived(chain) == ["order-0@buyer", *HELD, "order-4@buyer"]


@pytest.mark.requirement("HOP-9", "ERR-5", "ERR-9")
def test_the_from_party_is_told_when_it_is_given_up() -> None:
    chain = stranded()
    hub = chain.engines["hub1"]
    hub.abandon(HELD[0])
    chain.settle("hub1")
    assert chain.kinds("hub1", HELD[0])[-4:] == ["abandoned", "failed", "notified", "resolved"]
    assert chain.state(HELD[0]) is OutgoingState.NOT_DELIVERED
    assert [one.message_id for one in chain.notices] == [HELD[0]]
    assert [one.message_id for one in incidents(chain)] == [HELD[1]]
    chain.restart("hub1")
    assert arrived(chain) == ["order-0@buyer", HELD[1]], "never behind the From Party's back"
    # The stream that it came on went on without it, and says so.
    report = check_journal(chain.rows(at="hub1"), healed=False)
    assert report.clean, report.violations


@pytest.mark.requirement("HOP-9", "ERR-8")
def test_a_notice_that_gets_lost_makes_no_loss_of_what_was_given_up() -> None:
    """Of a notice that failed the operator is told, and nobody else (C33)."""
    chain = stranded()
    hub = chain.engines["hub1"]
    chain.carrying = False
    for order in HELD:
        hub.abandon(order)
    chain.settle("hub1")
    pass_at_hub(chain, 2 * HOUR)
    rows = [row for node in ("buyer", "hub1", "seller") for row in chain.rows(at=node)]
    assert chain.state(HELD[0]) is OutgoingState.DELIVERED, "by the word of the hub"
    found = check_journal(rows, healed=True).violations
    assert [one for one in found if one.message_id in HELD] == []


@pytest.mark.requirement("ERR-5", "ERR-8")
def test_a_notice_is_heard_although_only_another_agreement_leads_to_the_hub() -> None:
    chain = Network.chain(options("window", hops=2), carrying=False)
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.kept.clear()
    chain.carry("buyer", post)
    (own,) = chain.agreements["buyer"]
    other = replace(own.partner, party=Party.of("urn:sim:other"))
    chain.engines["buyer"].context.agreements = Agreements(
        [replace(own, cpa_id="buyer-other", partner=other)]
    )
    chain.kept.clear()
    chain.engines["hub1"].abandon(order)
    chain.settle("hub1")
    ((_, notice),) = [one for one in chain.kept if isinstance(one[1], Post)]
    chain.carry("hub1", notice)
    assert "warned" in chain.kinds("buyer", order)


@pytest.mark.requirement("ERR-8")
def test_of_a_notice_that_is_given_up_nobody_is_told() -> None:
    chain = Network.chain(options("window", hops=3))
    chain.send(0)
    chain.carrying = False
    chain.send_all((1, 2, 3))
    while chain.kept:
        name, post = chain.kept.pop(0)
        if "seller" not in post.address:
            chain.carry(name, post)
    hub = chain.engines["hub2"]
    # The first notice opens its stream; of the others the later one arrives alone, and is held.
    for number in (1, 2, 3):
        chain.carrying = number == 1
        hub.abandon(f"order-{number}@buyer")
        chain.settle("hub2")
    _, (_, third) = [one for one in chain.kept if isinstance(one[1], Post)]
    assert isinstance(third, Post)
    chain.carrying = True
    chain.carry("hub2", third)
    chain.restart("hub1", "buyer")
    pass_at_hub(chain, HOUR + MINUTE)
    chain.engines["hub1"].abandon(third.message_id)
    chain.settle("hub1")
    assert chain.kinds("hub1", third.message_id)[-3:] == ["abandoned", "failed", "resolved"]


def test_what_is_for_us_is_never_sent_on() -> None:
    """It waits for its turn, or for somebody who can read it; its From Party is not told that no
    agreement leads on."""
    pair = Network.pair("window")
    # The first of a stream travels alone until it is settled.
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send(2)
    pair.lose_request = lambda post: False
    pair.send(3)
    beta = pair.beta
    with beta.context.store.transition() as tx:
        (held,) = tx.held(10)
        assert held.incoming.channel is not None
        channel = tx.receiving_channel(held.incoming.channel)
        assert channel is not None
        # Its turn has come, and it could not be read: it is on no list of its stream any more.
        tx.save_receiving_channel(structs.replace(channel, held=()))
        others = structs.replace(held.facts, to_party="urn:test:gamma")
        assert is_stranded(beta.context, tx, structs.replace(held, facts=others))
        assert not is_stranded(beta.context, tx, held)
        assert not abandon_stranded(beta.context, tx, held.incoming.message_id)
        # The agreement that it was accepted under is enough.
        beta.context.agreements = Agreements(())
        assert not is_stranded(beta.context, tx, held)
