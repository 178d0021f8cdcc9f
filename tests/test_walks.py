"""The way of a message through the code turns back no more often than it has to."""

from __future__ import annotations

import pytest

from tests.parts import script
from tests.ports import free_port

TURNS = {"send": 30, "retry": 38, "arrival": 47, "take": 18}
"""How often each walk may turn back; `python scripts/walks.py --list` says where it does. A walk
that has become shorter lowers its bound. One that is longer looks something up a second time, or
asks one file twice what it could have been asked at once."""

CALLS = {"send": 366, "retry": 376, "arrival": 418, "take": 278}
"""How many functions of the package each walk may enter, a few more than it does: how often the
event loop comes round is not always the same."""


@pytest.mark.long
def test_no_walk_turns_back_more_often_or_takes_more_calls() -> None:
    found = script("walks").walks((free_port(), free_port()))
    counted = {walk.name: len(walk.turns) for walk in found}
    assert {name: max(turns, TURNS[name]) for name, turns in counted.items()} == TURNS
    assert {walk.name: max(walk.calls, CALLS[walk.name]) for walk in found} == CALLS
