"""Whose word undoes `delivered`: a hub's on the message's way, its own word only, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Notice, Post, PostAnswer, Source, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.journal.check import check_journal
from oncewire.journal.history import explain
from oncewire.lab.simulation.plan import Options, plan_of
from oncewire.lab.simulation.world import World
from oncewire.message.envelope import (
    Acknowledgment,
    Actor,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Payload,
    Severity,
    StatusResponse,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.protocol.states import Outcome, OutgoingState, Proof
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import START, TestWorld

ORDER = "order-1@alpha"
HERE = Source("http", can_answer=True)


def side(name: str) -> str:
    return f'party_id = "urn:test:{name}"\nuri = "http://{name}/msh"\nhttp = "http://{name}/msh"\n'


def agreement(own: str, partner: str, via: str = "") -> str:
    hub = f"[via]\n{side(via)}" if via else ""
    parties = f"[own]\n{side(own)}[partner]\n{side(partner)}{hub}"
    return f'cpa_id = "{min(own, partner)}-{max(own, partner)}"\nprofile = "ebms2"\n{parties}'


def engine(name: str, *agreements: str) -> Engine:
    found = Agreements([read_toml(one) for one in agreements])
    made = Engine(HandlerContext(name, MemoryStore(name), found, TestWorld(name)))
    made.start()
    made.commit()
    return made


def report(
    sender: str,
    cpa_id: str,
    *,
    severity: Severity = Severity.ERROR,
    others: int = 0,
    failure: Error | None = None,
) -> Parcel:
    """A party's word that the order could not be delivered, behind so many other errors."""
    header = Header(
        from_party=Party.of(f"urn:test:{sender}"),
        to_party=Party.of("urn:test:alpha"),
        cpa_id=cpa_id,
        conversation_id="talk",
        service=Service("urn:oasis:names:tc:ebxml-msg:service"),
        action="MessageError",
        message_id=f"report@{sender}",
        timestamp=START,
        ref_to_message_id=ORDER,
    )
    failure = failure or Error("DeliveryFailure", severity, "", f"{sender} says so")
    errors = ErrorList((*[Error("OtherXml", description="odd")] * others, failure))
    message = Message(Dialect.EBMS2, MessageKind.ERROR, header, error_list=errors)
    return codec.write(message, read_toml(agreement("alpha", "beta")).form)


def submit(alpha: Engine) -> Parcel:
    """alpha sends beta an order; returns its bytes."""
    order = Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        (Payload.of("order", "text/plain", b"one"),),
        message_id=ORDER,
    )
    alpha.submit(order)
    (post,) = [one for one in alpha.commit() if isinstance(one, Post)]
    return whole_parcel(alpha.context, post.parcel)


def hear(alpha: Engine, parcel: Parcel) -> list[Notice]:
    alpha.receive(parcel, HERE)
    return [one for one in alpha.commit() if isinstance(one, Notice)]


def acknowledged(alpha: Engine, order: Parcel) -> None:
    """beta gets the order, and its acknowledgement gets to alpha."""
    beta = engine("beta", agreement("beta", "alpha"))
    beta.receive(order, HERE)
    (ack,) = [one for one in beta.commit() if isinstance(one, PostAnswer)]
    assert hear(alpha, whole_parcel(beta.context, ack.parcel)) == []


def state_of(alpha: Engine) -> tuple[OutgoingState, Proof | None]:
    with alpha.context.transition() as tx:
        stored = tx.outgoing(ORDER)
    assert stored is not None
    return stored.outgoing.state, stored.outgoing.proved_by


def noted(alpha: Engine) -> list[tuple[str, str | None]]:
    with alpha.context.store.reader() as reader:
        rows = reader.journal_since(0, 1_000)
    return [
        (row.kind, row.ref_to)
        for row in rows
        if row.kind in ("refused", "rejected") or (row.kind, row.message_id) == ("ignored", ORDER)
    ]


DELIVERED = (OutgoingState.DELIVERED, Proof.TO_PARTY)
OPEN = (OutgoingState.OUTSTANDING, None)


@pytest.mark.requirement("ERR-5", "RM-14")
@pytest.mark.parametrize("before", [DELIVERED, OPEN], ids=["delivered", "under way"])
def test_a_partner_who_never_saw_the_message_changes_nothing(before: object) -> None:
    alpha = engine("alpha", agreement("alpha", "beta"), agreement("alpha", "mallory"))
    order = submit(alpha)
    if before == DELIVERED:
        acknowledged(alpha, order)
    assert state_of(alpha) == before
    assert hear(alpha, report("mallory", "alpha-mallory")) == []
    assert state_of(alpha) == before
    assert noted(alpha) == [("ignored", "report@mallory")]


