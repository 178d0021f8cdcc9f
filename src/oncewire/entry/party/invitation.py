"""Invitations: one file that says who we are and what we propose to agree, and one that says yes.

    acme:    oncewire partner invite -o acme.invitation.toml     is sent to globex
    globex:  oncewire partner accept acme.invitation.toml        writes globex-acme.acceptance.toml
    acme:    oncewire partner accept globex-acme.acceptance.toml

Either file holds a card (name, PartyId, addresses, certificate, fingerprint) and the agreement, so
that both sides end up with the same one. Nothing in them is secret, and nothing in them is proof:
the fingerprints are compared by another way, and a copy of each invitation stays in our folder, so
that an acceptance can say yes to it and change nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from oncewire.agreement.agreement import TRANSPORTS
from oncewire.agreement.certificates import spoken_fingerprint
from oncewire.agreement.compose import profile_values
from oncewire.entry.files import make_folder, read_text, write_new
from oncewire.entry.party.folder import FILE_MAX, Card, card_from, card_of, read_card_text
from oncewire.entry.party.partners import (
    PartnerOptions,
    Planned,
    check_card,
    new_certificates,
    plan_partner,
    roll_over,
    usual_cpa_id,
)
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue, NotAllowed
from oncewire.message.ids import check_id
from oncewire.message.instant import Instant
from oncewire.message.kinds import literal, quoted, read_toml

INVITATION, ACCEPTANCE = "invitation", "acceptance"
VERSION = 1
INVITATION_ENDING, ACCEPTANCE_ENDING = ".invitation.toml", ".acceptance.toml"
FOLDER = "invitations"
"""Where below the agreements the invitations lie that we wrote."""
_ID = re.compile(r"[0-9a-f]{16}\Z")
_TERMS = {"profile": str, "cpa_id": str, "sign": bool, "ordered": bool, "insecure": bool}
_TRANSPORTS = "transports"
"""Stands in a file only where transports were chosen."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A card and what is to be agreed; as an acceptance, also whose invitation it answers."""

    card: Card
    options: PartnerOptions
    # Which invitation it is, or accepts.
    id: str
    # Fingerprints of the certificates in the invitation that is accepted; empty: this invites.
    answers: str = ""

    @property
    def kind(self) -> str:
        """What it is."""
        return ACCEPTANCE if self.answers else INVITATION

    @property
    def file_name(self) -> str:
        """What the file of an invitation is called, if nothing else is said."""
        return f"{self.card.name}-{self.id}{INVITATION_ENDING}"

    def to_toml(self) -> str:
        """The file."""
        options = self.options
        lines = [
            f"# An {self.kind} of {self.card.name}: run `oncewire partner accept` with it.",
            f"{self.kind} = {VERSION}",
            f"id = {quoted(self.id)}",
        ]
        if self.answers:
            lines.append(f"answers = {quoted(self.answers)}")
        lines += [
            "",
            "[agreement]",
            *(_term(options, name) for name in _TERMS),
            *([_term(options, _TRANSPORTS)] if options.transports else []),
            "",
            "[card]",
            *(line for line in self.card.to_toml().splitlines() if not line.startswith("# A ")),
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a file proposes, about which nothing is left to refuse, and nothing is written yet."""

    told: Invitation
    planned: Planned
    # Of an invitation the acceptance that its sender waits for.
    answer: Invitation | None

    @property
    def file_name(self) -> str:
        """What the file of the acceptance is called, if nothing else is said."""
        if self.answer is None:
            return ""
        return f"{self.answer.card.name}-{self.told.card.name}{ACCEPTANCE_ENDING}"


def invite(settings: Settings, options: PartnerOptions) -> Invitation:
    """What we send to a party that is to become a partner."""
    profile_values(options.profile)
    if options.cpa_id:
        check_id(options.cpa_id, "cpa_id")
    for name in options.transports:
        if name not in TRANSPORTS:
            raise InvalidValue(
                f"there is no transport {name[:64]!r}",
                remedy=f"choose of {', '.join(sorted(TRANSPORTS))}",
            )
    return Invitation(card_of(settings), options, secrets.token_hex(8))


def keep(settings: Settings, invitation: Invitation) -> None:
    """Remember what we invited with, for the day of its acceptance."""
    place = _kept_file(settings, invitation.id)
    make_folder(place.parent)
    write_new(place, invitation.to_toml())


def accept(
    settings: Settings,
    told: Invitation,
    now: Instant,
    *,
    insecure: bool = False,
    replace_it: bool = False,
) -> Proposed:
    """The agreement that was proposed, or that was accepted, to be written. `insecure`: less than
    TLS and signatures will do."""
    check_card(settings, told.card, now)
    own = card_of(settings)
    if told.answers and told.answers != own.fingerprint:
        raise InvalidValue(
            f"this accepts an invitation with the certificate {told.answers}, and ours is "
            f"{own.fingerprint}",
            remedy="invite the partner again, with today's certificate",
        )
    options = told.options
    if told.answers:
        _refuse_other_terms(settings, own, told)
    # Less than what `partner add` agrees on is agreed only by who says so.
    without = [
        what
        for what, missing in (("TLS", options.insecure), ("signatures", not options.sign))
        if missing
    ]
    if without and not insecure:
        raise NotAllowed(
            f"it proposes to agree without {' and without '.join(without)}",
            remedy="ask the partner for an invitation without --insecure; for tests, and on lines "
            "that are safe anyway, accept it with --insecure",
        )
    planned = plan_partner(settings, told.card, options, replace=replace_it)
    if told.answers:
        return Proposed(told, planned, None)
    agreed = replace(options, cpa_id=planned.added.cpa_id)
    answer = Invitation(own, agreed, told.id, answers=told.card.fingerprint)
    return Proposed(told, planned, answer)


def _refuse_other_terms(settings: Settings, own: Card, told: Invitation) -> None:
    """An acceptance says yes, in the words of our invitation."""
    place = _kept_file(settings, told.id)
    if not place.is_file():
        raise InvalidValue(
            f"this accepts the invitation {told.id}, which we did not write here",
            remedy="accept it in the folder that invited, or invite the partner again",
        )
    invited = read_invitation(place).options
    expected = replace(invited, cpa_id=invited.cpa_id or usual_cpa_id(own, told.card))
    for name in (*_TERMS, _TRANSPORTS):
        said, meant = _term(told.options, name), _term(expected, name)
        if said != meant:
            raise InvalidValue(
                f"the acceptance of {told.card.name} says {said}, and we invited with {meant}",
                remedy="ask the partner whether it changed that; to agree on it, invite anew",
            )


def _kept_file(settings: Settings, number: str) -> Path:
    return settings.path(settings.agreements.folder) / FOLDER / f"{number}.toml"


def _term(options: PartnerOptions, name: str) -> str:
    value = getattr(options, name)
    return f"{name} = {literal(list(value) if isinstance(value, tuple) else value)}"


def read_invitation(place: Path) -> Invitation:
    """An invitation or an acceptance, from its file."""
    return read_invitation_text(read_text(place, "invitation", FILE_MAX), place)


def read_invitation_text(text: str, place: Path | str) -> Invitation:
    """The same of its text; `place` is the file, for the reader of what is wrong."""
    try:
        table = read_toml(text)
    except InvalidValue as error:
        raise InvalidValue(
            f"{place} is no invitation: {error.problem}", remedy="ask for a new one"
        ) from None
    kind = next((name for name in (INVITATION, ACCEPTANCE) if name in table), "")
    terms, card, answers = table.get("agreement"), table.get("card"), table.get("answers", "")
    number = table.get("id")
    known = {kind, "id", "agreement", "card", *(["answers"] if kind == ACCEPTANCE else [])}
    sound = isinstance(terms, dict) and isinstance(card, dict) and isinstance(answers, str)
    sound = sound and isinstance(number, str) and _ID.match(number) is not None
    if not kind or table[kind] != VERSION or set(table) - known or not sound:
        raise InvalidValue(
            f"{place} is no invitation of version {VERSION}",
            remedy="the partner makes one with oncewire partner invite; a card is taken by "
            "`oncewire partner add`",
        )
    if kind == ACCEPTANCE and not answers:
        raise InvalidValue(f"{place} does not say what it accepts", remedy="ask for a new one")
    return Invitation(card_from(card, place), _options(terms, place), str(number), answers)  # type: ignore[arg-type]


def _options(terms: dict[str, object], place: Path | str) -> PartnerOptions:
    for name, kind in _TERMS.items():
        if not isinstance(terms.get(name), kind):
            raise InvalidValue(f"{place}: agreement.{name} is missing", remedy="ask for a new one")
    ways = terms.get(_TRANSPORTS, [])
    if not isinstance(ways, list) or not all(isinstance(name, str) for name in ways):
        raise InvalidValue(
            f"{place}: agreement.{_TRANSPORTS} is no list of names", remedy="ask for a new one"
        )
    unknown = sorted(set(terms) - {*_TERMS, _TRANSPORTS})
    if unknown:
        raise InvalidValue(
            f"{place}: this version does not know agreement.{unknown[0]}",
            remedy="use the version of Oncewire that the partner uses",
        )
    return PartnerOptions(**terms | {_TRANSPORTS: tuple(ways)})  # type: ignore[arg-type]


# A file that a partner sent, whatever it is: its invitation, its acceptance of ours, or its card
# with a new certificate. It is looked at as a whole before anything of it is written.

CARD = "card"
_FILE = "the file"


@dataclass(frozen=True, slots=True)
class Considered:
    """What a file would change: nothing is left to refuse, and nothing is written yet."""

    kind: str
    card: Card
    # Writes it.
    write: Callable[[], object]
    # What would be agreed; None: the agreement stays as it is.
    agreement: dict[str, Any] | None
    # Fingerprints of the certificates that would be believed from then on.
    new: tuple[str, ...]
    # The acceptance that the sender of an invitation waits for, and what its file is called.
    reply: str = ""
    file_name: str = ""

    def facts(self) -> dict[str, Any]:
        """What a person reads before saying yes."""
        card = self.card
        return {
            "kind": self.kind,
            "partner": card.name,
            "party_id": card.party_id,
            "party_type": card.party_type,
            "address": card.url,
            "addresses": dict(card.addresses),
            "fingerprints": list(self.new),
            "agreement": self.agreement,
        }


def consider(
    settings: Settings, data: bytes, now: Instant, *, insecure: bool, replace_it: bool
) -> Considered:
    """Look at a partner's file; an OncewireError says why it is not taken."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"{_FILE} is not UTF-8 at byte {error.start}", remedy="ask the partner for it anew"
        ) from None
    if _is_card(text):
        # A card brings a new certificate of a partner that we have.
        card = read_card_text(text, _FILE)
        _, _, fresh = new_certificates(settings, card)
        check_card(settings, card, now)
        write = partial(roll_over, settings, card, now)
        return Considered(CARD, card, write, None, tuple(map(spoken_fingerprint, fresh)))
    told = read_invitation_text(text, _FILE)
    proposed = accept(settings, told, now, insecure=insecure, replace_it=replace_it)
    planned, options = proposed.planned, told.options
    return Considered(
        told.kind,
        told.card,
        planned.write,
        {
            "cpa_id": planned.added.cpa_id,
            "profile": options.profile,
            "ordered": options.ordered,
            "signed": options.sign,
            "tls": not options.insecure,
            "transports": list(options.transports),
            "anew": planned.added.agreement.exists(),
        },
        told.card.fingerprints,
        "" if proposed.answer is None else proposed.answer.to_toml(),
        proposed.file_name,
    )


def _is_card(text: str) -> bool:
    try:
        return "version" in read_toml(text)
    except InvalidValue:
        return False
