"""Settings of one party: oncewire.toml, then ONCEWIRE_* variables, then flags; the last one wins.

Every setting is one field of one dataclass below, with its meaning, its default and whether it
is secret. The names in the file (`http.port`), in the environment (`ONCEWIRE_HTTP_PORT`) and on
the command line (`--set http.port=8443`) all follow from the field, and `config show --origin`
tells of each value who said it.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from oncewire.entry.files import read_text
from oncewire.errors import InvalidValue, NotHere
from oncewire.message import kinds
from oncewire.message.instant import Duration, format_duration, seconds
from oncewire.message.kinds import NamedKey, ValueKind, did_you_mean, kind, read_toml

# Kinds of values that only settings have, and which kind a field of the settings is.


HIDDEN = object()
"""Marks a setting whose value is never shown."""


def _read_line(raw: object) -> str:
    """A line of text, which may be empty: then nothing is said."""
    if raw == "":
        return ""
    if isinstance(raw, str) and not raw.isprintable():
        raise InvalidValue("it holds a control character", remedy="use printable characters")
    return kinds.read_text(raw)


def _read_list(raw: object) -> tuple[str, ...]:
    """A list, or in a variable the items with commas between them."""
    if not isinstance(raw, str | list | tuple):
        raise kinds.wrong(raw, "a list of texts")
    items = raw.split(",") if isinstance(raw, str) else raw
    read = kinds.listed(items, lambda item: _read_line(item).strip(), "a list of texts")
    return tuple(item for item in read if item)


def _read_path(raw: object) -> Path:
    text = _read_line(raw)
    if not text:
        raise InvalidValue("the path is empty", remedy="name a file or folder")
    return Path(text).expanduser()


def _read_period(raw: object) -> Duration:
    duration = kinds.read_duration(raw)
    if not duration:
        raise InvalidValue("the duration is zero", remedy="write PT30S, PT5M or seconds")
    return duration


_PLAIN: dict[Any, ValueKind] = {
    str: kind("text between quotes", _read_line),
    # More would not fit where it is used (sizes, counts).
    int: kinds.whole(0, kinds.SIZE_MAX),
    bool: kinds.BOOL,
    Path: kind("a file or folder", _read_path, str),
    tuple[str, ...]: kind("a list of texts", _read_list, list),
}
_PORT = kinds.whole(0, 65535)
_MAYBE_PATH = kind("a file", _read_path, lambda path: str(path) if path else "")
_PERIOD = kind("a duration such as PT30S", _read_period, format_duration)


def kind_of(name: str, annotation: str, hint: Any) -> ValueKind:
    """The kind of a section's field, by its annotation as it is written and as what it means."""
    if annotation.startswith("Annotated[Duration"):
        # An alias of int to the type checker, but a length of time to its writer.
        return _PERIOD
    if name == "port" or name.endswith("_port"):
        return _PORT
    if get_origin(hint) in (Union, types.UnionType) and Path in get_args(hint):
        return _MAYBE_PATH
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return kinds.choice(hint)
    return _PLAIN[hint]


# Settings of the transports beside HTTP: each is used once it is said where it is.


_LIBRARIES = {
    "smtp": ("aiosmtplib", "aiosmtpd", "imapclient"),
    "sftp": ("asyncssh",),
    "ftp": ("aioftp",),
    "broker": ("nats",),
    "admin": ("jinja2", "starlette", "uvicorn"),
}


def is_installed(extra: str) -> bool:
    """Whether the libraries of that extra, a transport's or the admin port's, are installed."""
    return all(find_spec(library) is not None for library in _LIBRARIES[extra])


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


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses of a machine that no other machine reaches."""

FILE = "oncewire.toml"
NEXT = ".next"
"""What stands in the names of the pair of keys that will follow ours."""
PREFIX = "ONCEWIRE_"
FORMER = {"http.timeout"}
"""Settings of earlier versions that never had an effect; what still names them is read."""
CONFIG_VARIABLE = "ONCEWIRE_CONFIG"


class ApplicationWay(StrEnum):
    """How documents that arrive reach the application."""

    PULL = "pull"
    DIRECTORY = "directory"
    WEBHOOK = "webhook"
    FUNCTION = "function"


class ClientCertificateRule(StrEnum):
    """What our endpoint asks of partners who connect."""

    IGNORED = "ignored"
    OPTIONAL = "optional"
    REQUIRED = "required"


class LogForm(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class PartySettings:
    """Who we are."""

    name: Annotated[str, "Our name: of the node, its keys and its journal rows."] = ""
    party_id: Annotated[str, "Our PartyId; a URI, or any word if party_type is set."] = ""
    party_type: Annotated[str, "What kind of id that is, as agreed with partners."] = ""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where everything is kept."""

    path: Annotated[Path, "The SQLite database of this party."] = Path("data/oncewire.db")
    url: Annotated[str, "Its PostgreSQL database instead, postgresql://...", HIDDEN] = ""
    spool: Annotated[Path, "The folder for large payloads."] = Path("data/spool")
    bucket: Annotated[
        str, "With PostgreSQL: the bucket for them, s3://BUCKET/PREFIX; store.spool has copies."
    ] = ""
    lease: Annotated[
        int, "Seconds after which other handlers take over the work of one that is gone."
    ] = 15


