"""Transports of a party, from its settings: which certificates go with which address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.agreement.agreements import withdrawn_in
from oncewire.agreement.certificates import read_certificates, to_pem
from oncewire.entry.files import read_text
from oncewire.entry.party.agreements import Kept
from oncewire.entry.party.settings import ClientCertificateRule, Settings
from oncewire.handler.sealing.secure import is_withdrawn
from oncewire.message.instant import SECOND
from oncewire.transport.budget import BudgetLimits
from oncewire.transport.http import HttpTransport
from oncewire.transport.http_address import AddressRule
from oncewire.transport.http_client import HttpClientSettings
from oncewire.transport.http_listener import HttpLimits
from oncewire.transport.http_server import HttpServerSettings
from oncewire.transport.http_tls import ClientCertificates, Identity, PeerTls, ServerTls
from oncewire.wire.security.certificates import load_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def http_transport(
    settings: Settings, agreements: Iterable[Kept] = (), *, listen: bool = True
) -> HttpTransport:
    """HTTP as the settings and the partners' certificates want it; `listen` false only sends."""
    server = server_settings(settings) if listen else None
    return HttpTransport(server, client_settings(settings, agreements))


def server_settings(settings: Settings) -> HttpServerSettings:
    """Where and how we listen."""
    http = settings.http
    limits = HttpLimits(
        connections=http.connections,
        max_body=http.max_body,
        per_address=settings.budget.connections_per_address,
    )
    tls = None
    if http.tls:
        wanted = http.client_certificates
        trusted = () if wanted is ClientCertificateRule.IGNORED else _trusted(settings)
        tls = ServerTls(_identity(settings), ClientCertificates(wanted.value), trusted)
    return HttpServerSettings(http.host, http.port, http.path, tls, limits, _budget(settings))


def _budget(settings: Settings) -> BudgetLimits:
    budget = settings.budget
    return BudgetLimits(
        strangers=budget.strangers,
        per_address=budget.per_address,
        partners=budget.partners,
        per_partner=budget.per_partner,
        memory=budget.memory,
        spool=budget.spool,
        processor=budget.processor / SECOND,
        processor_per_address=budget.processor_per_address / SECOND,
        refusals=budget.refusals,
        known_for=budget.known_for / SECOND,
    )


def client_settings(settings: Settings, agreements: Iterable[Kept] = ()) -> HttpClientSettings:
    """How we go out: our certificate for everybody, a partner's own one for its addresses."""
    chosen = tuple(agreements)
    has_keys = settings.path(settings.keys.key).is_file()
    identity = _identity(settings) if has_keys else None
    return HttpClientSettings(
        addresses=AddressRule.of(settings.http.allow),
        peers=_peers(settings, chosen, identity),
        default_tls=PeerTls(identity=identity),
        withdrawn=withdrawn_by(chosen),
    )


def withdrawn_by(agreements: Iterable[Kept]) -> Callable[[bytes], bool]:
    """Whether a certificate, as DER, is one that the agreements have revoked."""
    withdrawn = withdrawn_in(kept.agreement for kept in agreements)
    if not withdrawn.lists:
        return withdrawn.certificates.__contains__
    return lambda der: is_withdrawn(withdrawn, load_certificate(der))


def _identity(settings: Settings) -> Identity:
    return Identity(settings.path(settings.keys.certificate), settings.path(settings.keys.key))


def _trusted(settings: Settings) -> tuple[str, ...]:
    """Who may connect: the partners, and we ourselves; so a party without partners can be
    served, and partners that are added are believed from then on."""
    own = read_text(settings.path(settings.keys.certificate), "certificate")
    return (own, *_partners(settings))


def _partners(settings: Settings) -> tuple[str, ...]:
    folder = settings.path(settings.keys.partners)
    files = sorted(folder.glob("*.crt")) if folder.is_dir() else []
    return tuple(text for file in files if (text := _believed(file)))


def _believed(file: Path) -> str:
    """The certificates of a partner's file without those that were revoked."""
    text = read_text(file, "partner's certificate")
    revoked = file.with_suffix(".revoked")
    if not revoked.is_file():
        return text
    gone = read_certificates(read_text(revoked, "list of revoked certificates"))
    return "".join(to_pem(der) for der in read_certificates(text) if der not in gone)


def _peers(
    settings: Settings, agreements: Iterable[Kept], identity: Identity | None
) -> Mapping[str, PeerTls]:
    """TLS per origin, for partners whose certificate lies beside their agreement's name."""
    folder = settings.path(settings.keys.partners)
    found: dict[str, PeerTls] = {}
    for kept in agreements:
        file = folder / f"{kept.file.stem}.crt"
        if not file.is_file():
            continue
        tls = _peer(file, identity)
        ends = [kept.agreement.partner.endpoints]
        ends += [binding.endpoints for binding in kept.agreement.bindings()]
        for end in (endpoint for some in ends for endpoint in some):
            if end.address.startswith("https://"):
                found[_origin(end.address)] = tls
    # Our own endpoints stand in the agreement too; nobody's certificate but ours is there.
    found.pop(_origin(settings.endpoint_url), None)
    if settings.http.tls and identity is not None:
        found[_origin(settings.endpoint_url)] = _peer(identity.certificate, identity)
    return found


def _origin(url: str) -> str:
    from yarl import URL

    return str(URL(url).origin())


def _peer(file: Path, identity: Identity | None) -> PeerTls:
    """An authority vouches for whom it issued; a partner's own certificate must be the one."""
    text = read_text(file, "partner's certificate")
    if _is_authority(text):
        return PeerTls(identity=identity, trusted=(text,))
    # While a partner changes its key, both certificates are the one.
    pinned = tuple(to_pem(der) for der in read_certificates(text))
    return PeerTls(identity=identity, pinned=pinned)


def _is_authority(text: str) -> bool:
    from cryptography import x509

    try:
        shown = x509.load_pem_x509_certificate(text.encode())
        return shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        return False
