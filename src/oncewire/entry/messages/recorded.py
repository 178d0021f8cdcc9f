"""Recorded exchanges: requests and the answers another handler gave, from a folder or an archive.

Two files are one exchange when their names differ only in saying which they are:
`order-17.request.http` and `order-17.response.http`, or with `-`, `_` and the words req, resp,
answer, reply. A file that says neither is a request whose answer was not recorded.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oncewire.entry.files import read_bytes
from oncewire.errors import InvalidValue, NotHere

FILES_MAX = 200_000
FILE_MAX = 64 * 1024 * 1024

_ROLE = re.compile(
    r"(?P<before>^|[._-])(?P<role>requests?|req|responses?|resp|answers?|reply|replies)"
    r"(?=$|[._-]|\d)",
    re.IGNORECASE,
)
_SKIPPED = re.compile(r"(^|/)(\.|__MACOSX/)|\.(md|txt|json|csv)$", re.IGNORECASE)

Read = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and its answer; both are read when they are asked for."""

    name: str
    request: Read
    answer: Read | None = None


def exchanges(place: Path) -> tuple[Exchange, ...]:
    """The exchanges in a folder, a zip, a tar or one file, in the order of their names."""
    if not place.exists():
        raise NotHere(
            f"there is no archive {place}", remedy="name a folder, a .zip, a .tar or a file"
        )
    if place.is_dir():
        return _paired(_in_folder(place))
    if zipfile.is_zipfile(place):
        return _paired(_in_zip(place))
    if tarfile.is_tarfile(place):
        return _paired(_in_tar(place))
    return _paired([(place.name, partial(read_bytes, place, "archive", FILE_MAX))])


def _in_folder(folder: Path) -> Iterable[tuple[str, Read]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).as_posix()
            yield name, partial(read_bytes, path, "recorded message", FILE_MAX)


def _in_zip(place: Path) -> Iterable[tuple[str, Read]]:
    def read(name: str) -> bytes:
        with zipfile.ZipFile(place) as archive, archive.open(name) as member:
            return _bounded(member.read(FILE_MAX + 1), name)

    try:
        with zipfile.ZipFile(place) as archive:
            names = sorted(
                each_member.filename
                for each_member in archive.infolist()
                if not each_member.is_dir()
            )
    except zipfile.BadZipFile as error:
        raise InvalidValue(f"{place} is a damaged zip: {error}", remedy="record it again") from None
    for name in names:
        yield name, partial(read, name)


def _in_tar(place: Path) -> Iterable[tuple[str, Read]]:
    # A tar has no index: everything is read in one pass, which bounds what it may hold.
    found: list[tuple[str, Read]] = []
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                data = _bounded(content.read(FILE_MAX + 1), member.name)
                found.append((member.name, partial(bytes, data)))
                if len(found) > FILES_MAX:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidValue(f"{place} is a damaged tar: {error}", remedy="record it again") from None
    return sorted(found, key=lambda pair: pair[0])


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > FILE_MAX:
        raise InvalidValue(
            f"{name} has more than {FILE_MAX} bytes", remedy="leave it out of the archive"
        )
    return data


def _paired(files: Iterable[tuple[str, Read]]) -> tuple[Exchange, ...]:
    requests: dict[str, tuple[str, Read]] = {}
    answers: dict[str, Read] = {}
    for count, (name, read) in enumerate(files):
        if count >= FILES_MAX:
            raise InvalidValue(
                f"the archive has more than {FILES_MAX} files", remedy="replay it in pieces"
            )
        if _SKIPPED.search(name):
            continue
        key, is_answer = _role(name)
        if is_answer:
            answers[key] = read
        else:
            requests[key] = (name, read)
    return tuple(
        Exchange(name, read, answers.get(key)) for key, (name, read) in sorted(requests.items())
    )


def _role(name: str) -> tuple[str, bool]:
    """What a name has in common with its other half, and whether it is the answer."""
    folder, _, last = name.rpartition("/")
    found = _ROLE.search(last)
    if found is None:
        return name, False
    # The ending may differ between the two halves; what is left of the name may not.
    rest = last[: found.start()] + last[found.end() :]
    stem = rest.rpartition(".")[0] if "." in rest else rest
    is_answer = not found.group("role").lower().startswith("req")
    return f"{folder}/{stem}", is_answer
