"""Agreements and parcels of the corpus, for a handler that plays one of their parties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from oncewire.agreement.agreement import Agreement, Origin
from oncewire.agreement.compose import layer
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.toml import read_toml
from oncewire.wire.inspection import open_capture
from oncewire.wire.parcel import Parcel

SOAP_ACTION = (("SOAPAction", '"ebXML"'),)

# --- agreements --------------------------------------------------------------------------------


def cpa(path: Path, own: str | int, **over: object) -> Agreement:
    """A CPA as one of its parties sees it; `wire__unknown_ref="error"` overrides a value."""
    values = {name.replace("__", "."): value for name, value in over.items()}
    return read_cpa(path.read_bytes(), own=own, over=layer(values, Origin.FILE, "test"))


def toml(
    profile: str, own: str, partner: str, cpa_id: str, extra: str = "", *, any_cpa_id: bool = False
) -> Agreement:
    """An agreement of a community; parties are TOML values: a string or a list of tables."""
    return read_toml(
        f'cpa_id = "{cpa_id}"\nprofile = "{profile}"\nany_cpa_id = {str(any_cpa_id).lower()}\n'
        f'[own]\nparty_id = {own}\nhttp = "http://own/msh"\nsmtp = "mailto:msh@own"\n'
        f'[partner]\nparty_id = {partner}\nhttp = "http://partner/msh"\n'
        f'smtp = "mailto:msh@partner"\n{extra}'
    )


# --- parcels -----------------------------------------------------------------------------------


def filled(template: bytes, values: Mapping[str, str]) -> bytes:
    """A template of ebms-core with its placeholders filled by the values of an agreement."""
    text = re.sub(r'\s*th:each="[^"]*"', "", template.decode())
    text = re.sub(r'th:eb:type="\$\{(\w+)\}"', lambda match: f'eb:type="{values[match[1]]}"', text)
    text = re.sub(r'th:eb:type="(\w+)"', r'eb:type="\1"', text)
    text = re.sub(r'th:xlink:href="[^"]*"', 'xlink:href="cid:1"', text)
    return re.sub(r"\[\[\$\{(\w+)\}\]\]", lambda match: values[match[1]], text).encode()


def soap_parcel(envelope: bytes, headers: tuple[tuple[str, str], ...] = SOAP_ACTION) -> Parcel:
    """An envelope without payloads, as HTTP carries it."""
    return Parcel("text/xml; charset=UTF-8", envelope, headers)


def recorded(data: bytes) -> Parcel:
    """The parcel in a recorded exchange, mail or MIME frame."""
    return open_capture(data).parcel
