"""Between two hops: whose number counts, what is repeated, and who is told at once."""

from __future__ import annotations

import asyncio

import pytest

from oncewire.entry.control.client import LocalHandler
from oncewire.handler.actions import Post
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.check import check_journal
from oncewire.journal.predicates.context import Violation
from oncewire.message.instant import SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from tests.handler.network import Network, Stores, TestWorld, options
from tests.handler.running import journal, line

ORDERED = """
[wire]
extensions = ["routing", "hop_sequence", "transient_error"]
[sequence]
ordered = true
[flow]
mode = "stop-and-wait"
"""
SYNCHRONOUS = '[sync]\nmode = "signalsAndResponse"\nretries = "none"\nbundle = "concatenated"\n'


def lose_all(chain: Network) -> None:
    """Nothing that leaves is answered, for a while."""
    for _ in range(3):
        for name, post in chain.kept:
            if isinstance(post, Post):
                sent = Transmission(post.message_id, post.attempt, sent=True)
                chain.engines[name].transmission_over(sent, None)
        chain.kept.clear()
        chain.pass_time(6 * SECOND)


@pytest.mark.requirement("HOP-5")
def test_between_hubs_the_number_of_the_hop_counts_and_not_the_message_order() -> None:
    chain = Network.chain(options("ebms2", hops=3, agreement=ORDERED, flow="stop-and-wait"))
    chain.send(0)
    # A buyer that begins anew: its MessageOrder is 0 again, the hop's next number is 1.
    chain.start("buyer", store=MemoryStore("buyer"))
    again = chain.send(1).message_id
    (numbered,) = [row for row in chain.rows(at="hub1", of=again) if row.kind == "numbered"]
    (received,) = [row for row in chain.rows(at="hub2", of=again) if row.kind == "received"]
    assert (numbered.sequence_number, received.sequence_number) == (1, 1)


@pytest.mark.requirement("SYNC-18")
def test_what_opens_no_synchronous_exchange_is_repeated() -> None:
    chain = Network.chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=1), carrying=False)
    opening, answer = (
        accepted.message_id
        for accepted in (chain.send(0), chain.send(1, ref_to_message_id="question@seller"))
    )
    lose_all(chain)
    assert chain.kinds("buyer", opening).count("sent") == 1
    assert chain.kinds("buyer", answer).count("sent") > 1


@pytest.mark.requirement("SYNC-18")
def test_a_hub_repeats_what_nobody_waits_for_on_a_connection() -> None:
    chain = Network.chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=2), carrying=False)
    answer = chain.send(1, ref_to_message_id="question@seller").message_id
    ((_, post),) = chain.kept
    chain.kept.clear()
    chain.carry("buyer", post)
    lose_all(chain)
    assert chain.kinds("hub1", answer).count("sent") > 1


@pytest.mark.requirement("HOP-9")
def test_the_from_party_is_told_at_once_of_what_expired_on_its_way_to_the_hub() -> None:
    accuracy = '[delivery]\ntime_accuracy = "00:10"\n'
    chain = Network.chain(options("ms-0.9x", agreement=accuracy, hops=2), carrying=False)
    order = chain.send(0, time_to_live=20 * SECOND).message_id
    ((_, post),) = chain.kept
    world = chain.engines["hub1"].context.world
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
    chain = Network.chain(options(profile, agreement=waiting, hops=2), carrying=False)
    order = chain.send(0).message_id
    (buyers,) = chain.kept
    chain.carry(*buyers)
    hub = chain.restart("hub1")
    assert "ack_sent" not in chain.kinds("hub1", order)
    hub.abandon(order)
    chain.settle("hub1")
    answer = chain.carry(*buyers)
    assert "ack_sent" not in chain.kinds("hub1", order)
    assert answer.parcel is not None
    told = codec.read(whole_parcel(hub.context, answer.parcel)).message
    assert [one.code for one in told.error_list.errors] == ["DeliveryFailure"]  # type: ignore[union-attr]
    assert not told.acknowledgments
    assert chain.state(order) is not OutgoingState.DELIVERED


