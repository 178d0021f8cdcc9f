"""What one address, all strangers and the partners may take; the clock is the test's."""

import asyncio

import pytest

from oncewire.transport.budget import (
    BudgetLimits,
    Budgets,
    OverBudget,
    ReaderShare,
    ReaderVisit,
    Visit,
    address_of,
    in_steps,
)
from oncewire.transport.contract import Peer, Reply
from tests.transport.exchange import leap

HERE = Peer("192.0.2.1")
THERE = Peer("192.0.2.2")
PARTNER = Peer("192.0.2.3")
SHOWN = Peer("192.0.2.4", certificate=b"der")


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def loop_time() -> float:
    return asyncio.get_running_loop().time()


async def passes() -> None:
    """Whoever can do something has done it."""
    for _ in range(20):
        await asyncio.sleep(0)


def budgets(clock: Clock, **limits: float) -> Budgets:
    return Budgets(BudgetLimits(**limits), clock)  # type: ignore[arg-type]


async def over(budget: Budgets, peer: Peer) -> OverBudget | None:
    """How somebody is turned away; None: he is let in, and leaves again."""
    try:
        visit = await budget.enter(peer)
    except OverBudget as problem:
        return problem
    visit.leave()
    return None


async def test_one_address_waits_while_another_comes_in() -> None:
    budget = budgets(Clock(), strangers=4, per_address=2, patience=0.05)
    visits = [await budget.enter(HERE) for _ in range(2)]
    refused = await over(budget, HERE)
    assert refused is not None
    assert (refused.status, refused.retry_after) == (429, 1)
    visits += [await budget.enter(THERE) for _ in range(2)]
    # Now all strangers together have what is theirs; partners do not mind.
    refused = await over(budget, Peer("192.0.2.9"))
    assert refused is not None
    assert refused.status == 503
    budget.meet(PARTNER)
    assert await over(budget, PARTNER) is None
    assert await over(budget, SHOWN) is None
    visits.pop().leave()
    assert await over(budget, THERE) is None


async def test_who_has_just_given_up_is_passed_over() -> None:
    """He is told of it in a later turn of the loop; until then he still stands in the line."""

    budget = budgets(Clock(), strangers=1, per_address=1, patience=5)
    inside = await budget.enter(HERE)
    gone, staying = (asyncio.ensure_future(budget.enter(HERE)) for _ in "ab")
    await asyncio.sleep(0)
    gone.cancel()
    inside.leave()
    (await staying).leave()
    assert await over(budget, HERE) is None
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_partner_has_one_share_wherever_it_comes_from() -> None:
    budget = budgets(Clock(), partners=8, per_partner=4, refusals=1, patience=0.05)
    greedy = [Peer(f"198.51.100.{number}", certificate=b"greedy") for number in range(8)]
    visits = [await budget.enter(peer) for peer in greedy[:4]]
    refused = await over(budget, greedy[5])
    assert refused is not None
    assert refused.status == 429
    assert await over(budget, SHOWN) is None
    # And who shares its address answers for himself alone.
    for _ in range(20):
        budget.refused(greedy[0])
    beside = Peer(greedy[0].address, certificate=b"honest")
    assert await over(budget, beside) is None
    assert await over(budget, Peer(greedy[0].address)) is None
    for visit in visits:
        visit.leave()
    refused = await over(budget, greedy[7])
    assert refused is not None
    assert "refused" in refused.problem


async def test_who_waits_comes_in_when_another_leaves() -> None:
    budget = budgets(Clock(), strangers=1, patience=10.0)
    first = await budget.enter(HERE)
    second, third = (asyncio.ensure_future(budget.enter(peer)) for peer in (THERE, HERE))
    await asyncio.sleep(0)
    first.leave()
    visit: Visit = await second
    assert not third.done()
    # One who gives up in the moment he is let in keeps nobody's place.
    visit.leave()
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert await over(budget, THERE) is None


def test_partners_are_known_for_a_while() -> None:
    clock = Clock()
    budget = budgets(clock, known_for=60.0)
    assert not budget.is_known(PARTNER)
    assert budget.is_known(SHOWN)
    budget.meet(PARTNER)
    clock.time += 59
    assert budget.is_known(PARTNER)
    clock.time += 2
    assert not budget.is_known(PARTNER)


