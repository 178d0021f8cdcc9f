"""A copy of a request gets the bytes that answered it first, and what cannot be answered ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.errors import StoreFull
from oncewire.handler.actions import PostAnswer
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import MessageKind
from oncewire.message.ids import Party
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol.states import IncomingState, Outgoing, OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import HTTP, Network, response

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
NEVER_AGAIN = BOTH + 'retries = "none"\n'


def policy(answer: str) -> str:
    return f'{BOTH}[duplicate]\nanswer = "{answer}"\n'


# --- the answer first given --------------------------------------------------------------------


@pytest.mark.requirement("DUP-5", "SYNC-6", "SYNC-7")
@pytest.mark.parametrize("bundle", ["merged", "concatenated"])
def test_a_copy_gets_the_response_first_sent_with_its_acknowledgement(bundle: str) -> None:
    asking = Network.asking(
        "ebms2", policy("original").replace(BOTH, f'{BOTH}bundle = "{bundle}"\n')
    )
    parcel = asking.order()
    first = asking.answered(parcel, response(1))
    asking.pass_time(5 * SECOND)
    # Later: a change of plan that refers to the same order.
    asking.beta.submit(response(2))
    asking.settle("beta")
    assert asking.bytes_of(asking.arrive(parcel)) == first
    answers = [one.message for one in codec.read_all(first)]
    assert answers[-1].header.message_id == "response-1@beta"
    assert [one.ref_to_message_id for one in answers[0].acknowledgments] == ["order-1@alpha"]


@pytest.mark.requirement("DUP-6")
def test_most_recent_gives_the_latest_by_its_own_order_of_sending() -> None:
    asking = Network.asking("ebms2", policy("most_recent"))
    parcel = asking.order()
    asking.answered(parcel, response(1))
    # The clock goes back in between: the order of sending counts, and no timestamp (C15).
    asking.beta.context.world.time -= 3600 * SECOND  # type: ignore[attr-defined]
    asking.beta.submit(response(2))
    asking.settle("beta")
    again = codec.read(asking.bytes_of(asking.arrive(parcel))).message
    assert again.header.message_id == "response-2@beta"


@pytest.mark.requirement("DUP-5")
def test_what_is_sent_beside_the_answer_is_not_the_answer() -> None:
    """An application that is called answers by what it returns."""
    asking = Network.asking("ebms2", policy("original"))
    awaited = asking.ask()
    asking.lease()
    asking.beta.submit(response(1))
    asking.settle("beta")
    assert asking.beta.reply_to(awaited) is None
    asking.confirm(1, response(2))
    reply = codec.read(asking.reply(awaited)).message
    assert reply.header.message_id == "response-2@beta"
    assert [one.ref_to_message_id for one in reply.acknowledgments] == ["order-1@alpha"]


def test_where_nothing_is_acknowledged_a_copy_gets_the_first_response() -> None:
    asking = Network.asking("ebms2", '[duplicate]\nelimination = "always"\n')
    parcel = asking.order(best_effort=True)
    asking.arrive(parcel)
    asking.lease()
    asking.confirm(1, response(1), response(2))
    asking.actions.clear()
    asking.arrive(parcel)
    assert [one.header.message_id for one in asking.left_messages()] == ["response-1@beta"]


@pytest.mark.requirement("ERR-9")
def test_a_response_that_never_arrived_is_not_brought_by_a_copy() -> None:
    asking = Network.asking("ebms2", '[ack]\nbundling = "piggyback"\n')
    parcel = asking.order()
    asking.arrive(parcel)
    asking.lease()
    asking.confirm(1, response(1))
    refused = Transmission("response-1@beta", 1, sent=False, certain=True)
    asking.beta.transmission_over(refused, None)
    asking.settle("beta")
    asking.actions.clear()
    asking.arrive(parcel)
    (again,) = asking.left_messages()
    assert again.kind is MessageKind.ACKNOWLEDGMENT
    # When it did arrive, a copy gets it again.
    asking.pass_time(60 * SECOND)
    asking.beta.tick()
    asking.settle("beta")
    asking.beta.transmission_over(Transmission("response-1@beta", 2, sent=True), None)
    asking.settle("beta")
    asking.actions.clear()
    asking.arrive(parcel)
    assert [one.header.message_id for one in asking.left_messages()] == ["response-1@beta"]


def refusal_of(asking: Network, parcel: Parcel) -> Parcel:
    """alpha has no agreement in force when the response comes, and says so."""
    node = asking.alpha.context
    agreements = node.agreements
    ended = [replace(one, end=node.now() - SECOND) for one in agreements]
    node.agreements = Agreements(ended)
    answer = asking.alpha.receive(parcel, HTTP)
    errors = [one.parcel for one in asking.alpha.commit() if isinstance(one, PostAnswer)]
    node.agreements = agreements
    return whole_parcel(node, answer.parcel or errors[0])


def stored_response(asking: Network, number: int) -> Outgoing:
    with asking.beta.context.store.reader() as reader:
        stored = reader.outgoing(f"response-{number}@beta")
    assert stored is not None
    return stored.outgoing


def state_of_response(asking: Network, number: int = 1) -> OutgoingState:
    return stored_response(asking, number).state


def refuse_response(asking: Network, parcel: Parcel) -> None:
    """The same, and beta hears of it."""
    asking.beta.receive(refusal_of(asking, parcel), HTTP)
    asking.settle("beta")
    assert state_of_response(asking) is OutgoingState.NOT_DELIVERED


@pytest.mark.requirement("ERR-9", "DUP-6")
@pytest.mark.parametrize(
    ("policy", "bundling"),
    [("original", "piggyback"), ("most_recent", "piggyback"), ("most_recent", "standalone")],
)
def test_what_a_copy_brought_again_may_arrive_although_the_first_was_refused(
    policy: str, bundling: str
) -> None:
    """The refusal of the first one is still on its way when a copy of the request comes: the
    second one meets an agreement that is in force again, so nobody may say that it was not
    delivered (S5)."""
    asking = Network.asking(
        "ebms2", f'[ack]\nbundling = "{bundling}"\n[duplicate]\nanswer = "{policy}"\n'
    )
    parcel = asking.order()
    asking.arrive(parcel)
    asking.lease()
    asking.confirm(1, response(1))
    refusal = refusal_of(asking, asking.left()[-1])
    asking.actions.clear()
    asking.arrive(parcel)
    brought = [one for one in asking.left_messages() if one.kind is MessageKind.NORMAL]
    assert [one.header.message_id for one in brought] == ["response-1@beta"]
    asking.alpha.receive(asking.left()[-1], HTTP)
    (taken,) = asking.alpha.hand_over(5, SECOND)
    asking.alpha.confirm(taken.sender, taken.message_id)
    asking.alpha.commit()
    asking.beta.receive(refusal, HTTP)
    asking.settle("beta")
    assert state_of_response(asking) is OutgoingState.UNKNOWN
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("ERR-9", "DUP-4")
@pytest.mark.parametrize("policy", ["original", "most_recent"])
@pytest.mark.parametrize("no_response", ["ack", "ignore"])
def test_a_response_that_was_refused_is_not_brought_by_a_copy(
    policy: str, no_response: str
) -> None:
    """Its application was told that it did not arrive. What it carried is still owed."""
    duplicate = f'[duplicate]\nanswer = "{policy}"\nno_response = "{no_response}"\n'
    asking = Network.asking("ebms2", '[ack]\nbundling = "piggyback"\n' + duplicate)
    parcel = asking.order()
    asking.arrive(parcel)
    asking.lease()
    asking.confirm(1, response(1))
    refuse_response(asking, asking.left()[-1])
    asking.actions.clear()
    asking.arrive(parcel)
    (again,) = asking.left_messages()
    assert again.kind is MessageKind.ACKNOWLEDGMENT
    asking.hear(1, asking.left()[-1])
    assert asking.state(1) is OutgoingState.DELIVERED
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("ERR-9", "SYNC-8")
def test_a_refused_response_is_not_brought_beside_its_acknowledgement_either() -> None:
    asking = Network.asking("ebms2", f'{BOTH}bundle = "concatenated"\n')
    parcel = asking.order()
    both = asking.answered(parcel, response(1))
    refuse_response(asking, codec.unbundle(both, asking.beta.context.limits)[-1])
    (again,) = codec.read_all(asking.bytes_of(asking.arrive(parcel)))
    assert again.message.kind is MessageKind.ACKNOWLEDGMENT


@pytest.mark.requirement("DUP-5", "SYNC-8")
def test_what_became_of_a_later_response_changes_no_copy_of_the_first_answer() -> None:
    """The request got acknowledgement and response in one body, and another response later,
    which was refused: a copy still gets the bytes that answered first, and only the response
    in them is under way once more."""
    asking = Network.asking(
        "ebms2", f'{BOTH}bundle = "concatenated"\n[duplicate]\nanswer = "original"\n'
    )
    parcel = asking.order()
    first = asking.answered(parcel, response(1))
    asking.beta.submit(response(2))
    asking.settle("beta")
    asking.beta.receive(refusal_of(asking, asking.left()[-1]), HTTP)
    asking.settle("beta")
    assert state_of_response(asking, 2) is OutgoingState.NOT_DELIVERED
    assert asking.bytes_of(asking.arrive(parcel)) == first
    assert [stored_response(asking, number).repeats for number in (1, 2)] == [1, 0]


@pytest.mark.requirement("DUP-5", "ERR-9")
@pytest.mark.parametrize("bundling", ["piggyback", "standalone"])
def test_where_the_first_response_was_refused_no_later_one_takes_its_place(bundling: str) -> None:
    """Another copy may have brought the first one: two copies would get two answers."""
    asking = Network.asking(
        "ebms2",
        f'[ack]\nbundling = "{bundling}"\n'
        '[duplicate]\nelimination = "always"\nanswer = "original"\n',
    )
    parcel = asking.order(best_effort=bundling == "standalone")
    asking.arrive(parcel)
    asking.lease()
    asking.confirm(1, response(1))
    refuse_response(asking, asking.left()[-1])
    asking.beta.submit(response(2))
    asking.settle("beta")
    assert stored_response(asking, 2).may_be_repeated
    asking.actions.clear()
    asking.arrive(parcel)
    assert not [one for one in asking.left_messages() if one.kind is MessageKind.NORMAL]


@pytest.mark.requirement("ERR-9", "RTY-8")
def test_a_response_that_waits_for_a_pause_leaves_the_acknowledgement_behind() -> None:
    asking = Network.asking("ebms2", '[ack]\nbundling = "piggyback"\n')
    parcel = asking.order()
    asking.arrive(parcel)
    asking.lease()
    asking.beta.submit(structs.replace(response(9), ref_to_message_id=None))
    asking.settle("beta")
    busy = Transmission("response-9@beta", 1, sent=False, certain=True, retry_after=600)
    asking.beta.transmission_over(busy, None)
    asking.settle("beta")
    asking.actions.clear()
    asking.confirm(1, response(1))
    (left,) = asking.left_messages()
    assert left.kind is MessageKind.ACKNOWLEDGMENT
    asking.arrive(parcel)
    assert {one.kind for one in asking.left_messages()} == {MessageKind.ACKNOWLEDGMENT}


# --- what nobody can answer any more -----------------------------------------------------------


def two_settled(asking: Network) -> None:
    """Order 1 is asked and answered; its stream is open."""
    awaited = asking.ask(1)
    asking.lease()
    asking.confirm(1, response(1))
    asking.hear(1, asking.reply(awaited))
    assert asking.state(1) is OutgoingState.DELIVERED


@pytest.mark.requirement("SYNC-17", "SYNC-18")
@pytest.mark.parametrize("crash", [False, True])
def test_a_held_request_is_closed_with_its_connection(crash: bool) -> None:
    asking = Network.asking("window", NEVER_AGAIN)
    two_settled(asking)
    second, third = asking.order(2), asking.ask(3)
    assert asking.arrived(3) is IncomingState.HELD
    asking.beta.context.state.replying = ()
    if crash:
        asking.crash("beta")
    else:
        asking.beta.overdue(third)
        asking.settle("beta")
    assert asking.arrived(3) is IncomingState.CLOSED
    # The missing number comes after all: the stream goes on, past the closed one.
    asking.beta.context.application_called = True
    asking.arrive(second)
    fourth = asking.order(4)
    asking.arrive(fourth)
    assert asking.lease() == ["order-2@alpha", "order-4@alpha"]
    skipped = asking.rows("skipped", at="beta")
    assert [(row.message_id, row.sequence_number) for row in skipped] == [("order-3@alpha", 2)]
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("SYNC-18")
def test_a_held_request_that_was_closed_is_not_handed_over_when_waiting_for_the_gap_ends() -> None:
    asking = Network.asking("window", NEVER_AGAIN)
    two_settled(asking)
    asking.order(2)
    third = asking.ask(3)
    asking.beta.context.state.replying = ()
    asking.beta.overdue(third)
    asking.settle("beta")
    asking.crash("beta")
    asking.pass_time(2 * DAY)
    assert asking.lease() == []


@pytest.mark.requirement("SYNC-18")
@pytest.mark.parametrize("crash", [False, True])
def test_the_number_of_a_closed_request_is_journaled_as_skipped(crash: bool) -> None:
    asking = Network.asking("window", NEVER_AGAIN)
    two_settled(asking)
    second = asking.ask(2)
    asking.order(3)
    if crash:
        asking.crash("beta")
        asking.beta.context.application_called = True
    else:
        asking.beta.overdue(second)
        asking.settle("beta")
    assert asking.arrived(2) is IncomingState.CLOSED
    asking.arrive(asking.sent("order-3@alpha"))
    assert asking.lease() == ["order-3@alpha"]
    (skipped,) = asking.rows("skipped", at="beta")
    assert (skipped.message_id, skipped.epoch, skipped.sequence_number) == ("order-2@alpha", 1, 1)
    assert not asking.verify(healed=False).violations


def test_a_request_the_application_had_once_is_closed_and_not_skipped() -> None:
    asking = Network.asking("window", NEVER_AGAIN)
    asking.ask(1)
    assert asking.lease() == ["order-1@alpha"]
    asking.crash("beta")
    assert asking.arrived(1) is IncomingState.CLOSED
    assert not asking.rows("skipped", at="beta")
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("SYNC-18")
def test_a_request_that_the_application_has_is_not_taken_from_it_when_time_is_up() -> None:
    asking = Network.asking("window", NEVER_AGAIN)
    awaited = asking.ask(1)
    assert asking.lease() == ["order-1@alpha"]
    asking.beta.overdue(awaited)
    asking.settle("beta")
    assert asking.arrived(1) is IncomingState.HANDED_OVER
    asking.confirm(1)
    assert asking.arrived(1) is IncomingState.CONFIRMED
    assert not asking.rows("skipped", at="beta")


def test_a_reply_whose_commit_failed_is_not_under_way() -> None:
    asking = Network.asking("ebms2", BOTH)
    asking.ask(1)
    asking.lease()
    store = asking.beta.context.store
    assert isinstance(store, MemoryStore)
    store.fail_next_commit(StoreFull("full"))
    with pytest.raises(StoreFull):
        asking.confirm(1, response(1))
    assert asking.beta.context.state.in_flight == set()
    asking.confirm(1, response(1))
    assert asking.beta.context.state.in_flight == {"response-1@beta"}


def test_what_is_sent_to_somebody_else_answers_no_request() -> None:
    asking = Network.asking("ebms2", BOTH)
    awaited = asking.ask(1)
    asking.lease()
    node = asking.beta.context
    (own,) = node.agreements
    gamma = replace(own.partner, party=Party.of("urn:test:gamma"))
    node.agreements = Agreements([own, replace(own, cpa_id="beta-gamma", partner=gamma)])
    asking.confirm(1, structs.replace(response(1), cpa_id="beta-gamma"))
    said = codec.read(asking.reply(awaited)).message
    assert said.kind is MessageKind.ACKNOWLEDGMENT
    assert [one.header.to_party.ids[0].value for one in asking.left_messages()] == [
        "urn:test:gamma"
    ]
