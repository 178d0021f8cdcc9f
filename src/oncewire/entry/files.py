"""Files that people name: read with bounds, written without surprises, errors in plain words."""

from __future__ import annotations

import os
from pathlib import Path

from oncewire.errors import InvalidValue, NotAllowed, NotHere

PRIVATE = 0o600
PUBLIC = 0o644
PRIVATE_FOLDER = 0o700
# Larger files are payloads, and payloads are streamed elsewhere.
WHOLE_FILE_MAX = 512 * 1024 * 1024


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
    half = path.with_name(f".{path.name}.new")
    try:
        half.unlink(missing_ok=True)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            # The umask may have taken bits away, never added any; a key must not depend on it.
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise NotAllowed(
            f"{path} cannot be written: {error.strerror}",
            remedy="check the folder, its permissions and the space on the disk",
        ) from None
    return path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a new file without its name is nowhere."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
