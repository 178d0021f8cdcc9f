"""Handlers over real sockets: good traffic goes on whatever strangers send."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.agreement.toml import read_toml
from oncewire.errors import UnknownMessage
from oncewire.message.envelope import (
    AckRequested,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    Reference,
)
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, Service
from oncewire.protocol.states import OutgoingState
from oncewire.store.sqlite.store import SqliteStore
from oncewire.wire import codec
from tests.handler.network import Network, agreement_text
from tests.handler.running import FAST, free_port, journal, order, post, serving
from tests.store.faulty_vfs import FaultyVfs

NOW = 1_900_000_000_000_000


def message(number: int = 1, **changes: object) -> Message:
    header = Header(
        from_party=Party.of("urn:test:alpha"),
        to_party=Party.of("urn:test:beta"),
        cpa_id="alpha-beta",
        conversation_id="talk",
        service=Service("urn:test:orders"),
        action="New",
        message_id=f"m-{number}@alpha",
        timestamp=NOW,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
        duplicate_elimination=True,
        sync_reply_as_agreed=True,
    )
    payload = Payload.of("doc", "text/plain", f"document {number}".encode())
    return Message(
        Dialect.EBMS2,
        MessageKind.NORMAL,
        replace(header, **changes),  # type: ignore[arg-type]
        ack_requested=(AckRequested(),),
        manifest=(Reference("cid:doc"),),
        payloads=(payload,),
    )


def parcel(number: int = 1, **changes: object) -> codec.Parcel:
    return codec.write(message(number, **changes), Form())


SYNC = FAST + '[sync]\nmode = "mshSignalsOnly"\n'


def bad_inputs() -> list[tuple[str, bytes, str, int, str]]:
    """What was sent, and the status and the word that must come back."""
    good = parcel()
    expired = parcel(7, time_to_live=NOW - 10**15)
    stranger = parcel(8, from_party=Party.of("urn:test:mallory"))
    other_cpa = parcel(9, cpa_id="nobody-knows")
    wrong_to = parcel(10, to_party=Party.of("urn:test:beta", "urn:odd:type"))
    bomb = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    return [
        ("garbage", b"\x00\xff not a message at all", "text/plain", 500, "Fault"),
        ("html", b"<html><body>hello</body></html>", "text/html", 500, "Fault"),
        ("empty", b"", "text/xml", 500, "Fault"),
        ("doctype", bomb, "text/xml", 500, "Fault"),
        ("truncated", good.body[: len(good.body) // 3], good.content_type, 500, "Fault"),
        ("wrong agreement", other_cpa.body, other_cpa.content_type, 200, "ValueNotRecognized"),
        ("stranger", stranger.body, stranger.content_type, 200, "ValueNotRecognized"),
        ("wrong type of To", wrong_to.body, wrong_to.content_type, 200, "Inconsistent"),
        ("expired", expired.body, expired.content_type, 200, "TimeToLiveExpired"),
        (
            "part missing",
            good.body.replace(b"<doc>", b"<cod>"),
            good.content_type,
            200,
            "MimeProblem",
        ),
    ]


async def test_bad_input_gets_its_error_is_journaled_and_harms_nothing(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    async with serving(tmp_path, "beta", "alpha", ports, extra=SYNC) as beta:
        for name, body, content_type, status, word in bad_inputs():
            got, _, answer = await post(ports["beta"], body, content_type)
            assert (got, word.encode() in answer) == (status, True), (name, got, answer[:400])
        assert (
            sum(one.count for one in beta.engine.context.state.refusals.counted)
            == len(bad_inputs()) - 1
        )
        # Only what names an agreement of ours has a row; whoever else it was has none.
        refused = [row for row in journal(beta) if row.kind == "refused"]
        assert len(refused) == 5
        assert not [row for row in journal(beta) if row.kind == "received"]
        async with serving(tmp_path, "alpha", "beta", ports, extra=SYNC) as alpha:
            sent = await alpha.send(order(1))
            assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        (taken,) = await beta.take()
        assert taken.payloads[0].data == b"order 1"


@pytest.mark.requirement("TRN-2")
async def test_a_response_to_v0_078_has_no_body_whatever_was_posted(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    good = Network.pair("rm-0.78")
    good.lose_request = lambda post: True
    sent = good.send()
    whole = good.sent(sent.message_id)
    kind, body = whole.content_type, whole.body
    posted = [
        ("garbage", b"\x00\xff not a message at all", 400),
        ("empty", b"", 400),
        ("cut off in its header", body[: len(body) // 3], 400),
        ("no XML", body.replace(b"</ebXMLHeader>", b"</ebXML>"), 400),
        ("without a MessageId", body.replace(b"MessageId", b"MessageIt"), 400),
        ("of a stranger", body.replace(b"urn:test:alpha", b"urn:test:mallory"), 400),
        # Its sender is known, who is told by a POST of our own.
        ("without its payload", body.replace(b"<order-1>", b"<redro-1>"), 204),
    ]
    async with serving(tmp_path, "beta", "alpha", ports, profile="rm-0.78") as beta:
        for name, cut, wanted in posted:
            status, _, answer = await post(ports["beta"], cut, kind)
            assert (status, answer) == (wanted, b""), name
        # Where only the header tells what it is, too.
        for header in (b'<ebXMLHeader version="0.21" MessageType="Normal">', b"<ebXMLHeader/>"):
            status, _, answer = await post(ports["beta"], header, "text/xml")
            assert (status, answer) == (400, b""), header
        assert await beta.take() == []


async def test_unsigned_where_a_signature_is_agreed(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = SYNC + "[security]\nrequire_signature = true\n"
    async with serving(tmp_path, "beta", "alpha", ports, extra=extra) as beta:
        sent = parcel(3)
        status, _, answer = await post(ports["beta"], sent.body, sent.content_type)
        assert status == 200
        assert b"SecurityFailure" in answer
        assert await beta.take() == []


async def test_a_body_larger_than_allowed(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}

    async with serving(
        tmp_path,
        "beta",
        "alpha",
        ports,
        extra=SYNC,
        change=lambda node: setattr(node, "body_max", 10_000),
    ) as beta:
        big = message(4)
        payload = Payload.of("doc", "text/plain", b"x" * 50_000)
        body = codec.write(replace(big, payloads=(payload,)), Form())
        status, _, _ = await post(ports["beta"], body.body, body.content_type)
        assert status == 413
        assert await beta.take() == []


@pytest.mark.requirement("TRN-1", "TRN-2", "SYNC-1", "SYNC-3")
@pytest.mark.parametrize("profile", ["ebms2", "window", "rm-0.78"])
async def test_acknowledgements_on_a_connection_of_their_own(tmp_path: Path, profile: str) -> None:
    """The response to the POST is empty; the acknowledgement is a POST of its own."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        serving(tmp_path, "beta", "alpha", ports, profile=profile) as beta,
        serving(tmp_path, "alpha", "beta", ports, profile=profile) as alpha,
    ):
        sent = [await alpha.send(order(number)) for number in range(1, 6)]
        for one in sent:
            assert await alpha.wait(one.message_id, 20) is OutgoingState.DELIVERED
        taken = []
        while len(taken) < 5:
            taken += await beta.take()
        # No order is agreed, and each travels on a connection of its own.
        assert {one.message_id for one in taken} == {one.message_id for one in sent}
        assert len(taken) == len(sent)


