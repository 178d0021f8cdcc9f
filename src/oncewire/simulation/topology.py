"""Topology: buyer, seller and the hubs between them, with agreements like anybody's."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.toml.reader import read_toml
from oncewire.message.instant import format_duration
from oncewire.simulation.options import Options

CPA_ID = "buyer-seller"


def names(options: Options) -> list[str]:
    """The nodes on the way: the buyer, the hubs, the seller."""
    return ["buyer", *(f"hub{number}" for number in range(1, options.hops)), "seller"]


def agreements_of(name: str, options: Options) -> list[Agreement]:
    """The agreements one node has: with the other end, or with both neighbours."""
    way = names(options)
    place = way.index(name)
    if name in (way[0], way[-1]):
        partner = way[-1] if place == 0 else way[0]
        neighbour = way[1] if place == 0 else way[-2]
        via = None if neighbour == partner else neighbour
        return [_agreement(name, partner, CPA_ID, options, via=via)]
    before, after = way[place - 1], way[place + 1]
    return [
        _agreement(name, before, f"{before}-{name}", options, behind=way[: place - 1]),
        _agreement(name, after, f"{name}-{after}", options, behind=way[place + 2 :]),
    ]


def _agreement(
    own: str,
    partner: str,
    cpa_id: str,
    options: Options,
    *,
    via: str | None = None,
    behind: list[str] | None = None,
) -> Agreement:
    """The policies of the options, then those of their agreement, between these parties."""
    values = _policies(options)
    for section, said in tomllib.loads(options.agreement).items():
        if isinstance(said, dict) and section not in _PARTIES:
            values.setdefault(section, {}).update(said)
        elif section == "profile":
            values["profile"] = said
    values["cpa_id"] = cpa_id
    values["own"], values["partner"] = _side(own), _side(partner)
    if behind:
        values["partner"]["behind"] = [f"urn:sim:{name}" for name in behind]
    if via is not None:
        values["via"] = _side(via)
    if own.startswith("hub"):
        values["forwards"] = True
    return read_toml(_as_toml(values))


_PARTIES = ("own", "partner", "via", "action")


def _policies(options: Options) -> dict[str, Any]:
    flow: dict[str, Any] = {"mode": options.flow}
    if options.flow == "window":
        flow["window"] = options.window
    return {
        "profile": options.profile,
        "delivery": {
            "timeout": format_duration(options.timeout),
            "retries": options.retries,
            "retry_interval": format_duration(options.retry_interval),
            "persist_duration": format_duration(options.persist_duration),
        },
        "hop": {"mode": options.hop_mode},
        "flow": flow,
    }


def _side(name: str) -> dict[str, Any]:
    uri = f"http://{name}/msh"
    return {"party_id": f"urn:sim:{name}", "uri": uri, "http": uri}


def _as_toml(values: dict[str, Any]) -> str:
    """Plain values and one level of tables as TOML; JSON spells strings and lists alike."""
    lines = [
        f"{key} = {json.dumps(item)}" for key, item in values.items() if type(item) is not dict
    ]
    for section, table in values.items():
        if isinstance(table, dict):
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines)
