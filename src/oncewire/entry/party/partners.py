"""Partners: from a card to an agreement, so that two parties can talk.

Both sides must end up with the same CPAId and the same profile. The CPAId is made of both
parties' names in alphabetical order, so each side finds the same one without asking the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import make_folder, write_new
from oncewire.entry.party.folder import Card, card_of, check_name
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.message.instant import Instant, format_instant
from oncewire.message.kinds import quoted

if TYPE_CHECKING:
    from oncewire.agreement.agreement import PartyTerms, Value

_ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"


PATIENCE = {
    "timeout": quoted("PT1M"),
    "retries": "288",
    "retry_interval": quoted("PT5M"),
    "persist_duration": quoted("P2D"),
}
"""What a newcomer's agreement says where its profile does not: a partner may be away for a night
and a morning. It is tried every five minutes for a day, and ids are remembered for two (RTY-18,
DRV-4)."""


@dataclass(frozen=True, slots=True)
class PartnerOptions:
    """What the agreement with a partner should say beyond its profile."""

    profile: str = "ebms2"
    cpa_id: str = ""
    sign: bool = False
    ordered: bool = False
    # Neither TLS nor signatures need be agreed: for tests, and for lines that are safe anyway.
    insecure: bool = True


@dataclass(frozen=True, slots=True)
class Added:
    """What `partner add` has written."""

    partner: str
    cpa_id: str
    agreement: Path
    certificate: Path
    profile: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A partner about whom nothing is left to refuse, and nothing is written yet."""

    added: Added
    text: str
    # PEM of its certificates.
    believed: str
    replace: bool

    def write(self) -> Added:
        """Write the partner's certificate and the agreement with it into our folder."""
        certificate, agreement = self.added.certificate, self.added.agreement
        make_folder(certificate.parent)
        make_folder(agreement.parent)
        write_new(certificate, self.believed, replace=True)
        write_new(agreement, self.text, replace=self.replace)
        return self.added


def add_partner(
    settings: Settings, card: Card, options: PartnerOptions, *, replace: bool = False
) -> Added:
    """Write the partner's certificate and an agreement with it into our folder."""
    return plan_partner(settings, card, options, replace=replace).write()


def plan_partner(
    settings: Settings, card: Card, options: PartnerOptions, *, replace: bool = False
) -> Planned:
    """What that would write, once everything is known to be in order."""
    own = card_of(settings)
    if own.party_id == card.party_id or own.name == card.name:
        raise InvalidValue(
            f"{card.name} is this party itself", remedy="name the card of another party"
        )
    _check_secure(own, card, options)
    agreement = settings.path(settings.agreements.folder) / f"{card.name}.toml"
    if agreement.exists() and not replace:
        raise NotAllowed(
            f"there is an agreement with {card.name} already: {agreement}",
            remedy="edit that file, or write it anew with --replace",
        )
    cpa_id = options.cpa_id or usual_cpa_id(own, card)
    _refuse_claims(settings, card, cpa_id, agreement)
    certificate = settings.path(settings.keys.partners) / f"{card.name}.crt"
    believed = _believed(settings, card)
    if not replace and certificate.is_file() and certificate.read_bytes() != believed.encode():
        # Nobody of that name is a partner, and yet an agreement may name the file: a hub's, say.
        raise NotAllowed(
            f"there are other certificates of {card.name} already: {certificate}",
            remedy="remove that file if no agreement names it, or write it anew with --replace",
        )
    # A certificate can be asked of the partner's connection only where ours looks at it.
    bound = settings.http.tls and settings.http.client_certificates.value != "ignored"
    place = os.path.relpath(certificate, agreement.parent)
    text = _agreement_text(own, card, options, cpa_id, place, bound=bound)
    _check(text, {place: believed.encode()})
    added = Added(card.name, cpa_id, agreement, certificate, options.profile, card.fingerprint)
    return Planned(added, text, believed, replace)


