"""The control socket's language: how a command asks the handler that runs.

While `oncewire serve` runs it is the store's only writer. Other commands reach it through a
Unix domain socket beside the database, which only the owner of the files can open. One line of
JSON asks, one line answers; `bytes` in a line announces how many raw bytes of each payload
follow it. A line names its version, so that an old command and a new handler understand that
they do not understand each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire import errors
from oncewire.errors import InvalidValue, OncewireError, TransportProblem
from oncewire.handler.node import BODY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncewire.entry.party.settings import Settings

VERSION = 2
LINE_MAX = 4 * 1024 * 1024
"""The longest line; payloads are not part of it."""

PARTS_MAX = 10_000
# The kernel's sun_path holds 108 bytes with the final zero.
_SUN_PATH = 107


def socket_path(settings: Settings) -> Path:
    """Where the handler of a party listens for commands."""
    return settings.path(settings.store.path).with_suffix(".sock")


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
    process that is gone: whoever calls this owns the store."""
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
    parts: tuple[bytes, ...] = ()


def write_frame(writer: asyncio.StreamWriter, frame: ControlFrame) -> None:
    """Put a frame into the writer's buffer; InvalidValue, and nothing is written, where the
    other side would not take it."""
    values = {"oncewire": VERSION, **frame.values}
    if frame.parts:
        values["bytes"] = [len(part) for part in frame.parts]
    line = line_of(values)
    size = sum(len(part) for part in frame.parts)
    if len(line) > LINE_MAX or len(frame.parts) > PARTS_MAX or size > BODY_MAX:
        raise InvalidValue(
            f"{size:,} bytes in {len(frame.parts):,} payloads, described in {len(line):,} bytes, "
            "are too much for the control socket",
            remedy=f"at once it carries {BODY_MAX:,} bytes in {PARTS_MAX:,} payloads, described "
            f"in {LINE_MAX:,}; give it less at a time",
        )
    writer.write(line + b"\n")
    for part in frame.parts:
        writer.write(part)


def line_of(values: Mapping[str, Any]) -> bytes:
    """Values as JSON. Half of a surrogate pair, which may stand in what is complained of, is
    written as JSON escapes it: UTF-8 has no bytes for it."""
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace")


async def read_frame(reader: asyncio.StreamReader) -> ControlFrame | None:
    """The next frame; None when the other side is done. InvalidValue if it cannot be read."""
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
    parts = [await reader.readexactly(size) for size in _sizes(values.pop("bytes", []))]
    return ControlFrame(values, tuple(parts))


def _json(line: bytes) -> Any:
    try:
        return json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise unreadable("a line is nested too deep") from None
    except ValueError as error:
        raise unreadable(f"a line is not JSON: {error}") from None


def _no_number(word: str) -> None:
    # Python writes NaN and Infinity where JSON has nothing of the kind.
    raise ValueError(word)


def _sizes(given: Any) -> list[int]:
    good = isinstance(given, list) and all(type(values) is int and values >= 0 for values in given)
    if not good or len(given) > PARTS_MAX or sum(given) > BODY_MAX:
        raise unreadable(f"payloads of more than {BODY_MAX} bytes, or no sizes at all")
    return list(given)


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
