"""Whole readings that tests ask for: a file with its findings, a CPA from both sides, a way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Direction,
    EndpointType,
    address_of,
)
from oncewire.agreement.check import Finding, Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.check.exposure import Abilities
from oncewire.agreement.cppa.document import read_document
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.resolve import binding_listed, channel_of, endpoint_type
from oncewire.agreement.rules import signal_terms
from oncewire.agreement.toml import Load, read_toml
from oncewire.errors import AgreementProblem, OncewireError
from oncewire.message.envelope import MessageKind
from oncewire.message.form import Form, Security
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import Instant
from oncewire.protocol.terms import Scope, Terms


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings about one file, and the agreement if it could be read at all."""

    agreement: Agreement | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the agreement can be used: no finding is an error."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


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


def read_views(xml: bytes | str, *, profile: str | None = None) -> tuple[Agreement, Agreement]:
    """Both views of one CPA: as its first party sees it, and as its second does."""
    return (
        read_cpa(xml, own=0, profile=profile),
        read_cpa(xml, own=1, profile=profile),
    )


def party_ids(xml: bytes | str) -> tuple[tuple[str, tuple[PartyId, ...]], ...]:
    """Name and ids of each party of a CPA, so that a caller can ask which one is ours."""
    return tuple((party.label, party.ids) for party in read_document(xml).parties)


@dataclass(frozen=True, slots=True)
class Outbound:
    """How a message of this kind has to be sent."""

    agreement: Agreement
    binding: ActionBinding
    terms: Terms
    form: Form
    security: Security
    # (transport, address) in the order they are tried; empty where the partner has none.
    addresses: tuple[tuple[str, str], ...]
    channel: str | None = None

    def address(self, transport: str) -> str | None:
        """Where to send on that transport."""
        return dict(self.addresses).get(transport)


def addresses(
    agreement: Agreement, binding: ActionBinding, kind: EndpointType
) -> tuple[tuple[str, str], ...]:
    """Where messages under the binding go: to the hub if there is one, else to the partner."""
    endpoints = binding.endpoints
    if agreement.via is not None and agreement.via.endpoints:
        endpoints = agreement.via.endpoints
    found = [
        (transport, address_of(endpoints, transport, kind))
        for transport in binding.terms.transports
    ]
    return tuple((transport, address) for transport, address in found if address is not None)


def outbound(
    agreement: Agreement,
    service: Service | None = None,
    action: str | None = None,
    *,
    kind: MessageKind = MessageKind.NORMAL,
    reply: bool = False,
    conversation_id: str | None = None,
) -> Outbound:
    """How to send a message of that service and action, or a signal of that kind."""
    channel = None
    if kind is MessageKind.NORMAL:
        binding = binding_listed(agreement, service, action)
        terms = binding.terms
        if conversation_id is not None or terms.scope is not Scope.CONVERSATION:
            channel = channel_of(agreement, terms, Direction.SEND, conversation_id, None)
    else:
        binding = agreement.signal_binding(Direction.SEND, kind)
        terms = signal_terms(binding.terms)
    return Outbound(
        agreement=agreement,
        binding=binding,
        terms=terms,
        form=agreement.form,
        security=binding.security,
        addresses=addresses(agreement, binding, endpoint_type(kind, reply=reply)),
        channel=channel,
    )
