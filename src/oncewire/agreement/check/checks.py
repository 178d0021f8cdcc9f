"""Finds what is wrong or dangerous in an agreement before it costs a message.

An error cannot work, a danger works until the day it loses, doubles or exposes a message,
a hint is worth a thought. Each finding says what is the matter in one sentence and what
to do about it in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.check.dangers import agreement_dangers, binding_dangers, hub_dangers
from oncewire.agreement.check.exposure import Abilities, beyond_abilities
from oncewire.agreement.check.finding import CheckReport, Danger, Finding, Severity, claim_dangers
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.toml.reader import Load, read_toml
from oncewire.errors import AgreementProblem, OncewireError
from oncewire.message.ids import Party
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
        found.append(_finding_of(problem))
    for cpa_id, danger in (*claim_dangers(everything), *hub_dangers(everything)):
        found += _sorted(cpa_id, [(danger, "")])
    return tuple(
        sorted(found, key=lambda each_finding: list(Severity).index(each_finding.severity))
    )


def check_toml(
    text: str,
    *,
    load: Load | None = None,
    now: Instant | None = None,
    abilities: Abilities | None = None,
) -> CheckReport:
    """The report about a TOML file; what keeps it from being read is a finding too."""
    return _report(lambda: read_toml(text, load=load), now, abilities)


def check_cpa(
    xml: bytes | str,
    *,
    own: str | int,
    profile: str | None = None,
    own_party: Party | None = None,
    partner_party: Party | None = None,
    now: Instant | None = None,
    abilities: Abilities | None = None,
) -> CheckReport:
    """The report about a CPA, as the party `own` sees it."""

    def read() -> Agreement:
        return read_cpa(
            xml, own=own, profile=profile, own_party=own_party, partner_party=partner_party
        )

    return _report(read, now, abilities)


def _report(
    read: Callable[[], Agreement], now: Instant | None, abilities: Abilities | None
) -> CheckReport:
    try:
        agreement = read()
    except OncewireError as problem:
        return CheckReport(None, (_finding_of(problem),))
    return CheckReport(agreement, check(agreement, now=now, abilities=abilities))


def _finding_of(problem: OncewireError) -> Finding:
    key = problem.key if isinstance(problem, AgreementProblem) else ""
    return Finding(Severity.ERROR, key, problem.problem, problem.remedy)


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
