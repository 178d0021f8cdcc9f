"""Transports of a party, from its settings: which certificates go with which address."""

from __future__ import annotations

import hashlib
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography import x509
from yarl import URL

from oncewire.agreement.agreement import withdrawn_in
from oncewire.agreement.certificates import read_certificates, to_pem
from oncewire.entry.files import read_text
from oncewire.entry.party.agreements import Kept
from oncewire.entry.party.settings import ClientCertificateRule, Settings
from oncewire.handler.authentication import is_withdrawn
from oncewire.message.instant import SECOND
from oncewire.transport.budget import BudgetLimits
from oncewire.transport.http.address import AddressRule
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.tls import (
    ClientCertificates,
    Identity,
    PeerTls,
    ServerTls,
    client_context,
    server_context,
)
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire.security.certificates import load_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oncewire.transport.contract import Transport
    from oncewire.transport.smtp.relay import RelaySettings
    from oncewire.transport.smtp.transport import MailboxSettings


def http_transport(
    settings: Settings, agreements: Iterable[Kept] = (), *, listen: bool = True
) -> HttpTransport:
    """HTTP as the settings and the partners' certificates want it; `listen` false only sends."""
    chosen = tuple(agreements)
    server = server_settings(settings, chosen) if listen else None
    return HttpTransport(server, client_settings(settings, chosen))


def server_settings(settings: Settings, agreements: Iterable[Kept] = ()) -> HttpServerSettings:
    """Where and how we listen; at the paths, too, that agreements name for us."""
    chosen = tuple(agreements)
    http = settings.http
    limits = HttpLimits(
        connections=http.connections,
        max_body=http.max_body,
        per_address=settings.budget.connections_per_address,
    )
    tls = None
    if http.tls:
        wanted = http.client_certificates
        trusted = () if wanted is ClientCertificateRule.IGNORED else _trusted(settings, chosen)
        tls = ServerTls(_identity(settings), ClientCertificates(wanted.value), trusted)
    also: set[str] = set()
    for kept in chosen:
        for end in kept.agreement.own.endpoints:
            # One that is no URL is the trouble of its agreement alone.
            with suppress(ValueError):
                if end.transport == HttpTransport.name:
                    also.add(urlsplit(end.address).path or "/")
    budget = budget_limits(settings)
    return HttpServerSettings(http.host, http.port, http.path, tls, limits, budget, frozenset(also))


def budget_limits(settings: Settings) -> BudgetLimits:
    """What may be taken of this machine, at each of our listeners."""
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
    return Identity(*settings.key_files)


def _trusted(settings: Settings, agreements: tuple[Kept, ...]) -> tuple[str, ...]:
    """Who may connect: the partners, and we ourselves; so a party without partners can be
    served, and partners that are added are believed from then on."""
    own = read_text(settings.path(settings.keys.certificate), "certificate")
    agreed = (to_pem(der) for kept in agreements for der in _agreed(kept))
    folder = settings.path(settings.keys.partners)
    files = sorted(folder.glob("*.crt")) if folder.is_dir() else []
    partners = (text for file in files if (text := _believed(file)))
    return tuple(dict.fromkeys((own, *partners, *agreed)))


def _agreed(kept: Kept) -> tuple[bytes, ...]:
    """The certificates that an agreement itself names for connections with its partner, as a CPA
    does, without those that were revoked."""
    gone = {der for binding in kept.agreement.bindings() for der in binding.security.revoked}
    return tuple(der for der in kept.agreement.partner.certificates if der not in gone)


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
    """TLS per origin, for partners whose certificate lies beside their agreement's name, or in
    their agreement."""
    folder = settings.path(settings.keys.partners)
    found: dict[str, PeerTls] = {}
    for kept in agreements:
        file = folder / f"{kept.file.stem}.crt"
        agreed = _agreed(kept)
        if file.is_file():
            tls = _peer(file, identity)
        elif agreed:
            tls = _peer_by(agreed, identity)
        else:
            continue
        ends = [kept.agreement.partner.endpoints]
        ends += [binding.endpoints for binding in kept.agreement.bindings()]
        for end in (endpoint for some in ends for endpoint in some):
            with suppress(ValueError):
                if end.address.startswith("https://"):
                    found[_origin(end.address)] = tls
    # Our own endpoints stand in the agreement too; only our certificate is there.
    found.pop(_origin(settings.endpoint_url), None)
    if settings.http.tls and identity is not None:
        found[_origin(settings.endpoint_url)] = _peer(identity.certificate, identity)
    return found


def _origin(url: str) -> str:
    return str(URL(url).origin())


def _peer(file: Path, identity: Identity | None) -> PeerTls:
    """An authority vouches for whom it issued; a partner's own certificate must be the one."""
    text = read_text(file, "partner's certificate")
    if _is_authority(text):
        return PeerTls(identity=identity, trusted=(text,))
    # While a partner changes its key, both certificates are the one.
    pinned = tuple(to_pem(der) for der in read_certificates(text))
    return PeerTls(identity=identity, pinned=pinned)


