"""Agreements as people write them, in TOML: read, and written.

A handful of keys is enough: who, where, and a profile. Every other key overrides one value
of the profile. An unknown key is an error that names the nearest known one, because a
misspelt `retries` must not silently be the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from oncewire.agreement import keys
from oncewire.agreement.agreement import (
    TRANSPORTS,
    ActionBinding,
    Agreement,
    Direction,
    Endpoint,
    EndpointType,
    Origin,
    PartyTerms,
    Value,
    Via,
)
from oncewire.agreement.certificates import fingerprint, read_certificates, read_fingerprint, to_pem
from oncewire.agreement.compose import (
    DERIVED,
    Draft,
    Entry,
    build,
    compose,
    layer,
    merge,
    profile_values,
)
from oncewire.agreement.keys import BY_TARGET, KEYS, toml_tables, unknown_key
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message import kinds
from oncewire.message.ids import Party, PartyId, Service, check_id
from oncewire.message.instant import format_duration, format_instant
from oncewire.message.kinds import literal, quoted
from oncewire.message.kinds import read_toml as read_table

# Single words, flags and files of an agreement's TOML, each checked as it is taken out.


Load: TypeAlias = Callable[[str], bytes]
"""How the caller reads a file that the agreement names; this package opens none."""

Table: TypeAlias = dict[str, Any]

STATUS = ("proposed", "agreed", "signed")
"""CPPA's words for how far a negotiation has come."""


def known_only(place: str, table: Table, known: tuple[str, ...]) -> None:
    """Refuses a key of a small table that is not one of those known."""
    for key in table:
        if key not in known:
            raise unknown_key(f"{place}.{key}", [f"{place}.{name}" for name in known])


def section(table: Table, name: str, *, needed: bool = True) -> Table:
    """The section of that name; an empty one where it may be missing."""
    raw = table.get(name)
    if raw is None and not needed:
        return {}
    if not isinstance(raw, dict):
        raise AgreementProblem(
            f"[{name}] is missing" if raw is None else f"{name} is not a section",
            key=name,
            remedy=f"write [{name}] and its keys below it",
        )
    return raw


def needed(table: Table, key: str) -> object:
    """The value of a key that must be there."""
    if key not in table:
        raise AgreementProblem(f"{key} is missing", key=key, remedy=f'write {key} = "..."')
    return table[key]


def word(key: str, raw: object) -> str:
    """A name or an address, or an error that names the key."""
    try:
        return check_id(kinds.read_id(raw), key)
    except InvalidValue as error:
        raise AgreementProblem(f"{key}: {error.problem}", key=key, remedy=error.remedy) from None


def flag(table: Table, key: str) -> bool:
    """True or false; false when it is not there."""
    raw = table.get(key, False)
    if not isinstance(raw, bool):
        raise AgreementProblem(f"{key} is not true or false", key=key, remedy="write true or false")
    return raw


def status(table: Table) -> str:
    """How far the negotiation has come; a file that people write is agreed."""
    stated = word("status", table.get("status", "agreed"))
    if stated not in STATUS:
        raise AgreementProblem(
            f"status {stated!r} is not known", key="status", remedy="one of " + ", ".join(STATUS)
        )
    return stated


def moment(table: Table, key: str) -> int | None:
    """An instant, if the key is there."""
    try:
        return kinds.read_instant(table[key]) if key in table else None
    except InvalidValue as error:
        raise AgreementProblem(f"{key}: {error.problem}", key=key, remedy=error.remedy) from None


def contents(key: str, raw: object, load: Load | None) -> list[object]:
    """The certificates a key holds: PEM text as it is, a file name as the file's bytes."""
    items = raw if isinstance(raw, list) else [raw]
    return [
        load_file(item, load, key) if isinstance(item, str) and "-----BEGIN" not in item else item
        for item in items
    ]


