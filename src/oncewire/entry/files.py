"""Files that people name: read with bounds, written without surprises, errors in plain words."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from oncewire.errors import InvalidValue, NotAllowed, NotHere

PRIVATE = 0o600
PUBLIC = 0o644
PRIVATE_FOLDER = 0o700
# Larger files are payloads, and payloads are streamed elsewhere.
WHOLE_FILE_MAX = 512 * 1024 * 1024

UNFINISHED = ".part"
"""How the name of a file ends while it is written."""

# A name that cannot be known before it is there; earlier versions had the process and a number.
_HALF = re.compile(r"\.(.+)\.(?:[0-9a-f]{16}|[0-9]+(?:-[0-9]+)?)\.part", re.DOTALL)


def read_bytes(path: Path, what: str, limit: int = WHOLE_FILE_MAX) -> bytes:
    """The whole file; `what` names it in an error."""
    try:
        if path.is_dir():
            raise InvalidValue(f"{what}: {path} is a folder", remedy="name a file")
        size = path.stat().st_size
        if size > limit:
            raise InvalidValue(
                f"{what}: {path} has {size} bytes, more than {limit}", remedy="name a smaller file"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise NotHere(
            f"{what}: there is no file {path}", remedy="check the name and the folder you are in"
        ) from None
    except OSError as error:
        raise NotAllowed(
            f"{what}: {path} cannot be read: {error.strerror}", remedy="check its permissions"
        ) from None


def read_text(path: Path, what: str, limit: int = 4 * 1024 * 1024) -> str:
    """The whole file as UTF-8."""
    try:
        return read_bytes(path, what, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"{what}: {path} is not UTF-8 at byte {error.start}", remedy="save it as UTF-8"
        ) from None


def write_new(path: Path, data: bytes | str, mode: int = PUBLIC, *, replace: bool = False) -> Path:
    """A file that appears whole or not at all, with exactly this mode from its first moment."""
    content = data.encode("utf-8") if isinstance(data, str) else data
    if path.exists() and not replace:
        raise NotAllowed(
            f"{path} exists already", remedy="choose another name, or remove it if it is yours"
        )
    with placed(path, mode) as file:
        file.write(content)
    return path


@contextlib.contextmanager
def placed(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file that is written beside, and is whole and on the disk when it gets its name; `mode` is
    exactly its mode from its first moment, None: what is usual here.

    Others may write into the same folder. So the file is made anew under a name that no other can
    know before, and never through a link; all of it happens in the folder that was opened first. A
    link or a file that lies under the name it is to have is replaced, not written to.
    """
    half = f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = _opened(path.parent)
        try:
            _clear(folder, path.name)
            handle = os.open(half, flags, 0o666 if mode is None else mode, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    # The lock tells other processes that it is still being written.
                    fcntl.flock(handle, fcntl.LOCK_EX)
                    if mode is not None:
                        # The umask may have taken bits away; a key must not depend on it.
                        os.fchmod(handle, mode)
                    yield file
                    file.flush()
                    os.fsync(handle)
                    os.replace(half, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(half, dir_fd=folder)
                raise
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise NotAllowed(
            f"{path} cannot be written: {error.strerror}",
            remedy="check the folder, its permissions and the space on the disk",
        ) from error


def clear_folder(path: Path) -> None:
    """Remove every file that a process had begun to write there when it was killed."""
    with contextlib.suppress(OSError):
        folder = _opened(path)
        try:
            _clear(folder)
        finally:
            os.close(folder)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _clear(folder: int, name: str | None = None) -> None:
    """Remove what is left of a file that is not written any more; None: of any file."""
    for found in os.listdir(folder):
        half = _HALF.fullmatch(found) if found.endswith(UNFINISHED) else None
        if half is not None and name in (None, half[1]) and _is_left(folder, found):
            with contextlib.suppress(OSError):
                os.unlink(found, dir_fd=folder)


def _is_left(folder: int, name: str) -> bool:
    """Whether it is a file of ours that is not being written. What others put there is theirs."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=folder)
    except OSError:
        return False
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """No other process that does the same changes a private file meanwhile. Each change replaces
    the file, so the lock is on one beside it, which stays."""
    make_folder(path.parent, PRIVATE_FOLDER)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = path.with_name(f"{path.name}.lock")
    try:
        handle = os.open(lock, flags, PRIVATE)
    except OSError as error:
        raise NotAllowed(
            f"{lock} cannot be written: {error.strerror}",
            remedy="check the folder and its permissions",
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def version_of(path: Path) -> tuple[int, ...] | None:
    """What changes whenever a private file is replaced; None: there is none. InvalidValue where
    others can read it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if found.st_mode & 0o077:
        raise InvalidValue(f"others on this machine can read {path}", remedy=f"chmod 600 {path}")
    return found.st_mtime_ns, found.st_size, found.st_ino


def make_folder(path: Path, mode: int = 0o755) -> Path:
    """The folder, made if it is not there."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        if mode == PRIVATE_FOLDER:
            path.chmod(mode)
    except OSError as error:
        raise NotAllowed(
            f"the folder {path} cannot be made: {error.strerror}", remedy="choose another place"
        ) from None
    return path


def check_folder(path: Path) -> None:
    """Raise InvalidValue where something else stands in the folder's place."""
    if path.exists() and not path.is_dir():
        raise InvalidValue(f"{path} is no folder", remedy="name a folder; one is made if need be")


# Numbers of things, as people say them.


def number_of(count: int, noun: str, verb: str = "") -> str:
    """`1 message`, `2,000 messages`; with a verb that agrees: `1 message is`, `2 messages are`."""
    said = f"{count:,} {noun}" + ("" if count == 1 else "s")
    if not verb:
        return said
    return f"{said} {verb if count == 1 else _PLURAL[verb]}"


def size_of(count: int) -> str:
    """Bytes in the unit that leaves a figure to read: `229 kB`, `8.7 MB`, `80.1 GB`."""
    if count < 1_000_000:
        return f"{-(-count // 1000)} kB"
    return f"{count / 1e6:.1f} MB" if count < 1_000_000_000 else f"{count / 1e9:.1f} GB"


_PLURAL = {"is": "are", "was": "were", "waits": "wait"}
