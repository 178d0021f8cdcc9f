"""Names: what we call ourselves and our partners, by the names of their files.

This module is read at every start of the command line, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncewire.errors import NotHere

if TYPE_CHECKING:
    from oncewire.entry.party.agreements import Kept
    from oncewire.entry.party.settings import Settings


class Names:
    """Ourselves and partners by name; anyone else by PartyId."""

    def __init__(self, kept: Iterable[Kept] = (), settings: Settings | None = None) -> None:
        self._names: dict[str, str] = {}
        # With one partner there may be several agreements, each a file of its own.
        self._under: dict[tuple[str, str], str] = {}
        # PartyIds as listings have them, and the CPAIds, by every word that means the partner.
        self._meant: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        if settings is not None and settings.party.name:
            self._names[settings.party.party_id] = settings.party.name
        for known in kept:
            agreement, name = known.agreement, known.file.stem
            ids = agreement.partner.party.ids
            for party_id in ids:
                for word in (str(party_id), party_id.value):
                    self._names.setdefault(word, name)
                    self._under[word, agreement.cpa_id] = name
            words = {name, agreement.cpa_id, *agreement.also_known_as}
            for word in words.union(*((each.value, each.spelled, str(each)) for each in ids)):
                parties, papers = self._meant.setdefault(word, ({}, {}))
                parties.update(dict.fromkeys(map(str, ids)))
                papers[agreement.cpa_id] = None

    def __call__(self, party: str, cpa_id: str = "") -> str:
        """How a party is called in what was sent or received under that agreement."""
        return self._under.get((party, cpa_id)) or self._names.get(party, party)

    def parties(self, partner: str) -> tuple[str, ...]:
        """The PartyIds of a partner that is named, as listings have them. What has a colon in it
        is a PartyId of any party: a partner's file may be gone, and its messages here."""
        if partner in self._meant:
            return tuple(self._meant[partner][0])
        if ":" in partner:
            return (partner,)
        raise self._unknown(partner)

    def agreement(self, partner: str) -> str:
        """The CPAId of the one agreement with a partner, by its name, PartyId or CPAId."""
        papers = list(self._meant[partner][1]) if partner in self._meant else []
        if len(papers) == 1 or partner in papers:
            return partner if partner in papers else papers[0]
        if not papers:
            raise self._unknown(partner)
        raise NotHere(
            f"there are {len(papers)} agreements with {partner}",
            remedy=f"name one by its CPAId: {', '.join(papers)}",
        )

    def _unknown(self, partner: str) -> NotHere:
        known = ", ".join(sorted(set(self._under.values()))) or "none"
        return NotHere(f"there is no partner {partner[:64]!r}", remedy=f"there are: {known}")


def names_of(settings: Settings) -> Names:
    """The names of a party and its partners; a listing works even if an agreement is broken."""
    from oncewire.entry.party.agreements import each_readable

    return Names(each_readable(settings), settings)
