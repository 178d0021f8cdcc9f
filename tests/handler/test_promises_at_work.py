"""Rules of ids, copies and failure notices, each shown by handlers that run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from oncewire.handler.actions import Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.answer import Answer
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import DeliverySemantics, Error, Message, MessageKind, Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, HOUR
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.hub.test_hub import CALM
from tests.handler.network import Network
from tests.handler.running import FAST, free_port, journal, order, serving
from tests.simulation.given import world_of
from tests.transport.exchange import read_request


def stored_parcel(pair: Network, message_id: str = "order-1@alpha") -> Parcel:
    return pair.sent(message_id)


@pytest.mark.requirement("RM-10")
def test_one_id_names_a_message_on_its_whole_way() -> None:
    simulation = world_of(Options(messages=1, hops=3, **CALM), seed=1)  # type: ignore[arg-type]
    assert simulation.run().delivered == 1
    rows = simulation.rows()
    for node in ("buyer", "hub1", "hub2", "seller"):
        kinds = {row.kind for row in rows if row.node == node and row.message_id == "order-0@buyer"}
        assert kinds & {"sent", "received"}, node
    assert {row.message_id for row in rows if row.kind == "acknowledged"} == {"order-0@buyer"}
    assert {row.message_id for row in rows if row.kind == "ack_sent"} == {"order-0@buyer"}


@pytest.mark.requirement("RM-17", "RM-16")
def test_an_arrival_is_stored_then_correlated_then_acknowledged() -> None:
    pair = Network.pair("ms-0.9x", lose_answer=lambda count: count == 1)
    pair.send()
    taken = pair.beta.hand_over(1, HOUR)
    pair.settle("beta")
    response = Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Confirm",
        (Payload.of("yes", "text/plain", b"yes"),),
        message_id="yes@beta",
        ref_to_message_id="order-1@alpha",
    )
    (stored,) = taken
    pair.beta.confirm(stored.sender, stored.message_id, [response])
    pair.settle("beta")
    rows = pair.rows()
    order_of = [
        row.kind
        for row in rows
        if row.kind in ("received", "acknowledged", "ack_sent", "duplicate")
    ]
    assert order_of == ["received", "acknowledged", "ack_sent"]
    assert pair.state("order-1@alpha") is OutgoingState.DELIVERED
    # A copy of the response is tested first, and correlates nothing a second time.
    copy = next(one for one in pair.to("alpha") if one.message.header.message_id == "yes@beta")
    pair.deliver("alpha", copy.parcel)
    with pair.alpha.context.store.reader() as reader:
        later = [row.kind for row in reader.journal_since(rows[-1].seq, 1_000)]
    assert later[0] == "duplicate"
    assert "acknowledged" not in later


@pytest.mark.requirement("RM-14")
@pytest.mark.parametrize("named", ["order-2@alpha", "never-sent@alpha"])
def test_an_acknowledgement_of_something_else_changes_nothing(named: str) -> None:
    pair = Network.pair("rm-0.78", lose_answer=lambda count: True)
    pair.send(1)
    pair.send(2)
    with pair.beta.context.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-1@alpha")
    assert arrived.answer is not None
    answer = whole_parcel(pair.beta.context, arrived.answer.parcel)
    other = answer.body.replace(b"order-1@alpha", named.encode())
    pair.deliver("alpha", Parcel(answer.content_type, other))
    assert pair.state("order-1@alpha") is OutgoingState.OUTSTANDING
    assert pair.state("order-2@alpha") is OutgoingState.WAITING


@pytest.mark.requirement("STO-4", "DUP-1", "DUP-2")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
def test_the_id_of_every_reliable_message_outlives_the_process(profile: str) -> None:
    pair = Network.pair(profile)
    pair.send()
    assert pair.take() == ["order-1@alpha"]
    copy = stored_parcel(pair)
    pair.crash("beta")
    pair.deliver("beta", copy)
    assert pair.take() == []
    assert pair.kinds("beta").count("duplicate") == 1


@pytest.mark.requirement("DUP-7")
@pytest.mark.parametrize(("policy", "answers"), [("ignore", 0), ("ack", 1)])
def test_a_copy_for_which_no_response_is_stored(policy: str, answers: int) -> None:
    """Retention removed the message with its answer; the id alone is remembered."""
    extra = f'[delivery]\npersist_duration = "PT1H"\n[duplicate]\nno_response = "{policy}"\n'
    pair = Network.pair("ms-0.9x", extra)
    pair.send()
    copy = stored_parcel(pair)
    assert pair.take() == ["order-1@alpha"]
    pair.pass_time(DAY)
    pair.beta.context.state.sweep_due_at = 0
    pair.beta.tick()
    pair.settle("beta")
    with pair.beta.context.store.transition() as tx:
        assert tx.incoming_by_id("order-1@alpha") == []
    before = len(pair.to("alpha"))
    pair.deliver("beta", copy)
    assert len(pair.to("alpha")) - before == answers
    assert pair.take() == []


@pytest.mark.requirement("DUP-11", "RM-6")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x"])
def test_a_repeated_best_effort_message_reaches_the_application_once(profile: str) -> None:
    pair = Network.pair(profile)
    pair.send(best_effort=True)
    assert pair.take() == ["order-1@alpha"]
    pair.deliver("beta", pair.to("beta")[0].parcel)
    assert pair.take() == []
    assert pair.to("alpha") == []
    # It is sent once and never recovered: no timer runs for it.
    pair.pass_time(DAY)
    assert len(pair.to("beta")) == 2


Arrive = Callable[[Parcel, Source, Callable[[Answer], None]], None]


@pytest.mark.requirement("HOP-11", "ACK-10", "ACK-12")
def test_a_hub_acknowledges_as_one_end_of_its_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world_of(Options(messages=1, hops=2, **CALM), seed=1)  # type: ignore[arg-type]
    buyer = simulation.machine("buyer")
    heard: list[Message] = []
    arrive = buyer.door.arrive

    def tapped(parcel: Parcel, source: Source, respond: Callable[[Answer], None]) -> None:
        heard.append(codec.read(parcel).message)
        arrive(parcel, source, respond)

    monkeypatch.setattr(buyer.door, "arrive", tapped)
    assert simulation.run().delivered == 1
    (ack,) = [one for one in heard if one.kind is MessageKind.ACKNOWLEDGMENT]
    header = ack.header
    assert str(header.service) == (
        "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment"
    )
    assert [str(header.from_party), str(header.to_party)] == ["http://hub1/msh", "http://buyer/msh"]
    assert header.ref_to_message_id == "order-0@buyer"
    assert header.semantics is DeliverySemantics.BEST_EFFORT


# --- failure notices of a hub -----------------------------------------------------------------


def notice(*, reaches: bool) -> tuple[Message, Message, Error]:
    """The failed message, the notice that the From Party got, and its error.

    The seller never answers; `reaches` says whether anything got as far as to it.
    """
    options = Options(messages=1, hops=2, retries=2, **CALM)  # type: ignore[arg-type]
    simulation = world_of(options, seed=1)
    buyer, hub, seller = (simulation.machine(name) for name in ("buyer", "hub1", "seller"))
    if reaches:
        seller.door.arrive = lambda parcel, source, respond: None  # type: ignore[method-assign]
    else:
        seller.up = False
    line: dict[str, list[Message]] = {"hub1": [], "buyer": []}
    for machine in (hub, buyer):

        def tapped(
            parcel: Parcel,
            source: Source,
            respond: Callable[[Answer], None],
            name: str = machine.name,
            arrive: Arrive = machine.door.arrive,
        ) -> None:
            line[name].append(codec.read(parcel).message)
            arrive(parcel, source, respond)

        machine.door.arrive = tapped  # type: ignore[method-assign]
    simulation.run()
    told = next(one for one in line["buyer"] if one.kind is MessageKind.ERROR)
    assert told.error_list is not None
    (error,) = told.error_list.errors
    return line["hub1"][0], told, error


@pytest.mark.requirement("ERR-5", "ERR-6", "ERR-7", "ERR-8", "HOP-9")
def test_a_hub_that_cannot_deliver_tells_the_from_party() -> None:
    failed, told, _ = notice(reaches=False)
    assert told.kind is MessageKind.ERROR
    assert str(told.header.from_party) == "urn:sim:hub1"
    assert told.header.to_party == failed.header.from_party
    assert told.header.ref_to_message_id == failed.header.message_id
    assert told.header.service is not None
    assert told.header.service.value == (
        "http://www.ebxml.org/namespaces/messageService/MessageError"
    )
    assert told.header.action == "MessageError"
    assert told.header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE


@pytest.mark.long
@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize(("reaches", "severity"), [(False, "Error"), (True, "Warning")])
def test_the_notice_says_whether_the_message_was_ever_transmitted(
    reaches: bool, severity: str
) -> None:
    _, _, error = notice(reaches=reaches)
    assert (error.code, error.severity.value) == ("DeliveryFailure", severity)


# --- over sockets -----------------------------------------------------------------------------


@pytest.mark.requirement("RTY-5")
async def test_a_connection_that_went_stale_costs_no_attempt(tmp_path: Path) -> None:
    """The peer closes every connection that the handler has put into its pool."""
    ports = {"alpha": free_port(), "beta": free_port()}
    heard = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        await read_request(reader)
        heard += 1
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", ports["beta"])
    patient = FAST.replace("PT0.3S", "PT1H")
    async with server, serving(tmp_path, "alpha", "beta", ports, extra=patient) as alpha:
        for number in range(1, 9):
            await alpha.send(order(number))
            while heard < number:
                await asyncio.sleep(0.01)
        rows = journal(alpha)
        assert sum(row.kind == "sent" for row in rows) == 8
        assert not [row for row in rows if row.kind == "send_failed"]
