"""What an agreement says and CPPA 2.0 has no word for, in a Comment of the CPA.

Other handlers pass it over. Ours reads it beside the CPA's own elements, and only what those could
not say stands in it, so that a change of the CPA's own words changes what holds. It is TOML,
in the keys of an agreement. Terms are told as the first party sees them; to the second, what the
first signs is what it asks to be signed. What only one party has (whom it trusts) is for that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Endpoint,
    EndpointType,
    Origin,
    PartyTerms,
    Value,
)
from oncewire.agreement.certificates import read_certificates, to_pem
from oncewire.agreement.compose import Draft, Entry, layer, merge
from oncewire.agreement.cppa.document import BEYOND
from oncewire.agreement.keys import KEYS, toml_tables
from oncewire.errors import AgreementProblem
from oncewire.message.kinds import literal, quoted, read_toml

SIDES = ("first", "second")
_MIRRORED = {
    "security.sign": "security.require_signature",
    "security.require_signature": "security.sign",
}
OWN_VIEW = frozenset(
    {
        "security.partner_certificates",
        "security.partner_encryption_certificates",
        "security.trust_anchors",
        "security.revocation_lists",
        "security.revoked",
    }
)
"""Keys that one party alone says: whom it believes."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What is said of one binding beyond its channel, as the first party sees it."""

    values: Mapping[str, Value] = field(default_factory=dict)
    # What the CPA names because it has to, and the agreement leaves open.
    unsaid: tuple[str, ...] = ()
    # Addresses, where its channel cannot have all of them.
    endpoints: tuple[Endpoint, ...] | None = None


@dataclass(frozen=True, slots=True)
class Remainder:
    """The whole Comment; a CPA of another product has none, and then all of this is empty."""

    profile: str | None = None
    # Facts of the whole agreement by the names of Draft's fields.
    facts: Mapping[str, Any] = field(default_factory=dict)
    # What is said of the parties, by the names of PartyTerms' fields.
    sides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    said: Mapping[str, Value] = field(default_factory=dict)
    bindings: Mapping[str, Extra] = field(default_factory=dict)
    # Bindings that only fill a place that the schema asks for.
    fillers: tuple[str, ...] = ()

    def completed(self, entry: Entry, binding: str, viewer: str) -> Entry:
        """An entry of the CPA with what is said of it besides, as that party sees it."""
        extra = self.bindings.get(binding, Extra())
        facts: dict[str, Any] = dict.fromkeys(extra.unsaid)
        if extra.endpoints is not None:
            facts["endpoints"] = extra.endpoints
        return replace(entry, said=merge(entry.said, _seen(extra.values, viewer)), **facts)

    def over(self, draft: Draft, viewer: str) -> Draft:
        """The draft of the whole agreement with what is said of it besides."""
        other = SIDES[1 - SIDES.index(viewer)]
        facts = dict(self.facts)
        if draft.also_known_as:
            # The party's own file says more than the CPA.
            facts.pop("also_known_as", None)
        return replace(
            draft,
            own=_of_side(draft.own, self.sides.get(viewer, {})),
            partner=_of_side(draft.partner, self.sides.get(other, {})),
            said=merge(draft.said, self.said),
            **facts,
        )


def _of_side(side: PartyTerms, said: Mapping[str, Any]) -> PartyTerms:
    facts = dict(said)
    if "role" in facts:
        facts["party"] = structs.replace(side.party, role=facts.pop("role"))
    return replace(side, **facts)


def _seen(values: Mapping[str, Value], viewer: str) -> dict[str, Value]:
    if viewer == SIDES[0]:
        return dict(values)
    return {
        _MIRRORED.get(key, key): structs.replace(value, key=_MIRRORED.get(key, key))
        for key, value in values.items()
        if key not in OWN_VIEW
    }


# --- reading -----------------------------------------------------------------------------------


def read_remainder(text: str | None) -> Remainder:
    """The remainder in a Comment; None: there is none."""
    if text is None:
        return Remainder()
    try:
        table = read_toml(text.strip().removeprefix(BEYOND))
        facts: dict[str, Any] = {
            name: bool(table[name]) for name in ("listed_only", "any_cpa_id") if name in table
        }
        if "also_known_as" in table:
            facts["also_known_as"] = tuple(map(str, table["also_known_as"]))
        facts |= dict.fromkeys(
            str(name) for name in table.get("open", ()) if name in ("start", "end")
        )
        return Remainder(
            profile=table.get("profile"),
            facts=facts,
            sides={name: _side(table[name]) for name in SIDES if name in table},
            said=_values(table.get("whole", {})),
            bindings={name: _extra(said) for name, said in table.get("terms", {}).items()},
            fillers=tuple(map(str, table.get("fillers", ()))),
        )
    except (ValueError, RecursionError, KeyError, TypeError) as problem:
        raise AgreementProblem(
            f"the Comment for Oncewire cannot be read: {str(problem)[:200]}",
            key="Comment",
            remedy="remove that Comment, or ask for the CPA again",
        ) from None


def _extra(table: dict[str, Any]) -> Extra:
    unsaid = tuple(
        fact for fact in table.get("unsaid", ()) if fact in ("action", "from_role", "to_role")
    )
    ends = _endpoints(table["endpoints"]) if "endpoints" in table else None
    rest = {key: raw for key, raw in table.items() if key not in ("unsaid", "endpoints")}
    return Extra(_values(rest), unsaid, ends)


def _endpoints(raw: list[list[str]]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(transport, address, EndpointType(kind)) for transport, kind, address in raw
    )


