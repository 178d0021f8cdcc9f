"""A party's folder: made by `oncewire init`, introduced to partners by a card.

    acme/
      oncewire.toml      settings
      keys/              our key and certificate; partners/ holds theirs
      agreements/        one file per partner
      data/              the database, large payloads, the inbox
      store.json         which store it has, as its handler noted it

A card is what one party tells another about itself: who it is, where it listens, which
certificate it shows. It holds nothing secret and can be sent by mail.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oncewire.entry.files import (
    PRIVATE,
    PRIVATE_FOLDER,
    PUBLIC,
    make_folder,
    read_bytes,
    read_text,
    write_new,
)
from oncewire.entry.party.settings import FILE, LOOPBACK, Settings, first_settings, load
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.message.ids import check_id, is_uri
from oncewire.message.instant import Instant
from oncewire.message.kinds import quoted, read_toml

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa


# Keys and certificates of a party: made here, kept in files that only their owner can read.

# Two years: long enough not to be a chore, short enough that a lost key stops mattering.
VALID_DAYS = 730
_RSA_BITS = 3072


class KeyKind(StrEnum):
    """RSA is what every partner's software takes; EC signs about fifty times faster."""

    RSA = "rsa"
    EC = "ec"


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Where a key pair is, and how its certificate is known."""

    certificate: Path
    key: Path
    fingerprint: str
    subject: str
    not_after: Instant


def make_keys(
    folder: Path,
    name: str,
    *,
    now: Instant,
    kind: KeyKind = KeyKind.RSA,
    hosts: Iterable[str] = ("localhost", "127.0.0.1", "::1"),
    replace: bool = False,
    subject: str = "",
) -> KeyFiles:
    """Make a key pair and a self-signed certificate: `NAME.key` (0600) and `NAME.crt`; it names
    `subject`, if that is another name than the files'."""
    from cryptography.hazmat.primitives import serialization

    key = _generate(kind)
    certificate = _self_signed(key, subject or name, now, hosts)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_path = write_new(folder / f"{name}.key", secret, PRIVATE, replace=replace)
    text = certificate.public_bytes(serialization.Encoding.PEM)
    certificate_path = write_new(folder / f"{name}.crt", text, PUBLIC, replace=replace)
    return _described(certificate, certificate_path, key_path)


def describe_keys(certificate: Path, key: Path) -> KeyFiles:
    """What the files hold; InvalidValue when they do not belong together."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        shown = x509.load_pem_x509_certificate(read_bytes(certificate, "certificate"))
    except ValueError as error:
        raise InvalidValue(
            f"{certificate} is no PEM certificate: {error}", remedy="name another file"
        ) from None
    try:
        secret = serialization.load_pem_private_key(read_bytes(key, "private key"), None)
    except (ValueError, TypeError) as error:
        raise InvalidValue(
            f"{key} is no unencrypted PEM private key: {error}", remedy="name another file"
        ) from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if secret.public_key().public_bytes(*form) != shown.public_key().public_bytes(*form):
        raise InvalidValue(
            f"{key} is not the key of {certificate}", remedy="name the pair that belongs together"
        )
    return _described(shown, certificate, key)


def is_private(path: Path) -> bool:
    """Whether only its owner can read the file."""
    return path.stat().st_mode & 0o077 == 0


def _generate(kind: KeyKind) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if kind is KeyKind.EC:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)


def _self_signed(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    name: str,
    now: Instant,
    hosts: Iterable[str],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    # A day back, for partners whose clocks are behind ours.
    start = datetime.fromtimestamp(now / 1_000_000, UTC).replace(microsecond=0) - timedelta(days=1)
    uses = dict.fromkeys(
        (
            "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
            "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
        ),
        False,
    )  # fmt: skip
    # Signing messages, TLS on both ends, and (RSA) keys of encrypted payloads.
    uses |= {"digital_signature": True, "content_commitment": True}
    uses["key_encipherment"] = isinstance(key, rsa.RSAPrivateKey)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=VALID_DAYS + 1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**uses), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _described(certificate: x509.Certificate, path: Path, key: Path) -> KeyFiles:
    from cryptography.hazmat.primitives import serialization

    from oncewire.agreement.certificates import spoken_fingerprint

    return KeyFiles(
        certificate=path,
        key=key,
        fingerprint=spoken_fingerprint(certificate.public_bytes(serialization.Encoding.DER)),
        subject=certificate.subject.rfc4514_string(),
        not_after=int(certificate.not_valid_after_utc.timestamp()) * 1_000_000,
    )


CARD_VERSION = 1
CARD_ENDING = ".card.toml"
FILE_MAX = 256 * 1024
"""Bytes of a card or an invitation, which hold a certificate or two."""
CERTIFICATES_MAX = 2
"""The one in use, and the one that follows it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_CARD_KEYS = ("version", "name", "party_id", "party_type", "url", "certificate", "fingerprint")
_OPTIONAL = ("party_type", "fingerprint")
_ADDRESSES = "addresses"
_IGNORED = "# Keys and data stay on this machine.\nkeys/*.key\ndata/\nstore.json\n"


