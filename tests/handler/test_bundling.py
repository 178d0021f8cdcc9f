"""Acknowledgement and response: in one header, in one body, or each on its own (C13, C30)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.errors import StoreFull
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import Acknowledged
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, response
from tests.handler.running import Clerk, free_port, journal, order, post, response_to, serving

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
TOGETHER = BOTH + 'bundle = "concatenated"\n'


def ack(bundling: str, wait: str = "") -> str:
    return f'[ack]\nbundling = "{bundling}"\n' + (f'wait = "{wait}"\n' if wait else "")


def said(parcel: Parcel) -> list[tuple[MessageKind, list[str]]]:
    """Each message of a body, and what it acknowledges."""
    return [summary(one.message) for one in codec.read_all(parcel)]


def summary(message: Message) -> tuple[MessageKind, list[str]]:
    return message.kind, [one.ref_to_message_id for one in message.acknowledgments]


NORMAL, ACK = MessageKind.NORMAL, MessageKind.ACKNOWLEDGMENT
INSIDE = (NORMAL, ["order-1@alpha"])
ALONE = (ACK, ["order-1@alpha"])
BARE: tuple[MessageKind, list[str]] = (NORMAL, [])


# --- on the connection that waits --------------------------------------------------------------


@pytest.mark.requirement("SYNC-5", "SYNC-6", "SYNC-7", "SYNC-8", "ACK-16")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
@pytest.mark.parametrize(
    ("bundling", "sync", "replies"),
    [
        ("auto", BOTH, [INSIDE]),
        ("piggyback", BOTH, [INSIDE]),
        ("auto", TOGETHER, [ALONE, INSIDE]),
        ("piggyback", TOGETHER, [ALONE, INSIDE]),
        ("standalone", TOGETHER, [ALONE, BARE]),
    ],
)
def test_how_the_two_share_a_connection(
    profile: str, bundling: str, sync: str, replies: list[tuple[MessageKind, list[str]]]
) -> None:
    asking = Network.asking(profile, sync + ack(bundling))
    awaited = asking.ask()
    asking.lease()
    asking.confirm(1, response(1))
    assert asking.left() == []
    reply = asking.reply(awaited)
    assert said(reply) == replies
    asking.hear(1, reply)
    assert asking.state(1) is OutgoingState.DELIVERED
    taken = asking.alpha.hand_over(10, 60 * SECOND)
    assert [one.payloads[0].data for one in taken] == [b"response 1"]
    asking.alpha.commit()
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("SYNC-3", "ACK-16")
@pytest.mark.parametrize("called", [True, False])
def test_where_they_may_share_nothing_the_response_follows_on_its_own(called: bool) -> None:
    asking = Network.asking("ebms2", BOTH + ack("standalone"), called=called)
    answer = asking.arrive(asking.order())
    assert answer.awaited is None
    assert said(asking.bytes_of(answer)) == [ALONE]
    asking.lease()
    asking.confirm(1, response(1))
    assert [summary(one) for one in asking.left_messages()] == [BARE]


@pytest.mark.requirement("SYNC-8")
def test_apart_from_a_connection_two_replies_are_two_parcels() -> None:
    """Its connection died with the process; a copy may come by mail or by the web."""
    asking = Network.asking("ebms2", TOGETHER + ack("standalone"))
    parcel = asking.order()
    asking.arrive(parcel)
    asking.crash("beta")
    asking.beta.context.application_called = True
    asking.lease()
    asking.confirm(1, response(1))
    assert [summary(one) for one in asking.left_messages()] == [ALONE]
    assert said(asking.bytes_of(asking.arrive(parcel))) == [ALONE, BARE]


# --- an application that comes for its messages --------------------------------------------------


@pytest.mark.requirement("ACK-16", "SYNC-7")
@pytest.mark.parametrize("by", ["confirm", "submit"])
def test_piggyback_waits_for_an_application_that_comes_for_its_messages(by: str) -> None:
    asking = Network.asking("ebms2", BOTH + ack("piggyback"), called=False)
    awaited = asking.ask()
    asking.lease()
    if by == "confirm":
        asking.confirm(1, response(1))
    else:
        asking.beta.submit(response(1))
        asking.settle("beta")
    assert said(asking.reply(awaited)) == [INSIDE]
    assert asking.left() == []


@pytest.mark.requirement("SYNC-17")
def test_an_application_that_does_not_come_in_time_is_waited_for_no_longer() -> None:
    asking = Network.asking("ebms2", BOTH + ack("piggyback"), called=False)
    awaited = asking.ask()
    late = codec.read(asking.bytes_of(asking.beta.overdue(awaited))).message
    assert summary(late) == ALONE
    assert late.error_list is not None
    asking.lease()
    asking.confirm(1, response(1))
    assert [summary(one) for one in asking.left_messages()] == [BARE]


# --- on connections of their own ---------------------------------------------------------------


def answer_by(asking: Network, by: str) -> None:
    asking.lease()
    if by == "submit":
        asking.beta.submit(response(1))
        asking.settle("beta")
    asking.confirm(1, *([response(1)] if by == "confirm" else []))


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize(
    ("how", "left"),
    [
        (ack("piggyback"), [INSIDE]),
        (ack("auto", "PT5S"), [INSIDE]),
        (ack("auto"), [ALONE, BARE]),
        (ack("standalone", "PT5S"), [ALONE, BARE]),
    ],
)
def test_a_response_that_is_there_in_time_carries_the_acknowledgement(
    how: str, left: list[tuple[MessageKind, list[str]]], called: bool
) -> None:
    asking = Network.asking("ebms2", how, called=called)
    parcel = asking.order()
    asking.arrive(parcel)
    answer_by(asking, "confirm")
    assert [summary(one) for one in asking.left_messages()] == left
    first = asking.left()[0]
    # A copy gets the bytes that answered first (DUP-5).
    asking.actions.clear()
    asking.arrive(parcel)
    assert asking.left() == [first]
    assert not asking.verify(healed=False).violations


@pytest.mark.requirement("ACK-16")
def test_who_comes_for_his_messages_answers_by_what_he_sends() -> None:
    asking = Network.asking("ebms2", ack("piggyback"), called=False)
    asking.arrive(asking.order())
    answer_by(asking, "submit")
    assert [summary(one) for one in asking.left_messages()] == [INSIDE]


@pytest.mark.requirement("ACK-16", "ACK-1")
def test_without_a_response_the_acknowledgement_leaves_with_the_confirmation() -> None:
    asking = Network.asking("ebms2", ack("piggyback"))
    asking.arrive(asking.order())
    assert asking.left() == []
    answer_by(asking, "nothing")
    assert [summary(one) for one in asking.left_messages()] == [ALONE]


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize(("how", "bound"), [(ack("piggyback"), 30), (ack("auto", "PT5S"), 5)])
def test_the_acknowledgement_waits_no_longer_than_its_bound(how: str, bound: int) -> None:
    asking = Network.asking("ebms2", how)
    asking.arrive(asking.order())
    wake = asking.beta.next_wake()
    assert wake is not None
    assert wake <= asking.beta.context.now() + bound * SECOND
    asking.beta.context.world.time += bound * SECOND  # type: ignore[attr-defined]
    asking.beta.tick()
    asking.settle("beta")
    assert [summary(one) for one in asking.left_messages()] == [ALONE]
    answer_by(asking, "confirm")
    assert [summary(one) for one in asking.left_messages()] == [ALONE, BARE]


@pytest.mark.requirement("ACK-1", "ACK-16")
def test_an_acknowledgement_that_waited_survives_a_crash() -> None:
    asking = Network.asking("ebms2", ack("piggyback"))
    asking.arrive(asking.order())
    asking.crash("beta")
    asking.beta.tick()
    asking.settle("beta")
    assert [summary(one) for one in asking.left_messages()] == [ALONE]
    asking.beta.tick()
    asking.settle("beta")
    assert len(asking.left()) == 1


@pytest.mark.requirement("ACK-1", "ACK-16")
def test_an_acknowledgement_that_could_not_be_stored_leaves_later() -> None:
    """A sender that does not repeat its message would never hear of it otherwise."""
    asking = Network.asking("ebms2", ack("piggyback"))
    asking.arrive(asking.order())
    store = asking.beta.context.store
    assert isinstance(store, MemoryStore)
    store.fail_next_commit(StoreFull("full"))
    asking.beta.context.world.time += 30 * SECOND  # type: ignore[attr-defined]
    asking.beta.tick()
    with pytest.raises(StoreFull):
        asking.settle("beta")
    asking.beta.tick()
    asking.settle("beta")
    assert [summary(one) for one in asking.left_messages()] == [ALONE]


@pytest.mark.requirement("DUP-4", "ACK-16")
def test_a_copy_does_not_wait_with_the_first() -> None:
    asking = Network.asking("ebms2", ack("piggyback"))
    parcel = asking.order()
    asking.arrive(parcel)
    asking.arrive(parcel)
    assert [summary(one) for one in asking.left_messages()] == [ALONE]
    answer_by(asking, "confirm")
    assert [summary(one) for one in asking.left_messages()] == [ALONE, BARE]


def test_what_is_held_is_acknowledged_at_once() -> None:
    """It cannot be answered before its turn, and its sender must know that it arrived."""
    asking = Network.asking("window", ack("piggyback"))
    asking.arrive(asking.order(1))
    answer_by(asking, "confirm")
    assert asking.left()
    message = asking.left_messages()[0]
    assert message.header.ref_to_message_id == "order-1@alpha"
    asking.deliver("alpha", asking.left()[0])
    asking.order(2)
    asking.actions.clear()
    asking.arrive(asking.order(3))
    (held,) = asking.left_messages()
    assert (held.kind, held.header.ref_to_message_id) == (ACK, "order-3@alpha")


def test_a_response_to_somebody_else_carries_no_acknowledgement() -> None:
    asking = Network.asking("ebms2", ack("piggyback"))
    asking.arrive(asking.order())
    asking.lease()
    asking.confirm(1, response(1, of=7))
    assert [summary(one) for one in asking.left_messages()] == [ALONE, BARE]


# --- over real sockets -------------------------------------------------------------------------


@pytest.mark.requirement("SYNC-2", "SYNC-8", "ACK-16")
@pytest.mark.parametrize("bundling", ["auto", "standalone"])
async def test_an_initiator_reads_both_replies_of_one_body(tmp_path: Path, bundling: str) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk, extra = Clerk(), TOGETHER + ack(bundling)
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=extra, application=clerk) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=extra) as alpha,
    ):
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        taken: list[GivenMessage] = []
        while not taken:
            taken = await alpha.take()
        assert taken[0].header.ref_to_message_id == sent.message_id
        await alpha.confirm(taken[0].sender, taken[0].message_id)
        (acked,) = [row for row in journal(alpha) if row.kind == "acknowledged"]
        assert Acknowledged.read(acked.detail).by == "ack"
        # A copy gets the same bytes: two messages in one body.
        with alpha.engine.context.store.reader() as reader:
            stored = reader.outgoing_parcel(sent.message_id)
        assert stored is not None
        body = b"".join(part for part in stored.body if isinstance(part, bytes))
        status, kind, _ = await post(ports["beta"], body, stored.content_type)
        assert (status, kind) == (200, "multipart/mixed")
        assert not [row for row in journal(beta) if row.kind == "refused"]


@pytest.mark.requirement("ACK-16")
async def test_a_pulling_application_answers_on_the_connection(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = BOTH + ack("piggyback")
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=extra) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=extra) as alpha,
    ):
        sent = await alpha.send(order(1))
        asked: list[GivenMessage] = []
        while not asked:
            asked = await beta.take()
            await asyncio.sleep(0.01)
        await beta.send(response_to(asked[0]))
        await beta.confirm(asked[0].sender, asked[0].message_id)
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        (acked,) = [row for row in journal(alpha) if row.kind == "acknowledged"]
        assert '"by":"response"' in (acked.detail or "")
        (sent_ack,) = [row for row in journal(beta) if row.kind == "ack_sent"]
        assert acked.ref_to == sent_ack.ref_to
