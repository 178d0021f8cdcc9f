"""The demo with a hub: buyer and seller agree with each other, and reach each other through it."""

from __future__ import annotations

from collections.abc import Mapping

from oncewire.entry.files import PRIVATE, read_text, write_new
from oncewire.entry.party.folder import card_of
from oncewire.entry.party.partners import Added, PartnerOptions, add_partner, with_values
from oncewire.entry.party.settings import Settings
from oncewire.entry.running.assemble import open_readers
from oncewire.message.kinds import quoted

HUB = "hub"
# The hub stores each order, answers for it, and says so to whoever it has it from.
_HOP = {"hop.mode": '"store_and_forward"', "ack.hop_request": '"Unsigned"'}


def agree_through_hub(
    settings: Mapping[str, Settings], ends: tuple[str, str], cpa_id: str, terms: dict[str, str]
) -> None:
    """Write every agreement: of the ends with each other, and of each with the hub."""
    hub = card_of(settings[HUB])
    for own, partner in (ends, ends[::-1]):
        options = PartnerOptions("window", cpa_id, sign=True)
        added = add_partner(settings[own], card_of(settings[partner]), options)
        # The certificate is all that is wanted of the hub: what it signs itself is believed.
        behind = add_partner(settings[own], hub, PartnerOptions("window", f"{own}-hub", sign=True))
        behind.agreement.unlink()
        believed = ", ".join(quoted(f"../keys/partners/{name}.crt") for name in (partner, HUB))
        way = {"via.party_id": quoted(hub.party_id), "via.http": quoted(hub.url)}
        trusted = {"security.partner_certificates": f"[{believed}]"}
        _say(added, terms | _HOP | way | trusted)
        near = PartnerOptions("window", f"{own}-hub", sign=True)
        hop = add_partner(settings[HUB], card_of(settings[own]), near)
        _say(hop, terms | _HOP)
        text = read_text(hop.agreement, "agreement")
        write_new(hop.agreement, f"forwards = true\n{text}", PRIVATE, replace=True)


def _say(added: Added, said: dict[str, str]) -> None:
    text = read_text(added.agreement, "agreement")
    write_new(added.agreement, with_values(text, said), PRIVATE, replace=True)


def is_quiet(settings: Settings) -> bool:
    """Whether nothing that a party sends, for itself or for others, is still under way."""
    readers = open_readers(settings)
    try:
        with readers.reader() as reader:
            counts = reader.counts()
    finally:
        readers.close()
    return not counts["out.waiting"] and not counts["out.outstanding"]
