"""Composes the parts of a binding from layers of values: defaults, profile, CPA, file.

A later layer wins, key by key. What no layer says is either the default of its field or
follows from another value by a rule of the catalogue; both are recorded as defaults, the
second with the rule's name, so that `agreement show` can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from oncewire.agreement.agreement import (
    ActionBinding,
    Business,
    Direction,
    Endpoint,
    Origin,
    Requested,
    Rules,
    Value,
)
from oncewire.agreement.keys import BY_TARGET, KEYS, default_of
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.acknowledgment import Actor
from oncewire.message.form import Form, Security
from oncewire.message.header import AckRequest, ReliableMessagingMethod
from oncewire.message.ids import Service
from oncewire.protocol.terms import FlowMode, OnExhausted, Terms

Layer = Mapping[str, Value]

ORDERED_WINDOW = 100
"""W where order is guaranteed and nobody named a window (C3).

ebMS 2.0 has no window, so a partner may run ahead of a lost message. This many early
messages are held for it; a window as large as half the range would be no bound at all.
"""

TRANSPORT_METHOD = "urn:oncewire:reliableMessaging:transport"
"""Stands for the Transport method in reliableMessagingMethodsSupported (RM-7)."""


DERIVED = (
    "delivery.transports",
    "delivery.timeout",
    "delivery.reliable",
    "delivery.methods_supported",
    "delivery.on_exhausted",
    "sequence.numbered",
    "flow.mode",
    "flow.window",
)
"""Keys that follow from others where nobody says them (`_derive`)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All five parts of a binding, and every value with its origin."""

    terms: Terms
    rules: Rules
    form: Form
    security: Security
    business: Business
    values: tuple[Value, ...]


def layer(values: Mapping[str, object], origin: Origin, where: str = "") -> dict[str, Value]:
    """Checked values of one origin. The keys must be known; their kinds check the rest."""
    return {name: Value(name, KEYS[name].read(raw), origin, where) for name, raw in values.items()}


def merge(*layers: Layer) -> dict[str, Value]:
    """One layer: where several speak, the last one counts."""
    merged: dict[str, Value] = {}
    for each_layer in layers:
        merged.update(each_layer)
    return merged


def compose(said: Layer, transports: tuple[str, ...] = ()) -> Whole:
    """The parts that the values make; `transports` are those the receiver has addresses on."""
    values = dict(said)
    _derive(values, transports)
    parts: dict[str, dict[str, Any]] = {
        "terms": _acknowledgements(values),
        "rules": {},
        "form": {},
        "security": {},
        "business": {},
    }
    for value in values.values():
        key = KEYS[value.key]
        parts[key.part][key.field] = value.value
    try:
        terms = Terms(**parts["terms"])
    except InvalidValue as error:
        raise AgreementProblem(
            error.problem, key=_blamed(error.problem), remedy=error.remedy
        ) from None
    return Whole(
        terms=terms,
        rules=Rules(**parts["rules"]),
        form=Form(**parts["form"]),
        security=Security(**parts["security"]),
        business=Business(**parts["business"]),
        values=_complete(values),
    )


def bind(
    direction: Direction,
    whole: Whole,
    *,
    service: Service | None = None,
    action: str | None = None,
    from_role: str | None = None,
    to_role: str | None = None,
    endpoints: tuple[Endpoint, ...] = (),
) -> ActionBinding:
    """The binding that carries these parts."""
    return ActionBinding(
        direction=direction,
        terms=whole.terms,
        rules=whole.rules,
        security=whole.security,
        business=whole.business,
        service=service,
        action=action,
        from_role=from_role,
        to_role=to_role,
        endpoints=endpoints,
        values=whole.values,
    )


def _complete(values: Layer) -> tuple[Value, ...]:
    """Every key in its order, with the field's default where nobody spoke."""
    return tuple(values.get(name) or default for name, default in _unsaid().items())