def _refuse_claims(settings: Settings, card: Card, cpa_id: str, file: Path) -> None:
    """Refuse a card in the name of a partner that we have, and an agreement in the name of one:
    what it signs would be taken for the other's."""
    from oncewire.entry.party.agreements import each_readable

    for kept in each_readable(settings):
        known = kept.agreement
        if kept.file == file:
            continue
        # Whatever its type: people compare the value.
        if card.party_id in (party_id.value for party_id in known.partner.party.ids):
            raise NotAllowed(
                f"{card.party_id} is our partner {kept.file.stem} already, and this card calls "
                f"itself {card.name}",
                remedy="ask the partner by another way; a second agreement with one party is "
                "begun with `oncewire agreement new`",
            )
        if cpa_id in (known.cpa_id, *known.also_known_as):
            raise NotAllowed(
                f"{cpa_id} is the agreement with {kept.file.stem} already",
                remedy="agree on another CPAId: --cpa-id of `oncewire partner invite` and `add`",
            )


def usual_cpa_id(own: Card, partner: Card) -> str:
    """The CPAId that either side finds without asking the other."""
    return "-".join(sorted((own.name, partner.name)))


def _believed(settings: Settings, card: Card) -> str:
    """The certificates whose fingerprints the card tells, in PEM and nothing beside them; one that
    was revoked here does not come back in the company of another."""
    from oncewire.agreement.certificates import read_certificates, to_pem

    gone = revoked_of(settings, card.name)
    ders = dict.fromkeys(read_certificates(card.certificate))
    return "".join(to_pem(der) for der in ders if der not in gone)


def check_card(settings: Settings, card: Card, now: Instant) -> None:
    """Refuse a card whose certificate cannot be used, or was ours to believe no more."""
    from oncewire.agreement.certificates import facts, read_certificates

    newest = read_certificates(card.certificate)[-1]
    known = facts(newest)
    if known is not None and known.not_after <= now:
        raise InvalidValue(
            f"the certificate of {card.name} ended at {format_instant(known.not_after)}",
            remedy="ask the partner for its new card; there oncewire keys next makes one",
        )
    if newest in revoked_of(settings, card.name):
        raise NotAllowed(
            f"the certificate of {card.name} was revoked here",
            remedy="ask the partner for a card with another one; to believe this one again, "
            f"remove {revoked_file(settings, card.name)}, then add it with --replace",
        )


def revoked_file(settings: Settings, name: str) -> Path:
    """Where the certificates of a partner are that `oncewire partner revoke` has put away."""
    return settings.path(settings.keys.partners) / f"{name}.revoked"


def revoked_of(settings: Settings, name: str) -> tuple[bytes, ...]:
    """Those certificates, as DER."""
    from oncewire.agreement.certificates import read_certificates

    file = revoked_file(settings, name)
    return tuple(read_certificates(file.read_bytes())) if file.is_file() else ()


def known_partner(settings: Settings, name: str) -> PartyTerms:
    """The partner as the agreement with it has it."""
    from oncewire.entry.party.agreements import load_readable

    file, found = partner_file(settings, name), load_readable(settings)
    if file in found.problems:
        raise found.problems[file]
    return next(kept.agreement.partner for kept in found.kept if kept.file == file)


def _check_secure(own: Card, card: Card, options: PartnerOptions) -> None:
    """Both sides listen with TLS, unless somebody says that it need not be."""
    for side, side_card in (("this party", own), (card.name, card)):
        if not options.insecure and not side_card.url.startswith("https://"):
            raise InvalidValue(
                f"{side} listens without TLS, at {side_card.url}",
                remedy="make the party anew without --insecure, or set http.tls and http."
                "client_certificates; or say --insecure, where the agreement begins",
            )


def partner_file(settings: Settings, name: str) -> Path:
    """The agreement file of a partner."""
    path = settings.path(settings.agreements.folder) / f"{check_name(name)}.toml"
    if not path.is_file():
        raise NotHere(
            f"there is no partner {name}", remedy="`oncewire partner list` shows those there are"
        )
    return path


