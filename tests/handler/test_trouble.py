"""One message's trouble is its own: it waits with an incident, and delays nobody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import StoreFull, StoreProblem
from oncewire.handler.context import HandlerContext
from oncewire.handler.sending import transmit
from oncewire.message.ids import Service
from oncewire.message.instant import MINUTE, SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident, StoredOutgoing
from tests.handler.network import Network

DELIVERY = (
    '[delivery]\ntimeout = "PT5S"\nretry_interval = "PT5S"\nretries = 1\n'
    'on_exhausted = "fail_message"\n[flow]\nwindow = 1\n'
)


def agreed(partner: str, delivery: str = DELIVERY) -> Agreement:
    def side(name: str) -> str:
        return (
            f'party_id = "urn:test:{name}"\nuri = "http://{name}/msh"\nhttp = "http://{name}/msh"\n'
        )

    return read_toml(
        f'cpa_id = "alpha-{partner}"\nprofile = "window"\n'
        f"[own]\n{side('alpha')}[partner]\n{side(partner)}{delivery}"
    )


def narrowed(agreement: Agreement) -> Agreement:
    """The same, for another action only."""
    other = replace(agreement.sending, service=Service("urn:test:other"), action="Other")
    return replace(agreement, actions=(other,), listed_only=True)


class Desk(Network):
    """Alpha, whose partners never answer."""

    @classmethod
    def of(cls, *agreements: Agreement) -> Desk:
        return cls({"alpha": Agreements(agreements)}, hears=False)

    def begin(self, *agreements: Agreement) -> None:
        self.start("alpha", Agreements(agreements))

    def write(self, partner: str, number: int, action: str = "New") -> None:
        message_id = f"{partner}-{number}@alpha"
        self.send(number, cpa_id=f"alpha-{partner}", action=action, message_id=message_id)

    def pass_seconds(self, seconds: int) -> None:
        self.pass_time(*[SECOND] * seconds)

    def id_of(self, message: int | str, by: str = "") -> str:
        return f"{message}@alpha"

    @property
    def attempts(self) -> list[str]:
        return [post.message_id for post in self.posts]

    @property
    def memory(self) -> MemoryStore:
        store = self.engine.context.store
        assert isinstance(store, MemoryStore)
        return store

    def troubles(self, message_id: str, *, open_only: bool = True) -> list[Incident]:
        with self.memory.reader() as reader:
            found = reader.incidents(open_only=open_only)
        return [one for one in found if one.message_id == f"{message_id}@alpha"]


def two_partners() -> Desk:
    desk = Desk.of(agreed("beta"), agreed("gamma"))
    for partner in ("beta", "gamma"):
        for number in (1, 2):
            desk.write(partner, number)
    assert desk.attempts == ["beta-1@alpha", "gamma-1@alpha"]
    return desk


Change = Callable[[Agreement], list[Agreement]]


@pytest.mark.parametrize(
    "change", [lambda _one: [], lambda one: [narrowed(one)]], ids=["removed", "narrowed"]
)
def test_a_waiting_message_whose_agreement_changed_delays_nobody(change: Change) -> None:
    desk = two_partners()
    desk.begin(*change(agreed("beta")), agreed("gamma"))
    desk.pass_seconds(200)
    assert desk.attempts.count("gamma-1@alpha") == desk.attempts.count("gamma-2@alpha") == 2
    assert desk.state("gamma-1") is desk.state("gamma-2") is OutgoingState.UNKNOWN
    # What left before goes on under the terms it left with.
    assert desk.state("beta-1") is OutgoingState.UNKNOWN
    assert desk.state("beta-2") is OutgoingState.WAITING
    # One, however often it was looked at.
    assert len(desk.troubles("beta-2")) == 1
    assert "it cannot go on" in desk.troubles("beta-2")[0].reason
    assert desk.kinds("alpha", "beta-2@alpha") == ["submitted", "incident"]
    # The agreement is back.
    desk.begin(agreed("beta"), agreed("gamma"))
    desk.pass_seconds(70)
    assert desk.state("beta-2") is OutgoingState.UNKNOWN
    assert desk.kinds("alpha", "beta-2@alpha").count("resolved") == 1
    assert desk.kinds("alpha", "beta-2@alpha").count("sent") == 2


def test_an_answer_is_taken_although_the_next_message_cannot_enter() -> None:
    desk = two_partners()
    desk.begin(narrowed(agreed("beta")), agreed("gamma"))
    node = desk.engine.context
    with node.transition() as tx:
        stored = tx.outgoing("beta-1@alpha")
        assert stored is not None
    desk.engine.abandon("beta-1@alpha")
    desk.settle()
    assert desk.state("beta-1") is OutgoingState.UNKNOWN
    assert desk.state("beta-2") is OutgoingState.WAITING
    assert len(desk.troubles("beta-2")) == 1


def test_what_must_follow_in_order_waits_too_and_goes_on_when_the_first_is_given_up() -> None:
    desk = Desk.of(agreed("beta"))
    for number, action in ((1, "New"), (2, "Old"), (3, "New")):
        desk.write("beta", number, action)
    only_new = agreed("beta")
    binding = replace(only_new.sending, service=Service("urn:test:orders"), action="New")
    desk.begin(replace(only_new, actions=(binding,), listed_only=True))
    desk.pass_seconds(30)
    assert desk.state("beta-2") is desk.state("beta-3") is OutgoingState.WAITING
    assert desk.troubles("beta-3") == []
    desk.engine.abandon("beta-2@alpha")
    desk.settle()
    desk.pass_seconds(1)
    assert desk.state("beta-3") is OutgoingState.OUTSTANDING
    assert desk.troubles("beta-2") == []


def test_where_no_order_is_agreed_the_others_pass() -> None:
    delivery = DELIVERY.replace("[flow]\nwindow = 1", '[flow]\nmode = "stop-and-wait"')
    desk = Desk.of(plain := agreed_unordered(delivery))
    for number, action in ((1, "New"), (2, "Old"), (3, "New")):
        desk.write("beta", number, action)
    binding = replace(plain.sending, service=Service("urn:test:orders"), action="New")
    desk.begin(replace(plain, actions=(binding,), listed_only=True))
    desk.pass_seconds(30)
    assert desk.state("beta-2") is OutgoingState.WAITING
    assert desk.state("beta-3") is OutgoingState.UNKNOWN


def agreed_unordered(delivery: str) -> Agreement:
    one = agreed("beta", delivery)
    terms = structs.replace(one.sending.terms, numbered=False, ordered=False)
    return replace(one, sending=replace(one.sending, terms=terms))


def test_the_operator_may_have_it_looked_at_at_once() -> None:
    desk = two_partners()
    desk.begin(narrowed(agreed("beta")), agreed("gamma"))
    desk.pass_seconds(30)
    assert len(desk.troubles("beta-2")) == 1
    # Nothing was mended: it has its incident again.
    desk.engine.resume(message_id="beta-2@alpha")
    desk.settle()
    assert len(desk.troubles("beta-2")) == 1
    assert len(desk.troubles("beta-2", open_only=False)) == 2
    desk.engine.context.agreements = Agreements([agreed("beta"), agreed("gamma")])
    desk.engine.resume(message_id="beta-2@alpha")
    desk.settle()
    assert desk.attempts[-1] == "beta-2@alpha"
    assert desk.troubles("beta-2") == []


@pytest.mark.parametrize("late", [False, True], ids=["before it enters", "after it entered"])
def test_what_goes_on_in_a_commit_that_fails_goes_on_with_the_next_one(late: bool) -> None:
    desk = two_partners()
    desk.begin(narrowed(agreed("beta")), agreed("gamma"))
    desk.pass_seconds(30)
    assert len(desk.troubles("beta-2")) == 1
    desk.engine.context.agreements = Agreements([agreed("beta"), agreed("gamma")])
    desk.world().time += MINUTE
    desk.engine.tick()
    fail = desk.memory.fail_next_commit if late else desk.memory.fail_next_transition
    fail(StoreFull("full"))
    with pytest.raises(StoreFull):
        desk.engine.commit()
    assert desk.state("beta-2") is OutgoingState.WAITING
    assert desk.engine.next_wake() == 1, "it is due at once"
    desk.pass_seconds(1)
    assert desk.attempts[-1] == "beta-2@alpha"
    assert desk.troubles("beta-2") == []


def test_what_is_set_aside_in_a_commit_that_fails_is_set_aside_again() -> None:
    desk = two_partners()
    desk.begin(narrowed(agreed("beta")), agreed("gamma"))
    desk.memory.fail_next_commit(StoreFull("full"))
    desk.engine.abandon("beta-1@alpha")
    with pytest.raises(StoreFull):
        desk.engine.commit()
    assert desk.troubles("beta-2") == [], "that it cannot go on was not written either"
    desk.engine.abandon("beta-1@alpha")
    desk.settle()
    assert len(desk.troubles("beta-2")) == 1, "a message that cannot go on is told of"


def test_what_an_undone_step_decided_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = two_partners()
    before = list(desk.attempts)

    def trouble(*given: object, **more: object) -> None:
        performed(*given, **more)  # type: ignore[arg-type]
        raise ValueError("a fault of ours")

    performed = transmit.perform
    monkeypatch.setattr(transmit, "perform", trouble)
    desk.pass_seconds(6)
    assert desk.attempts == before
    assert desk.engine.context.state.in_flight == set()
    assert len(desk.troubles("beta-1")) == len(desk.troubles("gamma-1")) == 1
    monkeypatch.setattr(transmit, "perform", performed)
    desk.pass_seconds(70)
    assert desk.attempts.count("beta-1@alpha") == desk.attempts.count("gamma-1@alpha") == 2
    assert desk.troubles("gamma-1", open_only=False)[0].resolved_at is not None


def test_a_store_that_fails_is_not_one_message_s_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = two_partners()

    def full(*_given: object) -> None:
        raise StoreFull("full")

    for module, name in ((transmit, "_attempt"), (transmit, "enter")):
        monkeypatch.setattr(module, name, full)
    desk.world().time += 6 * SECOND
    with pytest.raises(StoreFull):
        desk.engine.tick()
    desk.engine.abandon("gamma-1@alpha")
    with pytest.raises(StoreFull):
        desk.engine.commit()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_message_without_its_terms_is_passed_over(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = two_partners()
    save, terms_of = type_of_transaction(desk).save_outgoing, HandlerContext.terms_of

    def damaged(node: HandlerContext, tx: Transaction, terms_id: str) -> Terms:
        raise StoreProblem("the terms are missing")

    def refuse(_tx: object, _outgoing: object, **_more: object) -> None:
        raise StoreProblem("the terms are missing")

    monkeypatch.setattr(HandlerContext, "terms_of", damaged)
    monkeypatch.setattr(type_of_transaction(desk), "save_outgoing", refuse)
    desk.pass_seconds(6)
    assert desk.engine.context.state.stuck == {"beta-1@alpha", "gamma-1@alpha"}
    # Still due, and looked at now and then only.
    assert desk.engine.next_wake() == desk.engine.context.state.ticked_at + SECOND
    monkeypatch.setattr(HandlerContext, "terms_of", terms_of)
    monkeypatch.setattr(type_of_transaction(desk), "save_outgoing", save)
    if restarted:
        desk.begin(agreed("beta"), agreed("gamma"))
        desk.pass_seconds(10)
    else:
        # Without a restart it is looked at again after a while.
        desk.pass_seconds(70)
    assert desk.engine.context.state.stuck == set()
    assert desk.state("beta-1") is OutgoingState.UNKNOWN


def type_of_transaction(desk: Desk) -> type:
    with desk.memory.transition() as tx:
        return type(tx)


def test_a_start_that_cannot_take_everything_up_serves_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = two_partners()

    def trouble(*_given: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr("oncewire.handler.delivering.deliver.recover_hand_overs", trouble)
    desk.begin(agreed("beta"), agreed("gamma"))
    desk.pass_seconds(6)
    assert desk.attempts.count("gamma-1@alpha") == 2


# --- no address ----------------------------------------------------------------------------------


def outgoing(pair: Network) -> StoredOutgoing:
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-1@alpha")
    assert stored is not None
    return stored


@pytest.mark.requirement("ERR-9")
def test_a_message_without_an_address_was_never_transmitted() -> None:
    pair = Network.pair("ebms2", '[delivery]\ntransports = ["smtp"]\n')
    pair.send()
    pair.pass_time(*[MINUTE] * 10)
    assert "sent" not in pair.kinds("alpha")
    assert pair.kinds("alpha").count("incident") == 1
    assert outgoing(pair).outgoing.attempts == 0
    assert not outgoing(pair).outgoing.transmitted
    pair.alpha.abandon("order-1@alpha")
    pair.settle("alpha")
    assert outgoing(pair).outgoing.state is OutgoingState.NOT_DELIVERED
    assert [notice.severity.value for notice in pair.notices] == ["Error"]
    assert pair.verify(healed=True).clean


def test_a_message_without_an_address_expires_as_not_delivered() -> None:
    pair = Network.pair("ebms2", '[delivery]\ntransports = ["smtp"]\ntime_to_live = "PT5M"\n')
    pair.send()
    pair.pass_time(*[MINUTE] * 6)
    assert outgoing(pair).outgoing.state is OutgoingState.NOT_DELIVERED
    assert pair.verify(healed=True).clean


def test_a_transport_without_an_address_gives_way_to_the_next() -> None:
    pair = Network.pair("ebms2", '[delivery]\ntransports = ["smtp", "http"]\n')
    pair.send()
    pair.pass_time(SECOND)
    assert outgoing(pair).outgoing.state is OutgoingState.DELIVERED
    lost = Network.pair(
        "ebms2",
        '[delivery]\ntransports = ["smtp", "http"]\nretries = 1\n',
        lose_request=lambda post: True,
    )
    lost.send()
    for _ in range(10):
        lost.pass_time(MINUTE)
    assert outgoing(lost).outgoing.state is OutgoingState.UNKNOWN
    assert lost.verify(healed=False).clean