def load_file(name: str, load: Load | None, key: str) -> bytes:
    """The bytes of a file, through the caller's own reader."""
    if load is None:
        raise AgreementProblem(
            f"{key} names the file {name[:128]!r}, and no files can be read here",
            key=key,
            remedy="write its PEM text into the agreement",
        )
    try:
        return load(name)
    except (OSError, ValueError) as error:
        raise AgreementProblem(
            f"{key}: the file {name[:128]!r} cannot be read: {str(error)[:200]}",
            key=key,
            remedy="correct the file's name, seen from the agreement's folder",
        ) from None


# The parties of an agreement's TOML: [own], [partner] and [via].


SIDE = ("party_id", "type", "role", "name", "uri", "client_certificates", "certificates",
        "signing_certificates", "behind", "behind_services", "behind_all", *TRANSPORTS)  # fmt: skip
VIA = (
    "party_id", "type", "uri", "timeout", "retries", "retry_interval", "sync_timeout", *TRANSPORTS,
)  # fmt: skip


def read_side(name: str, table: Table, load: Load | None) -> PartyTerms:
    """One of the two sides: [own] or [partner]."""
    known_only(name, table, SIDE)
    ids = _party_ids(name, table, "party_id")
    role = table.get("role")
    party = Party(ids, None if role is None else word(f"{name}.role", role))
    endpoints = read_endpoints(name, table)
    uri = table.get("uri")
    found = table.get("behind_services", [])
    if not isinstance(found, list):
        raise AgreementProblem(
            f"{name}.behind_services is no list",
            key=f"{name}.behind_services",
            remedy='list services: behind_services = ["urn:example:orders"]',
        )
    # They are compared with the name that listings of messages have of a Service.
    return PartyTerms(
        party=party,
        name=word(f"{name}.name", table["name"]) if "name" in table else "",
        handler_uri=word(f"{name}.uri", uri) if uri is not None else _usual_uri(endpoints),
        endpoints=endpoints,
        client_certificates=_fingerprints(name, table, load),
        certificates=_certificates(name, "certificates", table, load),
        signing_certificates=_certificates(name, "signing_certificates", table, load),
        behind=_party_ids(name, table, "behind") if "behind" in table else (),
        behind_services=tuple(
            str(Service.read(word(f"{name}.behind_services", one))) for one in found
        ),
        behind_all=flag(table, "behind_all"),
    )


def _usual_uri(endpoints: tuple[Endpoint, ...]) -> str | None:
    """How hops name a handler that says nothing of it: by where it is reached, over HTTP first."""
    by_http = [endpoint for endpoint in endpoints if endpoint.transport == "http"]
    return next((endpoint.address for endpoint in (*by_http, *endpoints)), None)


def _party_ids(name: str, table: Table, key: str) -> tuple[PartyId, ...]:
    place = f"{name}.{key}"
    raw = table.get(key)
    if raw is None:
        raise AgreementProblem(
            f"{place} is missing", key=place, remedy=f"name the party: [{name}] {key} = ..."
        )
    usual = table.get("type")
    kind = None if usual is None else word(f"{name}.type", usual)
    ids = []
    for item in raw if isinstance(raw, list) else [raw]:
        if isinstance(item, dict):
            known_only(place, item, ("value", "type"))
            own_kind = item.get("type", kind)
            ids.append(
                PartyId(
                    word(place, item.get("value")),
                    None if own_kind is None else word(place, own_kind),
                )
            )
        else:
            read = PartyId.read(word(place, item))
            ids.append(read if read.type is not None else PartyId(read.value, kind))
    if not ids:
        raise AgreementProblem(f"{place} is empty", key=place, remedy="name at least one id")
    return tuple(dict.fromkeys(ids))


