"""Bodies that are too large to be held: header first, then straight to the disk, or away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oncewire.handler.actions import Submission
from oncewire.handler.receiving import inbound
from oncewire.handler.receiving.inbound import BATCH, Intake, take_in
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.envelope import Payload
from oncewire.message.form import Form
from oncewire.message.ids import Party, Service
from oncewire.protocol.states import OutgoingState
from oncewire.transport.contract import Delivery
from oncewire.wire import codec
from tests.handler.network import Network
from tests.handler.running import SYNC, Wire, free_port, journal, serving
from tests.handler.test_http import SYNC as FAST_SYNC
from tests.handler.test_http import message
from tests.handler.test_signed import signed_pair
from tests.handler.test_spooling import files, node_of

MEGABYTE = 1024 * 1024
TYPE = 'multipart/related; type="text/xml"; boundary="large"'


@dataclass
class Sending:
    """A body that nobody holds, and of which is known how much was asked for."""

    head: bytes
    filler: bytes
    size: int
    tail: bytes
    given: int = field(default=0)

    def pieces(self) -> Iterator[bytes]:
        yield self.head
        for _ in range(self.size // len(self.filler)):
            yield self.filler
        yield self.tail

    async def body(self) -> AsyncIterator[bytes]:
        for piece in self.pieces():
            self.given += len(piece)
            yield piece

    def digest(self) -> str:
        whole = hashlib.sha256()
        for piece in self.pieces():
            whole.update(piece)
        return f"sha-256=:{base64.b64encode(whole.digest()).decode()}:"

    def delivery(self, **headers: str) -> Delivery:
        said = {"SOAPAction": '"ebXML"'}
        said |= {key.replace("_", "-"): value for key, value in headers.items()}
        return Delivery("http", TYPE, said, self.body(), can_answer=True)


def large(size: int = 8 * MEGABYTE, **changes: object) -> Sending:
    """An order with a document of so many bytes."""
    small = codec.write(message(1, **changes), Form(), boundary="large")
    head, tail = small.body.split(b"document 1")
    return Sending(head, b"0123456789abcdef" * 4096, size, tail)


@asynccontextmanager
async def listening(path: Path, extra: str = SYNC) -> AsyncIterator[tuple[Handler, Wire]]:
    wire = Wire()
    async with Handler(node_of(path, extra), {"http": wire}) as handler:
        yield handler, wire


async def test_a_large_body_goes_to_the_disk_and_none_of_it_stays_in_memory(tmp_path: Path) -> None:
    node = node_of(tmp_path / "b.db")
    sending = large(48 * MEGABYTE)
    # Whatever is made once is made.
    await take_in(node, large(2 * MEGABYTE).delivery())
    tracemalloc.start()
    try:
        taken = await take_in(node, sending.delivery(Content_Digest=sending.digest()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < SPOOL_ABOVE + 4 * BATCH
    assert taken.reading is not None
    assert taken.reading.intact
    (payload,) = taken.reading.message().message.payloads
    assert payload.size == 48 * MEGABYTE
    assert payload.data is None
    assert payload.digest == hashlib.sha256(sending.filler * (48 * 16)).hexdigest()
    assert taken.stored.size == sending.given
    node.state.reading_room.close()
    node.store.close()


async def test_a_large_message_is_taken_and_handed_over_whole(tmp_path: Path) -> None:
    async with listening(tmp_path / "b.db") as (handler, wire):
        sending = large(3 * MEGABYTE)
        reply = await wire.deliver(sending.delivery(Content_Digest=sending.digest()))
        assert reply.status == 200
        assert b"Acknowledgment" in reply.body
        (taken,) = await handler.take()
        assert taken.payloads[0].data == sending.filler * 48
        (row,) = [row for row in journal(handler) if row.kind == "received"]
        assert row.size == 3 * MEGABYTE
        # A copy is known for what it is, by digests that were made on the way.
        again = await wire.deliver(large(3 * MEGABYTE).delivery())
        assert again.body == reply.body
        assert await handler.take() == []
        assert len(files(tmp_path / "b.db")) == 1


async def test_whom_nobody_knows_is_refused_by_his_header(tmp_path: Path) -> None:
    async with listening(tmp_path / "b.db") as (handler, wire):
        stranger = large(from_party=Party.of("urn:test:mallory"))
        reply = await wire.deliver(stranger.delivery())
        assert reply.status == 200
        assert b"ValueNotRecognized" in reply.body
        assert reply.refused
        # What made it large, and no more than was already on its way.
        assert stranger.given < SPOOL_ABOVE + 2 * BATCH
        # Whose digest shows that it is what he sent is told the same, though it takes longer.
        stated = large(from_party=Party.of("urn:test:mallory"))
        reply = await wire.deliver(stated.delivery(Content_Digest=stated.digest()))
        assert b"ValueNotRecognized" in reply.body
        other = large(cpa_id="nobody-knows")
        assert b"ValueNotRecognized" in (await wire.deliver(other.delivery())).body
        assert files(tmp_path / "b.db") == []
        assert not [row for row in journal(handler) if row.kind == "received"]


async def test_a_body_that_was_damaged_is_not_refused_for_what_it_does_not_say(
    tmp_path: Path,
) -> None:
    """The name that nobody knows may be the damage: its sender has to come again."""
    async with listening(tmp_path / "b.db") as (handler, wire):
        digest = large().digest()
        damaged = large(cpa_id="alpha-bexa")
        reply = await wire.deliver(damaged.delivery(Content_Digest=digest))
        assert (reply.status, reply.body) == (400, b"")
        later = large()
        later.tail = later.tail.replace(b"--large--", b"--larve--")
        assert (await wire.deliver(later.delivery(Content_Digest=digest))).status == 400
        assert files(tmp_path / "b.db") == []
        assert (await wire.deliver(large().delivery(Content_Digest=digest))).status == 200
        assert len(await handler.take()) == 1


async def test_what_cannot_be_read_is_refused_where_that_shows(tmp_path: Path) -> None:
    async with listening(tmp_path / "b.db") as (_, wire):
        broken = large()
        broken.head = broken.head.replace(b"<eb:CPAId>", b"<eb:CPAIt>")
        reply = await wire.deliver(broken.delivery())
        assert reply.status == 500
        assert b"Fault" in reply.body
        assert broken.given < SPOOL_ABOVE + 2 * BATCH
        unbounded = Sending(b"", b"x" * 65_536, 8 * MEGABYTE, b"")
        assert (await wire.deliver(unbounded.delivery())).status == 500
        assert unbounded.given < SPOOL_ABOVE + 2 * BATCH
        header = Sending(b"<a>", b"x" * 65_536, 8 * MEGABYTE, b"</a>")
        bare = Delivery("http", "text/xml", {}, header.body(), can_answer=True)
        assert (await wire.deliver(bare)).status == 500
        assert header.given < SPOOL_ABOVE + 2 * BATCH
        unnamed = large()
        unnamed.tail = unnamed.tail.replace(b"--large--", b"--large\r\nContent-ID: <doc>\r\n\r\n")
        assert b"MimeProblem" in (await wire.deliver(unnamed.delivery())).body
        assert files(tmp_path / "b.db") == []


@pytest.mark.requirement("BIG-1")
async def test_more_than_the_agreed_size_is_refused_on_its_way(tmp_path: Path) -> None:
    extra = SYNC + "[payload]\nmax_size = 2097152\n"
    async with listening(tmp_path / "b.db", extra) as (handler, wire):
        sending = large()
        reply = await wire.deliver(sending.delivery())
        assert b"MimeProblem" in reply.body
        assert b"payload_bytes" in reply.body
        assert sending.given < 2 * MEGABYTE + 3 * BATCH
        assert files(tmp_path / "b.db") == []
        assert (await wire.deliver(large(2 * MEGABYTE).delivery())).status == 200
        assert len(await handler.take()) == 1


async def test_large_documents_travel_between_handlers(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    document = bytes(range(256)) * 4096 * 5
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=FAST_SYNC) as alpha,
    ):
        payload = Payload.of("doc", "application/octet-stream", document)
        order = Submission("alpha-beta", Service("urn:test:orders"), "New", (payload,))
        sent = await alpha.send(order)
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        (taken,) = await beta.take()
        assert taken.payloads[0].data == document


def streamed(pair: Network, document: bytes) -> str:
    """Send a document from alpha to beta, which reads it as it comes."""
    payload = Payload.of("doc", "application/octet-stream", document)
    beta, deliver = pair.beta, pair.beta.receive

    def receive(parcel: codec.Parcel, source, stored=None, reading=None):  # type: ignore[no-untyped-def]
        spool = beta.context.store.spool
        intake = Intake(spool, parcel.content_type, parcel.headers, beta.context.limits)
        intake.begin()
        intake.feed([parcel.body])
        kept, read, spooled = intake.finish()
        return deliver(spooled, source, kept, read)

    beta.receive = receive  # type: ignore[method-assign]
    order = Submission("alpha-beta", Service("urn:test:orders"), "New", (payload,))
    accepted = pair.alpha.submit(order)
    pair.settle("alpha")
    return accepted.message_id


@pytest.mark.parametrize("encrypt", [False, True])
def test_what_is_signed_or_encrypted_is_checked_without_being_held(encrypt: bool) -> None:
    pair = signed_pair(signed_acks=True, encrypt=encrypt)
    document = b"0123456789abcdef" * 131_072
    message_id = streamed(pair, document)
    assert pair.state(message_id) is OutgoingState.DELIVERED
    assert pair.take() == [message_id]
    assert pair.verify().clean


async def test_the_loop_goes_on_while_a_body_of_almost_boundaries_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(tmp_path / "b.db") as (_, wire):
        sending = large(4 * MEGABYTE)
        sending.filler = (b"\r\n--larg\r\n--large-" * 4096)[:65_536]
        loop = asyncio.get_running_loop()
        turned: list[bool] = []
        sizes: list[int] = []
        feed = Intake.feed

        def read(self: Intake, given: Iterable[bytes]) -> None:
            """Read on; nobody goes on before the loop has had a turn in the meantime."""
            pieces = tuple(given)
            sizes.append(sum(map(len, pieces)))
            turn = threading.Event()
            loop.call_soon_threadsafe(turn.set)
            feed(self, pieces)
            # In the loop's own thread it would wait for itself.
            turned.append(threading.get_ident() != at_home and turn.wait(60))

        at_home = threading.get_ident()
        # What came while a thread read is its next piece: on a busy machine that is a whole batch.
        batch = 128 * 1024
        monkeypatch.setattr(inbound, "BATCH", batch)
        monkeypatch.setattr(Intake, "feed", read)
        assert (await wire.deliver(sending.delivery())).status == 200
        assert all(turned)
        # It is many pieces, and none keeps a thread, and the interpreter, for long.
        assert len(turned) > 10
        assert max(sizes[1:]) <= batch + len(sending.filler)


@pytest.mark.long
async def test_many_large_bodies_at_once_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Each may be 256 MiB, and all of them name an agreement that is really there."""
    ports = {"alpha": free_port(), "beta": free_port()}
    count, size = 40, 6 * MEGABYTE
    async with serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as beta:
        block = b"0123456789abcdef" * 4096

        async def send(number: int) -> None:
            sending = large(size)
            _, writer = await asyncio.open_connection("127.0.0.1", ports["beta"])
            head = (
                f"POST /msh HTTP/1.1\r\nHost: h\r\nContent-Type: {TYPE}\r\n"
                f"Content-Length: {size + 100_000}\r\n\r\n"
            )
            writer.write(head.encode() + sending.head)
            for _ in range(size // len(block)):
                writer.write(block)
                await writer.drain()
            # It never ends; when all are there, all are gone.
            there.append(number)
            while len(there) < count // 3:
                await asyncio.sleep(0.01)
            writer.transport.abort()

        there: list[int] = []
        await send_one_first(ports["beta"])
        tracemalloc.start()
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(send(number) for number in range(count)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < count * size // 4
        async with asyncio.timeout(20):
            while files(tmp_path / "beta.db"):
                await asyncio.sleep(0.05)
        assert await beta.take() == []


async def send_one_first(port: int) -> None:
    """Whatever is made once is made."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /msh HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n<a/>")
    await writer.drain()
    writer.close()
