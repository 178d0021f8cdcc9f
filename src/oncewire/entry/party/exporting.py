"""Exporting: an agreement as a CPA for the partner, with our certificate in it."""

from __future__ import annotations

from dataclasses import replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import read_certificates
from oncewire.agreement.cppa.writer import write_cpa
from oncewire.entry.party.settings import Settings


def export_cpa(settings: Settings, agreement: Agreement) -> bytes:
    """The CPA. Where the agreement does not say what we are known by, our own certificate stands
    in it: the partner has to believe it."""
    file, own = settings.path(settings.keys.certificate), agreement.own
    ours = read_certificates(file.read_bytes())[:1] if file.is_file() else ()
    secured = [binding.security for binding in agreement.bindings()]
    if any(security.sign or security.encrypt for security in secured):
        own = replace(own, signing_certificates=own.signing_certificates or ours)
    ends = (*own.endpoints, *agreement.partner.endpoints)
    if any(end.address.startswith("https:") for end in ends):
        own = replace(own, certificates=own.certificates or ours)
    return write_cpa(replace(agreement, own=own))
