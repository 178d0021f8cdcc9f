"""One party as a process of its own: a handler on SQLite with an application on both sides of it.

It submits orders whose ids a restart repeats, writes what arrives to a ledger before it
confirms, says what it does as JSON lines, and stops on SIGTERM. It is told everything by one
`Settings`; `python -m tests.handler.processes.party FILE` reads them from a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import OncewireError, StoreProblem
from oncewire.handler.actions import Accepted, Notice, Submission
from oncewire.handler.context import HandlerContext, KillPoints
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.store.contract import Store
from oncewire.store.postgresql.reader import PostgresReaders
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.running import http_on

logger = logging.getLogger("party")

LOOK_EVERY = 0.05
"""Seconds between two looks at the store: for work, and for something to say."""


FAILED = 70
"""The status with which a process ends whose handler has failed."""


def open_store(folder: Path, name: str, lease: float | None = None) -> Store:
    """A party's store: in the database that a file names, or in a file; `lease`: beside other
    handlers of the party."""
    server, file = folder / f"{name}.url", folder / f"{name}.db"
    if server.exists():
        spool = folder / f"{name}.db.spool"
        return PostgresStore(server.read_text(), node=name, spool=spool, lease=lease)
    return SqliteStore(file, node=name)


def open_readers(folder: Path, name: str) -> SqliteReaders | PostgresReaders:
    """Views of it."""
    server = folder / f"{name}.url"
    if server.exists():
        return PostgresReaders(server.read_text())
    return SqliteReaders(folder / f"{name}.db")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a party is told."""

    name: str
    folder: str
    listen: int
    # The agreements, as TOML.
    agreements: list[str]
    cpa_id: str = ""
    orders: int = 0
    # How many orders are submitted at once; the next ones follow when these are stored.
    batch: int = 4
    # The length of an order's document.
    size: int = 40
    # How many messages the application takes at once.
    take: int = 16
    # Whether the application is called; otherwise it asks.
    called: bool = False
    # Whether it answers every order with a document.
    responds: bool = False
    # Whether an operator stands by, who resumes what was suspended.
    operator: bool = False
    # Seconds of its lease, where handlers of the party work beside each other.
    lease: float | None = None
    # Names this run of the process in everything it says.
    run: int = 0
    environment: dict[str, str] = field(default_factory=dict)


def document(number: int, size: int) -> bytes:
    """The document of an order: known by its number alone, so that anybody can check it."""
    return f"order {number} ".encode().ljust(size, b".")


def order_id(name: str, number: int) -> str:
    """The MessageId of an order, the same after every restart."""
    return f"order-{number:05}@{name}"


def _submission(settings: Settings, number: int) -> Submission:
    data = document(number, settings.size)
    return Submission(
        settings.cpa_id,
        Service("urn:test:orders"),
        "New",
        (Payload.of(f"order-{number}", "text/plain", data),),
        conversation_id="talk",
        message_id=order_id(settings.name, number),
    )


def _response(settings: Settings, taken: GivenMessage) -> Submission:
    return Submission(
        settings.cpa_id,
        Service("urn:test:orders"),
        "Accepted",
        (Payload.of("response", "text/plain", taken.message_id.encode()),),
        conversation_id=taken.header.conversation_id,
        ref_to_message_id=taken.message_id,
    )


