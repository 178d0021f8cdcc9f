"""The journal over HTTP: ranges of it as NDJSON or Arrow, and what is added as server-sent events.

A position is a `seq`, so a client that comes back says where it was (`after`, or Last-Event-ID) and
misses nothing. One task looks for new rows, however many listen.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from oncewire.journal.row import COLUMNS, SCHEMA, Row

if TYPE_CHECKING:
    from oncewire.store.contract import Reader

Readers = Callable[[], AbstractContextManager["Reader"]]

PAGE = 500
"""Rows that are read at once: a view of the store is for one short question."""

RANGE = 1_000
RANGE_MAX = 100_000

LOOK_EVERY = 0.25
"""Seconds between two looks for new rows."""

SIGN_OF_LIFE = 15.0
"""Seconds of silence after which a listener is told that the connection lives."""

NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"


async def pages(readers: Readers, after: int, limit: int) -> AsyncIterator[list[Row]]:
    """At most `limit` rows after a position."""
    while limit > 0:
        rows = await asyncio.to_thread(_since, readers, after, min(PAGE, limit))
        if not rows:
            return
        after, limit = rows[-1].seq, limit - len(rows)
        yield rows


def _since(readers: Readers, after: int, limit: int) -> list[Row]:
    with readers() as reader:
        return reader.journal_since(after, limit)


def _last(readers: Readers) -> int:
    with readers() as reader:
        return reader.last_seq()


def facts_of(row: Row) -> dict[str, Any]:
    """A row as JSON has it; columns that are empty are left out."""
    return {name: value for name, value in zip(COLUMNS, row, strict=True) if value is not None}


async def as_lines(found: AsyncIterator[list[Row]]) -> AsyncIterator[bytes]:
    """Rows as lines of JSON."""
    async for rows in found:
        yield "".join(json.dumps(facts_of(row)) + "\n" for row in rows).encode()


async def as_arrow(found: AsyncIterator[list[Row]]) -> AsyncIterator[bytes]:
    """Rows as a stream of Arrow batches, with the columns' own types."""
    import pyarrow

    schema = pyarrow.schema(
        [
            pyarrow.field(
                each.name, pyarrow.int64() if each.type is int else pyarrow.utf8(), each.nullable
            )
            for each in SCHEMA
        ]
    )
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        async for rows in found:
            columns = [
                pyarrow.array(values, field.type)
                for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            yield _drained(sink)
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    """What was written since the last time."""
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


class Feed:
    """Follows the journal for all listeners."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._last = 0
        self._grown = asyncio.Condition()
        self._looking: asyncio.Task[None] | None = None
        # By session or token.
        self.listeners = Counter[str]()

    async def events(
        self, who: str, after: int | None, may: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Events behind a position (None: from now on), while the listener still `may`."""
        async with self._listening(who):
            position = self._last if after is None else after
            # Tells the listener at once that it is heard.
            yield b": oncewire journal\n\n"
            while may():
                rows = await asyncio.to_thread(_since, self._readers, position, PAGE)
                if rows:
                    position = rows[-1].seq
                    yield "".join(
                        f"id: {row.seq}\nevent: {row.kind}\ndata: {json.dumps(facts_of(row))}\n\n"
                        for row in rows
                    ).encode()
                elif not await self._wait(position, SIGN_OF_LIFE):
                    yield b": still here\n\n"

    async def positions(
        self, who: str, every: float, may: Callable[[], bool]
    ) -> AsyncIterator[int]:
        """The newest position: whenever it changes, at most once a second, and at least so often,
        while the listener still `may`."""
        async with self._listening(who):
            position = self._last
            while may():
                yield position
                await asyncio.sleep(1.0)
                await self._wait(position, every)
                position = self._last

    @asynccontextmanager
    async def _listening(self, who: str) -> AsyncIterator[None]:
        """Count a listener, and poll the journal while there is one."""
        self.listeners[who] += 1
        try:
            if self._looking is None:
                self._last = await asyncio.to_thread(_last, self._readers)
                self._looking = asyncio.create_task(self._look())
            yield
        finally:
            self.listeners[who] -= 1
            if not self.listeners[who]:
                del self.listeners[who]
            if not self.listeners and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _wait(self, position: int, patience: float) -> bool:
        """Wait for rows after a position; False where none came in time."""
        async with self._grown:
            try:
                async with asyncio.timeout(patience):
                    await self._grown.wait_for(lambda: self._last > position)
            except TimeoutError:
                return False
            return True

    async def _look(self) -> None:
        """Look for new rows, for all who listen."""
        while True:
            found = await asyncio.to_thread(_last, self._readers)
            if found != self._last:
                async with self._grown:
                    self._last = found
                    self._grown.notify_all()
            await asyncio.sleep(LOOK_EVERY)


def told_position(text: str) -> Iterator[int]:
    """The position that a Last-Event-ID says, if it is one."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        yield int(text)
