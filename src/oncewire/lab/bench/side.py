"""Side: one party of a benchmark, as a process of its own that does what it is told.

    python -m oncewire.lab.bench.side FOLDER

A line of JSON on standard input is a task, a line of JSON on standard output its result; it ends
with its standard input. The party is opened as a program opens it: where its handler runs in
another process already, this one pushes through the control socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from oncewire.entry.files import make_folder
from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.running import serving
from oncewire.lab.bench.exchange import RECEIVER, Task, latency, name_of, obey, peak_mb, push_for
from oncewire.store.spool import Removal

if TYPE_CHECKING:
    from oncewire.entry.running.open_party import OpenParty

PATIENCE = 120.0
TAKE = 64


# Counting: what a process asks of SQLite and of the disk, whatever the store is made of.
#
# It costs time, so what is counted is never what is timed.

_TROUBLES = (
    "SELECT ifnull(sum(kind = 'sent' AND attempt > 1), 0), "
    "ifnull(sum(kind IN ('send_failed', 'transient')), 0) FROM journal_row"
)
"""Attempts beyond the first, and failed attempts, by the journal."""


class Counting:
    """Statements, rows written and commits of every connection that is opened from now on.

    A commit is an fsync: the log is written through at each of them (`synchronous=FULL`).
    """

    def __init__(self) -> None:
        self._statements = self._commits = 0
        self._connections: list[apsw.Connection] = []
        apsw.connection_hooks.append(self._connections.append)

    def begin(self) -> None:
        """Count statements and commits from now on."""

        def statement(_: dict[str, Any]) -> None:
            self._statements += 1

        def commit() -> bool:
            self._commits += 1
            return False

        for connection in self._open():
            connection.trace_v2(apsw.SQLITE_TRACE_STMT, statement)
            connection.set_commit_hook(commit)

    def totals(self) -> dict[str, int]:
        """All counts so far."""
        rows = sum(connection.total_changes() for connection in self._open())
        retries = failed = 0
        for connection in self._open():
            # One that is no store's has no journal.
            with contextlib.suppress(apsw.SQLError):
                more, lost = next(iter(connection.execute(_TROUBLES)))
                retries, failed = retries + int(more), failed + int(lost)
        return {
            "statements": self._statements,
            "rows": rows,
            "fsyncs": self._commits,
            "retries": retries,
            "failed_attempts": failed,
        }

    def _open(self) -> list[apsw.Connection]:
        found = []
        for connection in self._connections:
            try:
                connection.total_changes()
            except apsw.ConnectionClosedError:
                continue
            found.append(connection)
        return found


class Side:
    """The tasks: a method for the name of each, behind a `_`."""

    def __init__(self, party: OpenParty, counting: Counting) -> None:
        self._party, self._counting = party, counting
        self._taking: asyncio.Task[None] | None = None
        self._taken = 0
        self._removal = Removal()
        # When the first of them came, by a clock that all processes of this machine share.
        self._first_at: float | None = None

    async def do(self, task: Task) -> Task:
        """One task."""
        done: Task = await getattr(self, f"_{task['do']}")(task)
        return done

    async def _push(self, task: Task) -> Task:
        """Send documents for so many seconds, so many of them at a time; each counts when its
        acknowledgement is stored."""
        document = b"<line>7 boxes</line>" * (task["size"] // 20 + 1)
        document = document[: task["size"]]
        options = SendOptions(conversation_id="bench")
        names = cycle([name_of(RECEIVER, number) for number in range(task.get("partners", 1))])

        async def one() -> None:
            sent = await self._party.send(
                next(names), document, media_type="application/xml", options=options
            )
            outcome = await self._party.wait(sent.message_id, timeout=PATIENCE)
            if outcome != "delivered":
                raise RuntimeError(f"a message of the benchmark was {outcome}")

        return await push_for(task, one)

    async def _take(self, _: Task) -> Task:
        """Begin to take and confirm whatever arrives."""

        async def take() -> None:
            while True:
                given = await self._party.take(TAKE)
                if given and self._first_at is None:
                    self._first_at = time.monotonic()
                await asyncio.gather(*(self._party.confirm(message) for message in given))
                self._taken += len(given)
                if not given:
                    await asyncio.sleep(0.01)

        self._taking = asyncio.ensure_future(take())
        return {}

    async def _document(self, task: Task) -> Task:
        """Send a file; it counts when its acknowledgement is stored."""
        began = time.perf_counter()
        sent = await self._party.send(RECEIVER, Path(task["path"]))
        outcome = await self._party.wait(sent.message_id, timeout=10 * PATIENCE)
        if outcome != "delivered":
            raise RuntimeError(f"the document of the benchmark was {outcome}")
        return {"seconds": time.perf_counter() - began}

    async def _collect(self, task: Task) -> Task:
        """Take whatever waits, write it into a folder and confirm it; digests of the large ones,
        and how long it took. The files go again."""
        from oncewire.entry.delivery.directory import put_message

        folder, digests, seconds = make_folder(Path(task["folder"])), [], 0.0
        while given := await self._party.take(TAKE):
            for message in given:
                began = time.perf_counter()
                files = await asyncio.to_thread(put_message, folder, message)
                await self._party.confirm(message)
                if message.payloads[0].size > 1024 * 1024:
                    seconds += time.perf_counter() - began
                    digests.append(await asyncio.to_thread(_digest, files[0]))
                for file in files:
                    await asyncio.to_thread(self._removal.remove, file)
        return {"digests": digests, "seconds": seconds}

    async def _trickle(self, task: Task) -> Task:
        """Send small documents at that rate for so many seconds, whatever becomes of the others."""
        took: list[float] = []

        async def one() -> None:
            began = time.perf_counter()
            sent = await self._party.send(RECEIVER, b"<line>7 boxes</line>" * 100)
            await self._party.wait(sent.message_id, timeout=PATIENCE)
            took.append(time.perf_counter() - began)

        begun = []
        for _ in range(int(task["rate"] * task["seconds"])):
            begun.append(asyncio.ensure_future(one()))
            await asyncio.sleep(1 / task["rate"])
        await asyncio.gather(*begun)
        return latency(took)

    async def _count(self, _: Task) -> Task:
        """Count from now on what is asked of the store."""
        self._counting.begin()
        return {}

    async def _spent(self, _: Task) -> Task:
        """What this process has cost so far."""
        return {
            "processor": time.process_time(),
            "peak_mb": peak_mb(),
            "taken": self._taken,
            "first_at": self._first_at,
            **self._counting.totals(),
        }

    async def close(self) -> None:
        """Stop taking documents."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


async def run(folder: Path, counting: Counting) -> None:
    """Open the party and do what is asked of it."""
    from oncewire.entry.running.open_party import open_party

    async with open_party(folder) as party:
        side = Side(party, counting)
        try:
            await obey(side.do)
        finally:
            await side.close()


def main(arguments: list[str]) -> None:
    """The entry point of the process."""
    # Before anything is opened.
    counting = Counting()
    with contextlib.suppress(KeyboardInterrupt):
        serving.run(run(Path(arguments[0]), counting))


if __name__ == "__main__":
    main(sys.argv[1:])