class Ledger:
    """The application's own book. A line is there for good once `write` returns: the process
    may be killed, and the kernel keeps what it was given."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.batch, self._settings = settings.take, settings
        self.hears = True
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **entry: object) -> None:
        os.write(self._file, (json.dumps(entry) + "\n").encode())

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission]:
        """The application is called with a message, and may answer an order."""
        digest = hashlib.sha256(b"".join(payload.data or b"" for payload in taken.payloads))
        self.write(id=taken.message_id, redelivered=taken.redelivered, digest=digest.hexdigest())
        if not self._settings.responds or taken.header.ref_to_message_id is not None:
            return ()
        return (_response(self._settings, taken),)

    async def notify(self, notice: Notice) -> None:
        """The application hears that a message of its own failed."""
        self.write(failed=notice.message_id, state=notice.outcome.value)


class Party:
    """The process: one handler, and who works with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        folder = Path(settings.folder)
        self.ledger = Ledger(folder / f"{settings.name}.ledger", settings)
        store = open_store(folder, settings.name, settings.lease)
        agreements = Agreements([read_toml(text) for text in settings.agreements])
        self.handler = Handler(
            HandlerContext(settings.name, store, agreements, RealWorld()),
            {"http": http_on(settings.listen)},
            application=self.ledger if settings.called else None,
            kill=KillPoints.from_environment(),
        )
        self.submitted = self.repeated = 0
        self._said: dict[str, object] = {}

    async def run(self) -> None:
        """Work until SIGTERM."""
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await self.handler.start()
        self.say(event="started")
        work = [self._submit(), self._report()]
        if not self.settings.called:
            work.append(self._consume())
        if self.settings.operator:
            work.append(self._operate())
        tasks = [asyncio.create_task(one) for one in work]
        failed = asyncio.create_task(self.handler.supervisor.failed())
        failed.add_done_callback(lambda task: None if task.cancelled() else os._exit(FAILED))
        await stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.handler.stop()
        self.say(event="stopped")

    def say(self, **words: object) -> None:
        """One line, in one piece, even where several processes write to one pipe."""
        os.write(1, (json.dumps({"run": self.settings.run, **words}) + "\n").encode())

    async def _submit(self) -> None:
        settings = self.settings
        for first in range(0, settings.orders, settings.batch):
            numbers = range(first, min(first + settings.batch, settings.orders))
            accepted = await asyncio.gather(*(self._send(number) for number in numbers))
            self.submitted += len(accepted)
            self.repeated += sum(one.repeated for one in accepted)

    async def _send(self, number: int) -> Accepted:
        """Send an order; as long as the store is away, again: its id is the same each time."""
        while True:
            try:
                return await self.handler.send(_submission(self.settings, number))
            except StoreProblem:
                await asyncio.sleep(LOOK_EVERY)

    async def _consume(self) -> None:
        """Take and confirm; never ask for nothing, so that every take has something to keep."""
        while True:
            if self._counts().get("in.ready"):
                taken = await self.handler.take(self.settings.take)
                for one in taken:
                    await self.ledger.deliver(one)
                await asyncio.gather(
                    *(self.handler.confirm(one.sender, one.message_id) for one in taken)
                )
            else:
                await asyncio.sleep(LOOK_EVERY)

    async def _operate(self) -> None:
        """Somebody who looks at the incidents and says that the trouble is over."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            with self.handler.engine.context.store.reader() as reader:
                incidents = reader.incidents()
            for incident in incidents:
                if incident.channel is not None:
                    await self.handler.loop.operate(
                        partial(Engine.resume, channel=incident.channel)
                    )

    def _counts(self) -> dict[str, int]:
        with self.handler.engine.context.store.reader() as reader:
            return {name: count for name, count in reader.counts().items() if count}

    async def _report(self) -> None:
        """Say how things stand whenever that has changed."""
        while True:
            try:
                counts = self._counts()
            except OncewireError as problem:
                logger.warning("no look at the store: %s", problem)
                counts = {}
            words = {"submitted": self.submitted, "repeated": self.repeated, "counts": counts}
            if words != self._said:
                self._said = dict(words)
                self.say(event="state", **words)
            await asyncio.sleep(LOOK_EVERY)


def main(settings: Settings) -> None:
    """Be a party until the end."""
    os.environ.update(settings.environment)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s %(exc_info)s")
    asyncio.run(Party(settings).run())


if __name__ == "__main__":
    main(Settings(**json.loads(Path(sys.argv[1]).read_text())))