async def test_an_outcome_of_the_turn_that_looks_is_not_missed(tmp_path: Path) -> None:
    """Looking finds the message under way, and the same turn ends it."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with serving(tmp_path, "alpha", "beta", ports) as alpha:
        sent = await alpha.send(order(1))
        state, _ = await asyncio.gather(
            alpha.wait(sent.message_id, 10),
            alpha.loop.operate(lambda engine: engine.abandon(sent.message_id)),
        )
        assert state in {OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN}
        with pytest.raises(UnknownMessage):
            await alpha.wait("nothing", 10)


@pytest.mark.long
@pytest.mark.requirement("STO-1")
@pytest.mark.parametrize("fault", ["full", "write", "sync"])
async def test_what_was_not_stored_is_not_acknowledged(tmp_path: Path, fault: str) -> None:
    """The N-th write or fsync fails, for N = 1, 2, 3, ... until one pass meets no fault."""
    for number in range(1, 400):
        folder = tmp_path / str(number)
        folder.mkdir()
        vfs = FaultyVfs()
        ports = {"alpha": free_port(), "beta": free_port()}
        async with serving(folder, "beta", "alpha", ports, extra=SYNC, vfs=vfs.name):
            vfs.fail(fault, number)
            answers = []
            for count in range(3):
                sent = parcel(count)
                answers.append(await post(ports["beta"], sent.body, sent.content_type))
            struck, statuses = vfs.struck, [status for status, _, _ in answers]
            vfs.heal()
            # Space returned: everything goes on, and what was refused is accepted now.
            for count in range(3):
                sent = parcel(count)
                status, _, answer = await post(ports["beta"], sent.body, sent.content_type)
                assert status == 200
                assert b"Acknowledgment" in answer
        assert set(statuses) <= {200, 503}, statuses
        acknowledged = [n for n, (status, _, _) in enumerate(answers) if status == 200]
        store = SqliteStore(folder / "beta.db")
        with store.transition() as tx:
            for count in acknowledged:
                assert tx.incoming("urn:test:alpha", f"m-{count}@alpha") is not None
        store.close()
        if not struck:
            print(f"{fault}: {number - 1} faults injected, one by one")
            assert number > 3
            return
    raise AssertionError("no pass without a fault")


async def test_copies_on_many_connections_at_once(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    async with serving(tmp_path, "beta", "alpha", ports, extra=SYNC) as beta:
        sent = parcel(5)
        answers = await asyncio.gather(
            *(post(ports["beta"], sent.body, sent.content_type) for _ in range(24))
        )
        assert {status for status, _, _ in answers} == {200}
        assert len({body for _, _, body in answers}) == 1
        assert [one.message_id for one in await beta.take()] == ["m-5@alpha"]
        assert await beta.take() == []


def test_the_agreements_of_these_tests_can_be_read() -> None:
    assert read_toml(agreement_text("alpha", "beta", "ebms2", SYNC)).cpa_id == "alpha-beta"


async def test_a_large_document_goes_through_the_spool_on_both_sides(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    content = bytes(range(256)) * 16_384
    async with (
        serving(tmp_path, "beta", "alpha", ports) as beta,
        serving(tmp_path, "alpha", "beta", ports) as alpha,
    ):
        big = Payload.of("drawing", "application/octet-stream", content)
        sent = await alpha.send(replace(order(1), payloads=(big,)))
        assert await alpha.wait(sent.message_id, 60) is OutgoingState.DELIVERED
        (taken,) = await beta.take()
        assert taken.payloads[0].data == content
    for name in ("alpha", "beta"):
        (file,) = (tmp_path / f"{name}.db.spool").glob("*")
        assert len(file.name) == 64
        assert (tmp_path / f"{name}.db").stat().st_size < len(content)
