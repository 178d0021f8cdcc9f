"""Invitations: one file that says who we are and what we propose to agree, and one that says yes.

    acme:    oncewire partner invite -o acme.invitation.toml     is sent to globex
    globex:  oncewire partner accept acme.invitation.toml        writes globex.acceptance.toml
    acme:    oncewire partner accept globex.acceptance.toml

Either file holds a card (name, PartyId, addresses, certificate, fingerprint) and the agreement, so
that both sides end up with the same one. Nothing in them is secret, and nothing in them is proof:
the fingerprints are compared by another way.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from oncewire.entry.files import read_text
from oncewire.entry.party.folder import Card, card_from, card_of
from oncewire.entry.party.partners import Added, PartnerOptions, add_partner
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue
from oncewire.message.kinds import quoted

INVITATION, ACCEPTANCE = "invitation", "acceptance"
VERSION = 1
_TERMS = {"profile": str, "cpa_id": str, "sign": bool, "ordered": bool, "insecure": bool}


@dataclass(frozen=True, slots=True)
class Invitation:
    """A card and what is to be agreed; as an acceptance, also whose invitation it answers."""

    card: Card
    options: PartnerOptions
    # Fingerprint of the certificate in the invitation that is accepted; empty: this invites.
    answers: str = ""

    @property
    def kind(self) -> str:
        """What it is."""
        return ACCEPTANCE if self.answers else INVITATION

    def to_toml(self) -> str:
        """The file."""
        options = self.options
        lines = [
            f"# An {self.kind} of {self.card.name}: run `oncewire partner accept` with it.",
            f"{self.kind} = {VERSION}",
        ]
        if self.answers:
            lines.append(f"answers = {quoted(self.answers)}")
        lines += [
            "",
            "[agreement]",
            f"profile = {quoted(options.profile)}",
            f"cpa_id = {quoted(options.cpa_id)}",
            f"sign = {str(options.sign).lower()}",
            f"ordered = {str(options.ordered).lower()}",
            f"insecure = {str(options.insecure).lower()}",
            "",
            "[card]",
            *(line for line in self.card.to_toml().splitlines() if not line.startswith("# A ")),
        ]
        return "\n".join(lines) + "\n"


def invite(settings: Settings, options: PartnerOptions) -> Invitation:
    """What we send to somebody who is to become a partner."""
    return Invitation(card_of(settings), options)


def accept(
    settings: Settings, told: Invitation, *, replace_it: bool = False
) -> tuple[Added, Invitation | None]:
    """Write the agreement that was proposed, or that was accepted. Of an invitation there is also
    the acceptance that its sender waits for."""
    own = card_of(settings)
    if told.answers and told.answers != own.fingerprint:
        raise InvalidValue(
            f"this accepts an invitation with the certificate {told.answers}, and ours is "
            f"{own.fingerprint}",
            remedy="invite the partner again, with today's certificate",
        )
    options = told.options
    if told.answers and not options.cpa_id:
        raise InvalidValue("it does not name its agreement", remedy="ask for a new acceptance")
    added = add_partner(settings, told.card, options, replace=replace_it)
    if told.answers:
        return added, None
    agreed = replace(options, cpa_id=added.cpa_id)
    return added, Invitation(own, agreed, answers=told.card.fingerprint)


def read_invitation(place: Path) -> Invitation:
    """An invitation or an acceptance, from its file."""
    try:
        table = tomllib.loads(read_text(place, "invitation", 64 * 1024))
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue(
            f"{place} is no invitation: {error}", remedy="ask for a new one"
        ) from None
    kind = next((name for name in (INVITATION, ACCEPTANCE) if name in table), "")
    terms, card, answers = table.get("agreement"), table.get("card"), table.get("answers", "")
    known = {kind, "agreement", "card", *(["answers"] if kind == ACCEPTANCE else [])}
    sound = isinstance(terms, dict) and isinstance(card, dict) and isinstance(answers, str)
    if not kind or table[kind] != VERSION or set(table) - known or not sound:
        raise InvalidValue(
            f"{place} is no invitation of version {VERSION}",
            remedy="the partner makes one with `oncewire partner invite`; a card is taken by "
            "`oncewire partner add`",
        )
    if kind == ACCEPTANCE and not answers:
        raise InvalidValue(f"{place} does not say what it accepts", remedy="ask for a new one")
    return Invitation(card_from(card, place), _options(terms, place), answers)  # type: ignore[arg-type]


def _options(terms: dict[str, object], place: Path) -> PartnerOptions:
    for name, kind in _TERMS.items():
        if not isinstance(terms.get(name), kind):
            raise InvalidValue(f"{place}: agreement.{name} is missing", remedy="ask for a new one")
    unknown = sorted(set(terms) - set(_TERMS))
    if unknown:
        raise InvalidValue(
            f"{place}: this version does not know agreement.{unknown[0]}",
            remedy="use the version of Oncewire that the partner uses",
        )
    return PartnerOptions(**terms)  # type: ignore[arg-type]
