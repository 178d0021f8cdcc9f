"""The business response on the connection of its request: once, in time, or said to be late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.handler.actions import Source
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.seal import stored_parcel
from oncewire.journal.check import check_journal
from oncewire.message.envelope import ErrorList, Message, MessageKind
from oncewire.message.form import Form
from oncewire.message.instant import SECOND
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.synchronous import TIMEOUT_MESSAGE, timeout_error
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network
from tests.handler.running import FAST, Clerk, free_port, journal, order, post, response_to, serving

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
SOON = BOTH + 'timeout = "PT1S"\n'
AT_WEB = Source("http", can_answer=True)

# Requests are repeated in the one, and never in the other.
PROFILES = pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])


def request(profile: str, extra: str) -> tuple[Network, Parcel]:
    """A pair, and the bytes of a request that alpha stored and that never left."""
    pair, (parcel,) = requests(profile, extra, 1)
    return pair, parcel


def requests(profile: str, extra: str, count: int) -> tuple[Network, list[Parcel]]:
    """The same for several requests: order-1@alpha, order-2@alpha and so on."""
    pair = Network.pair(profile, extra, lose_request=lambda post: True)
    pair.beta.context.application_called = True
    return pair, [pair.order(number) for number in range(1, count + 1)]


def read(content_type: str, body: bytes) -> Message:
    return codec.read(Parcel(content_type, body)).message


def state(engine: Engine, awaited: Awaited) -> IncomingState:
    with engine.context.store.transition() as tx:
        stored = tx.incoming(awaited.sender, awaited.message_id)
    assert stored is not None
    return stored.incoming.state


# --- over real sockets -------------------------------------------------------------------------


@pytest.mark.requirement("SYNC-1", "SYNC-2", "SYNC-5", "SYNC-6", "SYNC-7", "SYNC-8")
@PROFILES
async def test_the_response_comes_back_with_the_acknowledgement_in_it(
    tmp_path: Path, profile: str
) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk()
    async with (
        serving(
            tmp_path, "beta", "alpha", ports, profile=profile, extra=BOTH, application=clerk
        ) as beta,
        serving(tmp_path, "alpha", "beta", ports, profile=profile, extra=BOTH) as alpha,
    ):
        sent = [await alpha.send(order(number)) for number in range(3)]
        for one in sent:
            assert await alpha.wait(one.message_id, 20) is OutgoingState.DELIVERED
        taken = await alpha.take()
        assert [one.header.ref_to_message_id for one in taken] == clerk.asked
        assert sorted(clerk.asked) == sorted(one.message_id for one in sent)
        for one in taken:
            assert one.payloads[0].data == f"accepted {one.header.ref_to_message_id}".encode()
            await alpha.confirm(one.sender, one.message_id)
        rows = [*journal(alpha), *journal(beta)]
    assert not check_journal(rows, healed=profile == "ms-0.9x").violations
    acks = [row.ref_to for row in rows if row.kind == "ack_sent" and row.node == "beta"]
    assert acks == [one.message_id for one in taken]


@pytest.mark.requirement("DUP-5", "DUP-6")
async def test_copies_wait_with_the_first_and_get_the_same_bytes(tmp_path: Path) -> None:
    _, parcel = request("ebms2", BOTH)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False)
    async with serving(tmp_path, "beta", "alpha", ports, extra=BOTH, application=clerk) as beta:
        copies = [
            asyncio.ensure_future(post(ports["beta"], parcel.body, parcel.content_type))
            for _ in range(8)
        ]
        await clerk.called.wait()
        while sum(row.kind == "duplicate" for row in journal(beta)) < 7:
            await asyncio.sleep(0.01)
        assert not [one for one in copies if one.done()]
        clerk.desk.set()
        replies = await asyncio.gather(*copies)
        again = await post(ports["beta"], parcel.body, parcel.content_type)
    assert clerk.asked == ["order-1@alpha"]
    assert len({*replies, again}) == 1
    status, _, body = again
    assert (status, b"accepted order-1@alpha" in body) == (200, True)


@pytest.mark.requirement("SYNC-6")
async def test_without_a_response_the_acknowledgement_comes_alone(tmp_path: Path) -> None:
    _, parcel = request("ebms2", BOTH)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(answers=False)
    async with serving(tmp_path, "beta", "alpha", ports, extra=BOTH, application=clerk):
        status, kind, body = await post(ports["beta"], parcel.body, parcel.content_type)
    message = read(kind, body)
    assert (status, message.kind) == (200, MessageKind.ACKNOWLEDGMENT)
    assert message.header.ref_to_message_id == "order-1@alpha"


@pytest.mark.requirement("SYNC-17")
async def test_a_late_response_follows_on_its_own(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False)
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=FAST + SOON, application=clerk) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=FAST + SOON) as alpha,
    ):
        sent = await alpha.send(order(1))
        # The acknowledgement says that it is stored, and warns that the response is late.
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        assert await alpha.take() == []
        kinds = [row.kind for row in journal(alpha) if row.message_id == sent.message_id]
        assert kinds[-2:] == ["acknowledged", "warned"]
        assert await alpha.wait(sent.message_id, 0) is OutgoingState.DELIVERED
        clerk.desk.set()
        taken: list[GivenMessage] = []
        while not taken:
            taken = await alpha.take()
        assert taken[0].header.ref_to_message_id == sent.message_id
        await alpha.confirm(taken[0].sender, taken[0].message_id)
        assert await beta.wait(taken[0].message_id, 20) is OutgoingState.DELIVERED
        rows = [*journal(alpha), *journal(beta)]
    assert not check_journal(rows, healed=True).violations
    assert clerk.asked == [sent.message_id]


@pytest.mark.requirement("SYNC-17", "SYNC-18")
async def test_where_nothing_is_repeated_a_late_response_is_reported(tmp_path: Path) -> None:
    _, parcel = request("ms-0.9x", SOON)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False)
    async with serving(
        tmp_path, "beta", "alpha", ports, profile="ms-0.9x", extra=SOON, application=clerk
    ) as beta:
        status, _, body = await post(ports["beta"], parcel.body, parcel.content_type)
        assert (status, b'severity="Warning"' in body) == (200, True)
        assert TIMEOUT_MESSAGE.encode() in body
        clerk.desk.set()
        while not any(row.kind == "confirmed" for row in journal(beta)):
            await asyncio.sleep(0.01)
        with beta.engine.context.store.reader() as reader:
            (incident,) = reader.incidents()
    assert "its response came after the connection" in incident.reason
    assert incident.message_id == "order-1@alpha"


@pytest.mark.requirement("SYNC-18")
async def test_what_was_answered_with_a_time_out_is_not_given_when_the_application_is_free(
    tmp_path: Path,
) -> None:
    _, parcels = requests("ms-0.9x", SOON, 3)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False, batch=1)
    async with serving(
        tmp_path, "beta", "alpha", ports, profile="ms-0.9x", extra=SOON, application=clerk
    ) as beta:
        replies = [
            asyncio.ensure_future(post(ports["beta"], parcel.body, parcel.content_type))
            for parcel in parcels
        ]
        for _, _, body in await asyncio.gather(*replies):
            assert TIMEOUT_MESSAGE.encode() in body
        (first,) = clerk.asked
        clerk.desk.set()
        while not any(row.kind == "confirmed" for row in journal(beta)):
            await asyncio.sleep(0.01)
        # What comes after them finds the application free.
        fourth = requests("ms-0.9x", SOON, 4)[1][3]
        await post(ports["beta"], fourth.body, fourth.content_type)
        rows = journal(beta)
    assert clerk.asked == [first, "order-4@alpha"]
    given = [row.message_id for row in rows if row.kind == "handed_over"]
    closed = {row.message_id for row in rows if row.kind == "refused"}
    assert given == clerk.asked
    assert closed == {f"order-{number}@alpha" for number in (1, 2, 3)} - {first}


@pytest.mark.requirement("SYNC-18")
async def test_what_was_asked_by_somebody_who_hung_up_is_never_given(tmp_path: Path) -> None:
    _, parcels = requests("ms-0.9x", BOTH, 3)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False, batch=1)
    async with serving(
        tmp_path, "beta", "alpha", ports, profile="ms-0.9x", extra=BOTH, application=clerk
    ) as beta:
        first, second = (
            asyncio.ensure_future(post(ports["beta"], parcel.body, parcel.content_type))
            for parcel in parcels[:2]
        )
        await clerk.called.wait()
        while sum(row.kind == "received" for row in journal(beta)) < 2:
            await asyncio.sleep(0.01)
        (asked,) = clerk.asked
        stays, leaves = (first, second) if asked == "order-1@alpha" else (second, first)
        leaves.cancel()
        # Long before its time is up.
        async with asyncio.timeout(15):
            while not any(row.kind == "refused" for row in journal(beta)):
                await asyncio.sleep(0.01)
        clerk.desk.set()
        assert (await stays)[0] == 200
        await post(ports["beta"], parcels[2].body, parcels[2].content_type)
    assert clerk.asked == [asked, "order-3@alpha"]


def test_an_acknowledgement_that_warns_of_a_failure_is_still_one() -> None:
    """Another product's way to say so: a DeliveryFailure, Warning, beside it."""
    pair = Network.pair("ebms2", '[sync]\nmode = "mshSignalsOnly"\n')
    warned: list[Message] = []
    deliver = pair.deliver

    def warn(name: str, parcel: Parcel, **_: object) -> Answer:
        answer = deliver(name, parcel)
        assert answer.parcel is not None
        ack = codec.read(whole_parcel(pair.beta.context, answer.parcel)).message
        warned.append(replace(ack, error_list=ErrorList((timeout_error(),))))
        return Answer(200, stored_parcel(codec.write(warned[-1], Form())))

    pair.deliver = warn  # type: ignore[method-assign]
    sent = pair.send()
    assert warned
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert not pair.notices


