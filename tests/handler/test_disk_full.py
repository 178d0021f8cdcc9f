"""A disk that fills up while a large body comes: the sender keeps it, and nothing of it stays."""

from __future__ import annotations

import asyncio
import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from oncewire.errors import StoreFull
from oncewire.handler.runtime import handler as handler_module
from oncewire.handler.runtime import upkeep
from oncewire.handler.runtime.handler import Handler
from oncewire.transport.contract import Peer
from tests.handler.receiving.test_fresh import server_of
from tests.handler.running import free_port, journal, serving
from tests.handler.test_http import SYNC as FAST_SYNC
from tests.handler.test_large import MEGABYTE, TYPE, large, listening

ROOM = 3 * MEGABYTE


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """No file may grow beyond that: the system itself refuses to write on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def left_in(folder: Path) -> list[str]:
    """Files of the spool, finished or not."""
    return [file.name for spool in folder.glob("*spool*") for file in spool.iterdir()]


def spool_handles(folder: Path) -> list[str]:
    """Files of the spool that this process still holds open."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        try:
            target = str(handle.readlink())
        except OSError:
            continue
        if target.startswith(str(folder)) and "spool" in target:
            found.append(target)
    return found


def incidents(handler: Handler) -> list[str]:
    with handler.engine.context.store.reader() as reader:
        return [incident.reason for incident in reader.incidents()]


async def test_the_sender_of_a_body_that_does_not_fit_comes_back(tmp_path: Path) -> None:
    async with listening(tmp_path / "b.db") as (handler, wire):
        with full_beyond(ROOM):
            sending = large(8 * MEGABYTE)
            reply = await wire.deliver(sending.delivery())
            assert (reply.status, reply.known, reply.refused) == (503, False, False)
            assert reply.retry_after
            # One batch is heard, one is read and one is written when the disk says no.
            assert sending.given < ROOM + 4 * MEGABYTE
            assert left_in(tmp_path) == []
            assert spool_handles(tmp_path) == []
            # A small one needs no room, and is taken.
            small = large(65_536, message_id="small@alpha")
            assert (await wire.deliver(small.delivery())).status == 200
        assert any("full" in reason for reason in incidents(handler))
        assert (await wire.deliver(large(8 * MEGABYTE).delivery())).status == 200
        assert len(await handler.take()) == 2
        assert len(left_in(tmp_path)) == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_body_whose_last_step_fails_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with listening(tmp_path / "b.db") as (handler, wire):

        def fails(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        with monkeypatch.context() as broken:
            if step == "fsync":
                broken.setattr("oncewire.store.spool.os.fsync", fails)
            else:
                broken.setattr("oncewire.store.spool.Path.replace", fails)
            reply = await wire.deliver(large(4 * MEGABYTE).delivery())
            assert reply.status == 503
        assert left_in(tmp_path) == []
        assert spool_handles(tmp_path) == []
        assert not [row for row in journal(handler) if row.kind == "received"]
        assert (await wire.deliver(large(4 * MEGABYTE).delivery())).status == 200
        assert len(await handler.take()) == 1


@pytest.mark.long
async def test_what_a_full_disk_turned_away_gives_back_all_it_had(tmp_path: Path) -> None:
    """Over sockets: places, bytes in memory and bytes in the spool are free again."""
    ports = {"alpha": free_port(), "beta": free_port()}

    async def post(size: int, name: str) -> int:
        sending = large(size, message_id=name)
        headers = {"Content-Type": TYPE, "SOAPAction": '"ebXML"'}
        url = f"http://127.0.0.1:{ports['beta']}/msh"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=sending.body(), headers=headers) as reply,
        ):
            return reply.status

    async with serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as handler:
        budgets = server_of(handler)._budgets
        with full_beyond(ROOM):
            found = await asyncio.gather(
                *(post(8 * MEGABYTE, f"m-{n}@alpha") for n in range(6)),
                return_exceptions=True,
            )
            # Who is still speaking when he is told may hear that nobody listens.
            assert all(one == 503 or isinstance(one, OSError) for one in found), found
        for _ in range(500):
            if not budgets._strangers.open:
                break
            await asyncio.sleep(0.01)
        groups = (budgets._strangers, budgets._partners)
        assert [(group.open, group.spooled) for group in groups] == [(0, 0), (0, 0)]
        assert budgets.held == 0
        assert left_in(tmp_path) == []
        assert not budgets.is_known(Peer("127.0.0.1"))
        assert await post(8 * MEGABYTE, "m-0@alpha") == 200
        assert len(await handler.take()) == 1


@pytest.mark.requirement("STO-1")
async def test_the_incident_of_a_full_disk_ends_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_module, "QUIET", 0.2)
    monkeypatch.setattr(upkeep, "LOOK_EVERY", 0.05)
    async with listening(tmp_path / "b.db") as (handler, wire):
        with full_beyond(ROOM):
            assert (await wire.deliver(large(8 * MEGABYTE).delivery())).status == 503
            (reason,) = incidents(handler)
            assert "a handler that runs goes on by itself then" in reason
            # That nobody sends anything large is no proof of room.
            await asyncio.sleep(0.6)
            small = large(65_536, message_id="small@alpha")
            assert (await wire.deliver(small.delivery())).status == 200
            assert incidents(handler) == [reason]
        assert (await wire.deliver(large(8 * MEGABYTE).delivery())).status == 200
        async with asyncio.timeout(10):
            while incidents(handler):
                await asyncio.sleep(0.02)
        assert [row.kind for row in journal(handler)].count("resolved") == 1
        assert len(left_in(tmp_path)) == 1


async def test_a_trouble_from_before_the_first_look_at_incidents_is_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_module, "QUIET", 0.2)
    start = Handler.start

    async def start_on_a_full_disk(handler: Handler) -> None:
        # Its incident could not be kept.
        handler.loop.not_stored(StoreFull("no space left"))
        await start(handler)

    monkeypatch.setattr(Handler, "start", start_on_a_full_disk)
    async with listening(tmp_path / "b.db") as (handler, _):
        assert handler.outage is not None
        async with asyncio.timeout(10):
            while handler.outage is not None:
                await asyncio.sleep(0.02)


async def test_a_disk_that_was_emptied_while_nobody_ran_is_found_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(tmp_path / "b.db") as (handler, wire):
        with full_beyond(ROOM):
            assert (await wire.deliver(large(8 * MEGABYTE).delivery())).status == 503
        assert len(incidents(handler)) == 1
    monkeypatch.setattr(handler_module, "QUIET", 0.2)
    monkeypatch.setattr(upkeep, "LOOK_EVERY", 0.05)
    async with listening(tmp_path / "b.db") as (handler, _):
        async with asyncio.timeout(10):
            while incidents(handler):
                await asyncio.sleep(0.02)
