"""What a CPA that was written leaves out of its agreement, found by reading it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncewire.agreement.agreement import ActionBinding, Agreement, Endpoint, PartyTerms, Value
from oncewire.agreement.certificates import to_pem
from oncewire.agreement.cppa.remainder import SIDES, Extra, Remainder
from oncewire.agreement.keys import KEYS
from oncewire.message.kinds import literal, quoted


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
        name: _extra(wanted, found, before.bindings.get(name, Extra()))
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
            name: dict(before.sides.get(name, {})) | _side(wanted, found)
            for name, wanted, found in zip(
                SIDES,
                (agreement.own, agreement.partner),
                (made.own, made.partner),
                strict=True,
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


def _extra(wanted: ActionBinding, found: ActionBinding, before: Extra) -> Extra:
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


def _side(wanted: PartyTerms, found: PartyTerms) -> dict[str, Any]:
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
    lines += _value_lines("whole", remainder.said)
    for name, extra in remainder.bindings.items():
        head = []
        if extra.unsaid:
            head.append(f"unsaid = {literal(list(extra.unsaid))}")
        if extra.endpoints is not None:
            head.append(f"endpoints = {_ends(extra.endpoints)}")
        if head:
            lines += ["", f"[terms.{name}]", *head]
        lines += _value_lines(f"terms.{name}", extra.values)
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


def _value_lines(prefix: str, values: Mapping[str, Value]) -> Iterator[str]:
    """The values as tables below a prefix."""
    part = ""
    for name, key in KEYS.items():
        if name not in values:
            continue
        if name.partition(".")[0] != part:
            part = name.partition(".")[0]
            yield ""
            yield f"[{prefix}.{part}]"
        yield f"{name.partition('.')[2]} = {key.kind.literal(values[name].value)}"
