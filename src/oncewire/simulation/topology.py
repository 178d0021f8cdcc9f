"""Topology: buyer, seller and the hubs between them, with agreements like anybody's."""

from __future__ import annotations

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.toml import read_toml
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
        via = "" if neighbour == partner else _side("via", neighbour)
        return [read_toml(_text(name, partner, CPA_ID, options, via))]
    before, after = way[place - 1], way[place + 1]
    return [
        read_toml(_text(name, before, f"{before}-{name}", options, "", behind=way[: place - 1])),
        read_toml(_text(name, after, f"{name}-{after}", options, "", behind=way[place + 2 :])),
    ]


def _side(table: str, name: str, behind: list[str] | None = None) -> str:
    lines = [f"[{table}]", f'party_id = "urn:sim:{name}"', f'uri = "http://{name}/msh"']
    lines.append(f'http = "http://{name}/msh"')
    if behind:
        listed = ", ".join(f'"urn:sim:{one}"' for one in behind)
        lines.append(f"behind = [{listed}]")
    return "\n".join(lines) + "\n"


def _text(
    own: str,
    partner: str,
    cpa_id: str,
    options: Options,
    via: str,
    behind: list[str] | None = None,
) -> str:
    forwards = "forwards = true\nany_cpa_id = false\n" if own.startswith("hub") else ""
    flow = f'[flow]\nmode = "{options.flow}"\n'
    if options.flow == "window":
        flow += f"window = {options.window}\n"
    return (
        f'cpa_id = "{cpa_id}"\nprofile = "{options.profile}"\n{forwards}'
        + _side("own", own)
        + _side("partner", partner, behind)
        + via
        + "[delivery]\n"
        + f'timeout = "{format_duration(options.timeout)}"\n'
        + f"retries = {options.retries}\n"
        + f'retry_interval = "{format_duration(options.retry_interval)}"\n'
        + f'[hop]\nmode = "{options.hop_mode}"\n'
        + flow
        + options.agreement
    )
