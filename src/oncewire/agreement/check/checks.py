"""Finds what is wrong or dangerous in an agreement before it costs a message.

An error cannot work, a danger works until the day it loses, doubles or exposes a message,
a hint is worth a thought. Each finding says what is the matter in one sentence and what
to do about it in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.check.dangers import agreement_dangers, binding_dangers, hub_dangers
from oncewire.agreement.check.exposure import Abilities, beyond_abilities
from oncewire.agreement.check.finding import Danger, Finding, Severity, claim_dangers
from oncewire.errors import AgreementProblem
from oncewire.message.instant import Instant


def check(
    agreement: Agreement,
    *,
    now: Instant | None = None,
    abilities: Abilities | None = None,
) -> tuple[Finding, ...]:
    """The findings about one agreement, worst first.

    Without `now` no dates are judged; without `abilities`, what a handler is able to do.
    """
    found = [(danger, "") for danger in agreement_dangers(agreement, now)]
    for binding in agreement.bindings():
        found += [(danger, binding.label) for danger in binding_dangers(agreement, binding, now)]
        if abilities is not None:
            found += [(danger, binding.label) for danger in beyond_abilities(binding, abilities)]
    return _sorted(agreement.cpa_id, found)


def check_all(
    agreements: Iterable[Agreement],
    *,
    now: Instant | None = None,
    abilities: Abilities | None = None,
) -> tuple[Finding, ...]:
    """The findings about every agreement, and about how they fit together."""
    everything = tuple(agreements)
    found = [
        finding
        for agreement in everything
        for finding in check(agreement, now=now, abilities=abilities)
    ]
    try:
        Agreements(everything)
    except AgreementProblem as problem:
        found.append(Finding(Severity.ERROR, problem.key, problem.problem, problem.remedy))
    for cpa_id, danger in (*claim_dangers(everything), *hub_dangers(everything)):
        found += _sorted(cpa_id, [(danger, "")])
    return tuple(
        sorted(found, key=lambda each_finding: list(Severity).index(each_finding.severity))
    )


def _sorted(cpa_id: str, found: Iterable[tuple[Danger, str]]) -> tuple[Finding, ...]:
    """One finding for each different danger, with everything it concerns."""
    merged: dict[Danger, Finding] = {}
    for danger, scope in found:
        old = merged.get(danger)
        if old is None:
            old = Finding(*danger, cpa_id)
        scopes = old.scopes if not scope or scope in old.scopes else (*old.scopes, scope)
        merged[danger] = replace(old, scopes=scopes)
    return tuple(_by_severity(merged.values()))


def _by_severity(findings: Iterable[Finding]) -> Iterator[Finding]:
    order = list(Severity)
    yield from sorted(findings, key=lambda finding: order.index(finding.severity))
