"""Worlds of given options, and the agreements of their nodes."""

from __future__ import annotations

from oncewire.agreement.agreement import Agreement
from oncewire.lab.simulation.papers import cpa_id_of, papers_of
from oncewire.lab.simulation.plan import BUYER, SELLER, Options, plan_of, setting_of
from oncewire.lab.simulation.world import Result, World

CPA_ID = cpa_id_of(SELLER)


def names(options: Options) -> list[str]:
    """The nodes on the way: the buyer, the hubs, the seller."""
    return [BUYER, *setting_of(options).way, SELLER]


def agreements_of(name: str, options: Options) -> list[Agreement]:
    """The agreements one node has: with the other end, or with both neighbours."""
    return [paper.agreement for paper in papers_of(setting_of(options), name)]


def world_of(options: Options, seed: int) -> World:
    """The world of these options and this seed, before it runs."""
    return World(plan_of(options, seed))


def simulate(options: Options, seed: int) -> Result:
    """Run one seed."""
    return world_of(options, seed).run()
