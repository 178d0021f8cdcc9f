"""What `agreement check` has to say: single dangers, and findings made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import fingerprint


class Severity(StrEnum):
    """How bad it is, worst first."""

    ERROR = "error"
    DANGER = "danger"
    HINT = "hint"


class Danger(NamedTuple):
    """One judge's word: how bad, which key, what is the matter, what to do."""

    severity: Severity
    key: str
    sentence: str
    fix: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about an agreement."""

    severity: Severity
    key: str
    sentence: str
    fix: str
    cpa_id: str = ""
    # The directions and actions it concerns; none means the whole agreement.
    scopes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The finding as JSON has it."""
        plain: dict[str, object] = asdict(self)
        return plain | {"severity": self.severity.value, "scopes": list(self.scopes)}


# Dangers that only show when agreements are laid side by side: two that claim one name.


def claim_dangers(agreements: Iterable[Agreement]) -> Iterator[tuple[str, Danger]]:
    """One PartyId that is believed of different keys, one CPAId that is of different partners."""
    parties: dict[str, Agreement] = {}
    names: dict[str, Agreement] = {}
    for new in agreements:
        for value in dict.fromkeys(party_id.value for party_id in new.partner.party.ids):
            old = parties.setdefault(value, new)
            if _proofs(old) != _proofs(new):
                yield new.cpa_id, _two_keys(value, old)
        for name in dict.fromkeys((new.cpa_id, *new.also_known_as)):
            old = names.setdefault(name, new)
            if not old.partner.party.shares_id_with(new.partner.party):
                yield new.cpa_id, _two_partners(name, old)


def _two_keys(party_id: str, old: Agreement) -> Danger:
    return Danger(
        Severity.DANGER,
        "partner.party_id",
        f"{party_id} is the partner of agreement {old.cpa_id} too, which believes other "
        "certificates: the holder of any of them speaks in its name",
        "ask the partner which certificates are its own; if it is another party, remove this "
        "agreement",
    )


def _two_partners(name: str, old: Agreement) -> Danger:
    return Danger(
        Severity.HINT,
        "cpa_id",
        f"the agreement with {old.partner.party} is called {name} too",
        "give each partner's agreement a CPAId of its own, unless a community wants one for all",
    )


def _proofs(agreement: Agreement) -> frozenset[str]:
    """The fingerprints of every certificate that the partner is known by."""
    partner = agreement.partner
    ders = {*partner.certificates, *partner.signing_certificates}
    for binding in agreement.bindings():
        ders.update(binding.security.partner_certificates)
    return frozenset((*map(fingerprint, ders), *partner.client_certificates))
