"""Exporting: an agreement as a CPA for the partner.

An agreement that came as a CPA goes out as that CPA, byte for byte, for both parties agreed on it
and it may be signed. Where our file says something else than the CPA, and where there was none, a
CPA is written, with our certificate in it.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import read_certificates
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.cppa.writer import without_routing, write_cpa
from oncewire.entry.files import read_bytes, read_text
from oncewire.entry.party.agreements import AGREEMENT_MAX, loader
from oncewire.entry.party.settings import Settings


def export_cpa(settings: Settings, agreement: Agreement, file: Path) -> bytes:
    """The CPA of an agreement that was read from that file.

    Where the agreement does not say what we are known by, our own certificate stands in a CPA that
    is written: the partner has to believe it.
    """
    came = _imported(file)
    if came is not None and _says_as_much(came, agreement):
        return came
    place, own = settings.path(settings.keys.certificate), agreement.own
    ours = read_certificates(place.read_bytes())[:1] if place.is_file() else ()
    secured = [binding.security for binding in agreement.bindings()]
    if any(security.sign or security.encrypt for security in secured):
        own = replace(own, signing_certificates=own.signing_certificates or ours)
    ends = (*own.endpoints, *agreement.partner.endpoints)
    if any(end.address.startswith("https:") for end in ends):
        own = replace(own, certificates=own.certificates or ours)
    return write_cpa(replace(agreement, own=own))


def _imported(file: Path) -> bytes | None:
    """The CPA that the agreement was imported from; None: there is none."""
    if file.suffix == ".xml":
        return read_bytes(file, "agreement", AGREEMENT_MAX)
    named = tomllib.loads(read_text(file, "agreement", AGREEMENT_MAX)).get("cpa")
    return None if named is None else loader(file.parent)(str(named))


def _says_as_much(cpa: bytes, agreement: Agreement) -> bool:
    """Whether the CPA says what holds: other names of the agreement are our own matter, as is what
    holds where the CPA is silent."""
    made = read_cpa(
        cpa,
        own=str(agreement.own.party.ids[0]),
        profile=agreement.profile,
        also_known_as=agreement.also_known_as,
        any_cpa_id=agreement.any_cpa_id,
    )
    return without_routing(made) == without_routing(agreement)
