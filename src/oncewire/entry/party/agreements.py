"""The agreements of a party's folder: found, read and checked; and those that come and go as CPAs.

The CPA of a partner is kept as it came, in a folder below the agreements; a short file beside them
names it, says which of its parties we are, and may say more. So nothing of the CPA is translated,
and what was changed here can be seen at a glance."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.certificates import read_certificates
from oncewire.agreement.check import Finding, Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.check.exposure import Abilities, refuse_unable
from oncewire.agreement.compose import profile_values
from oncewire.agreement.cppa.document import CpaDocument, CpaParty, read_document
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.cppa.writer import without_routing, write_cpa
from oncewire.agreement.toml import read_toml
from oncewire.entry.files import make_folder, read_bytes, read_text, write_new
from oncewire.entry.party.settings import Settings
from oncewire.errors import AgreementProblem, NotAllowed, NotHere, OncewireError
from oncewire.handler.perform import HANDLER
from oncewire.message.ids import PartyId
from oncewire.message.instant import Instant
from oncewire.message.kinds import quoted
from oncewire.message.kinds import read_toml as read_table
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


# Importing: a partner's CPA becomes an agreement of the party.


CPA_FOLDER = "cpa"
"""Where below the agreements the CPAs themselves lie."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A CPA as one of its parties sees it, and what is to be said about it."""

    agreement: Agreement
    xml: bytes
    own: PartyId
    # By what it was found that we are this party.
    because: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What `agreement import` has written."""

    partner: str
    agreement: Path


def understand(
    file: Path, settings: Settings | None, now: Instant, *, own: str = "", profile: str = ""
) -> Understood:
    """Read a CPA, find which party of it we are, and judge what it asks of us.

    Without settings it is only looked at. What cannot be read or honoured is an AgreementProblem.
    """
    xml = read_bytes(file, "CPA", AGREEMENT_MAX)
    document = read_document(xml)
    if profile:
        profile_values(profile)
    position, because = _which(document, settings, own)
    agreement = read_cpa(xml, own=position, profile=profile or None)
    refuse_unable(agreement, able(settings))
    findings = check(agreement, now=now, abilities=able(settings))
    # Refuse what contradicts itself, or asks for what is not built, so that nothing could be read
    # or sent.
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.key not in _MENDED_LATER:
            raise AgreementProblem(finding.sentence, key=finding.key, remedy=finding.fix)
    if settings is not None:
        findings = (*about_this_handler(settings, agreement), *findings)
    return Understood(agreement, xml, agreement.own.party.ids[0], because, findings)


_MENDED_LATER = frozenset(
    {
        *("start", "end", "status", "delivery.transports", "security.partner_certificates"),
        *("security.partner_encryption_certificates", "security.trust_anchors"),
        *(f"{side}.{key}certificates" for side in ("own", "partner") for key in ("", "signing_")),
    }
)
"""What does not keep a CPA out: dates pass, certificates are exchanged, and an action over mail
keeps no other action from being used. It is said, and what it concerns is refused when it is
used."""


# --- which party we are ------------------------------------------------------------------------


def _which(document: CpaDocument, settings: Settings | None, own: str) -> tuple[int, str]:
    """The position of our PartyInfo, and how it was found."""
    parties = document.parties
    if len(parties) != 2:
        raise AgreementProblem(
            f"the CPA has {len(parties)} PartyInfo elements",
            key="PartyInfo",
            remedy="a CPA is between exactly two parties",
        )
    if not all(party.ids for party in parties):
        raise AgreementProblem(
            "a party has no PartyId, as in the CPAs of PHINMS, which are of version 1.0",
            key="PartyId",
            remedy="write the agreement with `oncewire agreement new --profile phinms`",
        )
    ways = [(own, "--own")] if own else []
    if not own and settings is not None:
        party = settings.party
        typed = f"{party.party_type}:{party.party_id}" if party.party_type else ""
        ways += [(typed, "party.party_id"), (party.party_id, "party.party_id")]
        ways.append((party.name, "party.name"))
    for word, because in ways:
        matches = [at for at, one in enumerate(parties) if word and _is_called(one, word)]
        if len(matches) == 1:
            return matches[0], because
    if not own and settings is not None:
        certificate = _certificate(settings)
        matches = [
            at
            for at, one in enumerate(parties)
            if any(certificate in ders for ders in one.certificates.values())
        ]
        if certificate is not None and len(matches) == 1:
            return matches[0], "our certificate"
    names = "; ".join(
        f"{party.label} ({', '.join(one.spelled for one in party.ids) or 'no PartyId'})"
        for party in parties
    )
    problem = f"{own[:128]!r} is not one party" if own else "it is not clear which party we are"
    raise AgreementProblem(
        f"{problem} of this CPA: it is between {names}",
        key="own.party_id",
        remedy="name ours with --own, by its PartyId",
    )


def _is_called(party: CpaParty, word: str) -> bool:
    names = {party.name}
    for one in party.ids:
        names |= {one.value, one.spelled, str(one)}
    return word.casefold() in {name.casefold() for name in names if name}


def _certificate(settings: Settings) -> bytes | None:
    file = settings.path(settings.keys.certificate)
    if not file.is_file():
        return None
    return read_certificates(file.read_bytes())[0]


# --- what it means for this handler ------------------------------------------------------------


def about_this_handler(settings: Settings, agreement: Agreement) -> Iterator[Finding]:
    """Where what the partner was told of us is not so here."""
    yield from other_certificate(settings, agreement)
    yield from _other_type(settings, agreement)
    here = urlsplit(settings.endpoint_url)
    told = [end.address for end in agreement.own.endpoints if end.transport == "http"]
    if told and not any(_alike(urlsplit(address), here) for address in told):
        yield Finding(
            Severity.DANGER,
            "own.http",
            f"the partner sends to {told[0]}, and this handler listens at {settings.endpoint_url}",
            "set http.port, http.tls and http.path in oncewire.toml, or http.public_url where "
            "something in between takes messages there and brings them here",
            agreement.cpa_id,
        )


def _other_type(settings: Settings, agreement: Agreement) -> Iterator[Finding]:
    """Our id under another type is another party to a handler that compares both."""
    party, told = settings.party, agreement.own.party.ids
    ours = PartyId(party.party_id, party.party_type) if party.party_type else None
    if ours is None or ours in told or ours.value not in {one.value for one in told}:
        return
    yield Finding(
        Severity.DANGER,
        "own.party_id",
        f"agreement {agreement.cpa_id} calls us {told[0].spelled}, and we are {ours.spelled}: the "
        "same id of another type, by which other partners do not know us",
        "ask the partner which type is meant; set party.party_type, or have the CPA corrected",
        agreement.cpa_id,
    )


def _alike(told: SplitResult, here: SplitResult) -> bool:
    """Scheme and port: names of one machine differ, and every path of an agreement is served."""
    ports = {"http": 80, "https": 443}
    ends = [(url.scheme, url.port or ports.get(url.scheme)) for url in (told, here)]
    return ends[0] == ends[1]


def other_certificate(settings: Settings, agreement: Agreement) -> Iterator[Finding]:
    """Our key is another one than the agreement says: the partner will believe nothing of us.

    What it is known by on connections and what its signatures are known by may be agreed apart.
    """
    own, ours = agreement.own, _certificate(settings)
    signs = any(binding.security.sign for binding in agreement.bindings())
    shows = any(end.address.startswith("https:") for end in agreement.partner.endpoints)
    for told, what in (
        (own.signing_certificates if signs else (), "our signatures are"),
        (own.certificates if shows else (), "on connections we are"),
    ):
        if not told or ours is None or ours in told:
            continue
        shown, known = (hashlib.sha256(der).hexdigest()[:16] for der in (ours, told[0]))
        yield Finding(
            Severity.DANGER,
            "own.certificates",
            f"agreement {agreement.cpa_id} says that {what} known by the certificate "
            f"sha256:{known}, and our key has sha256:{shown}: the partner will not believe it",
            "use the key of that certificate ([keys] in oncewire.toml), or give the partner ours",
            agreement.cpa_id,
        )


# --- writing it down ---------------------------------------------------------------------------


def install(
    settings: Settings, found: Understood, *, name: str = "", profile: str = "", anew: bool = False
) -> Imported:
    """Keep the CPA, and write the file that makes it an agreement of the party."""
    folder = settings.path(settings.agreements.folder)
    called = name or _free_name(settings, found.agreement)
    file = folder / f"{called}.toml"
    cpa = folder / CPA_FOLDER / f"{called}.xml"
    if file.exists() and not anew:
        raise NotAllowed(
            f"there is an agreement {called} already: {file}",
            remedy="take another name with --name, or write it anew with --replace",
        )
    agreement = found.agreement
    for known in load_readable(settings).kept:
        same = known.agreement.cpa_id == agreement.cpa_id
        if (
            same
            and known.file != file
            and known.agreement.partner.is_named_by(agreement.partner.party)
        ):
            raise NotAllowed(
                f"agreement {agreement.cpa_id} is here already: {known.file}",
                remedy=f"import it as that one: --name {known.file.stem} --replace",
            )
    make_folder(cpa.parent)
    write_new(cpa, found.xml, replace=True)
    own = found.own
    typed = "" if own.type is None else f", type = {quoted(own.type)}"
    lines = [
        f"# The CPA {found.agreement.cpa_id}. `oncewire agreement show` lists all it says; what is",
        "# said below counts more than the CPA.",
        f"cpa = {quoted(os.path.relpath(cpa, folder))}",
    ]
    if profile:
        lines.append(f"profile = {quoted(profile)}")
    lines += ["", "[own]", f"party_id = [{{value = {quoted(own.value)}{typed}}}]"]
    write_new(file, "\n".join(lines) + "\n", replace=anew)
    return Imported(called, file)


def _free_name(settings: Settings, agreement: Agreement) -> str:
    """The partner's name; where that is another agreement's, the CPAId."""
    folder = settings.path(settings.agreements.folder)
    partner = agreement.partner
    first = _as_name(partner.name) or _as_name(partner.party.ids[0].value) or "partner"
    for known in load_readable(settings).kept:
        if known.file == folder / f"{first}.toml" and known.agreement.cpa_id != agreement.cpa_id:
            return _as_name(agreement.cpa_id) or first
    return first


def _as_name(text: str) -> str:
    """A name that can be a file's, and typed."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:63].strip("-").lower()


