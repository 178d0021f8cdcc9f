"""Reliability that is left to a broker (RM-7): its word settles a message, its silence does not,
and the machine of our own stands still."""

import asyncio
from pathlib import Path

import pytest

from oncewire.agreement.check.dangers import check
from oncewire.agreement.toml import read_toml
from oncewire.entry.control.client import LocalHandler
from oncewire.handler.runtime.handler import Handler
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Severity
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import OutgoingState
from oncewire.transport.broker import transport
from oncewire.transport.broker.transport import BrokerTransport
from oncewire.transport.contract import Delivery, Reply
from tests.handler.running import journal
from tests.handler.test_other_transports import World, by_broker, document
from tests.transport.brokers import broker

TERMS = '[delivery]\nmethod = "Transport"\ntransports = ["broker"]\npersist_duration = "PT1H"\n'
pytestmark = [pytest.mark.process, pytest.mark.long]


def delegating(world: World) -> World:
    world.profile = "ms-0.9x"
    return world


def kinds(handler: Handler, message_id: str) -> list[str]:
    return [row.kind for row in journal(handler) if row.message_id == message_id]


@pytest.mark.requirement("RM-7")
@pytest.mark.within(100)
async def test_what_the_receiver_has_committed_is_delivered_and_nobody_acknowledges(
    tmp_path: Path,
) -> None:
    async with by_broker(tmp_path, TERMS) as world, delegating(world).running() as (alpha, beta):
        sent = [await alpha.send(document(number)) for number in range(5)]
        states = [await alpha.wait(each.message_id, 30) for each in sent]
        assert states == [OutgoingState.DELIVERED] * 5
        for each in sent:
            told = kinds(alpha, each.message_id)
            assert told.count(Kind.SENT) == 1
            assert Kind.ACKNOWLEDGED in told
            assert Kind.ACK_SENT not in kinds(beta, each.message_id)
        assert len(await beta.take(10)) == 5
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.requirement("RM-7")
@pytest.mark.within(100)
async def test_a_receiver_that_is_away_is_waited_for_also_by_a_sender_that_restarts(
    tmp_path: Path,
) -> None:
    """Taken by the broker is not delivered: not before, and not after the sender came back."""

    with broker(tmp_path / "broker") as server:
        names = ("alpha", "beta")
        at = {name: {"broker": f"nats:oncewire.{name}"} for name in names}

        def ways(name: str) -> dict[str, BrokerTransport]:
            return {"broker": BrokerTransport(server.settings(f"oncewire.{name}"))}

        world = delegating(World(tmp_path, at, {name: ways(name) for name in names}, TERMS))  # type: ignore[arg-type]
        # beta was there once, so that its stream is.
        async with world.handler("beta"):
            pass
        async with world.handler("alpha") as alpha:
            sent = await alpha.send(document(1))
            assert await alpha.wait(sent.message_id, 2) is None
        world.ways = {name: ways(name) for name in names}  # type: ignore[misc]
        async with world.handler("alpha") as alpha:
            assert await alpha.wait(sent.message_id, 1) is None
            async with world.handler("beta") as beta:
                assert await alpha.wait(sent.message_id, 30) is OutgoingState.DELIVERED
                assert len(await beta.take(10)) == 1
                assert not await beta.take(10)
            assert kinds(alpha, sent.message_id).count(Kind.SENT) == 1
            assert not check_journal(journal(alpha), healed=False).violations


@pytest.mark.requirement("RM-8")
@pytest.mark.within(100)
async def test_what_the_broker_gives_up_is_told_like_any_failure(tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as server:
        at = {name: {"broker": f"nats:oncewire.{name}"} for name in ("alpha", "beta")}
        ours = {"broker": BrokerTransport(server.settings("oncewire.alpha"))}
        world = delegating(World(tmp_path, at, {"alpha": ours}, TERMS))  # type: ignore[dict-item]
        theirs = BrokerTransport(server.settings("oncewire.beta", max_deliver=3))

        async def refuses(_delivery: Delivery) -> Reply:
            return Reply(400, body=b"never")

        await theirs.start(refuses)
        async with world.handler("alpha") as alpha:
            sent = await alpha.send(document(1))
            assert await alpha.wait(sent.message_id, 30) is OutgoingState.UNKNOWN
            (notice,) = await LocalHandler(alpha).notices()
            assert "gave up after 3" in notice.reason
            assert not check_journal(journal(alpha), healed=False).violations
        await theirs.stop()


@pytest.mark.requirement("ERR-9", "RTY-17")
@pytest.mark.within(100)
async def test_what_never_left_for_want_of_a_broker_is_not_delivered_for_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WAITED_FOR", 0.2)

    with broker(tmp_path / "broker") as server:
        server.kill()
        at = {name: {"broker": f"nats:oncewire.{name}"} for name in ("alpha", "beta")}
        ours = {"broker": BrokerTransport(server.settings("oncewire.alpha"))}
        short = TERMS.replace("PT1H", "PT5S")
        world = delegating(World(tmp_path, at, {"alpha": ours}, short))  # type: ignore[dict-item]
        async with world.handler("alpha") as alpha:
            sent = await alpha.send(document(1))
            assert await alpha.wait(sent.message_id, 30) is OutgoingState.NOT_DELIVERED
            (notice,) = await LocalHandler(alpha).notices()
            assert notice.severity is Severity.ERROR
            assert "broker" in notice.reason
            assert not check_journal(journal(alpha), healed=False).violations


@pytest.mark.requirement("RM-7")
@pytest.mark.parametrize("way", ["http", "smtp", "sftp", "ftp"])
def test_a_transport_that_only_takes_messages_is_not_trusted(way: str) -> None:
    address = {"smtp": "mailto:x@y.example"}.get(way, f"{way}s://y.example/x")
    sides = "".join(
        f'[{side}]\nparty_id = "urn:test:{side}"\n{way} = "{address}"\nbroker = "nats:x"\n'
        for side in ("own", "partner")
    )

    def errors(transports: str) -> set[str]:
        text = f'cpa_id = "x"\nprofile = "ms-0.9x"\n{sides}[delivery]\nmethod = "Transport"\n'
        found = check(read_toml(f"{text}transports = [{transports}]\n"))
        return {one.key for one in found if one.severity.value == "error"}

    assert "delivery.method" in errors(f'"{way}"')
    assert "delivery.method" in errors(f'"broker", "{way}"')
    assert "delivery.method" not in errors('"broker"')


@pytest.mark.within(100)
async def test_waiting_for_one_receiver_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """However many wait at the broker, others have their places."""

    with broker(tmp_path / "broker") as server:
        at = {name: {"broker": f"nats:oncewire.{name}"} for name in ("alpha", "beta")}
        ours = {"broker": BrokerTransport(server.settings("oncewire.alpha"))}
        world = delegating(World(tmp_path, at, {"alpha": ours}, TERMS))  # type: ignore[dict-item]
        theirs = BrokerTransport(server.settings("oncewire.beta"))

        async def waits(_delivery: Delivery) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

        await theirs.start(waits)
        async with world.handler("alpha") as alpha:
            for number in range(20):
                await alpha.send(document(number))
            assert alpha.engine.context.room == 256
        await theirs.stop()
