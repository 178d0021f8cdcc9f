"""Uploads: documents that come as the body of a request, kept on the disk while they come.

A body is read as fast as it comes, no slower than a floor: below it the client gets 408. What
is small stays in memory, what is large goes to a file without a name in the party's data folder,
so nothing is left of it when either side dies.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, BinaryIO, cast

from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from msgspec.structs import replace

from oncewire.entry.admin.problems import Refused
from oncewire.entry.messages.documents import open_payload
from oncewire.errors import InvalidValue, StoreFull
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.envelope import Payload
from oncewire.message.file_name import disposition, safe_name
from oncewire.message.form import PAYLOADS_MAX

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy
    from starlette.requests import Request

PATIENCE = 20.0
"""Seconds that a body may be silent."""

FLOOR = 1024
"""Bytes a second that a body must have on average, after the first `PATIENCE` seconds."""

JSON_MAX = 64 * 1024
"""Bytes of a JSON body."""

_ANY = "application/octet-stream"

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""What a form of a foreign page can send without being asked about it."""


async def chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body as it comes; Refused where it is too large or too slow."""
    said = request.headers.get("content-length", "0")
    if said.isdigit() and int(said) > limit:
        raise _too_large(limit)
    loop, size = asyncio.get_running_loop(), 0
    began = loop.time()
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(PATIENCE):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise _too_slow() from None
        if chunk is None:
            return
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if loop.time() - began > PATIENCE + size / FLOOR:
            raise _too_slow()
        if chunk:
            yield chunk


def _too_large(limit: int) -> Refused:
    return Refused(
        413, "too-large", f"the body has more than {limit:,} bytes", "send less at a time"
    )


def _too_slow() -> Refused:
    return Refused(408, "too-slow", "the body came too slowly", "send it again")


async def whole_body(request: Request, limit: int = JSON_MAX) -> bytes:
    """A body that is small, such as JSON."""
    return b"".join([chunk async for chunk in chunks(request, limit)])


@asynccontextmanager
async def documents(
    request: Request, folder: Path, limit: int, file_name: str
) -> AsyncIterator[tuple[Payload, ...]]:
    """The documents of a request, for as long as it takes to hand them in."""
    media_type = request.headers.get("content-type", "")
    kind = media_type.partition(";")[0].strip().lower()
    if kind in FORMS:
        raise Refused(
            415, "media-type", f"a document is not sent as {kind}", "send it as the body itself"
        )
    with ExitStack() as files:
        body = chunks(request, limit)
        if kind == "multipart/mixed":
            yield tuple([each async for each in _parts(media_type, body, folder, files)])
            return
        file = files.enter_context(_file(folder))
        size = await _kept(body, file)
        if not size and not media_type:
            yield ()
            return
        yield (_payload(file, size, media_type, file_name, 1),)


async def _parts(
    media_type: str, body: AsyncIterator[bytes], folder: Path, files: ExitStack
) -> AsyncIterator[Payload]:
    """The documents of a multipart/mixed."""
    tap = _Tap(asyncio.get_running_loop())
    stream = StreamReader(tap, SPOOL_ABOVE, loop=asyncio.get_running_loop())
    pouring = asyncio.ensure_future(tap.pour(body, stream))
    try:
        reader = _Mixed({"Content-Type": media_type}, stream)
        number = 0
        while (part := await reader.next()) is not None:
            number += 1
            if isinstance(part, MultipartReader) or number > PAYLOADS_MAX:
                raise InvalidValue(
                    f"part {number} is one too many",
                    remedy=f"send up to {PAYLOADS_MAX} documents, each in a part of its own",
                )
            encoding = part.headers.get("Content-Transfer-Encoding", "binary").strip().lower()
            if encoding not in ("binary", "8bit", "7bit"):
                raise Refused(
                    415,
                    "encoding",
                    f"part {number} is encoded as {encoding[:32]}",
                    "send each document as it is, without a Content-Transfer-Encoding",
                )
            file = files.enter_context(_file(folder))
            size = await _kept(_pieces(part), file)
            kind = part.headers.get("Content-Type", _ANY)
            payload = _payload(file, size, kind, part.filename or "", number)
            named = part.headers.get("Content-ID", "").strip("<> ")
            yield replace(payload, content_id=named) if named else payload
        await pouring
    except HttpProcessingError as error:
        raise Refused(
            400,
            "part-head",
            f"the head of a part cannot be read: {error.message[:100]}",
            "send Content-Type, Content-ID and Content-Disposition, and nothing else",
        ) from None
    except (ValueError, AssertionError, RuntimeError) as error:
        if pouring.done() and isinstance(pouring.exception(), Refused):
            raise pouring.exception() from None  # type: ignore[misc]
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(
            f"the body is no multipart/mixed: {str(error)[:100]}",
            remedy="name the boundary in the Content-Type, and end the body with it",
        ) from None
    finally:
        pouring.cancel()


class _Mixed(MultipartReader):
    """The parts of a multipart/mixed, each a document as it is: one that is a multipart itself is
    not taken apart."""

    def _get_part_reader(self, headers: CIMultiDictProxy[str]) -> BodyPartReader:
        return self.part_reader_cls(self._boundary, headers, self._content)


class _Tap(BaseProtocol):
    """Lets a stream say that it has enough for now."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._open = asyncio.Event()
        self._open.set()

    @property
    def connected(self) -> bool:
        """The stream ends when it is told so, not with a connection."""
        return True

    def pause_reading(self) -> None:
        """The stream has enough."""
        self._reading_paused = True
        self._open.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: ARG002
        """The stream wants more."""
        self._reading_paused = False
        self._open.set()

    async def pour(self, body: AsyncIterator[bytes], stream: StreamReader) -> None:
        """Feed the body to the stream, as fast as it is read."""
        try:
            async for chunk in body:
                await self._open.wait()
                stream.feed_data(chunk)
        except BaseException as error:
            stream.set_exception(ValueError(str(error)))
            raise
        stream.feed_eof()


async def _pieces(part: object) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(256 * 1024):  # type: ignore[attr-defined]
        yield piece


def _file(folder: Path) -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(SPOOL_ABOVE, dir=str(folder))


async def _kept(pieces: AsyncIterator[bytes], file: SpooledTemporaryFile[bytes]) -> int:
    """Write what comes; returns how many bytes came."""
    size = 0
    try:
        async for piece in pieces:
            size += len(piece)
            if size > SPOOL_ABOVE:
                await asyncio.to_thread(file.write, piece)
            else:
                file.write(piece)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreFull(
            "there is no space for the document", remedy="make room on the disk, then send it again"
        ) from None
    file.seek(0)
    return size


def _payload(
    file: SpooledTemporaryFile[bytes], size: int, media_type: str, name: str, number: int
) -> Payload:
    """A file that came as a payload."""
    made = open_payload(cast(BinaryIO, file), media_type or _ANY, number)
    headers = disposition(safe_name(name)) if name else made.mime_headers
    if len(made.digest):
        return replace(made, mime_headers=headers)
    return replace(made, size=size, mime_headers=headers)