def read_endpoints(name: str, table: Table) -> tuple[Endpoint, ...]:
    """Addresses in the order they are written: that is the order they are tried in."""
    found: list[Endpoint] = []
    for transport, raw in table.items():
        if transport not in TRANSPORTS:
            continue
        place = f"{name}.{transport}"
        types = raw if isinstance(raw, dict) else {EndpointType.ALL_PURPOSE.value: raw}
        for kind, addresses in types.items():
            if kind not in {each_kind.value for each_kind in EndpointType}:
                raise unknown_key(
                    f"{place}.{kind}", [f"{place}.{each_kind.value}" for each_kind in EndpointType]
                )
            found += [
                Endpoint(transport, word(place, address), EndpointType(kind))
                for address in (addresses if isinstance(addresses, list) else [addresses])
            ]
    return tuple(dict.fromkeys(found))


def _fingerprints(name: str, table: Table, load: Load | None) -> tuple[str, ...]:
    """Fingerprints as such, or of the certificates that are named."""
    key = f"{name}.client_certificates"
    raw = table.get("client_certificates", [])
    found: list[str] = []
    for item in raw if isinstance(raw, list) else [raw]:
        written = read_fingerprint(item) if isinstance(item, str) else None
        if written is not None:
            found.append(written)
            continue
        for content in contents(key, item, load):
            found += [fingerprint(der) for der in read_certificates(content)]
    return tuple(dict.fromkeys(found))


def _certificates(name: str, key: str, table: Table, load: Load | None) -> tuple[bytes, ...]:
    """Certificates as PEM text or as the names of files."""
    found = contents(f"{name}.{key}", table.get(key, []), load)
    return tuple(dict.fromkeys(der for content in found for der in read_certificates(content)))


def read_via(table: Table) -> Via | None:
    """The hub on the way, if there is one, and what it was said to do with messages."""
    if not table:
        return None
    known_only("via", table, VIA)
    endpoints = read_endpoints("via", table)

    def duration(key: str) -> Any:
        return kinds.DURATION.read(table[key]) if key in table else None

    uri = table.get("uri")
    return Via(
        party=Party(_party_ids("via", table, "party_id")) if "party_id" in table else None,
        handler_uri=word("via.uri", uri) if uri is not None else _usual_uri(endpoints),
        endpoints=endpoints,
        timeout=duration("timeout"),
        retries=kinds.COUNT.read(table["retries"]) if "retries" in table else None,
        retry_interval=duration("retry_interval"),
        sync_timeout=duration("sync_timeout"),
    )


TEXT_MAX = 4 * 1024 * 1024
"""An agreement is a page of text; certificates written into it make it longer, not huge."""

TOP = (
    "cpa_id", "profile", "cpa", "also_known_as", "any_cpa_id", "listed_only", "status", "start",
    "end", "forwards",
)  # fmt: skip
ENTRY = ("direction", "service", "service_type", "action", "role", "partner_role", *TRANSPORTS)
_SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS))
_FILES = tuple(
    name for name, key in KEYS.items() if key.kind in (keys.CERTIFICATES, keys.REVOCATION_LISTS)
)


def read_toml(text: str, *, load: Load | None = None, name: str = "") -> Agreement:
    """The agreement that the text describes; `name` is told as the origin of its values."""
    return read_tables(_parse(text), load=load, name=name)


def read_tables(table: Table, *, load: Load | None = None, name: str = "") -> Agreement:
    """The agreement that the tables of such a text describe."""
    try:
        known = [*TOP, "own", "partner", "via", "actions", *KEYS]
        values = _policies(table, known, {*TOP, "own", "partner", "via", "actions"}, load, name)
        own = read_side("own", section(table, "own"), load)
        if "cpa" in table:
            return _imported(table, own, values, load)
        partner = read_side("partner", section(table, "partner"), load)
        return build(
            Draft(
                cpa_id=word("cpa_id", needed(table, "cpa_id")),
                profile=word("profile", table.get("profile", "ebms2")),
                own=own,
                partner=partner,
                said=values,
                entries=_entries(table, own, partner, load, name),
                listed_only=flag(table, "listed_only"),
                status=status(table),
                start=moment(table, "start"),
                end=moment(table, "end"),
                where=name,
                **_shared(table),
            )
        )
    except InvalidValue as error:
        raise AgreementProblem(error.problem, remedy=error.remedy) from None