def _peer_by(agreed: tuple[bytes, ...], identity: Identity | None) -> PeerTls:
    """The same by the certificates of an agreement."""
    shown = tuple(map(to_pem, agreed))
    authorities = tuple(text for text in shown if _is_authority(text))
    pinned = tuple(text for text in shown if text not in authorities)
    if pinned:
        return PeerTls(identity=identity, pinned=pinned)
    return PeerTls(identity=identity, trusted=authorities)


def _is_authority(text: str) -> bool:
    try:
        shown = x509.load_pem_x509_certificate(text.encode())
        return shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        return False


# Transports beside HTTP, from a party's settings: each is None where it is not set up.
#
# Their libraries are extras of the installation, so a party that does not use them loads none.


def smtp_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """Mail, if we have a mailbox."""
    said = settings.smtp
    if not said.mailbox:
        return None
    from oncewire.transport.smtp.listener import ListenerSettings
    from oncewire.transport.smtp.transport import SmtpTransport

    listener = None
    relay = relay_settings(settings, said.mailbox) if said.relay else None
    if said.port and listen:
        tls = server_context(ServerTls(_identity(settings))) if said.tls else None
        budget = budget_limits(settings)
        listener = ListenerSettings(
            said.mailbox, said.host, said.port, tls, said.max_size, budget=budget
        )
    return SmtpTransport(relay, listener, mailbox_settings(settings) if listen else None)


def relay_settings(settings: Settings, sender: str) -> RelaySettings:
    """The server that takes our mail, which is that sender's."""
    from oncewire.transport.smtp.relay import MailTls, RelaySettings

    said = settings.smtp
    return RelaySettings(
        sender,
        said.relay,
        said.relay_port,
        MailTls(said.protection.value),
        _believing(settings, said.authorities),
        said.user,
        said.password,
        max_size=said.max_size,
    )


def mailbox_settings(settings: Settings) -> MailboxSettings | None:
    """The mailbox that we look into, if there is one."""
    said = settings.smtp
    if not said.imap:
        return None
    from oncewire.transport.smtp.relay import MailTls
    from oncewire.transport.smtp.transport import MailboxSettings

    return MailboxSettings(
        said.imap,
        said.imap_user or said.user,
        said.imap_password or said.password,
        said.imap_port,
        MailTls(said.imap_protection.value),
        _believing(settings, said.authorities),
        said.imap_folder,
        said.imap_every / SECOND,
        said.max_size,
    )


def sftp_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """Files over SSH, if it is said who we are there."""
    said = settings.sftp
    if not said.user:
        return None
    from oncewire.transport.files.sftp import sftp_transport as made_of

    return made_of(
        said.user,
        settings.path(said.known_hosts),
        key=None if said.key is None else settings.path(said.key),
        password=said.password,
        addresses=AddressRule.of(settings.http.allow),
        inbox=said.inbox if listen else "",
        reader=reader_name(settings),
        every=said.every / SECOND,
    )


def ftp_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """Files over FTP and FTPS, if it is said who we are there."""
    said = settings.ftp
    if not said.user:
        return None
    from oncewire.transport.files.ftp import ftp_transport as made_of

    return made_of(
        said.user,
        said.password,
        context=_believing(settings, said.authorities),
        addresses=AddressRule.of(settings.http.allow),
        inbox=said.inbox if listen else "",
        reader=reader_name(settings),
        every=said.every / SECOND,
    )


def broker_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """A broker, if it is said where it is."""
    said = settings.broker
    if not said.url:
        return None
    from oncewire.transport.broker.transport import BrokerAccount, BrokerTransport

    return BrokerTransport(
        BrokerAccount(
            said.url,
            said.monitor,
            said.subject if listen else "",
            said.user,
            said.password,
            None if said.credentials is None else settings.path(said.credentials),
            said.max_deliver,
            context=_believing(settings, said.authorities),
        )
    )


MAKERS = (smtp_transport, sftp_transport, ftp_transport, broker_transport)
"""The one list that a new transport is added to."""


def other_transports(settings: Settings, *, listen: bool = True) -> dict[str, Transport]:
    """Every transport that is set up, by its name."""
    made = (make(settings, listen=listen) for make in MAKERS)
    return {transport.name: transport for transport in made if transport is not None}


def reader_name(settings: Settings) -> str:
    """By which name this handler claims files: the same after every start, and another one for
    every store, because a claim is finished by who can tell what is stored."""
    store = settings.path(settings.store.path).resolve()
    digest = hashlib.sha256(f"{socket.gethostname()}\n{store}".encode()).hexdigest()
    return f"oncewire-{digest[:16]}"


def _believing(settings: Settings, authorities: Path | None) -> ssl.SSLContext | None:
    if authorities is None:
        return None
    text = read_text(settings.path(authorities), "list of authorities")
    return client_context(PeerTls(trusted=(text,)))
