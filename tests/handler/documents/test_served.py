"""Documents in parts between running handlers: flat memory, and one copy on each disk."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.runtime.handler import Handler
from oncewire.journal.check import check_journal
from oncewire.journal.row import Row
from oncewire.protocol.states import OutgoingState
from oncewire.store.sqlite.reader import SqliteReaders
from tests.handler.running import FAST, free_port, serving
from tests.handler.test_streams import MEGABYTE, LongContent, read, submission

PARTS = FAST + '[wire]\nextensions = ["split", "compression"]\n[payload]\nmax_size = '


async def take_one(beta: Handler) -> GivenMessage:
    """The document, as soon as its files are proved."""
    for _ in range(200):
        found = await beta.take()
        if found:
            return found[0]
        await beta.loop.do("look", lambda: None)
        time.sleep(0.02)
    raise AssertionError("nothing came")


async def passed(alpha: Handler, beta: Handler, content: LongContent) -> None:
    sent = await alpha.send(submission(content))
    assert await alpha.wait(sent.message_id, 60) is OutgoingState.DELIVERED
    taken = await take_one(beta)
    (payload,) = taken.payloads
    assert taken.message_id == sent.message_id
    assert (payload.size, payload.digest) == (content.size, content.digest())
    assert read(payload) == content.digest()
    await beta.confirm(taken.sender, taken.message_id)


@pytest.mark.long
@pytest.mark.within(120)
@pytest.mark.parametrize("compress", ["", 'compress = "gzip"\n'])
async def test_it_is_once_on_each_disk_and_nowhere_in_memory(tmp_path: Path, compress: str) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = f"{PARTS}{MEGABYTE}\n{compress}"
    size = 20 * MEGABYTE
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=extra) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=extra) as alpha,
    ):
        await passed(alpha, beta, LongContent(2 * MEGABYTE))
        tracemalloc.start()
        try:
            await passed(alpha, beta, LongContent(size))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 40 * MEGABYTE
        for side in ("alpha", "beta"):
            folder = tmp_path / f"{side}.db.spool"
            kept = sum(file.stat().st_size for file in folder.iterdir())
            assert kept < 1.1 * (size + 2 * MEGABYTE)
    rows = [*rows_of(tmp_path / "alpha.db"), *rows_of(tmp_path / "beta.db")]
    assert check_journal(rows, healed=True).clean


def rows_of(store: Path) -> list[Row]:
    readers = SqliteReaders(store)
    try:
        with readers.reader() as reader:
            return reader.journal_since(0, 1_000_000)
    finally:
        readers.close()
