"""The control socket's language: how a command asks the handler that runs.

While `oncewire serve` runs it is the store's only writer. Other commands reach it through a Unix
domain socket beside the database, which only the owner of the files can open. One line of JSON
asks, one line answers; `bytes` in a line announces how many raw bytes of each payload follow it.
Those of a payload whose length is unknown (`null`) follow in pieces, each after its length in four
bytes, up to one that is empty; a large one is put into the spool as it comes. A line names its
version, so that an old command and a new handler understand that they do not understand each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oncewire import errors
from oncewire.entry.delivery.received_message import message_of
from oncewire.errors import InvalidValue, OncewireError, TransportProblem
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.sending.submit import SpooledContent
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.payload import Content, DistantPayload
from oncewire.wire.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from oncewire.store.spool_contract import Spool


VERSION = 3
BODY_MAX = 256 * 1024 * 1024
"""Bytes of payloads in one frame that are held in memory."""

LINE_MAX = 4 * 1024 * 1024
"""The longest line; payloads are not part of it."""

PARTS_MAX = 10_000
PIECE = 1024 * 1024
"""Bytes of a payload that come in one piece, at most."""

Part: TypeAlias = "bytes | Content"
"""A payload beside a line: in memory, or read as it is written."""

# The kernel's sun_path holds 108 bytes with the final zero.
_SUN_PATH = 107


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name of the socket that fits into the kernel's field, however deep its folder lies."""
    if len(os.fsencode(path)) <= _SUN_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listening_socket(path: Path) -> socket.socket:
    """A socket at that path that only its owner can open. What lay there before was left by a
    process that is gone: the caller owns the store."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with short_name(path) as name:
            listener.bind(name)
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise TransportProblem(
            f"the control socket {path} cannot be made: {error.strerror}",
            remedy="keep the party's data on a local disk that you may write to",
        ) from None
    finally:
        os.umask(before)
    return listener


# --- lines and bytes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlFrame:
    """One line and the bytes that follow it."""

    values: Mapping[str, Any]
    parts: tuple[Part, ...] = ()


async def write_frame(writer: asyncio.StreamWriter, frame: ControlFrame) -> None:
    """Write a frame, as fast as the other side reads; InvalidValue, and nothing is written, where
    it would not take it."""
    values = {"oncewire": VERSION, **frame.values}
    if frame.parts:
        values["bytes"] = [_length(part) for part in frame.parts]
    line = line_of(values)
    size = sum(_length(part) or 0 for part in frame.parts)
    if len(line) > LINE_MAX or len(frame.parts) > PARTS_MAX or size > BODY_MAX:
        raise InvalidValue(
            f"{size:,} bytes in {len(frame.parts):,} payloads, described in {len(line):,} bytes, "
            "are too much for the control socket",
            remedy=f"at once it carries {BODY_MAX:,} bytes in {PARTS_MAX:,} payloads, described "
            f"in {LINE_MAX:,}; give it less at a time",
        )
    writer.write(line + b"\n")
    for part in frame.parts:
        if isinstance(part, bytes):
            writer.write(part)
        else:
            file = await asyncio.to_thread(part.open)
            try:
                while piece := await asyncio.to_thread(file.read, PIECE):
                    writer.write(len(piece).to_bytes(4) + piece)
                    await writer.drain()
                writer.write(bytes(4))
            finally:
                file.close()
    await writer.drain()


def _length(part: Part) -> int | None:
    return len(part) if isinstance(part, bytes) else None


def line_of(values: Mapping[str, Any]) -> bytes:
    """Values as JSON. Half of a surrogate pair, which may stand in what is complained of, is
    written as JSON escapes it: UTF-8 has no bytes for it."""
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace")


async def read_frame(
    reader: asyncio.StreamReader, spool: Spool | None = None
) -> ControlFrame | None:
    """The next frame; None when the other side is done. InvalidValue if it cannot be read.

    Where there is a spool, what comes in pieces may be large and lies there then: whoever gets
    the frame lets it go."""
    try:
        line = await reader.readline()
    except ValueError:
        raise unreadable(f"a line is longer than {LINE_MAX} bytes") from None
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise unreadable("a line was cut off")
    values = _json(line)
    if not isinstance(values, dict) or values.pop("oncewire", None) != VERSION:
        raise unreadable(f"a line is not of version {VERSION}")
    parts: list[Part] = []
    try:
        given = values.pop("bytes", [])
        good = isinstance(given, list) and all(
            size is None or (type(size) is int and size >= 0) for size in given
        )
        if not good or len(given) > PARTS_MAX or sum(size or 0 for size in given) > BODY_MAX:
            raise unreadable(f"payloads of more than {BODY_MAX} bytes, or no sizes at all")
        for size in given:
            if size is not None:
                parts.append(await reader.readexactly(size))
            elif spool is None:
                raise unreadable("payloads in pieces are for the handler alone")
            else:
                parts.append(await _read_pieces(reader, spool))
    except BaseException:
        give_back(parts)
        raise
    return ControlFrame(values, tuple(parts))


def give_back(parts: Iterable[Part]) -> None:
    """These were not taken: what lies in the spool goes."""
    for part in parts:
        if isinstance(part, SpooledContent):
            part.give_back()


async def _read_pieces(reader: asyncio.StreamReader, spool: Spool) -> bytes | SpooledContent:
    """A payload that comes in pieces: in memory while it is small, else in the spool."""
    pieces: list[bytes] = []
    size = 0
    while size <= SPOOL_ABOVE:
        piece = await _read_piece(reader)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
    file = await asyncio.to_thread(spool.begin)
    try:
        await asyncio.to_thread(file.write, b"".join(pieces))
        while piece := await _read_piece(reader):
            size += len(piece)
            if size > DEFAULT_LIMITS.document_bytes:
                raise unreadable(f"a payload has more than {DEFAULT_LIMITS.document_bytes:,} bytes")
            await asyncio.to_thread(file.write, piece)
        name, size = await asyncio.to_thread(file.finish)
    except BaseException:
        # What is still under way to a slow disk keeps no other caller.
        await asyncio.shield(asyncio.to_thread(file.abandon))
        raise
    return SpooledContent(spool, name, size)


async def _read_piece(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    if size > PIECE:
        raise unreadable(f"a piece has {size:,} bytes, more than {PIECE:,}")
    return await reader.readexactly(size)


def read_json(text: bytes) -> Any:
    """What a text of JSON says; ValueError or RecursionError where it is none."""
    return json.loads(text, parse_constant=_no_number)


def _json(line: bytes) -> Any:
    try:
        return read_json(line)
    except RecursionError:
        raise unreadable("a line is nested too deep") from None
    except ValueError as error:
        raise unreadable(f"a line is not JSON: {error}") from None


def _no_number(word: str) -> None:
    # Python writes NaN and Infinity where JSON has nothing of the kind.
    raise ValueError(word)


def unreadable(problem: str) -> InvalidValue:
    """What is not said in this language."""
    return InvalidValue(
        f"the control socket: {problem}",
        remedy="use the same version of Oncewire for the handler and for commands",
    )


# --- errors ------------------------------------------------------------------------------------

# By the names they travel by. Two are left out that only arrivals meet, on the wire and not here:
# they are made of more than a problem and a remedy.
_KINDS: dict[str, type[OncewireError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, OncewireError)
    and kind not in (errors.SoapFault, errors.TransientError)
}


def error_frame(error: OncewireError) -> ControlFrame:
    """An error as an answer."""
    said = {"kind": type(error).__name__, "problem": error.problem, "remedy": error.remedy}
    return ControlFrame({"ok": False, "error": said})


def read_error(values: Mapping[str, Any]) -> OncewireError:
    """The error that an answer tells, as it was raised."""
    said = values.get("error")
    if not isinstance(said, dict):
        return unreadable("an answer is neither good nor bad")
    kind = _KINDS.get(str(said.get("kind")), OncewireError)
    return kind(str(said.get("problem", "")), remedy=str(said.get("remedy", "")))


# Answer room: how many messages one answer of the control socket has place for.


PLACE = 4096 + 256
"""Bytes that say where a payload lies that does not come along: a path, and where in it."""

FRAME = 1024
"""Bytes of the line that are not about any message."""

NUMBER = 12
"""Bytes that say how long one payload is, and what stands between two of them."""


class AnswerRoom:
    """What is left of an answer's bytes, payloads and line, as messages are put into it."""

    SIZE = BODY_MAX
    PARTS = PARTS_MAX
    LINE = LINE_MAX - FRAME

    def __init__(self) -> None:
        self._left, self._parts, self._line = self.SIZE, self.PARTS, self.LINE

    @property
    def left(self) -> int:
        """Bytes of payloads that still fit."""
        return self._left

    def admit(self, taken: GivenMessage) -> bool:
        """Put a message beside those that were admitted before; False: it does not fit."""
        parts = len(taken.payloads)
        size = sum(
            payload.size for payload in taken.payloads if not isinstance(payload, DistantPayload)
        )
        line = len(line_of(message_of(taken).facts())) + NUMBER * (parts + 1)
        line += PLACE * sum(isinstance(payload, DistantPayload) for payload in taken.payloads)
        if size > self._left or parts > self._parts or line > self._line:
            return False
        self._left, self._parts, self._line = (
            self._left - size,
            self._parts - parts,
            self._line - line,
        )
        return True
