"""A body that was spooled is not cleared away before its row names it, whatever comes between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.errors import StoreFull, ValueNotRecognized
from oncewire.handler.actions import Source
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.receiving import inbound as inbound_module
from oncewire.handler.receiving.inbound import Expected, Intake, TooLarge, take_in
from oncewire.handler.runtime.handler import Handler
from oncewire.store.spool import SpoolFile
from oncewire.transport.contract import Delivery, Unlimited
from oncewire.wire.parcel import Parcel, Received
from tests.handler.running import SYNC, Wire, context_of, delivery_of, order_parcel


@pytest.fixture(autouse=True)
def spooling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every body that arrives is a file of the spool."""
    monkeypatch.setattr(inbound_module, "SPOOL_ABOVE", 0)


def node_of(path: Path, extra: str = SYNC) -> HandlerContext:
    return context_of("beta", path, extra)


def clean(node: HandlerContext) -> None:
    with node.store.reader() as reader:
        node.store.spool.remove_unreferenced(reader.spooled())


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.with_name(path.name + ".spool").iterdir())


async def test_between_spooling_and_its_commit_a_body_stays(tmp_path: Path) -> None:
    node = node_of(tmp_path / "b.db")
    handler = Handler(node, {})
    engine = handler.engine
    engine.start()
    engine.commit()
    taken = await take_in(node, delivery_of(order_parcel()))
    clean(node)
    assert len(files(tmp_path / "b.db")) == 1
    engine.receive(taken.parcel, Source("http", can_answer=True), taken.stored)
    # The row is written and not committed: who reads the store does not see it yet.
    clean(node)
    engine.commit()
    node.store.spool.let_go(taken.stored.spooled[0])
    clean(node)
    (given,) = engine.hand_over(1, 1)
    with node.store.transition() as tx:
        stored = tx.incoming(given.sender, given.message_id)
    assert stored is not None
    assert stored.parcel is not None
    assert whole_parcel(node, stored.parcel).body == taken.parcel.body
    node.store.close()


async def test_a_crash_between_spooling_and_its_commit_leaves_a_file_that_goes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "b.db"
    node = node_of(path)
    parcel = order_parcel()
    await take_in(node, delivery_of(parcel))
    # The process dies: it has not committed, and nobody lets anything go.
    node.store.close()
    node = node_of(path)
    assert len(files(path)) == 1
    # Its sender comes again, before and after the file of the first try is cleared away.
    for _ in range(2):
        again = await take_in(node, delivery_of(parcel))
        clean(node)
        assert files(path) == [again.stored.spooled[0]]
        node.store.spool.let_go(again.stored.spooled[0])
        clean(node)
        assert files(path) == []
    node.store.close()


async def test_a_handler_lets_go_of_what_it_stored_and_of_what_it_refused(tmp_path: Path) -> None:
    path, wire = tmp_path / "b.db", Wire()
    node = node_of(path)
    async with Handler(node, {"http": wire}) as handler:
        good = order_parcel()
        reply = await wire.deliver(delivery_of(good))
        assert reply.status == 200
        garbage = await wire.deliver(delivery_of(Parcel("text/xml", b"<garbage/>", ())))
        assert garbage.status == 500
        # What was refused is gone at once, what was stored stays.
        assert len(files(path)) == 1
        clean(node)
        assert len(files(path)) == 1
        (taken,) = await handler.take()
        assert taken.message_id == "order-1@alpha"


async def test_a_copy_that_arrives_while_its_first_is_swept_keeps_its_file(tmp_path: Path) -> None:
    """Both have the same bytes, so they are one file: the sweep of the one must leave it."""
    path, wire = tmp_path / "b.db", Wire()
    node = node_of(path, SYNC + '[duplicate]\nelimination = "never"\n')
    parcel = order_parcel(1, SYNC + '[duplicate]\nelimination = "never"\n')
    async with Handler(node, {"http": wire}) as handler:
        await wire.deliver(delivery_of(parcel))
        (first,) = await handler.take()
        await handler.confirm(first.sender, first.message_id)
        copy = await take_in(node, delivery_of(parcel))
        with node.store.transition() as tx:
            assert tx.sweep(2**62, 10) == 1
        node.store.commit()
        clean(node)
        handler.engine.receive(copy.parcel, Source("http", can_answer=True), copy.stored)
        handler.engine.commit()
        (second,) = await handler.take()
        assert second.message_id == first.message_id


