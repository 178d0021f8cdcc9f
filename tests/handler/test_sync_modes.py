"""What a header may wish for on its connection, as a running receiver meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.form import Form, SyncReplyMode
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import Acknowledged, Failed
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, response
from tests.handler.running import Clerk, free_port, journal, order, post, serving

DRAFT = "ms-0.9x"


def mode(name: str) -> str:
    return f'[sync]\nmode = "{name}"\n'


async def answer_to(folder: Path, parcel: Parcel, extra: str, clerk: Clerk) -> tuple[int, Message]:
    """What a running handler of beta says to a request, on its connection."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with serving(
        folder, "beta", "alpha", ports, profile=DRAFT, extra=extra, application=clerk
    ):
        status, kind, body = await post(ports["beta"], parcel.body, parcel.content_type)
    # The client drops the parameters of a Content-Type; the first line is the boundary.
    boundary = body.split(b"\r\n", 1)[0][2:].decode()
    return status, codec.read(Parcel(f'{kind}; boundary="{boundary}"', body)).message


def wishing(wish: str, extra: str = "", **changes: object) -> Parcel:
    """A request of alpha, with another header than alpha would write."""
    asking = Network.asking(DRAFT, extra)
    asked = codec.read(
        asking.order(**({"best_effort": True} if wish == "none due" else {}))
    ).message
    header = replace(asked.header, **changes)  # type: ignore[arg-type]
    return codec.write(replace(asked, header=header), Form(dialect=asked.dialect))


def errors(message: Message) -> list[tuple[str, str, str]]:
    assert message.error_list is not None
    return [(one.code, one.location, one.severity.value) for one in message.error_list.errors]


ASKS = {"sync_reply": SyncReplyMode.SIGNALS_AND_RESPONSE}
REFUSED = ("Inconsistent", "//SyncReply", "Error")


@pytest.mark.requirement("SYNC-12", "SYNC-13")
async def test_a_wish_nobody_agreed_to_is_refused_on_the_connection(tmp_path: Path) -> None:
    clerk = Clerk()
    status, message = await answer_to(tmp_path, wishing("any", **ASKS), "", clerk)
    assert (status, message.kind) == (200, MessageKind.ERROR)
    assert errors(message) == [("Inconsistent", "//Header/SyncReply", "Error")]
    assert clerk.asked == []


@pytest.mark.requirement("SYNC-12", "SYNC-14")
async def test_a_reply_that_asks_for_a_synchronous_reply_is_refused(tmp_path: Path) -> None:
    clerk, extra = Clerk(), mode("signalsAndResponse")
    parcel = wishing("any", extra, **ASKS, ref_to_message_id="earlier@beta")
    status, message = await answer_to(tmp_path, parcel, extra, clerk)
    assert (status, message.kind, errors(message)) == (200, MessageKind.ERROR, [REFUSED])
    assert clerk.asked == []


@pytest.mark.requirement("SYNC-12", "SYNC-19")
async def test_an_error_uri_is_refused_on_the_connection(tmp_path: Path) -> None:
    clerk, extra = Clerk(), mode("signalsAndResponse")
    asked = codec.read(wishing("any", extra)).message
    hop = replace(asked.routing[-1], error_uri="http://alpha/errors")
    parcel = codec.write(replace(asked, routing=(hop,)), Form(dialect=asked.dialect))
    status, message = await answer_to(tmp_path, parcel, extra, clerk)
    assert (status, message.kind) == (200, MessageKind.ERROR)
    assert errors(message) == [("Inconsistent", "//ErrorURI", "Error")]
    assert clerk.asked == []


@pytest.mark.requirement("SYNC-4", "SYNC-12")
async def test_a_response_alone_is_refused_where_an_acknowledgement_is_due(tmp_path: Path) -> None:
    clerk, extra = Clerk(), mode("responseOnly")
    status, message = await answer_to(tmp_path, wishing("any", extra), extra, clerk)
    assert (status, message.kind, errors(message)) == (200, MessageKind.ERROR, [REFUSED])
    assert clerk.asked == []


@pytest.mark.requirement("SYNC-4")
async def test_a_response_alone_comes_back_alone(tmp_path: Path) -> None:
    clerk, extra = Clerk(), mode("responseOnly")
    status, message = await answer_to(tmp_path, wishing("none due", extra), extra, clerk)
    assert (status, message.kind) == (200, MessageKind.NORMAL)
    assert message.header.ref_to_message_id == "order-1@alpha"
    assert message.acknowledgments == ()


