"""Files as one transport: a parcel is written, renamed into place, and found there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from oncewire.errors import TransportProblem
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind
from oncewire.transport.files import parcel_file as named
from oncewire.transport.files.reader import FolderReader
from oncewire.transport.files.remote import (
    Connect,
    Connections,
    Place,
    Remote,
    ServerRefused,
    place_of,
)
from oncewire.transport.files.sweeping import Sweeping

_REASON_LENGTH = 300


class FileTransport:
    """Puts parcels into the receiver's folder, and takes them out of our own.

    A parcel that lies in its place is sent; that somebody has it, its acknowledgement says.
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
        # Its own: whoever sends a thousand waits for their answers, which nobody would read.
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
            # Nobody looks at what has no name yet; once it may have one, somebody may.
            kind = OutcomeKind.UNKNOWN if renaming else OutcomeKind.REFUSED
            return AttemptOutcome(kind, _words(problem))
        self._sweeping.begin(place)
        return AttemptOutcome(OutcomeKind.SENT)

    @contextlib.asynccontextmanager
    async def _written(self, cargo: Cargo, place: Place) -> AsyncIterator[tuple[Remote, str, str]]:
        """A file that nobody looks at yet, and the name that it gets; else it is removed."""
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
        """Look no more, and end the connections."""
        if self._reader is not None:
            await self._reader.stop()
        await self._sweeping.stop()
        await self._reading.close()
        await self._connections.close()


def _words(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "timed out"
    return (str(problem) or type(problem).__name__)[:_REASON_LENGTH]