@dataclass(frozen=True, slots=True)
class AgreementSettings:
    """Where agreements are."""

    folder: Annotated[Path, "One .toml (or CPA .xml) per partner."] = Path("agreements")


@dataclass(frozen=True, slots=True)
class KeySettings:
    """What we sign with and show in TLS."""

    certificate: Annotated[Path, "Our certificate, which partners have too."] = Path("keys/own.crt")
    key: Annotated[Path, "Its private key; only we can read it."] = Path("keys/own.key")
    partners: Annotated[Path, "The folder of the partners' certificates."] = Path("keys/partners")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The endpoint partners send to, and how we go out."""

    host: Annotated[str, "The address to listen on; 0.0.0.0 for all of them."] = "127.0.0.1"
    port: Annotated[int, "The port to listen on."] = 8500
    path: Annotated[str, "The path of the endpoint."] = "/msh"
    public_url: Annotated[str, "The address partners use, if it is not host, port and path."] = ""
    tls: Annotated[bool, "Speak HTTPS, with the certificate of [keys]."] = False
    client_certificates: Annotated[
        ClientCertificateRule, "Whether partners must show a certificate."
    ] = ClientCertificateRule.IGNORED
    allow: Annotated[
        tuple[str, ...], "Where we may connect to: public, private, loopback, link-local, ranges."
    ] = ("public",)
    connections: Annotated[int, "How many connections are served at once."] = 1000
    max_body: Annotated[int, "The longest message in bytes that is read at all."] = 16 * 1024**3


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """What strangers and partners may take of this machine."""

    strangers: Annotated[int, "Requests of strangers that are worked on at once."] = 64
    per_address: Annotated[int, "The same from one address."] = 16
    partners: Annotated[int, "Requests of partners that are worked on at once."] = 512
    per_partner: Annotated[int, "The same from one partner's address."] = 256
    connections_per_address: Annotated[int, "Connections that a stranger's address may hold."] = 256
    memory: Annotated[int, "Bytes of bodies in memory; beyond that they go to the disk."] = (
        64 * 1024**2
    )
    spool: Annotated[int, "Bytes on the disk of bodies that are not stored yet."] = 4 * 1024**3
    processor: Annotated[Duration, "Processor time in a minute that strangers may cost."] = seconds(
        6
    )
    processor_per_address: Annotated[Duration, "The same from one address."] = seconds(3)
    refusals: Annotated[int, "Refused requests in a minute from one address, then 429."] = 600
    known_for: Annotated[Duration, "How long a partner's address keeps a partner's share."] = (
        seconds(3600)
    )


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """How documents that arrive reach the application."""

    way: Annotated[
        ApplicationWay, "pull (it asks), directory (files), webhook (HTTP) or function (Python)."
    ] = ApplicationWay.PULL
    folder: Annotated[Path, "Where `directory` puts the files."] = Path("data/inbox")
    url: Annotated[str, "What `webhook` calls."] = ""
    secret: Annotated[str, "What `webhook` signs with.", HIDDEN] = ""
    function: Annotated[str, "What `function` calls, as package.module:name."] = ""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Where alerts go, and of what; docs/howto/watching.md says how."""

    url: Annotated[str, "What is called, as https://...; empty: no webhook."] = ""
    secret: Annotated[str, "What it is signed with.", HIDDEN] = ""
    mail_to: Annotated[tuple[str, ...], "Who gets mail, through the server of [smtp]."] = ()
    mail_from: Annotated[str, "Whose mail it is; empty: smtp.mailbox."] = ""
    silent_intervals: Annotated[int, "Retry intervals after which a partner is called silent."] = 2
    days: Annotated[int, "Days before a certificate or an agreement ends."] = 30
    space: Annotated[int, "Bytes that should be free on the disk."] = 1024**3
    per_hour: Annotated[int, "Alerts in an hour; what comes beyond is told in the next."] = 12


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged, and how."""

    level: Annotated[str, "debug, info, warning or error."] = "info"
    form: Annotated[LogForm, "json for programs, text for people."] = LogForm.JSON
    file: Annotated[Path | None, "A file instead of standard error."] = None


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The port that programs, browsers and watchers of our own side speak to."""

    host: Annotated[str, "The address to listen on; off this machine only with TLS."] = "127.0.0.1"
    port: Annotated[int, "The port to listen on; 0: there is none."] = 0
    names: Annotated[tuple[str, ...], "Other host names by which it is reached."] = ()
    certificate: Annotated[Path | None, "Its TLS certificate (PEM); none: no TLS."] = None
    key: Annotated[Path | None, "The private key of that certificate."] = None
    tokens: Annotated[Path, "Where the hashes of its tokens are."] = Path("keys/tokens.json")
    open_health: Annotated[bool, "Answer /readyz and /metrics without a token."] = False
    access_log: Annotated[Path, "Reads and refused sign-ins; it rotates."] = Path("data/access.log")
    connections: Annotated[int, "How many connections are served at once."] = 200
    max_body: Annotated[int, "The largest upload in bytes."] = 16 * 1024**3


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The pages of the admin port; docs/howto/console.md says what is on them."""

    with_: Annotated[
        tuple[str, ...], "Folders of other parties whose side of a message is shown too."
    ] = ()
    sign_ins: Annotated[Path, "Where the hashes of links and sessions are."] = Path(
        "keys/sign-ins.json"
    )
    chaos: Annotated[Path | None, "A file that a demo waits for: a button makes it."] = None
    link_for: Annotated[Duration, "How long a link of `oncewire console` can be used, once."] = (
        seconds(600)
    )
    session_for: Annotated[Duration, "How long a browser stays signed in."] = seconds(8 * 3600)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where the pipeline keeps what it made of our journal."""

    path: Annotated[Path | None, "The lake's folder, whose summary /ledger serves."] = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything, checked; `folder` is where oncewire.toml is and where paths begin."""

    folder: Path
    party: PartySettings = field(default_factory=PartySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    agreements: AgreementSettings = field(default_factory=AgreementSettings)
    keys: KeySettings = field(default_factory=KeySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    smtp: SmtpSettings = field(default_factory=SmtpSettings)
    sftp: SftpSettings = field(default_factory=SftpSettings)
    ftp: FtpSettings = field(default_factory=FtpSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    application: ApplicationSettings = field(default_factory=ApplicationSettings)
    log: LogSettings = field(default_factory=LogSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)

    def path(self, named: Path) -> Path:
        """A path of the settings, seen from the party's folder."""
        return self.folder / named

    @property
    def key_files(self) -> tuple[Path, Path]:
        """Our certificate and its private key."""
        return self.path(self.keys.certificate), self.path(self.keys.key)

    @property
    def next_key_files(self) -> tuple[Path, Path]:
        """Where the certificate and the key that will follow ours are."""
        certificate, key = (
            file.with_name(f"{file.stem}{NEXT}{file.suffix}") for file in self.key_files
        )
        return certificate, key

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that are set up, and whose libraries are there."""
        said = {
            "smtp": self.smtp.mailbox,
            "sftp": self.sftp.user,
            "ftp": self.ftp.user,
            "broker": self.broker.url,
        }
        return ("http", *(name for name, there in said.items() if there and is_installed(name)))

    @property
    def addresses(self) -> dict[str, str]:
        """Where partners reach us beside HTTP, by transport."""
        told = {
            "smtp": f"mailto:{self.smtp.mailbox}",
            "sftp": self.sftp.inbox,
            "ftp": self.ftp.inbox,
            "broker": f"nats:{self.broker.subject}" if self.broker.subject else "",
        }
        return {name: told[name] for name in self.transports if told.get(name)}

    @property
    def is_told_wrongly(self) -> bool:
        """Whether we listen to other machines and name partners an address of this one."""
        inward = self.http.host in LOOPBACK
        return not inward and urlsplit(self.endpoint_url).hostname in LOOPBACK

    @property
    def endpoint_url(self) -> str:
        """The address partners send to."""
        if self.http.public_url:
            return self.http.public_url
        host = "127.0.0.1" if self.http.host in {"0.0.0.0", "::", ""} else self.http.host  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self.http.tls else "http"
        return f"{scheme}://{shown}:{self.http.port}{self.http.path}"


SECTIONS: dict[str, type[Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


@dataclass(frozen=True, slots=True)
class Key(NamedKey):
    """One setting by its names."""

    default: Any
    says: str
    secret: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.replace(".", "_").upper()


def _keys() -> dict[str, Key]:
    found = {}
    for section, section_kind in SECTIONS.items():
        hints = get_type_hints(section_kind, include_extras=True)
        for each_field in fields(section_kind):
            # `with` is a word of Python, so its field has another name than its key.
            name = f"{section}.{each_field.name.rstrip('_')}"
            hint, says, *marks = get_args(hints[each_field.name])
            found[name] = Key(
                name,
                kind_of(each_field.name, str(each_field.type), hint),
                each_field.default,
                says,
                HIDDEN in marks,
            )
    return found


KEYS = _keys()


_USER_OF_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
"""`user:password` in an address."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value and who said it: `default`, the file, a variable or a flag."""

    key: Key
    value: Any
    origin: str

    @property
    def shown(self) -> str:
        """The value for people; a secret stays one."""
        if self.key.secret and self.value:
            return "[secret]"
        return _USER_OF_URL.sub("[secret]", self.key.kind.show(self.value))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, with the origin of every value and the file they came from."""

    settings: Settings
    said: tuple[Said, ...]
    file: Path


# --- reading -----------------------------------------------------------------------------------


def find_file(named: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The oncewire.toml that is meant: named, of the environment, or here or further up."""
    variable = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    start = named or (Path(variable) if variable else None)
    if start is not None:
        file = start / FILE if start.is_dir() else start
        if not file.is_file():
            raise NotHere(
                f"there is no settings file {file}",
                remedy=f"name a party's folder or its {FILE}; `oncewire init` makes one",
            )
        return file
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
    raise NotHere(
        f"there is no {FILE} in {here} or above it",
        remedy="make a party with `oncewire init NAME`, or name its folder with --config",
    )


