"""Every value of an agreement and where it came from, as rows for a table or for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Endpoint,
    Origin,
    Value,
    Via,
)
from oncewire.agreement.keys import KEYS
from oncewire.message.ids import PartyId
from oncewire.message.instant import format_duration, format_instant

EVERYWHERE = "agreement"
"""The scope of values that hold in both directions."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value: for what it holds, its key, itself in words, its origin and its meaning."""

    scope: str
    key: str
    value: str
    origin: str
    where: str = ""
    says: str = ""

    def as_dict(self) -> dict[str, str]:
        """The row as JSON has it."""
        return asdict(self)


def rows(agreement: Agreement) -> tuple[Row, ...]:
    """All rows: who and when, what holds both ways, then what differs by direction or action.

    Nothing is left out: a value that nobody set is there with the origin `default`.
    """
    found = [_fact(value) for value in agreement.values]
    found += [_row(EVERYWHERE, value) for value in agreement.sending.values]
    found += _differing(agreement.receiving, agreement.sending)
    for binding in agreement.actions:
        found += _binding_facts(binding)
        found += _differing(binding, agreement.sending)
    return tuple(found)


def _row(scope: str, value: Value) -> Row:
    key = KEYS[value.key]
    return Row(
        scope=scope,
        key=value.key,
        value=key.kind.show(value.value),
        origin=value.origin.value,
        where=value.where,
        says=key.says,
    )


def _differing(binding: ActionBinding, base: ActionBinding) -> Iterator[Row]:
    known = {value.key: value.value for value in base.values}
    for value in binding.values:
        if known[value.key] != value.value:
            yield _row(binding.label, value)


def _binding_facts(binding: ActionBinding) -> Iterator[Row]:
    facts: tuple[tuple[str, object], ...] = (
        ("from_role", binding.from_role),
        ("to_role", binding.to_role),
        ("addresses", binding.endpoints),
    )
    for key, value in facts:
        if value:
            yield Row(binding.label, key, _value_text(value), _said(binding).value)


def _said(binding: ActionBinding) -> Origin:
    """Whether the binding was read from a CPA or from a file."""
    from_cpa = any(value.origin is Origin.CPA for value in binding.values)
    return Origin.CPA if from_cpa else Origin.FILE


def _fact(value: Value) -> Row:
    text = _value_text(value.value)
    if value.key in ("start", "end") and isinstance(value.value, int):
        text = format_instant(value.value)
    return Row(EVERYWHERE, value.key, text, value.origin.value, value.where)


def _value_text(value: Any) -> str:
    if value is None or value == () or value == "":
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(_value_text(item) for item in value)
    if isinstance(value, Endpoint):
        kind = "" if value.type.value == "allPurpose" else f" ({value.type.value})"
        return f"{value.transport} {value.address}{kind}"
    if isinstance(value, Via):
        return _via_text(value)
    if isinstance(value, PartyId):
        return value.spelled
    return str(value) if isinstance(value, str | int) else repr(value)


def _via_text(via: Via) -> str:
    words = [via.label, *(_value_text(endpoint) for endpoint in via.endpoints)]
    if via.longest_retry is not None:
        words.append(f"gives up after {format_duration(via.longest_retry)}")
    if via.sync_timeout is not None:
        words.append(f"waits {format_duration(via.sync_timeout)} for a synchronous reply")
    return ", ".join(words)