def _side(table: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("role", "name", "handler_uri"):
        if name in table:
            found[name] = str(table[name])
    if "handler_uri" in found:
        found["handler_uri"] = found["handler_uri"] or None
    if "endpoints" in table:
        found["endpoints"] = _endpoints(table["endpoints"])
    if "client_certificates" in table:
        found["client_certificates"] = tuple(map(str, table["client_certificates"]))
    for name in ("certificates", "signing_certificates"):
        if name in table:
            found[name] = tuple(der for text in table[name] for der in read_certificates(text))
    return found


def _values(table: dict[str, Any]) -> dict[str, Value]:
    said = {f"{part}.{key}": raw for part, keys in table.items() for key, raw in keys.items()}
    unknown = [name for name in said if name not in KEYS]
    if unknown:
        raise AgreementProblem(
            f"there is no key {unknown[0][:128]!r}",
            key="Comment",
            remedy="the CPA was written by a later version: bring this one up to date",
        )
    return layer(said, Origin.CPA, "Comment")


# What a CPA that was written leaves out of its agreement, found by reading it back.


def leftover(
    agreement: Agreement,
    made: Agreement,
    pairs: Sequence[tuple[str, ActionBinding, ActionBinding]],
    before: Remainder,
) -> Remainder:
    """What has to be said beside the CPA so that the agreement comes out of it.

    `made` came out so far, `pairs` are its bindings by their names beside those that are wanted,
    and `before` is what was said beside it then.
    """
    facts: dict[str, Any] = {
        name: getattr(agreement, name)
        for name in ("listed_only", "any_cpa_id", "also_known_as", "start", "end")
        if name in before.facts or getattr(agreement, name) != getattr(made, name)
    }
    bindings = {
        name: _left_over_extra(wanted, found, before.bindings.get(name, Extra()))
        for name, wanted, found in pairs
    }
    said = dict(before.said)
    for value in agreement.sending.values:
        key = KEYS[value.key]
        if key.part == "form":
            wanted = getattr(agreement.form, key.field)
            if getattr(made.form, key.field) != wanted:
                said[value.key] = Value(value.key, wanted, value.origin)
    return Remainder(
        agreement.profile,
        facts,
        {
            name: dict(before.sides.get(name, {})) | _left_over_side(wanted, found)
            for name, wanted, found in zip(
                SIDES, (agreement.own, agreement.partner), (made.own, made.partner), strict=True
            )
        },
        said,
        bindings,
        before.fillers,
    )


def in_full(bindings: Mapping[str, ActionBinding]) -> dict[str, Extra]:
    """Every value of every binding, but for those that others overrule in one of them."""
    overruled = {
        value.key
        for binding in bindings.values()
        for value in binding.values
        if (key := KEYS[value.key]).part == "form"
        or getattr(getattr(binding, key.part), key.field) != value.value
    }
    return {
        name: Extra({value.key: value for value in binding.values if value.key not in overruled})
        for name, binding in bindings.items()
    }


def _left_over_extra(wanted: ActionBinding, found: ActionBinding, before: Extra) -> Extra:
    values = dict(before.values)
    known = {value.key: value.value for value in found.values}
    for value in wanted.values:
        if KEYS[value.key].part != "form" and known[value.key] != value.value:
            values[value.key] = value
    unsaid = tuple(
        name
        for name in ("action", "from_role", "to_role")
        if getattr(wanted, name) is None and (name in before.unsaid or getattr(found, name))
    )
    ends = before.endpoints
    if wanted.endpoints != found.endpoints:
        ends = wanted.endpoints
    return Extra(values, unsaid, ends)


def _left_over_side(wanted: PartyTerms, found: PartyTerms) -> dict[str, Any]:
    said = {
        name: getattr(wanted, name)
        for name in (
            "name",
            "handler_uri",
            "endpoints",
            "client_certificates",
            "certificates",
            "signing_certificates",
        )
        if getattr(wanted, name) != getattr(found, name)
    }
    if wanted.party.role != found.party.role:
        said["role"] = wanted.party.role
    return said


# --- as text -----------------------------------------------------------------------------------


def write_remainder(remainder: Remainder) -> str:
    """The remainder as the Comment has it."""
    lines = [] if remainder.profile is None else [f"profile = {quoted(remainder.profile)}"]
    unbound = [name for name in ("start", "end") if remainder.facts.get(name, 0) is None]
    for name in ("listed_only", "any_cpa_id", "also_known_as"):
        if name in remainder.facts:
            value = remainder.facts[name]
            lines.append(f"{name} = {literal(list(value) if isinstance(value, tuple) else value)}")
    if unbound:
        lines.append(f"open = {literal(unbound)}")
    if remainder.fillers:
        lines.append(f"fillers = {literal(list(remainder.fillers))}")
    for name, side in remainder.sides.items():
        if side:
            lines += ["", f"[{name}]", *_side_lines(side)]
    lines += toml_tables(remainder.said, "whole.")
    for name, extra in remainder.bindings.items():
        head = []
        if extra.unsaid:
            head.append(f"unsaid = {literal(list(extra.unsaid))}")
        if extra.endpoints is not None:
            head.append(f"endpoints = {_ends(extra.endpoints)}")
        if head:
            lines += ["", f"[terms.{name}]", *head]
        lines += toml_tables(extra.values, f"terms.{name}.")
    return "\n".join(lines) + "\n"


def _side_lines(side: Mapping[str, Any]) -> Iterator[str]:
    for name, value in side.items():
        if name == "endpoints":
            yield f"endpoints = {_ends(value)}"
        elif name in ("certificates", "signing_certificates"):
            yield f"{name} = {literal([to_pem(der) for der in value])}"
        elif isinstance(value, tuple):
            yield f"{name} = {literal(list(value))}"
        else:
            yield f"{name} = {quoted(value or '')}"


def _ends(endpoints: tuple[Endpoint, ...]) -> str:
    return literal([[end.transport, end.type.value, end.address] for end in endpoints])