def _check(text: str, files: dict[str, bytes]) -> None:
    """An agreement that cannot be read back must not be written; `files` are those it names."""
    from oncewire.agreement.toml.reader import read_toml

    read_toml(text, load=files.__getitem__)


def _agreement_text(
    own: Card, partner: Card, options: PartnerOptions, cpa_id: str, certificate: str, *, bound: bool
) -> str:
    from oncewire.agreement.profiles import profile_values
    from oncewire.agreement.toml.writer import new

    text = new(
        cpa_id=cpa_id,
        own=own.party_id,
        partner=partner.party_id,
        address=partner.url,
        profile=options.profile,
        own_address=own.url,
    )
    said = {"security.partner_certificates": f"[{quoted(certificate)}]"}
    if bound:
        said["partner.client_certificates"] = f"[{quoted(certificate)}]"
    for side, card in (("own", own), ("partner", partner)):
        if card.party_type:
            said[f"{side}.type"] = quoted(card.party_type)
    said |= _other_ways(own, partner)
    values = profile_values(options.profile)
    if _left_open(values, "ack.request"):
        # The profile leaves it to each message; a newcomer wants every message to be reliable.
        said |= {"ack.request": quoted("always"), "duplicate.elimination": quoted("always")}
    said |= patience(options.profile)
    if options.ordered:
        said["sequence.ordered"] = "true"
    if options.sign:
        said |= {"security.sign": "true", "security.require_signature": "true"}
        if is_elliptic(own.certificate):
            said["security.signature_algorithm"] = quoted(_ECDSA)
        if _left_open(values, "ack.signature"):
            # Who signs everything may as well sign for what it received: that is evidence.
            said["ack.signature"] = quoted("always")
    return with_values(text, said)


def _other_ways(own: Card, partner: Card) -> dict[str, str]:
    """Transports that both have beside HTTP: tried after it, in the partner's order."""
    ours = dict(own.addresses)
    both = [(name, address) for name, address in partner.addresses if name in ours]
    said: dict[str, str] = {}
    for name, address in both:
        said |= {f"own.{name}": quoted(ours[name]), f"partner.{name}": quoted(address)}
    if both:
        ways = ", ".join(quoted(name) for name in ("http", *(name for name, _ in both)))
        said["delivery.transports"] = f"[{ways}]"
    return said


def _left_open(values: Mapping[str, Value], key: str) -> bool:
    from oncewire.agreement.agreement import Requested

    return key not in values or values[key].value is Requested.PER_MESSAGE


def is_elliptic(certificate: str) -> bool:
    """Whether a certificate has an elliptic key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    return isinstance(key, ec.EllipticCurvePublicKey)


def patience(profile: str) -> dict[str, str]:
    """What a new agreement says of how long is tried, where its profile does not."""
    from oncewire.agreement.profiles import profile_values

    if "delivery.retries" in profile_values(profile):
        return {}
    return {f"delivery.{key}": literal for key, literal in PATIENCE.items()}


def with_values(text: str, said: dict[str, str]) -> str:
    """A commented agreement with some values said: commented keys are uncommented, others added."""
    lines = text.splitlines()
    for name, literal in said.items():
        section, _, key = name.rpartition(".")
        start = _section_line(lines, section)
        end = next(
            (at for at in range(start + 1, len(lines)) if lines[at].startswith("[")), len(lines)
        )
        line = f"{key} = {literal}"
        for at in range(start + 1, end):
            bare = lines[at].removeprefix("# ")
            if bare.startswith(f"{key} = "):
                lines[at] = line
                break
        else:
            lines.insert(start + 1, line)
    return "\n".join(lines) + "\n"


def _section_line(lines: list[str], section: str) -> int:
    head = f"[{section}]"
    if head not in lines:
        lines += ["", head]
    return lines.index(head)