# Exporting: an agreement as a CPA for the partner.
#
# An agreement that came as a CPA goes out as that CPA, byte for byte, for both parties agreed on
# it and it may be signed. Where our file says something else than the CPA, and where there was
# none, a CPA is written, with our certificate in it.


def export_cpa(settings: Settings, agreement: Agreement, file: Path) -> bytes:
    """The CPA of an agreement that was read from that file.

    Where the agreement does not say what we are known by, our own certificate stands in a CPA that
    is written: the partner has to believe it.
    """
    came = _imported(file)
    if came is not None and _says_as_much(came, agreement):
        return came
    place, own = settings.path(settings.keys.certificate), agreement.own
    ours = read_certificates(place.read_bytes())[:1] if place.is_file() else ()
    secured = [binding.security for binding in agreement.bindings()]
    if any(security.sign or security.encrypt for security in secured):
        own = replace(own, signing_certificates=own.signing_certificates or ours)
    ends = (*own.endpoints, *agreement.partner.endpoints)
    if any(end.address.startswith("https:") for end in ends):
        own = replace(own, certificates=own.certificates or ours)
    return write_cpa(replace(agreement, own=own))


def _imported(file: Path) -> bytes | None:
    """The CPA that the agreement was imported from; None: there is none."""
    if file.suffix == ".xml":
        return read_bytes(file, "agreement", AGREEMENT_MAX)
    named = read_table(read_text(file, "agreement", AGREEMENT_MAX)).get("cpa")
    return None if named is None else loader(file.parent)(str(named))


def _says_as_much(cpa: bytes, agreement: Agreement) -> bool:
    """Whether the CPA says what holds: other names of the agreement are our own matter, as is what
    holds where the CPA is silent."""
    made = read_cpa(
        cpa,
        own=str(agreement.own.party.ids[0]),
        profile=agreement.profile,
        also_known_as=agreement.also_known_as,
        any_cpa_id=agreement.any_cpa_id,
    )
    return without_routing(made) == without_routing(agreement)
