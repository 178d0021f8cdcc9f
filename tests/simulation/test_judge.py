"""Whose acknowledgement a sender may not ignore: the To Party's own, and no hub's."""

from __future__ import annotations

import pytest

from oncewire.journal.row import Row
from oncewire.lab.simulation.draw import draw
from oncewire.lab.simulation.judge import History
from oncewire.lab.simulation.world import World
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind


def row(seq: int, node: str, kind: Kind, detail: str | None = None) -> Row:
    return Row(seq, seq, seq, "boot", node, kind.value, "order", "ack", detail=detail)


@pytest.mark.requirement("STO-3", "HOP-12")
@pytest.mark.parametrize(("speaker", "found"), [("seller", ["deaf"]), ("hub1", [])])
def test_only_the_to_partys_own_acknowledgement_must_be_heard(
    speaker: str, found: list[str]
) -> None:
    """A hub that took a message and has no way on forwards nothing, and is a hub all the same."""
    plan = next(plan for plan in map(draw, range(400)) if plan.setting.hubs)
    world = World(plan)
    said = notes.Ignored("acknowledgement", "SecurityFailure", "it names no digests").write()
    rows = [row(1, speaker, Kind.ACK_SENT), row(2, "buyer", Kind.IGNORED, said)]
    for each in rows:
        world.ledger.written_at[each.node, each.seq] = each.at
    History(world, rows).judge()
    assert [one.kind for one in world.ledger.found] == found
