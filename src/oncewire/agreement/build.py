"""Builds an Agreement from its pieces, so that a TOML file and a CPA end in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Direction,
    Endpoint,
    Origin,
    PartyTerms,
    Value,
    Via,
)
from oncewire.agreement.certificates import fingerprint
from oncewire.agreement.compose import Layer, bind, compose, merge
from oncewire.agreement.keys import KEYS
from oncewire.agreement.profiles import profile_values
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.ids import Service
from oncewire.message.instant import Instant


@dataclass(frozen=True, slots=True)
class Entry:
    """What one direction, or one action of it, says beyond the whole agreement."""

    direction: Direction
    said: Layer = field(default_factory=dict)
    service: Service | None = None
    action: str | None = None
    from_role: str | None = None
    to_role: str | None = None
    # None: those of the receiving party.
    endpoints: tuple[Endpoint, ...] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """An agreement as it was read, before its values are put together."""

    cpa_id: str
    profile: str
    own: PartyTerms
    partner: PartyTerms
    said: Layer = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    # Said last and over everything: a file's own words over the CPA it imports.
    over: Layer = field(default_factory=dict)
    via: Via | None = None
    listed_only: bool = False
    forwards: bool = False
    status: str = "agreed"
    start: Instant | None = None
    end: Instant | None = None
    also_known_as: tuple[str, ...] = ()
    any_cpa_id: bool = False
    not_offered: tuple[tuple[str, str], ...] = ()
    # Actions take over what is said of their whole direction.
    inherit: bool = True
    origin: Origin = Origin.FILE
    where: str = ""


def build(draft: Draft) -> Agreement:
    """The agreement; a contradiction in it is an `AgreementProblem` that names the key."""
    base = merge(profile_values(draft.profile), draft.said)
    defaults = {direction: _default(draft, base, direction) for direction in Direction}
    actions = tuple(
        _binding(draft, merge(base, _direction_values(draft, entry.direction)), entry)
        for entry in draft.entries
        if entry.service is not None
    )
    _refuse_twins(actions)
    form = compose(merge(base, draft.over)).form
    try:
        return Agreement(
            cpa_id=draft.cpa_id,
            own=draft.own,
            partner=draft.partner,
            sending=defaults[Direction.SEND],
            receiving=defaults[Direction.RECEIVE],
            actions=actions,
            listed_only=draft.listed_only,
            form=form,
            profile=draft.profile,
            status=draft.status,
            start=draft.start,
            end=draft.end,
            via=draft.via,
            forwards=draft.forwards,
            also_known_as=draft.also_known_as,
            any_cpa_id=draft.any_cpa_id,
            not_offered=draft.not_offered,
            values=_identity(draft),
        )
    except InvalidValue as error:
        raise AgreementProblem(error.problem, key="cpa_id", remedy=error.remedy) from None


def _direction_values(draft: Draft, direction: Direction) -> Layer:
    """What the entry for the whole direction says, if there is one."""
    if not draft.inherit:
        return {}
    return merge(
        *(
            entry.said
            for entry in draft.entries
            if entry.service is None and entry.direction is direction
        )
    )


def _default(draft: Draft, base: Layer, direction: Direction) -> ActionBinding:
    for entry in draft.entries:
        if entry.service is None and entry.direction is direction:
            return _binding(draft, base, entry)
    return _binding(draft, base, Entry(direction))


def _binding(draft: Draft, base: Layer, entry: Entry) -> ActionBinding:
    receiver = draft.partner if entry.direction is Direction.SEND else draft.own
    endpoints = receiver.endpoints if entry.endpoints is None else entry.endpoints
    ways = endpoints
    if entry.direction is Direction.SEND and draft.via is not None and draft.via.endpoints:
        ways = draft.via.endpoints
    transports = tuple(dict.fromkeys(endpoint.transport for endpoint in ways))
    wrong = [name for name in entry.said if KEYS[name].part == "form"]
    if wrong:
        raise AgreementProblem(
            f"{wrong[0]} holds for the whole agreement, not for one action",
            key=wrong[0],
            remedy="move it out of [[actions]]",
        )
    whole = compose(merge(base, entry.said, draft.over), transports)
    return bind(
        entry.direction,
        whole,
        service=entry.service,
        action=entry.action,
        from_role=entry.from_role,
        to_role=entry.to_role,
        endpoints=endpoints,
    )


def _refuse_twins(actions: Iterable[ActionBinding]) -> None:
    """Two entries for the same messages would make their terms a matter of luck."""
    seen: set[tuple[Any, ...]] = set()
    for binding in actions:
        key = (
            binding.direction,
            binding.service,
            binding.action,
            binding.from_role,
            binding.to_role,
        )
        if key in seen:
            raise AgreementProblem(
                f"there are two entries for {binding.label}",
                key="actions",
                remedy="keep one of them",
            )
        seen.add(key)


def _identity(draft: Draft) -> tuple[Value, ...]:
    """What is not a policy: who, when and where, for `agreement show`."""
    facts: list[tuple[str, object]] = [("cpa_id", draft.cpa_id), ("profile", draft.profile)]
    for name, side in (("own", draft.own), ("partner", draft.partner)):
        facts.append((f"{name}.party_id", tuple(side.party.ids)))
        facts.append((f"{name}.name", side.name))
        facts.append((f"{name}.uri", side.handler_uri))
        facts.append((f"{name}.addresses", side.endpoints))
        facts.append((f"{name}.client_certificates", side.client_certificates))
        for key in ("certificates", "signing_certificates"):
            shown = tuple(f"sha256:{fingerprint(der)[:16]}" for der in getattr(side, key))
            facts.append((f"{name}.{key}", shown))
        facts.append((f"{name}.behind", side.behind))
        facts.append((f"{name}.behind_services", side.behind_services))
        facts.append((f"{name}.behind_all", side.behind_all))
    facts += [
        ("via", draft.via),
        ("status", draft.status),
        ("start", draft.start),
        ("end", draft.end),
        ("listed_only", draft.listed_only),
        ("forwards", draft.forwards),
        ("also_known_as", draft.also_known_as),
        ("any_cpa_id", draft.any_cpa_id),
    ]
    unsaid: tuple[object, ...] = (None, "", (), False)
    return tuple(
        Value(key, value, Origin.DEFAULT)
        if value in unsaid
        else Value(key, value, draft.origin, draft.where)
        for key, value in facts
    )
