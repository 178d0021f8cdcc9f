"""Two parties for a benchmark: made as a person makes them, with the product's own commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from oncewire.entry.files import read_text, write_new
from oncewire.entry.party.folder import make_party, read_card
from oncewire.entry.party.keys import KeyKind
from oncewire.entry.party.partners import PartnerOptions, add_partner, with_values
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.figures import Configuration
from oncewire.lab.demo.ways import free_port

SENDER, RECEIVER = "sender", "receiver"

# Who neither signs nor uses TLS is a stranger to the endpoint, and strangers get little.
_BUDGETS = {
    "budget.strangers": "2000",
    "budget.per_address": "2000",
    "budget.spool": "68719476736",
    "budget.processor": '"PT60000S"',
    "budget.processor_per_address": '"PT60000S"',
}


def make_pair(
    folder: Path, configuration: Configuration, public: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Make both in a new folder; the ports that they listen on. `public`: ports that partners
    are told instead, where something stands in between."""
    ports = {name: free_port() for name in (SENDER, RECEIVER)}
    for name, port in ports.items():
        make_party(
            folder / name,
            name,
            now=RealWorld().now(),
            port=port,
            tls=configuration.tls,
            key_kind=KeyKind.EC,
        )
        said = dict(_BUDGETS)
        if public is not None:
            scheme = "https" if configuration.tls else "http"
            said["http.public_url"] = f'"{scheme}://127.0.0.1:{public[name]}/msh"'
        _change(folder / name / "oncewire.toml", said)
    for own, partner in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
        options = PartnerOptions(
            "ebms2",
            sign=configuration.signed,
            ordered=configuration.ordered,
            insecure=not configuration.tls,
        )
        settings = load(folder / own, environ={}).settings
        added = add_partner(settings, read_card(folder / partner), options)
        _change(added.agreement, configuration.agreed())
    return ports


def add_agreements(folder: Path, count: int) -> None:
    """Have so many agreements with the one partner of a party, each under a CPAId of its own."""
    settings = load(folder, environ={}).settings
    (first,) = settings.path(settings.agreements.folder).glob("*.toml")
    text = read_text(first, "agreement")
    for number in range(1, count):
        named = re.sub(r"(?m)^cpa_id = .*$", f'cpa_id = "{number}@bench"', text)
        write_new(first.with_stem(name_of(first.stem, number)), named)


def name_of(partner: str, number: int) -> str:
    """What the agreements with one partner are called."""
    return partner if number == 0 else f"{partner}-{number}"


def _change(file: Path, said: dict[str, str]) -> None:
    text = read_text(file, "settings")
    write_new(file, with_values(text, said), replace=True)
