"""Partners: from a card to an agreement, so that two parties can talk, and their new keys.

Both sides must end up with the same CPAId and the same profile. The CPAId is made of both
parties' names in alphabetical order, so each side finds the same one without asking the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from oncewire.agreement.agreement import Agreement, Origin, PartyTerms, Requested, Value
from oncewire.agreement.certificates import facts, read_certificates, to_pem
from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.compose import profile_values
from oncewire.agreement.toml import new, read_toml
from oncewire.entry.files import PRIVATE, PUBLIC, make_folder, read_bytes, read_text, write_new
from oncewire.entry.party.agreements import Kept, able, each_readable, load_readable, loader
from oncewire.entry.party.folder import (
    Card,
    KeyFiles,
    KeyKind,
    card_of,
    check_name,
    describe_keys,
    is_private,
    make_keys,
)
from oncewire.entry.party.settings import FILE, NEXT, Settings
from oncewire.errors import AgreementProblem, InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.handler.context import Keys
from oncewire.message.instant import DAY, Instant, format_duration, format_instant
from oncewire.message.kinds import quoted
from oncewire.protocol.terms import Scope
from oncewire.store.spool import sync_folder

_ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"
_NOT = Value("", None, Origin.DEFAULT)


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
    # Over which transports, in this order; none: over all that both have, HTTP first.
    transports: tuple[str, ...] = ()
    # In which roles we and the partner send; none: messages carry no role, and no CPA can be made.
    role: str = ""
    partner_role: str = ""

    @property
    def mirrored(self) -> PartnerOptions:
        """The same for the partner's own agreement."""
        return replace(self, role=self.partner_role, partner_role=self.role)


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
    # Both sides listen with TLS, unless it is said that they need not.
    for side, side_card in (("this party", own), (card.name, card)):
        if not options.insecure and not side_card.url.startswith("https://"):
            raise InvalidValue(
                f"{side} listens without TLS, at {side_card.url}",
                remedy="make the party anew without --insecure, or set http.tls and http."
                "client_certificates; or say --insecure, where the agreement begins",
            )
    agreement = settings.path(settings.agreements.folder) / f"{card.name}.toml"
    cpa_id = options.cpa_id or usual_cpa_id(own, card)
    _refuse_claims(settings, card, cpa_id, agreement)
    if agreement.exists() and not replace:
        raise NotAllowed(
            f"there is an agreement with {card.name} already: {agreement}",
            remedy="take its new certificate with --roll-over; or edit that file, or write it anew "
            "with --replace: the partner's file must change too, for both have to say the same",
        )
    certificate = settings.path(settings.keys.partners) / f"{card.name}.crt"
    # The certificates whose fingerprints the card tells, in PEM and nothing beside them; one that
    # was revoked here does not come back in the company of another.
    gone = revoked_of(settings, card.name)
    ders = dict.fromkeys(read_certificates(card.certificate))
    believed = "".join(to_pem(der) for der in ders if der not in gone)
    if not replace and certificate.is_file() and certificate.read_bytes() != believed.encode():
        # No partner has that name, and yet an agreement may name the file: a hub's, say.
        raise NotAllowed(
            f"there are other certificates of {card.name} already: {certificate}",
            remedy="remove that file if no agreement names it, or write it anew with --replace",
        )
    # A certificate can be asked of the partner's connection only where ours looks at it.
    bound = settings.http.tls and settings.http.client_certificates.value != "ignored"
    place = os.path.relpath(certificate, agreement.parent)
    text = _agreement_text(own, card, options, cpa_id, place, bound=bound)
    text = _remembered_long_enough(text, {place: believed.encode()})
    _refuse_dangers(settings, text, {place: believed.encode()}, options)
    added = Added(card.name, cpa_id, agreement, certificate, options.profile, card.fingerprint)
    return Planned(added, text, believed, replace)


def _refuse_claims(settings: Settings, card: Card, cpa_id: str, file: Path) -> None:
    """Refuse a card in the name of a partner that we have, and an agreement in the name of one:
    what it signs would be taken for the other's."""
    for kept in each_readable(settings):
        known = kept.agreement
        # Whatever its type: people compare the value.
        is_its = card.party_id in (party_id.value for party_id in known.partner.party.ids)
        if kept.file.stem == card.name and not is_its:
            raise NotAllowed(
                f"{card.name} is our partner {known.partner.party} already, and this is the card "
                f"of {card.party_id}",
                remedy="ask that party to call itself otherwise (party.name in its oncewire.toml); "
                f"if it takes the partner's place, move {kept.file} away first",
            )
        if kept.file == file:
            continue
        if is_its:
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


