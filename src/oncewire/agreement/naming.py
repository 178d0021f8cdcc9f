"""Naming: whom the ids of a header mean, in the agreement's own words.

A header may give a party more ids than the agreement knows, and in any order; the first one is
whatever its writer put first. The agreement was found by these ids, and whoever proved to be its
partner is the one who speaks. So a party is called what the agreement calls it: in the key of
duplicates, in the journal, and to the application.
"""

from __future__ import annotations

from oncewire.agreement.agreement import Agreement, PartyTerms
from oncewire.message.ids import Party, PartyId


def sender_of(agreement: Agreement, party: Party) -> Party:
    """The From Party of a message that was received under the agreement."""
    partner, via = agreement.partner, agreement.via
    if partner.is_named_by(party) or not (agreement.forwards or via is not None):
        return Party(partner.party.ids, party.role)
    behind = known_ids(partner, party)
    if behind:
        return Party(behind, party.role)
    if via is not None and via.party is not None and via.party.shares_id_with(party):
        return Party(via.party.ids, party.role)
    # A handler on the way that we never heard of (ERR-5): by its own words, whatever their order.
    return Party(tuple(sorted(party.ids, key=str)), party.role)


def sender_name(agreement: Agreement, party: Party) -> str:
    """What listings call that From Party."""
    partner = agreement.partner
    if partner.is_named_by(party):
        return str(partner.party)
    return str(sender_of(agreement, party))


def receiver_name(side: PartyTerms, party: Party) -> str:
    """The same of the To Party."""
    return str(side.party) if side.is_named_by(party) else str(receiver_of(side, party))


def receiver_of(side: PartyTerms, party: Party) -> Party:
    """The To Party, if it is that side or is reached through it."""
    if side.is_named_by(party):
        return Party(side.party.ids, party.role)
    return Party(known_ids(side, party) or party.ids, party.role)


def known_ids(side: PartyTerms, party: Party) -> tuple[PartyId, ...]:
    """The ids of a header by which the way to that party is known, in the agreement's order."""
    return tuple(party_id for party_id in (*side.party.ids, *side.behind) if party_id in party.ids)