async def test_a_reply_of_the_turn_that_looks_is_not_missed(tmp_path: Path) -> None:
    _, parcel = request("ebms2", BOTH)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False)
    async with serving(tmp_path, "beta", "alpha", ports, extra=BOTH, application=clerk) as beta:
        first = asyncio.ensure_future(post(ports["beta"], parcel.body, parcel.content_type))
        await clerk.called.wait()
        awaited = Awaited("urn:test:alpha", "order-1@alpha", 10 * SECOND)
        woken = asyncio.Event()
        connection = beta._door._replying.open(awaited, woken.set)
        answer, confirmed = await asyncio.wait_for(
            asyncio.gather(
                beta._door._reply_in_time(connection, woken, None),
                beta.confirm(awaited.sender, awaited.message_id),
            ),
            5,
        )
        assert confirmed
        assert answer.parcel is not None
        assert (await first)[2] == whole_parcel(beta.engine.context, answer.parcel).body
        clerk.desk.set()


@pytest.mark.long
async def test_stopping_answers_those_who_wait(tmp_path: Path) -> None:
    _, parcel = request("ebms2", BOTH)
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk(open_desk=False)
    async with serving(tmp_path, "beta", "alpha", ports, extra=BOTH, application=clerk):
        waiting = asyncio.ensure_future(post(ports["beta"], parcel.body, parcel.content_type))
        await clerk.called.wait()
    status, kind, body = await waiting
    message = read(kind, body)
    assert (status, message.kind) == (200, MessageKind.ACKNOWLEDGMENT)
    assert message.error_list is not None


