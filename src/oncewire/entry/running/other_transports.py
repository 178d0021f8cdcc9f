"""Transports beside HTTP, from a party's settings: each is None where it is not set up.

Their libraries are extras of the installation, so a party that does not use them loads none.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.files import read_text
from oncewire.entry.running.transports import budget_limits
from oncewire.message.instant import SECOND
from oncewire.transport.http_address import AddressRule
from oncewire.transport.http_tls import Identity, PeerTls, ServerTls, client_context, server_context

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.transport.contract import Transport
    from oncewire.transport.smtp.imap import MailboxSettings


def smtp_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """Mail, if we have a mailbox."""
    said = settings.smtp
    if not said.mailbox:
        return None
    from oncewire.transport.smtp.listener import ListenerSettings
    from oncewire.transport.smtp.relay import MailTls, RelaySettings
    from oncewire.transport.smtp.transport import SmtpTransport

    relay = listener = None
    if said.relay:
        relay = RelaySettings(
            said.mailbox,
            said.relay,
            said.relay_port,
            MailTls(said.protection.value),
            _believing(settings, said.authorities),
            said.user,
            said.password,
            max_size=said.max_size,
        )
    if said.port and listen:
        tls = server_context(ServerTls(_identity(settings))) if said.tls else None
        budget = budget_limits(settings)
        listener = ListenerSettings(
            said.mailbox, said.host, said.port, tls, said.max_size, budget=budget
        )
    return SmtpTransport(relay, listener, mailbox_settings(settings) if listen else None)


def mailbox_settings(settings: Settings) -> MailboxSettings | None:
    """The mailbox that we look into, if there is one."""
    said = settings.smtp
    if not said.imap:
        return None
    from oncewire.transport.smtp.imap import MailboxSettings
    from oncewire.transport.smtp.relay import MailTls

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
    from oncewire.transport.files.sftp import SftpSettings
    from oncewire.transport.files.sftp import sftp_transport as made_of

    return made_of(
        SftpSettings(
            said.user,
            settings.path(said.known_hosts),
            None if said.key is None else settings.path(said.key),
            said.password,
            AddressRule.of(settings.http.allow),
            said.inbox if listen else "",
            reader_name(settings),
            said.every / SECOND,
        )
    )


def ftp_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """Files over FTP and FTPS, if it is said who we are there."""
    said = settings.ftp
    if not said.user:
        return None
    from oncewire.transport.files.ftp import FtpSettings
    from oncewire.transport.files.ftp import ftp_transport as made_of

    return made_of(
        FtpSettings(
            said.user,
            said.password,
            _believing(settings, said.authorities),
            AddressRule.of(settings.http.allow),
            said.inbox if listen else "",
            reader_name(settings),
            said.every / SECOND,
        )
    )


def broker_transport(settings: Settings, *, listen: bool) -> Transport | None:
    """A broker, if it is said where it is."""
    said = settings.broker
    if not said.url:
        return None
    from oncewire.transport.broker.connection import BrokerSettings
    from oncewire.transport.broker.transport import BrokerTransport

    return BrokerTransport(
        BrokerSettings(
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


def _identity(settings: Settings) -> Identity:
    return Identity(settings.path(settings.keys.certificate), settings.path(settings.keys.key))


def _believing(settings: Settings, authorities: Path | None) -> ssl.SSLContext | None:
    if authorities is None:
        return None
    text = read_text(settings.path(authorities), "list of authorities")
    return client_context(PeerTls(trusted=(text,)))