def load(
    named: Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """The settings in force; InvalidValue or NotHere says what is wrong and where."""
    variables = os.environ if environ is None else environ
    file = find_file(named, variables)
    raw: dict[str, tuple[Any, str]] = dict(_from_file(file))
    raw |= _from_environment(variables)
    raw |= {name: (value, "flag") for name, value in (flags or {}).items()}
    # A secret that others can read is none.
    told = [name for name, (value, origin) in raw.items() if value and origin == str(file)]
    secrets = [name for name in told if name in KEYS and KEYS[name].secret]
    if secrets and file.stat().st_mode & 0o077:
        raise InvalidValue(
            f"{file} holds {secrets[0]}, and others on this machine can read it",
            remedy=f"chmod 600 {file}",
        )
    said = tuple(_said(key, raw.get(name)) for name, key in KEYS.items())
    for name in sorted(raw.keys() - KEYS.keys() - FORMER):
        raise unknown_setting(name, "--set")
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for each_said in said:
        section, _, name = each_said.key.name.partition(".")
        sections[section][f"{name}_" if iskeyword(name) else name] = each_said.value
    made = {name: SECTIONS[name](**values) for name, values in sections.items()}
    return Loaded(Settings(folder=file.parent.resolve(), **made), said, file)


def flags_of(given: Iterable[str]) -> dict[str, str]:
    """`--set name=value` flags as a mapping."""
    found = {}
    for flag in given:
        name, equals, value = flag.partition("=")
        if not equals:
            raise InvalidValue(f"--set {flag!r} has no value", remedy="write --set http.port=8443")
        found[name.strip()] = value
    return found


def _from_file(file: Path) -> Iterable[tuple[str, tuple[Any, str]]]:
    try:
        table = read_toml(read_text(file, "settings", 1024 * 1024))
    except InvalidValue as error:
        raise InvalidValue(f"{file}: {error.problem}", remedy=error.remedy) from None
    for section, values in table.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise unknown_setting(section, str(file))
        for name, value in values.items():
            key = f"{section}.{name}"
            if key in KEYS:
                yield key, (value, str(file))
            elif key not in FORMER:
                raise unknown_setting(key, str(file))


def _from_environment(variables: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    known = {key.variable: name for name, key in KEYS.items()}
    found: dict[str, tuple[Any, str]] = {}
    for variable, value in variables.items():
        if variable in known:
            found[known[variable]] = (value, variable)
            continue
        section = variable.removeprefix(PREFIX).partition("_")[0].lower()
        # A misspelt ONCEWIRE_HTTP_PROT must not silently be the default.
        if variable.startswith(PREFIX) and section in SECTIONS:
            name = f"{section}.{variable.removeprefix(PREFIX).partition('_')[2].lower()}"
            if name not in FORMER:
                raise unknown_setting(name, f"variable {variable}")
    return found


def _said(key: Key, given: tuple[Any, str] | None) -> Said:
    if given is None:
        return Said(key, key.default, "default")
    raw, origin = given
    return Said(key, key.read(raw, origin), origin)


def unknown_setting(name: str, where: str) -> InvalidValue:
    """The error for an unknown setting: it names the nearest one."""
    remedy = did_you_mean(name, [*KEYS, *SECTIONS], "`oncewire config show` lists them all")
    return InvalidValue(f"there is no setting {name[:128]!r} ({where})", remedy=remedy)


def party_name(settings: Settings) -> str:
    """The node's name, without which nothing can be stored."""
    if not settings.party.name:
        raise InvalidValue("the party has no name", remedy="set party.name in oncewire.toml")
    return settings.party.name