@dataclass(frozen=True, slots=True)
class Card:
    """What a party tells its partners about itself; nothing in it is secret."""

    name: str
    party_id: str
    url: str
    certificate: str
    party_type: str = ""
    # Where it is reached beside HTTP: transport and address.
    addresses: tuple[tuple[str, str], ...] = ()

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of each certificate, the newest last: the taker of the card believes them all,
        so people compare them all."""
        return fingerprints_of(self.certificate)

    @property
    def fingerprint(self) -> str:
        """All of them in one text."""
        return ", ".join(self.fingerprints)

    def to_toml(self) -> str:
        """The card as a file."""
        lines = [
            "# A party's card: give it to a partner, who runs `oncewire partner add` with it.",
            f"version = {CARD_VERSION}",
            f"name = {quoted(self.name)}",
            f"party_id = {quoted(self.party_id)}",
        ]
        if self.party_type:
            lines.append(f"party_type = {quoted(self.party_type)}")
        lines.append(f"url = {quoted(self.url)}")
        if self.addresses:
            also = ", ".join(f"{name} = {quoted(address)}" for name, address in self.addresses)
            lines.append(f"{_ADDRESSES} = {{ {also} }}")
        lines += [
            f'certificate = """\n{self.certificate.strip()}\n"""',
            "# Compare it with the other side over another channel, such as the telephone.",
            f"fingerprint = {quoted(self.fingerprint)}",
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Made:
    """What `init` has made."""

    folder: Path
    name: str
    party_id: str
    settings: Settings
    keys: KeyFiles


def check_name(name: str) -> str:
    """A name that can be a file's, a node's and a certificate's."""
    if not _NAME.match(name):
        raise InvalidValue(
            f"{name[:64]!r} cannot be a party's name",
            remedy="use up to 63 letters, digits, - and _, beginning with a letter or digit",
        )
    return name


def make_party(
    folder: Path,
    name: str,
    *,
    now: Instant,
    party_id: str | None = None,
    party_type: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8500,
    url: str = "",
    store: str = "",
    tls: bool = False,
    key_kind: KeyKind = KeyKind.RSA,
    transports: tuple[str, ...] = (),
) -> Made:
    """Make a working party in a folder that is new or empty of one."""
    check_name(name)
    more = _store_text(store)
    more += "".join(first_settings(transport, name) for transport in transports)
    if (folder / FILE).exists():
        raise NotAllowed(
            f"{folder} holds a party already", remedy="choose another folder, or remove this one"
        )
    own_id = check_id(party_id or f"urn:oncewire:party:{name}", "party_id")
    if not party_type and not is_uri(own_id):
        raise InvalidValue(
            f"the party id {own_id!r} is no URI and has no type",
            remedy="use a URI such as urn:duns:123456789, or add --party-type",
        )
    make_folder(folder)
    make_folder(folder / "keys", PRIVATE_FOLDER)
    make_folder(folder / "keys" / "partners")
    make_folder(folder / "agreements")
    make_folder(folder / "data", PRIVATE_FOLDER)
    public = _public_host(url)
    named = () if host in {"0.0.0.0", "::", ""} else (host,)  # noqa: S104 - only compared
    hosts = dict.fromkeys(("localhost", "127.0.0.1", "::1", *named, *public))
    keys = make_keys(folder / "keys", name, now=now, kind=key_kind, hosts=hosts)
    write_new(folder / ".gitignore", _IGNORED, replace=True)
    text = _settings_text(name, own_id, party_type, host, port, url, tls=tls) + more
    # Last, because a folder with this file is a party: a half-made one can be made again.
    write_new(folder / FILE, text, PRIVATE)
    settings = load(folder, environ={}).settings
    return Made(folder, name, own_id, settings, keys)


def _store_text(url: str) -> str:
    """The section of the settings that names a database server; empty: the store is a file."""
    if not url:
        return ""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise InvalidValue(
            "the store is no address of a PostgreSQL database",
            remedy="use postgresql://user@host/database, or leave it out for a file of its own",
        )
    return f"\n[store]\nurl = {quoted(url)}\n"


def _public_host(url: str) -> tuple[str, ...]:
    if not url:
        return ()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValue(
            f"{url!r} is no address that partners can send to", remedy="use https://host:port/path"
        )
    return (parts.hostname,)


def _settings_text(
    name: str, party_id: str, party_type: str | None, host: str, port: int, url: str, *, tls: bool
) -> str:
    typed = f"party_type = {quoted(party_type)}\n" if party_type else ""
    # A party on loopback talks to parties on loopback; one that listens to the world does not.
    inward = host in LOOPBACK
    public = f"public_url = {quoted(url)}\n" if url else ""
    allow = '["public", "loopback"]' if inward else '["public"]'
    mutual = (
        "# Partners show the certificate of their card; the agreement names it.\n"
        'client_certificates = "required"\n'
        if tls
        else ""
    )
    return f"""\
# Settings of the party {name}. `oncewire config show` lists every setting and its value;
# ONCEWIRE_* variables and --set flags win over this file.

[party]
name = {quoted(name)}
party_id = {quoted(party_id)}
{typed}
[http]
host = {quoted(host)}
port = {port}
{public}tls = {str(tls).lower()}
{mutual}# Where we may connect to. Without "loopback" or "private" an address of a partner that
# points into this machine or network is refused.
allow = {allow}

[keys]
certificate = "keys/{name}.crt"
key = "keys/{name}.key"

[application]
# How documents reach your program: "pull" (`oncewire inbox`), "directory", "webhook" or
# "function".
way = "pull"

[log]
level = "info"
form = "json"
"""


