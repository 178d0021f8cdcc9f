"""A document that is agreed to be compressed is compressed in a thread, whichever way it is sent.

The compressor of these tests waits until the event loop has gone on: in the loop itself it would
wait in vain, however quick the machine is.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.entry.control.client import LocalHandler, OfflineStore
from oncewire.handler.actions import Submission
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.sending import outgoing_document
from oncewire.handler.sending.submit import handed_in
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.wire.mime.compression import compressed
from tests.handler.network import agreement_text
from tests.handler.running import Wire
from tests.handler.test_spooling import node_of

EXTRA = (
    '[payload]\nmax_size = 100_000\ncompress = "gzip"\n'
    '[wire]\nextensions = ["split", "compression"]\n'
)
TEXT = b"".join(b"line %d of a long document\n" % number for number in range(40_000))


def submission(text: bytes = TEXT, cpa_id: str = "alpha-beta") -> Submission:
    payload = Payload.of("doc", "text/plain", text)
    return Submission(cpa_id, Service("urn:test:orders"), "New", (payload,))


class Compressor:
    """Compresses when the loop has seen that it began; tells who compressed where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.seen = threading.Event(), threading.Event()
        self.beside: list[bool] = []
        monkeypatch.setattr(outgoing_document, "compressed", self)

    def __call__(self, pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
        self.began.set()
        # Whoever waits here in the loop keeps the watcher from ever setting this.
        self.beside.append(self.seen.wait(5))
        yield from compressed(pieces, encoding)

    async def watch(self) -> None:
        """A task of the loop like any other."""
        while not self.began.is_set():
            await asyncio.sleep(0)
        self.seen.set()


@asynccontextmanager
async def watching(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Compressor]:
    compressor = Compressor(monkeypatch)
    watcher = asyncio.create_task(compressor.watch())
    try:
        yield compressor
    finally:
        watcher.cancel()


@pytest.mark.requirement("BIG-2")
async def test_what_a_command_or_a_program_sends_is_compressed_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Handler(node_of(tmp_path / "b.db", EXTRA), {"http": Wire()}) as handler:
        async with watching(monkeypatch) as compressor:
            await LocalHandler(handler).send(submission())
        assert compressor.beside == [True]


async def test_so_is_what_is_handed_in_while_no_handler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_rest = OfflineStore(Engine(node_of(tmp_path / "b.db", EXTRA)))
    async with watching(monkeypatch) as compressor:
        await at_rest.send(submission())
    assert compressor.beside == [True]
    await at_rest.close()


async def test_so_is_a_response_of_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that takes a message may answer it with a document as large as any."""
    node = node_of(tmp_path / "b.db", EXTRA)
    async with Handler(node, {"http": Wire()}) as handler:
        heard: list[tuple[Submission, ...]] = []
        confirm = lambda _sender, _id, given: bool(heard.append(tuple(given)) or True)  # noqa: E731
        monkeypatch.setattr(handler.engine, "confirm", confirm)
        async with watching(monkeypatch) as compressor:
            await handler.confirm("urn:test:alpha", "m", (submission(),))
        assert compressor.beside == [True]
        assert heard[0][0].payloads[0].size == len(TEXT)


async def test_eight_megabytes_cost_the_loop_little_of_its_processor_time(tmp_path: Path) -> None:
    """Counted in processor time of the loop's own thread, against the same work done there."""
    text = random.Random(8).randbytes(4_000_000).hex().encode()
    before = time.thread_time()
    assert sum(map(len, compressed([text], "gzip"))) < len(text)
    needed = time.thread_time() - before
    async with Handler(node_of(tmp_path / "b.db", EXTRA), {"http": Wire()}) as handler:
        before = time.thread_time()
        await LocalHandler(handler).send(submission(text))
        spent = time.thread_time() - before
    assert spent < needed / 2, f"the loop worked for {spent:.3f} s of {needed:.3f} s"


async def test_what_was_compressed_for_one_partner_is_not_taken_for_another(tmp_path: Path) -> None:
    """The same document may go to two partners at once, each with an agreement of its own."""
    node = node_of(tmp_path / "b.db", EXTRA)
    plain = EXTRA.replace('compress = "gzip"\n', "")
    text = agreement_text("beta", "gamma", "ebms2", plain)
    other = read_toml(text.replace('"alpha-beta"', '"beta-gamma"'))
    node.agreements = Agreements([*node.agreements, other])
    engine = Engine(node)
    async with handed_in(node, (submission(),)) as compressing:
        sent = [
            engine.submit(submission(cpa_id=cpa_id)).message_id
            for cpa_id in (other.cpa_id, "alpha-beta")
        ]
        engine.commit()
        compressing.kept = True
    assert node.state.compressed == {}
    with node.store.reader() as reader:
        totals = [reader.document("", message_id).total for message_id in sent]  # type: ignore[union-attr]
    # Compressed it fits into fewer parts; the partner who did not agree on that gets all of it.
    assert totals[0] == -(-len(TEXT) // 100_000) > totals[1]
    node.store.close()