def _parse(text: str) -> Table:
    if len(text) > TEXT_MAX:
        raise AgreementProblem(
            f"the file has more than {TEXT_MAX} characters", remedy="this is no agreement"
        )
    try:
        return read_table(text)
    except InvalidValue as error:
        raise AgreementProblem(error.problem, remedy=error.remedy) from None


def _imported(
    table: Table, own: PartyTerms, values: Mapping[str, Value], load: Load | None
) -> Agreement:
    """A file that names a CPA: the CPA's values, with the file's own words over them."""
    for key in ("cpa_id", "partner", "actions", "start", "end", "status", "listed_only"):
        if key in table:
            raise AgreementProblem(
                f"{key} is said by the CPA that this file imports",
                key=key,
                remedy=f"remove {key}, or remove cpa and write the whole agreement here",
            )
    from oncewire.agreement.cppa.reader import read_cpa

    profile = table.get("profile")
    return read_cpa(
        load_file(word("cpa", table["cpa"]), load, "cpa"),
        own=str(own.party.ids[0]),
        profile=None if profile is None else word("profile", profile),
        over=values,
        **_shared(table),
    )


def _shared(table: Table) -> dict[str, Any]:
    """What a file says itself, whether or not it imports a CPA."""
    raw = table.get("also_known_as", [])
    names = raw if isinstance(raw, list) else [raw]
    return {
        "via": read_via(section(table, "via", needed=False)),
        "forwards": flag(table, "forwards"),
        "also_known_as": tuple(word("also_known_as", item) for item in names),
        "any_cpa_id": flag(table, "any_cpa_id"),
    }


# --- policies ----------------------------------------------------------------------------------


def _policies(
    table: Table, known: list[str], apart: set[str], load: Load | None, name: str, place: str = ""
) -> dict[str, Value]:
    """The checked values of a table by their dotted keys, without those that are read apart. All
    that is wrong with them is told at once."""
    found: dict[str, Value] = {}
    faults: list[AgreementProblem] = []
    for top, raw in table.items():
        if top in apart:
            continue
        if top not in _SECTIONS:
            faults.append(unknown_key(place + top, known))
        elif not isinstance(raw, dict):
            remedy = f"write [{top}] and its keys below it"
            problem = f"{place}{top} is a section, not a value"
            faults.append(AgreementProblem(problem, key=top, remedy=remedy))
        else:
            for key, value in raw.items():
                try:
                    found |= _checked(f"{top}.{key}", value, known, load, name)
                except AgreementProblem as fault:
                    faults.append(fault)
                except InvalidValue as fault:
                    faults.append(
                        AgreementProblem(fault.problem, key=f"{top}.{key}", remedy=fault.remedy)
                    )
    if faults:
        first, *first.others = faults
        raise first
    return found


def _checked(
    key: str, value: object, known: list[str], load: Load | None, name: str
) -> dict[str, Value]:
    """One value by its kind; files that hold certificates are read first."""
    if key not in KEYS:
        raise unknown_key(key, [each for each in known if "." in each])
    return layer({key: contents(key, value, load) if key in _FILES else value}, Origin.FILE, name)


# --- single actions ----------------------------------------------------------------------------


def _entries(
    table: Table, own: PartyTerms, partner: PartyTerms, load: Load | None, name: str
) -> tuple[Entry, ...]:
    raw = table.get("actions", [])
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        raise AgreementProblem(
            "actions is not a list of tables", key="actions", remedy="write [[actions]]"
        )
    entries: list[Entry] = []
    for item in raw:
        entries += _entry(item, own, partner, load, name)
    whole = [entry.direction for entry in entries if entry.service is None]
    if len(whole) != len(set(whole)):
        raise AgreementProblem(
            "two entries speak of one whole direction",
            key="actions",
            remedy="keep one entry without a service for each direction",
        )
    return tuple(entries)


