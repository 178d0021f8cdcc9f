"""The agreements of a party's folder: found, read and checked, each known by its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.cppa import read_cpa
from oncewire.agreement.cppa_document import read_document
from oncewire.agreement.toml import read_toml
from oncewire.entry.files import NotHere, read_bytes, read_text
from oncewire.entry.settings import Settings
from oncewire.errors import AgreementProblem, OncewireError

AGREEMENT_MAX = 4 * 1024 * 1024
_ENDINGS = (".toml", ".xml")


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


def read_file(path: Path, *, own: str | None = None) -> Agreement:
    """The agreement in a file, TOML or CPA; a CPA needs `own`, the party that we are."""
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
    return read_toml(text, load=loader(path.parent), name=path.name)


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


@dataclass(frozen=True, slots=True)
class Readable:
    """The agreements that can be read, and what is wrong with the other files."""

    kept: list[Kept]
    problems: dict[Path, OncewireError]


def load_readable(settings: Settings) -> Readable:
    """Every agreement that can be read: the file of one partner is no trouble of the others."""
    own = settings.party.party_id or None
    found = Readable([], {})
    for path in files_in(settings.path(settings.agreements.folder)):
        try:
            found.kept.append(Kept(path, read_file(path, own=own)))
            # Two of one name are a trouble of the second.
            Agreements(one.agreement for one in found.kept)
        except OncewireError as error:
            found.kept[:] = [one for one in found.kept if one.file != path]
            found.problems[path] = AgreementProblem(f"{path}: {error.problem}", remedy=error.remedy)
        except (OSError, ValueError) as error:
            remedy = "check the files that it names"
            found.problems[path] = AgreementProblem(f"{path}: {error}", remedy=remedy)
    return found


def agreements_of(settings: Settings) -> Agreements:
    """The party's agreements as the handler wants them."""
    return Agreements(one.agreement for one in load_all(settings))
