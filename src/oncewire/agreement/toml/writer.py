"""Writes agreements as TOML: a commented first one for people, or any one as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

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
from oncewire.agreement.certificates import to_pem
from oncewire.agreement.compose import DERIVED, compose, merge, profile_values
from oncewire.agreement.keys import BY_TARGET, KEYS, toml_tables
from oncewire.errors import AgreementProblem
from oncewire.message.ids import PartyId, check_id
from oncewire.message.instant import format_duration, format_instant
from oncewire.message.kinds import literal, quoted

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
    base = _spoken(agreement.sending)
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
        entry = _entry(binding, receiver.endpoints, said)
        if len(entry) > 1:
            lines += ["", "[[actions]]", *entry, *toml_tables(said, "actions.")]
    for binding in agreement.actions:
        receiver = agreement.partner if binding.direction is Direction.SEND else agreement.own
        said = _difference(agreement, defaults[binding.direction], binding)
        lines += ["", "[[actions]]", *_entry(binding, receiver.endpoints, said)]
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
            value
            if value.key in unsaid
            else Value(value.key, value.value, Origin.FILE, value.where)
            for value in binding.values
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


def _spoken(binding: ActionBinding) -> dict[str, Value]:
    """What a file or a CPA said itself, not what a profile or a default gave."""
    return {
        value.key: value for value in binding.values if value.origin in (Origin.FILE, Origin.CPA)
    }


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


def _facts(agreement: Agreement) -> list[str]:
    lines = []
    if agreement.status != "agreed":
        lines.append(f"status = {quoted(agreement.status)}")
    for name, moment in (("start", agreement.start), ("end", agreement.end)):
        if moment is not None:
            lines.append(f"{name} = {quoted(format_instant(moment))}")
    if agreement.also_known_as:
        lines.append(f"also_known_as = {literal(list(agreement.also_known_as))}")
    for name, flag in (
        ("listed_only", agreement.listed_only),
        ("forwards", agreement.forwards),
        ("any_cpa_id", agreement.any_cpa_id),
    ):
        if flag:
            lines.append(f"{name} = true")
    return lines


def _side(side: PartyTerms) -> list[str]:
    lines = [f"party_id = {_ids(side.party.ids)}"]
    if side.party.role is not None:
        lines.append(f"role = {quoted(side.party.role)}")
    if side.name:
        lines.append(f"name = {quoted(side.name)}")
    if side.handler_uri is not None:
        lines.append(f"uri = {quoted(side.handler_uri)}")
    if side.client_certificates:
        lines.append(f"client_certificates = {literal(list(side.client_certificates))}")
    for key, ders in (
        ("certificates", side.certificates),
        ("signing_certificates", side.signing_certificates),
    ):
        if ders:
            lines.append(f"{key} = {literal([to_pem(der) for der in ders])}")
    if side.behind:
        lines.append(f"behind = {_ids(side.behind)}")
    if side.behind_services:
        lines.append(f"behind_services = {literal(list(side.behind_services))}")
    if side.behind_all:
        lines.append("behind_all = true")
    return lines + _addresses(side.endpoints)


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
    lines = []
    if via.party is not None:
        lines.append(f"party_id = {_ids(via.party.ids)}")
    if via.handler_uri is not None:
        lines.append(f"uri = {quoted(via.handler_uri)}")
    for name, duration in (
        ("timeout", via.timeout),
        ("retry_interval", via.retry_interval),
        ("sync_timeout", via.sync_timeout),
    ):
        if duration is not None:
            lines.append(f"{name} = {quoted(format_duration(duration))}")
    if via.retries is not None:
        lines.append(f"retries = {via.retries}")
    return lines + _addresses(via.endpoints)


def _entry(
    binding: ActionBinding, usual: tuple[Endpoint, ...], said: Mapping[str, Value]
) -> list[str]:
    """The head of one [[actions]] table: a single line when it says nothing of its own."""
    lines = [f"direction = {quoted(binding.direction.value)}"]
    if binding.service is not None:
        lines.append(f"service = {quoted(binding.service.value)}")
        if binding.service.type is not None:
            lines.append(f"service_type = {quoted(binding.service.type)}")
    if binding.action is not None:
        lines.append(f"action = {quoted(binding.action)}")
    sends = binding.direction is Direction.SEND
    ours, theirs = binding.from_role, binding.to_role
    if not sends:
        ours, theirs = theirs, ours
    if ours is not None:
        lines.append(f"role = {quoted(ours)}")
    if theirs is not None:
        lines.append(f"partner_role = {quoted(theirs)}")
    if binding.endpoints != usual:
        lines += _addresses(binding.endpoints)
    if said and len(lines) == 1:
        lines.append("# every message of this direction")
    return lines
