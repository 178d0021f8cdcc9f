"""Papers: the agreements of a wild world, side by side, as they are now and as they were.

Every agreement is a text that is read like anybody's, so a world uses no agreement that a
file could not hold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.check.checks import check
from oncewire.agreement.check.finding import Severity
from oncewire.agreement.toml.reader import read_toml
from oncewire.errors import AgreementProblem
from oncewire.message.instant import Instant, format_instant
from oncewire.simulation.wild.contradictions import contradiction
from oncewire.simulation.wild.keys import certificate_pem
from oncewire.simulation.wild.plan import BUYER, THIRD, Said, Setting

SERVICE = "urn:sim:orders"
SMTP = "smtp"
ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"


@dataclass(frozen=True, slots=True)
class Paper:
    """One side of one agreement."""

    cpa_id: str
    own: str
    partner: str
    profile: str
    said: Said
    via: str | None = None
    behind: tuple[str, ...] = ()
    signed: bool = False
    end: Instant | None = None
    listed: bool = False
    unaddressed: bool = False

    @property
    def agreement(self) -> Agreement:
        """The agreement it describes; equal papers share one."""
        return _read(self)

    def amended(self, said: Said) -> Paper:
        """The same paper with these values instead."""
        return replace(self, said=tuple({**dict(self.said), **dict(said)}.items()))


def cpa_id_of(partner: str) -> str:
    """How the agreement between the buyer and a partner is called."""
    return f"{BUYER}-{partner}"


def papers_of(setting: Setting, node: str) -> tuple[Paper, ...]:
    """The papers one node has in the beginning."""
    if node in setting.way:
        return _hub_papers(setting, node)
    partners = [end for end in setting.ends if end != BUYER] if node == BUYER else [BUYER]
    return tuple(_end_paper(setting, node, partner) for partner in partners)


def _end_paper(setting: Setting, own: str, partner: str) -> Paper:
    other = partner if own == BUYER else own
    direct = setting.is_direct(other)
    profile, said = setting.profile, setting.said
    if other == THIRD and setting.is_direct(THIRD):
        profile, said = setting.third_profile, setting.third_said
    via = None if direct else setting.way[0 if own == BUYER else -1]
    return Paper(cpa_id_of(other), own, partner, profile, said, via, signed=setting.signed)


def _hub_papers(setting: Setting, hub: str) -> tuple[Paper, ...]:
    way = setting.way
    place = way.index(hub)
    behind = tuple(
        each_end
        for each_end in setting.ends
        if each_end != BUYER and not setting.is_direct(each_end)
    )
    neighbours: list[tuple[str, tuple[str, ...]]] = [(BUYER, ())]
    if place > 0:
        neighbours = [(way[place - 1], (BUYER,))]
    if place + 1 < len(way):
        neighbours.append((way[place + 1], behind))
    else:
        neighbours += [(end, ()) for end in behind]
    said = tuple({**dict(setting.said), **dict(setting.hub_said)}.items())
    return tuple(
        Paper(
            "-".join(sorted((hub, other))),
            hub,
            other,
            setting.profile,
            said,
            behind=beyond,
            signed=setting.signed and setting.hub_keys,
        )
        for other, beyond in neighbours
    )


# --- text ---------------------------------------------------------------------------------------


def _side(paper: Paper, name: str, transports: tuple[str, ...]) -> dict[str, Any]:
    uri = f"http://{name}/msh"
    side: dict[str, Any] = {"party_id": f"urn:sim:{name}", "uri": uri}
    for transport in transports:
        side[transport] = f"{transport}://{name}/msh"
    if name != paper.own and paper.unaddressed:
        return {"party_id": side["party_id"], "uri": uri}
    return side


@lru_cache(maxsize=4096)
def _read(paper: Paper) -> Agreement:
    values: dict[str, Any] = {"cpa_id": paper.cpa_id, "profile": paper.profile}
    if paper.own.startswith("hub"):
        values["forwards"] = True
    if paper.listed:
        values["listed_only"] = True
    sections: dict[str, dict[str, Any]] = {}
    for key, value in paper.said:
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    transports = tuple(sections.get("delivery", {}).get("transports", ("http",)))
    sections["own"] = _side(paper, paper.own, transports)
    sections["partner"] = _side(paper, paper.partner, transports)
    if paper.behind:
        sections["partner"]["behind"] = [f"urn:sim:{party_name}" for party_name in paper.behind]
    if paper.via is not None:
        sections["via"] = _side(paper, paper.via, transports)
    if paper.signed:
        sections.setdefault("security", {}).update(
            sign=True,
            require_signature=True,
            signature_algorithm=ECDSA,
            partner_certificates=[
                certificate_pem(each_name)
                for each_name in (paper.partner, paper.via)
                if each_name is not None
            ],
        )
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    if paper.end is not None:
        lines.append(f'end = "{format_instant(paper.end)}"')
    for section, table in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    if paper.listed:
        lines += ["[[actions]]", 'service = "urn:sim:other"', 'action = "Other"']
    return read_toml("\n".join(lines))


def is_readable(paper: Paper) -> bool:
    """Whether an agreement can be read, whatever may be wrong with it."""
    try:
        return paper.agreement is not None
    except AgreementProblem:
        return False


def is_sound(paper: Paper) -> bool:
    """Whether an agreement can be read, and messages can be sent under it."""
    if not is_readable(paper):
        return False
    agreement = paper.agreement
    wrong = any(finding.severity is Severity.ERROR for finding in check(agreement))
    return not wrong and not contradiction(agreement)
