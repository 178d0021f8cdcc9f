"""Requests: what a call says in its query, body and Range, and how one is refused.

A problem is told as RFC 9457 does: a stable type, a status, what is wrong, and what to do next. A
body is read as fast as it comes, no slower than a floor: below it the client gets 408. A document
that is small stays in memory, a large one goes to a file without a name in the party's data folder,
so nothing is left of it when either side dies.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from oncewire import errors
from oncewire.entry.control.language import read_json
from oncewire.entry.messages.documents import open_payload
from oncewire.entry.messages.submitting import SendOptions
from oncewire.errors import InvalidValue, OncewireError, StoreFull
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.envelope import Payload
from oncewire.message.file_name import disposition, safe_name
from oncewire.message.form import PAYLOADS_MAX

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:oncewire:problem:"

_STATUS: tuple[tuple[type[OncewireError], int], ...] = (
    (errors.InvalidValue, 422),
    (errors.AgreementProblem, 422),
    (errors.EbxmlError, 422),
    (errors.NotHere, 404),
    (errors.UnknownMessage, 404),
    (errors.NotAllowed, 409),
    (errors.StoreFull, 507),
    (errors.StoreDamaged, 500),
    (errors.StoreProblem, 503),
    (errors.HandlerFailed, 503),
    (errors.TransportProblem, 503),
)


class Refused(Exception):
    """A request that HTTP itself refuses, before or instead of a verb."""

    def __init__(
        self,
        status: int,
        word: str,
        detail: str,
        remedy: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.word, self.detail, self.remedy = status, word, detail, remedy
        self.headers = headers or {}


def problem_in(error: Exception) -> Refused:
    """An error as a refusal, with its status, word, detail and remedy."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, OncewireError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        word = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
        return Refused(status, word, error.problem, error.remedy or "")
    detail = f"a fault of the admin port itself ({type(error).__name__})"
    return Refused(500, "fault", detail, "look into the log of `oncewire serve`")


def problem_of(error: Exception) -> Response:
    """An error as application/problem+json."""
    problem = problem_in(error)
    said = {
        "type": TYPE + problem.word,
        "title": problem.word.replace("-", " ").capitalize(),
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.remedy:
        said["next"] = problem.remedy
    # What follows on the connection may be the rest of what was refused.
    ending = {"Connection": "close", **problem.headers}
    # JSON escapes what UTF-8 has no bytes for.
    return Response(json.dumps(said), problem.status, headers=ending, media_type=MEDIA_TYPE)


SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "pattern": f"^{TYPE}"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong."},
        "next": {"type": "string", "description": "What to do next."},
    },
}


# --- bodies ---

PATIENCE = 20.0
"""Seconds that a body may be silent."""

FLOOR = 1024
"""Bytes a second that a body must have on average, after the first `PATIENCE` seconds."""

JSON_MAX = 64 * 1024
"""Bytes of a JSON body."""

_ANY = "application/octet-stream"

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
"""Media types that a form on a foreign page can send without a preflight."""


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


def _too_slow() -> Refused:
    return Refused(408, "too-slow", "the body came too slowly", "send it again")


def _too_large(limit: int) -> Refused:
    return Refused(
        413, "too-large", f"the body has more than {limit:,} bytes", "send less at a time"
    )


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
    if kind in FORM_TYPES:
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
    """Lets the stream pause the body: the protocol object that aiohttp expects."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._open = asyncio.Event()
        self._open.set()

    @property
    def connected(self) -> bool:
        """True: the stream is ended by `feed_eof`, not by a connection."""
        return True

    def pause_reading(self) -> None:
        """Called by the stream when its buffer is full."""
        self._reading_paused = True
        self._open.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: ARG002
        """Called by the stream when its buffer has room again."""
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


# --- query, JSON body and Range ---

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def parameters(request: Request, known: set[str]) -> dict[str, str]:
    """The query, each name once; InvalidValue names what is not known."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in found:
            raise InvalidValue(
                f"{name[:32]!r} is not known here, or given twice",
                remedy=f"give, once each: {', '.join(sorted(known)) or 'nothing'}",
            )
        found[name] = value
    return found


def send_query(request: Request) -> tuple[dict[str, Any], str]:
    """The options of a submission, and the name of its document."""
    truths = {each.name for each in fields(SendOptions) if each.type == "bool"}
    known = {each.name for each in fields(SendOptions)} | {"to", "cpa_id", "file_name"}
    given: dict[str, Any] = dict(parameters(request, known))
    given |= {name: flag(given, name) for name in truths & set(given)}
    return given, str(given.pop("file_name", ""))


async def json_body(request: Request) -> dict[str, Any]:
    """The JSON object of a request; an empty body is an empty one."""
    body = await whole_body(request)
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(
            415, "media-type", "the body is not application/json", "send a JSON object as such"
        )
    try:
        given = read_json(body)
    except (ValueError, RecursionError):
        raise Refused(400, "no-json", "the body is no JSON", "send a JSON object") from None
    if not isinstance(given, dict):
        raise InvalidValue("the body is no object", remedy="send a JSON object")
    return given


def flag(given: dict[str, str], name: str) -> bool:
    """A boolean of the query; False where it is not given."""
    said = given.get(name, "false")
    if said not in ("true", "false"):
        raise InvalidValue(f"{name} is no bool", remedy="say true or false")
    return said == "true"


def whole(given: dict[str, str], name: str, default: int) -> int:
    """A whole number of the query."""
    text = given.get(name, "")
    if name in given and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidValue(f"{name} is no position: {text[:32]!r}", remedy="give a whole number")
    return int(text) if text else default


def stretch_of(request: Request, size: int, digest: str) -> tuple[int, int]:
    """Where the wanted bytes begin and end; several ranges at once are not served as such."""
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    if found is None or request.headers.get("if-range", f'"{digest}"') != f'"{digest}"':
        return 0, size
    first, last = found.groups()
    if not first and not last:
        return 0, size
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise Refused(
            416, "range", f"the document has {size:,} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return start, end


async def read_file(file: BinaryIO, left: int) -> AsyncIterator[bytes]:
    """The next `left` bytes of a file, which is closed at the end."""
    try:
        while left and (piece := await asyncio.to_thread(file.read, min(left, 256 * 1024))):
            left -= len(piece)
            yield piece
    finally:
        await asyncio.to_thread(file.close)