@pytest.mark.parametrize("step", ["begin", "feed", "finish"])
async def test_who_leaves_while_his_body_is_spooled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "b.db"
    node = node_of(path)
    begun, go_on = threading.Event(), threading.Event()
    real = getattr(Intake, f"_{step}" if step == "finish" else step)

    def slow(self: Intake, *given: object) -> object:
        begun.set()
        assert go_on.wait(60)
        return real(self, *given)

    monkeypatch.setattr(Intake, f"_{step}" if step == "finish" else step, slow)
    arriving = asyncio.ensure_future(take_in(node, delivery_of(order_parcel())))
    await asyncio.to_thread(begun.wait, 60)
    arriving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await arriving
    go_on.set()
    async with asyncio.timeout(60):
        while files(path) or node.store.spool._in_use:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    node.store.close()


async def long_body(count: int, size: int, heard: list[int]) -> AsyncIterator[bytes]:
    """An order, and pieces that follow it; what was taken of them is noted."""
    yield order_parcel().body
    for number in range(count):
        heard.append(number)
        # Whatever was begun comes to its end: a sender may take his time.
        await asyncio.sleep(0.01)
        yield bytes(size)


def long_delivery(count: int, heard: list[int], size: int = inbound_module.BATCH) -> Delivery:
    return replace(delivery_of(order_parcel()), body=long_body(count, size, heard))


async def test_while_a_batch_is_taken_the_next_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more than that: a body is never piled up in memory."""
    node, heard, seen = node_of(tmp_path / "b.db"), list[int](), list[int]()
    real = Intake.feed

    def slow(self: Intake, pieces: tuple[bytes, ...]) -> None:
        sizes = [len(piece) for piece in pieces]
        assert sum(sizes) <= inbound_module.BATCH
        if sizes == [inbound_module.BATCH]:
            number = len(seen)
            deadline = time.monotonic() + 10
            while len(heard) < min(number + 2, 4) and time.monotonic() < deadline:
                time.sleep(0.001)
            # Long enough for another piece, if anybody asked for it.
            time.sleep(0.1)
            seen.append(len(heard))
        real(self, pieces)

    monkeypatch.setattr(Intake, "feed", slow)
    await take_in(node, long_delivery(4, heard))
    assert seen == [2, 3, 4, 4]
    node.store.close()


async def test_a_body_that_grows_too_large_on_its_way_leaves_nothing(tmp_path: Path) -> None:
    path, heard = tmp_path / "b.db", list[int]()
    node = node_of(path)
    node.body_max = len(order_parcel().body) + inbound_module.BATCH
    with pytest.raises(TooLarge, match="more than"):
        await take_in(node, long_delivery(9, heard))
    assert heard == [0, 1]
    assert files(path) == []
    node.store.close()


async def test_who_leaves_while_a_later_batch_is_taken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.db"
    node, heard = node_of(path), list[int]()
    begun, go_on = threading.Event(), threading.Event()
    real = Intake.feed

    def slow(self: Intake, pieces: tuple[bytes, ...]) -> None:
        if heard:
            begun.set()
            assert go_on.wait(60)
        real(self, pieces)

    monkeypatch.setattr(Intake, "feed", slow)
    arriving = asyncio.ensure_future(take_in(node, long_delivery(9, heard)))
    await asyncio.to_thread(begun.wait, 60)
    arriving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await arriving
    go_on.set()
    async with asyncio.timeout(60):
        while files(path) or node.store.spool._in_use:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    node.store.close()


@pytest.mark.parametrize("how", ["leaves", "is refused"])
async def test_nobody_waits_for_the_disk_of_one_who(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What he sent may still be on its way there, and only then can its file be closed."""
    path = tmp_path / "b.db"
    node, waited = node_of(path), list[threading.Thread]()
    real = SpoolFile.abandon

    def abandon(self: SpoolFile) -> None:
        waited.append(threading.current_thread())
        real(self)

    async def body() -> AsyncIterator[bytes]:
        yield order_parcel().body
        if how == "leaves":
            raise ConnectionResetError

    async def expects(_: Received) -> Expected:
        refused = ValueNotRecognized("nobody waits for it", location="//CPAId", remedy="")
        return Expected(refused if how == "is refused" else None)

    monkeypatch.setattr(SpoolFile, "abandon", abandon)
    delivery = replace(delivery_of(order_parcel()), body=body())
    if how == "leaves":
        with pytest.raises(ConnectionResetError):
            await take_in(node, delivery, expects)
    else:
        taken = await take_in(node, delivery, expects)
        assert taken.stored.spooled == ()
    assert waited
    assert threading.main_thread() not in waited
    assert files(path) == []
    node.store.close()


