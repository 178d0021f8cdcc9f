"""A timer is heeded when what it waits behind is over; what is not its concern excuses nothing."""

from __future__ import annotations

import pytest

from oncewire.journal.row import Row
from oncewire.lab.simulation.judge import Standstills
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind

SLACK = 3


def row(seq: int, kind: Kind, **columns: object) -> Row:
    """A row whose place is also its true time; the node's own clock is a day ahead."""
    empty = dict.fromkeys(Row._fields)
    return Row(**{**empty, "node": "a", "seq": seq, "at": seq + DAY, "kind": kind.value, **columns})  # type: ignore[arg-type]


DAY = 86_400
MESSAGE = {"message_id": "other", "peer": "p", "channel": "c"}
PAUSE = row(10, Kind.TRANSIENT, detail=notes.Transient(DAY + 50).write(), **MESSAGE)
LIFT = row(30, Kind.RESUMED, peer="p")
SUSPENDED = row(10, Kind.SUSPENDED, **MESSAGE)
ABANDONED = row(40, Kind.ABANDONED, **MESSAGE)
AGAIN = row(42, Kind.SUSPENDED, **MESSAGE)
RESUMED = row(60, Kind.RESUMED, channel="c")


@pytest.mark.parametrize(
    ("rows", "due"),
    [
        ([], 20),
        ([PAUSE], 50),
        ([PAUSE, LIFT], 30),
        ([PAUSE, row(70, Kind.RESUMED, peer="p")], 50),
        ([SUSPENDED], None),
        ([SUSPENDED, ABANDONED], 40),
        ([SUSPENDED, ABANDONED._replace(message_id="one that waited")], None),
        ([SUSPENDED, row(12, Kind.SUSPENDED, message_id="second", channel="c"), ABANDONED], 40),
        ([SUSPENDED, ABANDONED, AGAIN], None),
        ([SUSPENDED, ABANDONED, AGAIN, RESUMED], 60),
        ([PAUSE, SUSPENDED._replace(seq=52)], None),
        ([PAUSE._replace(seq=24)], 20),
        ([PAUSE._replace(peer="another")], 20),
        ([SUSPENDED._replace(channel="another")], 20),
        ([SUSPENDED._replace(node="b")], 20),
    ],
)
def test_when_a_timer_is_heeded(rows: list[Row], due: int | None) -> None:
    standstills = Standstills(rows, lambda one: one.seq)
    sent = row(100, Kind.SENT, message_id="m", peer="p", channel="c")
    assert standstills.due(sent, 20, SLACK) == due