@pytest.mark.requirement("SYNC-3")
@pytest.mark.parametrize("profile", ["ebms2", DRAFT])
async def test_acknowledgements_alone_and_the_response_on_a_connection_of_its_own(
    tmp_path: Path, profile: str
) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk, extra = Clerk(open_desk=False), mode("mshSignalsOnly")
    async with (
        serving(
            tmp_path, "beta", "alpha", ports, profile=profile, extra=extra, application=clerk
        ) as beta,
        serving(tmp_path, "alpha", "beta", ports, profile=profile, extra=extra) as alpha,
    ):
        sent = await alpha.send(order(1))
        # Delivered before the application has said a word.
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        clerk.desk.set()
        taken: list[GivenMessage] = []
        while not taken:
            taken = await alpha.take()
        assert taken[0].header.ref_to_message_id == sent.message_id
        (acked,) = [
            row
            for row in journal(alpha)
            if row.kind == "acknowledged" and row.message_id == sent.message_id
        ]
        assert Acknowledged.read(acked.detail).by == "ack"
        # The response came by the web, not as a reply.
        (came,) = [row for row in journal(alpha) if row.kind == "received"]
        assert came.transport == "http"
        assert [row.ref_to for row in journal(beta) if row.kind == "ack_sent"] == [acked.ref_to]


@pytest.mark.requirement("SYNC-5", "SYNC-6", "SYNC-7")
@pytest.mark.parametrize("profile", ["ebms2", DRAFT])
def test_both_acknowledgements_that_are_due_are_in_the_response(profile: str) -> None:
    """The To Party is also the last handler on the way, and both were asked."""
    extra = mode("signalsAndResponse") + '[ack]\nhop_request = "Unsigned"\n'
    asking = Network.asking(profile, extra)
    awaited = asking.ask()
    asking.lease()
    asking.confirm(1, response(1))
    reply = codec.read(asking.reply(awaited)).message
    assert len(reply.acknowledgments) == (2 if profile == "ebms2" else 1)
    assert {one.ref_to_message_id for one in reply.acknowledgments} == {"order-1@alpha"}


@pytest.mark.requirement("SYNC-17", "SYNC-18")
def test_an_initiator_does_not_ask_twice_and_is_told() -> None:
    """Its connection ran out: the message is sent once, ends unknown, and somebody hears it."""
    pair = Network.pair(DRAFT, mode("signalsAndResponse"), lose_answer=lambda number: True)
    pair.send()
    pair.pass_time(*[60 * SECOND] * 5)
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-1@alpha")
        kinds = [row.kind for row in reader.journal_of("order-1@alpha")]
    assert stored is not None
    assert stored.outgoing.state is OutgoingState.UNKNOWN
    assert kinds.count("sent") == 1
    assert [one.message_id for one in pair.notices] == ["order-1@alpha"]


@pytest.mark.requirement("SYNC-17", "SYNC-18", "ERR-9")
def test_the_time_out_that_a_receiver_reports_ends_a_request_that_is_not_repeated() -> None:
    asking = Network.asking(DRAFT, mode("signalsAndResponse"))
    late = asking.bytes_of(asking.beta.overdue(asking.ask()))
    asking.settle("beta")
    asking.hear(1, late)
    assert asking.state(1) is OutgoingState.UNKNOWN
    (row,) = asking.rows("rejected", at="alpha")
    assert "communication protocol time-out" in (row.detail or "")
    (failed,) = asking.rows("failed", at="alpha")
    assert Failed.read(failed.detail).outcome == "unknown"


@pytest.mark.requirement("SYNC-18", "CPA-11", "CPA-12")
@pytest.mark.parametrize(("conflict", "reliable"), [("a", False), ("c", True), ("d", True)])
def test_a_response_is_best_effort_only_where_the_agreement_bears_that(
    conflict: str, reliable: bool
) -> None:
    """Where nothing is repeated a response goes once. One that contradicts the agreement by
    that would be warned of, or refused, by the very party that waits for it."""
    extra = f'{mode("signalsAndResponse")}retries = "none"\n[delivery]\nheader_conflict = '
    asking = Network.asking(DRAFT, f'{extra}"{conflict}"\n')
    awaited = asking.ask()
    asking.lease()
    asking.confirm(1, response(1))
    reply = asking.reply(awaited)
    assert codec.read(reply).message.reliable is reliable
    asking.hear(1, reply)
    assert asking.state(1) is OutgoingState.DELIVERED
    assert not asking.rows("refused", "warning_sent", at="alpha")
    taken = asking.alpha.hand_over(10, 60 * SECOND)
    assert [one.message_id for one in taken] == ["response-1@beta"]