def _entry(
    table: Table, own: PartyTerms, partner: PartyTerms, load: Load | None, name: str
) -> list[Entry]:
    values = _policies(table, [*ENTRY, *KEYS], set(ENTRY), load, name, "actions.")
    service = action = None
    if "service" in table:
        kind = table.get("service_type")
        written = word("actions.service", table["service"])
        service = Service.read(written)
        if kind is not None:
            service = Service(written, word("actions.service_type", kind))
    if "action" in table:
        action = word("actions.action", table["action"])
    if action is not None and service is None:
        raise AgreementProblem(
            f"action {action!r} names no service", key="actions.service", remedy="add its service"
        )
    endpoints = read_endpoints("actions", table) or None
    roles = {}
    for key, side in (("role", own), ("partner_role", partner)):
        said = table.get(key, side.party.role) if service is not None else None
        roles[key] = None if said is None else word(f"actions.{key}", said)
    ends = (roles["role"], roles["partner_role"])
    return [
        Entry(direction, values, service, action, *sides, endpoints=endpoints)
        for direction in _directions(table)
        for sides in [ends if direction is Direction.SEND else ends[::-1]]
    ]


def _directions(table: Table) -> tuple[Direction, ...]:
    raw = table.get("direction", "both")
    if raw == "both":
        return tuple(Direction)
    if raw not in ("send", "receive"):
        raise AgreementProblem(
            "actions.direction is not send, receive or both",
            key="actions.direction",
            remedy='write direction = "send", "receive" or "both"',
        )
    return (Direction(raw),)


# Writes agreements as TOML: a commented first one for people, or any one as it is.

# Keys a newcomer may want to change, in the order of the file.
_OFFERED = (
    "delivery.timeout", "delivery.retries", "delivery.retry_interval",
    "delivery.persist_duration", "delivery.time_to_live", "ack.request", "ack.signature",
    "duplicate.elimination", "sequence.ordered", "sequence.range", "sequence.scope", "flow.mode",
    "flow.window", "sync.mode", "sync.timeout", "payload.max_size", "payload.compress",
    "security.sign", "security.require_signature",
)  # fmt: skip


def new(
    *,
    cpa_id: str,
    own: str,
    partner: str,
    address: str,
    profile: str = "ebms2",
    own_address: str | None = None,
    party_type: str | None = None,
) -> str:
    """A commented agreement to start from. Every value it shows is the profile's own."""
    for name, what in ((cpa_id, "cpa_id"), (own, "own"), (partner, "partner")):
        check_id(name, what)
    transport = transport_of(address)
    values = {value.key: value for value in compose(profile_values(profile), (transport,)).values}
    lines = [
        "# One agreement with one partner. Only these first lines are needed;",
        "# everything below follows from the profile until you change it.",
        f"cpa_id = {quoted(cpa_id)}",
        f"profile = {quoted(profile)}",
        "",
        "[own]",
        f"party_id = {quoted(own)}",
    ]
    kind = f"type = {quoted(party_type)}" if party_type else '# type = "urn:example:org"'
    note = "" if party_type else "  # says what kind of id this is; without it use a URI"
    lines.append(kind + note)
    if own_address is not None:
        lines.append(f"{transport_of(own_address)} = {quoted(own_address)}  # where we are reached")
    lines += ["", "[partner]", f"party_id = {quoted(partner)}", kind]
    lines.append(f"{transport} = {quoted(address)}")
    section = ""
    for name in _OFFERED:
        key, value = KEYS[name], values[name]
        if name.partition(".")[0] != section:
            section = name.partition(".")[0]
            lines += ["", f"[{section}]"]
        plain = key.kind.literal(value.value)
        lines.append(f"# {name.partition('.')[2]} = {plain}  # {key.says}")
    return "\n".join(lines) + "\n"