async def test_refused_requests_run_out_and_come_back() -> None:
    clock = Clock()
    budget = budgets(clock, refusals=60)
    for _ in range(60):
        assert await over(budget, HERE) is None
        budget.refused(HERE)
    refused = await over(budget, HERE)
    assert refused is not None
    assert refused.status == 429
    assert await over(budget, THERE) is None
    clock.time += refused.retry_after + 1
    assert await over(budget, HERE) is None
    # A partner's address may be wrong more often.
    budget.meet(HERE)
    for _ in range(500):
        budget.refused(HERE)
    assert await over(budget, HERE) is None


async def test_a_processor_is_not_a_strangers_alone() -> None:
    clock = Clock()
    budget = budgets(clock, processor=20.0, processor_per_address=10.0)
    visit = await budget.enter(HERE)
    visit.spend(9.0)
    with pytest.raises(OverBudget, match="cost too much"):
        visit.spend(2.0)
    visit.leave()
    refused = await over(budget, HERE)
    assert refused is not None
    assert refused.status == 429
    visit = await budget.enter(THERE)
    with pytest.raises(OverBudget, match="busy"):
        visit.spend(9.5)
    visit.leave()
    # Both are above nothing of their own, but strangers have had their part.
    refused = await over(budget, Peer("192.0.2.9"))
    assert refused is not None
    assert refused.status == 503
    assert await over(budget, SHOWN) is None
    clock.time += 60
    assert await over(budget, HERE) is None


async def test_what_a_partner_costs_is_not_taken_from_the_strangers() -> None:
    budget = budgets(Clock(), processor=20.0, processor_per_address=10.0)
    visit = await budget.enter(SHOWN)
    visit.spend(100.0)
    visit.leave()
    assert await over(budget, HERE) is None


async def test_a_partner_that_is_refused_at_length_is_sent_away() -> None:
    """What it is refused for costs as much as what is taken, and nobody has anything of it."""

    clock = Clock()
    budget = budgets(clock, processor_refused=10.0)
    other = Peer(SHOWN.address, certificate=b"other")
    for refused in (False, False, True, True):
        visit = await budget.enter(SHOWN)
        visit.spend(6.0)
        if refused:
            budget.refused(SHOWN, visit.spent)
        visit.leave()
    away = await over(budget, SHOWN)
    assert away is not None
    assert away.status == 429
    assert await over(budget, other) is None
    clock.time += 60
    assert await over(budget, SHOWN) is None


async def test_memory_that_is_short_is_said_and_given_back() -> None:
    budget = budgets(Clock(), memory=100)
    first, second = await budget.enter(HERE), await budget.enter(THERE)
    assert first.hold(90)
    assert not second.hold(20)
    assert second.hold(-15)
    first.leave()
    second.leave()
    assert budget.held == 0


async def test_the_disk_is_shared() -> None:
    budget = budgets(Clock(), spool=400)
    first, second = await budget.enter(HERE), await budget.enter(THERE)
    first.spool(100)
    with pytest.raises(OverBudget) as own:
        first.spool(1)
    assert own.value.status == 429
    first.leave()
    third = await budget.enter(Peer("192.0.2.9"))
    second.spool(100)
    third.spool(100)
    fourth = await budget.enter(Peer("192.0.2.10"))
    with pytest.raises(OverBudget) as everybody:
        fourth.spool(1)
    assert everybody.value.status == 503
    # A partner's part is his.
    partner = await budget.enter(SHOWN)
    partner.spool(400)
    for visit in (second, third, fourth, partner):
        visit.leave()
    again = await budget.enter(HERE)
    again.spool(100)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_holder_of_many_addresses_counts_once(address: str, place: str) -> None:
    assert address_of(Peer(address)) == place


async def test_addresses_are_forgotten_and_those_at_work_are_not() -> None:
    budget = budgets(Clock(), refusals=1)
    at_work = await budget.enter(HERE)
    budget.refused(HERE)
    for number in range(5000):
        assert await over(budget, Peer(f"10.0.{number // 256}.{number % 256}")) is None
    assert len(budget._addresses) <= 4097
    at_work.leave()
    assert await over(budget, HERE) is not None


