"""The matrix over real processes: a cover of its cells in which every pair of values occurs."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.handler.processes.party import Settings
from tests.handler.processes.proxy import GOOD, Luck
from tests.handler.processes.stage import Stage
from tests.ports import free_port
from tests.simulation.matrix import POSSIBLE, WAYS, Cell

ORDERS = 12
TIMES = 2
"""How many cells each pair of values is in, where there are so many."""

LUCK = {
    "no fault": GOOD,
    # On the connection of what they answer, and on connections of their own.
    "acknowledgement lost": Luck(lose=0.15, lose_answer=0.3),
    "response lost": Luck(lose=0.3, lose_answer=0.15),
    "hub killed": GOOD,
}


def _values(cell: Cell) -> tuple[str, ...]:
    return (cell.mode, cell.dialect, cell.way, cell.fault)


def _pairs(cell: Cell) -> set[tuple[tuple[int, str], ...]]:
    return set(combinations(enumerate(_values(cell)), 2))


def cover() -> list[Cell]:
    """Cells in which every pair of values that can be occurs; the fewest that are found by taking
    the one with most that is missing."""
    wanted = {pair: 0 for cell in POSSIBLE for pair in _pairs(cell)}
    possible = {pair: sum(pair in _pairs(cell) for cell in POSSIBLE) for pair in wanted}
    left, chosen = list(POSSIBLE), []
    while True:
        missing = {pair for pair in wanted if wanted[pair] < min(TIMES, possible[pair])}
        if not missing:
            return chosen
        best = max(left, key=lambda cell: len(_pairs(cell) & missing))
        chosen.append(best)
        left.remove(best)
        for pair in _pairs(best):
            wanted[pair] += 1


COVER = cover()


def _terms(cell: Cell) -> str:
    lines = ["[delivery]", 'timeout = "PT0.5S"', 'retry_interval = "PT0.5S"', "retries = 500"]
    if cell.mode == "responseOnly" and cell.dialect != "ebms2":
        lines.append("reliable = false")
    lines += ["[hop]", 'mode = "store_and_forward"', "[sync]", 'timeout = "PT5S"']
    lines.append('retries = "same_message"')
    if cell.mode != "none":
        lines.append(f'mode = "{cell.mode}"')
    if cell.mode == "responseOnly":
        lines += ["[ack]", 'request = "never"']
    return "\n".join(lines) + "\n"


def _agreement(cell: Cell, own: str, partner: str, ports: dict[str, int], **more: object) -> str:
    def side(name: str) -> str:
        uri = f"http://127.0.0.1:{ports[name]}/msh"
        return f'party_id = "urn:test:{name}"\nuri = "{uri}"\nhttp = "{uri}"\n'

    hub, behind, via = own.startswith("hub"), more.get("behind"), more.get("via")
    names = ("alpha", "beta") if not hub else (own, partner)
    text = f'cpa_id = "{"-".join(sorted(names))}"\nprofile = "{cell.dialect}"\n'
    text += "forwards = true\n" if hub else ""
    text += f"[own]\n{side(own)}[partner]\n{side(partner)}"
    text += f'behind = ["urn:test:{behind}"]\n' if behind else ""
    text += f"[via]\n{side(str(via))}" if via else ""
    return text + _terms(cell)


def _agreements(cell: Cell, place: int, way: list[str], ports: dict[str, int]) -> list[str]:
    own, last = way[place], len(way) - 1
    if place not in (0, last):
        before, after = way[place - 1], way[place + 1]
        return [
            _agreement(cell, own, before, ports, behind="alpha" if before != "alpha" else None),
            _agreement(cell, own, after, ports, behind="beta" if after != "beta" else None),
        ]
    partner, near = ("beta", way[1]) if place == 0 else ("alpha", way[-2])
    return [_agreement(cell, own, partner, ports, via=near if len(way) > 2 else None)]


def play(stage: Stage, cell: Cell) -> None:
    """Let everything be sent and answered, and judge it."""
    way = ["alpha", *(f"hub{number}" for number in range(1, WAYS[cell.way] + 1)), "beta"]
    ports = {name: free_port() for name in way}
    for place, own in enumerate(way):
        stage.parties[own] = Settings(
            own,
            str(stage.folder),
            stage.put_proxy(own, ports[own], LUCK[cell.fault]),
            _agreements(cell, place, way, ports),
            cpa_id="alpha-beta",
            orders=ORDERS if own == "alpha" else 0,
            called=own in ("alpha", "beta"),
            responds=own == "beta",
        )
    for name in reversed(way):
        stage.start(name)
    if cell.fault == "hub killed":
        alpha = stage.runs["alpha"]
        alpha.wait("some submitted", lambda: bool(alpha.state.get("submitted")))
        stage.kill("hub1")
        stage.start("hub1")
    if cell.mode == "responseOnly" and cell.fault != "no fault":
        # Nothing is acknowledged, so nothing is repeated, and some may be gone.
        for run in stage.runs.values():
            run.wait("all settled", lambda run=run: run.settled)  # type: ignore[misc]
    else:
        stage.settle("beta", ORDERS)
    stage.stop()
    verdict = stage.verdict()
    verdict.assert_clean()
    if cell.mode != "responseOnly":
        verdict.assert_once("alpha", "beta", ORDERS)
        verdict.assert_answered("alpha", ORDERS)


def test_every_pair_of_values_is_covered() -> None:
    assert {pair for cell in COVER for pair in _pairs(cell)} == {
        pair for cell in POSSIBLE for pair in _pairs(cell)
    }
    assert 25 <= len(COVER) <= 50


_FEW = [cell for cell in COVER if cell.fault != "no fault"][::9][:4]


@pytest.mark.long
@pytest.mark.parametrize("cell", [pytest.param(cell, id=str(cell)) for cell in _FEW])
def test_a_few_cells_over_processes(stage: Stage, cell: Cell) -> None:
    play(stage, cell)


@pytest.mark.soak
@pytest.mark.parametrize("cell", [pytest.param(cell, id=str(cell)) for cell in COVER])
def test_every_pair_over_processes(stage: Stage, cell: Cell) -> None:
    play(stage, cell)
