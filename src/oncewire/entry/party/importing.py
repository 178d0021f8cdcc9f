"""Importing: a partner's CPA becomes an agreement of the party.

The CPA itself is kept as it came, in a folder below the agreements; a short file beside them names
it, says which of its parties we are, and may say more. So nothing of the CPA is translated, and
what was changed here can be seen at a glance.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import read_certificates
from oncewire.agreement.check.checks import check
from oncewire.agreement.check.exposure import refuse_unable
from oncewire.agreement.check.finding import Finding, Severity
from oncewire.agreement.compose import profile_values
from oncewire.agreement.cppa.document import CpaDocument, CpaParty, read_document
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.cppa.writer import without_routing, write_cpa
from oncewire.entry.files import make_folder, read_bytes, read_text, write_new
from oncewire.entry.party.agreements import AGREEMENT_MAX, able, load_readable, loader
from oncewire.entry.party.settings import Settings
from oncewire.errors import AgreementProblem, NotAllowed
from oncewire.message.ids import PartyId
from oncewire.message.instant import Instant
from oncewire.message.kinds import quoted, read_toml

FOLDER = "cpa"
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
    cpa: Path


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
    cpa = folder / FOLDER / f"{called}.xml"
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
    return Imported(called, file, cpa)


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
    named = read_toml(read_text(file, "agreement", AGREEMENT_MAX)).get("cpa")
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