@pytest.mark.requirement("ERR-5")
def test_a_partner_behind_the_same_hub_is_not_on_the_messages_way() -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"), agreement("alpha", "mallory", "hub"))
    submit(alpha)
    assert hear(alpha, report("mallory", "alpha-mallory")) == []
    assert state_of(alpha) == OPEN
    assert noted(alpha) == [("ignored", "report@mallory")]


@pytest.mark.requirement("ERR-5", "ERR-6", "HOP-9")
@pytest.mark.parametrize("reporter", ["hub", "hub-behind-it"])
def test_a_hub_on_the_way_may_report(reporter: str) -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    (notice,) = hear(alpha, report(reporter, "alpha-beta"))
    assert notice.outcome is Outcome.NOT_DELIVERED
    assert noted(alpha) == [("rejected", f"report@{reporter}")]


@pytest.mark.requirement("ERR-5", "RTY-13")
def test_a_report_that_comes_again_after_the_operator_resumed_fails_nothing() -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    (notice,) = hear(alpha, report("hub", "alpha-beta"))
    assert notice.outcome is Outcome.NOT_DELIVERED
    alpha.resume(message_id=ORDER)
    alpha.commit()
    assert hear(alpha, report("hub", "alpha-beta")) == []
    assert state_of(alpha) == OPEN
    assert noted(alpha) == [("rejected", "report@hub"), ("ignored", "report@hub")]
    with alpha.context.store.reader() as reader:
        rows = reader.journal_of(ORDER)
        assert reader.notices_owed(10) == []
    told = explain(rows)
    assert told.startswith("Under way: ")
    assert "it repeats a report that was heard before" in told
    # Another report is news.
    (again,) = hear(alpha, report("hub-behind-it", "alpha-beta"))
    assert again.outcome is Outcome.NOT_DELIVERED


@pytest.mark.requirement("ERR-5", "RM-17")
def test_a_hubs_report_is_heard_although_only_another_agreement_leads_there() -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    alpha.context.agreements = Agreements([read_toml(agreement("alpha", "mallory", "hub"))])
    # It could not read our CPAId and reports that under a name nobody knows.
    (notice,) = hear(alpha, report("hub", "unknown"))
    assert notice.outcome is Outcome.NOT_DELIVERED


def hub_answers(alpha: Engine, word: MessageStatus = MessageStatus.RECEIVED) -> list[Notice]:
    """The hub, asked what became of the order, answers that it has it, or something else."""
    header = Header(
        from_party=Party.of("urn:test:hub"),
        to_party=Party.of("urn:test:alpha"),
        cpa_id="alpha-beta",
        conversation_id="talk",
        service=Service("urn:oasis:names:tc:ebxml-msg:service"),
        action="StatusResponse",
        message_id="status@hub",
        timestamp=START,
        ref_to_message_id="question@alpha",
    )
    status = StatusResponse(ORDER, word, START)
    said = Message(Dialect.EBMS2, MessageKind.STATUS_RESPONSE, header, status_response=status)
    return hear(alpha, codec.write(said, read_toml(agreement("alpha", "beta")).form))


@pytest.mark.requirement("HOP-9", "OPS-2")
@pytest.mark.parametrize("others", [0, 1])
def test_a_hub_that_said_it_has_the_message_may_give_it_back(others: int) -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    assert hub_answers(alpha) == []
    assert state_of(alpha) == (OutgoingState.DELIVERED, Proof.HOP)
    # It may say more than that, and in any order.
    (notice,) = hear(alpha, report("hub", "alpha-beta", others=others))
    assert notice.outcome is Outcome.NOT_DELIVERED
    assert noted(alpha) == [("rejected", "report@hub")]


@pytest.mark.requirement("HOP-9")
@pytest.mark.parametrize("others", [0, 1])
def test_a_hubs_acknowledgement_that_its_report_overtook_delivers_nothing(others: int) -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    (notice,) = hear(alpha, report("hub", "alpha-beta", others=others))
    assert notice.outcome is Outcome.NOT_DELIVERED
    hub_answers(alpha)
    assert state_of(alpha)[0] is OutgoingState.NOT_DELIVERED