@cache
def _unsaid() -> Layer:
    """Every key in its order, as it is where nobody speaks."""
    return {name: Value(name, default_of(key), Origin.DEFAULT) for name, key in KEYS.items()}


def _blamed(problem: str) -> str:
    """The key of the field that an error of `Terms` names by its first word."""
    key = BY_TARGET.get(f"terms.{problem.partition(' ')[0]}")
    return key.name if key is not None else ""


def _derive(values: dict[str, Value], transports: tuple[str, ...]) -> None:
    """Fills what follows from other values (C3, C19, C22). An explicit value is never touched."""

    def said(name: str) -> Any:
        value = values.get(name)
        return default_of(KEYS[name]) if value is None else value.value

    def follow(name: str, value: object, rule: str) -> None:
        values.setdefault(name, Value(name, value, Origin.DEFAULT, rule))

    if transports:
        follow("delivery.transports", transports, "the partner's addresses")
    # CPPA has one interval for every wait; the drafts name the first one apart (RTY-1, C19).
    follow("delivery.timeout", said("delivery.retry_interval"), "equals retry_interval")
    # ebMS 2.0 has no word for reliable but that an acknowledgement is asked for (C1).
    follow(
        "delivery.reliable",
        said("ack.request") is not Requested.NEVER,
        "reliable unless acknowledgements are never asked for",
    )
    if said("delivery.method") is ReliableMessagingMethod.TRANSPORT:
        methods = (*said("delivery.methods_supported"), TRANSPORT_METHOD)
        follow("delivery.methods_supported", methods, "the transport's own method is used")
    if said("sequence.ordered"):
        follow("flow.mode", FlowMode.WINDOW, "order needs a bounded window")
        if said("flow.mode") is FlowMode.WINDOW:
            follow("flow.window", ORDERED_WINDOW, "order needs a bounded window")
        # Going on after a message that was given up would hand over its successors too soon (C22).
        follow(
            "delivery.on_exhausted",
            OnExhausted.SUSPEND_CHANNEL,
            "a skipped number would break the order",
        )
    limited = said("flow.mode") is not FlowMode.UNRESTRICTED
    follow(
        "sequence.numbered",
        said("sequence.ordered") or limited,
        "order and windows need numbers",
    )


def _acknowledgements(values: Layer) -> dict[str, Any]:
    """What our sender asks for, as it follows from the rules and the actor."""

    def said(name: str) -> Any:
        value = values.get(name)
        return default_of(KEYS[name]) if value is None else value.value

    rule, reliable = said("ack.request"), said("delivery.reliable")
    # The outcome of a reliable message is known by an acknowledgement alone: without one each
    # would end as unknown. And who asks for one and does not wait for it would lose messages.
    if reliable and rule is Requested.NEVER:
        raise AgreementProblem(
            "messages are reliable, but never ask for an acknowledgement",
            key="ack.request",
            remedy="set ack.request to always, or delivery.reliable to false",
        )
    if not reliable and rule is Requested.ALWAYS:
        raise AgreementProblem(
            "messages always ask for an acknowledgement, but are not reliable",
            key="delivery.reliable",
            remedy="set delivery.reliable to true, or ack.request to never",
        )
    wish = AckRequest.NONE
    if reliable:
        # Where the header may decide, ours asks for the proof that the business needs.
        signature, proof = said("ack.signature"), said("business.non_repudiation_of_receipt")
        signed = signature is Requested.ALWAYS or (signature is not Requested.NEVER and proof)
        wish = AckRequest.SIGNED if signed else AckRequest.UNSIGNED
    asked: dict[str, Any] = {
        "duplicate_elimination": said("duplicate.elimination") is not Requested.NEVER,
        "ack_requested": wish,
    }
    # Then the next handler takes the responsibility, and nobody asks the To Party's (HOP-8).
    if said("ack.actor") is Actor.NEXT_MSH:
        asked["ack_requested"] = AckRequest.NONE
        asked["hop_ack_requested"] = wish
    return asked
