"""The agreements of a party's folder: found, read and checked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.check.exposure import Abilities, refuse_unable
from oncewire.agreement.cppa.document import read_document
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.toml import read_toml
from oncewire.entry.files import read_bytes, read_text
from oncewire.entry.party.settings import Settings
from oncewire.errors import AgreementProblem, NotHere, OncewireError
from oncewire.handler.perform import HANDLER
from oncewire.wire.security.algorithms import CANONICAL_URIS, DIGEST_URIS, SIGNATURE_URIS

SETTLED_NS = 1_000_000_000
"""No file system's clock ticks more slowly, but FAT's."""

FILES = f"{HANDLER} files"
AGREEMENT = f"{HANDLER} agreement "
"""Where the incidents are of files that could not be taken over, together or one by one."""

AGREEMENT_MAX = 4 * 1024 * 1024
_ENDINGS = (".toml", ".xml")


def able(settings: Settings | None = None) -> Abilities:
    """What a handler can do with these settings; without any, what every handler can."""
    # Loaded when it is asked for: the wire's algorithms come with all of its cryptography.
    from oncewire.wire.mime.compression import ENCODINGS
    from oncewire.wire.security.encryption import DATA_URIS, KEY_URIS

    tables = (SIGNATURE_URIS, DIGEST_URIS, CANONICAL_URIS, DATA_URIS, KEY_URIS)
    there = ("http",) if settings is None else settings.transports
    known = frozenset(uri for table in tables for uri in table.values())
    return Abilities(there, known, ENCODINGS)


Stamp: TypeAlias = tuple[int, int, int, int]
"""How a file looks from outside."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An agreement and the file it was read from."""

    file: Path
    agreement: Agreement


def files_in(folder: Path) -> tuple[Path, ...]:
    """The agreement files of a folder, in the order of their names."""
    if not folder.is_dir():
        raise NotHere(
            f"there is no folder {folder} for agreements",
            remedy="make it, or correct agreements.folder in oncewire.toml",
        )
    return tuple(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in _ENDINGS and not path.name.startswith(".") and path.is_file()
    )


def loader(folder: Path) -> Callable[[str], bytes]:
    """How an agreement's own file names are read: seen from the folder it lies in."""

    def load(name: str) -> bytes:
        return (folder / name).read_bytes()

    return load


def read_file(
    path: Path, *, own: str | None = None, load: Callable[[str], bytes] | None = None
) -> Agreement:
    """The agreement in a file, TOML or CPA; a CPA needs `own`, the party that we are.

    `load` reads the files that it names; the usual way is `loader`.
    """
    if path.suffix == ".xml":
        xml = read_bytes(path, "agreement", AGREEMENT_MAX)
        if own is None:
            # Who we are in it is asked only of what is a CPA at all.
            read_document(xml)
            raise AgreementProblem(
                f"{path} is a CPA, and it is not said which of its parties we are",
                key="own",
                remedy="name our PartyId with --own",
            )
        return read_cpa(xml, own=own)
    text = read_text(path, "agreement", AGREEMENT_MAX)
    return read_toml(text, load=load or loader(path.parent), name=path.name)


def load_all(settings: Settings) -> tuple[Kept, ...]:
    """Every agreement of the party; the first that cannot be read is named with its file."""
    own = settings.party.party_id or None
    kept = []
    for path in files_in(settings.path(settings.agreements.folder)):
        try:
            kept.append(Kept(path, read_file(path, own=own)))
        except AgreementProblem as error:
            raise AgreementProblem(
                f"{path}: {error.problem}", key=error.key, remedy=error.remedy
            ) from None
    return tuple(kept)


def each_readable(settings: Settings) -> Iterator[Kept]:
    """Every agreement that can be read, whether or not a handler could work by it."""
    folder = settings.path(settings.agreements.folder)
    for path in files_in(folder) if folder.is_dir() else ():
        with suppress(OncewireError, OSError, ValueError):
            yield Kept(path, read_file(path, own=settings.party.party_id or None))


@dataclass(frozen=True)
class Readable:
    """The agreements that can be read, and what is wrong with the other files."""

    kept: list[Kept]
    problems: dict[Path, OncewireError]

    @cached_property
    def named(self) -> dict[str, list[Kept]]:
        """By the name of its file, which is a partner's, and by its CPAId."""
        found: dict[str, list[Kept]] = {}
        for paper in self.kept:
            for name in {paper.file.stem, paper.agreement.cpa_id}:
                found.setdefault(name, []).append(paper)
        return found


