"""NATS JetStream under the contract that every transport answers to, and what it must promise."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.errors import TransportProblem
from oncewire.transport.broker import transport as connection
from oncewire.transport.broker import transport as streams
from oncewire.transport.broker.transport import BrokerTransport
from oncewire.transport.contract import Delivery, OutcomeKind, Reply, Transport
from tests.transport.brokers import Broker, broker
from tests.transport.contract_checks import TransportContract
from tests.transport.exchange import Receiver, cargo
from tests.waiting import until

OnDelivery = Callable[[Delivery], Awaitable[Reply]]
pytestmark = pytest.mark.process


@contextlib.asynccontextmanager
async def started(
    server: Broker, receiver: OnDelivery, max_deliver: int = 50
) -> AsyncIterator[tuple[BrokerTransport, BrokerTransport, str]]:
    taking = BrokerTransport(server.settings("oncewire.beta", max_deliver=max_deliver, later=0.2))
    sending = BrokerTransport(server.settings())
    await taking.start(receiver)
    await sending.start(Receiver())
    try:
        yield sending, taking, "nats:oncewire.beta"
    finally:
        await sending.stop()
        await taking.stop()


class TestBroker(TransportContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> AsyncIterator[tuple[Transport, Transport, str]]:
        with broker(self.folder) as server:
            async with started(server, receiver) as made:
                yield made

    def nowhere(self) -> str:
        return "nats:oncewire.nobody"


@pytest.mark.requirement("RM-7")
async def test_taken_by_the_broker_is_not_delivered(tmp_path: Path) -> None:
    """It is sent when its receiver acknowledged it, which it does after its commit."""

    go_on = asyncio.Event()

    async def slow(_taken: object) -> Reply:
        await go_on.wait()
        return Reply(204)

    receiver = Receiver(slow)
    with broker(tmp_path) as server:
        async with started(server, receiver) as (sending, _, address):
            parcel = replace(cargo(b"<a/>"), once="message 1")
            sent = asyncio.create_task(sending.send(parcel, address, timeout=30))
            await until(lambda: bool(receiver.taken))
            await asyncio.sleep(0.3)
            assert not sent.done()
            go_on.set()
            assert (await sent).kind is OutcomeKind.SENT
            # Published again, it is the same parcel, and nobody gets it twice.
            again = await sending.send(parcel, address, timeout=30)
            assert again.kind is OutcomeKind.SENT
            assert len(receiver.taken) == 1
            # One that our own machine resends is for its receiver to see.
            await sending.send(cargo(b"<a/>"), address, timeout=30)
            assert len(receiver.taken) == 2


@pytest.mark.requirement("RM-8")
async def test_a_parcel_that_is_never_taken_is_reported(tmp_path: Path) -> None:
    receiver = Receiver(Reply(400, body=b"no message"))
    with broker(tmp_path) as server:
        async with started(server, receiver, 3) as (sending, _, address):
            outcome = await sending.send(cargo(b"junk"), address, timeout=30)
            assert outcome.kind is OutcomeKind.UNKNOWN
            assert "gave up after 3" in outcome.reason


@pytest.mark.requirement("RM-7")
@pytest.mark.within(100)
async def test_a_parcel_handed_to_one_that_died_is_soon_handed_in_again(tmp_path: Path) -> None:
    """A delivery is lost with its connection: when the broker dies, or the handler that took it.
    Nobody acknowledges it, so the broker waits; a sender's attempt lasts longer than that."""

    import nats

    receiver = Receiver()
    with broker(tmp_path) as server:
        # The receiver's handler has run once, so that its stream is there.
        async with started(server, receiver):
            pass
        sending = BrokerTransport(server.settings())
        await sending.start(Receiver())
        sent = asyncio.create_task(sending.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=50))
        died = await nats.connect(f"nats://127.0.0.1:{server.port}")
        pull = await died.jetstream().pull_subscribe_bind(streams.CONSUMER, NAME)
        await pull.fetch(1, timeout=20)
        await died.close()
        taking = BrokerTransport(server.settings("oncewire.beta"))
        await taking.start(receiver)
        assert (await sent).kind is OutcomeKind.SENT
        assert [taken.body for taken in receiver.taken] == [b"<a/>"]
        await sending.stop()
        await taking.stop()


async def test_a_parcel_that_is_worked_on_for_long_is_not_handed_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ACK_WAIT", 1.5)

    async def slow(_taken: object) -> Reply:
        await asyncio.sleep(6)
        return Reply(204)

    receiver = Receiver(slow)
    with broker(tmp_path) as server:
        async with started(server, receiver) as (sending, _, address):
            outcome = await sending.send(cargo(b"<a/>"), address, timeout=30)
            assert outcome.kind is OutcomeKind.SENT
            assert len(receiver.taken) == 1


