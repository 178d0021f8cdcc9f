"""Files as one transport: a parcel is written, renamed into place, and found there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable

from oncewire.errors import OncewireError, TransportProblem
from oncewire.transport.budget import OverBudget, ReaderShare, ReaderVisit
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OnDelivery,
    Outage,
    OutcomeKind,
    Peer,
    Reply,
    Verdict,
    verdict_of,
)
from oncewire.transport.files import remote as named
from oncewire.transport.files.remote import (
    Connect,
    Connections,
    Place,
    Remote,
    ServerRefused,
    place_of,
)

# Reader: takes the parcels of one folder, each once, however many readers it has.
#
# A reader claims a file by renaming it, and keeps the claim until the parcel is stored or refused
# for good. A reader that dies finds its claims again under its own name. No other reader touches
# them, because only its own store can tell whether they were stored before it died.


logger = logging.getLogger("oncewire.files")

TRIES = 20
"""How often a file that ends too soon is read again: it may still be being written."""

AT_ONCE = 4
"""Files that are taken at the same time."""


PATIENCE = 60.0
"""Seconds that a server may keep us waiting for a file, and more for each part of it that came."""

SLOWEST = 1024
"""Bytes a second that a server must give at least."""

LISTING_REST, LISTING_REST_MAX = 2.0, 60.0
"""Seconds until the next look for each second that the names took to come, at most so many."""


class FolderReader:
    """Polls one folder and takes its parcels."""

    def __init__(
        self, transport: str, place: Place, connections: Connections, reader: str, every: float
    ) -> None:
        self._transport, self._place, self._connections = transport, place, connections
        self._reader, self._every = named.check_reader(reader), every
        self._cut_off: dict[str, int] = {}
        # Taken, but still there: the server could not be told any more.
        self._taken: set[str] = set()
        self._share = ReaderShare()
        # Seconds that the names took to come, at the last look.
        self._listing = 0.0
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger)

    def start(self, on_delivery: OnDelivery) -> None:
        """Begin to poll."""
        self._task = asyncio.get_running_loop().create_task(self._run(on_delivery))

    async def stop(self) -> None:
        """Stop polling; the next start finds the files that are claimed."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            # A library may lose the first: one that comes in the moment its own wait is over.
            task.cancel()
            await asyncio.wait({task}, timeout=0.1)

    async def _run(self, on_delivery: OnDelivery) -> None:
        while True:
            try:
                await self.look(on_delivery)
                self._outage.ends("a folder can be read again")
            except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
                # Whatever it is, the next look finds the same files; said once, for it comes again
                # with every look.
                told = str(problem) or type(problem).__name__
                self._outage.begins(
                    f"a folder cannot be read: {told[:200]}",
                    address=self._place.folder,
                    problem=told,
                )
            # A folder that strangers fill with names is not looked into all the time.
            rest = min(self._listing * LISTING_REST, LISTING_REST_MAX)
            await asyncio.sleep(max(self._every, rest))

    async def look(self, on_delivery: OnDelivery) -> None:
        """Take the files that are there now."""
        async with self._connections.to(self._place) as remote:
            began = time.monotonic()
            try:
                names = sorted(await remote.names(self._place.folder, self._is_ours))
            finally:
                self._listing = time.monotonic() - began
        mine = [found for name in names if (found := named.claimed_id(name, self._reader))]
        ready = [found for name in names if (found := named.ready_id(name))]
        self._taken &= set(mine)
        self._cut_off = {name: tries for name, tries in self._cut_off.items() if name in mine}
        waiting = itertools.chain(((one, True) for one in mine), ((one, False) for one in ready))

        async def some() -> None:
            # A few tasks share the list: a folder of ten thousand files makes no ten thousand
            # tasks.
            for file_id, claimed in waiting:
                await self._share.turn()
                await self._safely(self._each(file_id, on_delivery, claimed=claimed))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(some())

    async def _each(self, file_id: str, on_delivery: OnDelivery, *, claimed: bool) -> None:
        if claimed or await self._claim(file_id):
            await self._take(file_id, on_delivery)

    def _is_ours(self, name: str) -> bool:
        return bool(named.ready_id(name) or named.claimed_id(name, self._reader))

    async def _safely(self, work: Awaitable[None]) -> None:
        """Take one file; its errors are logged, and the next look tries it again."""
        try:
            await work
        except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
            logger.info("a file is looked at again later", extra={"problem": str(problem)})

    async def _claim(self, file_id: str) -> bool:
        try:
            await self._rename(named.ready_name(file_id), named.claimed_name(file_id, self._reader))
        except ServerRefused:
            # Another reader claimed it first.
            return False
        return True

    async def _take(self, file_id: str, on_delivery: OnDelivery) -> None:
        claimed = self._place.path(named.claimed_name(file_id, self._reader))
        verdict = Verdict.TAKEN
        if file_id not in self._taken:
            verdict = await self._deliver(file_id, claimed, on_delivery)
        if verdict is Verdict.TAKEN:
            self._taken.add(file_id)
            async with self._connections.to(self._place) as remote:
                await remote.remove(claimed)
            self._taken.discard(file_id)
        elif verdict is Verdict.REFUSED:
            logger.warning("a file is not taken", extra={"file": named.refused_name(file_id)})
            await self._rename(
                named.claimed_name(file_id, self._reader), named.refused_name(file_id)
            )
        if verdict is not Verdict.LATER:
            self._cut_off.pop(file_id, None)

    async def _deliver(self, file_id: str, path: str, on_delivery: OnDelivery) -> Verdict:
        reply: Reply | None = None
        with ReaderVisit(self._share) as visit:
            try:
                async with (
                    self._connections.to(self._place) as remote,
                    _reading(remote, path) as file,
                ):
                    reply = await self._hand_in(file, on_delivery, visit)
            except OverBudget:
                return Verdict.LATER
            except TransportProblem:
                # Whatever the handler made of it, half a parcel is none.
                tries = self._cut_off[file_id] = self._cut_off.get(file_id, 0) + 1
                return Verdict.LATER if tries < TRIES else Verdict.REFUSED
            except OncewireError as problem:
                logger.warning("a file holds no parcel", extra={"problem": str(problem)})
                return Verdict.REFUSED
            finally:
                self._share.note(reply, visit)
        return verdict_of(reply)

    async def _hand_in(
        self, file: AsyncIterator[bytes], on_delivery: OnDelivery, visit: ReaderVisit
    ) -> Reply:
        opened = await named.open_parcel(file)
        reply = await on_delivery(
            Delivery(
                self._transport,
                opened.content_type,
                opened.headers,
                opened.body,
                opened.length,
                Peer(address=self._place.host),
                allowance=visit,
            )
        )
        opened.body.check()
        if verdict_of(reply) is not Verdict.REFUSED:
            # To its end: only then is it known to be whole, and the connection free.
            async for _ in opened.body:
                pass
        return reply

    async def _rename(self, old: str, new: str) -> None:
        async with self._connections.to(self._place) as remote:
            await remote.rename(self._place.path(old), self._place.path(new))


