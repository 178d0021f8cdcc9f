"""Itself: the agreement by which a party's handler answers its own party, and nothing else.

`oncewire doctor` sends a Ping through the real endpoint to the handler it came from: over the
network, through TLS, reader and signature, to the handler's turn and back. No service is agreed
on, so no message under it reaches an application or is counted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.toml.reader import read_toml
from oncewire.entry.party.agreements import Kept, loader
from oncewire.entry.party.partners import with_values
from oncewire.message.kinds import quoted

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

CPA_ID = "oncewire-itself"
_ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"


def agreement_with_itself(settings: Settings) -> Agreement | None:
    """Signals only, signed where there is a key; None where the party has no id yet."""
    from oncewire.agreement.toml.writer import new

    party, certificate = settings.party, settings.path(settings.keys.certificate)
    if not party.party_id:
        return None
    url = settings.endpoint_url
    text = new(
        cpa_id=CPA_ID, own=party.party_id, partner=party.party_id, address=url, profile="ebms2",
        own_address=url,
    )  # fmt: skip
    # The answer is wanted by one who hears nothing but his own connection.
    said = {"sync.mode": quoted("mshSignalsOnly")}
    for side in ("own", "partner"):
        if party.party_type:
            said[f"{side}.type"] = quoted(party.party_type)
    if certificate.is_file() and settings.path(settings.keys.key).is_file():
        from oncewire.entry.party.partners import is_elliptic

        shown = f"[{quoted(str(certificate))}]"
        said |= {"security.partner_certificates": shown, "security.sign": "true"}
        said["security.require_signature"] = "true"
        if is_elliptic(certificate.read_text(encoding="ascii")):
            said["security.signature_algorithm"] = quoted(_ECDSA)
        if settings.http.tls and settings.http.client_certificates.value != "ignored":
            said["partner.client_certificates"] = shown
    agreement = read_toml(with_values(text, said), load=loader(Path("/")))
    return replace(agreement, actions=(), listed_only=True)


def kept_itself(settings: Settings) -> Kept | None:
    """The same as `ping` wants it."""
    agreement = agreement_with_itself(settings)
    name = settings.party.name or "itself"
    return None if agreement is None else Kept(settings.folder / f"{name}.toml", agreement)
