"""The parties of an agreement's TOML: [own], [partner] and [via]."""

from __future__ import annotations

from typing import Any

from oncewire.agreement.agreement import TRANSPORTS, Endpoint, EndpointType, PartyTerms, Via
from oncewire.agreement.certificates import fingerprint, read_certificates, read_fingerprint
from oncewire.agreement.keys import unknown_key
from oncewire.agreement.toml.tables import Load, Table, contents, flag, known_only, word
from oncewire.errors import AgreementProblem
from oncewire.message import kinds
from oncewire.message.ids import Party, PartyId, Service

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
    return PartyTerms(
        party=party,
        name=word(f"{name}.name", table["name"]) if "name" in table else "",
        handler_uri=word(f"{name}.uri", uri) if uri is not None else _usual_uri(endpoints),
        endpoints=endpoints,
        client_certificates=_fingerprints(name, table, load),
        certificates=_certificates(name, "certificates", table, load),
        signing_certificates=_certificates(name, "signing_certificates", table, load),
        behind=_party_ids(name, table, "behind") if "behind" in table else (),
        behind_services=_services(name, table),
        behind_all=flag(table, "behind_all"),
    )


def _services(name: str, table: Table) -> tuple[str, ...]:
    found = table.get("behind_services", [])
    if not isinstance(found, list):
        raise AgreementProblem(
            f"{name}.behind_services is no list",
            key=f"{name}.behind_services",
            remedy='list services: behind_services = ["urn:example:orders"]',
        )
    # They are compared with the name that listings of messages have of a Service.
    return tuple(str(Service.read(word(f"{name}.behind_services", one))) for one in found)


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