class Counting(Unlimited):
    """An allowance that knows how much is held."""

    held = 0

    def hold(self, count: int) -> bool:
        self.held += count
        return True


async def test_what_is_not_written_yet_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many bodies wait for a slow disk, all of them count."""
    node, counting, go_on = node_of(tmp_path / "b.db"), Counting(), threading.Event()
    real, whole = SpoolFile._put, order_parcel().body

    def slow(self: SpoolFile, data: bytes) -> None:
        assert go_on.wait(60)
        real(self, data)

    async def body() -> AsyncIterator[bytes]:
        yield whole
        # All of it was read by now, and none of it is written.
        assert counting.held == len(whole)
        go_on.set()

    monkeypatch.setattr(SpoolFile, "_put", slow)
    delivery = replace(delivery_of(order_parcel()), body=body(), allowance=counting)
    await take_in(node, delivery)
    assert counting.held == 0
    node.store.close()


async def test_a_batch_that_has_no_place_ends_the_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next piece, not at the next batch: a sender may take his time."""
    path = tmp_path / "b.db"
    node, heard = node_of(path), list[int]()

    def full(self: Intake, pieces: tuple[bytes, ...]) -> None:
        if len(heard) >= 8:
            raise StoreFull("the disk is full", remedy="make room")

    monkeypatch.setattr(Intake, "feed", full)
    with pytest.raises(StoreFull):
        await take_in(node, long_delivery(80, heard, inbound_module.BATCH // 8))
    # A batch is eight of them.
    assert 8 < len(heard) < 16
    assert files(path) == []
    node.store.close()


async def test_what_is_under_way_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that nobody keeps, or the last attempt of a message that was swept meanwhile."""
    monkeypatch.setattr("oncewire.handler.sending.seal.SPOOL_ABOVE", 0)
    path, wire = tmp_path / "b.db", Wire()
    node = node_of(path, "")
    async with Handler(node, {"http": wire}) as handler:
        asking = asyncio.ensure_future(handler.ping("alpha-beta", 0.1))
        async with asyncio.timeout(60):
            while not files(path):
                await asyncio.sleep(0.01)
        assert await asking is False
        clean(node)
        assert len(files(path)) == 1
        wire.gate.set()
        async with asyncio.timeout(60):
            while not wire.sent or node.store.spool._in_use:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
        clean(node)
        assert files(path) == []
    assert b"Ping" in wire.sent[0]


@pytest.mark.parametrize("above", [0, 10**6])
async def test_a_header_that_is_no_text_spoils_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: int
) -> None:
    monkeypatch.setattr(inbound_module, "SPOOL_ABOVE", above)
    wire, parcel = Wire(), order_parcel()
    node = node_of(tmp_path / "b.db")
    odd = Parcel(
        f"{parcel.content_type}; x=\udcff", parcel.body, (*parcel.headers, ("X", "\udca0"))
    )
    async with Handler(node, {"http": wire}) as handler:
        assert (await wire.deliver(delivery_of(odd))).status == 200
        (taken,) = await handler.take()
        assert taken.message_id == "order-1@alpha"