def check_card(settings: Settings, card: Card, now: Instant) -> None:
    """Refuse a card whose certificate cannot be used, or was ours to believe no more."""
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
    file = revoked_file(settings, name)
    return tuple(read_certificates(file.read_bytes())) if file.is_file() else ()


def known_partner(settings: Settings, name: str) -> PartyTerms:
    """The partner as the agreement with it has it."""
    file, found = partner_file(settings, name), load_readable(settings)
    if file in found.problems:
        raise found.problems[file]
    return next(kept.agreement.partner for kept in found.kept if kept.file == file)


def partner_file(settings: Settings, name: str) -> Path:
    """The agreement file of a partner."""
    path = settings.path(settings.agreements.folder) / f"{check_name(name)}.toml"
    if not path.is_file():
        raise NotHere(
            f"there is no partner {name}", remedy="`oncewire partner list` shows those there are"
        )
    return path


def _remembered_long_enough(text: str, files: Mapping[str, bytes]) -> str:
    """The agreement with a persistDuration that no retry outlives: several transports are tried
    one after the other, and some communities remember for less long than they retry (DRV-4)."""
    terms = read_toml(text, load=files.__getitem__).sending.terms
    if not terms.runs_protocol or terms.longest_retry <= terms.persist_duration:
        return text
    longest = terms.longest_retry
    if longest > DAY:
        longest = -(-longest // DAY) * DAY
    return with_values(text, {"delivery.persist_duration": quoted(format_duration(longest))})


_EXPOSED = ("own.http", "partner.http", "partner.client_certificates")


def _refuse_dangers(
    settings: Settings, text: str, files: Mapping[str, bytes], options: PartnerOptions
) -> None:
    """What our own check would call wrong or dangerous is not written; `files` are those that the
    agreement names. Less than TLS and signatures is written for whoever said so, and what a party
    is called is its own matter."""
    agreement = read_toml(text, load=files.__getitem__)
    for finding in check(agreement, abilities=able(settings)):
        key = finding.key
        exposed = key in _EXPOSED or key.startswith(("security.", "business."))
        accepted = options.insecure and exposed and finding.severity is not Severity.ERROR
        named = key in ("own.type", "partner.type")
        if finding.severity is not Severity.HINT and not (accepted or named):
            raise AgreementProblem(finding.sentence, key=key, remedy=finding.fix)


def _agreement_text(
    own: Card, partner: Card, options: PartnerOptions, cpa_id: str, certificate: str, *, bound: bool
) -> str:
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
    for side, card, role in ("own", own, options.role), ("partner", partner, options.partner_role):
        if card.party_type:
            said[f"{side}.type"] = quoted(card.party_type)
        if role:
            said[f"{side}.role"] = quoted(role)
    values = profile_values(options.profile)
    said |= _ways(own, partner, options, values)
    if values.get("security.encrypt", _NOT).value:
        # Payload keys are encrypted for RSA keys alone.
        for side, card in (("this party", own), (partner.name, partner)):
            if is_elliptic(card.certificate):
                raise InvalidValue(
                    f"{options.profile} encrypts payloads, and the key of {side} is elliptic",
                    remedy="make that party with `oncewire init --rsa`, or take a profile without "
                    "encryption",
                )
        said["security.partner_encryption_certificates"] = f"[{quoted(certificate)}]"
    if _left_open(values, "ack.request"):
        # The profile leaves it to each message; a newcomer wants every message to be reliable.
        said |= {"ack.request": quoted("always"), "duplicate.elimination": quoted("always")}
    said |= patience(options.profile)
    if options.ordered:
        said["sequence.ordered"] = "true"
    if is_elliptic(own.certificate):
        said["security.signature_algorithm"] = quoted(_ECDSA)
    if options.sign:
        said |= {"security.sign": "true", "security.require_signature": "true"}
        if _left_open(values, "ack.signature"):
            # Who signs everything may as well sign for what it received: that is evidence.
            said["ack.signature"] = quoted("always")
    return with_values(text, said)


def _ways(
    own: Card, partner: Card, options: PartnerOptions, values: Mapping[str, Value]
) -> dict[str, str]:
    """The transports that are chosen, else those of the profile, else all that both have: HTTP,
    then the others in the partner's order. Where numbers count per transport it is one."""
    ours, theirs = dict(own.addresses), dict(partner.addresses)
    both = ("http", *(name for name in theirs if name in ours))
    per_transport = values.get("sequence.scope", _NOT).value is Scope.TRIPLE
    usual = values.get("delivery.transports", _NOT).value or both[: 1 if per_transport else None]
    chosen = options.transports or usual
    for name in chosen:
        if name not in both:
            without = partner.name if name in ours else "this party"
            raise InvalidValue(
                f"{without} has no address for {name[:64]}",
                remedy=f"agree on {', '.join(both)}, or set {name[:64]} up in its oncewire.toml",
            )
    said: dict[str, str] = {}
    for name in chosen:
        if name != "http":
            said |= {f"own.{name}": quoted(ours[name]), f"partner.{name}": quoted(theirs[name])}
    if options.transports or said:
        said["delivery.transports"] = f"[{', '.join(map(quoted, chosen))}]"
    return said


def _left_open(values: Mapping[str, Value], key: str) -> bool:
    return key not in values or values[key].value is Requested.PER_MESSAGE


def is_elliptic(certificate: str) -> bool:
    """Whether a certificate has an elliptic key."""
    key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    return isinstance(key, ec.EllipticCurvePublicKey)


def patience(profile: str) -> dict[str, str]:
    """What a new agreement says of how long is tried, where its profile does not."""
    if "delivery.retries" in profile_values(profile):
        return {}
    return {f"delivery.{key}": literal for key, literal in PATIENCE.items()}


def with_values(text: str, said: dict[str, str]) -> str:
    """A commented agreement with some values said: commented keys are uncommented, others added."""
    lines = text.splitlines()
    for name, literal in said.items():
        section, _, key = name.rpartition(".")
        head = f"[{section}]"
        if head not in lines:
            lines += ["", head]
        start = lines.index(head)
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


def change_file(file: Path, said: dict[str, str], mode: int = PUBLIC) -> None:
    """Write an agreement or settings anew, with some values said."""
    text = read_text(file, "settings" if file.name == FILE else "agreement")
    write_new(file, with_values(text, said), mode, replace=True)


# Itself: the agreement by which a party's handler answers its own party, and nothing else.
#
# `oncewire doctor` sends a Ping through the real endpoint to the handler it came from: over the
# network, through TLS, reader and signature, to the handler's turn and back. No service is agreed
# on, so no message under it reaches an application or is counted.

CPA_ID = "oncewire-itself"


def agreement_with_itself(settings: Settings) -> Agreement | None:
    """Signals only, signed where there is a key; None where the party has no id yet."""
    party, (certificate, key) = settings.party, settings.key_files
    if not party.party_id:
        return None
    url = settings.endpoint_url
    text = new(
        cpa_id=CPA_ID, own=party.party_id, partner=party.party_id, address=url, profile="ebms2",
        own_address=url,
    )  # fmt: skip
    # The answer is wanted by one who hears nothing but his own connection.
    said = {"sync.mode": quoted("mshSignalsOnly")}
    for side in ("own", "partner"):
        if party.party_type:
            said[f"{side}.type"] = quoted(party.party_type)
    if certificate.is_file() and key.is_file():
        shown = f"[{quoted(str(certificate))}]"
        said |= {"security.partner_certificates": shown, "security.sign": "true"}
        said["security.require_signature"] = "true"
        if is_elliptic(certificate.read_text(encoding="ascii")):
            said["security.signature_algorithm"] = quoted(_ECDSA)
        if settings.http.tls and settings.http.client_certificates.value != "ignored":
            said["partner.client_certificates"] = shown
    agreement = read_toml(with_values(text, said), load=loader(Path("/")))
    return replace(agreement, actions=(), listed_only=True)


def kept_itself(settings: Settings) -> Kept | None:
    """The same as `ping` wants it."""
    agreement = agreement_with_itself(settings)
    name = settings.party.name or "itself"
    return None if agreement is None else Kept(settings.folder / f"{name}.toml", agreement)


# Rolling over: a key follows another while both are valid, and a certificate is believed no more.
#
# Our own key: the next pair lies beside the one in use, and our card carries both certificates,
# the newest last. When every partner has the card, the next pair takes the place of the old one.
# A partner's key: its new certificate is added to those we believe, and the old one is revoked
# when nothing is signed with it any more.


def make_next_keys(settings: Settings, now: Instant) -> KeyFiles:
    """Make the pair that will follow ours, for the same hosts and of the same kind."""
    certificate, key = settings.next_key_files
    if certificate.exists():
        raise NotAllowed(
            f"{certificate} is there already",
            remedy="give partners our card, then use it: `oncewire keys switch`",
        )
    old = x509.load_pem_x509_certificate(read_bytes(settings.key_files[0], "certificate"))
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [str(name.value) for name in names]
    kind = KeyKind.RSA if isinstance(old.public_key(), rsa.RSAPublicKey) else KeyKind.EC
    made = make_keys(
        certificate.parent,
        settings.party.name + NEXT,
        now=now,
        kind=kind,
        hosts=hosts,
        subject=settings.party.name,
        # A key without its certificate is left of one that was killed while it made them.
        replace=True,
    )
    # Named after the party, wherever the settings have its files.
    made.key.replace(key)
    made.certificate.replace(certificate)
    return describe_keys(certificate, key)


def switch_keys(settings: Settings) -> KeyFiles:
    """The next pair becomes ours; the old one stays beside it, out of use."""
    if finish_switch(settings):
        return describe_keys(*settings.key_files)
    (certificate, key), (_, own_key) = settings.next_key_files, settings.key_files
    if not certificate.is_file() or not key.is_file():
        raise NotHere("there is no next key", remedy="make one: `oncewire keys next`")
    describe_keys(certificate, key)
    write_new(own_key.with_name(f"{own_key.name}.old"), read_bytes(own_key, "key"), PRIVATE,
              replace=True)  # fmt: skip
    # The key first: whoever finds both in between ends the switch.
    key.replace(own_key)
    finish_switch(settings)
    return describe_keys(*settings.key_files)


def finish_switch(settings: Settings) -> bool:
    """End a switch of keys that was killed between its two files: our key is the next one's
    already, and its certificate waits. False: there is none to end."""
    certificate, key = settings.next_key_files
    own, own_key = settings.key_files
    if key.exists() or not certificate.is_file():
        return False
    try:
        describe_keys(certificate, own_key)
    except OncewireError:
        return False
    # Another process may end it at the same time.
    with suppress(FileNotFoundError):
        certificate.replace(own)
    sync_folder(own.parent)
    return True


def new_certificates(
    settings: Settings, card: Card
) -> tuple[Path, tuple[bytes, ...], tuple[bytes, ...]]:
    """The file of a partner's certificates, those in it, and those that its card has beside them;
    NotAllowed where there is none."""
    partner = known_partner(settings, card.name)
    if card.party_id not in (party_id.value for party_id in partner.party.ids):
        raise InvalidValue(
            f"the card is of {card.party_id}, and our partner {card.name} is {partner.party}",
            remedy="ask the partner for its own card",
        )
    path = settings.path(settings.keys.partners) / f"{card.name}.crt"
    known = read_certificates(read_text(path, "partner's certificate"))
    passed = (*known, *revoked_of(settings, card.name))
    fresh = tuple(der for der in read_certificates(card.certificate) if der not in passed)
    if not fresh:
        raise NotAllowed(f"{card.name} has no other certificate", remedy="ask for its new card")
    return path, known, fresh


def roll_over(settings: Settings, card: Card, now: Instant) -> Path:
    """Believe the new certificates of a partner beside those it has."""
    check_card(settings, card, now)
    path, known, fresh = new_certificates(settings, card)
    write_new(path, "".join(to_pem(der) for der in (*known, *fresh)), replace=True)
    return path


def revoke(settings: Settings, name: str, *, all_but_newest: bool = False) -> int:
    """Believe a partner's certificates no more, or all but its newest; returns how many. They
    count for nothing at once, whatever was accepted under them."""
    agreement = partner_file(settings, name)
    path = settings.path(settings.keys.partners) / f"{name}.crt"
    known = read_certificates(read_text(path, "partner's certificate"))
    gone = known[:-1] if all_but_newest else known
    if not gone:
        raise NotAllowed(f"{name} has one certificate only", remedy="leave --all-but-newest out")
    revoked = revoked_file(settings, name)
    listed = dict.fromkeys((*revoked_of(settings, name), *gone))
    write_new(revoked, "".join(to_pem(der) for der in listed), replace=True)
    place = Path("..") / path.parent.relative_to(settings.folder) / revoked.name
    if path.parent.is_absolute() and not path.parent.is_relative_to(settings.folder):
        place = revoked
    change_file(agreement, {"security.revoked": f"[{quoted(str(place))}]"})
    if all_but_newest:
        write_new(path, to_pem(known[-1]), replace=True)
    return len(gone)


def keys_of(settings: Settings) -> Keys | None:
    """What the party signs with; None where it has no key."""
    certificate, key = settings.key_files
    if not key.is_file() and not certificate.is_file():
        return None
    finish_switch(settings)
    # Says in words what is wrong with either file, or that they do not belong together.
    describe_keys(certificate, key)
    if not is_private(key):
        raise InvalidValue(
            f"others on this machine can read the private key {key}", remedy=f"chmod 600 {key}"
        )
    return read_keys(certificate, key)


def read_keys(certificate: Path, key: Path) -> Keys:
    """A key to sign with, and the certificate that belongs to it."""
    secret = serialization.load_pem_private_key(read_bytes(key, "private key"), None)
    if not isinstance(secret, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise InvalidValue(f"{key} is neither RSA nor EC", remedy="make a key of one of them")
    shown = x509.load_pem_x509_certificate(read_bytes(certificate, "certificate"))
    return Keys(shown, secret)