# --- a crash between the two commits -----------------------------------------------------------


def restarted(engine: Engine) -> Engine:
    """The next run on the same store."""
    node = engine.context
    again = Engine(HandlerContext(node.name, node.store, node.agreements, node.world))
    again.context.application_called = node.application_called
    again.start()
    again.commit()
    return again


def crashed(profile: str) -> tuple[Network, Parcel, Awaited, Engine]:
    """Beta stored a request, perhaps handed it over, and was killed; its next run has begun."""
    pair, parcel = request(profile, BOTH)
    awaited = pair.beta.receive(parcel, AT_WEB).awaited
    pair.beta.commit()
    assert awaited is not None
    pair.beta.context.state.replying = {(awaited.sender, awaited.message_id)}
    assert pair.beta.hand_over(1, 60 * SECOND)
    pair.beta.commit()
    return pair, parcel, awaited, restarted(pair.beta)


@pytest.mark.requirement("SYNC-18")
def test_where_nothing_is_repeated_a_crash_closes_the_request() -> None:
    _, parcel, awaited, beta = crashed("ms-0.9x")
    assert state(beta, awaited) is IncomingState.CLOSED
    assert beta.hand_over(10, 60 * SECOND) == []
    with pytest.raises(NotAllowed):
        beta.confirm(awaited.sender, awaited.message_id)
    # A copy that the network made is not acknowledged, and not handed over either.
    copy = beta.receive(parcel, AT_WEB)
    beta.commit()
    assert (copy.parcel, copy.awaited) == (None, None)
    assert beta.hand_over(10, 60 * SECOND) == []