@contextlib.asynccontextmanager
async def _reading(remote: Remote, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
    file = remote.read(path)
    try:
        yield _paced(file)
    finally:
        close = getattr(file, "aclose", None)
        if close is not None:
            await close()


async def _paced(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a file as they come; TimeoutError where the server gives them too slowly."""
    waited, came = 0.0, 0
    while True:
        begun = time.monotonic()
        piece = await anext(pieces, b"")
        waited, came = waited + time.monotonic() - begun, came + len(piece)
        if waited > PATIENCE + came / SLOWEST:
            raise TimeoutError("the server takes too long to give a file")
        if not piece:
            return
        yield piece


# Sweeping: a writer later removes the files that it began on a server and could not finish.
#
# A connection that breaks leaves half a file under a name that no reader takes. The name contains
# its writer, and only that writer removes it, also after a restart: files of other writers may
# still be written.


SAFE = 3600.0
"""Seconds after which a file that was begun is no longer being written."""

EVERY = 3600.0
"""Seconds between two sweeps of a folder."""


class Sweeping:
    """The files of one writer that are not finished."""

    def __init__(self, connections: Connections, mark: str) -> None:
        self._connections, self._mark = connections, mark
        self._writing: set[str] = set()
        self._looked: dict[Place, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def new_id(self) -> str:
        """The id of a new file that is being written from now on."""
        file_id = named.new_id(self._mark)
        self._writing.add(file_id)
        return file_id

    def ended(self, file_id: str) -> None:
        """Note that the file is not being written any more, whatever its outcome."""
        self._writing.discard(file_id)

    def begin(self, place: Place) -> None:
        """Sweep a folder that can be reached, unless that was done less than EVERY seconds ago."""
        now = time.monotonic()
        if now - self._looked.get(place, -EVERY) < EVERY:
            return
        self._looked[place] = now
        task = asyncio.get_running_loop().create_task(self._sweep(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self, place: Place) -> None:
        try:
            async with self._connections.to(place) as remote:
                names = await remote.names(place.folder, self._is_left)
                for name in names:
                    await remote.remove(place.path(name))
                    logger.info("a file that was never finished is removed", extra={"file": name})
        except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
            # It may be a folder into which one may write and not look; then that is its owner's.
            logger.info(
                "files that were never finished are left",
                extra={"address": place.folder, "problem": str(problem)[:200]},
            )

    def _is_left(self, name: str) -> bool:
        found = named.part_of(name, self._mark)
        if found is None or found[0] in self._writing:
            return False
        return time.time_ns() // 1000 - found[1] > SAFE * 1_000_000

    async def stop(self) -> None:
        """Stop sweeping; the next start goes on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


_REASON_LENGTH = 300


class FileTransport:
    """Puts parcels into the receiver's folder, and takes them out of our own.

    A parcel in the folder is sent; only its acknowledgement says that the receiver has it.
    """

    can_answer = False

    def __init__(
        self,
        name: str,
        schemes: dict[str, int],
        connect: Connect,
        *,
        inbox: str = "",
        reader: str = "oncewire",
        every: float = 5.0,
    ) -> None:
        self.name = name
        self._schemes = schemes
        self._connections = Connections(connect)
        # Its own connections: sends would take all of them, and wait for answers that the reader
        # could then not fetch.
        self._reading = Connections(connect)
        self._sweeping = Sweeping(self._connections, named.writer_mark(reader))
        self._reader = None
        if inbox:
            place = place_of(inbox, schemes)
            self._reader = FolderReader(name, place, self._reading, reader, every)

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to look into our folder; a server that is not there is waited for."""
        if self._reader is not None:
            self._reader.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """Write one file and rename it into place; see `Transport`."""
        renaming = False
        try:
            place = place_of(address, self._schemes)
            async with (
                asyncio.timeout(timeout),
                self._written(cargo, place) as (remote, part, ready),
            ):
                renaming = True
                await remote.rename(part, ready)
        except (TransportProblem, ServerRefused) as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, _words(problem))
        except OSError as problem:
            # Before the rename no reader takes the file; once it may have happened, one may.
            kind = OutcomeKind.UNKNOWN if renaming else OutcomeKind.REFUSED
            return AttemptOutcome(kind, _words(problem))
        self._sweeping.begin(place)
        return AttemptOutcome(OutcomeKind.SENT)

    @contextlib.asynccontextmanager
    async def _written(self, cargo: Cargo, place: Place) -> AsyncIterator[tuple[Remote, str, str]]:
        """Write a file under a name that no reader takes, and give the name that it gets; remove
        the file on any error."""
        file_id = self._sweeping.new_id()
        part = place.path(named.part_name(file_id))
        begun = False
        try:
            async with self._connections.to(place) as remote:
                begun = True
                await remote.write(part, named.file_pieces(cargo))
                yield remote, part, place.path(named.ready_name(file_id))
            self._sweeping.ended(file_id)
        except BaseException:
            self._sweeping.ended(file_id)
            if begun:
                with contextlib.suppress(TransportProblem, ServerRefused, OSError):
                    async with asyncio.timeout(5), self._connections.to(place) as remote:
                        await remote.remove(part)
            raise

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether the folder is there; see `Transport`."""
        try:
            place = place_of(address, self._schemes)
            async with asyncio.timeout(timeout), self._connections.to(place) as remote:
                await remote.names(place.folder, lambda _name: False)
        except (TransportProblem, ServerRefused, OSError) as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, _words(problem))
        return AttemptOutcome(OutcomeKind.SENT)

    async def stop(self) -> None:
        """Stop polling, and end the connections."""
        if self._reader is not None:
            await self._reader.stop()
        await self._sweeping.stop()
        await self._reading.close()
        await self._connections.close()


def _words(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "timed out"
    return (str(problem) or type(problem).__name__)[:_REASON_LENGTH]