def transport_of(address: str) -> str:
    """The transport that an address is on, by its scheme."""
    scheme = check_id(address, "address").partition(":")[0].lower()
    name = {"https": "http", "mailto": "smtp", "ftps": "ftp", "nats": "broker"}
    transport = name.get(scheme, scheme)
    if transport not in TRANSPORTS:
        raise AgreementProblem(
            f"the address {address[:128]!r} is on no transport we have",
            key="partner",
            remedy="begin it with https:, mailto:, ftps:, sftp: or nats:",
        )
    return transport


def write_toml(agreement: Agreement) -> str:
    """The whole agreement as TOML; reading it back gives an equal one."""
    # What a file or a CPA said itself, not what a profile or a default gave.
    base = {
        value.key: value
        for value in agreement.sending.values
        if value.origin in (Origin.FILE, Origin.CPA)
    }
    lines = [f"cpa_id = {quoted(agreement.cpa_id)}", f"profile = {quoted(agreement.profile)}"]
    lines += _facts(agreement)
    lines += ["", "[own]", *_side(agreement.own), "", "[partner]", *_side(agreement.partner)]
    if agreement.via is not None:
        lines += ["", "[via]", *_via(agreement.via)]
    lines += toml_tables(base)
    defaults = {}
    for direction in Direction:
        binding = agreement.default(direction)
        receiver = agreement.partner if direction is Direction.SEND else agreement.own
        said = _difference(agreement, base, binding)
        defaults[direction] = merge(base, said)
        entry = _entry_lines(binding, receiver.endpoints, said)
        if len(entry) > 1:
            lines += ["", "[[actions]]", *entry, *toml_tables(said, "actions.")]
    for binding in agreement.actions:
        receiver = agreement.partner if binding.direction is Direction.SEND else agreement.own
        said = _difference(agreement, defaults[binding.direction], binding)
        lines += ["", "[[actions]]", *_entry_lines(binding, receiver.endpoints, said)]
        lines += toml_tables(said, "actions.")
    return "\n".join(lines) + "\n"


def write_whole(agreement: Agreement) -> str:
    """The agreement with every value said, so that it means the same whatever a later version
    of its profile, or of our defaults, says."""
    # What follows from other values somewhere cannot be said beside them.
    unsaid = {key for binding in agreement.bindings() for key in _overruled(agreement, binding)}
    # What we search by is not agreed with the partner, so it is written only where it was said.
    unsaid.add(BY_TARGET["rules.index"].name)

    def said(binding: ActionBinding) -> ActionBinding:
        values = tuple(
            [
                value
                if value.key in unsaid
                else Value(value.key, value.value, Origin.FILE, value.where)
                for value in binding.values
            ]
        )
        return replace(binding, values=values)

    whole = replace(
        agreement,
        sending=said(agreement.sending),
        receiving=said(agreement.receiving),
        actions=tuple(said(binding) for binding in agreement.actions),
    )
    return write_toml(whole)


def _overruled(agreement: Agreement, binding: ActionBinding) -> Iterator[str]:
    """Keys whose value is not the one in force."""
    for value in binding.values:
        key = KEYS[value.key]
        part = agreement if key.part == "form" else binding
        if getattr(getattr(part, key.part), key.field) != value.value:
            yield value.key


def _difference(
    agreement: Agreement, base: Mapping[str, Value], binding: ActionBinding
) -> dict[str, Value]:
    """What must be said beyond the base so that exactly this binding comes out."""
    wanted = {value.key: value for value in binding.values}
    ways = binding.endpoints
    if binding.direction is Direction.SEND and agreement.via is not None:
        ways = agreement.via.endpoints or ways
    transports = tuple(dict.fromkeys(endpoint.transport for endpoint in ways))
    spoken = merge(profile_values(agreement.profile), base)
    said = {
        name: value
        for name, value in wanted.items()
        if name in spoken and spoken[name].value != value.value
    }
    # Saying one value may change what follows from it, so this is done until all is right.
    for _ in DERIVED:
        try:
            whole = compose(merge(spoken, said), transports)
        except AgreementProblem:
            break
        made = {value.key: value.value for value in whole.values}
        missing = {name: value for name, value in wanted.items() if made[name] != value.value}
        if not missing:
            return said
        said |= missing
    return said | {
        name: value
        for name, value in wanted.items()
        if name in DERIVED or (name not in spoken and value.origin is not Origin.DEFAULT)
    }