def test_where_it_is_repeated_the_copy_gets_the_response() -> None:
    pair, parcel, awaited, beta = crashed("ebms2")
    assert state(beta, awaited) is IncomingState.READY
    (taken,) = beta.hand_over(10, 60 * SECOND)
    beta.commit()
    assert taken.redelivered
    beta.confirm(awaited.sender, awaited.message_id, [response_to(taken)])
    beta.commit()
    answer = beta.receive(parcel, AT_WEB)
    assert answer.parcel is not None
    message = codec.read(whole_parcel(beta.context, answer.parcel)).message
    assert message.header.ref_to_message_id == awaited.message_id
    assert [one.ref_to_message_id for one in message.acknowledgments] == [awaited.message_id]
    assert not pair.verify(healed=False).violations


@pytest.mark.requirement("SYNC-17", "SYNC-18")
def test_what_was_not_handed_over_in_time_never_is() -> None:
    pair, parcel = request("ms-0.9x", BOTH)
    awaited = pair.beta.receive(parcel, AT_WEB).awaited
    pair.beta.commit()
    assert awaited is not None
    assert pair.beta.reply_to(awaited) is None
    answer = pair.beta.overdue(awaited)
    pair.beta.commit()
    assert answer.parcel is not None
    assert TIMEOUT_MESSAGE.encode() in whole_parcel(pair.beta.context, answer.parcel).body
    assert state(pair.beta, awaited) is IncomingState.CLOSED
    assert pair.take() == []


@pytest.mark.requirement("SYNC-18")
def test_what_could_not_be_closed_in_time_is_closed_when_it_would_be_given() -> None:
    """Its connection is gone, and the disk was too full to say so then."""
    pair, parcels = requests("ms-0.9x", BOTH, 2)
    gone, here = (pair.beta.receive(parcel, AT_WEB).awaited for parcel in parcels)
    assert gone is not None
    assert here is not None
    pair.beta.context.state.replying = {(here.sender, here.message_id)}
    pair.beta.commit()
    assert [one.message_id for one in pair.beta.hand_over(1, 60 * SECOND)] == [here.message_id]
    pair.beta.commit()
    assert state(pair.beta, gone) is IncomingState.CLOSED
    assert state(pair.beta, here) is IncomingState.HANDED_OVER
    assert not pair.verify(healed=False).violations


@pytest.mark.requirement("SYNC-18")
def test_what_the_application_refused_is_not_offered_again_when_its_connection_has_gone() -> None:
    pair, parcel = request("ms-0.9x", BOTH)
    awaited = pair.beta.receive(parcel, AT_WEB).awaited
    assert awaited is not None
    pair.beta.context.state.replying = {(awaited.sender, awaited.message_id)}
    assert len(pair.beta.hand_over(1, 60 * SECOND)) == 1
    assert pair.beta.still_offered(awaited.sender, awaited.message_id)
    pair.beta.context.state.replying = ()
    assert not pair.beta.still_offered(awaited.sender, awaited.message_id)
    pair.beta.commit()
    assert state(pair.beta, awaited) is IncomingState.CLOSED


@PROFILES
def test_an_application_that_comes_for_its_messages_keeps_nobody_waiting(profile: str) -> None:
    pair, parcel = request(profile, BOTH)
    pair.beta.context.application_called = False
    answer = pair.beta.receive(parcel, AT_WEB)
    pair.beta.commit()
    assert answer.awaited is None
    assert answer.parcel is not None
    again = restarted(pair.beta)
    assert len(again.hand_over(10, 60 * SECOND)) == 1