def load_readable(settings: Settings) -> Readable:
    """Every agreement that can be read: the file of one partner is no trouble of the others."""
    return AgreementFolder(settings).readable()


class AgreementFolder:
    """The agreements of a party, kept in memory: a file is read again when it has changed."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.path(settings.agreements.folder)
        self._own = settings.party.party_id or None
        self._able = able(settings)
        self._read: dict[Path, _Read] = {}
        # What was found, and how the folder and the files of each agreement looked then.
        self._found: tuple[Readable, _Seen, dict[str, _Seen]] | None = None

    def readable(self, of: str = "") -> Readable:
        """The agreements as the files say now, and what is wrong with those that say nothing.

        `of`: only the agreement whose file has that name need be as its file says now. Who has a
        thousand partners looks at one for each message.
        """
        if self._found is not None:
            found, folder, files = self._found
            asked = [files[of]] if of in files else files.values()
            if _is_as(folder) and all(map(_is_as, asked)):
                return found
        looked = stamp_of(self._folder)
        found = self._look()
        files = {}
        for file, read in self._read.items():
            files.setdefault(file.stem, []).extend(
                zip(map(str, read.files), read.seen, strict=True)
            )
        folder = [(str(self._folder), looked)]
        # Whether a folder that looks like this changed long enough ago: what comes into it within
        # the same tick of the file system's clock leaves no other mark.
        self._found = (
            (found, folder, files) if (abs(time.time_ns() - looked[2]) > SETTLED_NS) else None
        )
        return found

    def _look(self) -> Readable:
        files = files_in(self._folder)
        self._read = {file: self._of(file) for file in files}
        found = Readable([], {})
        for file, read in self._read.items():
            if isinstance(read.result, Agreement):
                found.kept.append(Kept(file, read.result))
            else:
                found.problems[file] = read.result
        _set_twins_apart(found)
        return found

    def _of(self, file: Path) -> _Read:
        known = self._read.get(file)
        if known is not None and known.seen == tuple(map(stamp_of, known.files)):
            return known
        # Each is looked at before it is read: what changes in between is found the next time.
        files, seen = [file], [stamp_of(file)]

        def load(name: str) -> bytes:
            files.append(file.parent / name)
            seen.append(stamp_of(files[-1]))
            return files[-1].read_bytes()

        result: Agreement | AgreementProblem
        try:
            result = read_file(file, own=self._own, load=load)
            refuse_unable(result, self._able)
        except OncewireError as error:
            result = AgreementProblem(f"{file}: {error.problem}", remedy=error.remedy)
        except (OSError, ValueError) as error:
            remedy = "check the files that it names"
            result = AgreementProblem(f"{file}: {error}", remedy=remedy)
        return _Read(tuple(files), tuple(seen), result)

    def has_changed(self) -> bool:
        """Whether a file came, went or changed since they were read, of those too that they name;
        False where the folder itself is gone: what was agreed holds."""
        try:
            files = files_in(self._folder)
        except NotHere:
            return False
        return set(files) != set(self._read) or any(
            read.seen != tuple(map(stamp_of, read.files)) for read in self._read.values()
        )

    def forget(self) -> None:
        """Read everything anew the next time, however little seems to have changed."""
        self._read, self._found = {}, None


@dataclass(frozen=True, slots=True)
class _Read:
    """What came of reading one agreement, and how its files looked then."""

    files: tuple[Path, ...]
    seen: tuple[Stamp, ...]
    result: Agreement | AgreementProblem


_Seen: TypeAlias = list[tuple[str, Stamp]]


def _is_as(seen: _Seen) -> bool:
    """Whether files look as they did."""
    return all(_stamp(name) == stamp for name, stamp in seen)


def stamp_of(file: Path) -> Stamp:
    """Changes whenever a file is written, replaced or allowed to others; a time that was put
    back does not hide that."""
    return _stamp(str(file))


def _stamp(name: str) -> Stamp:
    try:
        # A path of its own takes longer to make than to look at, for each message.
        found = os.stat(name)  # noqa: PTH116
    except OSError:
        return 0, 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _set_twins_apart(found: Readable) -> None:
    """Two agreements of one name are a trouble of the second."""
    try:
        Agreements(known.agreement for known in found.kept)
    except AgreementProblem:
        kept, found.kept[:] = list(found.kept), []
        for known in kept:
            try:
                Agreements(other.agreement for other in (*found.kept, known))
                found.kept.append(known)
            except AgreementProblem as error:
                found.problems[known.file] = AgreementProblem(
                    f"{known.file}: {error.problem}", remedy=error.remedy
                )
