"""Rolling over: a key follows another while both are valid, and a certificate is believed no more.

Our own key: the next pair lies beside the one in use, and our card carries both certificates, the
newest last. When every partner has the card, the next pair takes the place of the old one. A
partner's key: its new certificate is added to those we believe, and the old one is revoked when
nothing is signed with it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import PRIVATE, read_bytes, read_text, write_new
from oncewire.entry.party.folder import Card
from oncewire.entry.party.keys import KeyFiles, KeyKind, describe_keys, make_keys
from oncewire.entry.party.partners import (
    known_partner,
    partner_file,
    revoked_file,
    revoked_of,
    with_values,
)
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.message.instant import Instant
from oncewire.message.kinds import quoted

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

NEXT = ".next"


def next_files(settings: Settings) -> tuple[Path, Path]:
    """Where the certificate and the key that will follow ours are."""
    certificate = settings.path(settings.keys.certificate)
    key = settings.path(settings.keys.key)
    return (
        certificate.with_name(f"{certificate.stem}{NEXT}{certificate.suffix}"),
        key.with_name(f"{key.stem}{NEXT}{key.suffix}"),
    )


def make_next_keys(settings: Settings, now: Instant) -> KeyFiles:
    """Make the pair that will follow ours, for the same hosts and of the same kind."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    certificate, key = next_files(settings)
    if certificate.exists():
        raise NotAllowed(
            f"{certificate} is there already",
            remedy="give partners our card, then use it: `oncewire keys switch`",
        )
    old = x509.load_pem_x509_certificate(
        read_bytes(settings.path(settings.keys.certificate), "certificate")
    )
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
    )
    # Named after the party, wherever the settings have its files.
    made.key.replace(key)
    made.certificate.replace(certificate)
    return describe_keys(certificate, key)


def switch_keys(settings: Settings) -> KeyFiles:
    """The next pair becomes ours; the old one stays beside it, out of use."""
    certificate, key = next_files(settings)
    if not certificate.is_file() or not key.is_file():
        raise NotHere("there is no next key", remedy="make one: `oncewire keys next`")
    describe_keys(certificate, key)
    own_certificate, own_key = (
        settings.path(settings.keys.certificate),
        settings.path(settings.keys.key),
    )
    write_new(own_key.with_name(f"{own_key.name}.old"), read_bytes(own_key, "key"), PRIVATE,
              replace=True)  # fmt: skip
    # The key first: a handler that reads both in between keeps what it has.
    key.replace(own_key)
    certificate.replace(own_certificate)
    return describe_keys(own_certificate, own_key)


def roll_over(settings: Settings, card: Card) -> Path:
    """Believe the new certificates of a partner beside those it has."""
    from oncewire.agreement.certificates import read_certificates, to_pem

    partner = known_partner(settings, card.name)
    if card.party_id not in (party_id.value for party_id in partner.party.ids):
        raise InvalidValue(
            f"the card is of {card.party_id}, and our partner {card.name} is {partner.party}",
            remedy="ask the partner for its own card",
        )
    path = settings.path(settings.keys.partners) / f"{card.name}.crt"
    known = read_certificates(read_text(path, "partner's certificate"))
    passed = (*known, *revoked_of(settings, card.name))
    fresh = [der for der in read_certificates(card.certificate) if der not in passed]
    if not fresh:
        raise NotAllowed(f"{card.name} has no other certificate", remedy="ask for its new card")
    write_new(path, "".join(to_pem(der) for der in (*known, *fresh)), replace=True)
    return path


def revoke(settings: Settings, name: str, *, all_but_newest: bool = False) -> int:
    """Believe a partner's certificates no more, or all but its newest; returns how many. They
    count for nothing at once, whatever was accepted under them."""
    from oncewire.agreement.certificates import read_certificates, to_pem

    agreement = partner_file(settings, name)
    path = settings.path(settings.keys.partners) / f"{name}.crt"
    known = read_certificates(read_text(path, "partner's certificate"))
    gone = known[:-1] if all_but_newest else known
    if not gone:
        raise NotAllowed(f"{name} has one certificate only", remedy="leave --all-but-newest out")
    revoked = revoked_file(settings, name)
    listed = dict.fromkeys((*revoked_of(settings, name), *gone))
    write_new(revoked, "".join(to_pem(der) for der in listed), replace=True)
    text = read_text(agreement, "agreement")
    if agreement.suffix != ".toml":
        raise InvalidValue(
            f"{agreement} is no TOML agreement", remedy="name the certificates as its form has it"
        )
    place = Path("..") / path.parent.relative_to(settings.folder) / revoked.name
    if path.parent.is_absolute() and not path.parent.is_relative_to(settings.folder):
        place = revoked
    said = {"security.revoked": f"[{quoted(str(place))}]"}
    write_new(agreement, with_values(text, said), replace=True)
    if all_but_newest:
        write_new(path, to_pem(known[-1]), replace=True)
    return len(gone)