@pytest.mark.long
@pytest.mark.within(100)
async def test_a_broker_that_dies_loses_nothing_and_delivers_once(tmp_path: Path) -> None:
    receiver = Receiver()
    with broker(tmp_path) as server:
        async with started(server, receiver) as (sending, _, address):
            bodies = [f"<n>{number}</n>".encode() for number in range(60)]

            async def killing() -> None:
                for _ in range(2):
                    await asyncio.sleep(0.2)
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                    await asyncio.sleep(1)

            outcomes, _ = await asyncio.gather(
                asyncio.gather(
                    *(sending.send(cargo(body), address, timeout=50) for body in bodies)
                ),
                killing(),
            )
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
            assert {taken.body for taken in receiver.taken} == set(bodies)


@pytest.mark.within(100)
async def test_an_absent_broker_is_one_line_when_it_goes_and_one_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oncewire.broker")

    receiver = Receiver()
    with broker(tmp_path) as server:
        async with started(server, receiver) as (sending, _, address):
            assert caplog.records == []
            for outages in (1, 2):
                server.kill()
                # Both wait for the broker, and so does a parcel.
                sent = asyncio.create_task(sending.send(cargo(b"<a/>"), address, timeout=60))
                await asyncio.sleep(4)
                await asyncio.to_thread(server.start)
                assert (await sent).kind is OutcomeKind.SENT
                told = [record.getMessage() for record in caplog.records]
                # Of the sender, and of the receiver.
                assert len([one for one in told if "is away" in one]) == 2 * outages
                assert len([one for one in told if "is back" in one]) == 2 * outages
                assert len(told) == 4 * outages


@pytest.mark.within(100)
async def test_a_broker_that_is_away_at_the_start_is_one_line_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAITED_FOR", 0.2)
    caplog.set_level(logging.INFO, logger="oncewire.broker")

    with broker(tmp_path) as server:
        server.kill()
        transport = BrokerTransport(server.settings("oncewire.beta"))
        await transport.start(Receiver())
        await asyncio.sleep(3)
        (line,) = caplog.records
        assert "the broker is away" in line.getMessage()
        await asyncio.to_thread(server.start)
        await until(lambda: len(caplog.records) > 1)
        assert "the broker is back" in caplog.records[1].getMessage()
        await transport.stop()


async def test_a_broker_that_answers_before_its_disk_has_it_is_refused(tmp_path: Path) -> None:
    problem = pytest.raises(TransportProblem, match="before its disk has it")
    with broker(tmp_path, sync="2m") as server, problem:
        await BrokerTransport(server.settings("oncewire.beta")).start(Receiver())


SOUND = {
    "retention": "workqueue", "storage": "file", "discard": "new", "duplicate_window": 48 * 3600,
    "deny_delete": True, "deny_purge": True, "subjects": ["oncewire.beta"],
}  # fmt: skip
NAME = "ONCEWIRE-oncewire-beta"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_age": 3600, "duplicate_window": 3600}, "messages expire"),
        ({"storage": "memory"}, "keeps messages in memory"),
        ({"retention": "limits"}, "do not leave it when they are acknowledged"),
        ({"deny_purge": False}, "may be purged"),
        ({"deny_delete": False}, "may be deleted"),
        ({"discard": "old"}, "discards old messages"),
        ({"max_msgs_per_subject": 1}, "only so many messages of a subject"),
        ({"duplicate_window": 1}, "forgets in less than 48 hours"),
        ({"subjects": ["oncewire.gamma"]}, "does not take oncewire.beta"),
        ({"allow_msg_ttl": True}, "may say when they expire"),
    ],
    ids=lambda wrong: next(iter(wrong)) if isinstance(wrong, dict) else "",
)
async def test_a_stream_that_loses_unread_messages_is_refused(
    wrong: dict, words: str, tmp_path: Path
) -> None:
    import nats

    with broker(tmp_path) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        await client.jetstream().add_stream(name=NAME, **(SOUND | wrong))
        with pytest.raises(TransportProblem, match=f"loses messages: .*{words}"):
            await BrokerTransport(server.settings("oncewire.beta")).start(Receiver())
        sending = BrokerTransport(server.settings())
        await sending.start(Receiver())
        outcome = await sending.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=10)
        assert outcome.kind is OutcomeKind.REFUSED
        assert words in outcome.reason
        await sending.stop()
        await client.close()


async def test_what_went_from_a_stream_that_was_changed_meanwhile_was_not_surely_taken(
    tmp_path: Path,
) -> None:
    """Nobody takes it, and it expires: that it is gone proves nothing any more."""

    import nats

    with broker(tmp_path) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        js = client.jetstream()
        await js.add_stream(name=NAME, **SOUND)
        sending = BrokerTransport(server.settings())
        await sending.start(Receiver())
        attempt = asyncio.ensure_future(
            sending.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=30)
        )
        while not (await js.stream_info(NAME)).state.messages:
            await asyncio.sleep(0.05)
        await js.update_stream(name=NAME, **(SOUND | {"max_age": 1, "duplicate_window": 1}))
        outcome = await attempt
        assert outcome.kind is OutcomeKind.UNKNOWN
        assert "messages expire" in outcome.reason
        await sending.stop()
        await client.close()