# --- readers -------------------------------------------------------------------------------------


@pytest.mark.within(1e9)
async def test_strangers_have_their_turns_one_after_the_other() -> None:
    """They rest for longer than the last one took; partners pass them by."""

    loop = asyncio.get_running_loop()
    budget = Budgets(BudgetLimits(processor=1e9, processor_per_address=1e9), loop_time)
    budget.meet(PARTNER)
    in_turn: list[Peer] = []

    async def go(peer: Peer) -> None:
        await budget.turn(peer)
        in_turn.append(peer)
        budget.charge(peer, 1000.0)

    waiting = [loop.create_task(go(peer)) for peer in (HERE, THERE, HERE, PARTNER)]
    await passes()
    assert in_turn == [HERE, PARTNER]
    leap(2990.0)
    await passes()
    assert in_turn == [HERE, PARTNER]
    leap(3010.0)
    await passes()
    assert in_turn == [HERE, PARTNER, THERE]
    leap(6010.0)
    await asyncio.gather(*waiting)
    assert in_turn == [HERE, PARTNER, THERE, HERE]


@pytest.mark.within(1e9)
async def test_an_address_that_had_its_share_waits_and_others_do_not() -> None:
    loop = asyncio.get_running_loop()
    budget = Budgets(BudgetLimits(processor_per_address=0.06), loop_time)
    budget.charge(HERE, 1.0)
    here = loop.create_task(budget.turn(HERE))
    # What all strangers rest for after that.
    leap(3.0)
    await budget.turn(THERE)
    await passes()
    assert not here.done()
    leap(1000.0)
    await here


async def test_each_step_of_a_work_is_paid_for_and_has_its_turn() -> None:
    """Whoever does the work does not notice: values, errors and a cancelled wait are its own."""
    told: list[str] = []

    async def turn() -> None:
        told.append("turn")

    async def work(first: asyncio.Future[str]) -> str:
        told.append(await first)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        await asyncio.sleep(0)
        return "done"

    async def fault() -> None:
        await asyncio.sleep(0)
        raise KeyError

    first = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(first.set_result, "value")
    assert await in_steps(work(first), lambda _: told.append("paid"), turn) == "done"
    assert told == ["paid", "turn", "value", "paid", "paid", "turn", "paid"]
    spent: list[float] = []
    with pytest.raises(KeyError):
        await in_steps(fault(), spent.append)
    assert len(spent) == 2
    assert min(spent) > 0


async def test_a_reader_rests_for_longer_than_what_it_refused_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, rests = Clock(), []

    async def slept(seconds: float) -> None:
        rests.append(round(seconds, 3))
        clock.time += seconds

    monkeypatch.setattr(asyncio, "sleep", slept)
    share = ReaderShare(clock)

    async def look(reply: Reply | None, seconds: float) -> None:
        await share.turn()
        with ReaderVisit(share) as visit:
            visit.spend(seconds)
            share.note(reply, visit)

    for seconds in (0.0, 0.1, 60.0):
        await look(Reply(400, refused=True), seconds)
    # What was taken may cost what it costs; what is no parcel at all is refused, too.
    await look(Reply(204, known=True), 60.0)
    await look(Reply(503), 60.0)
    await look(None, 0.0)
    await look(Reply(204), 0.0)
    assert rests == [0.1, 0.4, 5.0, 0.1]


def test_parcels_of_a_place_are_a_strangers_until_a_partner_shows() -> None:
    share = ReaderShare(Clock())
    assert ReaderVisit(share).is_strangers
    for reply, strangers in ((Reply(204, known=True), False), (Reply(400, refused=True), True)):
        with ReaderVisit(share) as visit:
            share.note(reply, visit)
        assert ReaderVisit(share).is_strangers is strangers


def test_what_a_reader_holds_has_an_end_and_is_given_back() -> None:
    share = ReaderShare(Clock())
    with ReaderVisit(share) as one, ReaderVisit(share) as other:
        assert one.hold(ReaderShare.MEMORY)
        assert not other.hold(1)
        assert other.hold(-1)
    assert share.held == 0