@pytest.mark.requirement("HOP-9", "ERR-2")
@pytest.mark.parametrize(
    ("place", "outcome"),
    [("//Body", Outcome.NOT_DELIVERED), ("//MessageHeader/CPAId", Outcome.UNKNOWN)],
)
def test_what_the_to_party_refuses_no_hub_has_delivered(place: str, outcome: Outcome) -> None:
    """The hub's own report may be lost; a copy of the hub's may have met another agreement."""
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    assert hub_answers(alpha) == []
    refusal = Error("Inconsistent", Severity.ERROR, place, "no")
    (notice,) = hear(alpha, report("beta", "alpha-beta", failure=refusal))
    assert notice.outcome is outcome
    assert noted(alpha) == [("rejected", "report@beta")]
    # What the hub says now is older than that.
    hub_answers(alpha)
    assert state_of(alpha)[0].value == outcome.value
    with alpha.context.store.reader() as reader:
        assert check_journal(reader.journal_since(0, 1_000), healed=False).clean


@pytest.mark.requirement("HOP-9", "ACK-9")
def test_a_hub_that_warns_beside_an_acknowledgement_that_does_not_count_has_warned() -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    said = codec.read(report("hub", "alpha-beta", severity=Severity.WARNING)).message
    # The To Party's own was asked for.
    hub = Party.of("urn:test:hub")
    near = Acknowledgment(START, ORDER, hub, actor=Actor.NEXT_MSH)
    both = structs.replace(
        said,
        kind=MessageKind.ACKNOWLEDGMENT,
        header=structs.replace(said.header, action="Acknowledgment"),
        acknowledgments=(near,),
    )
    hear(alpha, codec.write(both, read_toml(agreement("alpha", "beta")).form))
    assert state_of(alpha) == OPEN
    # What it says now may be older than the warning.
    (notice,) = hub_answers(alpha)
    assert notice.outcome is Outcome.UNKNOWN
    with alpha.context.store.reader() as reader:
        assert check_journal(reader.journal_since(0, 1_000), healed=False).clean


@pytest.mark.requirement("OPS-2")
def test_a_hub_that_has_sent_it_on_does_not_know_that_it_arrived() -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    submit(alpha)
    assert hub_answers(alpha, MessageStatus.FORWARDED) == []
    assert state_of(alpha) == OPEN
    assert noted(alpha) == [("ignored", "status@hub")]


@pytest.mark.requirement("HOP-9")
@pytest.mark.parametrize("severity", list(Severity))
def test_a_hubs_report_comes_too_late_after_the_to_partys_own_word(severity: Severity) -> None:
    alpha = engine("alpha", agreement("alpha", "beta", "hub"))
    acknowledged(alpha, submit(alpha))
    assert state_of(alpha) == DELIVERED
    assert hear(alpha, report("hub", "alpha-beta", severity=severity)) == []
    assert state_of(alpha) == DELIVERED
    assert noted(alpha) == [("ignored", "report@hub")]


@pytest.mark.long
@pytest.mark.requirement("HOP-8", "HOP-9")
@pytest.mark.parametrize(("profile", "flow"), [("ebms2", "unrestricted"), ("window", "window")])
def test_hubs_that_give_up_early_take_nothing_back_that_the_seller_said(
    profile: str, flow: str
) -> None:
    """The hub tries once, the buyer again and again: the seller's word overtakes the hub's."""
    options = Options(
        messages=40,
        hops=2,
        loss=0.45,
        reorder=0.5,
        retries=12,
        profile=profile,
        flow=flow,
        crash=0.0,
        corrupt=0.0,
        abandon=1.0,
        agreement='[delivery]\non_exhausted="fail_message"\n',
    )
    for seed in (5, 17, 18, 900_004):
        plan = plan_of(options, seed)
        hasty = replace(plan.setting, hub_said=(("delivery.retries", 0),))
        simulation = World(replace(plan, setting=hasty))
        result = simulation.run()
        assert not result.violations, (result.plan.command, result.violations[:3])
        rows = simulation.machine("buyer").rows()
        final = {
            row.message_id
            for row in rows
            if row.kind == "acknowledged" and '"hop":true' not in (row.detail or "")
        }
        last = {row.message_id: row.kind for row in rows if row.kind in ("acknowledged", "failed")}
        assert {last[message_id] for message_id in final} <= {"acknowledged"}
