"""A file that a partner sent, whatever it is: its invitation, its acceptance of ours, or its card
with a new certificate. It is looked at as a whole before anything of it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from oncewire.agreement.certificates import spoken_fingerprint
from oncewire.entry.party.folder import Card, read_card_text
from oncewire.entry.party.invitation import accept, read_invitation_text
from oncewire.entry.party.partners import check_card, new_certificates, roll_over
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue
from oncewire.message.instant import Instant
from oncewire.message.kinds import read_toml

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
