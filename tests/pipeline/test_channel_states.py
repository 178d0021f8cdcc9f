"""A channel's folds go on from a kept state as if they had never stopped."""

import pytest

from oncewire.journal.predicates.context import Context
from oncewire.journal.row import Row
from oncewire.pipeline.judging.channels import _Both
from tests.journal.scenarios import SCENARIOS


def _streams(rows: list[Row]) -> list[list[Row]]:
    keys = sorted({(row.channel, row.node) for row in rows if row.channel is not None})
    return [[row for row in rows if (row.channel, row.node) == key] for key in keys]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_channel_may_be_cut_anywhere(name: str) -> None:
    rows = SCENARIOS[name]().rows
    context = Context.gather(rows, healed=True)
    for stream in _streams(rows):
        for cut in range(len(stream)):
            first, then, whole = _Both(context), _Both(context), _Both(context)
            for row in stream:
                whole.feed(row)
            for row in stream[:cut]:
                first.feed(row)
            then.restore(first.dump(), context)
            for row in stream[cut:]:
                then.feed(row)
            assert then.finish() == whole.finish()