# --- cards -------------------------------------------------------------------------------------


def card_of(settings: Settings) -> Card:
    """The card of a party."""
    if not settings.party.name or not settings.party.party_id:
        raise InvalidValue(
            f"{settings.folder / FILE} does not say who the party is",
            remedy="set party.name and party.party_id",
        )
    certificate = read_text(settings.key_files[0], "certificate")
    following, _ = settings.next_key_files
    if following.is_file():
        # Both are valid while partners take the new one in; it is named last.
        certificate = certificate.strip() + "\n" + read_text(following, "certificate")
    return Card(
        name=settings.party.name,
        party_id=settings.party.party_id,
        url=settings.endpoint_url,
        certificate=certificate,
        party_type=settings.party.party_type,
        addresses=tuple(settings.addresses.items()),
    )


def read_card(place: Path) -> Card:
    """A card from its file, or of a party whose folder is on this machine."""
    if place.is_dir():
        if not (place / FILE).is_file():
            raise NotHere(
                f"{place} is no party's folder",
                remedy="name a card, or a folder with oncewire.toml",
            )
        return card_of(load(place, environ={}).settings)
    return read_card_text(read_text(place, "card", FILE_MAX), place)


def read_card_text(text: str, place: Path | str) -> Card:
    """The same of its text; `place` is the file, for the reader of what is wrong."""
    try:
        table = read_toml(text)
    except InvalidValue as error:
        problem = f"{place} is no card: {error.problem}"
        raise InvalidValue(problem, remedy="ask for a new one") from None
    return card_from(table, place)


def card_from(table: dict[str, object], place: Path | str) -> Card:
    """The card that a table of a file has; `place` is the file, for the reader of what is wrong."""
    unknown = sorted(set(table) - {*_CARD_KEYS, _ADDRESSES})
    if unknown or table.get("version") != CARD_VERSION:
        raise InvalidValue(
            f"{place} is no card of version {CARD_VERSION}"
            + (f": it has {', '.join(unknown)[:100]}" if unknown else ""),
            remedy="ask the partner for what oncewire partner card writes there",
        )
    texts = {name: table.get(name, "") for name in _CARD_KEYS[1:]}
    for name, value in texts.items():
        if not isinstance(value, str) or (not value and name not in _OPTIONAL):
            raise InvalidValue(f"{place}: {name} is missing", remedy="ask for a new card")
    name, party_id, kind, url, certificate, told = (str(value) for value in texts.values())
    check_name(name)
    check_id(party_id, "party_id")
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
        raise InvalidValue(f"{place}: url is no http address", remedy="ask for a new card")
    # A card has one certificate, or two while a key follows another: each of them is compared by
    # people, and a long row is not read to its end.
    from oncewire.agreement.certificates import facts, read_certificates

    found = dict.fromkeys(read_certificates(certificate))
    if len(found) > CERTIFICATES_MAX:
        raise InvalidValue(
            f"{place} has {len(found)} certificates, and a card has {CERTIFICATES_MAX} at most",
            remedy="somebody may have changed it; ask the partner for it by another way",
        )
    if any(facts(der) is None for der in found):
        raise InvalidValue(f"{place}: certificate holds what is none", remedy="ask for a new card")
    addresses = _card_addresses(table.get(_ADDRESSES, {}), place)
    card = Card(name, party_id, url, certificate, kind, addresses)
    if told and told != card.fingerprint:
        raise InvalidValue(
            f"{place}: what its fingerprint tells of is not its certificate, or not all of them",
            remedy="somebody changed the card; ask the partner for it by another way",
        )
    return card


def _card_addresses(told: object, place: Path | str) -> tuple[tuple[str, str], ...]:
    """Where else a partner is reached; what is no address of its transport is refused."""
    from oncewire.agreement.toml import transport_of

    found = []
    for name, address in told.items() if isinstance(told, dict) else [("", told)]:
        text = address if isinstance(address, str) and address.isprintable() else ""
        if not text or transport_of(text) != name:
            raise InvalidValue(
                f"{place}: {_ADDRESSES} holds what is no address", remedy="ask for a new card"
            )
        found.append((name, text))
    return tuple(found)


def fingerprints_of(certificate: str) -> tuple[str, ...]:
    """SHA-256 of each certificate of a PEM text: the newest is named last."""
    from oncewire.agreement.certificates import read_certificates, spoken_fingerprint

    return tuple(dict.fromkeys(map(spoken_fingerprint, read_certificates(certificate))))
