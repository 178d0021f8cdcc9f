"""Reads agreements that people write, in TOML.

A handful of keys is enough: who, where, and a profile. Every other key overrides one value
of the profile. A key nobody knows is an error that names the nearest known one, because a
misspelt `retries` must not silently be the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncewire.agreement import kinds
from oncewire.agreement.agreement import (
    TRANSPORTS,
    Agreement,
    Direction,
    Origin,
    PartyTerms,
    Value,
)
from oncewire.agreement.build import Draft, Entry, build
from oncewire.agreement.compose import layer
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.keys import KEYS, unknown_key
from oncewire.agreement.toml.parties import read_endpoints, read_side, read_via
from oncewire.agreement.toml.tables import (
    Load,
    Table,
    aliases,
    contents,
    flag,
    load_file,
    moment,
    needed,
    section,
    status,
    word,
)
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.ids import Service
from oncewire.message.kinds import read_toml as read_table

TEXT_MAX = 4 * 1024 * 1024
"""An agreement is a page of text; certificates written into it make it longer, not huge."""

TOP = (
    "cpa_id", "profile", "cpa", "also_known_as", "any_cpa_id", "listed_only", "status", "start",
    "end", "forwards",
)  # fmt: skip
ENTRY = ("direction", "service", "service_type", "action", "role", "partner_role", *TRANSPORTS)
_SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS))
_FILES = tuple(
    name for name, key in KEYS.items() if key.kind in (kinds.CERTIFICATES, kinds.REVOCATION_LISTS)
)


def read_toml(text: str, *, load: Load | None = None, name: str = "") -> Agreement:
    """The agreement that the text describes; `name` is told as the origin of its values."""
    table = _parse(text)
    try:
        return _read(table, load, name)
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


def _read(table: Table, load: Load | None, name: str) -> Agreement:
    known = [*TOP, "own", "partner", "via", "actions", *KEYS]
    said = _policies(table, known, {*TOP, "own", "partner", "via", "actions"})
    values = _checked(said, load, name)
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
            via=read_via(section(table, "via", needed=False)),
            listed_only=flag(table, "listed_only"),
            forwards=flag(table, "forwards"),
            status=status(table),
            start=moment(table, "start"),
            end=moment(table, "end"),
            also_known_as=aliases(table),
            any_cpa_id=flag(table, "any_cpa_id"),
            where=name,
        )
    )


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
    profile = table.get("profile")
    return read_cpa(
        load_file(word("cpa", table["cpa"]), load, "cpa"),
        own=str(own.party.ids[0]),
        profile=None if profile is None else word("profile", profile),
        over=values,
        via=read_via(section(table, "via", needed=False)),
        forwards=flag(table, "forwards"),
        also_known_as=aliases(table),
        any_cpa_id=flag(table, "any_cpa_id"),
    )


# --- policies ----------------------------------------------------------------------------------


def _policies(table: Table, known: list[str], apart: set[str], place: str = "") -> Table:
    """The dotted keys of a table, without those that are read apart."""
    found: Table = {}
    for name, raw in table.items():
        if name in apart:
            continue
        if name not in _SECTIONS:
            raise unknown_key(place + name, known)
        if not isinstance(raw, dict):
            raise AgreementProblem(
                f"{place}{name} is a section, not a value",
                key=name,
                remedy=f"write [{name}] and its keys below it",
            )
        for key, value in raw.items():
            if f"{name}.{key}" not in KEYS:
                raise unknown_key(
                    f"{name}.{key}", [each_name for each_name in known if "." in each_name]
                )
            found[f"{name}.{key}"] = value
    return found


def _checked(said: Table, load: Load | None, name: str) -> dict[str, Value]:
    """The values by their kinds; files that hold certificates are read first."""
    raw = {
        key: contents(key, value, load) if key in _FILES else value for key, value in said.items()
    }
    return layer(raw, Origin.FILE, name)


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
    said = _policies(table, [*ENTRY, *KEYS], set(ENTRY), "actions.")
    values = _checked(said, load, name)
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
    ours, theirs = _roles(table, own, partner)
    entries = []
    for direction in _directions(table):
        sends = direction is Direction.SEND
        entries.append(
            Entry(
                direction,
                values,
                service,
                action,
                from_role=ours if sends else theirs,
                to_role=theirs if sends else ours,
                endpoints=endpoints,
            )
        )
    return entries


def _roles(table: Table, own: PartyTerms, partner: PartyTerms) -> tuple[str | None, str | None]:
    if "service" not in table:
        return None, None
    ours = table.get("role", own.party.role)
    theirs = table.get("partner_role", partner.party.role)
    return (
        None if ours is None else word("actions.role", ours),
        None if theirs is None else word("actions.partner_role", theirs),
    )


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
