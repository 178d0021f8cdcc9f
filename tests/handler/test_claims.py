"""Who may say what about a message, and what a handler makes of words that prove nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.errors import StoreFull
from oncewire.handler.actions import Post, PostAnswer
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import (
    Acknowledgment,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    StatusResponse,
)
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, Service
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import SendFailed
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.ebms2.blocks import SIGNAL_SERVICE
from oncewire.wire.parcel import Parcel
from tests.handler.network import HTTP, Network
from tests.handler.running import FAST, free_port, journal, order, serving
from tests.handler.samples import toml
from tests.handler.test_exchange import OTHER
from tests.handler.test_numbers_on_the_wire import Forge, accepted
from tests.handler.test_recovery_at_work import LAW
from tests.handler.test_taken_back import ORDER, agreement, engine, submit
from tests.transport.exchange import read_request

AT = "2026-01-01T00:00:00Z"


def signal_of(partner: str, kind: MessageKind, about: str, **more: object) -> Parcel:
    """What one of own's partners says about a message of own's."""
    header = Header(
        from_party=Party.of(f"urn:test:{partner}"),
        to_party=Party.of("urn:test:own"),
        cpa_id=partner,
        conversation_id="talk",
        service=Service(SIGNAL_SERVICE),
        action=kind.value,
        message_id=f"{kind.value}@{partner}",
        timestamp=1_767_225_600_000_000,
        ref_to_message_id=about if kind is MessageKind.ACKNOWLEDGMENT else "question@own",
    )
    return codec.write(Message(Dialect.EBMS2, kind, header, **more), Form())  # type: ignore[arg-type]


def acknowledgement(partner: str, about: str) -> Parcel:
    element = Acknowledgment(1_767_225_600_000_000, about, Party.of(f"urn:test:{partner}"))
    return signal_of(partner, MessageKind.ACKNOWLEDGMENT, about, acknowledgments=(element,))


def status(partner: str, about: str) -> Parcel:
    response = StatusResponse(about, MessageStatus.PROCESSED, 1_767_225_600_000_000)
    return signal_of(partner, MessageKind.STATUS_RESPONSE, about, status_response=response)


@pytest.mark.requirement("RM-14")
@pytest.mark.parametrize("claim", [acknowledgement, status])
def test_only_the_partner_it_went_to_can_say_that_it_arrived(claim: object) -> None:
    agreements = [
        toml("ebms2", '"urn:test:own"', f'"urn:test:{name}"', name) for name in ("beta", "gamma")
    ]
    desk = Network.single(*agreements, at=AT)
    desk.submit(replace(OTHER, cpa_id="beta", message_id="m@own"))
    desk.hand_in(claim("gamma", "m@own"))  # type: ignore[operator]
    assert desk.state("m@own") is OutgoingState.OUTSTANDING
    desk.hand_in(claim("beta", "m@own"))  # type: ignore[operator]
    assert desk.state("m@own") is OutgoingState.DELIVERED


@pytest.mark.requirement("DUP-2")
def test_an_error_about_other_content_is_not_the_answer_that_is_owed() -> None:
    pair = Network.pair("ebms2", lose_answer=lambda count: count == 1)
    pair.send()
    parcel = pair.to("beta")[0].parcel
    other = Parcel(parcel.content_type, parcel.body.replace(b"order 1", b"order 9"))
    pair.deliver("beta", other)
    assert pair.kinds("beta").count("refused") == 1
    assert len(pair.answers) == 2
    with pair.beta.context.store.transition() as tx:
        (owed,) = tx.answers_owed(10)
    assert owed.incoming.message_id == "order-1@alpha"


def test_a_reference_to_what_another_partner_was_sent_is_unknown() -> None:
    strict = '[wire]\nunknown_ref = "error"\n'
    alpha = engine("alpha", agreement("alpha", "beta"), agreement("alpha", "gamma") + strict)
    submit(alpha)
    gamma = engine("gamma", agreement("gamma", "alpha"))
    gamma.submit(replace(OTHER, cpa_id="alpha-gamma", ref_to_message_id=ORDER))
    (post,) = [one for one in gamma.commit() if isinstance(one, Post)]
    alpha.receive(whole_parcel(gamma.context, post.parcel), HTTP)
    alpha.commit()
    with alpha.context.store.reader() as reader:
        (refused,) = [row for row in reader.journal_since(0, 100) if row.kind == "refused"]
    assert "ValueNotRecognized" in (refused.detail or "")


@pytest.mark.requirement("RTY-1")
def test_a_slow_attempt_is_not_overtaken_by_its_own_retry() -> None:
    desk = Network.single(toml("ebms2", '"urn:test:own"', '"urn:test:beta"', "beta", LAW), at=AT)
    post = desk.submit(replace(OTHER, cpa_id="beta"))
    desk.pass_time(*[SECOND] * 200)
    assert desk.posts == [post]
    desk.hear(post, None, sent=False)
    desk.pass_time(*[SECOND] * 200)
    assert len(desk.posts) == 2


def test_a_reply_that_is_no_message_is_a_failed_attempt() -> None:
    desk = Network.single(toml("ebms2", '"urn:test:own"', '"urn:test:beta"', "beta", LAW), at=AT)
    post = desk.submit(replace(OTHER, cpa_id="beta", message_id="m@own"))
    desk.hear(post, Parcel("text/html", b"<html>welcome to the airport's network</html>"))
    (failed,) = desk.rows("send_failed")
    assert "no message" in (failed.detail or "")
    assert desk.state("m@own") is OutgoingState.OUTSTANDING


def test_a_reply_that_was_damaged_on_its_way_is_a_failed_attempt() -> None:
    desk = Network.single(toml("ebms2", '"urn:test:own"', '"urn:test:beta"', "beta", LAW), at=AT)
    post = desk.submit(replace(OTHER, cpa_id="beta", message_id="m@own"))
    whole = acknowledgement("beta", "m@own")
    stated = (("Content-Digest", f"sha-256=:{'A' * 43}=:"),)
    desk.hear(post, Parcel(whole.content_type, whole.body, stated))
    (failed,) = desk.rows("send_failed")
    assert "damaged" in (failed.detail or "")
    assert desk.state("m@own") is OutgoingState.OUTSTANDING


@pytest.mark.requirement("HDR-9", "SEQ-5")
def test_a_message_that_expired_while_it_waited_uses_no_number() -> None:
    pair = Network.pair("window", "[flow]\nwindow = 1\n", lose_answer=lambda count: True)
    pair.send(1)
    pair.send(2, time_to_live=5 * SECOND)
    pair.send(3)
    pair.lose_answer = lambda count: False
    for party in pair.engines.values():
        # No tick in between: the window opens at the very moment that finds it expired.
        party.context.world.time += 10 * SECOND  # type: ignore[attr-defined]
    pair.deliver("beta", pair.to("beta")[0].parcel)
    given = [(one.message.header.message_id, one.message.sequence) for one in pair.to("beta")]
    numbers = [sequence.number for _, sequence in given[2:] if sequence is not None]
    assert [name for name, _ in given[2:]] == ["order-3@alpha"]
    assert numbers == [1]
    assert pair.state("order-2@alpha") is OutgoingState.NOT_DELIVERED


def test_an_answer_that_could_not_be_sent_stays_owed() -> None:
    pair = Network.pair("ebms2")
    pair.lose_answer = lambda count: True
    pair.send()
    with pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id("order-1@alpha")
        assert len(tx.answers_owed(10)) == 1
    assert stored.answer is not None
    incoming = stored.incoming
    post = PostAnswer("http", "x", stored.answer.parcel, incoming.sender, incoming.message_id)
    pair.beta.answer_left(post, sent=False)
    with pair.beta.context.store.transition() as tx:
        assert len(tx.answers_owed(10)) == 1
    pair.beta.answer_left(post, sent=True)
    with pair.beta.context.store.transition() as tx:
        assert tx.answers_owed(10) == []


def test_an_attempt_whose_commit_failed_was_never_begun() -> None:
    pair = Network.pair("ebms2", LAW)
    pair.alpha.context.store.fail_next_commit(StoreFull("full"))  # type: ignore[attr-defined]
    with pytest.raises(StoreFull):
        pair.send()
    assert pair.alpha.context.state.in_flight == set()
    pair.send()
    assert pair.take() == ["order-1@alpha"]


@pytest.mark.requirement("SEQ-15")
def test_the_numbers_of_a_hop_are_told_apart_by_the_times_of_the_hop() -> None:
    """A hub numbers a stream of its own: what it sends last may have been made first."""
    forge = Forge("window")

    def hand_in(name: str, number: int, status: str, made: int, sent: int) -> bool:
        header, mark, routing = forge.base.body.partition(b"<RoutingHeaderList>")
        header = header.replace(b"00:00:00Z", b"00:00:%02dZ" % made)
        routing = routing.replace(b"00:00:00Z", b"00:00:%02dZ" % sent)
        whole = Parcel(forge.base.content_type, header + mark + routing)
        return accepted(forge.hand_in(name, number, status, of=whole))

    assert hand_in("a", 0, "Reset", made=30, sent=40)
    assert hand_in("b", 1, "Reset", made=20, sent=41)
    # The hub's restart: newer than all before on this hop, though made before all of them.
    assert hand_in("c", 0, "Reset", made=10, sent=42)
    assert forge.take() == ["a", "b", "c"]


@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize("status", [403, 500])
async def test_a_status_that_refuses_one_copy_proves_nothing_of_another(
    tmp_path: Path, status: int
) -> None:
    """The peer read the whole message before it refused: it may have it, whatever it says."""
    ports = {"alpha": free_port(), "beta": free_port()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 %d Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", ports["beta"])
    few = FAST.replace("retries = 40", "retries = 1")
    async with server, serving(tmp_path, "alpha", "beta", ports, extra=few) as alpha:
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 30) is OutgoingState.UNKNOWN
        ends = [row.detail for row in journal(alpha) if row.kind == "send_failed"]
        assert [SendFailed.read(end).outcome for end in ends] == ["unknown"] * 2


FAULT = b"""<?xml version="1.0"?><S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/">
<S:Body><S:Fault><faultcode>S:Client</faultcode><faultstring>go away</faultstring></S:Fault>
</S:Body></S:Envelope>"""


@pytest.mark.parametrize(
    ("security", "lost", "state"),
    [
        ("", (), OutgoingState.NOT_DELIVERED),
        # The first copy may have arrived: whoever refuses the second says nothing of it.
        ("", (False,), OutgoingState.OUTSTANDING),
        # It certainly did not: the fault is about the only one that did.
        ("", (True,), OutgoingState.NOT_DELIVERED),
        # A Fault is signed by nobody.
        ("[security]\nrequire_signature = true\n", (), OutgoingState.OUTSTANDING),
    ],
)
def test_a_fault_ends_a_message_only_where_it_can_be_believed(
    security: str, lost: tuple[bool, ...], state: OutgoingState
) -> None:
    desk = Network.single(
        toml("ebms2", '"urn:test:own"', '"urn:test:beta"', "beta", LAW + security), at=AT
    )
    desk.submit(replace(OTHER, cpa_id="beta", message_id="m@own"))
    for number, certain in enumerate(lost, 1):
        ended = Transmission("m@own", number, sent=not certain, certain=certain, reason="away")
        desk.engine.transmission_over(ended)
        desk.pass_time(60 * SECOND)
    assert len(desk.posts) == 1 + len(lost)
    desk.hear(desk.posts[-1], Parcel("text/xml", FAULT))
    assert desk.state("m@own") is state
    assert desk.verify(healed=False).violations == ()