@pytest.mark.requirement("SYNC-18", "ERR-8")
def test_a_hubs_notice_is_repeated_although_replies_are_synchronous() -> None:
    chain = Network.chain(options("ms-0.9x", agreement=SYNCHRONOUS, hops=2), carrying=False)
    answer = chain.send(1, ref_to_message_id="question@seller").message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    chain.kept.clear()
    chain.engines["hub1"].abandon(answer)
    chain.settle("hub1")
    (notice,) = [one.message_id for _, one in chain.kept if isinstance(one, Post)]
    lose_all(chain)
    assert chain.kinds("hub1", notice).count("sent") > 1


# --- a notice that nobody acknowledges ---------------------------------------------------------

NHS = 'profile = "nhs-forward-reliable"\n'


def refuse_all(chain: Network) -> list[str]:
    """Nobody is there: every post is refused, every signal is lost; returns what was posted."""
    posts, chain.kept = chain.kept, []
    for name, post in posts:
        if isinstance(post, Post):
            lost = Transmission(post.message_id, post.attempt, sent=False, certain=True)
            chain.engines[name].transmission_over(lost, None)
            chain.settle(name)
    return [post.message_id for _, post in posts if isinstance(post, Post)]


def failed_at_the_hub(hops: int = 2, **more: object) -> tuple[Network, str, str]:
    """A hub took responsibility under ebMS 2.0 and gave up; the buyer is away. The chain, the
    order, and the notice, whose first attempt failed."""
    chain = Network.chain(options("ebms2", hops=hops, agreement=NHS, **more), carrying=False)
    order = chain.send(0).message_id
    last = f"hub{hops - 1}"
    while chain.state(order, last) is None:
        posts, chain.kept = chain.kept, []
        for name, post in posts:
            chain.carry(name, post)
    # What the hubs said on the way arrives; the seller does not answer.
    posts, chain.kept = chain.kept, []
    for name, post in posts:
        if "seller" not in post.address:
            chain.carry(name, post)
    assert chain.state(order) is OutgoingState.DELIVERED
    chain.engines[last].abandon(order)
    chain.settle(last)
    (told,) = [row.ref_to for row in chain.rows(at=last, of=order) if row.kind == "notified"]
    assert told is not None
    assert refuse_all(chain) == [told]
    return chain, order, told


def violations(chain: Network) -> list[Violation]:
    rows = [row for name in chain.engines for row in chain.rows(at=name)]
    return check_journal(rows, healed=True).violations


@pytest.mark.requirement("HOP-9", "ERR-8", "RM-2")
@pytest.mark.parametrize("restart", [False, True])
def test_a_notice_that_nobody_acknowledges_is_owed_until_it_is_taken(restart: bool) -> None:
    chain, order, notice = failed_at_the_hub()
    assert chain.state(order) is OutgoingState.DELIVERED, "by the word of the hub"
    for _ in range(2):
        chain.pass_time(6 * SECOND)
        assert refuse_all(chain) == [notice]
    if restart:
        chain.restart("hub1")
    chain.carrying = True
    chain.pass_time(6 * SECOND)
    assert chain.state(order) is OutgoingState.UNKNOWN
    assert [one.message_id for one in chain.notices] == [order]
    assert chain.state(notice, "hub1") is OutgoingState.DELIVERED
    assert chain.kinds("hub1", notice)[-1] == "acknowledged"
    sent = chain.kinds("hub1", notice).count("sent")
    chain.pass_time(60 * SECOND)
    assert chain.kinds("hub1", notice).count("sent") == sent
    assert [row.kind for row in chain.rows(at="hub1") if row.kind == "incident"] == []
    for told in chain.notices:
        chain.engines["buyer"].confirm_notice(told.notice_id)
    chain.settle("buyer")
    assert not violations(chain)


@pytest.mark.requirement("HOP-9", "ERR-8")
def test_of_a_notice_that_nobody_takes_the_operator_is_told_and_nobody_else() -> None:
    chain, _, notice = failed_at_the_hub(retries=3)
    for _ in range(6):
        chain.pass_time(6 * SECOND)
        refuse_all(chain)
    assert chain.kinds("hub1", notice).count("sent") == 4
    with chain.engines["hub1"].context.store.reader() as reader:
        (incident,) = reader.incidents()
    assert incident.message_id == notice
    assert [
        row for row in chain.rows(at="hub1") if row.kind == "notified" and row.message_id == notice
    ] == []
    assert not violations(chain)


