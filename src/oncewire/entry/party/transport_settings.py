"""Settings of the transports beside HTTP: each is used once it is said where it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from oncewire.entry.party.setting_kinds import HIDDEN
from oncewire.errors import InvalidValue, NotHere
from oncewire.message.instant import Duration, seconds

_LIBRARIES = {
    "smtp": ("aiosmtplib", "aiosmtpd", "imapclient"),
    "sftp": ("asyncssh",),
    "ftp": ("aioftp",),
    "broker": ("nats",),
}


def is_installed(transport: str) -> bool:
    """Whether the extra of that name is installed, which brings the transport's libraries."""
    return all(find_spec(library) is not None for library in _LIBRARIES[transport])


_FIRST = {
    "smtp": """
[smtp]
# Our mail address, the server that takes our mail, and the port on which we take mail ourselves.
mailbox = "{name}@localhost"
relay = "localhost"
relay_port = 25
protection = "none"
port = 2525
""",
    "sftp": """
[sftp]
# Who we are to the server, and our folder there; its key belongs into keys/known_hosts.
user = "{name}"
key = "keys/sftp"
inbox = "sftp://localhost/{name}"
""",
    "ftp": """
[ftp]
# Who we are to the server, and our folder there.
user = "{name}"
inbox = "ftps://localhost/{name}"
""",
    "broker": """
[broker]
# The server, its monitoring, and our subject there.
url = "nats://localhost:4222"
monitor = "http://localhost:8222"
subject = "oncewire.{name}"
""",
}


def first_settings(transport: str, name: str) -> str:
    """The section of a transport as a newcomer begins it, with a server on this machine."""
    if transport not in _FIRST:
        raise InvalidValue(
            f"there is no transport {transport[:64]!r} to set up",
            remedy=f"use one of {', '.join(_FIRST)}; http is there anyway",
        )
    if not is_installed(transport):
        raise NotHere(
            f"what {transport} needs is not installed",
            remedy=f"pip install 'oncewire[{transport}]'",
        )
    return _FIRST[transport].format(name=name)


class MailProtection(StrEnum):
    """How the connection to our mail server is protected."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    """Mail: the server that takes ours, and where we take mail."""

    mailbox: Annotated[str, "Our mail address; empty: no mail is sent or taken."] = ""
    relay: Annotated[str, "The mail server that takes what we send."] = ""
    relay_port: Annotated[int, "Its port."] = 587
    protection: Annotated[MailProtection, "starttls, tls, or none (a server of this machine)."] = (
        MailProtection.STARTTLS
    )
    authorities: Annotated[Path | None, "Whom to believe that it is that server (PEM)."] = None
    user: Annotated[str, "Who we are to it."] = ""
    password: Annotated[str, "How we prove that.", HIDDEN] = ""
    host: Annotated[str, "The address to take mail on."] = "127.0.0.1"
    port: Annotated[int, "The port to take mail on; 0: we take none ourselves."] = 0
    tls: Annotated[bool, "Ask for STARTTLS there, with the certificate of [keys]."] = False
    max_size: Annotated[int, "The largest mail in bytes, in and out."] = 64 * 1024**2
    imap: Annotated[str, "The server that keeps our mail; empty: none does."] = ""
    imap_port: Annotated[int, "Its port."] = 993
    imap_protection: Annotated[
        MailProtection, "tls, starttls, or none (a server of this machine)."
    ] = MailProtection.TLS
    imap_user: Annotated[str, "Who we are to it; empty: smtp.user."] = ""
    imap_password: Annotated[str, "How we prove that; empty: smtp.password.", HIDDEN] = ""
    imap_folder: Annotated[str, "Where our mail is; nobody else should read there."] = "INBOX"
    imap_every: Annotated[Duration, "How often it is looked into."] = seconds(30)


@dataclass(frozen=True, slots=True)
class SftpSettings:
    """Files over SSH: who we are to servers, and which folder is ours."""

    user: Annotated[str, "Who we are to servers; empty: SFTP is not used."] = ""
    key: Annotated[Path | None, "The private key that proves it."] = None
    password: Annotated[str, "Or the password that does.", HIDDEN] = ""
    known_hosts: Annotated[Path, "The keys of servers, as OpenSSH keeps them."] = Path(
        "keys/known_hosts"
    )
    inbox: Annotated[str, "Our folder, as sftp://host/folder; empty: we only send."] = ""
    every: Annotated[Duration, "How often it is looked into."] = seconds(5)


@dataclass(frozen=True, slots=True)
class FtpSettings:
    """Files over FTP and FTPS: who we are to servers, and which folder is ours."""

    user: Annotated[str, "Who we are to servers; empty: FTP is not used."] = ""
    password: Annotated[str, "How we prove that.", HIDDEN] = ""
    authorities: Annotated[Path | None, "Whom to believe that it is that server (PEM)."] = None
    inbox: Annotated[str, "Our folder, as ftps://host/folder; empty: we only send."] = ""
    every: Annotated[Duration, "How often it is looked into."] = seconds(5)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A NATS server with JetStream: where it is, who we are to it, and which subject is ours."""

    url: Annotated[
        str, "The server, as tls://host:4222, or nats:// without TLS; empty: no broker is used."
    ] = ""
    authorities: Annotated[Path | None, "Whom to believe that it is that server (PEM)."] = None
    monitor: Annotated[str, "Its monitoring, which tells that it syncs: http://host:8222."] = ""
    user: Annotated[str, "Who we are to it."] = ""
    password: Annotated[str, "How we prove that.", HIDDEN] = ""
    credentials: Annotated[Path | None, "Or the file of credentials that does."] = None
    subject: Annotated[str, "Our subject; partners send to nats:SUBJECT."] = ""
    max_deliver: Annotated[int, "How often a parcel is handed in that we do not take."] = 50