# --- pieces ------------------------------------------------------------------------------------


def _lines(said: Mapping[str, object]) -> list[str]:
    """A line for each value that says something."""
    return [
        f"{key} = {literal(value)}"
        for key, value in said.items()
        if value is not None and value not in ("", [], False)
    ]


def _facts(agreement: Agreement) -> list[str]:
    facts: dict[str, object] = {
        "status": "" if agreement.status == "agreed" else agreement.status,
        "start": None if agreement.start is None else format_instant(agreement.start),
        "end": None if agreement.end is None else format_instant(agreement.end),
        "also_known_as": list(agreement.also_known_as),
        "listed_only": agreement.listed_only,
        "forwards": agreement.forwards,
        "any_cpa_id": agreement.any_cpa_id,
    }
    return _lines(facts)


def _side(side: PartyTerms) -> list[str]:
    facts: dict[str, object] = {
        "role": side.party.role,
        "name": side.name,
        "uri": side.handler_uri,
        "client_certificates": list(side.client_certificates),
        "certificates": [to_pem(der) for der in side.certificates],
        "signing_certificates": [to_pem(der) for der in side.signing_certificates],
    }
    behind = {"behind_services": list(side.behind_services), "behind_all": side.behind_all}
    lines = [f"party_id = {_ids(side.party.ids)}", *_lines(facts)]
    if side.behind:
        lines.append(f"behind = {_ids(side.behind)}")
    return [*lines, *_lines(behind), *_addresses(side.endpoints)]


def _ids(ids: Iterable[PartyId]) -> str:
    listed = [
        f"{{value = {quoted(party_id.value)}"
        + (f", type = {quoted(party_id.type)}}}" if party_id.type is not None else "}")
        for party_id in ids
    ]
    return "[" + ", ".join(listed) + "]"


def _addresses(endpoints: Iterable[Endpoint]) -> list[str]:
    found: dict[str, dict[EndpointType, list[str]]] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.transport, {}).setdefault(endpoint.type, []).append(
            endpoint.address
        )
    return [
        f"{transport} = {{"
        + ", ".join(f"{kind.value} = {literal(values)}" for kind, values in kinds.items())
        + "}"
        for transport, kinds in found.items()
    ]


def _via(via: Via) -> list[str]:
    facts: dict[str, object] = {"uri": via.handler_uri}
    for name in ("timeout", "retry_interval", "sync_timeout"):
        duration = getattr(via, name)
        facts[name] = None if duration is None else format_duration(duration)
    lines = [] if via.party is None else [f"party_id = {_ids(via.party.ids)}"]
    lines += _lines(facts)
    if via.retries is not None:
        lines.append(f"retries = {via.retries}")
    return lines + _addresses(via.endpoints)


def _entry_lines(
    binding: ActionBinding, usual: tuple[Endpoint, ...], said: Mapping[str, Value]
) -> list[str]:
    """The head of one [[actions]] table: a single line when it says nothing of its own."""
    ours, theirs = binding.from_role, binding.to_role
    if binding.direction is Direction.RECEIVE:
        ours, theirs = theirs, ours
    service = binding.service
    facts: dict[str, object] = {
        "direction": binding.direction.value,
        "service": None if service is None else service.value,
        "service_type": None if service is None else service.type,
        "action": binding.action,
        "role": ours,
        "partner_role": theirs,
    }
    lines = _lines(facts)
    if binding.endpoints != usual:
        lines += _addresses(binding.endpoints)
    if said and len(lines) == 1:
        lines.append("# every message of this direction")
    return lines
