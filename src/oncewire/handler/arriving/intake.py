"""Intake: one large body on its way into the spool, read as it passes, nothing of it held.

The header is read as soon as it is there, so the agreement can be asked before the rest comes.
Digests are made on the way. What cannot be read is not kept: the file goes at once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
from collections.abc import Iterable, Iterator

from oncewire.errors import EbxmlError, SoapFault
from oncewire.handler.reading import Reading, RefusedByTerms
from oncewire.handler.sealing.intact import stated_digest
from oncewire.handler.sealing.spooled import SpooledParcel
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Digest, Spool, SpoolFile
from oncewire.wire.codec import HeaderRead, Reader
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.refusal import PartialHeader, ReadFault


class Intake:
    """Feed it the body in a thread; look at `header` and `fault` in between.

    It may be abandoned while a thread still works on it. Then that thread clears up when it is
    done: a file that is closed under a writer's hands may be another one's a moment later.
    """

    def __init__(
        self, spool: Spool, content_type: str, headers: tuple[tuple[str, str], ...], limits: Limits
    ) -> None:
        self._spool = spool
        self._head = Parcel(content_type, b"", headers)
        self._stated = stated_digest(self._head)
        # Of what is not written any more; until then the file makes its own.
        self._digest: Digest | None = None
        self._limits = limits
        self._reader: Reader | None = None
        self._file: SpoolFile | None = None
        self._name: str | None = None
        self._at_work = threading.Lock()
        self._abandoned = False
        # The header, once it is read; nothing in it is believed yet.
        self.header: Received | None = None
        # Why the body is refused, once that is known.
        self.fault: ReadFault | None = None

    @property
    def over(self) -> bool:
        """Whether the rest need not be heard: it is refused, and no digest was stated that
        could show that it was only damaged on its way."""
        return self.fault is not None and self._stated is None

    def begin(self) -> None:
        """Open the file and the reader; StoreFull or StoreGone if there is no place."""
        with self._working():
            self._file = self._spool.begin()
            try:
                self._reader = Reader(self._head.content_type, self._head.headers, self._limits)
            except ReadFault as fault:
                self._refuse(fault)

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Take what came."""
        with self._working():
            # Many small pieces would cost many small steps.
            self._take(b"".join(pieces))

    def _take(self, piece: bytes) -> None:
        if self._reader is None or self._file is None:
            if self._digest is None:
                self._digest = hashlib.sha256()
            self._digest.update(piece)
            return
        self._file.write(piece)
        try:
            for event in self._reader.feed(piece):
                if isinstance(event, HeaderRead):
                    self.header = event.received
        except ReadFault as fault:
            too_large = getattr(fault.error, "location", "") == "payload_bytes"
            self._refuse(RefusedByTerms.of(fault) if too_large else fault)

    def refuse(self, error: EbxmlError | SoapFault) -> None:
        """The agreement does not want it, or nobody here knows its sender. Waits for the disk."""
        with self._working():
            if self.header is not None and self.fault is None:
                known = PartialHeader.of(self.header.message)
                header = self.header
                self._refuse(RefusedByTerms((error,), known, header.envelope, header.notes))

    def limit_payloads(self, size: int) -> None:
        """No payload may have more bytes than that."""
        if self._reader is not None:
            self._reader.limit_payloads(size)

    def finish(self) -> tuple[StoredParcel, Reading, Parcel]:
        """The body is over, or nobody listens any more: where it lies, and what it says."""
        with self._working():
            return self._finish()

    def _finish(self) -> tuple[StoredParcel, Reading, Parcel]:
        intact = self._stated is None or self._stated == _written(self._made())
        received: Received | None = None
        if self._reader is not None and intact:
            try:
                _, received = self._reader.finish()
            except ReadFault as fault:
                self._refuse(fault)
        head = self._head
        if received is None or self._file is None:
            self._clear()
            nothing = StoredParcel(head.content_type, head.headers, ())
            return nothing, Reading(self.fault if intact else None, intact), head
        self._name, size = self._file.finish()
        self._file = None
        stored = StoredParcel(head.content_type, head.headers, (SpoolSlice(self._name, 0, size),))
        parcel = SpooledParcel(stored, self._spool)
        return stored, Reading(parcel.carrying(received)), parcel

    def _made(self) -> bytes:
        """The digest of all that came."""
        made = self._digest if self._file is None else self._file.digest()
        return (made or hashlib.sha256()).digest()

    def abandon(self) -> None:
        """Forget all of it, now or as soon as no thread works on it. Waits for the disk."""
        self._abandoned = True
        if self._at_work.acquire(blocking=False):
            try:
                self._clear()
            finally:
                self._at_work.release()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        try:
            with self._at_work:
                yield
        finally:
            # Whoever abandoned it meanwhile could not clear up; later ones can by themselves.
            if self._abandoned:
                self.abandon()

    def _refuse(self, fault: ReadFault) -> None:
        # The frames it passed hold what came of the body; nobody needs them.
        fault.__traceback__ = fault.__context__ = None
        self.fault = fault
        if self._file is not None:
            self._digest = self._file.digest()
        self._clear()

    def _clear(self) -> None:
        self._reader = None
        file, self._file = self._file, None
        name, self._name = self._name, None
        if file is not None:
            file.abandon()
        if name is not None:
            self._spool.give_back(name)


def _written(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
