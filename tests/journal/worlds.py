"""Worlds whose journals are damaged: simulated ones around real handlers, each made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from oncewire.journal.row import Row
from oncewire.lab.simulation.draw import draw
from oncewire.lab.simulation.plan import Options, plan_of
from oncewire.lab.simulation.world import World
from tests.journal.scenarios import SCENARIOS


def _simulated(options: Options, seed: int) -> Callable[[], list[Row]]:
    def make() -> list[Row]:
        simulation = World(replace(plan_of(options, seed), probed=False))
        simulation.run()
        return simulation.rows()

    return make


def _wild(seed: int) -> Callable[[], list[Row]]:
    def make() -> list[Row]:
        world = World(draw(seed))
        world.run()
        return [row for machine in world.machines for row in machine.rows()]

    return make


_MAKERS: dict[str, Callable[[], list[Row]]] = {
    # One ordered channel, with losses, copies and crashes.
    "window": _simulated(Options(messages=60), 3),
    # Numbers 0 to 15 are used up many times over.
    "laps": _simulated(
        Options(messages=80, window=5, agreement="[sequence]\nrange = [0, 15]\n"), 4
    ),
    # The same behind a hub that stores and forwards.
    "hub": _simulated(
        Options(messages=40, hops=2, window=5, agreement="[sequence]\nrange = [0, 15]\n"), 5
    ),
    # Without numbers; each message by itself.
    "plain": _simulated(Options(messages=40, profile="ebms2", flow="unrestricted"), 6),
    # Many of them fail, and their From Party is told.
    "failing": _simulated(
        Options(
            messages=30,
            profile="ebms2",
            flow="unrestricted",
            retries=1,
            loss=0.5,
            agreement='[delivery]\non_exhausted = "fail_message"\n',
        ),
        7,
    ),
    # Nothing is promised.
    "best effort": _wild(31),
    # Three parties and a hub, numbered.
    "crowd": _wild(44),
    # A document in parts.
    "document": lambda: list(SCENARIOS["split"]().rows),
}

NAMES = tuple(_MAKERS)


@cache
def _rows(name: str) -> tuple[Row, ...]:
    return tuple(_MAKERS[name]())


def rows_of(name: str) -> list[Row]:
    """The journals of all nodes of a world."""
    return list(_rows(name))


# --- many of them in one lake -----------------------------------------------------------------

_NAMES_IN_DETAIL = ("from_party", "to_party", "split_id", "onward")


def renamed(rows: list[Row], prefix: str) -> list[Row]:
    """The same under names that no other world has; whatever cannot be read stays as it is."""

    def name(text: str | None) -> str | None:
        return None if text is None else f"{prefix}{text}"

    return [
        row._replace(
            node=f"{prefix}{row.node}",
            boot=f"{prefix}{row.boot}",
            message_id=name(row.message_id),
            ref_to=name(row.ref_to),
            channel=name(row.channel),
            peer=name(row.peer),
            detail=_renamed(row.detail, name),
        )
        for row in rows
    ]


def _renamed(text: str | None, name: Callable[[str | None], str | None]) -> str | None:
    try:
        said: dict[str, Any] = json.loads(text or "")
        for key in _NAMES_IN_DETAIL:
            if isinstance(said.get(key), str):
                said[key] = name(said[key])
        if "parties" in said:
            said["parties"] = [name(one) for one in said["parties"]]
    except (ValueError, TypeError, AttributeError):
        return text
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False)