@pytest.mark.requirement("HOP-9", "ERR-8")
def test_a_notice_that_comes_twice_is_one_notice() -> None:
    chain, order, notice = failed_at_the_hub()
    chain.pass_time(6 * SECOND)
    ((name, post),) = [one for one in chain.kept if isinstance(one[1], Post)]
    chain.kept.clear()
    assert post.message_id == notice
    parcel = whole_parcel(chain.engines[name].context, post.parcel)
    chain.deliver("buyer", parcel)
    once = chain.kinds("buyer", order)
    # The answer to it was lost, so it is sent again.
    lost = Transmission(notice, post.attempt, sent=False, reason="no response in time")
    chain.engines[name].transmission_over(lost, None)
    chain.settle(name)
    chain.carrying = True
    chain.pass_time(60 * SECOND)
    assert chain.state(notice, "hub1") is OutgoingState.DELIVERED
    assert chain.state(order) is OutgoingState.UNKNOWN
    assert [one.message_id for one in chain.notices] == [order]
    # It is noted, and nothing comes of it.
    assert chain.kinds("buyer", order) == [*once, "warned"]


@pytest.mark.requirement("HOP-9", "ERR-8", "HOP-7")
@pytest.mark.parametrize("restart", [False, True])
def test_a_hub_on_the_way_of_a_notice_owes_it_too(restart: bool) -> None:
    """The hub that gave it is done when the next one took it: then that one answers for it."""
    chain, order, notice = failed_at_the_hub(hops=3)
    chain.pass_time(6 * SECOND)
    ((name, post),) = [one for one in chain.kept if isinstance(one[1], Post)]
    chain.kept.clear()
    assert name == "hub2"
    chain.carry(name, post)
    assert chain.state(notice, "hub2") is OutgoingState.DELIVERED
    for _ in range(2):
        assert refuse_all(chain) == [notice]
        chain.pass_time(6 * SECOND)
    # A copy of it is not a second one.
    chain.carry(name, post)
    assert len([one for _, one in chain.kept if isinstance(one, Post)]) == 1
    refuse_all(chain)
    if restart:
        chain.restart("hub1")
    chain.carrying = True
    chain.pass_time(6 * SECOND)
    assert chain.state(order) is OutgoingState.UNKNOWN
    assert chain.state(notice, "hub1") is OutgoingState.DELIVERED
    for told in chain.notices:
        chain.engines["buyer"].confirm_notice(told.notice_id)
    chain.settle("buyer")
    assert not violations(chain)


@pytest.mark.requirement("HOP-9", "ERR-8", "RM-2")
async def test_a_sender_that_was_away_hears_what_a_hub_could_not_deliver(on_disk: Stores) -> None:
    """Handlers at work, over stores on the disk: the receiver is down, then the sender is away."""
    quick = {"timeout": SECOND // 5, "retry_interval": SECOND // 5}
    world = options("ebms2", hops=2, agreement=NHS, retries=15, **quick)

    async with line(world, without=("seller",), store=on_disk) as running:
        buyer, hub = running.handlers["buyer"], running.handlers["hub1"]
        sent = await running.order()
        assert await buyer.wait(sent, 20) is OutgoingState.DELIVERED
        running.net.cut.add(("hub1", "buyer"))
        async with asyncio.timeout(60):
            while not (lost := [row for row in journal(hub) if row.kind == "notified"]):
                await asyncio.sleep(0.02)
            notice = lost[0].ref_to
            while not any(r.kind == "send_failed" and r.message_id == notice for r in journal(hub)):
                await asyncio.sleep(0.02)
            running.net.cut.clear()
            while not (told := await LocalHandler(buyer).notices()):
                await asyncio.sleep(0.02)
        assert [one.message_id for one in told] == [sent]
        await LocalHandler(buyer).confirm_notice(told[0].notice_id)
        async with asyncio.timeout(20):
            while await hub.wait(str(notice), 1) is not OutgoingState.DELIVERED:
                await asyncio.sleep(0.02)
        rows = [*journal(buyer), *journal(hub)]
    assert not check_journal(rows, healed=True).violations
